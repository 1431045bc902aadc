//! Block device nodes for drives. A separate process, the *bridge*, keeps the node. The drive's server takes
//! the node's requests from the kernel itself:
//!
//! ```text
//! file system -- /dev/ublkbN -- kernel -- pumice serve -- backing
//!                                 |            |
//!                              node -- bridge -- line
//! ```
//!
//! * [`node`] makes the device.
//! * `line` passes it to the server, and to the next one when that is gone. The kernel holds requests
//!   meanwhile, and the next server has all that was acknowledged (`docs/design/memory.md`).
//! * [`bridge`] is the process: it finds or starts the server, makes the node, answers `status` and `detach`.
//! * [`client`] starts bridges, lists them and talks to them.
//! * [`place`] is the run-time directory with the record of each attachment.
//! * [`sfx`] publishes the numbers, links and values that ScaleFlux's tools expect.
//!
//! The bridge is an NBD client: it knows nothing of drives.

#![deny(unsafe_code)]

pub mod bridge;
pub mod client;
mod drive;
mod error;
mod flush;
mod identity;
mod kernel;
mod ledger;
mod line;
mod linux;
mod marks;
mod memory_dir;
pub mod node;
mod node_kind;
pub mod place;
mod process;
mod processors;
mod protocol;
mod question;
mod served;
mod server;
pub mod sfx;
mod shape;
mod shares;
mod takeover;
mod upstream;
mod users;

pub use error::AttachError;
pub use identity::Identity;
pub use node_kind::NodeKind;
pub use shape::Shape;
pub use takeover::Takeover;
pub use users::{hidden_claim, openers};

/// Exit code of a process that leaves a device waiting for another bridge.
pub const WAITS_EXIT_CODE: u8 = 4;
