//! The mounted file system, on the side of the keeper.
//!
//! Whoever answers LOOKUP and OPEN could name another file, so the keeper does until the loop device has the
//! file. It reads into the first area as a server does: requests that come meanwhile are found there by the
//! first server.

use std::ffi::CString;
use std::fs;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::thread::{Builder, JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use self::clone::clone_into;
use crate::area::{Area, Left, Received, Taken};
use crate::wire::{
    Attributes, FILE_NAME, Operation, Question, TRANSFER_BYTES_MAX, answer, forget_attributes, ok_answer,
};

mod clone;

const DEVICE: &str = "/dev/fuse";
/// Source of the mount, and type behind `fuse.`, as `/proc/mounts` shows them.
const NAME: &str = "pumice";
/// Longest wait for INIT, which the kernel sends at once.
const INIT_PATIENCE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// Interval of attempts to unmount a file system that is in use.
const POLL: Duration = Duration::from_millis(20);

/// The mounted file system. Dropping it unmounts it, unless it is [kept](Mount::keep).
#[derive(Debug)]
pub struct Mount {
    folder: PathBuf,
    device: OwnedFd,
    area: OwnedFd,
    attributes: Attributes,
    is_mounted: bool,
    /// It outlives this value.
    is_kept: bool,
    /// Until it is handed over, and while there is no server.
    answering: Option<Answering>,
}

/// The thread that answers. It ends when the other end of its pipe is gone.
#[derive(Debug)]
struct Answering {
    thread: JoinHandle<io::Result<()>>,
    stop: PipeWriter,
}

/// What one connection of a server needs. The keeper keeps it as long as the mount, and sends copies: the end
/// of a descriptor of `/dev/fuse` ends the requests that were read from it.
#[derive(Debug)]
pub struct Share {
    /// A descriptor of `/dev/fuse`, which does not block. What is read from it is answered through it.
    pub device: OwnedFd,
    /// Memory of an [`Area`](crate::Area).
    pub area: OwnedFd,
}

impl Mount {
    /// Mounts the file system at `folder`, which is made if it is missing, and answers its questions until
    /// [`Mount::hand_over`]. Requests for the drive wait.
    ///
    /// # Errors
    ///
    /// Without `/dev/fuse`, without the permission to mount, or if the kernel's FUSE lacks what is needed.
    pub fn new(folder: &Path, attributes: Attributes) -> io::Result<Mount> {
        fs::create_dir_all(folder)?;
        let device = open_device()?;
        let area = Area::create()?;
        let mut receiver = Receiver::new(&device, &area, attributes)?;
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let options = format!(
            "fd={},rootmode=40000,user_id={},group_id={},max_read={TRANSFER_BYTES_MAX}",
            device.as_raw_fd(),
            user.0,
            user.1
        );
        let options = CString::new(options)?;
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(NAME, folder, format!("fuse.{NAME}"), flags, options.as_c_str())?;
        let mut mount = Mount {
            folder: folder.to_path_buf(),
            device,
            area,
            attributes,
            is_mounted: true,
            is_kept: false,
            answering: None,
        };
        receiver.initialise()?;
        mount.start(receiver)?;
        Ok(mount)
    }

    /// Takes over the file system that a keeper which was killed had mounted at `folder`, and whose server
    /// goes on. `share`: any one of it. It outlives this value, unless it is unmounted.
    ///
    /// # Errors
    ///
    /// If there are too few descriptors.
    pub fn of_share(folder: &Path, share: &Share, attributes: Attributes) -> io::Result<Mount> {
        Ok(Mount {
            folder: folder.to_path_buf(),
            device: share.device.try_clone()?,
            area: share.area.try_clone()?,
            attributes,
            is_mounted: true,
            is_kept: true,
            answering: None,
        })
    }

    /// From now on it outlives this value, unless it is unmounted.
    pub fn keep(&mut self) {
        self.is_kept = true;
    }

    /// Path of the file.
    pub fn path(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Stops answering, and returns what `count` connections of a server need. The first has the requests
    /// that came before.
    ///
    /// # Errors
    ///
    /// If there are too few descriptors or too little memory: it may be tried again. If it was called before,
    /// or if answering failed.
    pub fn hand_over(&mut self, count: usize) -> io::Result<Vec<Share>> {
        if self.answering.is_none() {
            return Err(io::Error::other("the FUSE file was handed over before"));
        }
        let mut shares = Vec::new();
        if count > 0 {
            shares.push(Share { device: self.device.try_clone()?, area: self.area.try_clone()? });
        }
        while shares.len() < count {
            let device = open_device()?;
            clone_into(&device, &self.device)?;
            shares.push(Share { device, area: Area::create()? });
        }
        self.stop()?;
        Ok(shares)
    }

    /// Answers questions again, about a file of `size_bytes`, until [`Mount::stop`]. Requests are left to the
    /// next server, in the first share. No process serves that, or is about to.
    ///
    /// # Errors
    ///
    /// If the area is damaged, or there is no thread.
    pub fn answer(&mut self, size_bytes: u64) -> io::Result<()> {
        self.attributes.size_bytes = size_bytes;
        if !self.is_mounted || self.answering.is_some() {
            return Ok(());
        }
        self.start(Receiver::again(&self.device, &self.area, self.attributes)?)
    }

    fn start(&mut self, receiver: Receiver) -> io::Result<()> {
        let (stopped, stop) = io::pipe()?;
        let thread = Builder::new().name("fuse".into()).spawn(move || receiver.run(&stopped))?;
        self.answering = Some(Answering { thread, stop });
        Ok(())
    }

    /// Makes the kernel ask for the size of the file again.
    ///
    /// # Errors
    ///
    /// If it is not mounted any more.
    pub fn forget_size(&self) -> io::Result<()> {
        match rustix::io::write(&self.device, &forget_attributes()) {
            // It does not know the file.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Stops answering, between two messages. The first share is free then.
    ///
    /// # Errors
    ///
    /// If answering failed.
    pub fn stop(&mut self) -> io::Result<()> {
        let Some(Answering { thread, stop }) = self.answering.take() else { return Ok(()) };
        drop(stop);
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the FUSE thread panicked")))
    }

    /// Unmounts the file system. Waits up to `patience` while it is in use. After that nothing can use it,
    /// and requests without an answer fail.
    ///
    /// # Errors
    ///
    /// If answering failed.
    pub fn unmount(&mut self, patience: Duration) -> io::Result<()> {
        if !std::mem::replace(&mut self.is_mounted, false) {
            return Ok(());
        }
        let since = Instant::now();
        loop {
            match rustix::mount::unmount(&self.folder, UnmountFlags::empty()) {
                Ok(()) => break,
                Err(Errno::BUSY) if since.elapsed() < patience => sleep(POLL),
                Err(_) => {
                    // From now on nothing can use it, and requests without an answer fail.
                    let _ = rustix::mount::unmount(&self.folder, UnmountFlags::DETACH | UnmountFlags::FORCE);
                    break;
                }
            }
        }
        // The directory is empty. Each attachment creates its own.
        let _ = fs::remove_dir(&self.folder);
        // Where another mount namespace has it, it ends with the descriptors.
        self.stop()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = if self.is_kept { self.stop() } else { self.unmount(Duration::from_secs(1)) };
    }
}

fn open_device() -> io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = rustix::fs::open(DEVICE, flags, Mode::empty());
    opened.map_err(|error| io::Error::new(io::Error::from(error).kind(), format!("{DEVICE}: {error}")))
}

/// Reads messages, and answers those that are not for the drive.
struct Receiver {
    device: OwnedFd,
    area: Area,
    attributes: Attributes,
    answer: Vec<u8>,
    /// A change waits for the server.
    has_changes: bool,
}

impl Receiver {
    fn new(device: &OwnedFd, area: &OwnedFd, attributes: Attributes) -> io::Result<Receiver> {
        let mut area = Area::open(area.try_clone()?)?;
        // Nothing is there yet.
        area.left()?;
        Ok(Receiver { device: device.try_clone()?, area, attributes, answer: Vec::new(), has_changes: false })
    }

    /// Goes on with an area that a server had.
    fn again(device: &OwnedFd, area: &OwnedFd, attributes: Attributes) -> io::Result<Receiver> {
        let mut area = Area::open(area.try_clone()?)?;
        // Requests, and answers that are due, stay where they are.
        let left = area.left()?;
        let mut receiver =
            Receiver { device: device.try_clone()?, area, attributes, answer: Vec::new(), has_changes: true };
        for left in left {
            if let Left::Question { unique, question } = left {
                answer(unique, &question, &receiver.attributes, &mut receiver.answer);
                receiver.write_answer()?;
            }
        }
        Ok(receiver)
    }

    /// Writes an answer to the device.
    fn write_answer(&self) -> io::Result<()> {
        match rustix::io::write(&self.device, &self.answer) {
            // Nobody waits for it any more.
            Ok(_) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers INIT, which comes first.
    fn initialise(&mut self) -> io::Result<()> {
        loop {
            let mut ready = [PollFd::new(&self.device, PollFlags::IN)];
            match poll(&mut ready, Some(&INIT_PATIENCE)) {
                Ok(0) => {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "no INIT from the kernel's FUSE"));
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            let Some(question @ Question::Init { .. }) = self.receive()? else { continue };
            return match question.lacks() {
                None => Ok(()),
                Some(what) => {
                    let message = format!("this kernel's FUSE lacks {what}");
                    Err(io::Error::new(io::ErrorKind::Unsupported, message))
                }
            };
        }
    }

    /// Answers until the pipe ends or the file system is unmounted.
    fn run(mut self, stopped: &PipeReader) -> io::Result<()> {
        loop {
            let mut ready = [PollFd::new(stopped, PollFlags::IN), PollFd::new(&self.device, PollFlags::IN)];
            // Without room, requests stay in the kernel.
            let count = if self.area.has_room() { 2 } else { 1 };
            match poll(&mut ready[..count], None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if !ready[0].revents().is_empty() {
                return Ok(());
            }
            match self.receive() {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::NODEV) => return Ok(()),
                received => received?,
            };
        }
    }

    /// Receives one message, and answers it if it is a question. A request for the drive stays in the area,
    /// but for a flush of nothing.
    fn receive(&mut self) -> io::Result<Option<Question>> {
        let device = self.device.as_fd();
        let received = match self.area.receive(|bytes| Ok(rustix::io::read(device, bytes)?)) {
            Ok(received) => received,
            // Nothing there, a signal, or a request that was taken back.
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::AGAIN | Errno::INTR | Errno::NOENT) => return Ok(None),
                _ => return Err(error),
            },
        };
        let question = match received {
            Received::Question { unique, question } => {
                answer(unique, &question, &self.attributes, &mut self.answer);
                Some(question)
            }
            // Nothing was written: a loop device that is being set up would wait for it.
            Received::Request(Taken { unique, operation: Operation::Flush, entry, .. })
                if !self.has_changes =>
            {
                self.area.free(entry);
                self.answer.clear();
                self.answer.extend(ok_answer(unique));
                None
            }
            Received::Request(taken) => {
                self.has_changes |= taken.operation.is_change();
                return Ok(None);
            }
            Received::Nothing => return Ok(None),
        };
        self.write_answer()?;
        Ok(question)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::print_stdout, reason = "tests say what they skip")]

    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::area::{Left, waiting};
    use crate::wire::{Operation, data_header, written_answer};

    const ATTRIBUTES: Attributes = Attributes { size_bytes: 1 << 20, mode: 0o600, block_bytes: 4096 };
    /// Time after which something is taken as lost.
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn requests_that_come_before_the_hand_over_are_found_after_it() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut mount = match Mount::new(&dir.path().join("file"), ATTRIBUTES) {
            Ok(mount) => mount,
            Err(error) => {
                println!("skipped: a FUSE file, which needs /dev/fuse and the permission to mount: {error}");
                return;
            }
        };
        let file = fs::File::options().read(true).write(true).open(mount.path()).expect("a file");
        let file = std::sync::Arc::new(file);
        let client = file.clone();
        let read = std::thread::spawn(move || {
            let mut data = [0; 512];
            client.read_exact_at(&mut data, 4096).map(|()| data)
        });
        let client = file.clone();
        let write = std::thread::spawn(move || client.write_at(&vec![3; 256 << 10], 0));
        let since = Instant::now();
        while waiting(&mount.area) < 2 {
            assert!(since.elapsed() < LIMIT, "no requests");
            sleep(Duration::from_millis(1));
        }
        // Questions are answered all the same.
        assert_eq!(fs::metadata(mount.path()).expect("a file").len(), 1 << 20);
        let shares = mount.hand_over(1).expect("a share");
        let [Share { device, area }] = <[Share; 1]>::try_from(shares).expect("one");
        let mut area = Area::open(area).expect("an area");
        let left = area.left().expect("an area");
        // Also the last question, which was answered: the next server does so again.
        let requests: Vec<_> = left
            .into_iter()
            .filter_map(|left| match left {
                Left::Request(taken) => Some(taken),
                Left::Question { .. } => None,
                Left::Answer { .. } => panic!("{left:?}"),
            })
            .collect();
        assert_eq!(requests.len(), 2);
        for taken in requests {
            let answer = match taken.operation {
                Operation::Read { offset: 4096, length: 512 } => {
                    [&data_header(taken.unique, 512)[..], &[7; 512]].concat()
                }
                Operation::Write { offset: 0, length: 0x4_0000 } => {
                    let payload = taken.payload.as_ref().expect("data");
                    assert!(payload.as_slice() == vec![3; 256 << 10]);
                    written_answer(taken.unique, 256 << 10).to_vec()
                }
                other => panic!("{other:?}"),
            };
            assert_eq!(rustix::io::write(&device, &answer), Ok(answer.len()));
            area.free(taken.entry);
        }
        assert_eq!(read.join().expect("no panic").expect("read"), [7; 512]);
        assert_eq!(write.join().expect("no panic").expect("written"), 256 << 10);
    }
}
