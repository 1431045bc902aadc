//! Status reports of drives, made from what engine and machine report.

use std::path::Path;

use drive::{Drive, ParityStatus, State, Status};
use layout::ScrubMark;
use media::AnyMedia;
use status::{
    BackingPlace, BackingReport, CacheReport, CleaningReport, CriticalWarning, DriveState, ErrorReport,
    NoTime, ParityReport, RecentlyWritten, RecoveryReport, ScrubsReport, StatusReport, TimeToFull, Warning,
    WearReport, WearSource, unix_seconds_now,
};

use crate::watch::backing::Prober;
use crate::watch::compression::compression_report;
use crate::watch::events::WarnAt;

/// Model that every drive reports.
const MODEL: &str = "Pumice";
/// Digits of the drive's id in its serial number.
const SERIAL_DIGITS: usize = 16;
/// Size of an NVMe data unit: a thousand sectors of 512 bytes (NVM Express Base Specification 2.0, figure
/// 207).
const DATA_UNIT_BYTES: u64 = 512_000;

/// Space that host data and map may fill: physical size without parity, the reserve, fixed areas and the
/// space lost in segments set aside. It is the sum of used, reclaimable and free space.
pub(crate) fn limit_bytes(status: &Status) -> u64 {
    let kept = status.physical_parity_bytes + status.physical_reserve_bytes + status.physical_fixed_bytes;
    status.physical_size_bytes.saturating_sub(kept)
}

/// Physical space in use / limit: 1 is full. All percentages of space are this times 100.
pub(crate) fn used_ratio(status: &Status) -> f64 {
    match limit_bytes(status) {
        0 => 1.0,
        limit => status.physical_used_bytes as f64 / limit as f64,
    }
}

/// Reports a drive that is open at `path`.
pub(crate) fn report(
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
    let mut report = StatusReport {
        path: path.to_path_buf(),
        state,
        // The engine has one state for both, and this text if it was requested.
        read_only_requested: status.state == State::ReadOnly,
        state_reason,
        uuid: uuid.to_string(),
        incarnation: Some(status.incarnation),
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
        logical_available_bytes: 0,
        physical_size_bytes: status.physical_size_bytes,
        physical_limit_bytes: limit,
        physical_used_bytes: status.physical_used_bytes,
        physical_used_ratio: used_ratio(status),
        physical_available_bytes: limit.saturating_sub(status.physical_used_bytes),
        physical_repackable_bytes: status.physical_repackable_bytes,
        physical_reclaimable_bytes: status.physical_reclaimable_bytes,
        physical_free_bytes: status.physical_free_bytes,
        physical_parity_bytes: status.physical_parity_bytes,
        physical_reserve_bytes: status.physical_reserve_bytes,
        physical_fixed_bytes: status.physical_fixed_bytes,
        keep_allocated,
        compression_ratio: status.compression_ratio,
        stored_compression_ratio: None,
        recently_written: RecentlyWritten::default(),
        expected_compression_ratio: None,
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
        opening_ids: status.runs.iter().map(|run| format!("{run:016x}")).collect(),
        critical_warning: CriticalWarning::default(),
        wear: WearReport {
            endurance_bytes: Some(status.endurance_bytes).filter(|bytes| *bytes > 0),
            written_bytes: status.lifetime_written_bytes,
            ..WearReport::default()
        },
        time_to_full: TimeToFull::unknown(NoTime::NotServed),
        backing: BackingReport::default(),
        compression: compression_report(&drive.dictionaries(), &status.composition, &status.written),
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
        parity: parity(&status.parity),
        recovery: RecoveryReport {
            clean: status.recovered.clean,
            packs_count: status.recovered.packs_count,
            log_bytes: status.recovered.log_bytes,
            start_lost: status.recovered.start_lost,
        },
        scrubs: scrubs(&drive.scrub_mark()),
        copies: Vec::new(),
        notes: status.notes.clone(),
        server: None,
    };
    report.estimate();
    report
}

/// Reports what parity a drive has, and what was repaired by it.
fn parity(status: &ParityStatus) -> ParityReport {
    ParityReport {
        form: status.form.to_string(),
        segments_uncovered_count: status.uncovered_segments_count,
        repaired_pages_count: status.repaired_pages_count,
        lost_pages_count: status.lost_pages_count,
        written_bytes: status.written_bytes,
        last_repaired_byte: status.last_repaired_byte,
        last_lost_byte: status.last_lost_byte,
        backing_failing: status.is_failing,
    }
}

/// Reports when the records of a drive were verified.
fn scrubs(mark: &ScrubMark) -> ScrubsReport {
    let known = |value: u64| (value > 0).then_some(value);
    let finished = known(mark.finished_unix_seconds);
    let begun = known(mark.begun_unix_seconds);
    let age = finished.or(begun).map(|since| unix_seconds_now().saturating_sub(since) as f64);
    ScrubsReport {
        every_seconds: None,
        finished_unix_seconds: finished,
        finished_faults_count: finished.map(|_| mark.finished_faults_count),
        begun_unix_seconds: begun,
        read_bytes: mark.read_bytes,
        faults_count: mark.faults_count,
        age_seconds: age,
    }
}

/// Log of a drive that was opened without a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpenedLog {
    /// All of it is valid.
    Whole,
    /// The part from the damage on was given up.
    CutAtDamage,
}

/// Reports the drive at `path`, which is not served.
pub(crate) fn idle_report(
    path: &Path,
    drive: &Drive<AnyMedia>,
    keep_allocated: bool,
    log: OpenedLog,
) -> StatusReport {
    let mut report = report(path, &drive.status(), drive, keep_allocated);
    match log {
        OpenedLog::CutAtDamage => report.state = DriveState::Damaged,
        OpenedLog::Whole => {
            report.state = DriveState::Idle;
            report.state_reason = None;
        }
    }
    assess(&mut report, Prober::new().probe(path), &WarnAt::default());
    report
}

/// Sets the parts that depend on the devices under the drive: wear and critical warnings.
pub(crate) fn assess(report: &mut StatusReport, backing: BackingReport, warn_at: &WarnAt) {
    let endured =
        report.wear.endurance_bytes.map(|bytes| 100.0 * report.wear.written_bytes as f64 / bytes as f64);
    report.wear.source = match (endured, backing.percentage_used) {
        (Some(_), _) => Some(WearSource::Endurance),
        (None, Some(_)) => Some(WearSource::Device),
        (None, None) => None,
    };
    report.wear.percentage_used = endured.or(backing.percentage_used);
    report.backing = backing;
    let broken = match report.state {
        DriveState::Poisoned | DriveState::Damaged => true,
        DriveState::ReadOnly => !report.read_only_requested,
        DriveState::Online
        | DriveState::Closed
        | DriveState::Idle
        | DriveState::Down
        | DriveState::Unknown => false,
    };
    let worn = [report.wear.percentage_used, report.backing.percentage_used];
    let doubtful = report.errors.corrupt_records_count > 0
        || report.errors.copies_not_taken_count > 0
        || report.backing.missing_bytes > 0
        || report.backing.place == BackingPlace::Deleted
        || report.backing.unreliable()
        || report.parity.lost_pages_count > 0
        || report.parity.backing_failing;
    report.critical_warning = CriticalWarning::of(&[
        (Warning::Space, 100.0 * report.physical_used_ratio >= f64::from(warn_at.critical())),
        (Warning::Temperature, report.backing.too_hot()),
        (Warning::Reliability, broken || doubtful),
        (Warning::ReadOnly, broken),
        (Warning::OutOfSpace, report.out_of_space),
        (Warning::Wear, worn.iter().flatten().any(|percent| *percent >= 100.0)),
        (
            Warning::BadSegments,
            report.cleaning.segments_bad_count + report.cleaning.segments_damaged_count > 0,
        ),
        (Warning::BackingTruncated, report.backing.missing_bytes > 0),
        (Warning::BackingDeleted, report.backing.place == BackingPlace::Deleted),
        (Warning::BackingMoved, report.backing.place.is_elsewhere()),
    ]);
}
