//! Prediction of when the drive will be full, if usage continues like this.
//!
//! Space in use is sampled every ten seconds for up to an hour. The growth over the last five minutes is the present
//! rate; growth over a minute, a quarter of an hour and an hour gives the range. It is the growth of *physical* space
//! in use, so rate and compression ratio are both the present ones, and TRIM counts against it.

use std::collections::VecDeque;
use std::time::Duration;

use status::{NoTime, TimeToFull};

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
}

/// Limits of the drive, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) physical_limit_bytes: u64,
    pub(crate) logical_capacity_bytes: u64,
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

    /// Predicts from `now` on.
    pub(crate) fn predict(&self, now: &Sample, limits: Limits) -> TimeToFull {
        let room = limits.physical_limit_bytes.saturating_sub(now.physical_used_bytes) as f64;
        if room == 0.0 {
            return TimeToFull::none_left();
        }
        let rates: Vec<(Duration, f64, f64, Sample)> = WINDOWS
            .iter()
            .filter_map(|window| {
                let (seconds, then) = self.back(now, *window)?;
                let grown = now.physical_used_bytes as f64 - then.physical_used_bytes as f64;
                Some((*window, grown / seconds, seconds, then))
            })
            .collect();
        let Some(&(_, rate, seconds, then)) = rates.iter().rev().find(|(window, ..)| *window <= PRESENT)
        else {
            return TimeToFull::unknown(NoTime::SeenTooShort);
        };
        let time = TimeToFull {
            growth_bytes_per_second: Some(rate),
            window_seconds: Some(seconds),
            ..TimeToFull::default()
        };
        let after = |rate: f64| (rate > 0.0).then_some(room / rate);
        let fastest = rates.iter().map(|(_, rate, ..)| *rate).fold(f64::MIN, f64::max);
        let slowest = rates.iter().map(|(_, rate, ..)| *rate).fold(f64::MAX, f64::min);
        let range =
            TimeToFull { soonest_seconds: after(fastest), latest_seconds: after(slowest), ..time.clone() };
        if rate <= 0.0 {
            return TimeToFull { reason: Some(NoTime::NotGrowing), latest_seconds: None, ..range };
        }
        let written = now.logical_used_bytes as f64 - then.logical_used_bytes as f64;
        if written > 0.0 {
            let ratio = written / (now.physical_used_bytes as f64 - then.physical_used_bytes as f64);
            let left = limits.logical_capacity_bytes.saturating_sub(now.logical_used_bytes) as f64;
            if left / ratio <= room {
                return TimeToFull { reason: Some(NoTime::CapacityFirst), ..time };
            }
        }
        TimeToFull { seconds: after(rate), ..range }
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
    fn a_week_is_kept_as_an_hour() {
        let (growth, _) = seen(7 * 86_400, |_| 0, |_| 0);
        assert_eq!(growth.len(), 361);
    }
}
