//! Errors of attaching and detaching.

use std::fmt;
use std::io;

/// Reason why a drive could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel or the machine lacks something. Another way may work.
    #[error("{0}")]
    Missing(String),
    /// It is not done; with the reason.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{what}: {source}")]
    System {
        /// What was tried, or the path.
        what: String,
        /// The error.
        source: io::Error,
    },
}

impl AttachError {
    pub(crate) fn system(what: impl fmt::Display, source: io::Error) -> AttachError {
        AttachError::System { what: what.to_string(), source }
    }
}
