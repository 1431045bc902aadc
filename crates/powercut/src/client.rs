//! Clients that know the expected results: the simulator's oracle watches each request from outside.

mod connection;
mod load;
mod receiver;
mod shared;
mod verify;

pub use load::{Load, Plan, Style};
pub use shared::{ClientCounts, Shared};
pub use verify::{VERIFY_BYTES_MAX, read_back};
