//! Slowing writes down before a drive is full, so that its administrators have time.
//!
//! Hardware drives that compress do the same: near the end they take a few MB/s, then nothing. The rate falls
//! geometrically from [`CEILING_BYTES_PER_SECOND`] where the throttle sets in to the floor where the drive is full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::admission::token_bucket::TokenBucket;

/// Where the throttle sets in: as good as none.
pub const CEILING_BYTES_PER_SECOND: u64 = 1 << 30;
/// Rate of a drive that is all but full, unless configured: what hardware drives give.
pub const DEFAULT_FLOOR_BYTES_PER_SECOND: u64 = 4 << 20;
/// Credit of a writer that was idle.
const BURST: Duration = Duration::from_millis(20);

/// When and how far writes are slowed down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSettings {
    /// Share of the space for host data at which it sets in, in percent, from 1 to 99.
    pub at_percent: f64,
    /// Rate just before the drive is full, in bytes a second, 1 at the least.
    pub floor_bytes_per_second: u64,
}

impl ThrottleSettings {
    /// Bytes a second that writes may take when so much of the space is used; `None`: as many as come.
    pub fn rate(&self, used_percent: f64) -> Option<u64> {
        if used_percent < self.at_percent {
            return None;
        }
        let ceiling = CEILING_BYTES_PER_SECOND.max(self.floor_bytes_per_second) as f64;
        let way = ((used_percent - self.at_percent) / (100.0 - self.at_percent)).min(1.0);
        Some((ceiling * (self.floor_bytes_per_second as f64 / ceiling).powf(way)) as u64)
    }
}

/// Makes writers wait.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Bytes a second; 0: not throttled.
    rate: AtomicU64,
    turns: TokenBucket,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle { rate: AtomicU64::new(0), turns: TokenBucket::new(BURST, None) }
    }
}

impl Throttle {
    pub(crate) fn set_rate(&self, rate: Option<u64>) {
        self.rate.store(rate.map_or(0, |rate| rate.max(1)), Ordering::Relaxed);
    }

    /// Bytes a second, while throttled.
    pub(crate) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// Waits until a write of `len` bytes may go on. Who gives up waiting has still taken its turn.
    pub(crate) async fn admit(&self, len: usize) {
        if let Some(rate) = self.rate()
            && let Some(wait) = self.turn(rate, len, Instant::now())
        {
            tokio::time::sleep(wait).await;
        }
    }

    fn turn(&self, rate: u64, len: usize, now: Instant) -> Option<Duration> {
        Some(self.turns.take(len, rate, now)).filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SETTINGS: ThrottleSettings = ThrottleSettings { at_percent: 90.0, floor_bytes_per_second: 4 << 20 };

    #[test]
    fn the_rate_falls_from_the_ceiling_to_the_floor() {
        assert_eq!(SETTINGS.rate(89.9), None);
        assert_eq!(SETTINGS.rate(90.0), Some(CEILING_BYTES_PER_SECOND));
        // Half way it is the geometric mean: 64 MiB/s.
        assert_eq!(SETTINGS.rate(95.0), Some(64 << 20));
        assert_eq!(SETTINGS.rate(100.0), Some(4 << 20));
        assert_eq!(SETTINGS.rate(101.0), Some(4 << 20));
        let rates: Vec<_> = (900..=1000).map(|tenths| SETTINGS.rate(f64::from(tenths) / 10.0)).collect();
        assert!(rates.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn writers_take_turns_at_the_rate_and_idleness_saves_nothing_up() {
        let throttle = Throttle::default();
        let start = Instant::now();
        let second = |s: f64| start + Duration::from_secs_f64(s);
        // 1 MiB at 1 MiB/s: the first goes at once, each next a second later.
        assert_eq!(throttle.turn(1 << 20, 1 << 20, start), None);
        let wait = throttle.turn(1 << 20, 1 << 20, start).expect("the second waits");
        assert!(wait > Duration::from_millis(950) && wait <= Duration::from_secs(1));
        let wait = throttle.turn(1 << 20, 1 << 20, second(0.5)).expect("the third waits longer");
        assert!(wait > Duration::from_millis(1450) && wait <= Duration::from_millis(1500));
        // After a minute without writes there is credit for a moment, not for a minute.
        assert_eq!(throttle.turn(1 << 20, 1 << 20, second(60.0)), None);
        assert!(throttle.turn(1 << 20, 1 << 20, second(60.0)).is_some());
    }
}
