//! A rate that writers share, with credit for a short burst.
//!
//! The bucket is represented by the time at which all admitted bytes are worked off at the rate (virtual
//! scheduling of ITU-T I.371), so nothing has to refill it.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Calculates how long each writer waits.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    /// Writing time that passes without delay after a pause.
    burst: Duration,
    /// Longest wait that a write causes for those behind it; `None`: any.
    wait_max: Option<Duration>,
    /// Time at which the bytes admitted so far are worked off at the rate.
    busy_until: Mutex<Option<Instant>>,
}

impl TokenBucket {
    pub(crate) fn new(burst: Duration, wait_max: Option<Duration>) -> TokenBucket {
        TokenBucket { burst, wait_max, busy_until: Mutex::new(None) }
    }

    /// Takes `len` bytes at a rate above 0. Returns how long to wait before they may continue.
    pub(crate) fn take(&self, len: usize, bytes_per_second: u64, now: Instant) -> Duration {
        debug_assert!(bytes_per_second > 0, "writers without a rate do not come here");
        let mut busy_until = self.busy_until.lock();
        let earliest = now.checked_sub(self.burst).unwrap_or(now);
        let start = busy_until.map_or(earliest, |until| until.max(earliest));
        let end = start + Duration::from_secs_f64(len as f64 / bytes_per_second as f64);
        debug_assert!(end >= start && start >= earliest, "credit is at most a burst");
        *busy_until = Some(self.wait_max.map_or(end, |longest| end.min(now + longest)));
        start.saturating_duration_since(now)
    }

    /// Returns how long to wait now so that bytes taken then may continue at once.
    pub(crate) fn wait(&self, now: Instant) -> Duration {
        self.busy_until.lock().map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// Changes the rate at which the bytes admitted so far are worked off. The new one is above 0; with
    /// `None` they are worked off at once.
    pub(crate) fn change_rate(&self, before: u64, now: Option<u64>, at: Instant) {
        debug_assert!(now != Some(0), "a rate is above 0");
        let mut busy_until = self.busy_until.lock();
        *busy_until = now.zip(*busy_until).map(|(now, until)| {
            // Bytes that are already worked off give no new credit.
            let left = until.checked_duration_since(at);
            left.map_or(until, |left| at + left.mul_f64(before as f64 / now as f64))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn turns_are_taken_at_the_rate_after_a_burst() {
        let (bucket, start) = (TokenBucket::new(SECOND, None), Instant::now() + 10 * SECOND);
        let waits: Vec<Duration> = (0..4).map(|_| bucket.take(1000, 1000, start)).collect();
        assert_eq!(waits, [0, 0, 1, 2].map(Duration::from_secs));
        // Bytes that are worked off meanwhile cause no wait. A long pause gives one burst, not several.
        assert_eq!(bucket.take(1000, 1000, start + 2 * SECOND), SECOND);
        assert_eq!(bucket.take(2000, 1000, start + 60 * SECOND), Duration::ZERO);
        assert_eq!(bucket.take(1000, 1000, start + 60 * SECOND), SECOND);
    }

    #[test]
    fn what_is_left_is_worked_off_at_the_new_rate() {
        let (bucket, start) = (TokenBucket::new(Duration::ZERO, None), Instant::now());
        assert_eq!(bucket.take(10_000, 1000, start), Duration::ZERO);
        assert_eq!(bucket.wait(start + 2 * SECOND), 8 * SECOND);
        bucket.change_rate(1000, Some(4000), start + 2 * SECOND);
        assert_eq!(bucket.wait(start + 2 * SECOND), 2 * SECOND);
        bucket.change_rate(4000, Some(1000), start + 3 * SECOND);
        assert_eq!(bucket.wait(start + 3 * SECOND), 4 * SECOND);
        bucket.change_rate(1000, None, start + 3 * SECOND);
        assert_eq!(bucket.wait(start + 3 * SECOND), Duration::ZERO);
        // A change gives no credit for a burst.
        let (bucket, at) = (TokenBucket::new(SECOND, None), start + 10 * SECOND);
        assert_eq!(bucket.take(1000, 1000, at), Duration::ZERO);
        bucket.change_rate(1000, Some(2000), at);
        assert_eq!(bucket.take(2000, 2000, at), Duration::ZERO);
        assert_eq!(bucket.wait(at), SECOND);
    }

    #[test]
    fn a_large_write_leaves_no_longer_wait_than_the_longest() {
        let (bucket, start) = (TokenBucket::new(Duration::ZERO, Some(SECOND)), Instant::now());
        assert_eq!(bucket.take(1_000_000, 1000, start), Duration::ZERO);
        assert_eq!(bucket.take(1000, 1000, start), SECOND);
        assert_eq!(bucket.take(1000, 1000, start), SECOND);
    }
}
