//! Reports in which everything is known, and changes of each figure in them, for tests of all that shows
//! reports.
#![allow(dead_code, reason = "each test program uses a part of it")]

use serde_json::Value;
use status::{
    BucketReport, CopyReport, CriticalWarning, DeviceReport, DictionaryReport, EventCount, EventsReport,
    KindReport, LatencyReport, LiveReport, OffloadReport, ReadCacheReport, RecentEvent, ScrubReport,
    ServerReport, SettleRunReport, SettlingReport, StatusReport, SurveyReport, SurveyedReport,
    TrainingReport, Warning,
};

/// A report with one element in every array, and nothing known that may be unknown.
pub(crate) fn sample() -> StatusReport {
    let mut report = StatusReport {
        notes: vec![String::new()],
        copies: vec![CopyReport::default()],
        ..StatusReport::default()
    };
    report.opening_ids = vec!["0123456789abcdef".into()];
    report.critical_warning = CriticalWarning { names: vec![Warning::Unknown], ..CriticalWarning::default() };
    report.backing.devices = vec![DeviceReport::default()];
    report.backing.file = Some(status::FileId::default());
    report.compression.dictionaries = vec![DictionaryReport::default()];
    report.compression.live = vec![LiveReport::default()];
    report.compression.written = vec![status::WrittenReport::default()];
    let latency = LatencyReport {
        read: KindReport { buckets: vec![BucketReport::default()], ..KindReport::default() },
        ..LatencyReport::default()
    };
    let scrub = ScrubReport {
        faults: vec![String::new()],
        lost_ranges: vec![status::LostRange::default()],
        ..ScrubReport::default()
    };
    let events = EventsReport {
        warn_at_percent: vec![80],
        counts: vec![EventCount::default()],
        recent: vec![RecentEvent::default()],
    };
    let settling = SettlingReport { run: Some(SettleRunReport::default()), ..SettlingReport::default() };
    report.server = Some(ServerReport {
        nbd_uris: vec![String::new()],
        latency,
        events,
        scrub: Some(scrub),
        offload: Some(OffloadReport::default()),
        read_cache: Some(ReadCacheReport::default()),
        training: Some(TrainingReport { dictionary_ids: vec![1], ..TrainingReport::default() }),
        settling,
        survey: Some(SurveyReport { live: vec![SurveyedReport::default()], ..SurveyReport::default() }),
        ..ServerReport::default()
    });
    report
}

/// A report in which nothing is unknown.
pub(crate) fn known() -> StatusReport {
    let mut report = sample();
    report.state_reason = Some("x".into());
    report.wear = status::WearReport {
        endurance_bytes: Some(1),
        percentage_used: Some(1.0),
        source: Some(status::WearSource::Device),
        ..report.wear
    };
    report.time_to_full = status::TimeToFull {
        seconds: Some(1.0),
        soonest_seconds: Some(1.0),
        latest_seconds: Some(1.0),
        growth_bytes_per_second: Some(1.0),
        window_seconds: Some(1.0),
        reason: Some(status::NoTime::Full),
    };
    let device = DeviceReport {
        name: "x".into(),
        model: Some("x".into()),
        serial: Some("x".into()),
        firmware: Some("x".into()),
        rotational: Some(true),
        temperature_celsius: Some(1.0),
        temperature_limit_celsius: Some(1.0),
        power_watts: Some(1.0),
        percentage_used: Some(1.0),
        power_on_hours: Some(1),
        smart_passed: Some(true),
        critical_warning: Some(1),
    };
    report.backing = status::BackingReport {
        kind: status::BackingKind::File,
        missing_bytes: 1,
        place: status::BackingPlace::InPlace,
        file: Some(status::FileId { device: "8:1".into(), inode: Some(1) }),
        temperature_celsius: Some(1.0),
        power_watts: Some(1.0),
        percentage_used: Some(1.0),
        devices: vec![device],
    };
    let server = report.server.as_mut().expect("a server");
    server.throttle_bytes_per_second = Some(1);
    let read = &mut server.latency.read;
    for seconds in [
        &mut read.p50_seconds,
        &mut read.p90_seconds,
        &mut read.p99_seconds,
        &mut read.p999_seconds,
        &mut read.max_seconds,
    ] {
        *seconds = Some(1.0);
    }
    server.events.recent[0].level_percent = Some(80);
    server.throttle_bytes_per_second = Some(1);
    if let Some(training) = &mut server.training {
        training.dictionary_ids = vec![1];
    }
    server.settling.bytes_per_second = Some(1.0);
    server.settling.seconds_left = Some(1.0);
    if let Some(run) = &mut server.settling.run {
        run.finished_unix_seconds = Some(1);
        run.reason = Some("x".into());
    }
    report.incarnation = Some(1);
    report.parity.form = "1/32".into();
    report.parity.last_repaired_byte = Some(1);
    report.parity.last_lost_byte = Some(1);
    report.stored_compression_ratio = Some(1.0);
    report.expected_compression_ratio = Some(1.0);
    report.recently_written.window_seconds = Some(1.0);
    report.recently_written.compression_ratio = Some(1.0);
    report.scrubs = status::ScrubsReport {
        every_seconds: Some(1.0),
        finished_unix_seconds: Some(1),
        finished_faults_count: Some(1),
        begun_unix_seconds: Some(1),
        age_seconds: Some(1.0),
        ..report.scrubs
    };
    report.compression.to_gain_bytes = Some(1);
    report.compression.written[0].level = Some(1);
    report.compression.written[0].dictionary = Some(1);
    report.compression.dictionaries[0].memory_bytes = Some(1);
    if let Some(scrub) = &mut server.scrub {
        scrub.finished_unix_seconds = Some(1);
    }
    report
}

/// Amounts by which an integer is changed: as much as its type takes.
const STEPS: [u64; 3] = [1_000_000_007, 10_007, 7];

/// Returns each number and each flag of a report by its key, as `docs/reference/status-json.md` names it,
/// with the report that differs in it alone. Of arrays it changes the first element.
pub(crate) fn changed(report: &StatusReport) -> Vec<(String, StatusReport)> {
    let document = serde_json::to_value(report).expect("JSON");
    let mut found = Vec::new();
    let mut left = vec![(String::new(), String::new(), &document)];
    while let Some((key, pointer, value)) = left.pop() {
        match value {
            Value::Object(members) => left.extend(members.iter().map(|(name, member)| {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                (key, format!("{pointer}/{name}"), member)
            })),
            Value::Array(elements) => {
                left.extend(
                    elements.first().map(|first| (format!("{key}[]"), format!("{pointer}/0"), first)),
                );
            }
            Value::Null | Value::String(_) => {}
            Value::Bool(_) | Value::Number(_) => {
                let others: Vec<Value> = match value.as_u64() {
                    Some(number) => STEPS.iter().map(|step| (number + step).into()).collect(),
                    None => {
                        vec![value.as_f64().map_or(Value::Bool(value != true), |it| (it + 1e6 + 0.25).into())]
                    }
                };
                let other = others.into_iter().find_map(|other| {
                    let mut document = document.clone();
                    *document.pointer_mut(&pointer)? = other;
                    serde_json::from_value(document).ok()
                });
                found.push((key.clone(), other.unwrap_or_else(|| panic!("{key} cannot be changed"))));
            }
        }
    }
    found.sort_by(|one, other| one.0.cmp(&other.0));
    found
}

/// Expects that each figure of a report can be seen in `show`, or is in the list of those left out with a
/// reason; and that no figure is there that can be seen. A key that ends with `.` stands for all below it.
pub(crate) fn assert_all_shown(
    report: &StatusReport,
    left_out: &[(&str, &str)],
    show: impl Fn(&StatusReport) -> String,
) {
    let before = show(report);
    let mut wrong = Vec::new();
    let mut used = vec![false; left_out.len()];
    for (key, other) in changed(report) {
        let is_listed = |(listed, _): &(&str, &str)| match listed.ends_with('.') {
            true => key.starts_with(listed),
            false => key == *listed,
        };
        let place = left_out.iter().position(is_listed);
        match (show(&other) != before, place) {
            (true, None) => {}
            (false, Some(place)) => used[place] = true,
            (true, Some(_)) => wrong.push(format!("{key} is shown, and listed as left out")),
            (false, None) => wrong.push(format!("{key} is not shown, and not listed")),
        }
    }
    let unused = left_out.iter().zip(used).filter(|(_, is_used)| !is_used);
    wrong.extend(unused.map(|((key, _), _)| format!("{key} is listed and does not exist")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(left_out.iter().all(|(_, reason)| !reason.is_empty()), "each has a reason");
}
