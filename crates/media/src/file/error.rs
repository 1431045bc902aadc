//! Why a file or block device cannot be a backing.

use std::io;
use std::path::{Path, PathBuf};

/// A file or block device could not be opened or created as a backing. The message is one line that says what
/// is wrong, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MediaError {
    /// Nothing lies at the path, or a directory on the way is missing.
    #[error("{}: no such file or device; check the path, or create it first", path.display())]
    NotFound {
        /// The path as it was given.
        path: PathBuf,
    },
    /// A file to be created is already there.
    #[error("{}: already exists and is left as it is; remove it, or choose another path", path.display())]
    AlreadyExists {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The process may not open the path the way it wants to.
    #[error("{}: {source}; check owner and mode, or run as a user who may write it", path.display())]
    Permission {
        /// The path as it was given.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another open of the same backing holds it.
    #[error(
        "{}: in use by another process or mounted; stop that one first (`fuser -v` names it)", path.display()
    )]
    InUse {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The path is a loop device, and another open holds the file or device that it takes its bytes from.
    #[error(
        "{}: loop device on {}, which is in use by another process or mounted; stop that one first (`fuser -v` names it)",
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
        /// Why it cannot be locked.
        reason: String,
    },
    /// The path is a directory, a pipe or anything else that cannot hold a drive.
    #[error("{}: is {found}, not a regular file or block device; give the path of one", path.display())]
    NotStorage {
        /// The path as it was given.
        path: PathBuf,
        /// What it is, with its article.
        found: &'static str,
    },
    /// The backing does not hold a single page.
    #[error("{}: {size_bytes} bytes are too small; a backing holds at least 4096", path.display())]
    TooSmall {
        /// The path as it was given.
        path: PathBuf,
        /// Its size, or the size asked for.
        size_bytes: u64,
    },
    /// Direct I/O was demanded and is not to be had.
    #[error(
        "{}: this file system or device takes no direct I/O in 4 KiB units; use direct I/O `auto` or `off`",
        path.display()
    )]
    DirectRefused {
        /// The path as it was given.
        path: PathBuf,
    },
    /// There is no room for a preallocated file.
    #[error("{}: no room for {size_bytes} bytes; free some space, or create it sparse", path.display())]
    NoSpace {
        /// The path as it was given.
        path: PathBuf,
        /// The size asked for, in bytes.
        size_bytes: u64,
    },
    /// Anything else the system refused.
    #[error("{}: cannot {action}: {source}; the kernel log may say more", path.display())]
    Io {
        /// The path as it was given.
        path: PathBuf,
        /// What was tried, a verb phrase.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl MediaError {
    /// Whether another open of the same bytes is in the way: the backing is free once that one is closed.
    pub fn is_in_use(&self) -> bool {
        matches!(self, MediaError::InUse { .. } | MediaError::InUseBelow { .. })
    }

    /// The error that `source` amounts to while trying to `action` the file at `path`.
    pub(super) fn from_io(path: &Path, action: &'static str, source: impl Into<io::Error>) -> MediaError {
        let path = path.to_path_buf();
        let source = source.into();
        match source.kind() {
            io::ErrorKind::NotFound => MediaError::NotFound { path },
            io::ErrorKind::AlreadyExists => MediaError::AlreadyExists { path },
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                MediaError::Permission { path, source }
            }
            // EBUSY: a block device that is mounted, or claimed with O_EXCL by somebody else.
            // ETXTBSY: a file that is being executed or swapped to.
            io::ErrorKind::ResourceBusy | io::ErrorKind::ExecutableFileBusy | io::ErrorKind::WouldBlock => {
                MediaError::InUse { path }
            }
            io::ErrorKind::IsADirectory => MediaError::NotStorage { path, found: "a directory" },
            _ => MediaError::Io { path, action, source },
        }
    }
}
