//! Clients that know the expected results: the simulator's oracle watches each request from outside.

mod connection;
mod load;
mod read_back;
mod receiver;
mod verifier;

pub use load::{Load, Plan, Style};
pub use read_back::{VERIFY_BYTES_MAX, read_back};
pub use verifier::{ClientCounts, Verifier};
