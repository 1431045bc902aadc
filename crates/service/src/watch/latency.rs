//! Latencies of requests: one histogram per kind, in shards, so that threads do not compete for one lock.
//!
//! HDR histograms (Gil Tene) keep every value to two significant digits in a fixed amount of memory. A
//! request costs two clock readings and one addition under a lock that only its own thread takes, as long as
//! there are no more worker threads than shards; `cargo bench -p service` measures it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use parking_lot::Mutex;
use status::{BucketReport, KindReport, LatencyReport};

/// Kinds of timed requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads.
    Read,
    /// Writes, with and without FUA.
    Write,
    /// Flushes.
    Flush,
    /// Trims and write-zeroes.
    Trim,
}

/// Number of [`Kind`]s.
const KINDS: usize = 4;
/// Smallest and largest latency distinguished, in nanoseconds. Values outside count as the nearest.
const LOWEST_NANOSECONDS: u64 = 16;
const HIGHEST_NANOSECONDS: u64 = 100_000_000_000;
/// Significant decimal digits of a value.
const DIGITS: u8 = 2;
/// More threads than this share shards. Bounds the memory (about 110 KiB per shard).
const SHARDS_MAX: usize = 8;
/// Bounds of the reported buckets, in nanoseconds: 1, 2 and 5 times powers of ten.
const BUCKETS_NANOSECONDS: [u64; 21] = [
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    20_000_000,
    50_000_000,
    100_000_000,
    200_000_000,
    500_000_000,
    1_000_000_000,
    2_000_000_000,
    5_000_000_000,
    10_000_000_000,
];

/// Histograms of one shard. Aligned so that no two shards share a cache line, nor a pair of lines that is
/// prefetched together.
#[repr(align(128))]
struct Shard(Mutex<[Timed; KINDS]>);

/// Latencies of one kind.
#[derive(Clone)]
struct Timed {
    histogram: Histogram<u64>,
    sum_nanoseconds: u64,
}

impl Timed {
    fn new() -> Timed {
        // The library accepts these constant bounds.
        let histogram = Histogram::new_with_bounds(LOWEST_NANOSECONDS, HIGHEST_NANOSECONDS, DIGITS)
            .unwrap_or_else(|error| unreachable!("bounds of a histogram: {error}"));
        Timed { histogram, sum_nanoseconds: 0 }
    }

    fn record(&mut self, nanoseconds: u64) {
        self.histogram.saturating_record(nanoseconds);
        self.sum_nanoseconds = self.sum_nanoseconds.saturating_add(nanoseconds);
    }

    /// Requests that took at most as long as each bound, to the precision of the histogram.
    fn buckets(&self) -> Vec<BucketReport> {
        let mut recorded = self.histogram.iter_recorded().peekable();
        let mut count = 0;
        let mut bucket = |bound: &u64| {
            while let Some(value) = recorded.next_if(|value| value.value_iterated_to() <= *bound) {
                count += value.count_since_last_iteration();
            }
            BucketReport { le_seconds: seconds(*bound), count }
        };
        let buckets: Vec<BucketReport> = BUCKETS_NANOSECONDS.iter().map(&mut bucket).collect();
        debug_assert!(
            buckets.last().is_none_or(|last| last.count <= self.histogram.len()),
            "no request is in two buckets"
        );
        buckets
    }

    fn report(&self) -> KindReport {
        let count = self.histogram.len();
        let known = |nanoseconds: u64| (count > 0).then_some(seconds(nanoseconds));
        let percentile = |percent: f64| known(self.histogram.value_at_percentile(percent));
        KindReport {
            count,
            sum_seconds: seconds(self.sum_nanoseconds),
            p50_seconds: percentile(50.0),
            p90_seconds: percentile(90.0),
            p99_seconds: percentile(99.0),
            p999_seconds: percentile(99.9),
            max_seconds: known(self.histogram.max()),
            buckets: self.buckets(),
        }
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Histograms of all kinds, at one time.
#[derive(Clone)]
pub(crate) struct Snapshot([Timed; KINDS]);

impl Snapshot {
    /// Without any requests.
    pub(crate) fn empty() -> Snapshot {
        Snapshot(std::array::from_fn(|_| Timed::new()))
    }

    /// Reports the requests of a period of this length.
    pub(crate) fn report(&self, window: Duration) -> LatencyReport {
        let [read, write, flush, trim] = self.0.each_ref().map(Timed::report);
        LatencyReport { window_seconds: window.as_secs_f64(), read, write, flush, trim }
    }

    /// Returns what was counted after `earlier`.
    pub(crate) fn since(&self, earlier: &Snapshot) -> Snapshot {
        let mut since = self.clone();
        for (timed, before) in since.0.iter_mut().zip(&earlier.0) {
            // Counts only grow, and both have the same bounds.
            if let Err(error) = timed.histogram.subtract(&before.histogram) {
                debug_assert!(false, "an earlier histogram that is none: {error}");
            }
            timed.sum_nanoseconds = timed.sum_nanoseconds.saturating_sub(before.sum_nanoseconds);
        }
        since
    }
}

/// Latencies of a drive's requests since it was opened.
pub struct Latencies {
    shards: Box<[Shard]>,
}

/// Numbers of threads, assigned at their first request.
static THREADS: AtomicUsize = AtomicUsize::new(0);
thread_local! {
    static THREAD: usize = THREADS.fetch_add(1, Ordering::Relaxed);
}

impl Latencies {
    /// Creates it for this number of threads.
    pub fn new(threads: usize) -> Latencies {
        let shard = |_| Shard(Mutex::new(std::array::from_fn(|_| Timed::new())));
        Latencies { shards: (0..threads.clamp(1, SHARDS_MAX)).map(shard).collect() }
    }

    /// Counts a request with its latency.
    pub fn record(&self, kind: Kind, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        let shard = &self.shards[THREAD.with(|thread| *thread) % self.shards.len()];
        shard.0.lock()[kind as usize].record(nanoseconds);
    }

    /// Returns the sum of all shards.
    pub(crate) fn snapshot(&self) -> Snapshot {
        let mut all = Snapshot::empty();
        for shard in &self.shards {
            for (timed, part) in all.0.iter_mut().zip(shard.0.lock().iter()) {
                // All have the same bounds.
                if let Err(error) = timed.histogram.add(&part.histogram) {
                    debug_assert!(false, "histograms of different bounds: {error}");
                }
                timed.sum_nanoseconds = timed.sum_nanoseconds.saturating_add(part.sum_nanoseconds);
            }
        }
        all
    }
}

impl Default for Latencies {
    fn default() -> Latencies {
        Latencies::new(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    /// Within the two digits that are kept.
    fn about(found: Option<f64>, wanted: f64) -> bool {
        found.is_some_and(|found| (found - wanted).abs() <= wanted * 0.01)
    }

    #[test]
    fn percentiles_of_what_was_recorded() {
        let latencies = Latencies::new(2);
        (1..=1000).for_each(|n| latencies.record(Kind::Write, micros(n)));
        let LatencyReport { window_seconds, read, write, .. } = latencies.snapshot().report(micros(1500));
        assert_eq!((window_seconds, write.count), (1500e-6, 1000));
        assert!(about(write.p50_seconds, 500e-6), "{write:?}");
        assert!(about(write.p999_seconds, 999e-6), "{write:?}");
        assert!(about(write.max_seconds, 1000e-6), "{write:?}");
        assert!((write.sum_seconds - 0.5005).abs() < 1e-9);
        assert_eq!((read.count, read.p50_seconds, read.max_seconds), (0, None, None));
    }

    #[test]
    fn buckets_count_up_and_hold_what_is_within_range() {
        let latencies = Latencies::new(1);
        for took in [1, 3, 150, 150, 700_000, 60_000_000] {
            latencies.record(Kind::Read, micros(took));
        }
        let buckets = latencies.snapshot().0[Kind::Read as usize].buckets();
        assert!(
            buckets.is_sorted_by(|a, b| a.le_seconds < b.le_seconds && a.count <= b.count),
            "{buckets:?}"
        );
        let up_to = |bound: f64| buckets.iter().find(|it| it.le_seconds == bound).map(|bucket| bucket.count);
        assert_eq!(up_to(2e-6), Some(1));
        assert_eq!(up_to(5e-6), Some(2));
        assert_eq!(up_to(200e-6), Some(4));
        assert_eq!(up_to(1.0), Some(5));
        assert_eq!(up_to(10.0), Some(5), "a minute is in no bucket but the count");
        assert!(buckets.iter().all(|bucket| bucket.count <= 6));
    }

    #[test]
    fn out_of_range_is_kept_at_the_edge() {
        let latencies = Latencies::new(1);
        latencies.record(Kind::Flush, Duration::ZERO);
        latencies.record(Kind::Flush, Duration::MAX);
        let flush = latencies.snapshot().report(Duration::ZERO).flush;
        assert_eq!(flush.count, 2);
        assert!(flush.max_seconds.is_some_and(|seconds| (99.0..200.0).contains(&seconds)), "{flush:?}");
    }

    #[test]
    fn threads_add_up_and_a_later_snapshot_tells_what_is_new() {
        let latencies = Latencies::new(4);
        let record = |count: u64| (0..count).for_each(|n| latencies.record(Kind::Trim, micros(n + 1)));
        std::thread::scope(|scope| (0..6).for_each(|_| drop(scope.spawn(|| record(50)))));
        let before = latencies.snapshot();
        assert_eq!(before.report(Duration::ZERO).trim.count, 300);
        latencies.record(Kind::Trim, micros(9000));
        let since = latencies.snapshot().since(&before);
        let trim = since.report(Duration::ZERO).trim;
        assert_eq!(trim.count, 1);
        assert!(about(trim.p50_seconds, 9e-3), "{trim:?}");
        assert!(about(Some(trim.sum_seconds), 9e-3), "{trim:?}");
    }
}
