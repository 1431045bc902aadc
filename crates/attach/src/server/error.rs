//! Reasons why the server of a drive cannot be started, reached or stopped.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use ask::AskError;
use status::shown;

use super::{CLOSING, LEFT_ANSWERS, NEGOTIATION};
use crate::identity::DifferentDrive;
use crate::upstream::BoxedError;

/// Reason why there is no connection to the server of a drive. The line tries again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServerError {
    /// No server has the drive open.
    #[error("it is not being served")]
    NotServed,
    /// A server has another drive open that was at the path earlier.
    #[error("it is not being served: process {pid} serves another drive, which was at this path earlier")]
    ServesAnother {
        /// Process id of that server.
        pid: u32,
    },
    /// The server that was started has not opened the drive yet.
    #[error("its server is starting")]
    Starting,
    /// The server that was started has ended, or could not be started; see [`StartError`].
    #[error("its server does not start: {0}")]
    NotStarted(#[source] Arc<StartError>),
    /// As [`ServerError::NotStarted`], where the caller does not start it again.
    #[error(transparent)]
    Start(Arc<StartError>),
    /// A server that an earlier bridge has started does not open the drive.
    #[error(
        "its server, process {pid}, which an earlier bridge started, did not answer within {} seconds",
        LEFT_ANSWERS.as_secs()
    )]
    LeftSilent {
        /// Process id of that server.
        pid: u32,
    },
    /// The servers of this machine could not be searched.
    #[error("{}", search_reason(.0))]
    Search(#[source] AskError),
    /// Something else than the attached drive is being served.
    #[error(transparent)]
    Different(#[from] DifferentDrive),
    /// The drive is smaller than the device.
    #[error("the drive is now smaller than the device")]
    Smaller,
    /// The drive is served with other properties than the device has.
    #[error(
        "the drive is now served with a different sector size, or read-only setting, than the device has"
    )]
    OtherShape,
    /// The server has no socket that the bridge can use.
    #[error("its server listens on no Unix socket without TLS: add one to `nbd` in its configuration")]
    NoSocket,
    /// Another bridge has marked the drive as attached.
    #[error(transparent)]
    Marked(io::Error),
    /// The connection could not be made.
    #[error("{}: {source}", socket.display())]
    Connect {
        /// The Unix socket of the server.
        socket: PathBuf,
        /// Error of connecting or negotiating.
        source: NegotiationError,
    },
    /// The device cannot be passed to the server.
    #[error(transparent)]
    Device(BoxedError),
    /// Another server took the drive over while this one was being connected.
    #[error("its server was replaced meanwhile")]
    Replaced,
    /// The attach was given up.
    #[error("given up")]
    GivenUp,
}

/// The message of a failed search. One about another file at the path leaves the path out.
fn search_reason(error: &AskError) -> String {
    match error {
        AskError::OtherFile(other) => other.reason(),
        error => error.to_string(),
    }
}

/// Reason why a server that the bridge starts does not serve its drive.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    /// Its log cannot be written.
    #[error("cannot write its log: {0}")]
    Log(#[source] io::Error),
    /// The program cannot be run.
    #[error("{}: {source}", shown(program))]
    Spawn {
        /// The program.
        program: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// It ended; with the last line of its log, or its exit status if the log is empty.
    #[error("{0}")]
    Ended(String),
}

/// Reason why a connection to a server was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NegotiationError {
    /// The server answers only once all requests of closed connections have ended.
    #[error(
        "its server did not answer within {} seconds: requests of closed connections may still be in flight",
        NEGOTIATION.as_secs()
    )]
    Late(#[source] io::Error),
    /// The socket or the negotiation failed.
    #[error(transparent)]
    Socket(#[from] io::Error),
}

impl NegotiationError {
    /// The reason that an error of a negotiation stands for.
    pub(super) fn of(error: io::Error) -> NegotiationError {
        match error.kind() {
            // Of a socket with a time limit.
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => NegotiationError::Late(error),
            _ => NegotiationError::Socket(error),
        }
    }
}

/// A server that does not end.
#[derive(Debug, thiserror::Error)]
#[error(
    "its server, process {pid}, still has the drive open: it did not end within {} seconds of SIGTERM",
    CLOSING.as_secs()
)]
pub(crate) struct StillRunning {
    /// Process id of the server.
    pub(crate) pid: u32,
}
