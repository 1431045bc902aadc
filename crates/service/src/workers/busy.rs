//! Load of the workers, which determines the codec of `auto`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::workers::compute::thread_time;

/// Interval at which a worker reads the processor time of its thread.
const SAMPLE: Duration = Duration::from_secs(1);
/// From this share of a processor on, in thousandths, a worker is saturated: requests wait for it.
const SATURATED_FROM: u32 = 970;
/// Below this share of a processor, in thousandths, a worker is no longer saturated.
const IDLE_BELOW: u32 = 800;
/// Number of samples in a row that change the result.
const SAMPLES: u32 = 3;

/// A worker's share of a processor in its last second, in thousandths.
pub(crate) type Share = Arc<AtomicU32>;

/// Measures the thread on which it runs, as long as it runs.
pub(crate) async fn measure(share: Share) {
    let (mut cpu, mut since) = (thread_time(), Instant::now());
    loop {
        tokio::time::sleep(SAMPLE).await;
        let (now, passed) = (thread_time(), since.elapsed());
        let thousandths = (now - cpu).as_secs_f64() / passed.as_secs_f64().max(1e-3) * 1000.0;
        share.store(thousandths as u32, Ordering::Relaxed);
        (cpu, since) = (now, Instant::now());
    }
}

/// Demand for faster compression of writes, according to the busiest worker.
pub(crate) struct Hurry {
    shares: Vec<Share>,
    hurried: bool,
    /// Seconds in a row with the opposite result.
    against: u32,
    next: Instant,
}

impl Hurry {
    pub(crate) fn new(shares: Vec<Share>) -> Hurry {
        Hurry { shares, hurried: false, against: 0, next: Instant::now() + SAMPLE }
    }

    /// Returns true if writes should be compressed faster. Examines the load once a second, however often it
    /// is called.
    pub(crate) fn judge(&mut self, now: Instant) -> bool {
        if now >= self.next {
            self.next = now + SAMPLE;
            let busiest = self.shares.iter().map(|share| share.load(Ordering::Relaxed)).max();
            self.sample(busiest.unwrap_or(0));
        }
        self.hurried
    }

    fn sample(&mut self, busiest: u32) {
        let otherwise = if self.hurried { busiest < IDLE_BELOW } else { busiest >= SATURATED_FROM };
        self.against = if otherwise { self.against + 1 } else { 0 };
        if self.against >= SAMPLES {
            self.hurried = !self.hurried;
            self.against = 0;
        }
        debug_assert!(self.against < SAMPLES, "enough samples change the result");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_three_seconds_in_a_row_to_hurry_and_to_stop() {
        let mut hurry = Hurry::new(Vec::new());
        let mut after = |shares: &[u32]| {
            shares.iter().for_each(|share| hurry.sample(*share));
            hurry.hurried
        };
        assert!(!after(&[1000, 1000, 500, 1000, 990]), "not in a row");
        assert!(after(&[980]));
        assert!(after(&[700, 100, 900, 850, 799, 0]), "one that is busy still");
        assert!(!after(&[300]));
        assert!(!after(&[960, 960, 960, 960]), "busy, not saturated");
    }

    #[tokio::test]
    async fn a_worker_that_spins_is_seen() {
        let share = Share::default();
        let measuring = tokio::spawn(measure(share.clone()));
        let begun = Instant::now();
        while share.load(Ordering::Relaxed) == 0 && begun.elapsed() < Duration::from_secs(60) {
            let spun = Instant::now();
            while spun.elapsed() < Duration::from_millis(20) {
                std::hint::black_box(spun);
            }
            tokio::task::yield_now().await;
        }
        assert!(share.load(Ordering::Relaxed) > 0);
        measuring.abort();
    }
}
