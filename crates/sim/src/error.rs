//! Errors of a subject, as its hosts and the simulator see them.

use drive::ReadOnly;

/// Why a subject did not do what it was asked. The errors of the engine, and those that only a server's
/// client or a pass over the data has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Out of range or misaligned.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// The drive has no room. Over NBD: the drive, or its backing.
    #[error("no space left on the drive")]
    NoSpace,
    /// The backing has no room.
    #[error("no space left under the drive")]
    BackingFull,
    /// The subject accepts no changes.
    #[error("the drive is read-only: {0}")]
    ReadOnly(ReadOnly),
    /// The subject accepts no changes, and did not say why.
    #[error("the drive is read-only")]
    NotPermitted,
    /// The medium failed.
    #[error("input/output error: {0}")]
    Io(String),
    /// Stored data is not what was written: corrupt, damaged, or no drive at all.
    #[error("{0}")]
    Damaged(String),
    /// The medium failed, or stored data is not what was written. It was not said which.
    #[error("failed or damaged: {0}")]
    FailedOrDamaged(String),
    /// The connection was lost. The request may have taken effect, and may still do so until another
    /// connection was established.
    #[error("the connection was lost")]
    ConnectionLost,
    /// No connection could be established.
    #[error("no connection: {0}")]
    NoConnection(String),
    /// Another error number of the protocol.
    #[error("error {0} by NBD")]
    Answered(u32),
    /// The memory of a killed run cannot be used.
    #[error("a memory was refused: {0}")]
    LeftMemory(String),
    /// Any other error of the engine.
    #[error(transparent)]
    Other(drive::Error),
}

impl From<drive::Error> for Error {
    fn from(error: drive::Error) -> Error {
        use drive::Error as Of;
        match error {
            Of::Invalid(what) => Error::Invalid(what),
            Of::NoSpace => Error::NoSpace,
            Of::BackingFull => Error::BackingFull,
            Of::ReadOnly(why) => Error::ReadOnly(why),
            Of::LeftMemory(why) => Error::LeftMemory(why),
            Of::Io(what) => Error::Io(what),
            Of::Corrupt(_) | Of::Damaged(_) | Of::NotADrive => Error::Damaged(error.to_string()),
            other => Error::Other(other),
        }
    }
}

impl Error {
    /// Returns whether the subject accepts no changes.
    pub fn is_read_only(&self) -> bool {
        matches!(self, Error::ReadOnly(_) | Error::NotPermitted)
    }
}
