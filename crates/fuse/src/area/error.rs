//! Why an area is refused.

use std::io;

/// Why an area is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AreaError {
    /// It could be truncated while it is mapped.
    #[error("the memory of requests is not sealed: expected a memfd whose size cannot change")]
    NotSealed,
    /// Something else.
    #[error("not a memory of requests, or not a whole one")]
    NotAnArea,
    /// Another version of this program has made it.
    #[error("the memory of requests has another version: detach and attach the drive")]
    OtherVersion,
    /// It has what cannot be there.
    #[error("the memory of requests is damaged: {0}")]
    Damaged(&'static str),
}

impl From<AreaError> for io::Error {
    fn from(error: AreaError) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}
