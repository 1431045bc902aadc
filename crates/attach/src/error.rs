//! Errors of attaching and detaching.

use std::fmt;
use std::io;
use std::path::PathBuf;

use status::shown;

use crate::upstream::{BoxedError, NotConnected};

/// Reason why a drive could not be attached or detached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// The kernel or the machine lacks a feature. Another kind of node may work.
    #[error("{0}")]
    Missing(String),
    /// The request is refused; with the reason.
    #[error("{0}")]
    Refused(String),
    /// The drive has no server that the bridge can use.
    #[error("{}: {source}", shown(path))]
    Server {
        /// Path of the drive.
        path: PathBuf,
        /// Why it was not connected.
        source: BoxedError,
    },
    /// A device waits for its drive, and another one is being served from its path.
    #[error(
        "{}: {source}; `pumice detach --force {}` gives the device up, mounted or not",
        shown(path),
        node.display()
    )]
    OtherDrive {
        /// Path of the drive.
        path: PathBuf,
        /// The device that waits.
        node: PathBuf,
        /// Why the drive that is served is not the one of the device.
        source: BoxedError,
    },
    /// The server of an attached drive went away before the device was complete.
    #[error("its server is gone: {0}")]
    ServerGone(#[source] NotConnected),
    /// A device was to be taken over, and its server has given it up.
    #[error("{}: its bridge was killed, and its server has given it up", node.display())]
    NothingLeft {
        /// The device.
        node: PathBuf,
    },
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
