//! Reports in which everything is known, and what is written of metrics in documents and files.
#![allow(dead_code, unreachable_pub)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use admin::{ClientCounts, Monitored};
use status::{
    BackingReport, BucketReport, CompressionReport, DeviceReport, DriveState, EventCount, EventsReport,
    KindReport, LatencyReport, LiveKind, LiveReport, OffloadReport, RecentlyWritten, ScrubsReport,
    ServerReport, StatusReport, SurveyReport, SurveyedReport, TimeToFull, WearReport, WrittenReport,
};

/// A file of the project.
pub fn project(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// A server with these drives that had clients.
pub fn monitored(drives: Vec<StatusReport>) -> Monitored {
    let clients = ClientCounts { connections: 2, connected: 5, refused: vec![("timeout", 3), ("tls", 0)] };
    Monitored { drives, clients }
}

/// A served drive whose report has every value.
pub fn full_report(path: &str) -> StatusReport {
    let kind = KindReport {
        count: 7,
        sum_seconds: 0.01,
        buckets: vec![
            BucketReport { le_seconds: 2e-6, count: 1 },
            BucketReport { le_seconds: 1e-3, count: 6 },
        ],
        ..KindReport::default()
    };
    let latency = LatencyReport {
        window_seconds: 60.0,
        read: kind.clone(),
        write: kind.clone(),
        flush: kind.clone(),
        trim: kind,
    };
    let events = EventsReport {
        counts: vec![EventCount { event: status::EventKind::Opened, count: 1 }],
        ..EventsReport::default()
    };
    StatusReport {
        path: PathBuf::from(path),
        state: DriveState::Online,
        compression_ratio: 2.5,
        logical_available_bytes: 1,
        stored_compression_ratio: Some(2.5),
        expected_compression_ratio: Some(2.5),
        recently_written: RecentlyWritten { compression_ratio: Some(2.5), ..RecentlyWritten::default() },
        scrubs: ScrubsReport {
            every_seconds: Some(86_400.0),
            finished_faults_count: Some(0),
            age_seconds: Some(60.0),
            ..ScrubsReport::default()
        },
        waf: 0.5,
        wear: WearReport {
            endurance_bytes: Some(600_000_000_000_000),
            percentage_used: Some(8.0),
            ..WearReport::default()
        },
        compression: CompressionReport {
            live: vec![LiveReport {
                kind: LiveKind::Settled,
                frame_blocks: 8,
                logical_bytes: 32_768,
                physical_bytes: 9000,
            }],
            written: vec![WrittenReport {
                codec: "zstd".into(),
                level: Some(6),
                dictionary: Some(3),
                settled: true,
                logical_bytes: 32_768,
                physical_bytes: 9000,
            }],
            to_gain_bytes: Some(5),
            ..CompressionReport::default()
        },
        time_to_full: TimeToFull {
            seconds: Some(3.0),
            soonest_seconds: Some(2.0),
            latest_seconds: Some(4.0),
            growth_bytes_per_second: Some(1e6),
            ..TimeToFull::default()
        },
        backing: BackingReport {
            devices: vec![DeviceReport {
                name: "nvme0n1".into(),
                temperature_celsius: Some(40.0),
                temperature_limit_celsius: Some(80.0),
                power_watts: Some(5.0),
                percentage_used: Some(3.0),
                smart_passed: Some(true),
                ..DeviceReport::default()
            }],
            ..BackingReport::default()
        },
        server: Some(ServerReport {
            survey: Some(SurveyReport {
                live: vec![SurveyedReport {
                    codec: "zstd".into(),
                    dictionary: 3,
                    settled: true,
                    logical_bytes: 70,
                    physical_bytes: 20,
                }],
                ..SurveyReport::default()
            }),
            latency,
            events,
            throttle_bytes_per_second: Some(4 << 20),
            read_cache: Some(status::ReadCacheReport {
                size_bytes: 64 << 20,
                ..status::ReadCacheReport::default()
            }),
            offload: Some(OffloadReport {
                name: "qat".into(),
                device_jobs_count: 3,
                ..OffloadReport::default()
            }),
            ..ServerReport::default()
        }),
        ..StatusReport::default()
    }
}

/// Families that are exported, with their types.
pub fn families(text: &str) -> BTreeMap<String, String> {
    let family = |line: &str| {
        let mut words = line.strip_prefix("# TYPE ")?.split(' ');
        Some((words.next()?.to_string(), words.next()?.to_string()))
    };
    text.lines().filter_map(family).collect()
}

/// Names of all series that are exported.
pub fn series(text: &str) -> BTreeSet<String> {
    let name = |line: &str| line.split(['{', ' ']).next().map(str::to_string);
    text.lines().filter(|line| !line.starts_with('#')).filter_map(name).collect()
}

/// Our metrics that a text names.
pub fn named(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let words = text.split(|c| !part(c));
    words
        .filter(|word| word.starts_with("pumice_") && word.len() > "pumice_".len())
        .map(str::to_string)
        .collect()
}

/// Returns whether a tool is there; says so if not.
pub fn needs(tool: &str) -> bool {
    let there = Command::new(tool).arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: {tool} is not installed");
    }
    there
}
