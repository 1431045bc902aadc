//! Backing files of loop devices. A loop device and its backing file are two names for the same bytes, so a
//! lock on the loop device is useful only together with a lock on the backing file.
//!
//! ```text
//! /dev/loop1p1 ── partition of ──> /dev/loop1 ── on ──> /dev/loop0 ── on ──> /srv/image
//!  opened, locked                                        locked              locked: the bytes of the partition
//! ```
//!
//! The kernel names the backing file twice: by its path, as a process of the same mount namespace sees it,
//! and by device and inode. The path is used to open the file. Device and inode show whether it is still the
//! right one. Device mapper and RAID claim the devices under them; loop devices do not.

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::MediaError;
use super::interrupted::retry_interrupted;
use super::lock::{Span, lock};

/// Longest chain of loop devices that is followed.
const LEVELS_MAX: usize = 32;

/// Major number of loop devices. That of their partitions is dynamic.
const LOOP_MAJOR: u32 = 7;

const SECTOR_BYTES: u64 = 512;

/// Suffix that the kernel appends to the path of a file that is deleted, or replaced by another of the same
/// name.
const DELETED: &[u8] = b" (deleted)";

/// The files and devices under a loop device, locked for as long as this lives.
#[derive(Debug, Default)]
pub(super) struct Below {
    _locked: Vec<File>,
    warning: Option<String>,
}

impl Below {
    /// One line about what could not be locked, if anything.
    pub(super) fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }
}

/// Locks the backing file of the block device `device`, opened by `path`, if it is a loop device or a
/// partition of one.
///
/// # Errors
/// [`MediaError::InUseBelow`] if another open holds the backing file. [`MediaError::BelowUnreachable`] if it
/// cannot be locked and `device` is opened for writing.
pub(super) fn lock_below(device: &File, path: &Path, read_only: bool) -> Result<Below, MediaError> {
    let mut below = Below::default();
    let mut span = Span::WHOLE;
    for _ in 0..LEVELS_MAX {
        let above = below._locked.last().unwrap_or(device);
        let Some(source) = Source::of(above)
            .map_err(|error| MediaError::from_io(path, "find the backing file of the loop device", error))?
        else {
            return Ok(below);
        };
        span = span.within(source.span);
        let opened = source.open(read_only, span);
        let locked = opened.and_then(|file| {
            let block_device = is_block_device(&file).map_err(Unreachable::refused)?;
            match lock(&file, read_only, span) {
                Ok(()) => Ok((file, block_device)),
                Err(Errno::AGAIN) => Err(Unreachable::InUse),
                Err(error) => Err(Unreachable::refused(error)),
            }
        });
        match locked {
            Ok((file, block_device)) => {
                below._locked.push(file);
                if !block_device {
                    return Ok(below);
                }
            }
            Err(Unreachable::InUse) => {
                return Err(MediaError::InUseBelow { path: path.to_path_buf(), below: source.name() });
            }
            // A deleted file cannot be opened by name, so this is no reason to refuse.
            Err(Unreachable::Deleted) => {
                below.warning = Some(unlocked(path, &source.name(), "it is deleted"));
                return Ok(below);
            }
            Err(Unreachable::Refused(reason)) if read_only => {
                below.warning = Some(unlocked(path, &source.name(), &reason));
                return Ok(below);
            }
            Err(Unreachable::Refused(reason)) => {
                let (path, below) = (path.to_path_buf(), source.name());
                return Err(MediaError::BelowUnreachable { path, below, reason });
            }
        }
    }
    Err(MediaError::from_io(path, "follow so many loop devices on each other", Errno::LOOP))
}

fn unlocked(path: &Path, below: &Path, reason: &str) -> String {
    format!(
        "{}: loop device on {}, which is not locked, because {reason}: nothing keeps another process from writing to \
         the same bytes by another loop device or name",
        path.display(),
        below.display()
    )
}

/// Backing file of a loop device, or of a partition of one, and the range used of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopSource {
    /// Device and inode of the backing file. For a backing device, those of the file name that it was set up
    /// with.
    pub identity: (u64, u64),
    /// Start of the range in the backing file, in bytes.
    pub start: u64,
    /// Length in bytes. `None`: up to the end of the backing file.
    pub len: Option<u64>,
}

impl LoopSource {
    /// Returns the source of the device at `path`. `None` if it is neither a loop device nor a partition of
    /// one, or has no backing file.
    pub fn of(path: &Path) -> Option<LoopSource> {
        // Checked before it is opened, because opening blocks on some kinds of files.
        let device = std::fs::metadata(path).ok().filter(|found| found.file_type().is_block_device());
        let device = device.and_then(|_| open(path, true, Span::WHOLE).ok())?;
        let Source { identity, span: Span { start, len }, .. } = Source::of(&device).ok()??;
        Some(LoopSource { identity, start, len })
    }

    /// Returns whether the two have bytes in common.
    pub fn overlaps(&self, other: &LoopSource) -> bool {
        let end = |it: &LoopSource| it.len.map_or(u64::MAX, |len| it.start.saturating_add(len));
        self.identity == other.identity && self.start < end(other) && other.start < end(self)
    }
}

/// Reason why the backing file of a loop device is not locked.
enum Unreachable {
    InUse,
    Deleted,
    Refused(String),
}

impl Unreachable {
    fn refused(error: impl std::fmt::Display) -> Unreachable {
        Unreachable::Refused(error.to_string())
    }
}

/// Location of the bytes of a loop device, or of a partition of one.
#[derive(Debug)]
struct Source {
    /// Device and inode of the backing file.
    identity: (u64, u64),
    /// Names that may lead to it, the best first. The first is shown to users.
    names: Vec<PathBuf>,
    /// True if the kernel reports that its name is gone.
    deleted: bool,
    span: Span,
}

impl Source {
    /// Returns `None` if `device` is neither a loop device nor a partition of one.
    fn of(device: &File) -> Result<Option<Source>, Errno> {
        let number = rustix::fs::fstat(device)?.st_rdev;
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let sys = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        let partition = sys.join("partition").exists();
        // `..` of the directory that the link leads to. For a partition, that is the whole device.
        let whole = if partition { sys.join("..") } else { sys.clone() };
        // Without /sys a loop device is recognised by its number, and a partition of one is not recognised.
        if major != LOOP_MAJOR && !whole.join("loop").exists() {
            return Ok(None);
        }
        let status = match loop_status(device) {
            Ok(status) => status,
            // Detached: it has no bytes, and its size is zero.
            Err(Errno::NXIO) => return Ok(None),
            Err(error) => return Err(error),
        };
        let sectors = |name| -> Option<u64> {
            let text = std::fs::read_to_string(sys.join(name)).ok()?;
            text.trim().parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)
        };
        // A partition with unknown bounds may be anywhere on the device.
        let within = match (partition, sectors("start"), sectors("size")) {
            (true, Some(start), Some(len)) => Span { start, len: Some(len) },
            _ => Span::WHOLE,
        };
        let span = within.within(status.span());
        let mut names = Vec::new();
        let mut deleted = false;
        if let Ok(mut name) = std::fs::read(whole.join("loop/backing_file")) {
            name.truncate(name.strip_suffix(b"\n").unwrap_or(&name).len());
            deleted = name.ends_with(DELETED);
            names.push(PathBuf::from(OsStr::from_bytes(&name)));
        }
        names.extend(status.file_name());
        Ok(Some(Source { identity: (status.device, status.inode), names, deleted, span }))
    }

    /// Name for messages.
    fn name(&self) -> PathBuf {
        self.names.first().cloned().unwrap_or_else(|| "an unknown file".into())
    }

    fn is(&self, metadata: &Metadata) -> bool {
        let kind = metadata.file_type();
        (kind.is_file() || kind.is_block_device()) && (metadata.dev(), metadata.ino()) == self.identity
    }

    /// Opens the backing file in order to lock it, for writing if possible.
    fn open(&self, read_only: bool, span: Span) -> Result<File, Unreachable> {
        let mut reason = None;
        for name in &self.names {
            // Checked before it is opened, because opening blocks on some kinds of files and has effects on
            // some devices.
            match std::fs::metadata(name) {
                Ok(metadata) if self.is(&metadata) => {}
                Ok(_) => continue,
                Err(error) => {
                    reason.get_or_insert(error.to_string());
                    continue;
                }
            }
            let file = open(name, read_only, span).map_err(|error| match error {
                Errno::BUSY => Unreachable::InUse,
                error => Unreachable::refused(error),
            })?;
            if file.metadata().is_ok_and(|metadata| self.is(&metadata)) {
                return Ok(file);
            }
        }
        match (self.deleted, reason) {
            (true, _) => Err(Unreachable::Deleted),
            (false, Some(reason)) => Err(Unreachable::Refused(reason)),
            (false, None) => Err(Unreachable::refused("this process sees another file by that name")),
        }
    }
}

fn open(name: &Path, read_only: bool, span: Span) -> Result<File, Errno> {
    let attempt = |access, extra| {
        let flags = OFlags::CLOEXEC | OFlags::NONBLOCK | access | extra;
        retry_interrupted(|| rustix::fs::open(name, flags, Mode::empty())).map(File::from)
    };
    if read_only {
        return attempt(OFlags::RDONLY, OFlags::empty());
    }
    let is_device = std::fs::metadata(name).is_ok_and(|metadata| metadata.file_type().is_block_device());
    let claim = match is_device && span == Span::WHOLE {
        // As for a device that is opened by its own name: excludes mounts, RAID, and other users that claim
        // it.
        true => OFlags::EXCL,
        false => OFlags::empty(),
    };
    match attempt(OFlags::RDWR, claim) {
        // Read access is enough for a lock.
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS) => attempt(OFlags::RDONLY, claim),
        other => other,
    }
}

fn is_block_device(file: &File) -> std::io::Result<bool> {
    Ok(file.metadata()?.file_type().is_block_device())
}

/// `struct loop_info64` of `linux/loop.h`. Adjacent fields that are not used are merged.
#[repr(C)]
struct LoopStatus {
    device: u64,
    inode: u64,
    of_block_device: u64,
    offset: u64,
    size_limit: u64,
    numbers_and_flags: [u32; 4],
    file_name: [u8; 64],
    encryption: [u8; 112],
}

const _: () = assert!(size_of::<LoopStatus>() == 232, "the size of struct loop_info64");

impl LoopStatus {
    fn span(&self) -> Span {
        Span { start: self.offset, len: (self.size_limit > 0).then_some(self.size_limit) }
    }

    /// The name that the device was set up with, if it is complete.
    fn file_name(&self) -> Option<PathBuf> {
        let end = self.file_name.iter().position(|byte| *byte == 0)?;
        let name = &self.file_name[..end];
        // The last byte is always zero, so a name that fills the rest may have been cut.
        (name.starts_with(b"/") && end < self.file_name.len() - 1)
            .then(|| PathBuf::from(OsStr::from_bytes(name)))
    }
}

/// `LOOP_GET_STATUS64` of `linux/loop.h`: the backing file of a loop device. It also works on a partition of
/// one.
fn loop_status(device: impl AsFd) -> Result<LoopStatus, Errno> {
    const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;
    // SAFETY: for a loop device the call fills in one `struct loop_info64`. `LoopStatus` has its layout and
    // size.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::Getter::<LOOP_GET_STATUS64, LoopStatus>::new()) }
}
