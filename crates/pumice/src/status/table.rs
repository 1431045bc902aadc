//! A status report as text.

use std::fmt::Write;

use report::Table;
use status::{DriveState, LatencyReport, LiveKind, ServerReport, StatusReport, shown};

use super::listing::{self, UNKNOWN};
use super::times::{BACKING_FULL, ago, time_to_full};
use crate::colour::{Mood, paint};
use crate::human;

/// Spaces before each line but the first.
const INDENT: u16 = 2;

/// Names and values, in groups.
struct Values(Table);

impl Values {
    fn new() -> Values {
        Values(Table::new::<String>([]))
    }

    fn group(&mut self, name: &str) {
        self.0.row([name]);
    }

    fn row(&mut self, name: &str, value: impl Into<String>) {
        self.0.row([format!("  {name}"), value.into()]);
    }

    fn bytes(&mut self, name: &str, bytes: u64) {
        self.row(name, exact(bytes));
    }

    fn count(&mut self, name: &str, count: u64) {
        self.row(name, count.to_string());
    }

    fn into_text(self) -> String {
        self.0.to_indented_text(INDENT)
    }
}

/// Formats bytes with their number.
fn exact(bytes: u64) -> String {
    format!("{} ({bytes})", human::bytes(bytes))
}

/// Formats a status as aligned lines, with colours: a summary, or with `all` everything, in groups.
pub(super) fn render(drive: &StatusReport, all: bool) -> String {
    let reason = drive.state_reason.as_ref().map_or(String::new(), |why| format!(": {why}"));
    let full = super::out_of_space(drive);
    let state = paint(mood(drive), &format!("{}{full}", drive.state));
    let mut out = format!("{}  {state}{reason}\n", shown(&drive.path));
    if drive.state == DriveState::Down {
        let pid = drive.server.as_ref().map_or(0, |server| server.pid);
        let _ = writeln!(
            out,
            "  The server (process {pid}) could not open the drive. A reload (SIGHUP) tries again."
        );
        return out;
    }
    let warning = paint(Mood::Warning, "warning:");
    for copy in &drive.copies {
        let _ = writeln!(
            out,
            "  {warning} a copy of this drive (same id) is served from {} by process {}; serve only one of them",
            shown(&copy.path),
            copy.pid
        );
    }
    if let Some(advice) = drive.backing.place.advice() {
        let _ = writeln!(out, "  {warning} {advice}");
    }
    for note in &drive.notes {
        let _ = writeln!(out, "  note: {note}");
    }
    let mut table = Values::new();
    for (word, value) in if all { listing::lines(drive) } else { listing::summary(drive) } {
        table.0.row([format!("{word}:"), value]);
    }
    if !all {
        return out + &table.into_text();
    }
    space(&mut table, drive);
    compression(&mut table, drive);
    traffic(&mut table, drive);
    inside(&mut table, drive);
    identity(&mut table, drive);
    let Some(server) = &drive.server else { return out + &table.into_text() };
    serving(&mut table, server);
    out += &table.into_text();
    out += &latencies(&server.latency_recent).to_indented_text(INDENT);
    if !server.events.recent.is_empty() {
        let mut table = Values::new();
        table.group("Events");
        for event in &server.events.recent {
            table.row(&ago(event.unix_seconds), &event.message);
        }
        out += &table.into_text();
    }
    out
}

/// Returns whether a drive is as it should be.
fn mood(drive: &StatusReport) -> Mood {
    match drive.state {
        DriveState::Down | DriveState::Poisoned => Mood::Bad,
        _ if drive.out_of_space || drive.backing_full => Mood::Bad,
        _ => Mood::Good,
    }
}

fn serving(table: &mut Values, server: &ServerReport) {
    table.group("Server");
    table.row("up", human::duration(server.uptime_seconds));
    table.count("process", server.pid.into());
    table.count("threads", server.threads as u64);
    for uri in &server.nbd_uris {
        table.row("NBD", uri);
    }
    table.row("I/O", server.io_backend.as_str());
    table.row("page cache", if server.direct_io { "bypassed" } else { "used" });
    table.row("unflushed writes, after a kill", if server.memory_kept { "kept" } else { "lost" });
    if let Some(rate) = server.throttle_bytes_per_second {
        table.row("writes slowed down to", format!("{}/s", human::bytes(rate)));
    }
    if let Some(offload) = &server.offload {
        table.row("compressed by", &offload.name);
        table.count("  jobs of all drives by it", offload.device_jobs_count);
        table.bytes("  bytes into it", offload.device_input_bytes);
        table.bytes("  bytes out of it", offload.device_output_bytes);
        table.count("  jobs in software", offload.software_jobs_count);
        table.bytes("  bytes in software", offload.software_input_bytes);
    }
    if let Some(cache) = &server.read_cache {
        table.row(
            "read cache of all drives",
            format!("{} of {}", human::bytes(cache.used_bytes), human::bytes(cache.size_bytes)),
        );
        let asked = cache.hits_count + cache.misses_count;
        if asked > 0 {
            table.row("  hits", format!("{:.2} %", 100.0 * cache.hits_count as f64 / asked as f64));
        }
    }
    let requests = &server.requests;
    table.count("requests in flight", requests.in_flight_count);
    table.count("reads", requests.reads_count);
    table.count("writes", requests.writes_count);
    table.count("flushes", requests.flushes_count);
    table.count("trims", requests.trims_count);
    table.count("failed", requests.errors_count);
    table.count("  out of space", requests.no_space_count);
    table.count("writes held for lack of space", requests.held_count);
    table.count("  since it was opened", requests.held_total_count);
}

fn space(table: &mut Values, drive: &StatusReport) {
    table.group("Space");
    table.bytes("logical capacity", drive.logical_capacity_bytes);
    table.bytes("logical used", drive.logical_used_bytes);
    table.bytes("  of it zeros and fills", drive.logical_fill_bytes);
    let at_least = if drive.logical_available_is_known() { "" } else { "at least " };
    let available = format!("{at_least}{}", exact(drive.logical_available_bytes));
    table.row(
        "logical available",
        match drive.backing_full {
            true => format!("{} ({BACKING_FULL}; {available} once it has room)", exact(0)),
            false => available,
        },
    );
    table.bytes("physical size", drive.physical_size_bytes);
    table.bytes("physical limit", drive.physical_limit_bytes);
    table.bytes("physical used", drive.physical_used_bytes);
    table.bytes("  of it repackable", drive.physical_repackable_bytes);
    table.bytes("physical reclaimable", drive.physical_reclaimable_bytes);
    table.bytes("physical free", drive.physical_free_bytes);
    table.bytes("physical parity", drive.physical_parity_bytes);
    table.bytes("physical reserve", drive.physical_reserve_bytes);
    table.bytes("physical fixed", drive.physical_fixed_bytes);
    table.row("freed space", if drive.keep_allocated { "kept" } else { "discarded" });
    let ratio = match drive.compression_ratio {
        0.0 => "-".to_string(),
        ratio => format!("{ratio:.2}:1"),
    };
    table.row("compression ratio", ratio);
    let known = |ratio: Option<f64>| ratio.map_or(UNKNOWN.to_string(), |ratio| format!("{ratio:.2}:1"));
    table.row("  without zeros and fills", known(drive.stored_compression_ratio));
    let recent = &drive.recently_written;
    table.row(
        "  written lately",
        match recent.window_seconds {
            Some(window) => {
                let (ratio, window) = (known(recent.compression_ratio), human::duration(window));
                format!("{ratio} ({} in the last {window})", human::bytes(recent.logical_bytes))
            }
            None => UNKNOWN.to_string(),
        },
    );
    table.row("  expected of new data", known(drive.expected_compression_ratio));
    table.row("time to full", time_to_full(drive));
}

fn compression(table: &mut Values, drive: &StatusReport) {
    table.group("Compression");
    table.row("codec", &drive.codec);
    for dictionary in &drive.compression.dictionaries {
        let used = if dictionary.in_use { "for new data" } else { "for old data" };
        let memory = dictionary
            .memory_bytes
            .map_or("cannot be read".to_string(), |it| human::bytes(it) + " of memory");
        let needs = needing(drive, dictionary.id).map_or(String::new(), |bytes| {
            // An estimate, because the map does not record it.
            format!(", about {} of data need it", human::bytes(bytes))
        });
        table.row(
            &format!("dictionary {}", dictionary.id),
            format!("{}, {used}, {memory}{needs}", human::bytes(dictionary.bytes)),
        );
    }
    for live in drive.compression.live.iter().filter(|live| live.logical_bytes > 0) {
        let name = match (live.kind, live.frame_blocks) {
            (LiveKind::Raw, _) => "stored as it came".to_string(),
            (kind, 1) => format!("{kind}, single blocks"),
            (kind, blocks) => format!("{kind}, frames of {blocks}"),
        };
        let ratio = live.logical_bytes as f64 / live.physical_bytes.max(1) as f64;
        table.row(
            &name,
            format!(
                "{} in {}, {ratio:.2}:1",
                human::bytes(live.logical_bytes),
                human::bytes(live.physical_bytes)
            ),
        );
    }
    let written: u64 = drive.compression.written.iter().map(|it| it.logical_bytes).sum();
    for by in drive.compression.written.iter().filter(|it| it.logical_bytes > 0) {
        let share = by.logical_bytes as f64 * 100.0 / written as f64;
        let level = by.level.map_or(String::new(), |level| format!(":{level}"));
        let dictionary = match by.dictionary {
            Some(0) => String::new(),
            Some(id) => format!(" with dictionary {id}"),
            None => " with other dictionaries".to_string(),
        };
        let who = if by.settled { "settled" } else { "written" };
        table.row(
            &format!("{who} by {}{level}", by.codec),
            format!(
                "{} in {}{dictionary}, {share:.0} % of all since it was opened",
                human::bytes(by.logical_bytes),
                human::bytes(by.physical_bytes)
            ),
        );
    }
    let to_gain = drive.compression.to_gain_bytes;
    let to_gain = to_gain.map_or("unknown".to_string(), |bytes| format!("about {}", human::bytes(bytes)));
    table.row(
        "not settled",
        format!("{}, to gain: {to_gain}", human::bytes(drive.compression.unsettled_bytes)),
    );
    let Some(server) = &drive.server else { return };
    let settling = &server.settling;
    if let Some(training) = &server.training {
        table.row("last training", format!("{}: {}", ago(training.unix_seconds), training.outcome));
    }
    let at_most = format!("at most {} % of a processor", settling.background_cpu_percent);
    table.row("settling", format!("{}, {at_most}", settling.state));
    table.row("  processor time", human::duration(settling.cpu_seconds));
    if let Some(rate) = settling.bytes_per_second {
        table.row("  rate", format!("{}/s", human::bytes(rate as u64)));
    }
    if let Some(left) = settling.seconds_left {
        table.row("  time left", format!("about {}", human::duration(left)));
    }
    table.bytes("settled", settling.settled_bytes);
    table.bytes("  of it again", settling.again_bytes);
    table.bytes("  before", settling.before_bytes);
    table.bytes("  now", settling.after_bytes);
    if settling.cut_bytes > 0 {
        table.bytes("cut for random reads", settling.cut_bytes);
        table.bytes("  before", settling.cut_before_bytes);
        table.bytes("  now", settling.cut_after_bytes);
    }
}

/// Returns the estimated live data that needs a dictionary, if it was surveyed.
fn needing(drive: &StatusReport, id: u16) -> Option<u64> {
    let survey = drive.server.as_ref()?.survey.as_ref()?;
    Some(survey.live.iter().filter(|it| it.dictionary == id).map(|it| it.logical_bytes).sum())
}

/// Returns a table of latencies by kind of request.
fn latencies(latency: &LatencyReport) -> Table {
    let window = format!("Latency, last {}", human::duration(latency.window_seconds));
    let mut table =
        Table::new([window.as_str(), "requests", "p50", "p90", "p99", "p99.9", "max"]).right_from(1);
    for (name, kind) in latency.kinds() {
        let percentiles =
            [kind.p50_seconds, kind.p90_seconds, kind.p99_seconds, kind.p999_seconds, kind.max_seconds];
        let shown = percentiles.map(|seconds| seconds.map_or("-".to_string(), human::latency));
        table.row([format!("  {name}"), kind.count.to_string()].into_iter().chain(shown));
    }
    table
}

fn traffic(table: &mut Values, drive: &StatusReport) {
    table.group("Traffic over the drive's life");
    table.bytes("host written", drive.host_written_bytes);
    table.bytes("host read", drive.host_read_bytes);
    table.bytes("host trimmed", drive.host_trimmed_bytes);
    table.count("host flushes", drive.host_flushes_count);
    table.bytes("physical written", drive.physical_written_bytes);
    table.bytes("  of it by cleaning", drive.cleaning.cleaning_written_bytes);
    table.bytes("  of it map", drive.cleaning.map_written_bytes);
    table.bytes("physical read", drive.physical_read_bytes);
    table.bytes("discarded in the backing", drive.cleaning.discarded_bytes);
    let waf = if drive.host_written_bytes == 0 { "-".to_string() } else { format!("{:.2}", drive.waf) };
    table.row("write amplification", waf);
}

fn inside(table: &mut Values, drive: &StatusReport) {
    let (cleaning, cache, errors) = (&drive.cleaning, &drive.map_cache, &drive.errors);
    table.group("Inside");
    table.count("segments", cleaning.segments_count.into());
    table.count("segments free", cleaning.segments_free_count.into());
    table.count("segments waiting", cleaning.segments_waiting_count.into());
    table.count("segments bad", cleaning.segments_bad_count.into());
    table.count("segments damaged", cleaning.segments_damaged_count.into());
    table.count("segments cleaned", cleaning.segments_cleaned_count);
    table.count("checkpoints", cleaning.checkpoints_count);
    table.bytes("log since the last checkpoint", cleaning.log_since_checkpoint_bytes);
    table.bytes("map memory", cache.memory_bytes);
    table.bytes("  of it not in a checkpoint", cache.dirty_bytes);
    table.bytes("map memory budget", cache.budget_bytes);
    table.count("map nodes dropped from memory", cache.evictions_count);
    let asked = cache.hits_count + cache.loads_count;
    if asked > 0 {
        table.row("map cache hits", format!("{:.2} %", 100.0 * cache.hits_count as f64 / asked as f64));
    }
    let opened = match (drive.recovery.clean, drive.recovery.packs_count) {
        (true, _) => "clean".to_string(),
        (false, packs) => {
            format!("recovered {packs} packs, {}", human::bytes(drive.recovery.log_bytes))
        }
    };
    table.row("last opening", opened);
    table.count("openings after a crash", errors.unclean_opens_count);
    table.count("read errors", errors.read_errors_count);
    table.count("write errors", errors.write_errors_count);
    table.count("corrupt records", errors.corrupt_records_count);
    table.count("copies not taken", errors.copies_not_taken_count.into());
    table.count("reads a copy or parity served", errors.corrected_reads_count);
    table.row("all records verified", scrubbed(drive));
    parity(table, drive);
    table.count("openings", drive.opens_count);
    table.row("open for writing", human::duration(drive.power_on_seconds as f64));
}

fn parity(table: &mut Values, drive: &StatusReport) {
    let parity = &drive.parity;
    let form = match parity.form.as_str() {
        "" => UNKNOWN,
        form => form,
    };
    table.row("parity", form);
    let has_any = parity.written_bytes > 0 || parity.repaired_pages_count + parity.lost_pages_count > 0;
    if !parity.is_on() && parity.segments_uncovered_count == 0 && !has_any {
        return;
    }
    let at = |byte: Option<u64>| byte.map_or(String::new(), |byte| format!(", last at byte {byte}"));
    table.bytes("  written since it was opened", parity.written_bytes);
    table.count("  segments without", parity.segments_uncovered_count.into());
    table
        .row("  pages repaired", format!("{}{}", parity.repaired_pages_count, at(parity.last_repaired_byte)));
    table.row(
        "  pages that could not be",
        format!("{}{}", parity.lost_pages_count, at(parity.last_lost_byte)),
    );
    if parity.backing_failing {
        table.row("  the backing", "is failing: many pages were repaired lately");
    }
}

/// Describes when all records were verified last.
fn scrubbed(drive: &StatusReport) -> String {
    let scrubs = &drive.scrubs;
    let last = match (scrubs.finished_unix_seconds, scrubs.finished_faults_count) {
        (Some(at), Some(faults)) if faults > 0 => format!("{}: {faults} faults", ago(at)),
        (Some(at), _) => format!("{}: no faults", ago(at)),
        (None, _) => "never".to_string(),
    };
    let faults = match scrubs.faults_count {
        0 => "no faults".to_string(),
        faults => format!("{faults} faults"),
    };
    let running = scrubs.begun_unix_seconds.map(|at| {
        format!("; a periodic scrub began {}, {} so far, {faults}", ago(at), human::bytes(scrubs.read_bytes))
    });
    let every = scrubs.every_seconds.map(|seconds| format!("; every {}", human::duration(seconds)));
    [Some(last), running, every].into_iter().flatten().collect()
}

fn identity(table: &mut Values, drive: &StatusReport) {
    table.group("Identity");
    table.row("id", &drive.uuid);
    table.count("format version", drive.format_version.into());
    table.count("sector bytes", drive.sector_bytes.into());
    table.bytes("segment", drive.segment_bytes.into());
    table.row("write cache", if drive.write_cache { "on" } else { "off" });
}

#[cfg(test)]
#[path = "../../../status/tests/known/mod.rs"]
mod known;

#[cfg(test)]
mod tests {
    use super::*;

    /// Figures that `--all` does not show, each with the reason. `--json` has them.
    const LEFT_OUT: &[(&str, &str)] = &[
        // Another line is made of the same.
        ("backing.percentage_used", "in Percentage Used where there is no endurance"),
        ("data_units_read_count", "host read in the units of NVMe"),
        ("data_units_written_count", "host written in the units of NVMe"),
        ("recently_written.physical_bytes", "the ratio written lately is made of it"),
        ("recovery.start_lost", "a note of the drive"),
        ("scrubs.age_seconds", "all records verified"),
        ("server.writes_lost", "an event"),
        ("time_to_full.growth_bytes_per_second", "the time to full is made of it"),
        ("wear.written_bytes", "Percentage Used is made of it"),
        ("server.latency.", "of all times; the table has the last minute"),
        ("server.latency_recent.flush.sum_seconds", "percentiles say more"),
        ("server.latency_recent.read.sum_seconds", "percentiles say more"),
        ("server.latency_recent.trim.sum_seconds", "percentiles say more"),
        ("server.latency_recent.write.sum_seconds", "percentiles say more"),
        ("server.survey.live[].physical_bytes", "sizes of data are in logical bytes"),
        ("server.survey.live[].settled", "both are in one sum"),
        ("server.survey.records_count", "says how good an estimate is"),
        ("server.survey.unix_seconds", "the estimate is renewed all the time"),
        // Commands of their own show these.
        ("backing.devices[].", "pumice doctor examines disks"),
        ("backing.missing_bytes", "a note says it in words"),
        ("server.scrub.", "pumice check --deep shows its progress"),
        ("server.settling.run.", "pumice settle shows its progress"),
        ("server.training.asked", "pumice train shows what a training found"),
        ("server.training.dictionary_ids[]", "pumice train shows what a training found"),
        ("server.training.gain", "in the words of the outcome"),
        ("server.training.gain_before", "in the words of the outcome"),
        ("server.training.sample_blocks_count", "pumice train shows what a training found"),
        ("server.events.counts[].count", "for rules of alerts; the events are listed"),
        ("server.events.recent[].level_percent", "in the words of the event"),
        ("server.events.recent[].used_percent", "in the words of the event"),
        ("server.events.warn_at_percent[]", "an option of the server"),
        // For programs and for bug reports.
        ("backing.file.inode", "an id"),
        ("cleaning.checkpoint_number", "a place in a sequence"),
        ("cleaning.durable_sequence", "a place in a sequence"),
        ("cleaning.sequence", "a place in a sequence"),
        ("created_unix_seconds", "for inventories"),
        ("incarnation", "for programs that must notice a wipe"),
        ("read_only_requested", "an option"),
        ("server.disowned", "the reason of the state says so"),
        ("server.offload.busy_count", "the figures of a device in trouble are metrics"),
        ("server.offload.failed_count", "the figures of a device in trouble are metrics"),
        ("server.offload.given_up_count", "the figures of a device in trouble are metrics"),
        ("server.offload.incompressible_jobs_count", "the figures of a device in trouble are metrics"),
        ("server.offload.queue_full_count", "the figures of a device in trouble are metrics"),
        ("server.requests.extents_count", "questions about holes, not input or output"),
        ("server.settling.passes_count", "a place in a sequence"),
        ("server.settling.position_bytes", "a place in the drive"),
    ];

    #[test]
    fn each_figure_is_shown_or_left_out_for_a_reason() {
        let mut report = StatusReport {
            state: DriveState::Online,
            host_written_bytes: 1,
            waf: 1.0,
            ..super::known::known()
        };
        // Lines that are there only if there is something to say.
        report.time_to_full.reason = None;
        report.compression.live[0].logical_bytes = 1;
        report.compression.written[0].logical_bytes = 1;
        report.compression.live[0].kind = LiveKind::Settled;
        let server = report.server.as_mut().expect("a server");
        server.settling.cut_bytes = 1;
        let survey = server.survey.as_mut().expect("a survey");
        survey.live[0].logical_bytes = 1;
        super::known::assert_all_shown(&report, LEFT_OUT, |report| render(report, true));
    }

    #[test]
    fn without_room_below_the_drive_nothing_can_be_written() {
        let drive = StatusReport {
            backing_full: true,
            logical_available_bytes: 3 << 30,
            expected_compression_ratio: Some(2.0),
            logical_capacity_bytes: 4 << 30,
            physical_limit_bytes: 2 << 30,
            ..StatusReport::default()
        };
        let available = |drive: &StatusReport| {
            let text = render(drive, true);
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix("logical available"));
            line.map(|value| value.trim().to_string())
        };
        let full = "the file system or volume under the drive is full";
        let shown = format!("0 B (0) ({full}; 3.00 GiB (3221225472) once it has room)");
        assert_eq!(available(&drive), Some(shown));
        let drive = StatusReport { backing_full: false, ..drive };
        assert_eq!(available(&drive).as_deref(), Some("3.00 GiB (3221225472)"));
        let drive = StatusReport { expected_compression_ratio: None, ..drive };
        assert_eq!(available(&drive).as_deref(), Some("at least 3.00 GiB (3221225472)"));
    }
}
