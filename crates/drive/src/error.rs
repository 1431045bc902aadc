//! Why a request failed.

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Out of range or misaligned.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// Physical space cannot hold the write; nothing was changed.
    #[error("no space left on the drive")]
    NoSpace,
    /// Read-only by request, or poisoned (the reason is told).
    #[error("the drive is read-only: {0}")]
    ReadOnly(String),
    /// The medium failed.
    #[error("input/output error: {0}")]
    Io(String),
    /// The medium returned something that is not what was written there.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

impl Error {
    pub(crate) fn io(doing: &str, position: u64, error: &std::io::Error) -> Error {
        Error::Io(format!("{doing} at byte {position:#x} of the backing: {error}"))
    }
}
