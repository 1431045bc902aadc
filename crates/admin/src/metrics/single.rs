//! Metrics with one value per drive.

use status::{ReadCacheReport, ServerReport, StatusReport};

use crate::exposition::Type;

/// A metric with one value per drive, or none if it is unknown.
pub(super) type Single = (&'static str, Type, &'static str, fn(&StatusReport) -> Option<f64>);

macro_rules! singles {
    ($($kind:ident $name:literal $help:literal = |$drive:ident| $value:expr;)*) => {
        &[$(($name, Type::$kind, $help, |$drive: &StatusReport| $value)),*]
    };
}

fn server(drive: &StatusReport, value: impl FnOnce(&ServerReport) -> u64) -> Option<f64> {
    drive.server.as_ref().map(|server| value(server) as f64)
}

fn read_cache(drive: &StatusReport, value: impl FnOnce(&ReadCacheReport) -> u64) -> Option<f64> {
    drive.server.as_ref()?.read_cache.as_ref().map(|cache| value(cache) as f64)
}

/// An unknown ratio is 0 in the report.
fn known(ratio: f64) -> Option<f64> {
    (ratio > 0.0).then_some(ratio)
}

pub(super) const SINGLES: &[Single] = singles! {
    Gauge "pumice_logical_capacity_bytes" "Logical capacity, as hosts see it."
        = |d| Some(d.logical_capacity_bytes as f64);
    Gauge "pumice_logical_used_bytes" "Logical space in use: blocks that hold data."
        = |d| Some(d.logical_used_bytes as f64);
    Gauge "pumice_logical_fill_bytes" "Logical space in use by blocks of one repeated word (mostly zeros), which take \
        no physical space."
        = |d| Some(d.logical_fill_bytes as f64);
    Gauge "pumice_logical_available_bytes" "Logical space that can still be written at the expected compression ratio; \
        absent if that is unknown; while the backing is full, once it has room."
        = |d| d.logical_available_is_known().then_some(d.logical_available_bytes as f64);
    Gauge "pumice_physical_size_bytes" "Physical size: space of the backing that the drive may use."
        = |d| Some(d.physical_size_bytes as f64);
    Gauge "pumice_physical_limit_bytes"
        "Physical space available to host data and map: physical size less reserve and fixed areas."
        = |d| Some(d.physical_limit_bytes as f64);
    Gauge "pumice_physical_used_bytes"
        "Physical space in use: records with live blocks, and the live map. A frame counts in full until its last \
         block is dead."
        = |d| Some(d.physical_used_bytes as f64);
    Gauge "pumice_physical_repackable_bytes"
        "Estimated physical space that repacking partly dead frames would release (included in used)."
        = |d| Some(d.physical_repackable_bytes as f64);
    Gauge "pumice_physical_reclaimable_bytes" "Dead space that cleaning will release; neither used nor free."
        = |d| Some(d.physical_reclaimable_bytes as f64);
    Gauge "pumice_physical_free_bytes" "Physical space in free segments, within the limit."
        = |d| Some(d.physical_free_bytes as f64);
    Gauge "pumice_physical_available_bytes" "Physical space available for data: free and reclaimable (limit less \
        used); none of it while the backing is full."
        = |d| Some(d.physical_available_bytes as f64);
    Gauge "pumice_physical_parity_bytes" "Physical space set apart for parity in segments."
        = |d| Some(d.physical_parity_bytes as f64);
    Gauge "pumice_physical_reserve_bytes"
        "Physical space reserved for cleaning, the log and growth of the map."
        = |d| Some(d.physical_reserve_bytes as f64);
    Gauge "pumice_physical_fixed_bytes"
        "Physical space of superblock and checkpoints, behind the last segment, and lost in segments taken out of use."
        = |d| Some(d.physical_fixed_bytes as f64);
    Gauge "pumice_physical_used_ratio" "Physical space in use as a share of the limit; 1 is full."
        = |d| Some(d.physical_used_ratio);
    Gauge "pumice_compression_ratio" "Compression ratio: logical bytes in use / physical bytes in use; absent while \
        the drive is empty."
        = |d| known(d.compression_ratio);
    Gauge "pumice_stored_compression_ratio"
        "Compression ratio of stored data without zeros and other fills; absent while there is too little of it."
        = |d| d.stored_compression_ratio;
    Gauge "pumice_recent_compression_ratio"
        "Compression ratio of data written lately, in the last five minutes to an hour, without zeros and other fills; \
         absent while there is too little of it."
        = |d| d.recently_written.compression_ratio;
    Gauge "pumice_expected_compression_ratio"
        "Compression ratio to expect of new data: the lower one of those of stored and of recently written data; \
         absent while both are."
        = |d| d.expected_compression_ratio;
    Gauge "pumice_write_amplification_ratio"
        "Write amplification: bytes written to the backing / bytes written by hosts, over the life of the drive; \
         absent before the first write."
        = |d| known(d.waf);
    Gauge "pumice_out_of_space" "1 while the drive is out of physical space, or its backing is full."
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
    Counter "pumice_cleaning_written_bytes_total" "Bytes written to the backing by cleaning, over the life of the \
        drive."
        = |d| Some(d.cleaning.cleaning_written_bytes as f64);
    Counter "pumice_map_written_bytes_total" "Bytes written to the backing for map and checkpoints, over the life of \
        the drive."
        = |d| Some(d.cleaning.map_written_bytes as f64);
    Counter "pumice_discarded_bytes_total" "Bytes discarded on the backing, over the life of the drive."
        = |d| Some(d.cleaning.discarded_bytes as f64);
    Counter "pumice_segments_cleaned_total" "Segments cleaned, over the life of the drive."
        = |d| Some(d.cleaning.segments_cleaned_count as f64);
    Counter "pumice_checkpoints_total" "Checkpoints written, over the life of the drive."
        = |d| Some(d.cleaning.checkpoints_count as f64);
    Gauge "pumice_segments" "Number of segments." = |d| Some(f64::from(d.cleaning.segments_count));
    Gauge "pumice_segments_free" "Number of free segments." = |d| Some(f64::from(d.cleaning.segments_free_count));
    Gauge "pumice_segments_waiting" "Number of freed segments that are still being read."
        = |d| Some(f64::from(d.cleaning.segments_waiting_count));
    Gauge "pumice_segments_bad" "Number of segments taken out of use because a write to them failed; their data can \
        still be read."
        = |d| Some(f64::from(d.cleaning.segments_bad_count));
    Gauge "pumice_segments_damaged" "Number of segments taken out of use because they hold unreadable records."
        = |d| Some(f64::from(d.cleaning.segments_damaged_count));
    Gauge "pumice_backing_missing_bytes" "Bytes of the drive behind the end of its backing, which was truncated."
        = |d| Some(d.backing.missing_bytes as f64);
    Gauge "pumice_copies_not_taken" "Number of copies of superblock and checkpoints that do not hold what they should: \
        their last write failed, or they were not found on a drive served read-only."
        = |d| Some(f64::from(d.errors.copies_not_taken_count));
    Gauge "pumice_log_since_checkpoint_bytes" "Bytes of log written since the last checkpoint, which recovery would \
        have to read."
        = |d| Some(d.cleaning.log_since_checkpoint_bytes as f64);
    Gauge "pumice_map_cache_memory_bytes" "Memory used by the map cache." = |d| Some(d.map_cache.memory_bytes as f64);
    Gauge "pumice_map_cache_budget_bytes" "Memory limit of the map cache."
        = |d| Some(d.map_cache.budget_bytes as f64);
    Gauge "pumice_map_cache_dirty_bytes" "Memory used by map nodes changed since the last checkpoint."
        = |d| Some(d.map_cache.dirty_bytes as f64);
    Counter "pumice_map_cache_hits_total" "Map node lookups served from memory."
        = |d| Some(d.map_cache.hits_count as f64);
    Counter "pumice_map_cache_loads_total" "Map nodes read from the backing."
        = |d| Some(d.map_cache.loads_count as f64);
    Counter "pumice_map_cache_evictions_total" "Map nodes dropped from memory."
        = |d| Some(d.map_cache.evictions_count as f64);
    Counter "pumice_read_cache_hits_total" "Blocks read from the read cache, since the drive was opened."
        = |d| read_cache(d, |cache| cache.hits_count);
    Counter "pumice_read_cache_misses_total" "Blocks that the read cache did not have, since the drive was opened."
        = |d| read_cache(d, |cache| cache.misses_count);
    Counter "pumice_backing_read_errors_total" "Reads of the backing that failed and that parity did not repair."
        = |d| Some(d.errors.read_errors_count as f64);
    Counter "pumice_backing_write_errors_total" "Failed writes to the backing."
        = |d| Some(d.errors.write_errors_count as f64);
    Counter "pumice_corrupt_records_total" "Corrupt records met by reads."
        = |d| Some(d.errors.corrupt_records_count as f64);
    Counter "pumice_corrected_reads_total" "Reads of a superblock or checkpoint corrected from the other copy, and \
        reads repaired by parity."
        = |d| Some(d.errors.corrected_reads_count as f64);
    Counter "pumice_parity_repaired_pages_total" "Pages of 4 KiB repaired by parity, since the drive was opened."
        = |d| Some(d.parity.repaired_pages_count as f64);
    Counter "pumice_parity_lost_pages_total" "Pages of 4 KiB that parity could not repair, since the drive was \
        opened."
        = |d| Some(d.parity.lost_pages_count as f64);
    Gauge "pumice_parity_segments_uncovered" "Number of segments with parity that is not written yet, or not yet \
        found, after an opening."
        = |d| Some(f64::from(d.parity.segments_uncovered_count));
    Counter "pumice_parity_written_bytes_total" "Bytes of parity written to the backing, since the drive was opened."
        = |d| Some(d.parity.written_bytes as f64);
    Gauge "pumice_backing_failing" "1 after repairs by parity at more than 256 places within an hour."
        = |d| Some(f64::from(u8::from(d.parity.backing_failing)));
    Counter "pumice_unclean_opens_total" "Times the drive was opened after an unclean shutdown."
        = |d| Some(d.errors.unclean_opens_count as f64);
    Counter "pumice_opens_total" "Times the drive was opened for writing." = |d| Some(d.opens_count as f64);
    Counter "pumice_power_on_seconds_total" "Time the drive was open for writing, over its life."
        = |d| Some(d.power_on_seconds as f64);
    Gauge "pumice_endurance_bytes" "Rated endurance of the backing; absent if not configured."
        = |d| d.wear.endurance_bytes.map(|bytes| bytes as f64);
    Gauge "pumice_wear_ratio" "Share of the endurance of the backing used; 1 is all; absent if unknown."
        = |d| d.wear.percentage_used.map(|percent| percent / 100.0);
    Gauge "pumice_physical_growth_bytes_per_second" "Growth of the physical space in use, in bytes per second, over \
        the last minutes."
        = |d| d.time_to_full.growth_bytes_per_second;
    Gauge "pumice_uptime_seconds" "Time since the drive was opened."
        = |d| d.server.as_ref().map(|server| server.uptime_seconds);
    Gauge "pumice_requests_in_flight" "Requests in flight."
        = |d| server(d, |server| server.requests.in_flight_count);
    Gauge "pumice_scrub_every_seconds" "Period in which all records are verified once (--scrub-every); absent without."
        = |d| d.scrubs.every_seconds;
    Gauge "pumice_scrub_age_seconds" "Time since a scrub verified all records; if none has, since the first began; \
        absent if none has begun."
        = |d| d.scrubs.age_seconds;
    Gauge "pumice_scrub_faults" "Faults found by the last scrub that verified all records, and by the periodic one in \
        progress; absent if there was none."
        = |d| {
            let found = d.scrubs.finished_faults_count;
            let is_known = found.is_some() || d.scrubs.begun_unix_seconds.is_some();
            is_known.then(|| (found.unwrap_or_default() + d.scrubs.faults_count) as f64)
        };
    Gauge "pumice_held_writes" "Writes held at present because there is no physical space for them (--when-full \
        wait:SECONDS)."
        = |d| server(d, |server| server.requests.held_count);
    Counter "pumice_held_writes_total" "Writes that were held for lack of physical space, since the drive was opened."
        = |d| server(d, |server| server.requests.held_total_count);
    Gauge "pumice_throttle_bytes_per_second" "Rate to which writes are throttled near full; absent while they are not \
        throttled."
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
    Gauge "pumice_settling_left_seconds"
        "Estimated time until all data is settled, at the rate of the last five minutes; absent while nothing is being \
         settled."
        = |d| d.server.as_ref().and_then(|server| server.settling.seconds_left);
    Gauge "pumice_training_gain_ratio"
        "Compression gain of the dictionaries trained last, on a sample, relative to none; absent before the first \
         training, and if the last one had nothing to train on."
        = |d| d.server.as_ref().and_then(|server| server.training.as_ref()).and_then(|it| known(it.gain));
    Counter "pumice_background_cpu_seconds_total"
        "CPU time used by training and settling, since the drive was opened."
        = |d| d.server.as_ref().map(|server| server.settling.cpu_seconds);
    Counter "pumice_settled_bytes_total" "Logical bytes recompressed by settling, since the drive was opened."
        = |d| server(d, |server| server.settling.settled_bytes);
    Counter "pumice_settled_before_bytes_total" "Physical bytes of recompressed data before settling, since the drive \
        was opened."
        = |d| server(d, |server| server.settling.before_bytes);
    Counter "pumice_settled_after_bytes_total" "Physical bytes of recompressed data after settling, since the drive \
        was opened."
        = |d| server(d, |server| server.settling.after_bytes);
    Counter "pumice_cut_bytes_total" "Logical bytes of frames cut into single blocks because they are read at random \
        often, since the drive was opened."
        = |d| server(d, |server| server.settling.cut_bytes);
    Counter "pumice_cut_before_bytes_total" "Physical bytes of frames cut into single blocks, before they were cut, \
        since the drive was opened."
        = |d| server(d, |server| server.settling.cut_before_bytes);
    Counter "pumice_cut_after_bytes_total" "Physical bytes of frames cut into single blocks, after they were cut, \
        since the drive was opened."
        = |d| server(d, |server| server.settling.cut_after_bytes);
    Counter "pumice_settled_again_bytes_total" "Logical bytes settled more than once, since the drive was opened."
        = |d| server(d, |server| server.settling.again_bytes);
    Counter "pumice_request_errors_total" "Requests that failed, since the drive was opened."
        = |d| server(d, |server| server.requests.errors_count);
    Counter "pumice_no_space_errors_total"
        "Requests that failed with out of space, since the drive was opened."
        = |d| server(d, |server| server.requests.no_space_count);
};
