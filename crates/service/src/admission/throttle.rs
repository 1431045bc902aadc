//! Slows writes down before a drive is full, so that administrators have time to react.
//!
//! Hardware drives that compress do the same: near the end they accept a few MB/s, then nothing. The rate
//! falls geometrically from [`CEILING_BYTES_PER_SECOND`] at the usage where throttling begins to the floor
//! where the drive is full.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use status::{CapacityPlan, Fit};
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use crate::admission::token_bucket::TokenBucket;

/// Rate where throttling begins, above that of any client.
pub const CEILING_BYTES_PER_SECOND: u64 = 1 << 30;
/// Default rate of an almost full drive, as of hardware drives.
pub const DEFAULT_FLOOR_BYTES_PER_SECOND: u64 = 4 << 20;
/// Usage from which overcommitted drives are throttled, in percent: the highest default warning level.
/// `pumice plan` fills drives up to there.
pub const DEFAULT_THROTTLE_PERCENT: f64 = 95.0;
/// Credit of an idle writer.
const BURST: Duration = Duration::from_millis(20);

/// Usage from which writes are slowed down, and the lowest rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ThrottleSettings {
    /// Share of the space for host data at which it begins, in percent, from 1 to 99.
    pub at_percent: f64,
    /// Rate just before the drive is full, in bytes per second, at least 1.
    pub floor_bytes_per_second: u64,
}

/// Throttling of a drive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Throttling {
    /// Never.
    Off,
    /// From [`DEFAULT_THROTTLE_PERCENT`] on, on a drive whose capacity exceeds what its physical space holds
    /// of any data. The rate just before it is full, in bytes per second, at least 1.
    Auto(u64),
    /// As set.
    At(ThrottleSettings),
}

impl Default for Throttling {
    fn default() -> Throttling {
        Throttling::Auto(DEFAULT_FLOOR_BYTES_PER_SECOND)
    }
}

impl Throttling {
    /// Returns the settings of a drive with this capacity, whose data may fill `limit_bytes`.
    pub(crate) fn settings(self, capacity_bytes: u64, limit_bytes: u64) -> Option<ThrottleSettings> {
        match self {
            Throttling::Off => None,
            Throttling::At(settings) => Some(settings),
            Throttling::Auto(floor_bytes_per_second) => {
                let fits = CapacityPlan::new(capacity_bytes, limit_bytes, None).fit == Fit::Any;
                (!fits).then_some(ThrottleSettings {
                    at_percent: DEFAULT_THROTTLE_PERCENT,
                    floor_bytes_per_second,
                })
            }
        }
    }
}

impl ThrottleSettings {
    /// Returns the permitted rate of writes, in bytes per second, at this usage; `None`: unlimited.
    pub fn rate(&self, used_percent: f64) -> Option<u64> {
        if used_percent < self.at_percent {
            return None;
        }
        let ceiling = CEILING_BYTES_PER_SECOND.max(self.floor_bytes_per_second) as f64;
        let way = ((used_percent - self.at_percent) / (100.0 - self.at_percent)).min(1.0);
        debug_assert!((0.0..=1.0).contains(&way), "from where throttling begins to full");
        let rate = (ceiling * (self.floor_bytes_per_second as f64 / ceiling).powf(way)) as u64;
        debug_assert!(rate as f64 <= ceiling, "the rate falls from the ceiling");
        Some(rate)
    }
}

/// Delays writers.
#[derive(Debug)]
pub(crate) struct Throttle {
    /// Bytes per second; 0: not throttled.
    rate: AtomicU64,
    turns: TokenBucket,
    /// Writers queue here in the order of their arrival. The first waits for its time, and takes its turn
    /// when it continues: a writer that leaves earlier has taken nothing from those behind it.
    queue: Mutex<()>,
    /// The rate has changed: the first writer recalculates its wait.
    changed: Notify,
}

impl Default for Throttle {
    fn default() -> Throttle {
        Throttle {
            rate: AtomicU64::new(0),
            turns: TokenBucket::new(BURST, None),
            queue: Mutex::default(),
            changed: Notify::new(),
        }
    }
}

impl Throttle {
    pub(crate) fn set_rate(&self, rate: Option<u64>) {
        let rate = rate.map(|rate| rate.max(1));
        let before = self.rate.swap(rate.unwrap_or(0), Ordering::Relaxed);
        if before != rate.unwrap_or(0) {
            self.turns.change_rate(before, rate, Instant::now());
            self.changed.notify_waiters();
        }
    }

    /// Bytes per second, while throttled.
    pub(crate) fn rate(&self) -> Option<u64> {
        Some(self.rate.load(Ordering::Relaxed)).filter(|rate| *rate > 0)
    }

    /// Waits until a write of `len` bytes may continue.
    pub(crate) async fn admit(&self, len: usize) {
        if self.rate().is_none() {
            return;
        }
        let _first = self.queue.lock().await;
        loop {
            // Before the rate is read, so that no change is missed.
            let changed = self.changed.notified();
            let Some(rate) = self.rate() else { return };
            let now = Instant::now();
            let wait = self.turns.wait(now);
            if wait.is_zero() {
                self.turns.take(len, rate, now);
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = changed => {}
            }
        }
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
        // Half way, it is the geometric mean: 64 MiB/s.
        assert_eq!(SETTINGS.rate(95.0), Some(64 << 20));
        assert_eq!(SETTINGS.rate(100.0), Some(4 << 20));
        assert_eq!(SETTINGS.rate(101.0), Some(4 << 20));
        let rates: Vec<_> = (900..=1000).map(|tenths| SETTINGS.rate(f64::from(tenths) / 10.0)).collect();
        assert!(rates.is_sorted_by(|a, b| a > b));
    }

    #[test]
    fn a_drive_that_promises_more_than_it_holds_is_throttled_by_default() {
        let auto = Throttling::default();
        assert_eq!(auto.settings(98 << 30, 100 << 30), None, "any data fits");
        let settings = auto.settings(120 << 30, 100 << 30).expect("throttled");
        assert_eq!((settings.at_percent, settings.floor_bytes_per_second), (95.0, 4 << 20));
        assert_eq!(Throttling::Off.settings(120 << 30, 100 << 30), None);
        assert_eq!(Throttling::At(SETTINGS).settings(98 << 30, 100 << 30), Some(SETTINGS));
    }

    const MIB: u64 = 1 << 20;

    /// Returns the whole seconds that `work` takes by the clock of the test.
    async fn seconds(work: impl Future) -> u64 {
        let start = Instant::now();
        work.await;
        (start.elapsed() + BURST).as_secs()
    }

    fn throttled(bytes_per_second: u64) -> Throttle {
        let throttle = Throttle::default();
        throttle.set_rate(Some(bytes_per_second));
        throttle
    }

    #[tokio::test(start_paused = true)]
    async fn writers_take_turns_at_the_rate_and_idleness_saves_nothing_up() {
        let throttle = throttled(MIB);
        let write = || throttle.admit(MIB as usize);
        // The first passes at once, each next one a second later.
        assert_eq!(seconds(write()).await, 0);
        assert_eq!(seconds(write()).await, 1);
        assert_eq!(seconds(async { tokio::join!(write(), write()) }).await, 2);
        // After a minute without writes there is credit for a moment, not for a minute.
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(seconds(write()).await, 0);
        assert_eq!(seconds(write()).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gives_up_leaves_its_turn_to_those_behind() {
        let throttle = throttled(MIB);
        throttle.admit(MIB as usize).await;
        let gone = async {
            let write = throttle.admit(1000 * MIB as usize);
            let _ = tokio::time::timeout(Duration::from_millis(500), write).await;
        };
        assert_eq!(seconds(async { tokio::join!(gone, throttle.admit(MIB as usize)) }).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_when_the_limit_changes() {
        let throttle = throttled(MIB);
        throttle.admit(1000 * MIB as usize).await;
        let faster = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            throttle.set_rate(Some(9 * MIB));
        };
        assert_eq!(seconds(async { tokio::join!(faster, throttle.admit(900 * MIB as usize)) }).await, 200);
        let lifted = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            throttle.set_rate(None);
        };
        let writes = async { tokio::join!(throttle.admit(MIB as usize), throttle.admit(MIB as usize)) };
        assert_eq!(seconds(async { tokio::join!(lifted, writes) }).await, 1);
        // Nothing is left of it.
        throttle.set_rate(Some(MIB));
        assert_eq!(seconds(throttle.admit(MIB as usize)).await, 0);
    }
}
