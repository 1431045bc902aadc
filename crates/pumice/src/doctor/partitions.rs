//! Alignment of the partitions on the drive.

use super::Patient;
use super::disks::ALIGN_BYTES;
use super::finding::Finding;
use super::mounted::{Above, NOT_SEEN};

/// Unit in which blocks are compressed together, at multiples of its size.
const FRAME_BYTES: u64 = 32 << 10;

/// Checks the partitions of each block device of this drive.
pub(super) fn checks(patient: &Patient, devices: &[(String, Vec<Above>)]) -> Vec<Finding> {
    let check = "partition-above";
    if devices.is_empty() {
        let found = "no block device of this machine is seen to be this drive";
        return vec![Finding::unknown(check, found, NOT_SEEN)];
    }
    devices.iter().map(|(device, _)| partitions(patient, device)).collect()
}

fn partitions(patient: &Patient, device: &str) -> Finding {
    let check = "partition-above";
    let directory = format!("sys/class/block/{device}");
    // In sectors of 512 bytes, whatever the sector size of the disk.
    let start = |name: &String| patient.root.number(format!("{directory}/{name}/start")).map(|it| it * 512);
    let found = patient.root.names(&directory, |name| name.starts_with(device));
    let found: Vec<(String, u64)> =
        found.into_iter().filter_map(|name| start(&name).map(|start| (name, start))).collect();
    let off = |unit: u64| found.iter().find(|(_, start)| !start.is_multiple_of(unit));
    let advice = "make the partition anew at a multiple of 1 MiB, as parted and fdisk do by default";
    if found.is_empty() {
        Finding::ok(check, format!("/dev/{device} has no partitions"))
    } else if let Some((name, start)) = off(ALIGN_BYTES) {
        Finding::warn(
            check,
            format!(
                "/dev/{name} begins at byte {start} of the drive, off its 4 KiB blocks: each write touches two"
            ),
            advice,
        )
    } else if let Some((name, start)) = off(FRAME_BYTES) {
        Finding::warn(
            check,
            format!("/dev/{name} begins at byte {start} of the drive, off the 32 KiB that compress together"),
            advice,
        )
    } else {
        let all: Vec<String> =
            found.iter().map(|(name, start)| format!("/dev/{name} at byte {start}")).collect();
        Finding::ok(check, format!("{}, on boundaries of 32 KiB", all.join(", ")))
    }
}
