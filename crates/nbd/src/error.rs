//! Reasons why a connection ended other than by the client's disconnect request.

use std::io;

use crate::peers::peer::{Counted, Peer};
use crate::peers::writer::{Writer, Writers};
use crate::wire::request::BadMagic;

/// Reason why a connection was closed. The other connections and the device are not affected.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The limit of all connections is reached.
    #[error("there are as many connections as max-connections allows: raise it, or close some")]
    TooManyConnections,
    /// The limit of connections of one peer is reached.
    #[error("{} has as many connections as max-connections-per-peer allows: raise it, or close some", Counted(*.0))]
    TooManyOfPeer(Peer),
    /// Another client took the place of this one.
    #[error("closed in the handshake to make room for another client")]
    MadeRoom,
    /// The negotiation did not finish in time.
    #[error("the client did not finish the handshake in time")]
    HandshakeTimeout,
    /// The client violated the protocol in the handshake.
    #[error("handshake failed: {0}")]
    Handshake(String),
    /// The client chose an export without TLS, in a way that has no reply for errors.
    #[error("handshake failed: EXPORT_NAME before STARTTLS")]
    NoTls,
    /// The client chose an export that does not exist, in a way that has no reply for errors.
    #[error("handshake failed: there is no such export")]
    NoExport,
    /// Requests of connections whose clients have left, or threads of connections, did not end or answer in
    /// time. The connections are named by their numbers in the log.
    #[error(
        "requests of other connections to this drive, which have ended or do not respond, are still in flight (clients \
         {0:?} in the server's log): connect again later; if that does not help, restart the server"
    )]
    UnderWay(Vec<u64>),
    /// The client may have closed its connection before another one chose the device, which does not wait for
    /// its requests.
    #[error(
        "the client sends no more, and another one has connected since: none of its requests was carried out"
    )]
    Overtaken,
    /// The client wants to attach the device, and these others have write access to it.
    #[error(
        "other clients have write access to the drive: {}; disconnect them first, or allow both with shared-writes",
        Writers(.0)
    )]
    InUse(Vec<Writer>),
    /// The device was attached. The client had write access, or was about to have it.
    #[error(
        "the drive was attached on the server's machine: other clients may only read; connect again for that"
    )]
    Attached,
    /// The client wants to attach the device, which another bridge that was killed has left to this server.
    #[error(
        "the drive is attached, and its bridge was killed: `pumice attach` by the same run-time directory takes over \
         the device, `pumice detach` removes it"
    )]
    Unattended,
    /// TLS could not be established.
    #[error("TLS: {0}")]
    Tls(io::Error),
    /// The request stream is out of step.
    #[error(transparent)]
    BadMagic(#[from] BadMagic),
    /// A write with an extended header did not say that its data follows. The following bytes could be data
    /// or requests.
    #[error("a write without the flag for its payload (PAYLOAD_LEN)")]
    NoPayload,
    /// A refused request carried more data than is worth reading and discarding.
    #[error("a payload of {0} bytes is too large to be refused politely")]
    PayloadTooLarge(u64),
    /// The client disconnected in the middle of a request.
    #[error("the client closed the connection in the middle of a request")]
    UnexpectedEnd,
    /// The client took no replies or sent no data while others waited for memory.
    #[error("the client stalled while others waited for memory")]
    Stalled,
    /// The client sent no request for as long as it may be idle.
    #[error("the client was idle for longer than idle-timeout allows")]
    Idle,
    /// The client did not take its last replies, or the device did not complete its requests, within the
    /// grace period.
    #[error("requests were left unanswered when the grace period ended")]
    GraceExpired,
    /// The socket or TLS failed.
    #[error("connection: {0}")]
    Io(#[from] io::Error),
}
