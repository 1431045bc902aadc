//! Reasons to refuse clients, as the log and metrics name them.

use crate::error::ConnectionError;

/// Reason why a client was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Requests of a connection whose client has left did not end in time.
    UnderWay,
}

impl RefusalReason {
    /// All reasons.
    pub const ALL: [RefusalReason; 10] = [
        RefusalReason::Connections,
        RefusalReason::PeerConnections,
        RefusalReason::MadeRoom,
        RefusalReason::Timeout,
        RefusalReason::Protocol,
        RefusalReason::NoTls,
        RefusalReason::Tls,
        RefusalReason::NoExport,
        RefusalReason::NotListed,
        RefusalReason::UnderWay,
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
            RefusalReason::UnderWay => "under-way",
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
            ConnectionError::UnderWay(_) => Some(RefusalReason::UnderWay),
            _ => None,
        }
    }
}
