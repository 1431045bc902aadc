//! Errors of asking a server.

use std::io;
use std::path::PathBuf;

use status::shown;

use crate::other_file::OtherFile;

/// A server could not be asked, or refused. The message is one line: what, where, what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AskError {
    /// A path leads to something else than the file that a server has opened by it.
    #[error(transparent)]
    OtherFile(Box<OtherFile>),
    /// The server at a path has another drive than the expected one.
    #[error("{}: another drive is served there now; nothing was changed", shown(path))]
    OtherDrive {
        /// Path of the backing.
        path: PathBuf,
    },
    /// A server refused a request.
    #[error("{0}")]
    Refused(String),
    /// The server that has a drive does not answer.
    #[error(
        "{}: its server (process {pid}) {what}; try again, continue it if it was stopped (`kill -CONT {pid}`), or \
         restart it",
        shown(path)
    )]
    NoAnswer {
        /// Path of the backing.
        path: PathBuf,
        /// Process id of the server.
        pid: u32,
        /// Its behaviour: `did not answer within 10 seconds`.
        what: String,
    },
    /// An admin socket cannot be used.
    #[error("{}: cannot ask the admin socket: {source}", shown(socket))]
    Socket {
        /// Path of the socket.
        socket: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl From<OtherFile> for AskError {
    fn from(other: OtherFile) -> AskError {
        AskError::OtherFile(Box::new(other))
    }
}

impl AskError {
    /// Returns true if this process has no permission to use an admin socket.
    pub fn is_denied(&self) -> bool {
        matches!(self, AskError::Socket { source, .. } if source.kind() == io::ErrorKind::PermissionDenied)
    }
}
