//! Each figure of a status report is a metric, or is left out for a reason.

use crate::common::{families, monitored};
use crate::known::{assert_all_shown, known};
use status::{DriveState, StatusReport};

/// Figures that are no metrics, each with the reason.
const LEFT_OUT: &[(&str, &str)] = &[
    // Properties that do not change while a drive is served. Those to join by are labels of
    // pumice_drive_info.
    ("atomic_write_bytes", "constant"),
    ("created_unix_seconds", "constant"),
    ("format_version", "constant"),
    ("incarnation", "constant, but for a wipe"),
    ("keep_allocated", "constant"),
    ("segment_bytes", "constant"),
    ("write_cache", "constant"),
    ("read_only_requested", "an option; pumice_state has the state"),
    ("server.direct_io", "an option"),
    ("server.events.warn_at_percent[]", "an option"),
    ("server.settling.background_cpu_percent", "an option"),
    // The same figure under another name.
    ("backing.temperature_celsius", "the greatest of pumice_backing_temperature_celsius"),
    ("backing.power_watts", "the sum of pumice_backing_power_watts"),
    ("backing.percentage_used", "the greatest of pumice_backing_wear_ratio"),
    ("data_units_read_count", "pumice_host_read_bytes_total in the units of NVMe"),
    ("data_units_written_count", "pumice_host_written_bytes_total in the units of NVMe"),
    ("wear.written_bytes", "pumice_physical_written_bytes_total, but for wipes; pumice_wear_ratio counts it"),
    ("server.latency_recent.", "what a query makes of pumice_request_duration_seconds"),
    ("server.latency.window_seconds", "pumice_uptime_seconds"),
    ("server.latency.read.max_seconds", "estimated from the buckets"),
    ("server.latency.read.p50_seconds", "estimated from the buckets"),
    ("server.latency.read.p90_seconds", "estimated from the buckets"),
    ("server.latency.read.p99_seconds", "estimated from the buckets"),
    ("server.latency.read.p999_seconds", "estimated from the buckets"),
    ("recently_written.logical_bytes", "pumice_recent_compression_ratio is made of it"),
    ("recently_written.physical_bytes", "pumice_recent_compression_ratio is made of it"),
    ("recently_written.window_seconds", "its length follows the data"),
    ("time_to_full.window_seconds", "of the growth that is measured"),
    // Places in a sequence, for people who look at one drive.
    ("cleaning.checkpoint_number", "pumice_checkpoints_total counts them"),
    ("cleaning.durable_sequence", "a place in the log"),
    ("cleaning.sequence", "a place in the log"),
    ("server.settling.bytes_per_second", "the rate of pumice_settled_bytes_total"),
    ("server.settling.position_bytes", "a place in the drive"),
    ("server.settling.passes_count", "passes over the drive"),
    // Events, runs and reports that have a beginning and an end: of the past, not of the time of the scrape.
    ("server.events.recent[].", "pumice_events_total counts them"),
    ("server.settling.run.", "of one run"),
    ("server.scrub.", "of one scrub; pumice_scrub_faults and pumice_scrub_age_seconds are of all"),
    ("scrubs.begun_unix_seconds", "pumice_scrub_age_seconds"),
    ("scrubs.finished_unix_seconds", "pumice_scrub_age_seconds"),
    ("scrubs.read_bytes", "of one scrub"),
    ("server.survey.records_count", "of one survey"),
    ("server.survey.unix_seconds", "of one survey"),
    ("server.training.asked", "of one training"),
    ("server.training.dictionary_ids[]", "ids"),
    ("server.training.gain_before", "of one training"),
    ("server.training.sample_blocks_count", "of one training"),
    ("server.training.unix_seconds", "of one training"),
    ("parity.last_lost_byte", "a place on the backing; an event names it"),
    ("parity.last_repaired_byte", "a place on the backing; an event names it"),
    ("recovery.clean", "of one opening; pumice_unclean_opens_total counts them"),
    ("recovery.log_bytes", "of one opening"),
    ("recovery.packs_count", "of one opening"),
    ("recovery.start_lost", "of one opening; the event `opened` tells"),
    // Lists of things: pumice_dictionaries and pumice_dictionary_memory_bytes are their sums.
    ("compression.dictionaries[].bytes", "of one dictionary"),
    ("compression.dictionaries[].id", "an id"),
    ("compression.dictionaries[].in_use", "of one dictionary"),
    ("copies[].pid", "an id"),
    // What exporters of the machine have.
    ("backing.devices[].critical_warning", "smartctl_exporter has it"),
    ("backing.devices[].power_on_hours", "smartctl_exporter has it"),
    ("backing.devices[].rotational", "node_exporter has it"),
    ("backing.file.inode", "an id"),
    ("server.memory_kept", "of the machine: the same for all of its drives"),
    ("server.writes_lost", "of one opening; an event names it"),
    ("server.pid", "an id"),
    ("server.threads", "the process exporter has it"),
    ("server.disowned", "its drive is no longer this server's; pumice_state has the state"),
    // Rare.
    ("server.offload.given_up_count", "sessions of the device that it opens again"),
];

#[test]
fn each_figure_is_a_metric_or_left_out_for_a_reason() {
    let report = StatusReport { state: DriveState::Online, ..known() };
    let show = |report: &StatusReport| admin::render(&monitored(vec![report.clone()]));
    assert_all_shown(&report, LEFT_OUT, show);
    let families = families(&show(&report));
    for (key, reason) in LEFT_OUT {
        let mut words = reason.split(|c: char| !c.is_ascii_lowercase() && c != '_');
        let missing = words.find(|word| word.starts_with("pumice_") && !families.contains_key(*word));
        assert_eq!(missing, None, "{key}");
    }
}
