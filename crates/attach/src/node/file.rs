//! The drive as a file: a FUSE file system with one file, for a loop device.
//!
//! Requests are answered from other threads than those that receive them, so that many are in flight. All I/O
//! is direct: nothing is kept in the page cache between the loop device and the bridge.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use fuser::{
    AccessFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory, ReplyEmpty,
    ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, WriteFlags,
};
use rustix::fs::FallocateFlags;

use crate::operation::{Done, Operation, Outcome};
use crate::relay::Relay;

/// Name of the file.
pub(super) const FILE_NAME: &str = "drive";
const FILE: INodeNo = INodeNo(2);
/// Names never change.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// The size does, and the kernel asks again for it.
const NEVER: Duration = Duration::ZERO;
/// Largest write, in bytes. The kernel splits larger ones.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Requests of direct I/O in flight; as many as a loop device has.
const BACKGROUND_MAX: u16 = 128;
const BLOCK_BYTES: u32 = 4096;

/// The file system.
pub(super) struct OneFile {
    pub(super) relay: Arc<Relay>,
    pub(super) size_bytes: Arc<AtomicU64>,
    pub(super) read_only: bool,
}

impl OneFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes.load(Ordering::Relaxed)
    }

    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            FILE => (FileType::RegularFile, if self.read_only { 0o400 } else { 0o600 }, self.size_bytes()),
            _ => return None,
        };
        Some(FileAttr {
            ino: inode,
            size,
            blocks: size / 512,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind,
            perm,
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        })
    }

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

impl Filesystem for OneFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
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

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(file) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry_with_ttls(&NEVER, &FOR_EVER, &file, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&NEVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
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
        self.relay.submit_read_of(request.unique().0, offset, length, done);
    }

    fn write(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
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

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        self.relay.submit(Operation::Flush, answer(reply));
    }

    fn fallocate(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let mode = FallocateFlags::from_bits_retain(mode as u32) - FallocateFlags::KEEP_SIZE;
        // A loop device sends less than 4 GiB at once.
        let (Ok(length), true) = (u32::try_from(length), self.has(offset, length)) else {
            return reply.error(Errno::EINVAL);
        };
        let operation = match mode {
            // The kernel expects zeros where it punches a hole for a request to write zeroes.
            FallocateFlags::PUNCH_HOLE => Operation::Trim { offset, length, fua: false },
            FallocateFlags::ZERO_RANGE => {
                Operation::WriteZeroes { offset, length, no_hole: true, fua: false }
            }
            _ => return reply.error(Errno::EOPNOTSUPP),
        };
        self.relay.submit(operation, answer(reply));
    }

    fn flush(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        reply.ok();
    }

    fn readdir(
        &self,
        _request: &Request,
        inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = [
            (INodeNo::ROOT, FileType::Directory, "."),
            (INodeNo::ROOT, FileType::Directory, ".."),
            (FILE, FileType::RegularFile, FILE_NAME),
        ];
        if inode != INodeNo::ROOT {
            return reply.error(Errno::ENOTDIR);
        }
        for (at, (inode, kind, name)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(inode, at, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn access(&self, _request: &Request, _inode: INodeNo, _mask: AccessFlags, reply: ReplyEmpty) {
        reply.ok();
    }

    fn statfs(&self, _request: &Request, _inode: INodeNo, reply: ReplyStatfs) {
        let blocks = self.size_bytes() / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, 2, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }
}
