//! What answers the requests of a node, as the bridge sees it.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nbd::ublk_queue::QueueNumber;
use rustix::io::Errno;

use crate::shares::Shares;

/// An error of another module, with its sources.
pub(crate) type BoxedError = Box<dyn std::error::Error + Send + Sync>;

/// The server of a node's drive, now or in the future.
pub(crate) trait Upstream: Send + Sync {
    /// Whether requests are answered.
    fn state(&self) -> UpstreamState;

    /// Makes acknowledged changes durable.
    ///
    /// # Errors
    /// That of the server; `TIMEDOUT` if there is none in time.
    fn flush(&self, patience: Duration) -> Result<(), Errno>;

    /// Fails all requests from now on: nothing waits for the server any more.
    fn give_up(&self, reason: &str);

    /// Disconnects for good.
    fn close(&self);
}

/// Whether requests are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum UpstreamState {
    /// They are.
    Connected,
    /// They are held until there is a server again.
    Waiting {
        /// Start of the wait.
        since: Instant,
        /// Reason of the last failure, if known.
        reason: Option<String>,
    },
    /// All fail; with the reason.
    Failed(String),
}

/// How the server gets the requests of a node.
#[derive(Clone)]
pub(crate) enum Supply {
    /// It gets none: there is no node yet. There is one connection.
    Nothing,
    /// From the devices of these shares. There is a connection for each, behind the first.
    Shares(Arc<Shares>),
    /// From a driver of the kernel, over one connection, behind the first. With `uncached` it sends no
    /// flushes, and each change is to be durable before its reply.
    Driver {
        /// See above.
        uncached: bool,
    },
    /// From queues of a ublk device. There is a connection for each, behind the first.
    Queues(Arc<dyn Queues>),
}

/// A ublk device, as it is passed to one server after the other.
pub(crate) trait Queues: Send + Sync {
    /// Opens the driver's own device for the next server. No server has it any more, or is about to end.
    ///
    /// # Errors
    /// If it is not free yet, or cannot be passed on. The caller tries again.
    fn open(&self) -> Result<Opened, BoxedError>;
}

/// A ublk device that a server is to get.
pub(crate) struct Opened {
    /// The driver's own device. `None` if there is none any more, and no queue.
    pub(crate) character: Option<File>,
    /// Its queues.
    pub(crate) queues: Vec<QueueNumber>,
    /// The kernel sends no flushes, and each change is to be durable before it is answered.
    pub(crate) uncached: bool,
}

/// Connections to a server.
pub(crate) struct Connected {
    /// Streams after the negotiation, with simple replies. The first carries requests of the bridge.
    pub(crate) streams: Vec<UnixStream>,
}

/// Finds the server of a drive.
pub(crate) trait Server: Send + 'static {
    /// Reason why there is no connection, in one line.
    type Error: std::error::Error + Send + Sync + 'static;

    /// Connects to the server, starting it if that is its task. All earlier connections are closed by then.
    /// Their requests must have ended when this returns: they could otherwise overwrite requests of the new
    /// ones.
    ///
    /// # Errors
    /// If there is no connection. The caller tries again.
    fn connect(&mut self, supply: &Supply) -> Result<Connected, Self::Error>;
}

/// There was no server within the time limit.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.as_deref().unwrap_or("it does not answer"))]
pub struct NotConnected(
    /// The reason that [`UpstreamState`] shows; `None` if it is unknown.
    pub Option<String>,
);

/// A thread could not be started.
pub(crate) fn spawn(
    name: &str,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(run)
}
