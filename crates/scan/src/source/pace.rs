//! Limit on the read rate.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Limiter of bytes per second over all threads.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: Option<u64>,
    /// Time at which the reads admitted so far are within the rate.
    paid: Mutex<Instant>,
}

impl Pace {
    /// Creates a limiter; `None` means unlimited.
    pub fn new(bytes_per_second: Option<u64>) -> Pace {
        Pace { bytes_per_second, paid: Mutex::new(Instant::now()) }
    }

    /// Waits until this number of bytes may be read.
    pub(crate) fn wait(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else { return };
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let until = {
            let Ok(mut paid) = self.paid.lock() else { return };
            // Unused time is not accumulated.
            *paid = (*paid).max(Instant::now()) + cost;
            *paid
        };
        sleep(until.saturating_duration_since(Instant::now()));
    }
}
