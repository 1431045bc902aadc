//! Clients that know the expected results: the simulator's oracle watches each request from outside.

mod connection;
mod device;
mod device_load;
mod load;
mod read_back;
mod receiver;
mod rewriter;
mod sweep;
mod verifier;

pub use device::flush;
pub use device_load::DeviceLoad;
pub use load::{Load, Plan, Style};
pub use read_back::{VERIFY_BYTES_MAX, read_back, read_back_damaged, read_back_device};
pub use rewriter::{REWRITTEN_BYTES, Rewriter};
pub use sweep::sweep;
pub use verifier::{ClientCounts, Verifier};
