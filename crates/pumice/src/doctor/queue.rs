//! How the kernel passes writes on to the block devices of the drive: its cache and its throttle.

use super::Patient;
use super::finding::Finding;
use super::mounted::{Above, NOT_SEEN};

/// Checks the queue of each block device of this drive.
pub(super) fn checks(patient: &Patient, devices: &[(String, Vec<Above>)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (check, of_device) in
        [("flush-above", flushes as fn(&Patient, &str) -> Finding), ("wbt-above", throttle)]
    {
        if devices.is_empty() {
            let found = "no block device of this machine is seen to be this drive";
            findings.push(Finding::unknown(check, found, NOT_SEEN));
        }
        findings.extend(devices.iter().map(|(device, _)| of_device(patient, device)));
    }
    findings
}

fn attribute(patient: &Patient, device: &str, name: &str) -> Option<String> {
    patient.root.text(format!("sys/class/block/{device}/queue/{name}"))
}

/// Checks that flushes reach a drive that needs them.
fn flushes(patient: &Patient, device: &str) -> Finding {
    let check = "flush-above";
    let node = format!("/dev/{device}");
    let has_cache = patient.status.as_ref().is_none_or(|status| status.write_cache);
    let is_read_only = patient.root.number(format!("sys/class/block/{device}/ro")) == Some(1);
    match attribute(patient, device, "write_cache").as_deref() {
        Some("write back") => Finding::ok(check, format!("{node} passes flushes on to the drive")),
        Some(_) if is_read_only => Finding::ok(check, format!("{node} is read-only")),
        Some(_) if !has_cache || patient.durable.iter().any(|name| name == device) => Finding::ok(
            check,
            format!("{node} needs no flushes: each write is durable before it is acknowledged"),
        ),
        Some(_) => Finding::fail(
            check,
            format!("{node} passes no flushes on, and the drive acknowledges writes from memory"),
            format!(
                "a power cut loses synced data: echo 'write back' > /sys/block/{device}/queue/write_cache, or \
                 switch the drive's cache off (docs/reference/attach.md)"
            ),
        ),
        None => Finding::unknown(check, format!("{node}: not available in sysfs"), NOT_SEEN),
    }
}

/// Checks whether the kernel throttles writeback to a device for the sake of reads.
fn throttle(patient: &Patient, device: &str) -> Finding {
    let check = "wbt-above";
    let node = format!("/dev/{device}");
    // The kernel does not read it out where it does not throttle.
    match attribute(patient, device, "wbt_lat_usec").and_then(|text| text.parse::<u64>().ok()) {
        None | Some(0) => Finding::ok(check, format!("the kernel does not throttle writeback to {node}")),
        Some(limit) => Finding::warn(
            check,
            format!("the kernel throttles writeback to {node} while reads take longer than {limit} us"),
            format!(
                "to write faster, with a few longer reads: echo 0 > /sys/block/{device}/queue/wbt_lat_usec \
                 (docs/explanation/attach.md)"
            ),
        ),
    }
}
