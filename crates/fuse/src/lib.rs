//! The FUSE file below a loop device, served by a process that may be killed and replaced at any instruction.
//!
//! A *keeper* mounts the file system ([`Mount`]) and answers until the loop device has the file. Then it
//! hands over: for each connection of the server a descriptor of `/dev/fuse` and an [`Area`], a memory that
//! outlives the server. Requests are read into the area, so that the next server finds there what was not
//! answered.
//!
//! [`wire`] has the protocol, without I/O.

#![deny(unsafe_code)]

mod area;
mod mount;
pub mod wire;

pub use area::{Area, AreaError, Entry, Left, Payload, Received, Taken};
pub use mount::{Mount, Share};
pub use wire::{Attributes, FILE_NAME, Operation, Question};
