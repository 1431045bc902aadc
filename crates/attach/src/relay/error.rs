//! Reasons why a relay has no connection to a server.

use std::io;

use rustix::io::Errno;

/// An error of another module, with its sources.
pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// There was no server within the time limit.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.as_deref().unwrap_or("it does not answer"))]
pub struct NotConnected(
    /// The reason that [`RelayState`](super::RelayState) shows; `None` if it is unknown.
    pub Option<String>,
);

/// Reason why an attempt to recover failed. The relay tries again.
#[derive(Debug, thiserror::Error)]
pub(super) enum RecoveryError {
    /// There is no connection to a server.
    #[error(transparent)]
    Connect(BoxedError),
    /// The new connection ended.
    #[error("the connection broke: {0}")]
    Broken(#[from] io::Error),
    /// The server made a connection without a stream.
    #[error("no connection")]
    NoStream,
    /// The relay ended, or its time limit was reached.
    #[error("given up")]
    GivenUp,
    /// The server refused a change that had been acknowledged.
    #[error("an acknowledged write cannot be replayed: {0}")]
    Refused(#[source] Errno),
    /// The server had no space for changes that had been acknowledged.
    #[error(
        "no space for {} acknowledged: the drive is full (`pumice set-size` enlarges it), or the file system or \
         volume under it is (`pumice status` says so; make room there)",
        writes_that_were(*.0)
    )]
    NoSpace(
        /// Number of the changes.
        usize,
    ),
    /// The server refused the flush that makes all of them durable.
    #[error("cannot flush: {0}")]
    Flush(#[source] io::Error),
}

fn writes_that_were(count: usize) -> String {
    match count {
        1 => "a write that was".to_string(),
        _ => format!("{count} writes that were"),
    }
}
