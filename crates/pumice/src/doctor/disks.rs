//! Disks under the drive: alignment, rotation, temperature, PCIe link.

use std::path::{Path, PathBuf};

use host::disks::disks_under;
use service::devices_under;

use super::Patient;
use super::finding::Finding;

/// Required alignment of partitions, and largest acceptable sector size.
pub(super) const ALIGN_BYTES: u64 = 4096;

pub(super) fn checks(patient: &Patient) -> Vec<Finding> {
    let mut findings = vec![alignment(patient), rotational(patient), temperature(patient)];
    findings.extend(pcie_links(patient));
    findings
}

/// Checks the start of the partition and the sector size.
fn alignment(patient: &Patient) -> Finding {
    let check = "alignment";
    let unknown =
        || Finding::unknown(check, "sysfs does not know the device", "see parted DEVICE unit B print");
    let Some(device) = device_of(patient, patient.place()) else { return unknown() };
    let Some(queue) = queue_of(patient) else { return unknown() };
    let name = device.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let logical = patient.root_number(&queue.join("logical_block_size"));
    let physical = patient.root_number(&queue.join("physical_block_size"));
    // In sectors of 512 bytes, whatever the sector size of the disk.
    let start = patient.root_number(&device.join("start")).unwrap_or(0) * 512;
    let offset = patient.root_number(&device.join("alignment_offset")).unwrap_or(0);
    if logical.is_some_and(|bytes| bytes > ALIGN_BYTES) {
        return Finding::fail(
            check,
            format!("{name} has sectors of {} bytes", logical.unwrap_or(0)),
            "a drive writes pages of 4096 bytes: format the disk for sectors of up to 4096",
        );
    }
    if !start.is_multiple_of(ALIGN_BYTES) || offset != 0 {
        return Finding::warn(
            check,
            format!("{name} begins at byte {start} of its disk, off the 4 KiB boundaries"),
            "every write touches two physical sectors: make the partition anew, parted aligns 0%",
        );
    }
    if physical.is_some_and(|bytes| bytes > ALIGN_BYTES) {
        return Finding::warn(
            check,
            format!("{name} has physical sectors of {} bytes", physical.unwrap_or(0)),
            "synced writes of single pages are rewritten by the disk: expect slower flushes",
        );
    }
    match (logical, physical) {
        (Some(logical), Some(physical)) => Finding::ok(
            check,
            format!("{name} begins at byte {start}, sectors of {logical} bytes ({physical} physical)"),
        ),
        _ => unknown(),
    }
}

fn rotational(patient: &Patient) -> Finding {
    let check = "rotational";
    let devices = devices_under(&patient.root, patient.place());
    let names = |rotational: bool| -> Vec<&str> {
        devices.iter().filter(|it| it.rotational == Some(rotational)).map(|it| it.name.as_str()).collect()
    };
    match (names(true), names(false)) {
        (spinning, _) if !spinning.is_empty() => Finding::warn(
            check,
            format!("{} spins", spinning.join(", ")),
            // Virtual disks of virtio and Xen.
            if spinning.iter().all(|name| name.starts_with("vd") || name.starts_with("xvd")) {
                "virtual disks may claim so wrongly; on a spinning disk random reads are slow"
            } else {
                "writes are sequential and fine, random reads are as slow as the disk: prefer flash"
            },
        ),
        (_, solid) if !solid.is_empty() => Finding::ok(check, format!("{} does not spin", solid.join(", "))),
        _ => Finding::unknown(check, "not reported by any backing disk", "see lsblk -o NAME,ROTA"),
    }
}

fn temperature(patient: &Patient) -> Finding {
    let check = "temperature";
    let devices = devices_under(&patient.root, patient.place());
    let hottest = devices.iter().filter_map(|it| Some((it.temperature_celsius?, it)));
    match hottest.max_by(|a, b| a.0.total_cmp(&b.0)) {
        None => Finding::unknown(
            check,
            "not reported by any backing disk",
            "see smartctl -a DEVICE; check the cooling",
        ),
        Some((celsius, device)) => {
            let limit = device.temperature_limit_celsius;
            let found = format!("{} is at {celsius:.0} °C", device.name);
            match limit {
                Some(limit) if celsius >= limit => Finding::warn(
                    check,
                    format!("{found}, its limit is {limit:.0} °C"),
                    "see to ventilation: it slows down",
                ),
                Some(limit) => Finding::ok(check, format!("{found}, its limit is {limit:.0} °C")),
                None => Finding::ok(check, found),
            }
        }
    }
}

/// Reports speed and width of the PCIe link of each NVMe disk.
fn pcie_links(patient: &Patient) -> Vec<Finding> {
    let check = "pcie-link";
    let advice = "see lspci -vv, LnkCap and LnkSta";
    let disks = disks_under(&patient.root, patient.place());
    let name = |disk: &Path| disk.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let nvme: Vec<PathBuf> = disks.into_iter().filter(|disk| name(disk).starts_with("nvme")).collect();
    if nvme.is_empty() {
        return vec![Finding::unknown(check, "no backing disk is seen to be NVMe", advice)];
    }
    let link = |disk: &PathBuf| {
        // The controller is a parent directory of the disk. That is not the case for multipath disks.
        let controller = disk.ancestors().find(|above| above.join("current_link_width").exists());
        let text =
            |file: &str| Some(std::fs::read_to_string(controller?.join(file)).ok()?.trim().to_string());
        let width = |file: &str| text(file)?.parse::<u32>().ok().filter(|lanes| *lanes > 0);
        // Formats: `8.0 GT/s PCIe`, `Unknown`.
        let speed = |file: &str| text(file)?.split_whitespace().next()?.parse::<f64>().ok();
        let (Some(lanes), Some(rate)) = (width("current_link_width"), speed("current_link_speed")) else {
            return Finding::unknown(check, format!("{} does not report a link", name(disk)), advice);
        };
        let found = format!("{} has a link of {lanes} lanes at {rate} GT/s", name(disk));
        let (lanes_max, rate_max) = (width("max_link_width"), speed("max_link_speed"));
        if lanes_max.is_none_or(|most| lanes >= most) && rate_max.is_none_or(|most| rate >= most) {
            return Finding::ok(check, found);
        }
        let (lanes_max, rate_max) = (lanes_max.unwrap_or(lanes), rate_max.unwrap_or(rate));
        Finding::warn(
            check,
            format!("{found}, the disk can do {lanes_max} at {rate_max} GT/s"),
            "the slot or the board limits it, or the link was trained badly: another slot, seat the disk anew",
        )
    };
    nvme.iter().map(link).collect()
}

impl Patient {
    /// Reads a number from a file, given by its full path.
    pub(super) fn root_number(&self, path: &Path) -> Option<u64> {
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    }
}

/// Returns the sysfs directory of the device at a path, or of the device that holds the file.
fn device_of(patient: &Patient, path: &Path) -> Option<PathBuf> {
    let number = host::disks::device_of(&std::fs::metadata(path).ok()?);
    std::fs::canonicalize(patient.root.block_device(number))
        // For file systems with their own device numbers, uses the first disk below.
        .or_else(|error| disks_under(&patient.root, path).into_iter().next().ok_or(error))
        .ok()
}

/// Returns the request queue directory of the device. For a partition, it is the queue of the disk.
pub(super) fn queue_of(patient: &Patient) -> Option<PathBuf> {
    let device = device_of(patient, patient.place())?;
    let own = device.join("queue");
    if own.is_dir() {
        return Some(own);
    }
    Some(device.parent()?.join("queue")).filter(|queue| queue.is_dir())
}
