//! Status report of a drive.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::backing::BackingReport;
use crate::compression::CompressionReport;
use crate::recently_written::RecentlyWritten;
use crate::server::ServerReport;
use crate::states::{DriveState, NoTime, WearSource};
use crate::warning::CriticalWarning;

/// Answer to a status request, and output of `pumice status --json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct StatusAnswer {
    /// One report per drive.
    pub drives: Vec<StatusReport>,
}

/// Status of one drive.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct StatusReport {
    #[serde(with = "crate::path_text::as_text")]
    pub path: PathBuf,
    pub state: DriveState,
    /// Reason why it is not online.
    pub state_reason: Option<String>,
    /// Read-only by request.
    pub read_only_requested: bool,
    pub uuid: String,
    /// Grows with each wipe; `None` if unknown.
    pub incarnation: Option<u64>,
    pub model: String,
    /// First digits of `uuid`.
    pub serial: String,
    /// Version of the program that made the report.
    pub program_version: String,
    pub format_version: u32,
    pub created_unix_seconds: u64,
    pub sector_bytes: u32,
    pub segment_bytes: u32,
    /// Largest write that is atomic across a power cut.
    pub atomic_write_bytes: u64,
    pub codec: String,
    pub write_cache: bool,
    pub logical_capacity_bytes: u64,
    pub logical_used_bytes: u64,
    /// Part of `logical_used_bytes`: fills, which take no space.
    pub logical_fill_bytes: u64,
    /// Data that can still be written at the expected compression ratio; if that is unknown, data that does
    /// not compress. See [`StatusReport::logical_available_is_known`]. Always a number: older programs take
    /// nothing else.
    pub logical_available_bytes: u64,
    pub physical_size_bytes: u64,
    /// Space that host data and map may fill.
    pub physical_limit_bytes: u64,
    pub physical_used_bytes: u64,
    /// Used / limit: 1 is full.
    pub physical_used_ratio: f64,
    /// Limit - used: free and reclaimable.
    pub physical_available_bytes: u64,
    /// Part of used: space of dead blocks of frames while other blocks of them live. An estimate.
    pub physical_repackable_bytes: u64,
    pub physical_reclaimable_bytes: u64,
    pub physical_free_bytes: u64,
    /// Set apart for parity in segments.
    pub physical_parity_bytes: u64,
    pub physical_reserve_bytes: u64,
    pub physical_fixed_bytes: u64,
    /// Freed space is not discarded in the backing.
    pub keep_allocated: bool,
    /// Logical used / physical used, fills included; 0 when nothing is stored.
    pub compression_ratio: f64,
    /// The same without fills; `None` with too little data.
    pub stored_compression_ratio: Option<f64>,
    pub recently_written: RecentlyWritten,
    /// The lower one of the ratios that are known of stored and of recently written data, which all advice is
    /// based on.
    pub expected_compression_ratio: Option<f64>,
    pub waf: f64,
    pub out_of_space: bool,
    /// The file system or volume under the drive is full, and changes are refused until it has room.
    pub backing_full: bool,
    pub host_written_bytes: u64,
    pub host_read_bytes: u64,
    pub host_trimmed_bytes: u64,
    pub host_flushes_count: u64,
    pub physical_written_bytes: u64,
    pub physical_read_bytes: u64,
    /// Read and written by hosts, in units of 512,000 bytes, rounded up, as NVMe counts.
    pub data_units_read_count: u64,
    pub data_units_written_count: u64,
    /// Time open for writing, over the drive's life.
    pub power_on_seconds: u64,
    pub opens_count: u64,
    /// Ids of the openings for writing, newest first, as far as they are known.
    pub opening_ids: Vec<String>,
    pub critical_warning: CriticalWarning,
    pub wear: WearReport,
    pub time_to_full: TimeToFull,
    pub backing: BackingReport,
    pub compression: CompressionReport,
    pub map_cache: CacheReport,
    pub cleaning: CleaningReport,
    pub errors: ErrorReport,
    pub parity: ParityReport,
    pub recovery: RecoveryReport,
    pub scrubs: ScrubsReport,
    /// Served drives with the same id.
    pub copies: Vec<CopyReport>,
    /// Information for the administrator.
    pub notes: Vec<String>,
    /// The server that has the drive, or should have it.
    pub server: Option<ServerReport>,
}

/// Memory of the map.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CacheReport {
    pub memory_bytes: u64,
    pub budget_bytes: u64,
    pub dirty_bytes: u64,
    pub hits_count: u64,
    pub loads_count: u64,
    pub evictions_count: u64,
}

/// Segments and log.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct CleaningReport {
    pub segments_count: u32,
    pub segments_free_count: u32,
    /// Freed, but still being read.
    pub segments_waiting_count: u32,
    /// Set aside because a write to them failed.
    pub segments_bad_count: u32,
    /// Set aside because they hold records that cannot be read.
    pub segments_damaged_count: u32,
    pub segments_cleaned_count: u64,
    pub cleaning_written_bytes: u64,
    pub map_written_bytes: u64,
    pub discarded_bytes: u64,
    pub checkpoints_count: u64,
    pub checkpoint_number: u64,
    pub log_since_checkpoint_bytes: u64,
    pub sequence: u64,
    pub durable_sequence: u64,
}

/// Errors over the drive's life.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ErrorReport {
    pub read_errors_count: u64,
    pub write_errors_count: u64,
    pub corrupt_records_count: u64,
    /// Reads of a superblock or checkpoint that the other copy served, and those repaired by parity.
    pub corrected_reads_count: u64,
    /// Copies of superblock and checkpoints that did not take what was last written to them; 0 again once
    /// they do. On a drive not open for writing: those of the superblock and the newest checkpoint that were
    /// not found.
    pub copies_not_taken_count: u32,
    pub unclean_opens_count: u64,
}

/// Parity in segments, and what was repaired by it since the drive was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ParityReport {
    /// Share of each segment that new data sets apart for it, in the form of `pumice create --parity`; empty
    /// if the server does not know of parity.
    pub form: String,
    /// Segments written before the opening whose parity is not there yet, or not yet known to be.
    pub segments_uncovered_count: u32,
    pub repaired_pages_count: u64,
    /// Pages that could not be repaired, counted at each attempt.
    pub lost_pages_count: u64,
    pub written_bytes: u64,
    /// Place on the backing of the page repaired last.
    pub last_repaired_byte: Option<u64>,
    /// Place on the backing of the page last found that could not be repaired.
    pub last_lost_byte: Option<u64>,
    /// So many pages were repaired lately that the backing seems to fail.
    pub backing_failing: bool,
}

impl ParityReport {
    /// Returns whether new data gets parity.
    pub fn is_on(&self) -> bool {
        !matches!(self.form.as_str(), "" | "none")
    }
}

/// Wear of the backing.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct WearReport {
    /// Bytes that may be written to it over its life, as given when the drive was created.
    pub endurance_bytes: Option<u64>,
    /// Bytes that this drive has written to it over its life.
    pub written_bytes: u64,
    /// Used life: written / endurance, or without an endurance what the most worn disk reports. May
    /// exceed 100.
    pub percentage_used: Option<f64>,
    pub source: Option<WearSource>,
}

/// Result of the last opening.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct RecoveryReport {
    /// The drive had been closed properly.
    pub clean: bool,
    pub packs_count: u64,
    pub log_bytes: u64,
    /// No copy of the superblock was left at the start of the backing. The copies far from it were used.
    pub start_lost: bool,
}

/// Verification of all records: what the drive has recorded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct ScrubsReport {
    /// Period of scrubs; `None` if there are none, or the drive is not served.
    pub every_seconds: Option<f64>,
    /// End of the last one that verified all records.
    pub finished_unix_seconds: Option<u64>,
    /// Faults that it found.
    pub finished_faults_count: Option<u64>,
    /// Begin of the periodic one in progress.
    pub begun_unix_seconds: Option<u64>,
    /// Bytes of records that it has read.
    pub read_bytes: u64,
    /// Faults that it has found.
    pub faults_count: u64,
    /// Time since the last one finished or, if none has, since the first began.
    pub age_seconds: Option<f64>,
}

/// Time until physical space is used up. [`None`] is what is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TimeToFull {
    /// At the present rate.
    pub seconds: Option<f64>,
    /// At the fastest growth of any window.
    pub soonest_seconds: Option<f64>,
    /// At the slowest growth of any window; `None` if in some window space did not grow.
    pub latest_seconds: Option<f64>,
    /// The present rate: growth of physical space in use.
    pub growth_bytes_per_second: Option<f64>,
    /// Time over which the present rate was measured.
    pub window_seconds: Option<f64>,
    /// Reason why there is no time.
    pub reason: Option<NoTime>,
}

impl TimeToFull {
    /// No time, for a reason.
    pub fn unknown(reason: NoTime) -> TimeToFull {
        TimeToFull { reason: Some(reason), ..TimeToFull::default() }
    }

    /// No time left: writes are refused.
    pub fn none_left() -> TimeToFull {
        TimeToFull { seconds: Some(0.0), ..TimeToFull::unknown(NoTime::Full) }
    }
}

/// A served drive with the same id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyReport {
    /// Absolute path of its backing.
    #[serde(with = "crate::path_text::as_text")]
    pub path: PathBuf,
    /// Process id of its server.
    pub pid: u32,
}
