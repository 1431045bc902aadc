//! Metrics: what `promtool` says of them, and whether `docs/reference/metrics.md` lists exactly those there
//! are.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{families, full_report, monitored, needs, project, series};
use status::StatusReport;

/// Returns the output of `promtool check metrics`; empty if it finds nothing wrong.
fn check(text: &str) -> Result<String, std::io::Error> {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Ok(if output.status.success() { said } else { format!("{}: {said}", output.status) })
}

#[test]
fn promtool_has_nothing_to_say() -> Result<(), std::io::Error> {
    if !needs("promtool") {
        return Ok(());
    }
    let hostile = "/srv/\"quoted\" \\back\nslash é";
    for drives in [
        vec![],
        vec![StatusReport::default()],
        vec![full_report("/srv/a"), full_report(hostile), StatusReport::default()],
    ] {
        assert_eq!(check(&admin::render(&monitored(drives)))?, "");
    }
    // And it would say something.
    assert_ne!(check("# TYPE x counter\nx 1\n")?, "");
    Ok(())
}

#[test]
fn every_drive_and_kind_has_its_own_series() {
    let text = admin::render(&monitored(vec![full_report("/srv/a"), full_report("/srv/b")]));
    let mut samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let count = samples.len();
    samples.sort_unstable_by_key(|line| line.rsplit_once(' ').map(|(series, _)| series));
    samples.dedup_by_key(|line| line.rsplit_once(' ').map(|(series, _)| series));
    assert_eq!(samples.len(), count, "a series stands twice");
    for wanted in [
        "pumice_physical_used_ratio{drive=\"/srv/b\"} 0",
        "pumice_request_duration_seconds_bucket{drive=\"/srv/a\",kind=\"write\",le=\"0.000002\"} 1",
        "pumice_request_duration_seconds_bucket{drive=\"/srv/a\",kind=\"write\",le=\"+Inf\"} 7",
        "pumice_request_duration_seconds_count{drive=\"/srv/a\",kind=\"write\"} 7",
        "pumice_time_to_full_seconds{drive=\"/srv/a\",estimate=\"latest\"} 4",
        "pumice_backing_temperature_celsius{drive=\"/srv/a\",device=\"nvme0n1\"} 40",
        "pumice_critical_warning{drive=\"/srv/a\",warning=\"space\"} 0",
        "pumice_wear_ratio{drive=\"/srv/a\"} 0.08",
        "pumice_live_physical_bytes{drive=\"/srv/a\",kind=\"settled\",frame_blocks=\"8\"} 9000",
        "pumice_settling_to_gain_bytes{drive=\"/srv/a\"} 5",
        "pumice_compressed_physical_bytes_total{drive=\"/srv/a\",codec=\"zstd\",level=\"6\",dictionary=\"3\",\
         by=\"settling\"} 9000",
        "pumice_estimated_live_logical_bytes{drive=\"/srv/a\",codec=\"zstd\",dictionary=\"3\",settled=\"true\"} 70",
    ] {
        assert!(text.lines().any(|line| line == wanted), "{wanted} is missing");
    }
}

#[test]
fn what_is_unknown_is_absent() {
    // More capacity than any data fits into.
    let drive = StatusReport {
        logical_capacity_bytes: 1 << 30,
        logical_available_bytes: 1 << 20,
        physical_limit_bytes: 1 << 20,
        ..StatusReport::default()
    };
    let text = admin::render(&monitored(vec![drive]));
    let series = series(&text);
    for absent in [
        "pumice_compression_ratio",
        "pumice_stored_compression_ratio",
        "pumice_expected_compression_ratio",
        "pumice_logical_available_bytes",
        "pumice_scrub_age_seconds",
        "pumice_write_amplification_ratio",
        "pumice_wear_ratio",
        "pumice_endurance_bytes",
        "pumice_settling_to_gain_bytes",
        "pumice_training_gain_ratio",
        "pumice_time_to_full_seconds",
        "pumice_backing_temperature_celsius",
        "pumice_requests_in_flight",
        "pumice_throttle_bytes_per_second",
    ] {
        assert!(!series.contains(absent), "{absent}");
    }
    assert!(series.contains("pumice_out_of_space"));
}

#[test]
fn the_document_lists_exactly_these() -> Result<(), std::io::Error> {
    let document = std::fs::read_to_string(project("docs/reference/metrics.md"))?;
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `pumice_")?.split(" | ");
        let name = cells.next()?.split(['`', '{']).next()?;
        Some((format!("pumice_{name}"), cells.next()?.to_string()))
    };
    let documented: std::collections::BTreeMap<String, String> = document.lines().filter_map(row).collect();
    assert_eq!(documented, families(&admin::render(&monitored(vec![full_report("/srv/a")]))));
    Ok(())
}
