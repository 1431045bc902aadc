//! Opening, creating and locking a backing.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use host::loops::Span;
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::backing::{Backing, block_size_bytes};
use super::below::{self, Below};
use super::error::MediaError;
use super::interrupted::retry_interrupted;
use super::lock::lock;
use super::size_limit::SizeLimit;
use crate::{IoBuf, LEASE_ENDED, PAGE_BYTES};

/// Choice of direct I/O (`O_DIRECT`), which bypasses the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direct {
    /// Direct if the backing supports it, otherwise through the page cache.
    #[default]
    Auto,
    /// Direct. If it is not supported, the open fails with [`MediaError::DirectRefused`].
    On,
    /// Through the page cache.
    Off,
}

/// Allocation of the space of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Allocation {
    /// Allocated as it is written. The file is small at first, but the file system may become full under the
    /// drive.
    #[default]
    Sparse,
    /// Allocated in full when the file is created.
    Preallocated,
}

pub(super) fn open(path: &Path, read_only: bool, direct: Direct) -> Result<Backing, MediaError> {
    // Checked before it is opened: opening a pipe would wait for its other end.
    let metadata = std::fs::metadata(path).map_err(|error| MediaError::from_io(path, "look at it", error))?;
    let block_device = is_block_device(path, metadata.file_type())?;

    let mut flags = OFlags::CLOEXEC | if read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if block_device && !read_only {
        // On a block device this flag claims it against mounts, RAID, and other users that claim it.
        flags |= OFlags::EXCL;
    }
    let file = retry_interrupted(|| rustix::fs::open(path, flags, Mode::empty()))
        .map(File::from)
        .map_err(|error| MediaError::from_io(path, "open it", error))?;
    // The path may have been replaced since the check.
    let metadata = file.metadata().map_err(|error| MediaError::from_io(path, "look at it", error))?;
    let block_device = is_block_device(path, metadata.file_type())?;
    lock_whole(&file, path, read_only)?;
    let below = match block_device {
        true => below::lock_below(&file, path, read_only)?,
        false => Below::default(),
    };

    let raw_bytes = match block_device {
        true => block_size_bytes(&file).map_err(|error| MediaError::from_io(path, "get its size", error))?,
        // Read again under the lock: a previous holder may have changed the size.
        false => file.metadata().map_err(|error| MediaError::from_io(path, "get its size", error))?.len(),
    };
    let size_bytes = whole_pages(path, raw_bytes)?;
    let direct = set_direct(&file, path, direct)?;
    Ok(Backing {
        file,
        path: path.to_path_buf(),
        size_bytes: AtomicU64::new(size_bytes),
        growing: Mutex::default(),
        block_device,
        read_only,
        direct,
        discard_refused: AtomicBool::new(false),
        out_of_space: AtomicBool::new(false),
        below,
    })
}

pub(super) fn create(
    path: &Path,
    size_bytes: u64,
    allocation: Allocation,
    direct: Direct,
) -> Result<Backing, MediaError> {
    let size_bytes = whole_pages(path, size_bytes)?;
    let flags = OFlags::CLOEXEC | OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
    let file = retry_interrupted(|| rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR))
        .map(File::from)
        .map_err(|error| MediaError::from_io(path, "create it", error))?;
    let finished = finish_create(&file, path, size_bytes, allocation, direct);
    match finished {
        Ok(direct) => Ok(Backing {
            file,
            path: path.to_path_buf(),
            size_bytes: AtomicU64::new(size_bytes),
            growing: Mutex::default(),
            block_device: false,
            read_only: false,
            direct,
            discard_refused: AtomicBool::new(false),
            out_of_space: AtomicBool::new(false),
            below: Below::default(),
        }),
        Err(error) => {
            // This call created the file, so nothing of value is removed.
            drop(std::fs::remove_file(path));
            Err(error)
        }
    }
}

fn finish_create(
    file: &File,
    path: &Path,
    size_bytes: u64,
    allocation: Allocation,
    direct: Direct,
) -> Result<bool, MediaError> {
    lock_whole(file, path, false)?;
    set_size(file, path, size_bytes, allocation)?;
    let direct = set_direct(file, path, direct)?;
    // The size and the name must survive a power cut before a drive relies on them.
    file.sync_all().map_err(|error| MediaError::from_io(path, "sync it", error))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(|error| MediaError::from_io(path, "sync its directory", error))?;
    Ok(direct)
}

/// Makes an open backing at least `size_bytes` long: a file grows, the size of a block device is read again.
/// Durable on return. Returns the resulting size. `may_change` says whether the file is still this process's
/// to change.
pub(super) fn grow(
    backing: &Backing,
    size_bytes: u64,
    allocation: Allocation,
    may_change: impl Fn() -> bool,
) -> Result<u64, MediaError> {
    let (file, path) = (&backing.file, &backing.path);
    let size_bytes = whole_pages(path, size_bytes)?;
    if backing.read_only {
        return Err(MediaError::from_io(path, "grow it", Errno::ROFS));
    }
    let _growing = backing.growing.lock();
    let raw_bytes = if backing.block_device {
        block_size_bytes(file).map_err(|error| MediaError::from_io(path, "get its size", error))?
    } else {
        let len = file.metadata().map_err(|error| MediaError::from_io(path, "get its size", error))?.len();
        if len < size_bytes {
            if !may_change() {
                return Err(MediaError::from_io(path, "grow it", std::io::Error::other(LEASE_ENDED)));
            }
            if let Err(error) = set_size(file, path, size_bytes, allocation) {
                // Releases what preallocation took before it failed. Another owner may have made it longer by
                // now.
                if may_change() {
                    let _ = rustix::fs::ftruncate(file, len);
                }
                return Err(error);
            }
            file.sync_all().map_err(|error| MediaError::from_io(path, "sync it", error))?;
        }
        len.max(size_bytes)
    };
    let now = whole_pages(path, raw_bytes)?;
    Ok(backing.size_bytes.fetch_max(now, Ordering::Relaxed).max(now))
}

fn set_size(file: &File, path: &Path, size_bytes: u64, allocation: Allocation) -> Result<(), MediaError> {
    let set = match allocation {
        Allocation::Sparse => retry_interrupted(|| rustix::fs::ftruncate(file, size_bytes)),
        Allocation::Preallocated => preallocate(file, size_bytes),
    };
    set.map_err(|error| match error {
        Errno::FBIG => {
            let limit = SizeLimit::of_refused(size_bytes);
            MediaError::TooLarge { path: path.to_path_buf(), size_bytes, limit }
        }
        Errno::NOSPC | Errno::DQUOT => MediaError::NoSpace { path: path.to_path_buf(), size_bytes },
        error => MediaError::from_io(path, "allocate it", error),
    })
}

/// Extends a file to `size_bytes`, and allocates all of it. The extension comes first: cutting the file gives
/// it back if something fails. What was allocated in a hole cannot be given back, because a drive may have
/// written there. Holes are therefore filled only if the file system has the space.
fn preallocate(file: &File, size_bytes: u64) -> Result<(), Errno> {
    let allocate = |offset: u64, len: u64| match len {
        0 => Ok(()),
        len => retry_interrupted(|| rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len)),
    };
    let found = rustix::fs::fstat(file)?;
    let old_bytes = (found.st_size as u64).min(size_bytes);
    allocate(old_bytes, size_bytes - old_bytes)?;
    // Some file systems count too few blocks, or call allocated space a hole.
    let unallocated = old_bytes.saturating_sub(found.st_blocks as u64 * 512);
    let holes_bytes = unallocated.min(holes_bytes(file, old_bytes).unwrap_or(u64::MAX));
    if holes_bytes == 0 {
        return Ok(());
    }
    let below = rustix::fs::fstatvfs(file)?;
    // The rest is kept for root.
    let blocks = if rustix::process::geteuid().is_root() { below.f_bfree } else { below.f_bavail };
    if holes_bytes > blocks.saturating_mul(below.f_frsize) {
        return Err(Errno::NOSPC);
    }
    allocate(0, old_bytes)
}

/// Number of bytes of holes in the first `len` bytes of a file.
fn holes_bytes(file: &File, len: u64) -> Result<u64, Errno> {
    let seek = |to| rustix::fs::seek(file, to);
    let (mut holes, mut at) = (0, 0);
    while at < len {
        let hole = seek(SeekFrom::Hole(at))?.min(len);
        at = match seek(SeekFrom::Data(hole)) {
            Ok(data) => data.min(len),
            Err(Errno::NXIO) => len,
            Err(error) => return Err(error),
        };
        holes += at - hole;
    }
    Ok(holes)
}

/// Returns whether a file of this type is a block device. Refuses anything that is neither that nor a regular
/// file.
fn is_block_device(path: &Path, found: std::fs::FileType) -> Result<bool, MediaError> {
    let found = match found {
        found if found.is_file() => return Ok(false),
        found if found.is_block_device() => return Ok(true),
        found if found.is_dir() => "a directory",
        found if found.is_char_device() => "a character device",
        found if found.is_fifo() => "a pipe",
        found if found.is_socket() => "a socket",
        _ => "something else",
    };
    Err(MediaError::NotStorage { path: path.to_path_buf(), found })
}

fn whole_pages(path: &Path, raw_bytes: u64) -> Result<u64, MediaError> {
    match raw_bytes - raw_bytes % PAGE_BYTES as u64 {
        0 => Err(MediaError::TooSmall { path: path.to_path_buf(), size_bytes: raw_bytes }),
        size_bytes => Ok(size_bytes),
    }
}

/// Takes the lock that excludes a second server: exclusive for writing, shared for reading.
fn lock_whole(file: &File, path: &Path, read_only: bool) -> Result<(), MediaError> {
    lock(file, read_only, Span::WHOLE).map_err(|error| MediaError::from_io(path, "lock it", error))
}

/// Turns direct I/O on if requested and supported. Returns whether it is on.
fn set_direct(file: &File, path: &Path, wanted: Direct) -> Result<bool, MediaError> {
    if wanted == Direct::Off {
        return Ok(false);
    }
    let failed = |error: Errno| MediaError::from_io(path, "turn on direct I/O", error);
    let flags = rustix::fs::fcntl_getfl(file).map_err(failed)?;
    let accepted = match rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT) {
        // Accepting the flag is not enough: a device with sectors over 4 KiB accepts it and then refuses
        // every page.
        Ok(()) => probe_direct(file).map_err(failed)?,
        Err(Errno::INVAL | Errno::OPNOTSUPP) => false,
        Err(error) => return Err(failed(error)),
    };
    match (accepted, wanted) {
        (true, _) => Ok(true),
        (false, Direct::On) => Err(MediaError::DirectRefused { path: path.to_path_buf() }),
        (false, _) => {
            rustix::fs::fcntl_setfl(file, flags).map_err(failed)?;
            Ok(false)
        }
    }
}

/// Returns whether a page can be read with direct I/O.
fn probe_direct(file: &File) -> Result<bool, Errno> {
    let mut page = IoBuf::pooled(PAGE_BYTES);
    match retry_interrupted(|| rustix::io::pread(file, &mut page[..], 0)) {
        Err(Errno::INVAL) => Ok(false),
        // A medium error on this page does not matter here; whoever reads the page later handles it.
        Ok(_) | Err(Errno::IO) => Ok(true),
        Err(error) => Err(error),
    }
}
