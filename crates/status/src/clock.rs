//! Times in reports.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since 1970; 0 for earlier times.
pub fn unix_seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the seconds since 1970 now.
pub fn unix_seconds_now() -> u64 {
    unix_seconds(SystemTime::now())
}
