//! A device of the kernel's `nbd` driver. The kernel has one end of some pairs of sockets, the bridge answers
//! at the others. The driver sees no server and no reconnection.

use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use nbd::protocol as wire;
use nbd::request::{REQUEST_HEADER_BYTES, RequestHeader};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::netlink::{Attributes, Family};
use super::{Node, partitions, queue};
use crate::error::AttachError;
use crate::operation::{Done, Operation, Outcome};
use crate::place::Record;
use crate::process;
use crate::processors;
use crate::relay::Relay;
use crate::shape::Shape;
use crate::users::who_uses;
use host::block::node;

/// `NBD_GENL_FAMILY_NAME` and its version, `linux/nbd-netlink.h`.
const FAMILY: (&str, u8) = ("nbd", 1);
const CONNECT: u8 = 1;
const DISCONNECT: u8 = 2;
const RECONFIGURE: u8 = 3;
const INDEX: u16 = 1;
const SIZE_BYTES: u16 = 2;
const BLOCK_SIZE_BYTES: u16 = 3;
const TIMEOUT: u16 = 4;
const SERVER_FLAGS: u16 = 5;
const SOCKETS: u16 = 7;
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

/// Pairs of sockets: one for each core, up to this number.
const SOCKETS_MAX: usize = 4;
/// Longest write that the kernel sends.
const WRITE_BYTES_MAX: u32 = 32 << 20;
/// Bytes read at once.
const RECEIVE_BYTES: usize = 128 << 10;
/// Interval of checks whether a device is free.
const POLL: Duration = Duration::from_millis(20);
/// Time for the node of a new device to appear.
const NODE_APPEARS: Duration = Duration::from_secs(5);

/// See the [module](self).
pub(super) struct NbdNode {
    path: PathBuf,
    index: u32,
    /// The process that connected the device, as sysfs shows it. `None` if sysfs does not show it.
    connected_by: Option<String>,
    /// The device is this node's: once it is given back, another attachment may have it.
    is_connected: bool,
    family: Family,
    sockets: Vec<Arc<Socket>>,
    threads: Vec<JoinHandle<()>>,
}

/// The bridge's end of a pair.
struct Socket {
    stream: UnixStream,
    /// Held while a reply is written.
    writing: Mutex<()>,
}

impl NbdNode {
    pub(super) fn make(relay: &Arc<Relay>, shape: &Shape) -> Result<NbdNode, AttachError> {
        let family = find_family()?;
        let count = processors::each(SOCKETS_MAX);
        let failed = |source| AttachError::system("cannot create sockets", source);
        let (mut sockets, mut threads, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..count {
            let (stream, kernels) = UnixStream::pair().map_err(failed)?;
            let socket = Arc::new(Socket { stream, writing: Mutex::new(()) });
            let thread = answer_from(socket.clone(), shape.write_cache, relay.clone());
            threads.push(thread.map_err(failed)?);
            sockets.push(socket);
            theirs.push(kernels);
        }
        // The kernel has its own references to the sockets once it is connected.
        let index = connect(&family, shape, &theirs);
        let index = index.inspect_err(|_| sockets.iter().for_each(|socket| socket.shut()))?;
        let path = node(&format!("nbd{index}"));
        let connected_by = shown_process(index);
        let mut node = NbdNode { path, index, connected_by, is_connected: true, family, sockets, threads };
        node.wait_until_it_appears()?;
        if shape.write_cache && !shape.read_only {
            queue::send_flushes(&node.path);
        }
        Ok(node)
    }

    fn wait_until_it_appears(&mut self) -> Result<(), AttachError> {
        let since = Instant::now();
        while fs::metadata(&self.path).is_err() {
            if since.elapsed() >= NODE_APPEARS {
                let path = self.path.clone();
                self.disconnect();
                return Err(AttachError::Missing(format!(
                    "the kernel made a device, but there is no {}",
                    path.display()
                )));
            }
            sleep(POLL);
        }
        Ok(())
    }

    /// Returns whether the device was taken from this process (`nbd-client -d`). Another one may have it by
    /// now.
    fn is_taken(&self) -> bool {
        self.connected_by.is_some() && shown_process(self.index) != self.connected_by
    }

    fn disconnect(&mut self) {
        if !std::mem::replace(&mut self.is_connected, false) {
            return;
        }
        if !self.is_taken() {
            // The kernel may have disconnected it already.
            let _ = self.family.command(DISCONNECT, &Attributes::default().add_u32(INDEX, self.index));
        }
        for socket in &self.sockets {
            socket.shut();
        }
        for thread in self.threads.drain(..) {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Process that has connected a device, as the kernel numbers it: in a container, not as it is known there.
fn shown_process(index: u32) -> Option<String> {
    fs::read_to_string(format!("/sys/block/nbd{index}/pid")).ok().map(|shown| shown.trim_end().to_string())
}

/// Finds the driver, loading its module if necessary.
fn find_family() -> Result<Family, AttachError> {
    let (name, version) = FAMILY;
    let find = || Family::find(name, version);
    let found = find().or_else(|_| {
        let quiet = Stdio::null;
        let _ = Command::new("modprobe").arg(name).stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
        find()
    });
    found.map_err(|error| {
        AttachError::Missing(match error {
            Errno::NOENT => "the kernel has no nbd driver (`modprobe nbd`)".to_string(),
            error => format!("netlink: {error}"),
        })
    })
}

/// What the kernel may send.
fn flags(shape: &Shape) -> u16 {
    let mut flags = wire::FLAG_HAS_FLAGS
        | wire::FLAG_SEND_TRIM
        | wire::FLAG_SEND_WRITE_ZEROES
        | wire::FLAG_CAN_MULTI_CONN;
    if shape.write_cache {
        flags |= wire::FLAG_SEND_FLUSH | wire::FLAG_SEND_FUA;
    }
    if shape.read_only {
        flags |= wire::FLAG_READ_ONLY;
    }
    flags
}

/// Makes a device of the sockets. Returns its number.
fn connect(family: &Family, shape: &Shape, sockets: &[UnixStream]) -> Result<u32, AttachError> {
    let mut items = Attributes::default();
    for socket in sockets {
        let item = Attributes::default().add_u32(SOCKET_DESCRIPTOR, socket.as_raw_fd() as u32);
        items = items.add_nested(SOCKET_ITEM, &item);
    }
    let attributes = Attributes::default()
        .add_u64(SIZE_BYTES, shape.size_bytes)
        .add_u64(BLOCK_SIZE_BYTES, shape.sector_bytes.into())
        // No timeout of the driver: the bridge has its own.
        .add_u64(TIMEOUT, 0)
        .add_u64(SERVER_FLAGS, flags(shape).into())
        .add_nested(SOCKETS, &items);
    family.number(CONNECT, &attributes, INDEX).map_err(|error| match error {
        Errno::PERM => {
            AttachError::Missing("the kernel refuses to configure nbd (CAP_SYS_ADMIN)".to_string())
        }
        Errno::BUSY => AttachError::Missing("no free nbd device".to_string()),
        error => AttachError::system("cannot create an nbd device", error.into()),
    })
}

impl Node for NbdNode {
    fn path(&self) -> &Path {
        &self.path
    }

    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError> {
        if self.is_taken() {
            return Err(AttachError::Refused(format!("{} was taken from the drive", self.path.display())));
        }
        let attributes = Attributes::default().add_u32(INDEX, self.index).add_u64(SIZE_BYTES, size_bytes);
        self.family
            .command(RECONFIGURE, &attributes)
            .map_err(|error| AttachError::system("the kernel refuses a new size", error.into()))
    }

    fn remove(&mut self, patience: Duration, force: bool) -> Result<(), AttachError> {
        // A device of another process stays.
        if self.is_taken() {
            self.disconnect();
            return Ok(());
        }
        let failed = |error: Errno| AttachError::system(self.path.display(), error.into());
        // A claim: a file system cannot be mounted from now on.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let claimed = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(failed)?;
        // Requests fail, because the server was given up.
        rustix::fs::fsync(&claimed).or_else(|error| if force { Ok(()) } else { Err(failed(error)) })?;
        partitions::remove(&claimed, &self.path, patience)
            .or_else(|error| if force { Ok(()) } else { Err(error) })?;
        self.disconnect();
        drop(claimed);
        let since = Instant::now();
        while shown_process(self.index).is_some() && !self.is_taken() {
            if since.elapsed() >= patience {
                let why = who_uses(&self.path);
                return Err(AttachError::Refused(format!("{}: {why}", self.path.display())));
            }
            sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for NbdNode {
    fn drop(&mut self) {
        self.disconnect();
    }
}

/// Removes the device of a killed bridge. Its sockets are closed already. A device that another process has
/// connected since then is left alone.
///
/// # Errors
///
/// If it cannot be removed, or may be that of another process which has the id of the bridge by now.
pub(super) fn clear(node: &Path, record: &Record) -> Result<(), AttachError> {
    let pid = record.bridge_pid;
    // A zombie may be the bridge still.
    let is_anothers = process::started(pid).is_some_and(|started| Some(started) != record.bridge_started);
    let index = node.file_name().and_then(|name| name.to_str()?.strip_prefix("nbd")?.parse().ok());
    if let (Some(index), Ok(family)) = (index, find_family())
        && shown_process(index) == Some(pid.to_string())
    {
        if is_anothers {
            let node = node.display();
            return Err(AttachError::Refused(format!(
                "{node}: connected by process {pid}, whose id another process has now; if that does not use it, \
                 `nbd-client -d {node}`"
            )));
        }
        let disconnected = family.command(DISCONNECT, &Attributes::default().add_u32(INDEX, index));
        disconnected.map_err(|error| AttachError::system(node.display(), error.into()))?;
    }
    Ok(())
}

impl Socket {
    fn shut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Sends a simple reply.
    fn reply(&self, cookie: u64, outcome: &Outcome) {
        let (code, data) = match outcome {
            Ok(data) => (0, data.as_slice()),
            Err(errno) => (errno.raw_os_error() as u32, &[][..]),
        };
        let mut message = Vec::with_capacity(16 + data.len());
        message.extend(wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
        message.extend(code.to_be_bytes());
        message.extend(cookie.to_be_bytes());
        message.extend(data);
        let _writing = self.writing.lock();
        if (&self.stream).write_all(&message).is_err() {
            self.shut();
        }
    }
}

/// Starts a thread that receives the requests of a socket. Without a `write_cache`, the kernel sends no
/// flushes and no FUA.
fn answer_from(socket: Arc<Socket>, write_cache: bool, relay: Arc<Relay>) -> io::Result<JoinHandle<()>> {
    let mut stream = BufReader::with_capacity(RECEIVE_BYTES, socket.stream.try_clone()?);
    std::thread::Builder::new().name("nbd".into()).spawn(move || {
        // Ends with the connection.
        while answer_one(&mut stream, &socket, write_cache, &relay).is_ok() {}
        socket.shut();
    })
}

fn answer_one(
    stream: &mut impl Read,
    socket: &Arc<Socket>,
    write_cache: bool,
    relay: &Relay,
) -> io::Result<()> {
    let mut header = [0; REQUEST_HEADER_BYTES];
    stream.read_exact(&mut header)?;
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let RequestHeader { flags, command, cookie, offset, length } =
        RequestHeader::decode(&header).map_err(|_| invalid())?;
    let fua = flags & wire::CMD_FLAG_FUA != 0;
    let operation = match command {
        wire::CMD_READ => Operation::Read { offset, length },
        wire::CMD_WRITE if length <= WRITE_BYTES_MAX => {
            let mut data = vec![0; length as usize];
            stream.read_exact(&mut data)?;
            Operation::Write { offset, data, fua }
        }
        wire::CMD_FLUSH => Operation::Flush,
        wire::CMD_TRIM => Operation::Trim { offset, length, fua },
        wire::CMD_WRITE_ZEROES => {
            Operation::WriteZeroes { offset, length, no_hole: flags & wire::CMD_FLAG_NO_HOLE != 0, fua }
        }
        // Of which the kernel sends only "disconnect".
        _ => return Err(invalid()),
    };
    let socket = socket.clone();
    let done: Done = Box::new(move |outcome| socket.reply(cookie, &outcome));
    relay.submit(if write_cache { operation } else { operation.durable() }, done);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_flushes_what_has_a_cache() {
        let sent = |write_cache, read_only, flag| {
            let shape = Shape { size_bytes: 1 << 20, sector_bytes: 512, read_only, write_cache };
            flags(&shape) & flag != 0
        };
        for flag in [wire::FLAG_SEND_FLUSH, wire::FLAG_SEND_FUA] {
            assert!(sent(true, false, flag) && !sent(false, false, flag));
        }
        assert!(sent(true, true, wire::FLAG_READ_ONLY) && !sent(true, false, wire::FLAG_READ_ONLY));
        assert!(sent(false, false, wire::FLAG_SEND_TRIM));
    }
}
