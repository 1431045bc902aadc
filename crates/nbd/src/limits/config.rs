//! Settings of the operator: limits, timeouts, TLS.

use std::any::Any;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use crate::limits::helpers::Helpers;
use crate::trust::tls::TlsConfig;
use crate::wire::protocol::MAX_PAYLOAD_BYTES;

/// Use of TLS by clients.
#[derive(Clone, Default)]
pub enum TlsPolicy {
    /// TLS is not offered.
    #[default]
    Off,
    /// Every option but STARTTLS and ABORT is refused until the connection is inside TLS.
    Required(TlsConfig),
}

/// Makes the runtime of the thread that calls it, for one task that requests of the device run in. What is
/// returned with it is dropped before it, on this thread.
pub type MakeRuntime = Arc<dyn Fn() -> io::Result<(Runtime, Box<dyn Any>)> + Send + Sync>;

/// Limits and policies of a server.
#[derive(Clone)]
pub struct ServerConfig {
    /// TLS policy of all connections.
    pub tls: TlsPolicy,
    /// True if TCP without TLS is allowed on addresses other than loopback.
    pub insecure: bool,
    /// True if TCP on addresses other than loopback is allowed with TLS that needs no client certificate.
    pub tls_anonymous: bool,
    /// Most connections at a time. One more takes the place of a connection in its handshake if there is one,
    /// and is closed at once otherwise.
    pub connections_max: usize,
    /// Most connections of one peer at a time, with the same rule. A peer is an IP address, or the user of a
    /// process that connects to a Unix socket.
    pub connections_per_peer_max: usize,
    /// Most requests in flight on a connection; more wait in the socket. 1 to 4096.
    pub requests_per_connection_max: usize,
    /// Most bytes of request data held for one connection; at least 32 MiB.
    pub connection_buffer_bytes_max: usize,
    /// Most bytes of request data held for all connections together, beyond the [`CONNECTION_RESERVE_BYTES`]
    /// that each connection has in addition; at least 32 MiB.
    pub total_buffer_bytes_max: usize,
    /// Longest time from accepting a client to the start of transmission. See
    /// [`ServerConfig::handshake_timeout_scarce`].
    pub handshake_timeout: Duration,
    /// Time without progress after which a client may be disconnected: it holds memory, and takes none of its
    /// replies or sends nothing of a payload it announced. It is disconnected only if another connection
    /// waits for memory.
    pub stall_timeout: Duration,
    /// Time without a request, with nothing in flight, after which a client past its handshake is
    /// disconnected. `None`: clients may be idle for ever.
    pub idle_timeout: Option<Duration>,
    /// Longest time from shutdown (or the client's disconnect request, or the moment when another client
    /// waits for the end of one that has left) to closing, even if replies are left.
    pub shutdown_grace: Duration,
    /// Longest time that a client which chose an export waits for requests of other connections that have
    /// ended. Longer than [`ServerConfig::shutdown_grace`], after which such connections drop them.
    pub fence_timeout: Duration,
    /// Worker threads that share large requests of a stream. `None`: each connection uses its own thread
    /// only.
    pub helpers: Option<Arc<Helpers>>,
    /// For the threads of ublk queues. `None`: the runtime has no means of its own for the device's I/O.
    pub queue_runtime: Option<MakeRuntime>,
    /// Called whenever a bridge connects, before it gets its answer: from then on, writes of this machine may
    /// depend on this process.
    pub on_bridge: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// Largest [`ServerConfig::connections_max`].
pub const CONNECTIONS_LIMIT: usize = 1 << 20;

/// Bytes of request data that every connection may hold without charging the total. With this reserve, greedy
/// or stalled clients never stop small requests of the others.
pub const CONNECTION_RESERVE_BYTES: usize = 256 << 10;

/// Bounds of [`ServerConfig::total_buffer_bytes_max`].
pub const TOTAL_BUFFER_BYTES: std::ops::RangeInclusive<usize> = MAX_PAYLOAD_BYTES as usize..=1 << 40;

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            tls: TlsPolicy::Off,
            insecure: false,
            tls_anonymous: false,
            connections_max: 1024,
            connections_per_peer_max: 512,
            requests_per_connection_max: 256,
            connection_buffer_bytes_max: 64 << 20,
            total_buffer_bytes_max: 256 << 20,
            handshake_timeout: Duration::from_secs(30),
            stall_timeout: Duration::from_secs(30),
            idle_timeout: None,
            shutdown_grace: Duration::from_secs(10),
            fence_timeout: Duration::from_secs(60),
            helpers: None,
            queue_runtime: None,
            on_bridge: None,
        }
    }
}

/// A configuration that cannot be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
#[non_exhaustive]
pub enum ConfigError {
    #[error("there is no export to serve: name at least one drive")]
    NoExport,
    #[error("two exports are named {0:?}: give each its own name")]
    SameName(String),
    #[error("the name or description of export {0:?} is longer than 4096 bytes: shorten it")]
    LongName(String),
    #[error("{name} is {value}, which is outside {min} to {max}: choose a value in that range")]
    Range { name: &'static str, value: usize, min: usize, max: usize },
}

impl ServerConfig {
    /// Longest time for a handshake while handshakes hold more than three quarters of all places, or no place
    /// is free: a tenth of [`ServerConfig::handshake_timeout`], and at least a second.
    pub fn handshake_timeout_scarce(&self) -> Duration {
        (self.handshake_timeout / 10).max(Duration::from_secs(1))
    }

    /// Checks the limits.
    ///
    /// # Errors
    /// [`ConfigError::Range`] naming the first limit that is out of range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let payload = MAX_PAYLOAD_BYTES as usize;
        let limits = [
            ("connections_max", self.connections_max, 1, CONNECTIONS_LIMIT),
            ("connections_per_peer_max", self.connections_per_peer_max, 1, CONNECTIONS_LIMIT),
            ("requests_per_connection_max", self.requests_per_connection_max, 1, 4096),
            ("connection_buffer_bytes_max", self.connection_buffer_bytes_max, payload, 1 << 40),
            (
                "total_buffer_bytes_max",
                self.total_buffer_bytes_max,
                *TOTAL_BUFFER_BYTES.start(),
                *TOTAL_BUFFER_BYTES.end(),
            ),
        ];
        for (name, value, min, max) in limits {
            if !(min..=max).contains(&value) {
                return Err(ConfigError::Range { name, value, min, max });
            }
        }
        Ok(())
    }
}
