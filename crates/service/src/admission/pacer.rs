//! Slows writers down while cleaning cannot keep up. Each write waits a little, so that none has to wait
//! until whole segments are cleaned.
//!
//! The drive returns the permitted rate as a multiple of the recent rate ([`drive::Drive::pace`]). The recent
//! rate is measured here. At a factor of 1 writers use space as fast as cleaning frees it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::admission::token_bucket::TokenBucket;

/// Time constant of the mean of the writers' rate.
const LATELY: Duration = Duration::from_millis(250);
/// Lowest rate. Without overwrites no data becomes dead, and cleaning would gain no space.
const RATE_MIN_BYTES_PER_SECOND: f64 = (1 << 20) as f64;
/// Assumed rate of writers before it is measured.
const RATE_FIRST_BYTES_PER_SECOND: f64 = (64 << 20) as f64;
/// Longest delay of a write, however large it is.
const WAIT_MAX: Duration = Duration::from_millis(50);
/// Shorter waits are left to the next writer, because timers are not more precise.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// Writing time that passes without delay after a pause.
const BURST: Duration = Duration::from_millis(5);

/// Delays the writers of a drive.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes admitted so far.
    written: AtomicU64,
    /// Bytes per second; 0: no delay.
    rate: AtomicU64,
    turns: TokenBucket,
    mean: Mutex<Mean>,
}

#[derive(Debug)]
struct Mean {
    bytes_per_second: f64,
    written: u64,
    at: Option<Instant>,
}

impl Default for Pacer {
    fn default() -> Self {
        let mean = Mean { bytes_per_second: RATE_FIRST_BYTES_PER_SECOND, written: 0, at: None };
        Pacer {
            written: AtomicU64::new(0),
            rate: AtomicU64::new(0),
            turns: TokenBucket::new(BURST, Some(WAIT_MAX)),
            mean: Mutex::new(mean),
        }
    }
}

impl Pacer {
    /// Sets the rate from the factor that the drive permits. Called at every tick.
    pub(crate) fn set(&self, factor: Option<f64>, now: Instant) {
        let mean = {
            let mut mean = self.mean.lock();
            let written = self.written.load(Ordering::Relaxed);
            if let Some(at) = mean.at {
                let passed = now.saturating_duration_since(at).as_secs_f64();
                if passed > 0.0 {
                    let rate = (written - mean.written) as f64 / passed;
                    let weight = 1.0 - (-passed / LATELY.as_secs_f64()).exp();
                    mean.bytes_per_second += (rate - mean.bytes_per_second) * weight;
                    debug_assert!(
                        mean.bytes_per_second.is_finite() && mean.bytes_per_second >= 0.0,
                        "a mean of rates is a rate"
                    );
                }
            }
            mean.written = written;
            mean.at = Some(now);
            mean.bytes_per_second
        };
        let rate = factor.map_or(0, |factor| (mean * factor).max(RATE_MIN_BYTES_PER_SECOND) as u64);
        debug_assert!(rate == 0 || rate as f64 >= RATE_MIN_BYTES_PER_SECOND, "writers are never stopped");
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Waits until a write of `len` bytes may continue.
    pub(crate) async fn admit(&self, len: usize) {
        self.written.fetch_add(len as u64, Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed);
        if rate > 0
            && let Some(wait) = self.turn(rate, len, Instant::now())
        {
            tokio::time::sleep(wait).await;
        }
    }

    fn turn(&self, rate: u64, len: usize, now: Instant) -> Option<Duration> {
        Some(self.turns.take(len, rate, now)).filter(|wait| *wait >= WAIT_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn writers_are_held_to_a_share_of_the_rate_they_had() {
        let (pacer, start) = (Pacer::default(), Instant::now());
        for tick in 0..200 {
            // 100 MB/s.
            pacer.written.fetch_add(1_000_000, Ordering::Relaxed);
            pacer.set(None, at(start, tick * 10));
            assert_eq!(pacer.rate.load(Ordering::Relaxed), 0, "not held back");
        }
        pacer.set(Some(0.5), at(start, 2000));
        let rate = pacer.rate.load(Ordering::Relaxed);
        assert!((45_000_000..=50_000_000).contains(&rate), "{rate}");
        pacer.set(Some(0.0), at(start, 2010));
        assert_eq!(pacer.rate.load(Ordering::Relaxed), 1 << 20, "never stopped altogether");
        pacer.set(None, at(start, 2020));
        assert_eq!(pacer.rate.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn each_waits_a_little_and_none_for_long() {
        let (pacer, start) = (Pacer::default(), Instant::now());
        // 4 KiB at 1 MiB/s: about 4 ms each. The first ones pass.
        let waits: Vec<Option<Duration>> = (0..40).map(|_| pacer.turn(1 << 20, 4096, start)).collect();
        assert_eq!(waits[0], None);
        let waits: Vec<Duration> = waits.into_iter().flatten().collect();
        assert!(waits.len() > 30 && waits.is_sorted());
        assert!(waits[0] < Duration::from_millis(5));
        assert_eq!(waits.last(), Some(&WAIT_MAX));
        // A write of 32 MiB is not delayed longer, nor does it delay others longer.
        let pacer = Pacer::default();
        assert_eq!(pacer.turn(1 << 20, 32 << 20, start), None);
        assert_eq!(pacer.turn(1 << 20, 4096, start), Some(WAIT_MAX));
    }
}
