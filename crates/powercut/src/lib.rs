//! Power-cut tests of the real program.
//!
//! The simulator tests the engine on media in memory. This crate tests the program as released, with its
//! threads, sockets, io_uring and the kernel's page cache. `pumice serve` runs on a disk ([`disk`]) that
//! loses what was not synced, and which a FUSE file system ([`mount`]) presents as a file. Clients over NBD
//! ([`client`]) are watched by the simulator's oracle, and fio ([`fio`]) works beside them. A story
//! ([`story`]) is one drive from a seed, through some dozen power cuts. A run ([`run`]) consists of many
//! stories. `docs/explanation/power-cuts.md` describes what is cut and what is checked.

#![forbid(unsafe_code)]

pub mod attachment;
pub mod client;
pub mod counts;
pub mod disk;
pub mod error;
pub mod fio;
pub mod mode;
pub mod mount;
pub mod run;
pub mod server;
pub mod story;

pub use counts::Counts;
pub use error::Error;
pub use mode::Mode;
pub use run::{Failure, Options, Report, run, why_not};
