//! Server and client of the NBD protocol. The server offers [`device::Device`]s to any NBD client, over Unix
//! sockets or TCP, with or without TLS.
//!
//! It implements the fixed newstyle protocol of the NBD specification: simple and structured replies,
//! extended headers (64-bit lengths), `base:allocation`, and every command but RESIZE.
//!
//! * [`Exports`] holds what is served: [`Export`]s, a [`ServerConfig`], and the memory that all connections
//!   share. Exports can be added and removed while it serves.
//! * [`serve_connection`] serves one client within the task that awaits it. Requests that the device
//!   completes at once need no allocation, no task and no separate system call.
//! * [`Listener`], [`Acceptor`], [`Accepted`] and [`Admitted`] bring clients to worker threads. [`Server`]
//!   has its own worker threads.
//! * [`client`] reads exports. It also negotiates for programs that send their own requests.
//! * [`protocol`], [`request`], [`extended`], [`operation`], [`reply`], [`option`] and [`option_reply`]
//!   implement the wire format as pure functions.
//!
//! ```text
//! socket -> input -> operation::check -> Device future (polled at once, else a slot) -> output -> socket
//!             ^ stops when over a limit: requests in flight, bytes held (lease), replies not taken
//! ```
//!
//! Memory: a connection has a receive buffer (16 KiB idle, at most 256 KiB), holds request data of at most
//! `connection_buffer_bytes_max`, and keeps up to 16 MiB of buffers for reuse until they were not needed for
//! a second, while half of all is free. All connections together hold, buffers that are kept included, at
//! most `total_buffer_bytes_max`, plus [`CONNECTION_RESERVE_BYTES`] each.
//!
//! # A service with worker threads of its own
//!
//! One thread accepts clients. Each client is assigned to a worker and stays there.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use nbd::{AcceptFailures, Access, Address, Admitted, Export, Listener, ServerConfig, Exports, Sharing};
//! # use nbd::{Shutdown, ShutdownTrigger};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = nbd::testing::MemoryDevice::new(1 << 30, 4096);
//! let access = Access::Everyone;
//! let (device, sharing) = (Arc::new(device), Sharing::default());
//! let export = Export { name: "disk".into(), description: String::new(), device, access, sharing };
//! let config = ServerConfig::default();
//! let address = "unix:/run/pumice.sock".parse::<Address>()?;
//! let listener = Listener::bind(&address, &config)?;
//! let exports = Exports::new(vec![export], config)?;
//! let trigger = ShutdownTrigger::new();
//!
//! // On the accepting thread, within its runtime:
//! # let hand_to_a_worker = |_: Admitted| {};
//! # let accepting_for = exports.clone();
//! let accepting = async move {
//!     let acceptor = listener.register()?;
//!     let failures = AcceptFailures::new(&address);
//!     loop {
//!         match acceptor.accept().await {
//!             Ok(client) => {
//!                 // A client that finds no place is closed.
//!                 if let Ok(admitted) = client.admit(&accepting_for) {
//!                     hand_to_a_worker(admitted);
//!                 }
//!             }
//!             Err(error) => failures.recover(&error, &accepting_for).await,
//!         }
//!     }
//! #   #[allow(unreachable_code)]
//! #   std::io::Result::Ok(())
//! };
//!
//! // On a worker, within its (single-threaded) runtime, for each client:
//! # let client = |admitted: Admitted, exports: Arc<Exports<nbd::testing::MemoryDevice>>| {
//! let shutdown: Shutdown = trigger.subscribe();
//! tokio::spawn(async move { admitted.serve(&exports, shutdown).await })
//! # };
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod audit;
pub mod client;
mod connection;
mod error;
mod exports;
mod fence;
mod limits;
mod listening;
mod peers;
mod shutdown;
#[cfg(feature = "testing")]
pub mod testing;
mod trust;
mod wire;

pub use audit::refusal::RefusalReason;
pub use connection::{front_end, serve_connection, ublk_queue};
pub use error::ConnectionError;
pub use exports::Exports;
pub use exports::export::{Export, Offered};
pub use fence::attachment;
pub use fence::attachment::Sharing;
pub use limits::config::{
    CONNECTION_RESERVE_BYTES, CONNECTIONS_LIMIT, ConfigError, MakeRuntime, ServerConfig, TOTAL_BUFFER_BYTES,
    TlsPolicy,
};
pub use limits::helpers::{Helpers, Worker};
pub use listening::accept::AcceptFailures;
pub use listening::address::{Address, AddressError, DEFAULT_PORT};
pub use listening::inherited::{Inherited, InheritedError};
pub use listening::listener::{Accepted, Acceptor, Admitted, ListenError, Listener};
pub use listening::server::Server;
pub use peers::peer::Peer;
pub use peers::presence::Presence;
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use trust::access::Access;
pub use trust::identity::{ClientName, ClientNameError};
pub use trust::private_key::KeyKind;
pub use trust::tls::{TlsConfig, TlsError};
pub use wire::{extended, operation, option, option_reply, protocol, reply, request};
