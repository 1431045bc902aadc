//! Backing files of loop devices. A loop device and its backing file are two names for the same bytes, so a
//! lock on the loop device is useful only together with a lock on the backing file.
//!
//! ```text
//! /dev/loop1p1 ── partition of ──> /dev/loop1 ── on ──> /dev/loop0 ── on ──> /srv/image
//!  opened, locked                                        locked              locked: the bytes of the partition
//! ```
//!
//! Device mapper and RAID claim the devices under them; loop devices do not.

use std::fs::File;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use host::loops::{Source, Span};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::error::MediaError;
use super::interrupted::retry_interrupted;
use super::lock::lock;

/// Longest chain of loop devices that is followed.
const LEVELS_MAX: usize = 32;

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
        let opened = open_source(&source, read_only, span);
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

/// Opens the backing file in order to lock it, for writing if possible.
fn open_source(source: &Source, read_only: bool, span: Span) -> Result<File, Unreachable> {
    let mut reason = None;
    for name in &source.names {
        // Checked before it is opened, because opening blocks on some kinds of files and has effects on
        // some devices.
        match std::fs::metadata(name) {
            Ok(metadata) if source.is(&metadata) => {}
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
        if file.metadata().is_ok_and(|metadata| source.is(&metadata)) {
            return Ok(file);
        }
    }
    match (source.is_deleted, reason) {
        (true, _) => Err(Unreachable::Deleted),
        (false, Some(reason)) => Err(Unreachable::Refused(reason)),
        (false, None) => Err(Unreachable::refused("this process sees another file by that name")),
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
