//! The drive as a file of a FUSE file system, for a loop device.
//!
//! Requests are answered from other threads than those that receive them, so that many are in flight. All I/O
//! is direct: nothing is kept in the page cache between the loop device and the bridge.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fuser::{Errno, FopenFlags, InitFlags, KernelConfig, OpenFlags, ReplyData, ReplyEmpty, ReplyWrite};
use one_file::{Attributes, Contents, OneFile};
use rustix::fs::FallocateFlags;

use crate::operation::{Done, Operation, Outcome};
use crate::relay::Relay;

/// Largest write, in bytes. The kernel splits larger ones.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests of direct I/O in flight; as many as a loop device has.
const BACKGROUND_MAX: u16 = 128;
const BLOCK_BYTES: u32 = 4096;

/// What is in the file: the drive.
pub(super) struct DriveFile {
    relay: Arc<Relay>,
    size_bytes: Arc<AtomicU64>,
}

/// The file system with the file of a drive, whose size may change.
pub(super) fn drive_file(
    relay: Arc<Relay>,
    size_bytes: Arc<AtomicU64>,
    read_only: bool,
) -> OneFile<DriveFile> {
    let mode = if read_only { 0o400 } else { 0o600 };
    let attributes =
        Attributes { mode, owner: (0, 0), block_bytes: BLOCK_BYTES, may_grow: true, is_free: false };
    OneFile::new(attributes, DriveFile { relay, size_bytes })
}

impl DriveFile {
    /// Returns whether a range is within the drive.
    fn has(&self, offset: u64, length: u64) -> bool {
        offset.checked_add(length).is_some_and(|end| end <= self.size_bytes())
    }
}

fn error(errno: rustix::io::Errno) -> Errno {
    Errno::from_i32(errno.raw_os_error())
}

/// Answers a request without data.
fn answer(reply: ReplyEmpty) -> Done {
    Box::new(move |outcome| match outcome {
        Ok(_) => reply.ok(),
        Err(errno) => reply.error(error(errno)),
    })
}

impl Contents for DriveFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()> {
        let missing = |flags| io::Error::other(format!("this kernel's FUSE lacks {flags:?}"));
        config.add_capabilities(InitFlags::FUSE_ASYNC_DIO).map_err(missing)?;
        // The nearest value that the kernel allows is as good.
        if let Err(most) = config.set_max_write(WRITE_BYTES_MAX) {
            let _ = config.set_max_write(most);
        }
        if let Err(most) = config.set_max_background(BACKGROUND_MAX) {
            let _ = config.set_max_background(most);
        }
        Ok(())
    }

    fn opened(&self) -> FopenFlags {
        FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
    }

    fn read(&self, id: u64, offset: u64, size: u32, _flags: OpenFlags, reply: ReplyData) {
        let length = self.size_bytes().saturating_sub(offset).min(size.into()) as u32;
        if length == 0 {
            return reply.data(&[]);
        }
        let done = Box::new(move |outcome: Outcome| match outcome {
            // The server has answered it. Otherwise it would be answered when it is dropped.
            Ok(data) if data.is_empty() => std::mem::forget(reply),
            Ok(data) => reply.data(&data),
            Err(errno) => reply.error(error(errno)),
        });
        self.relay.submit_read_of(id, offset, length, done);
    }

    fn write(&self, offset: u64, data: &[u8], reply: ReplyWrite) {
        if !self.has(offset, data.len() as u64) {
            return reply.error(Errno::ENOSPC);
        }
        let length = data.len() as u32;
        let done = Box::new(move |outcome: Outcome| match outcome {
            Ok(_) => reply.written(length),
            Err(errno) => reply.error(error(errno)),
        });
        self.relay.submit(Operation::Write { offset, data: data.to_vec(), fua: false }, done);
    }

    fn sync(&self, reply: ReplyEmpty) {
        self.relay.submit(Operation::Flush, answer(reply));
    }

    fn allocate(&self, offset: u64, length: u64, mode: FallocateFlags, reply: ReplyEmpty) {
        // A loop device sends less than 4 GiB at once.
        let (Ok(length), true) = (u32::try_from(length), self.has(offset, length)) else {
            return reply.error(Errno::EINVAL);
        };
        let operation = match mode - FallocateFlags::KEEP_SIZE {
            // The kernel expects zeros where it punches a hole for a request to write zeroes.
            FallocateFlags::PUNCH_HOLE => Operation::Trim { offset, length, fua: false },
            FallocateFlags::ZERO_RANGE => {
                Operation::WriteZeroes { offset, length, no_hole: true, fua: false }
            }
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.relay.submit(operation, answer(reply));
    }
}
