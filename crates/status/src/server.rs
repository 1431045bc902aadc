//! The part of a status report that only a served drive has: server, requests, latencies and tasks.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::compression::{SettlingReport, SurveyReport, TrainingReport};
use crate::events::EventsReport;
use crate::states::{IoBackend, ScrubState};

/// The server that has the drive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ServerReport {
    pub pid: u32,
    /// Id of this opening of the drive, unlike any other before or after, by this server or another one.
    pub instance: String,
    /// Time since the drive was opened.
    pub uptime_seconds: f64,
    pub threads: usize,
    /// NBD URIs at which clients find the drive.
    pub nbd_uris: Vec<String>,
    pub io_backend: IoBackend,
    /// Rate to which writes are slowed down; `None` while they are not.
    pub throttle_bytes_per_second: Option<u64>,
    /// I/O bypasses the page cache.
    pub direct_io: bool,
    /// What hosts were told is written outlives a kill of the server, flushed or not.
    pub memory_kept: bool,
    /// At this opening, writes that an earlier server had acknowledged were lost.
    pub writes_lost: bool,
    /// Another process has the drive now, or may have it: this server takes no requests for it any more.
    pub disowned: bool,
    pub requests: RequestReport,
    /// Since the drive was opened.
    pub latency: LatencyReport,
    /// Of the last minute, or since the drive was opened if that is less.
    pub latency_recent: LatencyReport,
    pub events: EventsReport,
    /// The running scrub, or the last one since the drive was opened.
    pub scrub: Option<ScrubReport>,
    /// The last training since the drive was opened.
    pub training: Option<TrainingReport>,
    pub settling: SettlingReport,
    /// The last survey since the drive was opened.
    pub survey: Option<SurveyReport>,
    /// The device that compresses, if there is one.
    pub offload: Option<OffloadReport>,
    /// The cache of decompressed blocks, if there is one.
    pub read_cache: Option<ReadCacheReport>,
}

/// A scrub: all records of a served drive are read and verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ScrubReport {
    pub state: ScrubState,
    pub started_unix_seconds: u64,
    pub finished_unix_seconds: Option<u64>,
    /// Rate of the scrub, in bytes of records per second.
    pub bytes_per_second: u64,
    pub records_verified_count: u64,
    /// Bytes of records read, including bad ones.
    pub read_bytes: u64,
    /// Approximate size of all records.
    pub total_bytes: u64,
    pub faults_count: u64,
    /// The first hundred, each with logical address, segment and place.
    pub faults: Vec<String>,
    /// Logical bytes of hosts that cannot be read, as far as the scrub has come.
    pub lost_bytes: u64,
    /// Where they are, in order: the first [`LOST_RANGES_MAX`] ranges. Adjacent ones are one.
    pub lost_ranges: Vec<LostRange>,
}

/// Most ranges of lost bytes listed. All are counted.
pub const LOST_RANGES_MAX: usize = 1000;

/// Logical bytes of a drive that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LostRange {
    pub logical_offset_bytes: u64,
    pub logical_len_bytes: u64,
}

impl ScrubReport {
    /// Adds bytes behind all that were added before.
    pub fn lose(&mut self, range: Range<u64>) {
        let len = range.end - range.start;
        self.lost_bytes += len;
        let end = |it: &LostRange| it.logical_offset_bytes + it.logical_len_bytes;
        let is_full = self.lost_ranges.len() >= LOST_RANGES_MAX;
        match self.lost_ranges.last_mut() {
            Some(last) if end(last) == range.start => last.logical_len_bytes += len,
            _ if is_full => {}
            _ => {
                let offset = range.start;
                self.lost_ranges.push(LostRange { logical_offset_bytes: offset, logical_len_bytes: len });
            }
        }
    }
}

/// Latencies of successful requests.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct LatencyReport {
    /// Time that the values cover.
    pub window_seconds: f64,
    pub read: KindReport,
    pub write: KindReport,
    pub flush: KindReport,
    pub trim: KindReport,
}

/// Latencies of one kind of request, to two significant digits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct KindReport {
    pub count: u64,
    pub sum_seconds: f64,
    /// `None` if there was no request, like the next four.
    pub p50_seconds: Option<f64>,
    pub p90_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
    pub p999_seconds: Option<f64>,
    pub max_seconds: Option<f64>,
    pub buckets: Vec<BucketReport>,
}

/// Number of requests that took at most as long as a bound.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct BucketReport {
    pub le_seconds: f64,
    pub count: u64,
}

impl LatencyReport {
    /// Returns the kinds with their names.
    pub fn kinds(&self) -> [(&'static str, &KindReport); 4] {
        [("read", &self.read), ("write", &self.write), ("flush", &self.flush), ("trim", &self.trim)]
    }
}

/// Requests since the drive was opened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RequestReport {
    pub in_flight_count: u64,
    pub reads_count: u64,
    pub writes_count: u64,
    pub flushes_count: u64,
    pub trims_count: u64,
    pub extents_count: u64,
    pub errors_count: u64,
    /// Part of the errors: refused for lack of physical space.
    pub no_space_count: u64,
    /// Writes held at present because there is no room for them.
    pub held_count: u64,
    /// Writes that were held since the drive was opened.
    pub held_total_count: u64,
}

/// The cache of decompressed blocks that all drives of a server share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ReadCacheReport {
    /// Most memory.
    pub size_bytes: u64,
    /// Memory in use, by blocks of all drives.
    pub used_bytes: u64,
    /// Blocks of this drive read from it since the drive was opened.
    pub hits_count: u64,
    /// Blocks of this drive looked for in vain. Reads of 128 KiB or more do not look.
    pub misses_count: u64,
}

/// The device that compresses for all drives of a server. The numbers are sums over the drives since the
/// server was started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct OffloadReport {
    /// As given to `--offload`: `qat` or `qat:PATH`.
    pub name: String,
    pub device_jobs_count: u64,
    pub device_input_bytes: u64,
    /// Bytes stored for these.
    pub device_output_bytes: u64,
    /// Compressed by the processor because the device could not take them.
    pub software_jobs_count: u64,
    pub software_input_bytes: u64,
    pub incompressible_jobs_count: u64,
    pub busy_count: u64,
    pub failed_count: u64,
    /// Sessions closed after failures.
    pub given_up_count: u64,
    /// Batches that the processor compressed because too many were waiting.
    pub queue_full_count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjacent_lost_bytes_are_one_range_and_all_are_counted() {
        let mut report = ScrubReport::default();
        [0..10, 10..20, 30..40].into_iter().for_each(|range| report.lose(range));
        let range = |offset, len| LostRange { logical_offset_bytes: offset, logical_len_bytes: len };
        assert_eq!((&*report.lost_ranges, report.lost_bytes), (&[range(0, 20), range(30, 10)][..], 30));
        (0..2000).for_each(|at| report.lose(100 + 2 * at..101 + 2 * at));
        assert_eq!((report.lost_ranges.len(), report.lost_bytes), (LOST_RANGES_MAX, 2030));
        report.lose(5000..5001);
        assert_eq!(report.lost_ranges.last(), Some(&range(100 + 2 * 997, 1)), "not adjacent to the last one");
    }
}
