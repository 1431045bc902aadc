//! What each metric is called and means. `docs/monitoring.md` lists them; a test holds the two together.

use service::{KindReport, LatencyReport, ServerReport, StatusReport, Warning};

use crate::exposition::{Exposition, Label, Type};

/// States that a served drive can be in.
const STATES: [&str; 4] = ["online", "read-only", "poisoned", "closed"];

/// A metric with one value a drive, or none where it is not known.
type Single = (&'static str, Type, &'static str, fn(&StatusReport) -> Option<f64>);

macro_rules! singles {
    ($($kind:ident $name:literal $help:literal = |$drive:ident| $value:expr;)*) => {
        &[$(($name, Type::$kind, $help, |$drive: &StatusReport| $value)),*]
    };
}

fn server(drive: &StatusReport, value: impl FnOnce(&ServerReport) -> u64) -> Option<f64> {
    drive.server.as_ref().map(|server| value(server) as f64)
}

/// A ratio of which nothing is known yet is 0 in the report.
fn known(ratio: f64) -> Option<f64> {
    (ratio > 0.0).then_some(ratio)
}

const SINGLES: &[Single] = singles! {
    Gauge "pumice_logical_capacity_bytes" "Capacity that hosts see." = |d| Some(d.logical_capacity_bytes as f64);
    Gauge "pumice_logical_used_bytes" "Blocks that hold something." = |d| Some(d.logical_used_bytes as f64);
    Gauge "pumice_logical_fill_bytes" "Of the used, blocks of one repeated word, zeros above all, that take no space."
        = |d| Some(d.logical_fill_bytes as f64);
    Gauge "pumice_logical_available_bytes" "What can still be written at the present compression ratio."
        = |d| Some(d.logical_available_bytes as f64);
    Gauge "pumice_physical_size_bytes" "What the drive may use of its backing."
        = |d| Some(d.physical_size_bytes as f64);
    Gauge "pumice_physical_limit_bytes"
        "Physical space that host data and map may fill: the size without reserve and fixed areas."
        = |d| Some(d.physical_limit_bytes as f64);
    Gauge "pumice_physical_used_bytes"
        "Records with live blocks, and the live map. A frame counts whole until its last block dies."
        = |d| Some(d.physical_used_bytes as f64);
    Gauge "pumice_physical_repackable_bytes"
        "Used space that dead blocks of frames take while other blocks of them live: an estimate of what packing those \
         anew gives back."
        = |d| Some(d.physical_repackable_bytes as f64);
    Gauge "pumice_physical_reclaimable_bytes" "Dead space that cleaning brings back: neither used nor free."
        = |d| Some(d.physical_reclaimable_bytes as f64);
    Gauge "pumice_physical_free_bytes" "Space in free segments, within the limit."
        = |d| Some(d.physical_free_bytes as f64);
    Gauge "pumice_physical_available_bytes" "The limit without what is used: free and reclaimable."
        = |d| Some(d.physical_available_bytes as f64);
    Gauge "pumice_physical_reserve_bytes"
        "Space that host data may not fill: kept for cleaning, for the log, and for what TRIM may make of the map."
        = |d| Some(d.physical_reserve_bytes as f64);
    Gauge "pumice_physical_fixed_bytes"
        "Superblock, checkpoints, the rest behind the last segment, and what is lost in segments set aside."
        = |d| Some(d.physical_fixed_bytes as f64);
    Gauge "pumice_physical_used_ratio" "Used space of the limit: 1 is full." = |d| Some(d.physical_used_ratio);
    Gauge "pumice_compression_ratio" "Live logical bytes / live physical bytes; absent while nothing is stored."
        = |d| known(d.compression_ratio);
    Gauge "pumice_write_amplification_ratio"
        "Bytes written to the backing / bytes written by hosts, over the drive's life; absent before the first write."
        = |d| known(d.waf);
    Gauge "pumice_out_of_space" "1 while writes are refused for want of physical space."
        = |d| Some(f64::from(u8::from(d.out_of_space)));
    Counter "pumice_host_written_bytes_total" "Written by hosts, over the drive's life."
        = |d| Some(d.host_written_bytes as f64);
    Counter "pumice_host_read_bytes_total" "Read by hosts, over the drive's life."
        = |d| Some(d.host_read_bytes as f64);
    Counter "pumice_host_trimmed_bytes_total" "Trimmed by hosts, over the drive's life."
        = |d| Some(d.host_trimmed_bytes as f64);
    Counter "pumice_host_flushes_total" "Flushes by hosts, over the drive's life."
        = |d| Some(d.host_flushes_count as f64);
    Counter "pumice_physical_written_bytes_total" "Written to the backing, over the drive's life."
        = |d| Some(d.physical_written_bytes as f64);
    Counter "pumice_physical_read_bytes_total" "Read from the backing, over the drive's life."
        = |d| Some(d.physical_read_bytes as f64);
    Counter "pumice_cleaning_written_bytes_total" "Of the written to the backing, by cleaning."
        = |d| Some(d.cleaning.cleaning_written_bytes as f64);
    Counter "pumice_map_written_bytes_total" "Of the written to the backing, map and checkpoints."
        = |d| Some(d.cleaning.map_written_bytes as f64);
    Counter "pumice_discarded_bytes_total" "Given back to the backing." = |d| Some(d.cleaning.discarded_bytes as f64);
    Counter "pumice_segments_cleaned_total" "Segments cleaned, over the drive's life."
        = |d| Some(d.cleaning.segments_cleaned_count as f64);
    Counter "pumice_checkpoints_total" "Checkpoints, over the drive's life."
        = |d| Some(d.cleaning.checkpoints_count as f64);
    Gauge "pumice_segments" "Segments of the drive." = |d| Some(f64::from(d.cleaning.segments_count));
    Gauge "pumice_segments_free" "Segments that are free." = |d| Some(f64::from(d.cleaning.segments_free_count));
    Gauge "pumice_segments_waiting" "Segments that are freed and still being read: free when the readers are done."
        = |d| Some(f64::from(d.cleaning.segments_waiting_count));
    Gauge "pumice_segments_bad" "Segments set aside because a write to them failed. What lives in them is read only."
        = |d| Some(f64::from(d.cleaning.segments_bad_count));
    Gauge "pumice_segments_damaged" "Segments set aside because they hold records that cannot be read."
        = |d| Some(f64::from(d.cleaning.segments_damaged_count));
    Gauge "pumice_log_since_checkpoint_bytes" "Log that recovery would have to read."
        = |d| Some(d.cleaning.log_since_checkpoint_bytes as f64);
    Gauge "pumice_map_cache_memory_bytes" "Memory that map nodes take." = |d| Some(d.map_cache.memory_bytes as f64);
    Gauge "pumice_map_cache_budget_bytes" "Memory that map nodes may take."
        = |d| Some(d.map_cache.budget_bytes as f64);
    Gauge "pumice_map_cache_dirty_bytes" "Map nodes changed since the last checkpoint."
        = |d| Some(d.map_cache.dirty_bytes as f64);
    Counter "pumice_map_cache_hits_total" "Map nodes found in memory." = |d| Some(d.map_cache.hits_count as f64);
    Counter "pumice_map_cache_loads_total" "Map nodes read from the backing."
        = |d| Some(d.map_cache.loads_count as f64);
    Counter "pumice_map_cache_evictions_total" "Map nodes dropped from memory."
        = |d| Some(d.map_cache.evictions_count as f64);
    Counter "pumice_backing_read_errors_total" "Reads of the backing that failed."
        = |d| Some(d.errors.read_errors_count as f64);
    Counter "pumice_backing_write_errors_total" "Writes of the backing that failed."
        = |d| Some(d.errors.write_errors_count as f64);
    Counter "pumice_corrupt_records_total" "Reads that met something else than was written."
        = |d| Some(d.errors.corrupt_records_count as f64);
    Counter "pumice_corrected_reads_total" "Reads of a superblock or checkpoint that its other copy served."
        = |d| Some(d.errors.corrected_reads_count as f64);
    Counter "pumice_unclean_opens_total" "Openings of the drive without having been closed."
        = |d| Some(d.errors.unclean_opens_count as f64);
    Counter "pumice_opens_total" "Openings for writing." = |d| Some(d.opens_count as f64);
    Counter "pumice_power_on_seconds_total" "Time open for writing, over the drive's life."
        = |d| Some(d.power_on_seconds as f64);
    Gauge "pumice_endurance_bytes" "What may be written to the backing over its life; absent if that was not told."
        = |d| d.wear.endurance_bytes.map(|bytes| bytes as f64);
    Gauge "pumice_wear_ratio" "Life used of the backing: 1 is all; absent if nobody tells."
        = |d| d.wear.percentage_used.map(|percent| percent / 100.0);
    Gauge "pumice_physical_growth_bytes_per_second" "Growth of used physical space over the last minutes."
        = |d| d.time_to_full.growth_bytes_per_second;
    Gauge "pumice_uptime_seconds" "Time since the drive was opened."
        = |d| d.server.as_ref().map(|server| server.uptime_seconds);
    Gauge "pumice_requests_in_flight" "Requests begun and not ended."
        = |d| server(d, |server| server.requests.in_flight_count);
    Gauge "pumice_throttle_bytes_per_second" "Rate that writes are slowed down to near full; absent while they are not."
        = |d| d.server.as_ref().and_then(|server| server.throttle_bytes_per_second).map(|rate| rate as f64);
    Gauge "pumice_dictionaries" "Dictionaries that the drive holds."
        = |d| Some(d.compression.dictionaries.len() as f64);
    Gauge "pumice_dictionary_memory_bytes" "Memory that dictionaries take."
        = |d| Some(d.compression.dictionaries.iter().filter_map(|it| it.memory_bytes).sum::<u64>() as f64);
    Gauge "pumice_unsettled_bytes" "Physical space of data that compresses and is not settled."
        = |d| Some(d.compression.unsettled_bytes as f64);
    Gauge "pumice_settling_to_gain_bytes"
        "About how much of it settling would give back; absent while nothing is settled."
        = |d| d.compression.to_gain_bytes.map(|bytes| bytes as f64);
    Gauge "pumice_training_gain_ratio"
        "Ratio of a sample with the dictionaries trained last, against none; absent before the first training."
        = |d| d.server.as_ref().and_then(|server| server.training.as_ref()).and_then(|it| known(it.gain));
    Counter "pumice_background_cpu_seconds_total"
        "Processor time of training and settling, since the drive was opened."
        = |d| d.server.as_ref().map(|server| server.settling.cpu_seconds);
    Counter "pumice_settled_bytes_total" "Logical bytes compressed again, since the drive was opened."
        = |d| server(d, |server| server.settling.settled_bytes);
    Counter "pumice_settled_before_bytes_total" "What they took before."
        = |d| server(d, |server| server.settling.before_bytes);
    Counter "pumice_settled_after_bytes_total" "What they took then."
        = |d| server(d, |server| server.settling.after_bytes);
    Counter "pumice_settled_again_bytes_total" "Of the bytes settled, those that were settled before."
        = |d| server(d, |server| server.settling.again_bytes);
    Counter "pumice_request_errors_total" "Requests that ended in an error, since the drive was opened."
        = |d| server(d, |server| server.requests.errors_count);
    Counter "pumice_no_space_errors_total"
        "Requests refused for want of physical space, since the drive was opened."
        = |d| server(d, |server| server.requests.no_space_count);
};

/// Metrics of some drives, in the text format of Prometheus.
pub fn render(drives: &[StatusReport]) -> String {
    let drives: Vec<_> = drives.iter().map(|drive| (drive, drive.path.display().to_string())).collect();
    let drives: &Drives<'_> = &drives;
    let mut out = Exposition::default();
    out.family("pumice_build_info", Type::Gauge, "Always 1; the version of the program as a label.");
    out.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    out.family("pumice_drive_info", Type::Gauge, "Always 1; what a drive is, as labels.");
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
    states_and_warnings(&mut out, drives);
    estimates(&mut out, drives);
    live(&mut out, drives);
    written(&mut out, drives);
    survey(&mut out, drives);
    devices(&mut out, drives);
    requests(&mut out, drives);
    offload(&mut out, drives);
    out.into_text()
}

/// Drives with their paths.
type Drives<'a> = [(&'a StatusReport, String)];

fn states_and_warnings(out: &mut Exposition, drives: &Drives<'_>) {
    let flag = |holds: bool| f64::from(u8::from(holds));
    out.family("pumice_state", Type::Gauge, "1 for the state that a drive is in, 0 for the others.");
    for (drive, path) in drives {
        for state in STATES {
            out.sample(&[("drive", path), ("state", state)], flag(drive.state == state));
        }
    }
    out.family(
        "pumice_critical_warning",
        Type::Gauge,
        "1 for each critical warning that holds, 0 for the others.",
    );
    for (drive, path) in drives {
        for warning in Warning::ALL {
            let labels: [Label<'_>; 2] = [("drive", path), ("warning", warning.name())];
            out.sample(&labels, flag(drive.critical_warning.has(warning)));
        }
    }
}

fn estimates(out: &mut Exposition, drives: &Drives<'_>) {
    out.family(
        "pumice_time_to_full_seconds",
        Type::Gauge,
        "Time until physical space is used up at the present rate and ratio, and its range; absent where none is foreseen.",
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
    type Of = fn(&service::LiveReport) -> u64;
    let families: [(&str, &str, Of); 2] = [
        ("pumice_live_logical_bytes", "Live data by how it is stored, in logical space.", |it| {
            it.logical_bytes
        }),
        ("pumice_live_physical_bytes", "The same in physical space, headers in.", |it| it.physical_bytes),
    ];
    for (name, help, of) in families {
        out.family(name, Type::Gauge, help);
        for (drive, path) in drives {
            for live in &drive.compression.live {
                let blocks = live.frame_blocks.to_string();
                let labels: [Label<'_>; 3] =
                    [("drive", path), ("kind", &live.kind), ("frame_blocks", &blocks)];
                out.sample(&labels, of(live) as f64);
            }
        }
    }
}

fn written(out: &mut Exposition, drives: &Drives<'_>) {
    type Of = fn(&service::WrittenReport) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "pumice_compressed_logical_bytes_total",
            "Data written since the drive was opened, by how it was compressed, in logical space.",
            |it| it.logical_bytes,
        ),
        ("pumice_compressed_physical_bytes_total", "The same in physical space, headers in.", |it| {
            it.physical_bytes
        }),
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
    type Of = fn(&service::SurveyedReport) -> u64;
    let families: [(&str, &str, Of); 2] = [
        (
            "pumice_estimated_live_logical_bytes",
            "Live data by what it needs to be read, in logical space: an estimate from records drawn at random.",
            |it| it.logical_bytes,
        ),
        ("pumice_estimated_live_physical_bytes", "The same in physical space, headers in.", |it| {
            it.physical_bytes
        }),
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
    type Of = fn(&service::DeviceReport) -> Option<f64>;
    let families: [(&str, &str, Of); 5] = [
        (
            "pumice_backing_temperature_celsius",
            "Temperature of a disk under the drive; absent if nobody tells, as all of its metrics.",
            |device| device.temperature_celsius,
        ),
        (
            "pumice_backing_temperature_limit_celsius",
            "Temperature from which on a disk is too hot.",
            |device| device.temperature_limit_celsius,
        ),
        ("pumice_backing_power_watts", "Power that a disk takes.", |device| device.power_watts),
        ("pumice_backing_wear_ratio", "Life used of a disk, as it says: 1 is all.", |device| {
            device.percentage_used.map(|percent| percent / 100.0)
        }),
        ("pumice_backing_smart_passed", "1 if a disk passes its own test of itself, 0 if not.", |device| {
            device.smart_passed.map(|passed| f64::from(u8::from(passed)))
        }),
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
    out.family("pumice_requests_total", Type::Counter, "Requests begun, since the drive was opened.");
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
        "How long requests took that ended well, since the drive was opened.",
    );
    for (server, path) in served() {
        histograms(out, path, &server.latency);
    }
    out.family("pumice_events_total", Type::Counter, "Events since the drive was opened.");
    for (server, path) in served() {
        for count in &server.events.counts {
            out.sample(&[("drive", path), ("event", &count.event)], count.count as f64);
        }
    }
}

/// One device for all drives: told once.
fn offload(out: &mut Exposition, drives: &Drives<'_>) {
    let mut served = drives.iter().filter_map(|(drive, _)| drive.server.as_ref());
    let Some(told) = served.find_map(|server| server.offload.as_ref()) else { return };
    out.family(
        "pumice_offload_jobs_total",
        Type::Counter,
        "Frames and blocks given to the device that compresses, by who did them, since the server was started.",
    );
    for (by, count) in [
        ("device", told.device_jobs_count),
        ("software", told.software_jobs_count),
        ("nobody", told.incompressible_jobs_count),
    ] {
        out.sample(&[("by", by)], count as f64);
    }
    out.family("pumice_offload_input_bytes_total", Type::Counter, "Bytes of them.");
    for (by, bytes) in [("device", told.device_input_bytes), ("software", told.software_input_bytes)] {
        out.sample(&[("by", by)], bytes as f64);
    }
    out.family(
        "pumice_offload_output_bytes_total",
        Type::Counter,
        "Bytes stored for those that the device did.",
    );
    out.sample(&[("by", "device")], told.device_output_bytes as f64);
    out.family(
        "pumice_offload_refusals_total",
        Type::Counter,
        "Times that the device did not do what it was given, by reason.",
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
