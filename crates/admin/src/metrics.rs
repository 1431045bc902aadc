//! Names and meanings of the metrics. `docs/monitoring.md` lists them; a test compares the two.

use status::{DriveState, KindReport, LatencyReport, ServerReport, StatusReport, Warning};

use crate::exposition::{Exposition, Label, Type};
use crate::server::{ClientCounts, Monitored};

/// States that a drive of a server can be in.
const STATES: [DriveState; 5] =
    [DriveState::Online, DriveState::ReadOnly, DriveState::Poisoned, DriveState::Closed, DriveState::Down];

/// A metric with one value per drive, or none if it is unknown.
type Single = (&'static str, Type, &'static str, fn(&StatusReport) -> Option<f64>);

macro_rules! singles {
    ($($kind:ident $name:literal $help:literal = |$drive:ident| $value:expr;)*) => {
        &[$(($name, Type::$kind, $help, |$drive: &StatusReport| $value)),*]
    };
}

fn server(drive: &StatusReport, value: impl FnOnce(&ServerReport) -> u64) -> Option<f64> {
    drive.server.as_ref().map(|server| value(server) as f64)
}

/// An unknown ratio is 0 in the report.
fn known(ratio: f64) -> Option<f64> {
    (ratio > 0.0).then_some(ratio)
}

const SINGLES: &[Single] = singles! {
    Gauge "pumice_logical_capacity_bytes" "Logical capacity, as hosts see it." = |d| Some(d.logical_capacity_bytes as f64);
    Gauge "pumice_logical_used_bytes" "Logical space in use: blocks that hold data." = |d| Some(d.logical_used_bytes as f64);
    Gauge "pumice_logical_fill_bytes" "Logical space in use by blocks of one repeated word (mostly zeros), which take no physical space."
        = |d| Some(d.logical_fill_bytes as f64);
    Gauge "pumice_logical_available_bytes" "Logical space that can still be written at the current compression ratio."
        = |d| Some(d.logical_available_bytes as f64);
    Gauge "pumice_physical_size_bytes" "Physical size: space of the backing that the drive may use."
        = |d| Some(d.physical_size_bytes as f64);
    Gauge "pumice_physical_limit_bytes"
        "Physical space available to host data and map: physical size less reserve and fixed areas."
        = |d| Some(d.physical_limit_bytes as f64);
    Gauge "pumice_physical_used_bytes"
        "Physical space in use: records with live blocks, and the live map. A frame counts in full until its last block is dead."
        = |d| Some(d.physical_used_bytes as f64);
    Gauge "pumice_physical_repackable_bytes"
        "Estimated physical space that repacking partly dead frames would release (included in used)."
        = |d| Some(d.physical_repackable_bytes as f64);
    Gauge "pumice_physical_reclaimable_bytes" "Dead space that cleaning will release; neither used nor free."
        = |d| Some(d.physical_reclaimable_bytes as f64);
    Gauge "pumice_physical_free_bytes" "Physical space in free segments, within the limit."
        = |d| Some(d.physical_free_bytes as f64);
    Gauge "pumice_physical_available_bytes" "Physical space available for data: free and reclaimable (limit less used)."
        = |d| Some(d.physical_available_bytes as f64);
    Gauge "pumice_physical_reserve_bytes"
        "Physical space reserved for cleaning, the log and growth of the map."
        = |d| Some(d.physical_reserve_bytes as f64);
    Gauge "pumice_physical_fixed_bytes"
        "Physical space of superblock and checkpoints, behind the last segment, and lost in segments taken out of use."
        = |d| Some(d.physical_fixed_bytes as f64);
    Gauge "pumice_physical_used_ratio" "Physical space in use as a share of the limit; 1 is full." = |d| Some(d.physical_used_ratio);
    Gauge "pumice_compression_ratio" "Compression ratio: logical bytes in use / physical bytes in use; absent while the drive is empty."
        = |d| known(d.compression_ratio);
    Gauge "pumice_write_amplification_ratio"
        "Write amplification: bytes written to the backing / bytes written by hosts, over the life of the drive; absent before the first write."
        = |d| known(d.waf);
    Gauge "pumice_out_of_space" "1 while the drive is out of physical space."
        = |d| Some(f64::from(u8::from(d.out_of_space)));
    Gauge "pumice_backing_full" "1 while the file system or volume under the drive is full and changes are refused."
        = |d| Some(f64::from(u8::from(d.backing_full)));
    Counter "pumice_host_written_bytes_total" "Bytes written by hosts, over the life of the drive."
        = |d| Some(d.host_written_bytes as f64);
    Counter "pumice_host_read_bytes_total" "Bytes read by hosts, over the life of the drive."
        = |d| Some(d.host_read_bytes as f64);
    Counter "pumice_host_trimmed_bytes_total" "Bytes trimmed by hosts, over the life of the drive."
        = |d| Some(d.host_trimmed_bytes as f64);
    Counter "pumice_host_flushes_total" "Flush requests of hosts, over the life of the drive."
        = |d| Some(d.host_flushes_count as f64);
    Counter "pumice_physical_written_bytes_total" "Bytes written to the backing, over the life of the drive."
        = |d| Some(d.physical_written_bytes as f64);
    Counter "pumice_physical_read_bytes_total" "Bytes read from the backing, over the life of the drive."
        = |d| Some(d.physical_read_bytes as f64);
    Counter "pumice_cleaning_written_bytes_total" "Bytes written to the backing by cleaning, over the life of the drive."
        = |d| Some(d.cleaning.cleaning_written_bytes as f64);
    Counter "pumice_map_written_bytes_total" "Bytes written to the backing for map and checkpoints, over the life of the drive."
        = |d| Some(d.cleaning.map_written_bytes as f64);
    Counter "pumice_discarded_bytes_total" "Bytes discarded on the backing, over the life of the drive." = |d| Some(d.cleaning.discarded_bytes as f64);
    Counter "pumice_segments_cleaned_total" "Segments cleaned, over the life of the drive."
        = |d| Some(d.cleaning.segments_cleaned_count as f64);
    Counter "pumice_checkpoints_total" "Checkpoints written, over the life of the drive."
        = |d| Some(d.cleaning.checkpoints_count as f64);
    Gauge "pumice_segments" "Number of segments." = |d| Some(f64::from(d.cleaning.segments_count));
    Gauge "pumice_segments_free" "Number of free segments." = |d| Some(f64::from(d.cleaning.segments_free_count));
    Gauge "pumice_segments_waiting" "Number of freed segments that are still being read."
        = |d| Some(f64::from(d.cleaning.segments_waiting_count));
    Gauge "pumice_segments_bad" "Number of segments taken out of use because a write to them failed; their data can still be read."
        = |d| Some(f64::from(d.cleaning.segments_bad_count));
    Gauge "pumice_segments_damaged" "Number of segments taken out of use because they hold unreadable records."
        = |d| Some(f64::from(d.cleaning.segments_damaged_count));
    Gauge "pumice_copies_not_taken" "Number of copies of superblock and checkpoints that did not take what was last written to them."
        = |d| Some(f64::from(d.errors.copies_not_taken_count));
    Gauge "pumice_log_since_checkpoint_bytes" "Bytes of log written since the last checkpoint, which recovery would have to read."
        = |d| Some(d.cleaning.log_since_checkpoint_bytes as f64);
    Gauge "pumice_map_cache_memory_bytes" "Memory used by the map cache." = |d| Some(d.map_cache.memory_bytes as f64);
    Gauge "pumice_map_cache_budget_bytes" "Memory limit of the map cache."
        = |d| Some(d.map_cache.budget_bytes as f64);
    Gauge "pumice_map_cache_dirty_bytes" "Memory used by map nodes changed since the last checkpoint."
        = |d| Some(d.map_cache.dirty_bytes as f64);
    Counter "pumice_map_cache_hits_total" "Map node lookups served from memory." = |d| Some(d.map_cache.hits_count as f64);
    Counter "pumice_map_cache_loads_total" "Map nodes read from the backing."
        = |d| Some(d.map_cache.loads_count as f64);
    Counter "pumice_map_cache_evictions_total" "Map nodes dropped from memory."
        = |d| Some(d.map_cache.evictions_count as f64);
    Counter "pumice_backing_read_errors_total" "Failed reads of the backing."
        = |d| Some(d.errors.read_errors_count as f64);
    Counter "pumice_backing_write_errors_total" "Failed writes to the backing."
        = |d| Some(d.errors.write_errors_count as f64);
    Counter "pumice_corrupt_records_total" "Corrupt records met by reads."
        = |d| Some(d.errors.corrupt_records_count as f64);
    Counter "pumice_corrected_reads_total" "Reads of a superblock or checkpoint corrected from the other copy."
        = |d| Some(d.errors.corrected_reads_count as f64);
    Counter "pumice_unclean_opens_total" "Times the drive was opened after an unclean shutdown."
        = |d| Some(d.errors.unclean_opens_count as f64);
    Counter "pumice_opens_total" "Times the drive was opened for writing." = |d| Some(d.opens_count as f64);
    Counter "pumice_power_on_seconds_total" "Time the drive was open for writing, over its life."
        = |d| Some(d.power_on_seconds as f64);
    Gauge "pumice_endurance_bytes" "Rated endurance of the backing; absent if not configured."
        = |d| d.wear.endurance_bytes.map(|bytes| bytes as f64);
    Gauge "pumice_wear_ratio" "Share of the endurance of the backing used; 1 is all; absent if unknown."
        = |d| d.wear.percentage_used.map(|percent| percent / 100.0);
    Gauge "pumice_physical_growth_bytes_per_second" "Growth of the physical space in use, in bytes per second, over the last minutes."
        = |d| d.time_to_full.growth_bytes_per_second;
    Gauge "pumice_uptime_seconds" "Time since the drive was opened."
        = |d| d.server.as_ref().map(|server| server.uptime_seconds);
    Gauge "pumice_requests_in_flight" "Requests in flight."
        = |d| server(d, |server| server.requests.in_flight_count);
    Gauge "pumice_throttle_bytes_per_second" "Rate to which writes are throttled near full; absent while they are not throttled."
        = |d| d.server.as_ref().and_then(|server| server.throttle_bytes_per_second).map(|rate| rate as f64);
    Gauge "pumice_dictionaries" "Number of dictionaries stored on the drive."
        = |d| Some(d.compression.dictionaries.len() as f64);
    Gauge "pumice_dictionary_memory_bytes" "Memory used by dictionaries."
        = |d| Some(d.compression.dictionaries.iter().filter_map(|it| it.memory_bytes).sum::<u64>() as f64);
    Gauge "pumice_unsettled_bytes" "Physical space of compressible data that is not settled yet."
        = |d| Some(d.compression.unsettled_bytes as f64);
    Gauge "pumice_settling_to_gain_bytes"
        "Estimated physical space that settling would release; absent while nothing is settled."
        = |d| d.compression.to_gain_bytes.map(|bytes| bytes as f64);
    Gauge "pumice_training_gain_ratio"
        "Compression gain of the dictionaries trained last, on a sample, relative to none; absent before the first training."
        = |d| d.server.as_ref().and_then(|server| server.training.as_ref()).and_then(|it| known(it.gain));
    Counter "pumice_background_cpu_seconds_total"
        "CPU time used by training and settling, since the drive was opened."
        = |d| d.server.as_ref().map(|server| server.settling.cpu_seconds);
    Counter "pumice_settled_bytes_total" "Logical bytes recompressed by settling, since the drive was opened."
        = |d| server(d, |server| server.settling.settled_bytes);
    Counter "pumice_settled_before_bytes_total" "Physical bytes of recompressed data before settling, since the drive was opened."
        = |d| server(d, |server| server.settling.before_bytes);
    Counter "pumice_settled_after_bytes_total" "Physical bytes of recompressed data after settling, since the drive was opened."
        = |d| server(d, |server| server.settling.after_bytes);
    Counter "pumice_settled_again_bytes_total" "Logical bytes settled more than once, since the drive was opened."
        = |d| server(d, |server| server.settling.again_bytes);
    Counter "pumice_request_errors_total" "Requests that failed, since the drive was opened."
        = |d| server(d, |server| server.requests.errors_count);
    Counter "pumice_no_space_errors_total"
        "Requests that failed with out of space, since the drive was opened."
        = |d| server(d, |server| server.requests.no_space_count);
};

/// Returns the metrics of a server and its drives in the text format of Prometheus.
pub fn render(server: &Monitored) -> String {
    let all: Vec<_> = server.drives.iter().map(|drive| (drive, status::path_text(&drive.path))).collect();
    // Of a drive that is down only the state is known.
    let up: Vec<_> = all.iter().filter(|(drive, _)| drive.state != DriveState::Down).cloned().collect();
    let (all, drives): (&Drives<'_>, &Drives<'_>) = (&all, &up);
    let mut out = Exposition::default();
    out.family("pumice_build_info", Type::Gauge, "Always 1; label: program version.");
    out.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    out.family("pumice_drive_info", Type::Gauge, "Always 1; labels: properties of the drive.");
    for (drive, path) in drives {
        let sector = drive.sector_bytes.to_string();
        let labels: [Label<'_>; 5] = [
            ("drive", path),
            ("uuid", &drive.uuid),
            ("serial", &drive.serial),
            ("codec", &drive.codec),
            ("sector_bytes", &sector),
        ];
        out.sample(&labels, 1.0);
    }
    for (name, kind, help, value) in SINGLES {
        out.family(name, *kind, help);
        for (drive, path) in drives {
            if let Some(value) = value(drive) {
                out.sample(&[("drive", path)], value);
            }
        }
    }
    states(&mut out, all);
    warnings(&mut out, drives);
    estimates(&mut out, drives);
    live(&mut out, drives);
    written(&mut out, drives);
    survey(&mut out, drives);
    devices(&mut out, drives);
    requests(&mut out, drives);
    events(&mut out, all);
    offload(&mut out, drives);
    clients(&mut out, &server.clients);
    out.into_text()
}

fn clients(out: &mut Exposition, clients: &ClientCounts) {
    out.family(
        "pumice_nbd_connections",
        Type::Gauge,
        "NBD connections of the server, including those in their handshake.",
    );
    out.sample(&[], clients.connections as f64);
    out.family(
        "pumice_nbd_clients_total",
        Type::Counter,
        "NBD clients that chose a drive, since the server was started.",
    );
    out.sample(&[], clients.connected as f64);
    out.family(
        "pumice_nbd_refused_total",
        Type::Counter,
        "NBD clients refused, since the server was started.",
    );
    for (reason, count) in &clients.refused {
        out.sample(&[("reason", reason)], *count as f64);
    }
}

/// Drives with their paths.
type Drives<'a> = [(&'a StatusReport, String)];

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn states(out: &mut Exposition, drives: &Drives<'_>) {
    out.family(
        "pumice_drive_up",
        Type::Gauge,
        "1 if the server has opened the drive, 0 if it could not; most other metrics are absent then.",
    );
    for (drive, path) in drives {
        out.sample(&[("drive", path)], flag(drive.state != DriveState::Down));
    }
    out.family("pumice_state", Type::Gauge, "1 for the current state of the drive, 0 for the others.");
    for (drive, path) in drives {
        for state in STATES {
            out.sample(&[("drive", path), ("state", state.as_str())], flag(drive.state == state));
        }
    }
}

fn warnings(out: &mut Exposition, drives: &Drives<'_>) {
    out.family(
        "pumice_critical_warning",
        Type::Gauge,
        "1 for each critical warning that is active, 0 for the others.",
    );
    for (drive, path) in drives {
        for warning in Warning::ALL {
            let labels: [Label<'_>; 2] = [("drive", path), ("warning", warning.as_str())];
            out.sample(&labels, flag(drive.critical_warning.has(*warning)));
        }
    }
}

fn estimates(out: &mut Exposition, drives: &Drives<'_>) {
    out.family(
        "pumice_time_to_full_seconds",
        Type::Gauge,
        "Estimated time until physical space is used up, with its range; absent if it is not growing.",
    );
    for (drive, path) in drives {
        let told = &drive.time_to_full;
        let estimates =
            [("present", told.seconds), ("soonest", told.soonest_seconds), ("latest", told.latest_seconds)];
        for (estimate, seconds) in estimates {
            if let Some(seconds) = seconds {
                out.sample(&[("drive", path), ("estimate", estimate)], seconds);
            }
        }
    }
}

fn live(out: &mut Exposition, drives: &Drives<'_>) {
    type Of = fn(&status::LiveReport) -> u64;
    let families: [(&str, &str, Of); 2] = [
        ("pumice_live_logical_bytes", "Live data by storage format, in logical bytes.", |it| {
            it.logical_bytes
        }),
        (
            "pumice_live_physical_bytes",
            "Live data by storage format, in physical bytes including headers.",
            |it| it.physical_bytes,
        ),
    ];
    for (name, help, of) in families {
        out.family(name, Type::Gauge, help);
        for (drive, path) in drives {
            for live in &drive.compression.live {
                let blocks = live.frame_blocks.to_string();
                let labels: [Label<'_>; 3] =
                    [("drive", path), ("kind", live.kind.as_str()), ("frame_blocks", &blocks)];
                out.sample(&labels, of(live) as f64);
            }
        }
    }
}

fn written(out: &mut Exposition, drives: &Drives<'_>) {
    type Of = fn(&status::WrittenReport) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "pumice_compressed_logical_bytes_total",
            "Data written since the drive was opened by compression method, in logical bytes.",
            |it| it.logical_bytes,
        ),
        (
            "pumice_compressed_physical_bytes_total",
            "Data written since the drive was opened by compression method, in physical bytes including headers.",
            |it| it.physical_bytes,
        ),
    ];
    for (name, help, of) in families {
        out.family(name, Type::Counter, help);
        for (drive, path) in drives {
            for way in &drive.compression.written {
                let level = way.level.map_or(String::new(), |level| level.to_string());
                let dictionary = way.dictionary.map_or("other".to_string(), |id| id.to_string());
                let by = if way.settled { "settling" } else { "hosts" };
                let labels: [Label<'_>; 5] = [
                    ("drive", path),
                    ("codec", &way.codec),
                    ("level", &level),
                    ("dictionary", &dictionary),
                    ("by", by),
                ];
                out.sample(&labels, of(way) as f64);
            }
        }
    }
}

fn survey(out: &mut Exposition, drives: &Drives<'_>) {
    type Of = fn(&status::SurveyedReport) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "pumice_estimated_live_logical_bytes",
            "Live data by codec and dictionary, in logical bytes, estimated from random samples.",
            |it| it.logical_bytes,
        ),
        (
            "pumice_estimated_live_physical_bytes",
            "Live data by codec and dictionary, in physical bytes including headers, estimated from random samples.",
            |it| it.physical_bytes,
        ),
    ];
    for (name, help, of) in families {
        out.family(name, Type::Gauge, help);
        for (drive, path) in drives {
            let surveys = drive.server.iter().filter_map(|server| server.survey.as_ref());
            for live in surveys.flat_map(|survey| &survey.live) {
                let dictionary = live.dictionary.to_string();
                let settled = if live.settled { "true" } else { "false" };
                let labels: [Label<'_>; 4] = [
                    ("drive", path),
                    ("codec", &live.codec),
                    ("dictionary", &dictionary),
                    ("settled", settled),
                ];
                out.sample(&labels, of(live) as f64);
            }
        }
    }
}

fn devices(out: &mut Exposition, drives: &Drives<'_>) {
    type Of = fn(&status::DeviceReport) -> Option<f64>;
    let families: [(&str, &str, Of); 5] = [
        (
            "pumice_backing_temperature_celsius",
            "Temperature of a backing disk; absent if unknown.",
            |device| device.temperature_celsius,
        ),
        (
            "pumice_backing_temperature_limit_celsius",
            "Warning temperature of a backing disk; absent if unknown.",
            |device| device.temperature_limit_celsius,
        ),
        ("pumice_backing_power_watts", "Power consumption of a backing disk; absent if unknown.", |device| {
            device.power_watts
        }),
        (
            "pumice_backing_wear_ratio",
            "Share of the endurance of a backing disk used, as it reports; 1 is all; absent if unknown.",
            |device| device.percentage_used.map(|percent| percent / 100.0),
        ),
        (
            "pumice_backing_smart_passed",
            "1 if a backing disk passes its SMART health self-assessment, 0 if not; absent if unknown.",
            |device| device.smart_passed.map(|passed| f64::from(u8::from(passed))),
        ),
    ];
    for (name, help, of) in families {
        out.family(name, Type::Gauge, help);
        for (drive, path) in drives {
            for device in &drive.backing.devices {
                if let Some(value) = of(device) {
                    out.sample(&[("drive", path), ("device", &device.name)], value);
                }
            }
        }
    }
}

fn requests(out: &mut Exposition, drives: &Drives<'_>) {
    let served = || drives.iter().filter_map(|(drive, path)| Some((drive.server.as_ref()?, path.as_str())));
    out.family("pumice_requests_total", Type::Counter, "Requests started, since the drive was opened.");
    for (server, path) in served() {
        let requests = &server.requests;
        for (kind, count) in [
            ("read", requests.reads_count),
            ("write", requests.writes_count),
            ("flush", requests.flushes_count),
            ("trim", requests.trims_count),
            ("extents", requests.extents_count),
        ] {
            out.sample(&[("drive", path), ("kind", kind)], count as f64);
        }
    }
    out.family(
        "pumice_request_duration_seconds",
        Type::Histogram,
        "Latency of successful requests, since the drive was opened.",
    );
    for (server, path) in served() {
        histograms(out, path, &server.latency);
    }
}

fn events(out: &mut Exposition, drives: &Drives<'_>) {
    out.family("pumice_events_total", Type::Counter, "Events since the drive was opened.");
    for (server, path) in drives.iter().filter_map(|(drive, path)| Some((drive.server.as_ref()?, path))) {
        for count in &server.events.counts {
            out.sample(&[("drive", path), ("event", count.event.as_str())], count.count as f64);
        }
    }
}

/// One device for all drives: reported once.
fn offload(out: &mut Exposition, drives: &Drives<'_>) {
    let mut served = drives.iter().filter_map(|(drive, _)| drive.server.as_ref());
    let Some(told) = served.find_map(|server| server.offload.as_ref()) else { return };
    out.family(
        "pumice_offload_jobs_total",
        Type::Counter,
        "Frames and blocks submitted for compression offload, by executor, since the server was started.",
    );
    for (by, count) in [
        ("device", told.device_jobs_count),
        ("software", told.software_jobs_count),
        ("nobody", told.incompressible_jobs_count),
    ] {
        out.sample(&[("by", by)], count as f64);
    }
    out.family(
        "pumice_offload_input_bytes_total",
        Type::Counter,
        "Bytes submitted for compression offload, by executor, since the server was started.",
    );
    for (by, bytes) in [("device", told.device_input_bytes), ("software", told.software_input_bytes)] {
        out.sample(&[("by", by)], bytes as f64);
    }
    out.family(
        "pumice_offload_output_bytes_total",
        Type::Counter,
        "Compressed bytes produced by the offload device, since the server was started.",
    );
    out.sample(&[("by", "device")], told.device_output_bytes as f64);
    out.family(
        "pumice_offload_refusals_total",
        Type::Counter,
        "Jobs that the offload device did not complete, by reason.",
    );
    for (reason, count) in
        [("busy", told.busy_count), ("failed", told.failed_count), ("queue-full", told.queue_full_count)]
    {
        out.sample(&[("reason", reason)], count as f64);
    }
}

fn histograms(out: &mut Exposition, path: &str, latency: &LatencyReport) {
    for (kind, KindReport { count, sum_seconds, buckets, .. }) in latency.kinds() {
        let labels: [Label<'_>; 2] = [("drive", path), ("kind", kind)];
        for bucket in buckets {
            let bound = bucket.le_seconds.to_string();
            out.suffixed("_bucket", &[labels[0], labels[1], ("le", &bound)], bucket.count as f64);
        }
        out.suffixed("_bucket", &[labels[0], labels[1], ("le", "+Inf")], *count as f64);
        out.suffixed("_sum", &labels, *sum_seconds);
        out.suffixed("_count", &labels, *count as f64);
    }
}
