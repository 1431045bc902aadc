//! The NBD front-end: serves [`service::Device`]s to any NBD client, over Unix sockets or TCP, with or without
//! TLS.
//!
//! It speaks the fixed newstyle protocol as the specification of the NBD project has it: simple and structured
//! replies, `base:allocation`, and every command but RESIZE.
//!
//! * [`Shared`] holds what is served: [`Export`]s, a [`ServerConfig`], the memory all connections share.
//! * [`serve_connection`] serves one client within the task that awaits it. Requests that the device answers at
//!   once cost no allocation, no task and no system call of their own.
//! * [`Listener`], [`Acceptor`] and [`Accepted`] bring clients to worker threads; [`Server`] has such threads of
//!   its own.
//! * [`protocol`], [`request`], [`reply`], [`option`] and [`option_reply`] are the wire format: pure functions.
//!
//! ```text
//! socket -> input -> request::check -> Device future (polled at once, else a slot) -> output -> socket
//!             ^ stops when over a limit: requests in flight, bytes held (lease), replies not taken
//! ```

#![forbid(unsafe_code)]

mod address;
mod budget;
mod buffers;
mod config;
mod connection;
mod error;
mod execute;
mod export;
mod handshake;
mod input;
mod listener;
pub mod option;
pub mod option_reply;
mod output;
pub mod protocol;
pub mod reply;
pub mod request;
mod server;
mod shutdown;
mod slots;
#[cfg(feature = "testing")]
pub mod testing;
mod tls;
mod transmission;
mod wire;

pub use address::{Address, AddressError, DEFAULT_PORT};
pub use config::{CONNECTION_RESERVE_BYTES, ConfigError, ServerConfig, TlsPolicy};
pub use connection::serve_connection;
pub use error::ConnectionError;
pub use export::{Export, Shared};
pub use listener::{Accepted, Acceptor, ListenError, Listener, SocketGuard};
pub use server::Server;
pub use shutdown::{Shutdown, ShutdownTrigger};
pub use tls::{TlsConfig, TlsError};
