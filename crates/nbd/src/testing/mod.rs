//! Support for tests, fuzzing and measurements: a device in memory, and whole sessions over a stream in
//! memory.

mod client;
mod memory_device;
mod session;
mod tls;

pub use client::fuzz_client;
pub use memory_device::MemoryDevice;
pub use session::{fuzz_session, run_session};
pub use tls::{client_hello, fuzz_tls};
