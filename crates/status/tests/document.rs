//! `docs/reference/status-json.md` and `docs/schema/status.json` list exactly the keys of a report, with
//! their types and whether they may be null.

use std::collections::BTreeMap;

use serde_json::Value;
use status::{
    BucketReport, CopyReport, CriticalWarning, DeviceReport, DictionaryReport, EventCount, EventsReport,
    KindReport, LatencyReport, LiveReport, OffloadReport, ReadCacheReport, RecentEvent, ScrubReport,
    ServerReport, SettleRunReport, SettlingReport, StatusAnswer, StatusReport, SurveyReport, SurveyedReport,
    TrainingReport, Warning,
};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/status-json.md");
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/status.json");

/// A report with one element in every array, and nothing known that may be unknown.
fn sample() -> StatusReport {
    let mut report = StatusReport {
        notes: vec![String::new()],
        copies: vec![CopyReport::default()],
        ..StatusReport::default()
    };
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
    let scrub = ScrubReport { faults: vec![String::new()], ..ScrubReport::default() };
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

/// Keys with the types that their values have.
fn keys_of(value: &Value) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let mut left = vec![(String::new(), value)];
    while let Some((path, value)) = left.pop() {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Object(_) => "object",
            Value::Array(elements) => {
                left.extend(elements.iter().map(|element| (format!("{path}[]"), element)));
                continue;
            }
        };
        if let Value::Object(members) = value {
            let below = |key: &String| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            left.extend(members.iter().map(|(key, member)| (below(key), member)));
        }
        if !path.is_empty() {
            keys.insert(path, kind.to_string());
        }
    }
    keys
}

/// Keys and types of the document.
fn documented() -> BTreeMap<String, String> {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/reference/status-json.md");
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let key = cells.next()?.strip_suffix('`')?;
        Some((key.to_string(), cells.next()?.to_string()))
    });
    rows.collect()
}

/// Keys and types of the schema.
fn in_schema() -> BTreeMap<String, String> {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(SCHEMA).expect("a schema")).expect("JSON");
    let mut keys = BTreeMap::new();
    let mut left = vec![(String::new(), &schema["$defs"]["drive"])];
    while let Some((path, node)) = left.pop() {
        if let Some(definition) = node["$ref"].as_str() {
            let name = definition.strip_prefix("#/$defs/").expect("a definition");
            left.push((path, &schema["$defs"][name]));
            continue;
        }
        let kind = match &node["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
            kind => kind.as_str().expect("a type").to_string(),
        };
        if kind == "array" {
            left.push((format!("{path}[]"), &node["items"]));
            continue;
        }
        for (key, below) in node["properties"].as_object().into_iter().flatten() {
            left.push((if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, below));
        }
        if !path.is_empty() {
            keys.insert(path, kind);
        }
    }
    keys
}

#[test]
fn the_schema_has_the_documented_keys() {
    let mut in_schema = in_schema();
    in_schema.retain(|key, _| !described_elsewhere(key));
    let mut documented = documented();
    documented.retain(|key, _| !described_elsewhere(key));
    assert_eq!(in_schema, documented);
}

/// Described once for all: the other kinds of requests, and the same latencies over another time.
fn described_elsewhere(key: &str) -> bool {
    key.starts_with("server.latency_recent.")
        || ["write", "flush", "trim"].iter().any(|kind| key.starts_with(&format!("server.latency.{kind}")))
}

#[test]
fn every_key_is_documented_with_its_type() {
    let documented = documented();
    let value = serde_json::to_value(sample()).expect("JSON");
    let mut seen = keys_of(&value);
    seen.retain(|key, _| !described_elsewhere(key));
    let mut wrong = Vec::new();
    for (key, kind) in &seen {
        match documented.get(key).map(String::as_str) {
            None => wrong.push(format!("{key} ({kind}) is not documented")),
            Some(documented) if kind == "null" && documented.ends_with(" or null") => {}
            // Null on a drive nobody serves, and before the first scrub, training, or run of settling.
            Some("object or null")
                if [
                    "backing.file",
                    "server",
                    "server.scrub",
                    "server.training",
                    "server.settling.run",
                    "server.survey",
                    "server.offload",
                    "server.read_cache",
                ]
                .contains(&&**key) => {}
            Some(documented) if documented != kind => {
                wrong.push(format!("{key} is {kind}, not {documented}"))
            }
            Some(_) => {}
        }
    }
    wrong.extend(
        documented.keys().filter(|key| !seen.contains_key(*key)).map(|key| format!("{key} does not exist")),
    );
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn what_may_be_null_has_the_type_that_is_documented() {
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
    let mut seen = keys_of(&serde_json::to_value(&report).expect("JSON"));
    seen.retain(|key, _| !described_elsewhere(key));
    for (key, kind) in documented() {
        let wanted = kind.strip_suffix(" or null").unwrap_or(&kind);
        assert_eq!(seen.get(&key).map(String::as_str), Some(wanted), "{key}");
    }
}

#[test]
fn answers_of_older_and_newer_programs_are_understood() {
    let older: StatusAnswer =
        serde_json::from_str(r#"{"drives": [{"path": "/srv/d", "state": "online"}]}"#).expect("fewer keys");
    assert_eq!((older.drives[0].state.as_str(), older.drives[0].opens_count), ("online", 0));
    let newer =
        r#"{"drives": [{"path": "/srv/d", "state": "online", "server": {"pid": 3, "new": 1}, "newer": {}}]}"#;
    let newer: StatusAnswer = serde_json::from_str(newer).expect("more keys");
    assert_eq!(newer.drives[0].server.as_ref().map(|server| server.pid), Some(3));
}
