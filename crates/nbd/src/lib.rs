//! Server and client of the NBD protocol. The server offers [`device::Device`]s to any NBD client, over Unix
//! sockets or TCP, with or without TLS.
//!
//! It implements the fixed newstyle protocol of the NBD specification: simple and structured replies,
//! extended headers (64-bit lengths), `base:allocation`, and every command but RESIZE.
//!
//! * [`Shared`] holds what is served: [`Export`]s, a [`ServerConfig`], and the memory that all connections
//!   share. Exports can be added and removed while it serves.
//! * [`serve_connection`] serves one client within the task that awaits it. Requests that the device
//!   completes at once need no allocation, no task and no separate system call.
//! * [`Listener`], [`Acceptor`], [`Accepted`] and [`Admitted`] bring clients to worker threads. [`Server`]
//!   has its own worker threads.
//! * [`client`] reads exports. It also negotiates for programs that send their own requests.
//! * [`protocol`], [`request`], [`extended`], [`reply`], [`option`] and [`option_reply`] implement the wire
//!   format as pure functions.
//!
//! ```text
//! socket -> input -> request::check -> Device future (polled at once, else a slot) -> output -> socket
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
//! # use nbd::{AcceptFailures, Access, Address, Admitted, Export, Listener, ServerConfig, Shared, Sharing};
//! # use nbd::{Shutdown, ShutdownTrigger};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let device = nbd::testing::MemoryDevice::new(1 << 30, 4096);
//! let access = Access::Everyone;
//! let (device, sharing) = (Arc::new(device), Sharing::default());
//! let export = Export { name: "disk".into(), description: String::new(), device, access, sharing };
//! let config = ServerConfig::default();
//! let address = "unix:/run/pumice.sock".parse::<Address>()?;
//! let listener = Listener::bind(&address, &config)?;
//! let shared = Shared::new(vec![export], config)?;
//! let trigger = ShutdownTrigger::new();
//!
//! // On the accepting thread, within its runtime:
//! # let hand_to_a_worker = |_: Admitted| {};
//! # let accepting_for = shared.clone();
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
//! # let client = |admitted: Admitted, shared: Arc<Shared<nbd::testing::MemoryDevice>>| {
//! let shutdown: Shutdown = trigger.subscribe();
//! tokio::spawn(async move { admitted.serve(&shared, shutdown).await })
//! # };
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod accept;
mod access;
mod address;
mod admission;
mod answers;
pub mod attachment;
mod audit;
mod budget;
mod buffers;
pub mod client;
mod config;
mod connection;
pub mod delivery;
mod entry;
mod error;
mod execute;
mod export;
pub mod extended;
mod fence;
mod handshake;
mod helpers;
mod hold_back;
mod identity;
mod inherited;
mod input;
mod listener;
pub mod option;
pub mod option_reply;
mod output;
mod peer;
mod presence;
mod private_key;
pub mod protocol;
mod refusal;
pub mod reply;
pub mod request;
mod resources;
mod server;
mod sessions;
mod short;
mod shutdown;
mod slots;
mod sync;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transmission;
mod wire;

pub use accept::AcceptFailures;
pub use access::Access;
pub use address::{Address, AddressError, DEFAULT_PORT};
pub use attachment::Sharing;
pub use config::{
    CONNECTION_RESERVE_BYTES, CONNECTIONS_LIMIT, ConfigError, ServerConfig, TOTAL_BUFFER_BYTES, TlsPolicy,
};
pub use connection::serve_connection;
pub use error::ConnectionError;
pub use export::{Export, Offered, Shared};
pub use helpers::{Helpers, Worker};
pub use identity::{ClientName, ClientNameError};
pub use inherited::{Inherited, InheritedError};
pub use listener::{Accepted, Acceptor, Admitted, ListenError, Listener};
pub use peer::Peer;
pub use presence::Presence;
pub use private_key::KeyKind;
pub use refusal::RefusalReason;
pub use server::Server;
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use tls::{TlsConfig, TlsError};
