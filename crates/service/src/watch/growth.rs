//! Prediction of when the drive will be full, if usage continues like this, and the ratio of what is written
//! lately.
//!
//! Space in use is sampled every ten seconds for up to an hour. The growth over the last five minutes is the
//! present rate; growth over a minute, a quarter of an hour and an hour gives the range. It is the growth of
//! *physical* space in use, so rate and compression ratio are both the present ones, and TRIM counts against
//! it. A window in which space grew in a burst gives no rate: a burst is no trend.

use std::collections::VecDeque;
use std::time::Duration;

use drive::Share;
use status::{NoTime, RecentlyWritten, TimeToFull};

/// Interval of samples.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(10);
/// Times over which growth is measured.
const WINDOWS: [Duration; 4] = [
    Duration::from_secs(60),
    Duration::from_secs(5 * 60),
    Duration::from_secs(15 * 60),
    Duration::from_secs(60 * 60),
];
/// The window of the present rate, once that much was seen.
const PRESENT: Duration = WINDOWS[1];

/// Space at one time, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Since the drive was opened.
    pub(crate) at: Duration,
    pub(crate) physical_used_bytes: u64,
    pub(crate) logical_used_bytes: u64,
    /// The same without fills.
    pub(crate) logical_stored_bytes: u64,
    /// By hosts since the drive was opened, without fills.
    pub(crate) written: Share,
}

/// Limits of the drive, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) physical_limit_bytes: u64,
    pub(crate) logical_capacity_bytes: u64,
}

/// Parts of a window. Space grows steadily if it grew in all of them but one.
const PARTS: u32 = 5;

/// Growth over some time.
struct Window {
    /// Bytes per second.
    rate: f64,
    seconds: f64,
    then: Sample,
    /// It is not a burst.
    is_steady: bool,
}

/// Samples of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Growth {
    samples: VecDeque<Sample>,
}

impl Growth {
    /// Adds a sample, and drops those that no window needs.
    pub(crate) fn add(&mut self, sample: Sample) {
        debug_assert!(self.samples.back().is_none_or(|last| last.at <= sample.at), "samples are in order");
        let longest = WINDOWS[WINDOWS.len() - 1];
        // The second oldest is old enough: the oldest will not be needed again.
        while self.samples.get(1).is_some_and(|second| sample.at.saturating_sub(second.at) >= longest) {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.samples.len()
    }

    /// Returns the youngest sample that is at least `window` old, and its age in seconds.
    fn back(&self, now: &Sample, window: Duration) -> Option<(f64, Sample)> {
        let old_enough = |sample: &&Sample| now.at.saturating_sub(sample.at) >= window;
        let sample = self.samples.iter().rev().find(old_enough)?;
        Some(((now.at - sample.at).as_secs_f64(), *sample))
    }

    /// Returns the growth in a window, if that was watched.
    fn growth_over(&self, now: &Sample, window: Duration) -> Option<Window> {
        let (seconds, then) = self.back(now, window)?;
        let grown =
            |from: &Sample, to: &Sample| to.physical_used_bytes as f64 - from.physical_used_bytes as f64;
        let mut ends = (1..PARTS).rev().filter_map(|part| self.back(now, window * part / PARTS));
        let (mut last, mut growing) = (then, 0);
        for end in ends.by_ref().map(|(_, end)| end).chain([*now]) {
            growing += u32::from(grown(&last, &end) > 0.0);
            last = end;
        }
        Some(Window { rate: grown(&then, now) / seconds, seconds, then, is_steady: growing >= PARTS - 1 })
    }

    /// Predicts from `now` on.
    pub(crate) fn predict(&self, now: &Sample, limits: Limits) -> TimeToFull {
        let room = limits.physical_limit_bytes.saturating_sub(now.physical_used_bytes) as f64;
        if room == 0.0 {
            return TimeToFull::none_left();
        }
        let windows: Vec<(Duration, Window)> =
            WINDOWS.iter().filter_map(|window| Some((*window, self.growth_over(now, *window)?))).collect();
        let Some((_, present)) = windows.iter().rev().find(|(window, _)| *window <= PRESENT) else {
            return TimeToFull::unknown(NoTime::SeenTooShort);
        };
        let time = TimeToFull {
            growth_bytes_per_second: Some(present.rate),
            window_seconds: Some(present.seconds),
            ..TimeToFull::default()
        };
        let after = |rate: f64| (rate > 0.0).then_some(room / rate);
        // A window in which the space in use shrank predicts no end, steady or not.
        let rates = windows.iter().map(|(_, window)| window).filter(|it| it.is_steady || it.rate <= 0.0);
        let (slowest, fastest) =
            rates.fold((f64::MAX, 0.0_f64), |(least, most), it| (least.min(it.rate), most.max(it.rate)));
        let range = TimeToFull {
            soonest_seconds: after(fastest),
            latest_seconds: after(slowest).filter(|_| fastest > 0.0),
            ..time.clone()
        };
        if present.rate <= 0.0 {
            return TimeToFull { reason: Some(NoTime::NotGrowing), latest_seconds: None, ..range };
        }
        if !present.is_steady {
            return TimeToFull { reason: Some(NoTime::NoTrend), latest_seconds: None, ..range };
        }
        // Fills use up capacity, but promise no ratio.
        let stored = now.logical_stored_bytes as f64 - present.then.logical_stored_bytes as f64;
        if stored > 0.0 {
            let grown = now.physical_used_bytes as f64 - present.then.physical_used_bytes as f64;
            let ratio = stored / grown;
            let left = limits.logical_capacity_bytes.saturating_sub(now.logical_used_bytes) as f64;
            if left / ratio <= room {
                return TimeToFull { reason: Some(NoTime::CapacityFirst), ..time };
            }
        }
        TimeToFull { seconds: after(present.rate), ..range }
    }

    /// Returns what hosts wrote lately: over five minutes, or since the drive was opened; or over so much
    /// longer, up to an hour, that it is at least `enough_bytes`.
    pub(crate) fn recently_written(&self, now: &Sample, enough_bytes: u64) -> RecentlyWritten {
        let logical = |then: &Sample| now.written.logical_bytes.saturating_sub(then.written.logical_bytes);
        let telling =
            |then: &&Sample| now.at.saturating_sub(then.at) >= PRESENT && logical(then) >= enough_bytes;
        let Some(then) = self.samples.iter().rev().find(telling).or(self.samples.front()) else {
            return RecentlyWritten::default();
        };
        RecentlyWritten {
            window_seconds: Some(now.at.saturating_sub(then.at).as_secs_f64()),
            logical_bytes: logical(then),
            physical_bytes: now.written.physical_bytes.saturating_sub(then.written.physical_bytes),
            compression_ratio: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;
    const LIMITS: Limits = Limits { physical_limit_bytes: 100 * GIB, logical_capacity_bytes: 1000 * GIB };

    /// Returns samples every ten seconds up to `end`, and the next one.
    fn seen(end: u64, used: impl Fn(u64) -> u64, logical: impl Fn(u64) -> u64) -> (Growth, Sample) {
        let sample = |second: u64| Sample {
            at: Duration::from_secs(second),
            physical_used_bytes: used(second),
            logical_used_bytes: logical(second),
            logical_stored_bytes: logical(second),
            written: Share { logical_bytes: logical(second), physical_bytes: used(second) },
        };
        let mut growth = Growth::default();
        (0..=end).step_by(10).for_each(|second| growth.add(sample(second)));
        (growth, sample(end))
    }

    #[test]
    fn steady_growth_is_one_time() {
        // 1 MiB a second.
        let (growth, now) = seen(3600, |s| s << 20, |s| s << 21);
        let time = growth.predict(&now, LIMITS);
        let wanted = (100 * GIB - (3600 << 20)) as f64 / f64::from(1 << 20);
        assert_eq!(time.seconds, Some(wanted));
        assert_eq!((time.soonest_seconds, time.latest_seconds), (Some(wanted), Some(wanted)));
        assert_eq!(time.growth_bytes_per_second, Some(f64::from(1 << 20)));
        assert_eq!((time.window_seconds, time.reason), (Some(300.0), None));
    }

    #[test]
    fn windows_give_the_range() {
        // An hour at 1 MiB a second, its last minute at 5 MiB a second.
        let used = |s: u64| (s << 20) + (s.saturating_sub(3540) << 22);
        let (growth, now) = seen(3600, used, |s| s << 22);
        let time = growth.predict(&now, LIMITS);
        let room = (100 * GIB - used(3600)) as f64;
        assert_eq!(time.soonest_seconds, Some(room / f64::from(5 << 20)));
        // The last five minutes: 540 MiB; the hour: 3840.
        assert_eq!(time.seconds, Some(room / (540.0 * f64::from(1 << 20) / 300.0)));
        assert_eq!(time.latest_seconds, Some(room / (3840.0 * f64::from(1 << 20) / 3600.0)));
    }

    #[test]
    fn nothing_is_predicted_in_less_than_a_minute() {
        let (growth, now) = seen(50, |s| s << 20, |s| s << 20);
        assert_eq!(growth.predict(&now, LIMITS), TimeToFull::unknown(NoTime::SeenTooShort));
        let (growth, now) = seen(60, |s| s << 20, |s| s << 20);
        assert_eq!(growth.predict(&now, LIMITS).window_seconds, Some(60.0));
    }

    #[test]
    fn a_drive_that_shrinks_is_not_going_to_be_full() {
        let (growth, now) = seen(600, |s| (1000 - s) << 20, |_| 0);
        let time = growth.predict(&now, LIMITS);
        assert_eq!((time.seconds, time.soonest_seconds, time.latest_seconds), (None, None, None));
        assert_eq!(time.reason, Some(NoTime::NotGrowing));
    }

    #[test]
    fn one_that_stands_still_now_may_fill_as_it_did_before() {
        let (growth, now) = seen(3600, |s| s.min(3000) << 20, |s| s << 20);
        let time = growth.predict(&now, LIMITS);
        assert_eq!((time.seconds, time.reason), (None, Some(NoTime::NotGrowing)));
        assert!(time.soonest_seconds.is_some(), "{time:?}");
        assert_eq!(time.latest_seconds, None);
    }

    #[test]
    fn full_is_now() {
        let (growth, now) = seen(600, |_| 100 * GIB, |_| 0);
        let time = growth.predict(&now, LIMITS);
        assert_eq!((time.seconds, time.reason), (Some(0.0), Some(NoTime::Full)));
    }

    #[test]
    fn data_that_compresses_well_fills_the_capacity_first() {
        // 20:1 on a drive that promises ten times its size.
        let (growth, now) = seen(600, |s| s << 20, |s| (s << 20) * 20);
        let time = growth.predict(&now, LIMITS);
        assert_eq!((time.seconds, time.reason), (None, Some(NoTime::CapacityFirst)));
        // Overwritten with data that compresses worse: the capacity sets no limit.
        let (growth, now) = seen(600, |s| s << 20, |_| 50 * GIB);
        assert!(growth.predict(&now, LIMITS).seconds.is_some());
    }

    #[test]
    fn a_burst_is_no_trend() {
        // Ten seconds at the start, seen after a minute; then nothing.
        let burst = |s: u64| s.min(10) << 24;
        for end in [60, 120, 290] {
            let (growth, now) = seen(end, burst, burst);
            let time = growth.predict(&now, LIMITS);
            assert_eq!(time.seconds, None, "{end}: {time:?}");
            assert_eq!(time.soonest_seconds, None, "{end}: {time:?}");
        }
        let (growth, now) = seen(60, burst, burst);
        let time = growth.predict(&now, LIMITS);
        assert_eq!((time.reason, time.window_seconds), (Some(NoTime::NoTrend), Some(60.0)));
        // One in every hour, among steady growth, neither.
        let (growth, now) = seen(3600, |s| (s.min(1800) << 20) + (s.saturating_sub(3590) << 24), |s| s << 24);
        let time = growth.predict(&now, LIMITS);
        assert_eq!((time.seconds, time.reason), (None, Some(NoTime::NoTrend)));
    }

    #[test]
    fn zeros_are_no_ratio_of_what_grows() {
        // 1 MiB of data that does not compress a second, and 20 of zeros.
        let (mut growth, mut now) = seen(600, |s| s << 20, |s| (s << 20) * 20);
        growth.samples.iter_mut().chain([&mut now]).for_each(|it| {
            (it.logical_stored_bytes, it.written.logical_bytes) =
                (it.physical_used_bytes, it.physical_used_bytes);
        });
        assert!(growth.predict(&now, LIMITS).seconds.is_some());
        let recent = growth.recently_written(&now, 64 << 20);
        assert_eq!((recent.logical_bytes, recent.physical_bytes), (300 << 20, 300 << 20));
        assert_eq!(recent.window_seconds, Some(300.0));
    }

    #[test]
    fn the_recent_ratio_is_of_enough_data() {
        let (growth, now) = seen(3600, |s| s << 18, |s| s << 19);
        assert_eq!(growth.recently_written(&now, 64 << 20).window_seconds, Some(300.0));
        let recent = growth.recently_written(&now, 1 << 30);
        assert_eq!((recent.window_seconds, recent.logical_bytes), (Some(2050.0), 2050 << 19));
        // All there is, if it is less.
        assert_eq!(growth.recently_written(&now, 1 << 40).window_seconds, Some(3600.0));
    }

    #[test]
    fn a_week_is_kept_as_an_hour() {
        let (growth, _) = seen(7 * 86_400, |_| 0, |_| 0);
        assert_eq!(growth.len(), 361);
    }
}
