//! Support for tests, fuzzing and measurements: a device in memory, and whole sessions over a stream in
//! memory.

mod client;
mod memory_device;
mod session;

pub use client::fuzz_client;
pub use memory_device::MemoryDevice;
pub use session::{fuzz_session, run_session};
