//! Properties of a disk that sysfs reports.

use std::path::{Path, PathBuf};

use status::DeviceReport;

/// Returns what sysfs reports about a disk, by its directory there.
pub(super) fn describe(disk: &Path) -> DeviceReport {
    let device = disk.join("device");
    let first = |names: &[&str]| names.iter().find_map(|name| text(&device.join(name)));
    let sensors = sensors(&device);
    // hwmon: millidegrees and microwatts (the kernel's Documentation/hwmon/sysfs-interface.rst).
    let reading = |name: &str| sensors.iter().find_map(|sensor| number(&sensor.join(name)));
    DeviceReport {
        name: disk.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        model: first(&["model"]),
        serial: first(&["serial"]).or_else(|| text(&disk.join("serial"))),
        firmware: first(&["firmware_rev", "rev"]),
        rotational: number(&disk.join("queue/rotational")).map(|rotational| rotational != 0.0),
        temperature_celsius: reading("temp1_input").map(|value| value / 1000.0),
        // A driver without a limit reports 0, or more than any device survives.
        temperature_limit_celsius: reading("temp1_max")
            .map(|value| value / 1000.0)
            .filter(|celsius| (1.0..150.0).contains(celsius)),
        power_watts: reading("power1_input").or_else(|| reading("power1_average")).map(|value| value / 1e6),
        ..DeviceReport::default()
    }
}

/// Returns the directories with sensor readings of a device. For NVMe they are in the directory of the
/// controller, for SATA (drivetemp) under `hwmon`.
fn sensors(device: &Path) -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(dir) else { return Vec::new() };
        let numbered = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.strip_prefix("hwmon").is_some_and(|rest| rest.parse::<u32>().is_ok())
        };
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(numbered).collect();
        found.sort();
        found
    };
    let mut found = below(device);
    found.extend(below(&device.join("hwmon")));
    found
}

/// Returns the one line of a file, if it is not empty.
fn text(path: &Path) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_string())
}

fn number(path: &Path) -> Option<f64> {
    text(path)?.parse().ok()
}

#[cfg(test)]
#[path = "../../../../host/src/tree.rs"]
mod tree;

#[cfg(test)]
mod tests {
    use super::tree::tree;
    use super::*;

    #[test]
    fn an_nvme_disk_is_described() {
        let (_folder, root) = tree(&[
            ("sys/nvme0n1/queue/rotational", "0\n"),
            ("sys/nvme0n1/device/model", "Some Disk 1TB           \n"),
            ("sys/nvme0n1/device/serial", "S123\n"),
            ("sys/nvme0n1/device/firmware_rev", "1.0\n"),
            ("sys/nvme0n1/device/hwmon3/temp1_input", "38850\n"),
            ("sys/nvme0n1/device/hwmon3/temp1_max", "81850\n"),
            ("sys/nvme0n1/device/hwmon3/power1_input", "5250000\n"),
        ]);
        let report = describe(&root.path("sys/nvme0n1"));
        assert_eq!(
            report,
            DeviceReport {
                name: "nvme0n1".into(),
                model: Some("Some Disk 1TB".into()),
                serial: Some("S123".into()),
                firmware: Some("1.0".into()),
                rotational: Some(false),
                temperature_celsius: Some(38.85),
                temperature_limit_celsius: Some(81.85),
                power_watts: Some(5.25),
                ..DeviceReport::default()
            }
        );
    }

    #[test]
    fn a_sata_disk_is_described_and_nonsense_is_unknown() {
        let (_folder, root) = tree(&[
            ("sys/sda/queue/rotational", "1\n"),
            ("sys/sda/device/hwmon/hwmon1/temp1_input", "29000\n"),
            ("sys/sda/device/hwmon/hwmon1/temp1_max", "0\n"),
            ("sys/sda/device/model", "\n"),
            ("sys/sda/device/hwmon/hwmon1/power1_input", "much\n"),
        ]);
        let report = describe(&root.path("sys/sda"));
        assert_eq!((report.temperature_celsius, report.temperature_limit_celsius), (Some(29.0), None));
        assert_eq!((report.model, report.power_watts, report.rotational), (None, None, Some(true)));
        let nothing = describe(&root.path("sys/vda"));
        assert_eq!(nothing, DeviceReport { name: "vda".into(), ..DeviceReport::default() });
    }
}
