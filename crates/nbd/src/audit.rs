//! Record of clients that came and left, or were refused: counters, and lines in the log.
//!
//! Clients that were let in have a line each when they come and when they leave. Refusals can come in floods, and have a
//! line in ten seconds for each reason.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};

use log_limit::LogLimit;

use crate::admission::Peer;
use crate::error::ConnectionError;

/// Reason why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalReason {
    /// The limit of all connections is reached.
    Connections,
    /// The limit of connections of one peer is reached.
    PeerConnections,
    /// Its handshake was ended to make room for another client.
    MadeRoom,
    /// It did not finish its handshake in time.
    Timeout,
    /// It violated the protocol in its handshake.
    Protocol,
    /// It did not use TLS, which is required.
    NoTls,
    /// TLS failed, for example because the client has no valid certificate.
    Tls,
    /// It asked for an export that does not exist.
    NoExport,
    /// It asked for an export that it may not use.
    NotListed,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [RefusalReason; 9] = [
        RefusalReason::Connections,
        RefusalReason::PeerConnections,
        RefusalReason::MadeRoom,
        RefusalReason::Timeout,
        RefusalReason::Protocol,
        RefusalReason::NoTls,
        RefusalReason::Tls,
        RefusalReason::NoExport,
        RefusalReason::NotListed,
    ];

    /// Name in the log and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            RefusalReason::Connections => "max-connections",
            RefusalReason::PeerConnections => "max-connections-per-peer",
            RefusalReason::MadeRoom => "made-room",
            RefusalReason::Timeout => "timeout",
            RefusalReason::Protocol => "protocol",
            RefusalReason::NoTls => "no-tls",
            RefusalReason::Tls => "tls",
            RefusalReason::NoExport => "no-export",
            RefusalReason::NotListed => "not-listed",
        }
    }

    /// The reason in an error that ended a handshake. `None` if the client left, or its socket failed.
    pub(crate) fn of(error: &ConnectionError) -> Option<RefusalReason> {
        match error {
            ConnectionError::TooManyConnections => Some(RefusalReason::Connections),
            ConnectionError::TooManyOfPeer(_) => Some(RefusalReason::PeerConnections),
            ConnectionError::MadeRoom => Some(RefusalReason::MadeRoom),
            ConnectionError::HandshakeTimeout => Some(RefusalReason::Timeout),
            ConnectionError::Handshake(_) => Some(RefusalReason::Protocol),
            ConnectionError::Tls(_) => Some(RefusalReason::Tls),
            _ => None,
        }
    }
}

/// The record of a server.
#[derive(Debug, Default)]
pub(crate) struct Audit {
    connected: AtomicU64,
    refused: [Refused; RefusalReason::ALL.len()],
}

/// Refusals for one reason.
#[derive(Debug, Default)]
struct Refused {
    count: AtomicU64,
    log: LogLimit,
}

impl Audit {
    /// Counts a client that was let in. The caller logs it.
    pub(crate) fn connected(&self) {
        self.connected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal, and logs it unless its reason was logged within the last ten seconds.
    pub(crate) fn refused(&self, reason: RefusalReason, peer: Peer, detail: &dyn Display) {
        let refused = &self.refused[reason as usize];
        refused.count.fetch_add(1, Ordering::Relaxed);
        if let Some(held_back) = refused.log.pass() {
            let reason = reason.as_str();
            tracing::warn!(%peer, reason, held_back, "a client is refused: {detail}");
        }
    }

    /// Number of clients let in so far.
    pub(crate) fn connected_count(&self) -> u64 {
        self.connected.load(Ordering::Relaxed)
    }

    /// Number of refusals so far.
    pub(crate) fn refused_count(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].count.load(Ordering::Relaxed)
    }
}
