//! Reasons why a file or block device cannot be used as a backing.

use std::io;
use std::path::{Path, PathBuf};

use super::size_limit::SizeLimit;
use crate::exact_size;

/// Failure to open or create a file or block device as a backing. The message is one line with the problem,
/// the path and a remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// No file is at the path, or a directory on the way is missing.
    #[error("{}: no such file or device; check the path, or create it first", path.display())]
    NotFound {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The file to be created already exists.
    #[error("{}: already exists; remove it, or choose another path", path.display())]
    AlreadyExists {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The process lacks permission to open the path.
    #[error("{}: {source}; check owner and mode, or run as a user who may write it", path.display())]
    Permission {
        /// The path as it was given.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// Another open holds the same backing.
    #[error(
        "{}: in use by another process or mounted; stop that one first (`fuser -v` names it)", path.display()
    )]
    InUse {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The path is a loop device, and another open holds its backing file or device.
    #[error(
        "{}: loop device on {}, which is in use by another process or mounted; stop that one first (`fuser -v` names \
         it)",
        path.display(), below.display()
    )]
    InUseBelow {
        /// The path as it was given.
        path: PathBuf,
        /// The backing file or device of the loop device.
        below: PathBuf,
    },
    /// The path is a loop device whose backing file cannot be locked, so it is not opened for writing.
    #[error(
        "{}: loop device on {}, which cannot be locked against a second server: {reason}; make that file visible and \
        readable to this process, or use its path in place of the loop device", path.display(), below.display()
    )]
    BelowUnreachable {
        /// The path as it was given.
        path: PathBuf,
        /// The backing file or device of the loop device, as the kernel names it.
        below: PathBuf,
        /// Reason why it cannot be locked.
        reason: String,
    },
    /// The path is a directory, a pipe or something else that cannot hold a drive.
    #[error("{}: is {found}, not a regular file or block device; give the path of one", path.display())]
    NotStorage {
        /// The path as it was given.
        path: PathBuf,
        /// Kind of the file, with its article.
        found: &'static str,
    },
    /// The backing is smaller than a single page.
    #[error("{}: {} is too small to hold a drive", path.display(), exact_size(*size_bytes))]
    TooSmall {
        /// The path as it was given.
        path: PathBuf,
        /// Its size, or the requested size.
        size_bytes: u64,
    },
    /// Direct I/O was required and is not available.
    #[error(
        "{}: this file system or device takes no direct I/O in 4 KiB units; use direct I/O `auto` or `off`",
        path.display()
    )]
    DirectRefused {
        /// The path as it was given.
        path: PathBuf,
    },
    /// Not enough space for a preallocated file.
    #[error("{}: no room for {}; free some space, or create it sparse", path.display(), exact_size(*size_bytes))]
    NoSpace {
        /// The path as it was given.
        path: PathBuf,
        /// Requested size in bytes.
        size_bytes: u64,
    },
    /// The file would be larger than this process or its file system allows.
    #[error("{}: cannot be {} large: {limit}", path.display(), exact_size(*size_bytes))]
    TooLarge {
        /// The path as it was given.
        path: PathBuf,
        /// Requested size in bytes.
        size_bytes: u64,
        /// What limits it.
        limit: SizeLimit,
    },
    /// Any other failure of a system call.
    #[error("{}: cannot {action}: {source}; the kernel log may say more", path.display())]
    Io {
        /// The path as it was given.
        path: PathBuf,
        /// The attempted action, a verb phrase.
        action: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl MediaError {
    /// Returns whether another open holds the same bytes. The backing is free once that one is closed.
    pub fn is_in_use(&self) -> bool {
        matches!(self, MediaError::InUse { .. } | MediaError::InUseBelow { .. })
    }

    /// Converts `source`, the failure to `action` the file at `path`.
    pub(super) fn from_io(path: &Path, action: &'static str, source: impl Into<io::Error>) -> MediaError {
        let path = path.to_path_buf();
        let source = source.into();
        match source.kind() {
            io::ErrorKind::NotFound => MediaError::NotFound { path },
            io::ErrorKind::AlreadyExists => MediaError::AlreadyExists { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                MediaError::Permission { path, source }
            }
            // EBUSY: a block device that is mounted, or that another process claimed with O_EXCL.
            // ETXTBSY: a file that is being executed or used as swap.
            io::ErrorKind::ResourceBusy | io::ErrorKind::ExecutableFileBusy | io::ErrorKind::WouldBlock => {
                MediaError::InUse { path }
            }
            io::ErrorKind::IsADirectory => MediaError::NotStorage { path, found: "a directory" },
            _ => MediaError::Io { path, action, source },
        }
    }
}
