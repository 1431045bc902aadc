//! Memory of this process, as the kernel counts it.
#![allow(dead_code, unreachable_pub)]

use std::fs;

/// Begins to watch. `None` if the kernel does not tell.
pub fn watch() -> Option<Watch> {
    // "Reset the peak resident set size": proc(5).
    fs::write("/proc/self/clear_refs", "5").ok()?;
    Some(Watch { before_bytes: peak_bytes()? })
}

/// The process since [`watch`].
pub struct Watch {
    before_bytes: u64,
}

impl Watch {
    /// By how much the resident memory grew at most.
    pub fn grown_bytes(&self) -> u64 {
        peak_bytes().unwrap_or(u64::MAX).saturating_sub(self.before_bytes)
    }
}

fn peak_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches(" kB").parse::<u64>().ok()? * 1024)
}
