//! The disk as a file of a FUSE file system.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fuser::{
    Config, Errno, FopenFlags, InitFlags, KernelConfig, MountOption, OpenFlags, ReplyData, ReplyEmpty,
    ReplyWrite, Session, SessionUnmounter,
};
use one_file::{Attributes, Contents, FILE_NAME, OneFile};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::mount::UnmountFlags;

use crate::disk::{Disk, PAGE_BYTES};

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
        let mut session = Session::new(disk_file(disk, cache), folder, &config)?;
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

/// What is in the file: the disk.
struct DiskFile {
    disk: Arc<Disk>,
    cache: Cache,
}

/// The file system with the file of a disk.
fn disk_file(disk: Arc<Disk>, cache: Cache) -> OneFile<DiskFile> {
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // Looking at the size again must not empty the cache.
    let attributes =
        Attributes { mode: 0o600, owner, block_bytes: PAGE_BYTES as u32, may_grow: false, is_free: true };
    OneFile::new(attributes, DiskFile { disk, cache })
}

/// Returns whether a transfer consists of whole pages, as those of a drive do.
fn is_whole(offset: u64, len: u64) -> bool {
    offset.is_multiple_of(PAGE_BYTES as u64) && len.is_multiple_of(PAGE_BYTES as u64)
}

impl Contents for DiskFile {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn init(&mut self, config: &mut KernelConfig) -> io::Result<()> {
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

    fn opened(&self) -> FopenFlags {
        match self.cache {
            Cache::None => FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
            // Cached data outlives the process that wrote it, as with any file system.
            _ => FopenFlags::FOPEN_KEEP_CACHE,
        }
    }

    fn read(&self, _id: u64, offset: u64, size: u32, flags: OpenFlags, reply: ReplyData) {
        // Refuses direct I/O, so that the server uses the page cache.
        if self.cache != Cache::None && flags.0 & OFlags::DIRECT.bits() as i32 != 0 {
            return reply.error(Errno::EINVAL);
        }
        match self.disk.read(offset, size as usize) {
            Ok(bytes) => reply.data(&bytes),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn write(&self, offset: u64, data: &[u8], reply: ReplyWrite) {
        let len = data.len() as u64;
        if !is_whole(offset, len) || offset + len > self.disk.size_bytes() {
            return reply.error(Errno::EINVAL);
        }
        match self.disk.write(offset, data) {
            Ok(()) => reply.written(data.len() as u32),
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn sync(&self, reply: ReplyEmpty) {
        match self.disk.sync() {
            Ok(()) => {
                reply.ok();
                self.disk.sync_was_answered();
            }
            Err(_) => reply.error(Errno::EIO),
        }
    }

    fn allocate(&self, offset: u64, length: u64, mode: FallocateFlags, reply: ReplyEmpty) {
        if mode != FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE {
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
}
