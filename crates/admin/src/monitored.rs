//! State of a server and its drives, from which requests are answered.

use std::sync::Arc;

use status::StatusReport;

/// Present state of a server.
#[derive(Clone, Debug, Default)]
pub struct Monitored {
    /// Reports of all drives.
    pub drives: Vec<StatusReport>,
    /// Counts of NBD clients.
    pub clients: ClientCounts,
}

/// Counts of the NBD clients of a server.
#[derive(Clone, Debug, Default)]
pub struct ClientCounts {
    /// Connections now, including those in their handshake.
    pub connections: u64,
    /// Clients that chose a drive, since the start.
    pub connected: u64,
    /// Clients refused since the start, by reason.
    pub refused: Vec<(&'static str, u64)>,
}

/// Function that returns the present state. Called for each request; must not wait.
pub type Reports = Arc<dyn Fn() -> Monitored + Send + Sync>;
