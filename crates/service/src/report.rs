//! What a drive tells, as `--json` prints it: a stable interface. Bytes unless the name says otherwise.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use drive::{State, Status};
use serde::{Deserialize, Serialize};

use crate::requests::Requests;

/// Status of one drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names are the interface and say it")]
pub struct StatusReport {
    pub path: PathBuf,
    /// `online`, `read-only`, `poisoned`, `closed`; `idle` where no server has the drive.
    pub state: String,
    /// Why it is not online.
    pub state_reason: Option<String>,
    pub uuid: String,
    /// Of the program that answers.
    pub program_version: String,
    pub format_version: u32,
    pub created_unix_seconds: u64,
    pub sector_bytes: u32,
    pub segment_bytes: u32,
    pub codec: String,
    pub write_cache: bool,
    pub logical_capacity_bytes: u64,
    pub logical_used_bytes: u64,
    /// Of these, fills (zeros above all) that take no space.
    pub logical_fill_bytes: u64,
    pub physical_size_bytes: u64,
    pub physical_used_bytes: u64,
    pub physical_reclaimable_bytes: u64,
    pub physical_free_bytes: u64,
    pub physical_reserve_bytes: u64,
    pub physical_fixed_bytes: u64,
    pub compression_ratio: f64,
    pub waf: f64,
    pub out_of_space: bool,
    pub host_written_bytes: u64,
    pub host_read_bytes: u64,
    pub host_trimmed_bytes: u64,
    pub host_flushes_count: u64,
    pub physical_written_bytes: u64,
    pub physical_read_bytes: u64,
    pub map_cache: CacheReport,
    pub cleaning: CleaningReport,
    pub errors: ErrorReport,
    pub recovery: RecoveryReport,
    /// What an administrator should know.
    pub notes: Vec<String>,
    /// Only where a server has the drive.
    pub server: Option<ServerReport>,
}

/// The map's memory.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct CleaningReport {
    pub segments_count: u32,
    pub segments_free_count: u32,
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
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ErrorReport {
    pub read_errors_count: u64,
    pub write_errors_count: u64,
    pub corrupt_records_count: u64,
    pub unclean_opens_count: u64,
}

/// How the last opening went.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RecoveryReport {
    /// The drive had been closed properly.
    pub clean: bool,
    pub packs_count: u64,
    pub log_bytes: u64,
}

/// The server that has the drive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ServerReport {
    pub pid: u32,
    pub uptime_seconds: f64,
    pub threads: usize,
    /// `io_uring` or `plain`.
    pub io_backend: String,
    /// Around the page cache.
    pub direct_io: bool,
    pub requests: RequestReport,
}

/// Requests since the drive was opened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct RequestReport {
    pub in_flight_count: u64,
    pub reads_count: u64,
    pub writes_count: u64,
    pub flushes_count: u64,
    pub trims_count: u64,
    pub extents_count: u64,
    pub errors_count: u64,
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
        }
    }
}

impl StatusReport {
    /// Of the drive at `path`, without a server.
    pub fn new(path: &Path, status: &Status) -> StatusReport {
        let (state, state_reason) = match &status.state {
            State::Online => ("online", None),
            State::ReadOnly(why) => ("read-only", Some(why.clone())),
            State::Poisoned(why) => ("poisoned", Some(why.clone())),
            State::Closed => ("closed", None),
        };
        let counters = &status.counters;
        StatusReport {
            path: path.to_path_buf(),
            state: state.to_string(),
            state_reason,
            uuid: uuid::Uuid::from_bytes(status.uuid).to_string(),
            program_version: env!("CARGO_PKG_VERSION").to_string(),
            format_version: status.format_version,
            created_unix_seconds: status.created_unix_seconds,
            sector_bytes: status.sector_bytes,
            segment_bytes: status.segment_bytes,
            codec: status.codec.to_string(),
            write_cache: status.write_cache,
            logical_capacity_bytes: status.logical_capacity_bytes,
            logical_used_bytes: status.logical_used_bytes,
            logical_fill_bytes: status.logical_fill_bytes,
            physical_size_bytes: status.physical_size_bytes,
            physical_used_bytes: status.physical_used_bytes,
            physical_reclaimable_bytes: status.physical_reclaimable_bytes,
            physical_free_bytes: status.physical_free_bytes,
            physical_reserve_bytes: status.physical_reserve_bytes,
            physical_fixed_bytes: status.physical_fixed_bytes,
            compression_ratio: status.compression_ratio,
            waf: status.waf,
            out_of_space: status.out_of_space,
            host_written_bytes: counters.host_written_bytes,
            host_read_bytes: counters.host_read_bytes,
            host_trimmed_bytes: counters.host_trimmed_bytes,
            host_flushes_count: counters.flushes_count,
            physical_written_bytes: counters.physical_written_bytes,
            physical_read_bytes: counters.physical_read_bytes,
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
                unclean_opens_count: counters.unclean_opens_count,
            },
            recovery: RecoveryReport {
                clean: status.recovered.clean,
                packs_count: status.recovered.packs_count,
                log_bytes: status.recovered.log_bytes,
            },
            notes: status.notes.clone(),
            server: None,
        }
    }
}
