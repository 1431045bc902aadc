//! A device of the kernel's `nbd` driver, which has a connection to the drive's server.
//!
//! When the connection ends, the driver holds all requests, and gets the next one. It sends requests again
//! that had no answer, but notices only by their timeout that they have none. So that is short. A request
//! that takes longer stays where it is, at the price of a line in the kernel's log: the driver is told to
//! have no timeout of its own, and it has one connection. With several, it would give up the connection.

use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nbd::protocol as wire;
use rustix::io::{Errno, ioctl_fionread};

use super::netlink::{Attributes, Family};
use super::{Node, Source, claim, in_use, load_module, partitions, queue};
use crate::error::AttachError;
use crate::line::{Driver, Line};
use crate::place::Record;
use crate::process;
use crate::shape::Shape;
use crate::upstream::{Supply, Upstream, UpstreamState};
use crate::users::{openers, who_uses};
use host::Root;
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
const DEAD_CONNECTION_TIMEOUT: u16 = 8;
const SOCKET_ITEM: u16 = 1;
const SOCKET_DESCRIPTOR: u16 = 1;

/// Timeout of requests: those of a server that was killed are sent again after it, and up to a second more.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// That of other nbd devices.
const USUAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Time that the kernel waits for a server beyond the time limit of the line: this process may be gone by
/// then.
const KERNEL_WAITS_LONGER: Duration = Duration::from_secs(60);
/// Longest time that the kernel waits for a server.
const KERNEL_WAITS_MAX: Duration = Duration::from_secs(365 * 24 * 3600);
/// Longest wait for the server to take the first connection.
const SERVER_PATIENCE: Duration = Duration::from_secs(30);
/// Attempts to replace a connection that has ended, which the driver may not have noticed yet.
const REPLACES: u32 = 100;
/// Time in which all requests that wait for a connection see one.
const SEEN: Duration = Duration::from_secs(1);
/// Time that a server has to be there before the device grows.
const SETTLES: Duration = Duration::from_secs(2);
/// Longest wait for a moment in which the device can grow.
const RESIZE_PATIENCE: Duration = Duration::from_secs(5);
/// Interval of looks for one.
const MOMENT: Duration = Duration::from_millis(1);
/// Interval of checks whether a device is free.
const POLL: Duration = Duration::from_millis(20);
/// Time for the node of a new device to appear.
const NODE_APPEARS: Duration = Duration::from_secs(5);

/// See the [module](self).
pub(super) struct NbdNode {
    path: PathBuf,
    device: Device,
    /// The device is this node's: once it is given back, another attachment may have it.
    is_connected: bool,
    line: Arc<Line>,
    /// It outlives this value.
    is_kept: bool,
}

/// A device that was connected by this process.
struct Device {
    family: Family,
    index: u32,
    /// The process that connected the device, as sysfs shows it. `None` if sysfs does not show it.
    connected_by: Option<String>,
}

impl NbdNode {
    pub(super) fn make(
        source: Source,
        shape: &Shape,
        note: impl FnOnce(&Path) -> Result<(), AttachError>,
    ) -> Result<(NbdNode, Arc<Line>), AttachError> {
        let family = find_family()?;
        let patience = source.patience;
        let line = source.line()?;
        let index = connect(&family, shape, patience)?;
        let mut node = NbdNode::of(family, index, line.clone());
        // It outlives this process.
        note(&node.path).inspect_err(|_| node.disconnect())?;
        node.wait_until_it_appears()?;
        if shape.write_cache && !shape.read_only {
            queue::send_flushes(&node.path);
        }
        node.bring(shape)?;
        Ok((node, line))
    }

    /// Takes over the device of a killed bridge. The driver keeps the connection that it has, and gets one to
    /// the next server when that has ended. If this fails, the device stays for another bridge.
    pub(super) fn recover(
        source: Source,
        path: &Path,
        shape: &Shape,
    ) -> Result<(NbdNode, Arc<Line>), AttachError> {
        let index = index_of(path).ok_or_else(|| AttachError::NothingLeft { node: path.into() })?;
        let family = find_family()?;
        let patience = source.patience;
        let line = source.line()?;
        let mut node = NbdNode::of(family, index, line.clone());
        node.is_kept = true;
        let waits =
            |attributes: Attributes| attributes.add_u64(DEAD_CONNECTION_TIMEOUT, kernel_waits(patience));
        if let Err(error) = node.device.reconfigure(waits) {
            tracing::warn!(%error, "the kernel waits for a server as long as before");
        }
        node.bring(shape)?;
        Ok((node, line))
    }

    fn of(family: Family, index: u32, line: Arc<Line>) -> NbdNode {
        let device = Device { family, index, connected_by: shown_process(index) };
        NbdNode { path: node(&format!("nbd{index}")), device, is_connected: true, line, is_kept: false }
    }

    /// Gives the driver a connection to the server.
    fn bring(&self, shape: &Shape) -> Result<(), AttachError> {
        queue::set_timeout(&self.path, REQUEST_TIMEOUT);
        let (index, connected_by) = (self.device.index, self.device.connected_by.clone());
        let driver = Device { family: find_family()?, index, connected_by };
        let supply = Supply::Driver { uncached: !shape.write_cache };
        self.line.bring(supply, Box::new(driver), SERVER_PATIENCE).map_err(AttachError::ServerGone)
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

    fn disconnect(&mut self) {
        if !std::mem::replace(&mut self.is_connected, false) {
            return;
        }
        // The kernel ends the connection.
        self.line.release();
        if !self.device.is_taken() {
            // The kernel may have disconnected it already.
            let _ = disconnect(&self.device.family, self.device.index);
        }
    }

    /// Waits until the device can grow. The driver lets no other command in while it waits for all requests
    /// to be done, so it would not get the connection to the next server, if this one went away then.
    fn wait_for_moment(&self) -> Result<(), AttachError> {
        let refused = |why: &str| AttachError::Refused(why.to_string());
        let since = Instant::now();
        loop {
            if self.line.state() != UpstreamState::Connected {
                return Err(refused("its server is gone"));
            }
            let is_idle = in_flight(self.device.index).is_none_or(|count| count == 0);
            if is_idle && since.elapsed() >= SETTLES {
                return Ok(());
            }
            if since.elapsed() >= RESIZE_PATIENCE {
                return Err(refused("requests are in flight all the time, which the driver would wait for"));
            }
            sleep(MOMENT);
        }
    }
}

impl Device {
    /// Returns whether the device was taken from this process (`nbd-client -d`). Another one may have it by
    /// now.
    fn is_taken(&self) -> bool {
        self.connected_by.is_some() && shown_process(self.index) != self.connected_by
    }

    fn reconfigure(&self, attributes: impl FnOnce(Attributes) -> Attributes) -> Result<(), Errno> {
        self.family.command(RECONFIGURE, &attributes(Attributes::default().add_u32(INDEX, self.index)))
    }

    /// Gives the driver a connection in place of one that has ended, and waits until it is the driver's own:
    /// it has read the byte. All requests that it has sent over the one before are to be sent again then.
    /// `attributes`: further ones of the command.
    fn replace(&self, stream: &UnixStream, attributes: impl Fn(Attributes) -> Attributes) {
        for _ in 0..REPLACES {
            if self.is_taken() {
                return;
            }
            let given = self.reconfigure(|own| attributes(own).add_nested(SOCKETS, &items(stream)));
            if given.is_err() || ioctl_fionread(stream).is_ok_and(|unread| unread == 0) {
                return;
            }
            sleep(POLL);
        }
    }
}

impl Driver for Device {
    fn lost(&self) {
        // The driver goes on waiting for a server.
        if let Ok((kernels, other)) = connection() {
            drop(other);
            self.replace(&kernels, |attributes| attributes);
        }
    }

    fn take(&self, streams: &[UnixStream]) -> bool {
        if self.is_taken() {
            return false;
        }
        for stream in streams {
            let given = self.reconfigure(|attributes| attributes.add_nested(SOCKETS, &items(stream)));
            if let Err(error) = given {
                tracing::error!(%error, "the kernel refuses the connection to the server");
            }
        }
        // The driver may not have noticed the end of the last one yet, and ignores this one then. One that it
        // has, it ignores too.
        true
    }

    fn abort(&self) {
        let no_wait = |attributes: Attributes| attributes.add_u64(DEAD_CONNECTION_TIMEOUT, 0);
        // Those that wait for a connection go on waiting unless they see one.
        if let Ok((kernels, other)) = connection() {
            self.replace(&kernels, no_wait);
            sleep(SEEN);
            drop(other);
        }
        self.lost();
    }
}

/// Process that has connected a device, as the kernel numbers it: in a container, not as it is known there.
fn shown_process(index: u32) -> Option<String> {
    Root::machine().text(format!("sys/block/nbd{index}/pid"))
}

/// Requests that a device is working at; `None` if that is unknown. Flushes do not count.
fn in_flight(index: u32) -> Option<u64> {
    let shown = Root::machine().text(format!("sys/block/nbd{index}/inflight"))?;
    shown.split_whitespace().map(|count| count.parse::<u64>().ok()).sum()
}

/// Gives a device back.
fn disconnect(family: &Family, index: u32) -> Result<(), Errno> {
    queue::set_timeout(&node(&format!("nbd{index}")), USUAL_TIMEOUT);
    family.command(DISCONNECT, &Attributes::default().add_u32(INDEX, index))
}

/// A connection, with a byte for the kernel to read: its end first.
fn connection() -> std::io::Result<(UnixStream, UnixStream)> {
    let (kernels, mut other) = UnixStream::pair()?;
    other.write_all(&[0])?;
    Ok((kernels, other))
}

/// Attributes of a connection for the driver. It has its own reference to it then.
fn items(socket: &UnixStream) -> Attributes {
    let item = Attributes::default().add_u32(SOCKET_DESCRIPTOR, socket.as_raw_fd() as u32);
    Attributes::default().add_nested(SOCKET_ITEM, &item)
}

/// Finds the driver, loading its module if necessary.
fn find_family() -> Result<Family, AttachError> {
    let (name, version) = FAMILY;
    let find = || Family::find(name, version);
    let found = find().or_else(|_| {
        load_module(name);
        find()
    });
    found.map_err(|error| {
        AttachError::Missing(match error {
            Errno::NOENT => "the kernel has no nbd driver (`modprobe nbd`)".to_string(),
            error => format!("netlink: {error}"),
        })
    })
}

/// Time that the kernel waits for a server, in seconds.
fn kernel_waits(patience: Duration) -> u64 {
    patience.saturating_add(KERNEL_WAITS_LONGER).min(KERNEL_WAITS_MAX).as_secs()
}

/// What the kernel may send.
fn flags(shape: &Shape) -> u16 {
    let mut flags = wire::FLAG_HAS_FLAGS | wire::FLAG_SEND_TRIM | wire::FLAG_SEND_WRITE_ZEROES;
    if shape.write_cache {
        flags |= wire::FLAG_SEND_FLUSH | wire::FLAG_SEND_FUA;
    }
    if shape.read_only {
        flags |= wire::FLAG_READ_ONLY;
    }
    flags
}

/// Makes a device that waits for a connection. Returns its number.
fn connect(family: &Family, shape: &Shape, patience: Duration) -> Result<u32, AttachError> {
    let (kernels, other) =
        connection().map_err(|source| AttachError::system("cannot create sockets", source))?;
    drop(other);
    let attributes = Attributes::default()
        .add_u64(SIZE_BYTES, shape.size_bytes)
        .add_u64(BLOCK_SIZE_BYTES, shape.sector_bytes.into())
        // None: a request may take as long as it does.
        .add_u64(TIMEOUT, 0)
        .add_u64(DEAD_CONNECTION_TIMEOUT, kernel_waits(patience))
        .add_u64(SERVER_FLAGS, flags(shape).into())
        .add_nested(SOCKETS, &items(&kernels));
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
        if self.device.is_taken() {
            return Err(AttachError::Refused(format!("{} was taken from the drive", self.path.display())));
        }
        self.wait_for_moment()?;
        self.device
            .reconfigure(|attributes| attributes.add_u64(SIZE_BYTES, size_bytes))
            .map_err(|error| AttachError::system("the kernel refuses a new size", error.into()))
    }

    fn keep(&mut self) {
        self.is_kept = true;
    }

    fn remove(&mut self, patience: Duration, force: bool) -> Result<(), AttachError> {
        // A device of another process stays.
        if self.device.is_taken() {
            self.disconnect();
            return Ok(());
        }
        let failed = |error: Errno| AttachError::system(self.path.display(), error.into());
        let claimed = claim(&self.path).map_err(failed)?;
        // Requests fail, because the server was given up.
        rustix::fs::fsync(&claimed).or_else(|error| if force { Ok(()) } else { Err(failed(error)) })?;
        partitions::remove(&claimed, &self.path, patience)
            .or_else(|error| if force { Ok(()) } else { Err(error) })?;
        self.disconnect();
        drop(claimed);
        let since = Instant::now();
        while shown_process(self.device.index).is_some() && !self.device.is_taken() {
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
        if self.is_kept && self.is_connected {
            self.line.abandon();
        } else {
            self.disconnect();
        }
    }
}

/// Number of a device.
fn index_of(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("nbd")?.parse().ok()
}

/// Returns whether a device is that of a killed bridge still: nobody has disconnected it.
pub(super) fn is_its(path: &Path, record: &Record) -> bool {
    let (maker, started) = record.maker();
    !is_anothers(maker, started) && index_of(path).and_then(shown_process) == Some(maker.to_string())
}

/// Returns whether another process has the id of a bridge by now, and may have connected an nbd device.
fn is_anothers(pid: u32, started: Option<u64>) -> bool {
    // A zombie may be the bridge still.
    let is_other = process::started(pid).is_some_and(|found| Some(found) != started);
    let connects = || {
        let name = host::process::name(pid);
        name.is_empty() || name.contains("nbd") || name == host::process::name(std::process::id())
    };
    is_other && connects()
}

/// Removes the device of a killed bridge, which works as long as the server lives: one that is in use only
/// with `force`. A device that another process has connected since then is left alone.
///
/// # Errors
///
/// If it cannot be removed, is in use, or may be that of another process which has the id of the bridge by
/// now.
pub(super) fn clear(node: &Path, record: &Record, force: bool) -> Result<(), AttachError> {
    let (pid, recorded) = record.maker();
    if let (Some(index), Ok(family)) = (index_of(node), find_family())
        && shown_process(index) == Some(pid.to_string())
    {
        if is_anothers(pid, recorded) {
            let node = node.display();
            return Err(AttachError::Refused(format!(
                "{node}: connected by process {pid}, whose id another process has now; if that does not use it, \
                 `nbd-client -d {node}`"
            )));
        }
        let failed = |error: Errno| AttachError::system(node.display(), error.into());
        let _claimed = match (!force).then(|| claim(node)) {
            Some(Err(Errno::BUSY)) => return Err(in_use(node)),
            Some(Ok(_)) if !openers(node).is_empty() => return Err(in_use(node)),
            claimed => claimed,
        };
        disconnect(&family, index).map_err(failed)?;
    }
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
