//! What happens above the drive while memory is short: the server must not wait for what waits for it.

use std::path::Path;

use host::mounts::unescape;
use host::shortage::is_io_flusher;

use super::Patient;
use super::finding::Finding;
use super::mounted::{Above, NOT_SEEN, stack};

/// Checks the server, and each block device of this drive.
pub(super) fn checks(patient: &Patient, devices: &[(String, Vec<Above>)]) -> Vec<Finding> {
    if devices.is_empty() {
        let found = "no block device of this machine is seen to be this drive";
        return ["shortage-above", "swap-above"]
            .map(|check| Finding::unknown(check, found, NOT_SEEN))
            .to_vec();
    }
    vec![flusher(patient), swap(patient, devices)]
}

/// Checks that the server gets memory without writing to its own drive first.
fn flusher(patient: &Patient) -> Finding {
    let check = "shortage-above";
    let advice = "start the server as root, or give its unit CAP_SYS_RESOURCE without PrivateUsers= \
                  (docs/how-to/attach.md)";
    match is_io_flusher(&patient.root, &patient.process().0) {
        None => Finding::unknown(check, "threads of the server not available", advice),
        Some(true) => Finding::ok(check, "the server does not wait for writes when memory is short"),
        Some(false) => Finding::warn(
            check,
            "when memory is short, the server may wait for writes to its own drive (no PR_SET_IO_FLUSHER)",
            advice,
        ),
    }
}

/// Checks that no swap space is on the drive.
fn swap(patient: &Patient, devices: &[(String, Vec<Above>)]) -> Finding {
    let check = "swap-above";
    // proc(5): a header, then lines that begin with a path.
    let text = patient.root.text("proc/swaps").unwrap_or_default();
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next()).map(unescape);
    let is_on = |path: &str| {
        devices.iter().any(|(device, mounts)| {
            stack(&patient.root, device).iter().any(|name| path == format!("/dev/{name}"))
                || mounts.iter().any(|(_, mount)| Path::new(path).starts_with(&mount.point))
        })
    };
    match paths.into_iter().find(|path| is_on(path)) {
        None => Finding::ok(check, "no swap space is on the drive"),
        Some(path) => Finding::fail(
            check,
            format!("swap space on the drive, {path}: a server that is killed may not start again"),
            format!("swapoff {path} (docs/how-to/attach.md)"),
        ),
    }
}
