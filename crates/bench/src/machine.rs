//! The machine that a run was made on.

use std::fs;

use host::Root;
use host::memory::meminfo_bytes;
use serde::{Deserialize, Serialize};

/// The machine that a run was made on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub processor: String,
    /// Number of processors usable by this process.
    pub cores_count: u64,
    /// Memory.
    pub memory_bytes: u64,
    /// Kernel name and release.
    pub kernel: String,
}

impl Machine {
    /// Describes this machine. What cannot be read is empty or 0.
    pub fn this() -> Machine {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, key: &str| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let system = rustix::system::uname();
        Machine {
            processor: value(&text("/proc/cpuinfo"), "model name").unwrap_or_default(),
            cores_count: std::thread::available_parallelism().map_or(0, |count| count.get() as u64),
            memory_bytes: meminfo_bytes(&Root::machine(), "MemTotal").unwrap_or(0),
            kernel: format!("{} {}", system.sysname().to_string_lossy(), system.release().to_string_lossy()),
        }
    }
}
