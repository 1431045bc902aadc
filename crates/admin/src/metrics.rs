//! Names and meanings of the metrics. `docs/reference/metrics.md` lists them; a test compares the two.

mod labelled;
mod single;

use status::{DriveState, KindReport, LatencyReport, StatusReport};

use crate::exposition::{Exposition, Label, Type};
use crate::monitored::{ClientCounts, Monitored};
use single::SINGLES;

/// Drives with their paths.
type Drives<'a> = [(&'a StatusReport, String)];

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
    labelled::states(&mut out, all);
    labelled::warnings(&mut out, drives);
    labelled::estimates(&mut out, drives);
    labelled::live(&mut out, drives);
    labelled::written(&mut out, drives);
    labelled::survey(&mut out, drives);
    labelled::devices(&mut out, drives);
    labelled::requests(&mut out, drives);
    latencies(&mut out, drives);
    labelled::events(&mut out, all);
    offload(&mut out, drives);
    read_cache(&mut out, drives);
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

/// One cache for all drives: reported once.
fn read_cache(out: &mut Exposition, drives: &Drives<'_>) {
    let mut served = drives.iter().filter_map(|(drive, _)| drive.server.as_ref());
    let Some(cache) = served.find_map(|server| server.read_cache.as_ref()) else { return };
    out.family("pumice_read_cache_memory_bytes", Type::Gauge, "Memory used by the read cache of the server.");
    out.sample(&[], cache.used_bytes as f64);
    out.family("pumice_read_cache_size_bytes", Type::Gauge, "Memory limit of the read cache of the server.");
    out.sample(&[], cache.size_bytes as f64);
}

/// One device for all drives: reported once.
fn offload(out: &mut Exposition, drives: &Drives<'_>) {
    let mut served = drives.iter().filter_map(|(drive, _)| drive.server.as_ref());
    let Some(offload) = served.find_map(|server| server.offload.as_ref()) else { return };
    out.family(
        "pumice_offload_jobs_total",
        Type::Counter,
        "Frames and blocks submitted for compression offload, by executor, since the server was started.",
    );
    for (by, count) in [
        ("device", offload.device_jobs_count),
        ("software", offload.software_jobs_count),
        ("nobody", offload.incompressible_jobs_count),
    ] {
        out.sample(&[("by", by)], count as f64);
    }
    out.family(
        "pumice_offload_input_bytes_total",
        Type::Counter,
        "Bytes submitted for compression offload, by executor, since the server was started.",
    );
    for (by, bytes) in [("device", offload.device_input_bytes), ("software", offload.software_input_bytes)] {
        out.sample(&[("by", by)], bytes as f64);
    }
    out.family(
        "pumice_offload_output_bytes_total",
        Type::Counter,
        "Compressed bytes produced by the offload device, since the server was started.",
    );
    out.sample(&[("by", "device")], offload.device_output_bytes as f64);
    out.family(
        "pumice_offload_refusals_total",
        Type::Counter,
        "Jobs that the offload device did not complete, by reason.",
    );
    for (reason, count) in [
        ("busy", offload.busy_count),
        ("failed", offload.failed_count),
        ("queue-full", offload.queue_full_count),
    ] {
        out.sample(&[("reason", reason)], count as f64);
    }
}

fn latencies(out: &mut Exposition, drives: &Drives<'_>) {
    out.family(
        "pumice_request_duration_seconds",
        Type::Histogram,
        "Latency of successful requests, since the drive was opened.",
    );
    for (drive, path) in drives {
        if let Some(server) = &drive.server {
            histograms(out, path, &server.latency);
        }
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
