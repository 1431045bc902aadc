//! The part of the status that only a served drive has: its server, requests, latencies and tasks.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::serving::requests::Requests;
use crate::watch::compression::{SettlingReport, SurveyReport, TrainingReport};
use crate::watch::events::EventsReport;
use crate::watch::latency::{Snapshot, Timed};
use crate::watch::offload_report::OffloadReport;
use crate::watch::states::ScrubState;

/// The server that has the drive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ServerReport {
    pub pid: u32,
    pub uptime_seconds: f64,
    pub threads: usize,
    /// NBD URIs at which clients find the drive.
    pub nbd_uris: Vec<String>,
    /// `io_uring` or `plain`.
    pub io_backend: String,
    /// Rate that writes are slowed down to; none while they are not.
    pub throttle_bytes_per_second: Option<u64>,
    /// Around the page cache.
    pub direct_io: bool,
    pub requests: RequestReport,
    /// Since the drive was opened.
    pub latency: LatencyReport,
    /// Of the last minute, or since the drive was opened if that is less.
    pub latency_recent: LatencyReport,
    pub events: EventsReport,
    /// The last scrub since the drive was opened, or the one that is running.
    pub scrub: Option<ScrubReport>,
    /// The last one since the drive was opened.
    pub training: Option<TrainingReport>,
    pub settling: SettlingReport,
    /// The last one since the drive was opened: what live data needs to be read.
    pub survey: Option<SurveyReport>,
    /// Only where the server has a device that compresses.
    pub offload: Option<OffloadReport>,
}

/// A scrub: every record of a served drive read and verified.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct ScrubReport {
    pub state: ScrubState,
    pub started_unix_seconds: u64,
    pub finished_unix_seconds: Option<u64>,
    /// The rate it keeps to, counted in bytes of records.
    pub bytes_per_second: u64,
    pub records_verified_count: u64,
    /// Bytes of records read, bad ones in.
    pub read_bytes: u64,
    /// Of about so many.
    pub total_bytes: u64,
    pub faults_count: u64,
    /// The first hundred, each with its logical address, segment and place.
    pub faults: Vec<String>,
}

/// How long requests took that ended well.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct LatencyReport {
    /// The time that this is of.
    pub window_seconds: f64,
    pub read: KindReport,
    pub write: KindReport,
    pub flush: KindReport,
    pub trim: KindReport,
}

/// Latencies of one kind of requests. To two significant digits.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct KindReport {
    pub count: u64,
    pub sum_seconds: f64,
    /// `None` where there was no request, as all the others.
    pub p50_seconds: Option<f64>,
    pub p90_seconds: Option<f64>,
    pub p99_seconds: Option<f64>,
    pub p999_seconds: Option<f64>,
    pub max_seconds: Option<f64>,
    /// Requests that took no longer than each bound.
    pub buckets: Vec<BucketReport>,
}

/// A bound and how many requests took no longer.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct BucketReport {
    pub le_seconds: f64,
    pub count: u64,
}

impl LatencyReport {
    pub(crate) fn new(window: Duration, snapshot: &Snapshot) -> LatencyReport {
        let [read, write, flush, trim] = &snapshot.0;
        LatencyReport {
            window_seconds: window.as_secs_f64(),
            read: KindReport::from(read),
            write: KindReport::from(write),
            flush: KindReport::from(flush),
            trim: KindReport::from(trim),
        }
    }

    /// Kinds by name.
    pub fn kinds(&self) -> [(&'static str, &KindReport); 4] {
        [("read", &self.read), ("write", &self.write), ("flush", &self.flush), ("trim", &self.trim)]
    }
}

impl From<&Timed> for KindReport {
    fn from(timed: &Timed) -> KindReport {
        let seen = |seconds: f64| (timed.count() > 0).then_some(seconds);
        let bucket = |(le_seconds, count)| BucketReport { le_seconds, count };
        KindReport {
            count: timed.count(),
            sum_seconds: timed.sum_seconds(),
            p50_seconds: seen(timed.percentile_seconds(50.0)),
            p90_seconds: seen(timed.percentile_seconds(90.0)),
            p99_seconds: seen(timed.percentile_seconds(99.0)),
            p999_seconds: seen(timed.percentile_seconds(99.9)),
            max_seconds: seen(timed.max_seconds()),
            buckets: timed.buckets().into_iter().map(bucket).collect(),
        }
    }
}

/// Requests since the drive was opened.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct RequestReport {
    pub in_flight_count: u64,
    pub reads_count: u64,
    pub writes_count: u64,
    pub flushes_count: u64,
    pub trims_count: u64,
    pub extents_count: u64,
    pub errors_count: u64,
    /// Of the errors: refused for want of physical space.
    pub no_space_count: u64,
}

impl From<&Requests> for RequestReport {
    fn from(requests: &Requests) -> RequestReport {
        RequestReport {
            in_flight_count: requests.in_flight(),
            reads_count: requests.reads.load(Ordering::Relaxed),
            writes_count: requests.writes.load(Ordering::Relaxed),
            flushes_count: requests.flushes.load(Ordering::Relaxed),
            trims_count: requests.trims.load(Ordering::Relaxed),
            extents_count: requests.extents.load(Ordering::Relaxed),
            errors_count: requests.errors.load(Ordering::Relaxed),
            no_space_count: requests.no_space.load(Ordering::Relaxed),
        }
    }
}
