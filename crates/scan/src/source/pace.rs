//! A limit on how fast is read.

use std::sync::Mutex;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Lets through so many bytes a second, over all threads.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: Option<u64>,
    /// When what was let through so far is paid for.
    paid: Mutex<Instant>,
}

impl Pace {
    /// `None`: as fast as it goes.
    pub fn new(bytes_per_second: Option<u64>) -> Pace {
        Pace { bytes_per_second, paid: Mutex::new(Instant::now()) }
    }

    /// Waits until so many bytes may be read.
    pub(crate) fn wait(&self, bytes: u64) {
        let Some(rate) = self.bytes_per_second.filter(|rate| *rate > 0) else { return };
        let cost = Duration::from_secs_f64(bytes as f64 / rate as f64);
        let until = {
            let Ok(mut paid) = self.paid.lock() else { return };
            // Time not used is not saved up.
            *paid = (*paid).max(Instant::now()) + cost;
            *paid
        };
        sleep(until.saturating_duration_since(Instant::now()));
    }
}
