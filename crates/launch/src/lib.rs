//! Starting `pumice serve` as a child process.
//!
//! [`Serve`] is its command line, environment and log. [`Server`] is the running process: it waits until the
//! drives are served, and ends it. Programs that keep the process themselves, such as a bridge that survives
//! its server, take only the first.

#![forbid(unsafe_code)]

mod log;
mod serve;
mod server;

pub use log::Log;
pub use serve::{RUNTIME_DIR, Serve, USER};
pub use server::{Readiness, Server, wait};

/// Exit code of `pumice serve` if a drive below a block device has lost acknowledged writes.
pub const LOST_EXIT_CODE: u8 = 5;
