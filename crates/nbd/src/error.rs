//! Why a connection ended other than by the client's farewell.

use std::io;

use crate::admission::Peer;
use crate::request::BadMagic;

/// Why a connection was closed. The other connections and the device are not affected.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// There are as many connections as the configuration allows.
    #[error("there are as many connections as max-connections allows: raise it, or close some")]
    TooManyConnections,
    /// The peer has as many connections as the configuration allows to one.
    #[error("{0} has as many connections as max-connections-per-peer allows: raise it, or close some")]
    TooManyOfPeer(Peer),
    /// Another client got the place of this one.
    #[error("closed in the handshake to make room for another client")]
    MadeRoom,
    /// The negotiation was not done in time.
    #[error("the client did not finish the handshake in time")]
    HandshakeTimeout,
    /// The client broke the handshake.
    #[error("handshake failed: {0}")]
    Handshake(String),
    /// The request stream is out of step.
    #[error(transparent)]
    BadMagic(#[from] BadMagic),
    /// A refused WRITE came with more data than is worth throwing away.
    #[error("a WRITE of {0} bytes is too large to be refused politely")]
    PayloadTooLarge(u32),
    /// The client left in the middle of a request.
    #[error("the client closed the connection in the middle of a request")]
    UnexpectedEnd,
    /// The client took no replies or sent no data, and others needed the memory.
    #[error("the client stalled while others waited for memory")]
    Stalled,
    /// The client did not take its last replies, or the device did not answer, within the grace period.
    #[error("requests were left unanswered when the grace period ended")]
    GraceExpired,
    /// The socket or TLS failed.
    #[error("connection: {0}")]
    Io(#[from] io::Error),
}
