//! What a drive tells, as `--json` prints it: a stable interface. Bytes unless the name says otherwise.

mod server;

use std::path::{Path, PathBuf};

use drive::{Drive, State, Status};
use media::AnyMedia;
use serde::{Deserialize, Serialize};

use crate::watch::backing::{BackingReport, Prober};
use crate::watch::compression::CompressionReport;
use crate::watch::copies::CopyReport;
use crate::watch::events::WarnAt;
use crate::watch::growth::TimeToFull;
use crate::watch::health::{CriticalWarning, Warning};
use crate::watch::states::{DriveState, NoTime, WearSource};
pub use server::{BucketReport, KindReport, LatencyReport, RequestReport, ScrubReport, ServerReport};

/// Model that every drive tells.
const MODEL: &str = "Pumice";
/// Digits of the drive's id that make its serial number.
const SERIAL_DIGITS: usize = 16;
/// Bytes of an NVMe data unit: a thousand sectors of 512 bytes (NVM Express Base Specification 2.0, figure 207).
const DATA_UNIT_BYTES: u64 = 512_000;

/// What the map and the host's data may fill: physical size without reserve, fixed areas and what is lost in segments set
/// aside. Used, reclaimable and free space add up to it.
pub(crate) fn limit_bytes(status: &Status) -> u64 {
    let kept = status.physical_reserve_bytes + status.physical_fixed_bytes;
    status.physical_size_bytes.saturating_sub(kept)
}

/// Physical space in use of what may be filled: 1 is full. All percentages of space are this times 100.
pub(crate) fn used_ratio(status: &Status) -> f64 {
    match limit_bytes(status) {
        0 => 1.0,
        limit => status.physical_used_bytes as f64 / limit as f64,
    }
}

/// Logical bytes that can still be written: what is left at the ratio of the data there is (1 where there is none), and
/// no more than the capacity leaves.
fn logical_available_bytes(status: &Status) -> u64 {
    let left = limit_bytes(status).saturating_sub(status.physical_used_bytes);
    let ratio = if status.compression_ratio > 0.0 { status.compression_ratio } else { 1.0 };
    let capacity = status.logical_capacity_bytes.saturating_sub(status.logical_used_bytes);
    ((left as f64 * ratio) as u64).min(capacity)
}

/// Status of one drive. Keys are only ever added; `docs/status.md` explains each.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are the interface and say it")]
pub struct StatusReport {
    #[serde(with = "crate::path_text::as_text")]
    pub path: PathBuf,
    pub state: DriveState,
    /// Why it is not online.
    pub state_reason: Option<String>,
    /// Read-only because a user requested that.
    pub read_only_requested: bool,
    pub uuid: String,
    pub model: String,
    /// The beginning of `uuid`, without its dashes.
    pub serial: String,
    /// Of the program that answers.
    pub program_version: String,
    pub format_version: u32,
    pub created_unix_seconds: u64,
    pub sector_bytes: u32,
    pub segment_bytes: u32,
    /// Largest write that is atomic across a power cut; always on.
    pub atomic_write_bytes: u64,
    pub codec: String,
    pub write_cache: bool,
    pub logical_capacity_bytes: u64,
    pub logical_used_bytes: u64,
    /// Of these, fills (zeros above all) that take no space.
    pub logical_fill_bytes: u64,
    /// What can still be written, at the ratio of the data there is.
    pub logical_available_bytes: u64,
    pub physical_size_bytes: u64,
    /// What host data and map may fill.
    pub physical_limit_bytes: u64,
    pub physical_used_bytes: u64,
    /// Used of the limit: 1 is full.
    pub physical_used_ratio: f64,
    /// Limit without used: free and reclaimable.
    pub physical_available_bytes: u64,
    /// Of the used: what dead blocks of frames take whose other blocks live. An estimate.
    pub physical_repackable_bytes: u64,
    pub physical_reclaimable_bytes: u64,
    pub physical_free_bytes: u64,
    pub physical_reserve_bytes: u64,
    pub physical_fixed_bytes: u64,
    /// Freed space stays allocated in the backing.
    pub keep_allocated: bool,
    pub compression_ratio: f64,
    pub waf: f64,
    pub out_of_space: bool,
    /// The file system or volume under the drive is full: changes are refused until it has room.
    pub backing_full: bool,
    pub host_written_bytes: u64,
    pub host_read_bytes: u64,
    pub host_trimmed_bytes: u64,
    pub host_flushes_count: u64,
    pub physical_written_bytes: u64,
    pub physical_read_bytes: u64,
    /// Read and written by the host, in thousands of 512 bytes, rounded up, as NVMe counts.
    pub data_units_read_count: u64,
    pub data_units_written_count: u64,
    /// Time open for writing, over the drive's life.
    pub power_on_seconds: u64,
    pub opens_count: u64,
    pub critical_warning: CriticalWarning,
    pub wear: WearReport,
    pub time_to_full: TimeToFull,
    pub backing: BackingReport,
    pub compression: CompressionReport,
    pub map_cache: CacheReport,
    pub cleaning: CleaningReport,
    pub errors: ErrorReport,
    pub recovery: RecoveryReport,
    /// Drives with the same id that are served, too.
    pub copies: Vec<CopyReport>,
    /// What an administrator should know.
    pub notes: Vec<String>,
    /// Only where a server has the drive.
    pub server: Option<ServerReport>,
}

/// The map's memory.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct CacheReport {
    pub memory_bytes: u64,
    pub budget_bytes: u64,
    pub dirty_bytes: u64,
    pub hits_count: u64,
    pub loads_count: u64,
    pub evictions_count: u64,
}

/// The log and the space it turns over.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct CleaningReport {
    pub segments_count: u32,
    pub segments_free_count: u32,
    /// Freed, and still being read.
    pub segments_waiting_count: u32,
    /// Set aside: a write to them failed.
    pub segments_bad_count: u32,
    /// Set aside: they hold records that cannot be read.
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
#[allow(missing_docs)]
pub struct ErrorReport {
    pub read_errors_count: u64,
    pub write_errors_count: u64,
    pub corrupt_records_count: u64,
    /// Reads of a superblock or checkpoint that its other copy served.
    pub corrected_reads_count: u64,
    /// Copies of superblock and checkpoints that did not take what was last written to them, now.
    pub copies_not_taken_count: u32,
    pub unclean_opens_count: u64,
}

/// What the backing has endured.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct WearReport {
    /// Bytes that may be written to it over its life, as told when the drive was made.
    pub endurance_bytes: Option<u64>,
    /// Bytes that this drive has written to it over its life.
    pub written_bytes: u64,
    /// Life used: written of endurance; without endurance, what the most worn device says of itself. May exceed 100.
    pub percentage_used: Option<f64>,
    pub source: Option<WearSource>,
}

/// How the last opening went.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs)]
pub struct RecoveryReport {
    /// The drive had been closed properly.
    pub clean: bool,
    pub packs_count: u64,
    pub log_bytes: u64,
}

impl StatusReport {
    pub(crate) fn new(
        path: &Path,
        status: &Status,
        drive: &Drive<AnyMedia>,
        keep_allocated: bool,
    ) -> StatusReport {
        let (state, state_reason) = match &status.state {
            State::Online => (DriveState::Online, None),
            State::ReadOnly => (DriveState::ReadOnly, Some(drive::ReadOnly::Requested.to_string())),
            State::Damaged(why) => (DriveState::ReadOnly, Some(why.clone())),
            State::Poisoned(why) => (DriveState::Poisoned, Some(why.clone())),
            State::Closed => (DriveState::Closed, None),
        };
        let counters = &status.counters;
        let uuid = uuid::Uuid::from_bytes(status.uuid);
        let limit = limit_bytes(status);
        StatusReport {
            path: path.to_path_buf(),
            state,
            // The engine has one state for both, and this text where it was requested.
            read_only_requested: status.state == State::ReadOnly,
            state_reason,
            uuid: uuid.to_string(),
            model: MODEL.to_string(),
            serial: uuid.simple().to_string()[..SERIAL_DIGITS].to_uppercase(),
            program_version: env!("CARGO_PKG_VERSION").to_string(),
            format_version: status.format_version,
            created_unix_seconds: status.created_unix_seconds,
            sector_bytes: status.sector_bytes,
            segment_bytes: status.segment_bytes,
            atomic_write_bytes: drive::ATOMIC_WRITE_BYTES,
            codec: status.codec.to_string(),
            write_cache: status.write_cache,
            logical_capacity_bytes: status.logical_capacity_bytes,
            logical_used_bytes: status.logical_used_bytes,
            logical_fill_bytes: status.logical_fill_bytes,
            logical_available_bytes: logical_available_bytes(status),
            physical_size_bytes: status.physical_size_bytes,
            physical_limit_bytes: limit,
            physical_used_bytes: status.physical_used_bytes,
            physical_used_ratio: used_ratio(status),
            physical_available_bytes: limit.saturating_sub(status.physical_used_bytes),
            physical_repackable_bytes: status.physical_repackable_bytes,
            physical_reclaimable_bytes: status.physical_reclaimable_bytes,
            physical_free_bytes: status.physical_free_bytes,
            physical_reserve_bytes: status.physical_reserve_bytes,
            physical_fixed_bytes: status.physical_fixed_bytes,
            keep_allocated,
            compression_ratio: status.compression_ratio,
            waf: status.waf,
            out_of_space: status.out_of_space,
            backing_full: status.backing_full,
            host_written_bytes: counters.host_written_bytes,
            host_read_bytes: counters.host_read_bytes,
            host_trimmed_bytes: counters.host_trimmed_bytes,
            host_flushes_count: counters.flushes_count,
            physical_written_bytes: counters.physical_written_bytes,
            physical_read_bytes: counters.physical_read_bytes,
            data_units_read_count: counters.host_read_bytes.div_ceil(DATA_UNIT_BYTES),
            data_units_written_count: counters.host_written_bytes.div_ceil(DATA_UNIT_BYTES),
            power_on_seconds: counters.powered_seconds,
            opens_count: counters.opens_count,
            critical_warning: CriticalWarning::default(),
            wear: WearReport {
                endurance_bytes: Some(status.endurance_bytes).filter(|bytes| *bytes > 0),
                written_bytes: status.lifetime_written_bytes,
                ..WearReport::default()
            },
            time_to_full: TimeToFull::unknown(NoTime::NotServed),
            backing: BackingReport::default(),
            compression: CompressionReport::new(&drive.dictionaries(), &status.composition, &status.written),
            map_cache: CacheReport {
                memory_bytes: status.map_memory_bytes,
                budget_bytes: status.map_budget_bytes,
                dirty_bytes: status.map_dirty_bytes,
                hits_count: status.map_hits_count,
                loads_count: status.map_loads_count,
                evictions_count: status.map_evictions_count,
            },
            cleaning: CleaningReport {
                segments_count: status.segments_count,
                segments_free_count: status.segments_free_count,
                segments_waiting_count: status.segments_waiting_count,
                segments_bad_count: status.segments_bad_count,
                segments_damaged_count: status.segments_damaged_count,
                segments_cleaned_count: counters.segments_cleaned_count,
                cleaning_written_bytes: counters.cleaning_written_bytes,
                map_written_bytes: counters.map_written_bytes,
                discarded_bytes: counters.discarded_bytes,
                checkpoints_count: counters.checkpoints_count,
                checkpoint_number: status.checkpoint_number,
                log_since_checkpoint_bytes: status.log_since_checkpoint_bytes,
                sequence: status.sequence,
                durable_sequence: status.durable_sequence,
            },
            errors: ErrorReport {
                read_errors_count: counters.read_errors_count,
                write_errors_count: counters.write_errors_count,
                corrupt_records_count: counters.corrupt_records_count,
                corrected_reads_count: counters.corrected_reads_count,
                copies_not_taken_count: status.copies_not_taken_count,
                unclean_opens_count: counters.unclean_opens_count,
            },
            recovery: RecoveryReport {
                clean: status.recovered.clean,
                packs_count: status.recovered.packs_count,
                log_bytes: status.recovered.log_bytes,
            },
            copies: Vec::new(),
            notes: status.notes.clone(),
            server: None,
        }
    }

    /// Of the drive at `path`, which no server has; `damaged` if it could be opened only by giving something up.
    pub(crate) fn idle(
        path: &Path,
        drive: &Drive<AnyMedia>,
        keep_allocated: bool,
        damaged: bool,
    ) -> StatusReport {
        let mut report = StatusReport::new(path, &drive.status(), drive, keep_allocated);
        if damaged {
            report.state = DriveState::Damaged;
        } else {
            report.state = DriveState::Idle;
            report.state_reason = None;
        }
        report.assess(Prober::new().look(path), &WarnAt::default());
        report
    }

    /// Sets what follows from the devices under the drive: wear and critical warnings.
    pub(crate) fn assess(&mut self, backing: BackingReport, warn_at: &WarnAt) {
        let endured =
            self.wear.endurance_bytes.map(|bytes| 100.0 * self.wear.written_bytes as f64 / bytes as f64);
        self.wear.source = match (endured, backing.percentage_used) {
            (Some(_), _) => Some(WearSource::Endurance),
            (None, Some(_)) => Some(WearSource::Device),
            (None, None) => None,
        };
        self.wear.percentage_used = endured.or(backing.percentage_used);
        self.backing = backing;
        let broken = match self.state {
            DriveState::Poisoned | DriveState::Damaged => true,
            DriveState::ReadOnly => !self.read_only_requested,
            DriveState::Online
            | DriveState::Closed
            | DriveState::Idle
            | DriveState::Down
            | DriveState::Unknown => false,
        };
        let worn = [self.wear.percentage_used, self.backing.percentage_used];
        let doubtful = self.errors.corrupt_records_count > 0
            || self.errors.copies_not_taken_count > 0
            || self.backing.unreliable();
        self.critical_warning = CriticalWarning::of(&[
            (Warning::Space, 100.0 * self.physical_used_ratio >= f64::from(warn_at.critical())),
            (Warning::Temperature, self.backing.too_hot()),
            (Warning::Reliability, broken || doubtful),
            (Warning::ReadOnly, broken),
            (Warning::OutOfSpace, self.out_of_space),
            (Warning::Wear, worn.iter().flatten().any(|percent| *percent >= 100.0)),
            (
                Warning::BadSegments,
                self.cleaning.segments_bad_count + self.cleaning.segments_damaged_count > 0,
            ),
        ]);
    }
}
