//! A device of the kernel's `ublk` driver. Data is copied by reads and writes of the driver's own device (`UBLK_F_USER_COPY`),
//! so that it goes from the relay's buffers to the kernel's pages and no other.
//!
//! The device survives the bridge: while there is none the driver holds requests, and gives them to the next one
//! (`UBLK_F_USER_RECOVERY`, `UBLK_F_USER_RECOVERY_REISSUE`).

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::{Node, Shape, device};
use crate::error::AttachError;
use crate::kernel::{UblkCommand, UblkControl, UblkEvent, UblkQueue, UblkRequest};
use crate::operation::{Done, Operation, Outcome};
use crate::relay::Relay;

/// Queues of a device: one for each core, up to this number.
const QUEUES_MAX: usize = 4;
/// Requests of a queue in flight.
const DEPTH: u16 = 128;
/// Largest request with data, in bytes.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Largest trim, in sectors of 512 bytes: 1 GiB.
const TRIM_SECTORS_MAX: u32 = 2 << 20;
const SECTOR_SHIFT: u32 = 9;
/// Bytes of `struct ublksrv_ctrl_dev_info`.
const INFO_BYTES: usize = 64;
/// `UBLK_F_USER_RECOVERY | UBLK_F_USER_RECOVERY_REISSUE | UBLK_F_CMD_IOCTL_ENCODE | UBLK_F_USER_COPY`.
const FLAGS: u64 = 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7;
/// Of a request: durable before it is answered; keep it allocated. `UBLK_IO_F_*` without their shift by 8.
const FUA: u32 = 1 << 5;
const NO_UNMAP: u32 = 1 << 7;
/// Time for nodes to appear, and for a device to be free of its last bridge.
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);
/// Time for a server to end the requests of the connections of a killed bridge.
const REQUESTS_END: Duration = Duration::from_millis(500);

/// See the [module](self).
pub(super) struct UblkNode {
    id: u32,
    path: PathBuf,
    control: UblkControl,
    /// `None` once it is removed.
    threads: Option<Vec<JoinHandle<()>>>,
}

impl UblkNode {
    pub(super) fn make(relay: &Arc<Relay>, shape: &Shape) -> Result<UblkNode, AttachError> {
        let mut control = open_control()?;
        let queues = std::thread::available_parallelism().map_or(1, usize::from).min(QUEUES_MAX) as u16;
        let mut info = info(queues, u32::MAX);
        control.send(UblkCommand::Add, u32::MAX, &mut info, 0).map_err(|error| match error {
            Errno::INVAL | Errno::OPNOTSUPP => AttachError::Missing(
                "the kernel's ublk driver is too old: Linux 6.5 or newer is needed".to_string(),
            ),
            Errno::PERM | Errno::ACCESS => {
                AttachError::Missing("the kernel refuses to add a ublk device".to_string())
            }
            error => AttachError::system("cannot add a ublk device", error.into()),
        })?;
        let id = u32::from_ne_bytes([info[12], info[13], info[14], info[15]]);
        let mut node =
            UblkNode { id, path: device(&format!("ublkb{id}")), control, threads: Some(Vec::new()) };
        node.command(UblkCommand::SetParameters, &mut parameters(shape), 0)?;
        node.start(relay, queues, UblkCommand::Start)?;
        Ok(node)
    }

    /// Takes over the device of a bridge that was killed.
    pub(super) fn recover(relay: &Arc<Relay>, path: &Path) -> Result<UblkNode, AttachError> {
        let id = number(path)
            .ok_or_else(|| AttachError::Refused(format!("{}: no ublk device", path.display())))?;
        let mut node = UblkNode { id, path: path.to_path_buf(), control: open_control()?, threads: None };
        let since = Instant::now();
        // Busy until the kernel has cleared up after the last bridge.
        while let Err(error) = node.control.send(UblkCommand::StartRecovery, id, &mut [], 0) {
            if error != Errno::BUSY || since.elapsed() >= PATIENCE {
                return Err(AttachError::system(
                    format!("{}: cannot take it over", path.display()),
                    error.into(),
                ));
            }
            sleep(POLL);
        }
        sleep(REQUESTS_END);
        let queues =
            fs::read_dir(format!("/sys/block/ublkb{id}/mq")).map_or(1, |queues| queues.count()) as u16;
        node.threads = Some(Vec::new());
        node.start(relay, queues, UblkCommand::EndRecovery)?;
        Ok(node)
    }

    fn command(&mut self, command: UblkCommand, buffer: &mut [u8], number: u64) -> Result<(), AttachError> {
        let failed = |error: Errno| AttachError::system(format!("ublk: {command:?}"), error.into());
        self.control.send(command, self.id, buffer, number).map_err(failed)
    }

    /// Starts the queues, then the device.
    fn start(&mut self, relay: &Arc<Relay>, queues: u16, command: UblkCommand) -> Result<(), AttachError> {
        let data = device(&format!("ublkc{}", self.id));
        let opened = appears(&data, || File::options().read(true).write(true).open(&data));
        let opened = Arc::new(opened.map_err(|source| AttachError::system(data.display(), source))?);
        for number in 0..queues {
            let thread = start_queue(opened.clone(), relay.clone(), number);
            let thread =
                thread.map_err(|source| AttachError::system("cannot start a queue of ublk", source))?;
            self.threads.get_or_insert_default().push(thread);
        }
        self.command(command, &mut [], std::process::id().into())?;
        let path = self.path.clone();
        appears(&path, || fs::metadata(&path))
            .map_err(|source| AttachError::system(path.display(), source))?;
        Ok(())
    }

    fn delete(&mut self) -> Result<(), AttachError> {
        let Some(threads) = self.threads.take() else { return Ok(()) };
        // A device that was not started cannot be stopped.
        let _ = self.control.send(UblkCommand::Stop, self.id, &mut [], 0);
        for thread in threads {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
        self.command(UblkCommand::Delete, &mut [], 0)
    }
}

/// Opens the driver, loading its module if necessary.
fn open_control() -> Result<UblkControl, AttachError> {
    if !Path::new("/dev/ublk-control").exists() {
        let quiet = Stdio::null;
        let _ =
            Command::new("modprobe").arg("ublk_drv").stdin(quiet()).stdout(quiet()).stderr(quiet()).status();
    }
    UblkControl::open().map_err(|error| {
        AttachError::Missing(match error.kind() {
            io::ErrorKind::NotFound => "the kernel has no ublk driver (`modprobe ublk_drv`)".to_string(),
            _ => format!("/dev/ublk-control: {error}"),
        })
    })
}

/// Tries until a node is there.
fn appears<T>(path: &Path, attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let since = Instant::now();
    loop {
        match attempt() {
            Err(_) if since.elapsed() < PATIENCE => sleep(POLL),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(io::Error::new(
                    error.kind(),
                    format!("the kernel made a device, but there is no {}", path.display()),
                ));
            }
            result => return result,
        }
    }
}

/// Number of a device.
fn number(path: &Path) -> Option<u32> {
    path.file_name()?.to_str()?.strip_prefix("ublkb")?.parse().ok()
}

/// Encodes a `struct ublksrv_ctrl_dev_info`.
fn info(queues: u16, id: u32) -> [u8; INFO_BYTES] {
    let mut info = [0; INFO_BYTES];
    info[0..2].copy_from_slice(&queues.to_ne_bytes());
    info[2..4].copy_from_slice(&DEPTH.to_ne_bytes());
    info[8..12].copy_from_slice(&REQUEST_BYTES_MAX.to_ne_bytes());
    info[12..16].copy_from_slice(&id.to_ne_bytes());
    info[24..32].copy_from_slice(&FLAGS.to_ne_bytes());
    info
}

/// Encodes a `struct ublk_params` with `basic` and `discard`.
fn parameters(shape: &Shape) -> Vec<u8> {
    const BASIC: u32 = 1;
    const DISCARD: u32 = 1 << 1;
    const READ_ONLY: u32 = 1;
    const VOLATILE_CACHE: u32 = 1 << 2;
    const FUA: u32 = 1 << 3;
    /// A block of the drive.
    const BLOCK_SHIFT: u8 = 12;
    let mut bytes = vec![0; 4];
    let read_only = if shape.read_only { READ_ONLY } else { 0 };
    bytes.extend((BASIC | DISCARD).to_ne_bytes());
    bytes.extend((VOLATILE_CACHE | FUA | read_only).to_ne_bytes());
    let shift = shape.sector_bytes.trailing_zeros() as u8;
    // Logical and physical block, optimal and smallest request.
    bytes.extend([shift, BLOCK_SHIFT, BLOCK_SHIFT, BLOCK_SHIFT]);
    bytes.extend((REQUEST_BYTES_MAX >> SECTOR_SHIFT).to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend((shape.size_bytes >> SECTOR_SHIFT).to_ne_bytes());
    bytes.extend(0_u64.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend((1_u32 << BLOCK_SHIFT).to_ne_bytes());
    bytes.extend(TRIM_SECTORS_MAX.to_ne_bytes());
    bytes.extend(TRIM_SECTORS_MAX.to_ne_bytes());
    bytes.extend(1_u16.to_ne_bytes());
    bytes.extend(0_u16.to_ne_bytes());
    let length = bytes.len() as u32;
    bytes[0..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

impl Node for UblkNode {
    fn path(&self) -> &Path {
        &self.path
    }

    fn resize(&mut self, size_bytes: u64) -> Result<(), AttachError> {
        let resized =
            self.control.send(UblkCommand::UpdateSize, self.id, &mut [], size_bytes >> SECTOR_SHIFT);
        resized.map_err(|error| match error {
            Errno::OPNOTSUPP | Errno::INVAL => AttachError::Missing(
                "a ublk device cannot grow before Linux 6.16: detach and attach the drive".to_string(),
            ),
            error => AttachError::system("ublk: UpdateSize", error.into()),
        })
    }

    fn remove(&mut self, _patience: Duration) -> Result<(), AttachError> {
        let failed = |error: Errno| AttachError::system(self.path.display(), error.into());
        // A claim: a file system cannot be mounted from now on.
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        let claimed = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(failed)?;
        rustix::fs::fsync(&claimed).map_err(failed)?;
        drop(claimed);
        self.delete()
    }
}

impl Drop for UblkNode {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = self.delete();
    }
}

/// Removes the device of a killed bridge, unless something uses it.
pub(super) fn clear(node: &Path) -> Result<(), AttachError> {
    if let (Some(id), Ok(mut control)) = (number(node), UblkControl::open())
        && device(&format!("ublkc{id}")).exists()
    {
        let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
        if node.exists() {
            let claimed = rustix::fs::open(node, flags, Mode::empty());
            claimed.map_err(|error| AttachError::system(node.display(), error.into()))?;
        }
        let _ = control.send(UblkCommand::Stop, id, &mut [], 0);
        let deleted = control.send(UblkCommand::Delete, id, &mut [], 0);
        deleted.map_err(|error| AttachError::system(node.display(), error.into()))?;
    }
    Ok(())
}

/// The way by which answers come back to the thread of a queue.
struct Answers {
    sender: Sender<(u16, i32)>,
    event: OwnedFd,
}

impl Answers {
    fn send(&self, tag: u16, result: i32) {
        // Both fail only if the queue has ended.
        let _ = self.sender.send((tag, result));
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }
}

fn start_queue(device: Arc<File>, relay: Arc<Relay>, number: u16) -> io::Result<JoinHandle<()>> {
    let event = eventfd(0, EventfdFlags::CLOEXEC)?;
    let (sender, answers) = channel();
    let back = Arc::new(Answers { sender, event: event.try_clone()? });
    // The ring belongs to the thread that makes it.
    std::thread::Builder::new().name(format!("ublk-{number}")).spawn(move || {
        let run = UblkQueue::open(device.clone(), event, number, DEPTH)
            .and_then(|queue| serve(queue, number, &device, &relay, &answers, &back));
        if let Err(error) = run {
            tracing::error!(queue = number, %error, "a queue has ended");
        }
    })
}

/// Serves a queue until the device is stopped.
fn serve(
    mut queue: UblkQueue,
    number: u16,
    device: &Arc<File>,
    relay: &Relay,
    answers: &Receiver<(u16, i32)>,
    back: &Arc<Answers>,
) -> io::Result<()> {
    let (mut events, mut left) = (Vec::new(), DEPTH);
    while left > 0 {
        queue.wait(&mut events)?;
        for event in events.drain(..) {
            match event {
                UblkEvent::Ended(_) => left -= 1,
                UblkEvent::Woken => {}
                UblkEvent::Request(tag, request) => {
                    if let Err(errno) = pass_on(request, number, tag, device, relay, back) {
                        back.send(tag, -errno.raw_os_error());
                    }
                }
            }
        }
        for (tag, result) in answers.try_iter() {
            queue.answer(tag, result);
        }
    }
    Ok(())
}

/// Place of the data of a request in the driver's device: `UBLKSRV_IO_BUF_OFFSET`, `UBLK_QID_OFF`, `UBLK_TAG_OFF`.
fn place(queue: u16, tag: u16) -> u64 {
    0x8000_0000 + (u64::from(queue) << 41 | u64::from(tag) << 25)
}

fn pass_on(
    request: UblkRequest,
    queue: u16,
    tag: u16,
    device: &Arc<File>,
    relay: &Relay,
    back: &Arc<Answers>,
) -> Result<(), Errno> {
    let UblkRequest { operation, flags, sectors, start_sector } = request;
    let (offset, length) = (start_sector << SECTOR_SHIFT, sectors << SECTOR_SHIFT);
    let fua = flags & FUA != 0;
    let errno = |error: &io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    // `UBLK_IO_OP_*`.
    let operation = match operation {
        0 => Operation::Read { offset, length },
        1 => {
            let mut data = vec![0; length as usize];
            device.read_exact_at(&mut data, place(queue, tag)).map_err(|error| errno(&error))?;
            Operation::Write { offset, data, fua }
        }
        2 => Operation::Flush,
        3 => Operation::Trim { offset, length, fua },
        5 => Operation::WriteZeroes { offset, length, no_hole: flags & NO_UNMAP != 0, fua },
        _ => return Err(Errno::OPNOTSUPP),
    };
    let bytes = if operation == Operation::Flush { 0 } else { length as i32 };
    let (back, device) = (back.clone(), device.clone());
    let done: Done = Box::new(move |outcome: Outcome| {
        let copied = outcome.and_then(|data| {
            // Only a read has any.
            device.write_all_at(&data, place(queue, tag)).map_err(|error| errno(&error))
        });
        // The device is closed before its queue ends.
        drop(device);
        back.send(tag, copied.map_or_else(|errno| -errno.raw_os_error(), |()| bytes));
    });
    relay.submit(operation, done);
    Ok(())
}
