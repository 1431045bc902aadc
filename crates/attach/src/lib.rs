//! Block device nodes for drives. A separate process, the *bridge*, sits between the kernel and the drive's
//! server:
//!
//! ```text
//! file system -- /dev/ublkbN -- node (ublk) -- relay -- NBD, Unix socket -- pumice serve -- backing
//!                              |----------- bridge -----------|
//! ```
//!
//! * [`relay`] survives the death of the server: it holds requests, and replays acknowledged changes that
//!   were lost.
//! * [`node`] makes the device.
//! * [`bridge`] is the process: it finds or starts the server, makes the node, answers `status` and `detach`.
//! * [`client`] starts bridges, lists them and talks to them.
//! * [`place`] is the run-time directory with the record of each attachment.
//! * [`sfx`] publishes the numbers, links and values that ScaleFlux's tools expect.
//!
//! The bridge is an ordinary NBD client: it knows nothing of drives.

#![deny(unsafe_code)]

pub mod bridge;
pub mod client;
mod error;
mod identity;
mod kernel;
mod link;
pub mod node;
mod node_kind;
mod operation;
pub mod place;
mod process;
mod processors;
mod protocol;
mod question;
pub mod relay;
mod server;
pub mod sfx;
mod shape;
mod takeover;
mod users;

pub use error::AttachError;
pub use identity::Identity;
pub use node_kind::NodeKind;
pub use operation::{Done, Operation, Outcome};
pub use shape::Shape;
pub use takeover::Takeover;
pub use users::{hidden_claim, openers};

/// Exit code of a process that leaves a device waiting for another bridge.
pub const WAITS_EXIT_CODE: u8 = 4;
