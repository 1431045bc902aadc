//! Power cuts under the real program.
//!
//! The simulator holds the engine to its promises on media in memory. This crate does so for the program as it is
//! released, with its threads, sockets, io_uring and the kernel's page cache: `pumice serve` on a disk ([`disk`]) that
//! forgets what was not synced, which a FUSE file system ([`mount`]) shows as a file. Clients over NBD ([`client`]) are
//! watched by the simulator's oracle; fio ([`fio`]) works beside them. A story ([`story`]) is one drive from a seed, through
//! some dozen power cuts; a run ([`run`]) is many of them. `docs/power-cuts.md` says what is cut and what is checked.

#![forbid(unsafe_code)]

pub mod client;
pub mod counts;
pub mod disk;
pub mod fio;
pub mod mode;
pub mod mount;
pub mod run;
pub mod server;
pub mod story;

pub use counts::Counts;
pub use mode::Mode;
pub use run::{Failure, Options, Report, run, why_not};
