//! An open file or block device and the system calls on it. Each performs a whole request.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use super::below::Below;
use super::interrupted::retry_interrupted;
use crate::{IoBuf, Lease};

/// An open backing. Its lock ends with the last reference, so every operation in flight holds one.
#[derive(Debug)]
pub(crate) struct Backing {
    pub(super) file: File,
    pub(super) path: PathBuf,
    /// Only grows.
    pub(super) size_bytes: AtomicU64,
    /// Held during growth: a growth that fails restores the length that it found, which must not change
    /// meanwhile.
    pub(super) growing: Mutex<()>,
    pub(super) block_device: bool,
    pub(super) read_only: bool,
    pub(super) direct: bool,
    /// Set when the backing reported that it cannot discard. No further discard is sent to it.
    pub(super) discard_refused: AtomicBool,
    /// Set when a write or sync failed because the file system or thin volume was out of space.
    pub(super) out_of_space: AtomicBool,
    /// Backing file of a loop device, locked like the device itself.
    pub(super) below: Below,
}

/// One operation and the memory it needs. Whoever performs it owns that memory until it is done.
#[derive(Debug)]
pub(crate) enum Request {
    /// Fill the buffer from the offset on.
    Read { offset: u64, buf: IoBuf },
    /// Write the buffer at the offset.
    Write { offset: u64, buf: Arc<IoBuf> },
    /// Make completed writes durable.
    Sync,
    /// Punch a hole.
    Discard { offset: u64, len: u64 },
}

/// A request for a backing, and the lease that must hold when the kernel is given it.
#[derive(Debug)]
pub(crate) struct Order {
    pub(super) backing: Arc<Backing>,
    /// `None`: at any time.
    pub(super) lease: Option<Arc<Lease>>,
    pub(super) request: Request,
}

impl Order {
    /// Returns whether the kernel may be given it at this moment.
    pub(super) fn may_begin(&self) -> bool {
        self.lease.as_ref().is_none_or(|lease| lease.holds())
    }

    /// Performs it on this thread and blocks until it is done.
    pub(super) fn perform(mut self) -> Outcome {
        let Order { backing, lease, request } = &mut self;
        let holds = || lease.as_ref().is_none_or(|lease| lease.holds());
        let result = backing.perform(request, &holds);
        (self.request, result)
    }
}

/// Result of a request, `None` if not all of it was given to the kernel: it may be repeated. The request is
/// returned with its buffer.
pub(crate) type Outcome = (Request, Option<io::Result<()>>);

impl Backing {
    /// Performs `request` on this thread and blocks until it is done. Asks before each system call whether it
    /// may be made, and returns `None` if not.
    fn perform(&self, request: &mut Request, may: &dyn Fn() -> bool) -> Option<io::Result<()>> {
        match request {
            Request::Read { offset, buf } => may().then(|| self.file.read_exact_at(buf, *offset)),
            Request::Write { offset, buf } => self.write_all(*offset, buf, may),
            Request::Sync => may().then(|| self.file.sync_data()),
            Request::Discard { offset, len } => may().then(|| self.discard(*offset, *len)),
        }
    }

    fn write_all(&self, offset: u64, buf: &[u8], may: &dyn Fn() -> bool) -> Option<io::Result<()>> {
        let mut done = 0;
        while done < buf.len() {
            if !may() {
                return None;
            }
            match self.file.write_at(&buf[done..], offset + done as u64) {
                Ok(0) => return Some(Err(io::ErrorKind::WriteZero.into())),
                Ok(written) => done += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(()))
    }

    /// Drops a range (of `len` 0: all behind `offset`) from the page cache, unless it was changed here and is
    /// not written yet: what another machine wrote there is read from it then. Network file systems ask their
    /// server again.
    pub(super) fn forget_cached(&self, offset: u64, len: u64) -> io::Result<()> {
        let advice = rustix::fs::Advice::DontNeed;
        Ok(rustix::fs::fadvise(&self.file, offset, std::num::NonZeroU64::new(len), advice)?)
    }

    /// Lets the kernel begin to write a range of the page cache to the medium. Does not wait, and so takes no
    /// error that concerns others.
    pub(super) fn begin_writeback(&self, offset: u64, len: u64) -> io::Result<()> {
        let (Ok(offset), Ok(len)) = (i64::try_from(offset), i64::try_from(len)) else {
            return Err(io::Error::from(Errno::OVERFLOW));
        };
        // SAFETY: the call takes numbers only, and the descriptor is open.
        let begun =
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), offset, len, libc::SYNC_FILE_RANGE_WRITE) };
        match begun {
            0 => Ok(()),
            // The file system writes in its own time.
            _ => match io::Error::last_os_error() {
                error if error.kind() == io::ErrorKind::Unsupported => Ok(()),
                error if error.raw_os_error() == Some(libc::ESPIPE) => Ok(()),
                error => Err(error),
            },
        }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.discard_refused.load(Ordering::Relaxed) {
            return Err(unsupported());
        }
        let result = if self.block_device {
            block_discard(&self.file, offset, len)
        } else {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            retry_interrupted(|| rustix::fs::fallocate(&self.file, hole, offset, len))
        };
        match result {
            // OPNOTSUPP: the file system or device cannot discard. NOTTY, NOSYS: it does not know the call.
            Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS) => {
                self.discard_refused.store(true, Ordering::Relaxed);
                Err(unsupported())
            }
            other => Ok(other?),
        }
    }
}

fn unsupported() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "the backing cannot discard")
}

/// `BLKGETSIZE64` of `linux/fs.h`: the size of a block device in bytes.
pub(super) fn block_size_bytes(device: impl AsFd) -> Result<u64, Errno> {
    const BLKGETSIZE64: rustix::ioctl::Opcode = rustix::ioctl::opcode::read::<usize>(0x12, 114);
    // SAFETY: the call fills in one u64 (whatever the `size_t` in its number suggests), as declared here.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::Getter::<BLKGETSIZE64, u64>::new()) }
}

/// `BLKDISCARD` of `linux/fs.h`: discards bytes `offset..offset + len` of a block device.
fn block_discard(device: impl AsFd, offset: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 119);
    // SAFETY: the call reads two u64, start and length in bytes, through the pointer that `Setter` passes.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([offset, len])) }
}

/// `BLKRRPART` of `linux/fs.h`: reads the partition table of a block device again.
pub(super) fn reread_partitions(device: impl AsFd) -> Result<(), Errno> {
    const BLKRRPART: rustix::ioctl::Opcode = rustix::ioctl::opcode::none(0x12, 95);
    // SAFETY: the call has no argument.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::NoArg::<BLKRRPART>::new()) }
}
