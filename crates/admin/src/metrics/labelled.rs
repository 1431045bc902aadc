//! Metrics with several values per drive, distinguished by labels.

use status::{DeviceReport, DriveState, LiveReport, StatusReport, SurveyedReport, Warning, WrittenReport};

use super::Drives;
use crate::exposition::{Exposition, Label, Type};

/// States that a drive of a server can be in.
const STATES: [DriveState; 5] =
    [DriveState::Online, DriveState::ReadOnly, DriveState::Poisoned, DriveState::Closed, DriveState::Down];

/// Writes a family whose values are distinguished by one label.
fn family<'a>(
    out: &mut Exposition,
    drives: &'a Drives<'_>,
    (name, kind, help): (&str, Type, &str),
    label: &str,
    values: impl Fn(&'a StatusReport) -> Vec<(&'a str, f64)>,
) {
    out.family(name, kind, help);
    for (drive, path) in drives {
        for (of, value) in values(drive) {
            out.sample(&[("drive", path), (label, of)], value);
        }
    }
}

/// A family with a value per item, or none if it is unknown.
type Family<T> = (&'static str, Type, &'static str, fn(&T) -> Option<f64>);

/// Writes families about the same items of the drives, which have the same labels.
fn families<T>(
    out: &mut Exposition,
    drives: &Drives<'_>,
    families: &[Family<T>],
    items: fn(&StatusReport) -> Vec<&T>,
    labels: fn(&T) -> Vec<(&'static str, String)>,
) {
    for (name, kind, help, value) in families {
        out.family(name, *kind, help);
        for (drive, path) in drives {
            for item in items(drive) {
                let Some(value) = value(item) else { continue };
                let labels = labels(item);
                let labels = labels.iter().map(|(name, value)| (*name, value.as_str()));
                let labels: Vec<Label<'_>> = [("drive", path.as_str())].into_iter().chain(labels).collect();
                out.sample(&labels, value);
            }
        }
    }
}

fn flag(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

pub(super) fn states(out: &mut Exposition, drives: &Drives<'_>) {
    out.family(
        "pumice_drive_up",
        Type::Gauge,
        "1 if the server has opened the drive, 0 if it could not; most other metrics are absent then.",
    );
    for (drive, path) in drives {
        out.sample(&[("drive", path)], flag(drive.state != DriveState::Down));
    }
    let state = ("pumice_state", Type::Gauge, "1 for the current state of the drive, 0 for the others.");
    family(out, drives, state, "state", |drive| {
        STATES.iter().map(|state| (state.as_str(), flag(drive.state == *state))).collect()
    });
}

pub(super) fn warnings(out: &mut Exposition, drives: &Drives<'_>) {
    let warning = (
        "pumice_critical_warning",
        Type::Gauge,
        "1 for each critical warning that is active, 0 for the others.",
    );
    family(out, drives, warning, "warning", |drive| {
        let active = |warning: &Warning| flag(drive.critical_warning.has(*warning));
        Warning::ALL.iter().map(|warning| (warning.as_str(), active(warning))).collect()
    });
}

pub(super) fn estimates(out: &mut Exposition, drives: &Drives<'_>) {
    let time = (
        "pumice_time_to_full_seconds",
        Type::Gauge,
        "Estimated time until physical space is used up, with its range; 0 while the backing is full; absent if it is \
         not growing.",
    );
    family(out, drives, time, "estimate", |drive| {
        let time = &drive.time_to_full;
        let estimates =
            [("present", time.seconds), ("soonest", time.soonest_seconds), ("latest", time.latest_seconds)];
        estimates.into_iter().filter_map(|(estimate, seconds)| Some((estimate, seconds?))).collect()
    });
}

pub(super) fn requests(out: &mut Exposition, drives: &Drives<'_>) {
    let requests = ("pumice_requests_total", Type::Counter, "Requests started, since the drive was opened.");
    family(out, drives, requests, "kind", |drive| {
        let Some(server) = &drive.server else { return Vec::new() };
        let requests = &server.requests;
        vec![
            ("read", requests.reads_count as f64),
            ("write", requests.writes_count as f64),
            ("flush", requests.flushes_count as f64),
            ("trim", requests.trims_count as f64),
            ("extents", requests.extents_count as f64),
        ]
    });
}

pub(super) fn events(out: &mut Exposition, drives: &Drives<'_>) {
    let events = ("pumice_events_total", Type::Counter, "Events since the drive was opened.");
    family(out, drives, events, "event", |drive| {
        let counts = drive.server.iter().flat_map(|server| &server.events.counts);
        counts.map(|count| (count.event.as_str(), count.count as f64)).collect()
    });
}

pub(super) fn live(out: &mut Exposition, drives: &Drives<'_>) {
    let all: [Family<LiveReport>; 2] = [
        (
            "pumice_live_logical_bytes",
            Type::Gauge,
            "Live data by storage format, in logical bytes.",
            |live| Some(live.logical_bytes as f64),
        ),
        (
            "pumice_live_physical_bytes",
            Type::Gauge,
            "Live data by storage format, in physical bytes including headers.",
            |live| Some(live.physical_bytes as f64),
        ),
    ];
    families(
        out,
        drives,
        &all,
        |drive| drive.compression.live.iter().collect(),
        |live| {
            vec![("kind", live.kind.as_str().to_string()), ("frame_blocks", live.frame_blocks.to_string())]
        },
    );
}

pub(super) fn written(out: &mut Exposition, drives: &Drives<'_>) {
    let all: [Family<WrittenReport>; 2] = [
        (
            "pumice_compressed_logical_bytes_total",
            Type::Counter,
            "Data written since the drive was opened by compression method, in logical bytes.",
            |way| Some(way.logical_bytes as f64),
        ),
        (
            "pumice_compressed_physical_bytes_total",
            Type::Counter,
            "Data written since the drive was opened by compression method, in physical bytes including headers.",
            |way| Some(way.physical_bytes as f64),
        ),
    ];
    families(
        out,
        drives,
        &all,
        |drive| drive.compression.written.iter().collect(),
        |way| {
            vec![
                ("codec", way.codec.clone()),
                ("level", way.level.map_or(String::new(), |level| level.to_string())),
                ("dictionary", way.dictionary.map_or("other".to_string(), |id| id.to_string())),
                ("by", if way.settled { "settling" } else { "hosts" }.to_string()),
            ]
        },
    );
}

pub(super) fn survey(out: &mut Exposition, drives: &Drives<'_>) {
    let all: [Family<SurveyedReport>; 2] = [
        (
            "pumice_estimated_live_logical_bytes",
            Type::Gauge,
            "Live data by codec and dictionary, in logical bytes, estimated from random samples.",
            |live| Some(live.logical_bytes as f64),
        ),
        (
            "pumice_estimated_live_physical_bytes",
            Type::Gauge,
            "Live data by codec and dictionary, in physical bytes including headers, estimated from random samples.",
            |live| Some(live.physical_bytes as f64),
        ),
    ];
    families(
        out,
        drives,
        &all,
        |drive| {
            let surveys = drive.server.iter().filter_map(|server| server.survey.as_ref());
            surveys.flat_map(|survey| &survey.live).collect()
        },
        |live| {
            vec![
                ("codec", live.codec.clone()),
                ("dictionary", live.dictionary.to_string()),
                ("settled", live.settled.to_string()),
            ]
        },
    );
}

pub(super) fn devices(out: &mut Exposition, drives: &Drives<'_>) {
    let all: [Family<DeviceReport>; 5] = [
        (
            "pumice_backing_temperature_celsius",
            Type::Gauge,
            "Temperature of a backing disk; absent if unknown.",
            |device| device.temperature_celsius,
        ),
        (
            "pumice_backing_temperature_limit_celsius",
            Type::Gauge,
            "Warning temperature of a backing disk; absent if unknown.",
            |device| device.temperature_limit_celsius,
        ),
        (
            "pumice_backing_power_watts",
            Type::Gauge,
            "Power consumption of a backing disk; absent if unknown.",
            |device| device.power_watts,
        ),
        (
            "pumice_backing_wear_ratio",
            Type::Gauge,
            "Share of the endurance of a backing disk used, as it reports; 1 is all; absent if unknown.",
            |device| device.percentage_used.map(|percent| percent / 100.0),
        ),
        (
            "pumice_backing_smart_passed",
            Type::Gauge,
            "1 if a backing disk passes its SMART health self-assessment, 0 if not; absent if unknown.",
            |device| device.smart_passed.map(flag),
        ),
    ];
    families(
        out,
        drives,
        &all,
        |drive| drive.backing.devices.iter().collect(),
        |device| vec![("device", device.name.clone())],
    );
}
