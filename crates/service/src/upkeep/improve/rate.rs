//! Rate of settling: what was recompressed lately, by the clock and not by processor time, so that rests and
//! busy processors count.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// Time over which the rate is measured. Settling works in bursts: at one percent of a processor a step takes
/// seconds.
const WINDOW: Duration = Duration::from_secs(300);
/// Shortest time from which a rate is known.
const KNOWN_FROM: Duration = Duration::from_secs(2);
/// Interval between samples. There are at most `WINDOW / SAMPLE_INTERVAL + 2` of them.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Samples of a counter of bytes, the oldest first.
#[derive(Default)]
pub(super) struct Rate {
    samples: VecDeque<(Instant, u64)>,
}

impl Rate {
    /// Takes the state of the counter, which work done now increases by `bytes`.
    pub(super) fn count(&mut self, now: Instant, bytes: u64) {
        self.forget(now);
        let total = self.samples.back().map_or(0, |(_, total)| *total);
        // The first sample stands for the time at which the work began.
        let more = self.samples.len() > 1;
        match self.samples.back_mut() {
            Some((at, last)) if more && now.duration_since(*at) < SAMPLE_INTERVAL => {
                *last += bytes;
            }
            Some(_) => self.samples.push_back((now, total + bytes)),
            None => self.samples.push_back((now, 0)),
        }
    }

    /// Returns bytes per second; `None` if too little is known, or nothing was done lately.
    pub(super) fn bytes_per_second(&self, now: Instant) -> Option<f64> {
        let recent = |(at, _): &&(Instant, u64)| now.saturating_duration_since(*at) <= WINDOW;
        let (from, before) = self.samples.iter().find(recent)?;
        let (_, total) = self.samples.back()?;
        let took = now.saturating_duration_since(*from);
        let bytes = total - before;
        (took >= KNOWN_FROM && bytes > 0).then(|| bytes as f64 / took.as_secs_f64())
    }

    fn forget(&mut self, now: Instant) {
        while self.samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW) {
            self.samples.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn it_is_what_was_done_in_the_last_five_minutes() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        assert_eq!(rate.bytes_per_second(start), None);
        rate.count(start, 5_000_000);
        assert_eq!(rate.bytes_per_second(start + seconds(1)), None, "too short");
        for second in 1..=1000 {
            rate.count(start + seconds(second), 100);
        }
        let known = rate.bytes_per_second(start + seconds(1000)).expect("something was done");
        assert!((98.0..102.0).contains(&known), "{known}");
        assert!(rate.samples.len() <= 62, "{} samples", rate.samples.len());
        // Idle time lowers it, until it is unknown.
        let later = rate.bytes_per_second(start + seconds(1150)).expect("something was done");
        assert!((45.0..60.0).contains(&later), "{later}");
        assert_eq!(rate.bytes_per_second(start + seconds(1400)), None);
    }

    #[test]
    fn the_first_burst_is_known_two_seconds_later() {
        let (mut rate, start) = (Rate::default(), Instant::now());
        rate.count(start, 0);
        rate.count(start + Duration::from_millis(10), 1000);
        rate.count(start + Duration::from_millis(20), 1000);
        assert_eq!(rate.bytes_per_second(start + seconds(2)), Some(1000.0));
    }
}
