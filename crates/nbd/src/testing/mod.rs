//! For tests, fuzzing and measuring: a device in memory, and sessions over streams in memory.

mod memory_device;

pub use memory_device::MemoryDevice;
