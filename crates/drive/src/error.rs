//! Why a request failed.

use std::io;

use device::ReadOnly;

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Out of range or misaligned.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// Physical space cannot hold the write; nothing was changed.
    #[error("no space left on the drive")]
    NoSpace,
    /// The backing has no room: a full file system or pool under a sparse file or thin volume. The change may
    /// have happened or may still happen, and is not durable.
    #[error("no space left on the file system or volume under the drive")]
    BackingFull,
    /// The drive accepts no changes.
    #[error("the drive is read-only: {0}")]
    ReadOnly(ReadOnly),
    /// The medium failed.
    #[error("input/output error: {0}")]
    Io(String),
    /// Recovery needs more memory than
    /// [`OpenOptions::recovery_bytes_max`](crate::OpenOptions::recovery_bytes_max).
    #[error("not enough memory: {0}")]
    Memory(String),
    /// The backing holds no drive.
    #[error("there is no Pumice drive here")]
    NotADrive,
    /// Another process has the drive, may have it, or claims it at the same time. The text names it, and says
    /// what to do.
    #[error("{0}")]
    Owned(String),
    /// The memory that a killed run left cannot be used: what only it holds is lost. See
    /// [`OpenOptions::left_memories`](crate::OpenOptions::left_memories).
    #[error("acknowledged writes of the killed server are in a memory that cannot be used: {0}")]
    LeftMemory(String),
    /// The log ends before something that was durable.
    #[error("the log is damaged: {0}")]
    Damaged(String),
    /// The medium returned data that differs from what was written.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl Error {
    pub(crate) fn poisoned(why: &str) -> Error {
        Error::ReadOnly(ReadOnly::Poisoned(why.to_string()))
    }

    /// Returns the error of a failed write to the backing, or of a failed sync.
    pub(crate) fn not_taken(doing: &str, error: &std::io::Error) -> Error {
        match lacks_room(error) {
            true => Error::BackingFull,
            false => Error::Io(format!("{doing}: {error}")),
        }
    }

    pub(crate) fn io(doing: &str, position: u64, error: &std::io::Error) -> Error {
        Error::Io(format!("{doing} at byte {position:#x} of the backing: {error}"))
    }
}

/// Returns whether a write failed because the backing has no room: also if its file may not be as large. The
/// segment is as good as any other then.
pub(crate) fn lacks_room(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
