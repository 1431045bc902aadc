//! The disk as a file: a FUSE file system with one file.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant, UNIX_EPOCH};

use fuser::{
    AccessFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, Session, SessionUnmounter,
    TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::mount::UnmountFlags;

use crate::disk::{Disk, PAGE_BYTES};

/// Name of the file.
pub const FILE_NAME: &str = "drive";
const FILE: INodeNo = INodeNo(2);
/// Names and attributes never change, and looking them up again must not empty the cache.
const FOR_EVER: Duration = Duration::from_secs(1 << 30);
/// Number of requests handled concurrently.
const THREADS: usize = 8;
/// Largest write, in bytes: larger than any write of a drive.
const WRITE_BYTES_MAX: u32 = 1 << 20;
/// Writes that the kernel sends before it waits for replies.
const BACKGROUND_MAX: u16 = 64;
/// Time limit for the kernel to release a mount.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(20);

/// Layer between the server and the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cache {
    /// None: direct I/O.
    None,
    /// The page cache. Each write goes to the disk at once.
    WriteThrough,
    /// The page cache. Writes go to the disk when the kernel chooses, or at a sync.
    WriteBack,
}

/// A mounted disk. Dropping it unmounts the disk, which empties the page cache.
pub struct Mounted {
    folder: PathBuf,
    unmounter: SessionUnmounter,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Mounted {
    /// Mounts the disk at a folder.
    ///
    /// # Errors
    /// If FUSE is missing or not allowed.
    pub fn new(disk: Arc<Disk>, cache: Cache, folder: &Path) -> io::Result<Mounted> {
        let mut config = Config::default();
        config.mount_options = vec![MountOption::FSName("power-cuts".into())];
        config.n_threads = Some(THREADS);
        let mut session = Session::new(OneFile { disk, cache }, folder, &config)?;
        let unmounter = session.unmount_callable();
        let thread = std::thread::Builder::new().name("fuse".into()).spawn(move || session.run())?;
        Ok(Mounted { folder: folder.to_path_buf(), unmounter, thread: Some(thread) })
    }

    /// Path of the disk's file.
    pub fn file(&self) -> PathBuf {
        self.folder.join(FILE_NAME)
    }

    /// Unmounts the disk. Its users must have ended, or end soon.
    ///
    /// # Errors
    /// If it is still in use.
    pub fn unmount(mut self) -> io::Result<()> {
        self.let_go()
    }

    fn let_go(&mut self) -> io::Result<()> {
        let Some(thread) = self.thread.take() else { return Ok(()) };
        let since = Instant::now();
        loop {
            match rustix::mount::unmount(&self.folder, UnmountFlags::empty()) {
                Ok(()) => break,
                // The last references of a killed process are released a little later than it ends.
                Err(rustix::io::Errno::BUSY) if since.elapsed() < UNMOUNT_LIMIT => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(rustix::io::Errno::PERM) => {
                    self.unmounter.unmount()?;
                    break;
                }
                Err(error) => {
                    // Whatever the reason, the next mount must not find this one.
                    let _ = rustix::mount::unmount(&self.folder, UnmountFlags::DETACH);
                    return Err(error.into());
                }
            }
        }
        match thread.join() {
            Ok(ended) => ended,
            Err(_) => Err(io::Error::other("the file system's thread panicked")),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // An error cannot be reported here.
        let _ = self.let_go();
    }
}

struct OneFile {
    disk: Arc<Disk>,
    cache: Cache,
}

impl OneFile {
    fn attributes(&self, inode: INodeNo) -> Option<FileAttr> {
        let (kind, perm, size) = match inode {
            INodeNo::ROOT => (FileType::Directory, 0o700, 0),
            FILE => (FileType::RegularFile, 0o600, self.disk.size_bytes()),
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
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: PAGE_BYTES as u32,
            flags: 0,
        })
    }
}

/// Returns whether a transfer consists of whole pages, as those of a drive do.
fn is_whole(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES as u64)
}

impl Filesystem for OneFile {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let wanted = match self.cache {
            Cache::WriteBack => InitFlags::FUSE_ASYNC_DIO | InitFlags::FUSE_WRITEBACK_CACHE,
            _ => InitFlags::FUSE_ASYNC_DIO,
        };
        let missing = |flags| io::Error::other(format!("this kernel's FUSE lacks {flags:?}"));
        config.add_capabilities(wanted).map_err(missing)?;
        let refused = |what: &str| io::Error::other(format!("this kernel's FUSE refuses {what}"));
        config.set_max_write(WRITE_BYTES_MAX).map_err(|_| refused("large writes"))?;
        config.set_max_background(BACKGROUND_MAX).map_err(|_| refused("many requests in flight"))?;
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.attributes(FILE) {
            Some(file) if parent == INodeNo::ROOT && name == FILE_NAME => {
                reply.entry(&FOR_EVER, &file, Generation(0));
            }
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn getattr(&self, _request: &Request, inode: INodeNo, _handle: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes(inode) {
            Some(attributes) => reply.attr(&FOR_EVER, &attributes),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _request: &Request,
        inode: INodeNo,
        _mode: Option<u32>,
        _uid: Option<u32>,
        _gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<std::time::SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<std::time::SystemTime>,
        _chgtime: Option<std::time::SystemTime>,
        _bkuptime: Option<std::time::SystemTime>,
        _flags: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match self.attributes(inode) {
            // The size of a disk cannot change.
            Some(attributes) if size.is_none_or(|size| size == attributes.size) => {
                reply.attr(&FOR_EVER, &attributes);
            }
            Some(_) => reply.error(Errno::EPERM),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _request: &Request, _inode: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let flags = match self.cache {
            Cache::None => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            // Cached data outlives the process that wrote it, as with any file system.
            _ => FopenFlags::FOPEN_KEEP_CACHE,
        };
        reply.opened(FileHandle(0), flags);
    }

    fn read(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        // Refuses direct I/O, so that the server uses the page cache.
        if self.cache != Cache::None && flags.0 & OFlags::DIRECT.bits() as i32 != 0 {
            return reply.error(Errno::EINVAL);
        }
        match self.disk.read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
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
        let len = data.len() as u64;
        if !is_whole(offset, len) || offset + len > self.disk.size_bytes() {
            return reply.error(Errno::EINVAL);
        }
        match self.disk.write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn fsync(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
        reply: ReplyEmpty,
    ) {
        match self.disk.sync() {
            Ok(()) => {
                reply.ok();
                self.disk.sync_was_answered();
            }
            Err(_) => reply.error(Errno::EIO),
        }
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
        let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
        if mode as u32 != hole.bits() {
            return reply.error(Errno::EOPNOTSUPP);
        }
        if !is_whole(offset, length) || offset + length > self.disk.size_bytes() {
            return reply.error(Errno::EINVAL);
        }
        match self.disk.discard(offset, length) {
            Ok(()) => reply.ok(),
            Err(_) => reply.error(Errno::EIO),
        }
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

    fn fsyncdir(
        &self,
        _request: &Request,
        _inode: INodeNo,
        _handle: FileHandle,
        _data: bool,
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
        let pages = self.disk.size_bytes() / PAGE_BYTES as u64;
        reply.statfs(pages, pages, pages, 2, 0, PAGE_BYTES as u32, 255, PAGE_BYTES as u32);
    }
}
