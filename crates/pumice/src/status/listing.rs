//! Lines of `pumice status`: a summary, and more with `--all`. Most have the names and the order of the
//! status listing of ScaleFlux's CSD 2000 (`sfx-status`, in Hyperscalers, *Gluster Scale Out Storage for
//! Cloud using Computational Storage Drives*, 2022, figure 6), where they apply here.
//! `docs/reference/status.md` describes each line.

use status::{DriveState, StatusReport};

use super::times::{BACKING_FULL, time_to_full};
use crate::human;

/// Value if the machine does not provide it.
pub(super) const UNKNOWN: &str = "unknown";

/// Names of the lines that the summary omits.
const DETAILS: [&str; 8] = [
    "Model",
    "Serial Number",
    "Software Revision",
    "Power Consumption",
    "Atomic Write mode",
    "Correctable Error Cnt",
    "Physical Limit",
    "Critical Warning",
];

/// Returns names and values of the summary, in order.
pub(super) fn summary(drive: &StatusReport) -> Vec<(&'static str, String)> {
    lines(drive).into_iter().filter(|(word, _)| !DETAILS.contains(word)).collect()
}

/// Returns names and values of all lines, in order.
pub(super) fn lines(drive: &StatusReport) -> Vec<(&'static str, String)> {
    let backing = &drive.backing;
    let known = |value: Option<f64>, unit: &str| match value {
        Some(value) => format!("{value:.0} {unit}"),
        None => UNKNOWN.to_string(),
    };
    let errors = &drive.errors;
    vec![
        ("Model", drive.model.clone()),
        ("Serial Number", drive.serial.clone()),
        ("Drive Type", drive_type(drive)),
        ("Software Revision", drive.program_version.clone()),
        ("Temperature", known(backing.temperature_celsius, "C")),
        ("Power Consumption", known(backing.power_watts, "W")),
        ("Atomic Write mode", format!("ON ({} KiB)", drive.atomic_write_bytes >> 10)),
        ("Percentage Used", percentage_used(drive)),
        ("Data Read", human::bytes(drive.host_read_bytes)),
        ("Data Written", human::bytes(drive.host_written_bytes)),
        ("Write Amplification", amplification(drive)),
        ("Correctable Error Cnt", errors.corrected_reads_count.to_string()),
        ("Uncorrectable Error Cnt", (errors.corrupt_records_count + errors.read_errors_count).to_string()),
        ("Device Status", device_status(drive)),
        ("Provisioned Capacity", human::bytes(drive.logical_capacity_bytes)),
        ("Logical Used", human::bytes(drive.logical_used_bytes)),
        ("Physical Limit", human::bytes(drive.physical_limit_bytes)),
        ("Compression Ratio", compression_ratio(drive)),
        ("Physical Used Ratio", used_ratio(drive)),
        ("Free Physical Space", free_space(drive, human::bytes)),
        ("Time to Full", time_to_full(drive)),
        ("Critical Warning", critical_warning(drive)),
    ]
}

/// Describes the backing of the drive.
pub(crate) fn drive_type(drive: &StatusReport) -> String {
    let disks: Vec<String> = drive
        .backing
        .devices
        .iter()
        .map(|device| match &device.model {
            Some(model) => format!("{} ({model})", device.name),
            None => device.name.clone(),
        })
        .collect();
    match disks.is_empty() {
        true => drive.backing.kind.to_string(),
        false => format!("{} on {}", drive.backing.kind, disks.join(", ")),
    }
}

fn used_ratio(drive: &StatusReport) -> String {
    format!(
        "{:.2}% ({} of {})",
        100.0 * drive.physical_used_ratio,
        human::bytes(drive.physical_used_bytes),
        human::bytes(drive.physical_limit_bytes)
    )
}

/// What can be written: nothing while there is no room below the drive, whatever the drive has.
/// `text` formats bytes.
pub(crate) fn free_space(drive: &StatusReport, text: impl Fn(u64) -> String) -> String {
    let unused = text(drive.physical_available_bytes);
    match drive.backing_full {
        true => format!("{} ({BACKING_FULL}; {unused} unused on the drive)", text(0)),
        false => unused,
    }
}

fn amplification(drive: &StatusReport) -> String {
    if drive.host_written_bytes == 0 {
        "- (nothing written)".to_string()
    } else {
        format!("{:.2}", drive.waf)
    }
}

fn percentage_used(drive: &StatusReport) -> String {
    let Some(percent) = drive.wear.percentage_used else { return UNKNOWN.to_string() };
    match drive.wear.endurance_bytes {
        Some(endurance) => format!("{percent:.0}% (of {} endurance)", human::bytes(endurance)),
        None => format!("{percent:.0}% (reported by the device)"),
    }
}

pub(crate) fn device_status(drive: &StatusReport) -> String {
    if drive.critical_warning.bits != 0 {
        return format!("Warning: {}", drive.critical_warning);
    }
    match drive.state {
        DriveState::Online | DriveState::Idle | DriveState::ReadOnly | DriveState::Closed => {
            "Good".to_string()
        }
        DriveState::Poisoned | DriveState::Damaged | DriveState::Down | DriveState::Unknown => {
            drive.state.to_string()
        }
    }
}

/// Formats the ratio as in the listing of the CSD 2000: 248% is 2.48:1. Adds that without fills where they
/// matter.
fn compression_ratio(drive: &StatusReport) -> String {
    let ratio = drive.compression_ratio;
    let percent = 100.0 * ratio;
    match drive.stored_compression_ratio {
        _ if ratio == 0.0 => "- (nothing stored)".to_string(),
        Some(stored) if stored < 0.95 * ratio => {
            format!("{percent:.0}% ({ratio:.2}:1; {stored:.2}:1 without zeros)")
        }
        None if drive.logical_fill_bytes > 0 => format!("{percent:.0}% ({ratio:.2}:1, with zeros)"),
        Some(_) | None => format!("{percent:.0}% ({ratio:.2}:1)"),
    }
}

pub(crate) fn critical_warning(drive: &StatusReport) -> String {
    match drive.critical_warning.bits {
        0 => "0".to_string(),
        bits => format!("{bits:#x} ({})", drive.critical_warning),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use status::{BackingReport, CriticalWarning, DeviceReport, WearReport};

    fn line(drive: &StatusReport, word: &str) -> String {
        lines(drive).into_iter().find(|(name, _)| *name == word).map(|(_, value)| value).expect(word)
    }

    #[test]
    fn what_is_not_known_is_said_to_be_unknown() {
        let drive = StatusReport::default();
        for word in ["Temperature", "Power Consumption", "Percentage Used"] {
            assert_eq!(line(&drive, word), "unknown");
        }
        assert_eq!(line(&drive, "Compression Ratio"), "- (nothing stored)");
        assert_eq!(line(&drive, "Critical Warning"), "0");
    }

    #[test]
    fn a_drive_like_that_of_the_document() {
        let drive = StatusReport {
            state: DriveState::Online,
            atomic_write_bytes: 256 << 10,
            logical_capacity_bytes: 9_600_000_000_000,
            physical_limit_bytes: 6_400_000_000_000,
            physical_available_bytes: 6_398_000_000_000,
            physical_used_ratio: 0.000_312_5,
            physical_used_bytes: 2 << 30,
            host_read_bytes: 48_890 << 30,
            compression_ratio: 8.0,
            wear: WearReport {
                endurance_bytes: Some(500 << 40),
                percentage_used: Some(8.2),
                ..WearReport::default()
            },
            backing: BackingReport {
                kind: status::BackingKind::File,
                temperature_celsius: Some(38.2),
                power_watts: Some(12.0),
                devices: vec![DeviceReport {
                    name: "nvme0n1".into(),
                    model: Some("Disk".into()),
                    ..DeviceReport::default()
                }],
                ..BackingReport::default()
            },
            ..StatusReport::default()
        };
        for (word, value) in [
            ("Drive Type", "file on nvme0n1 (Disk)"),
            ("Temperature", "38 C"),
            ("Power Consumption", "12 W"),
            ("Atomic Write mode", "ON (256 KiB)"),
            ("Percentage Used", "8% (of 500.00 TiB endurance)"),
            ("Data Read", "47.74 TiB"),
            ("Device Status", "Good"),
            ("Provisioned Capacity", "8.73 TiB"),
            ("Physical Limit", "5.82 TiB"),
            ("Compression Ratio", "800% (8.00:1)"),
            ("Physical Used Ratio", "0.03% (2.00 GiB of 5.82 TiB)"),
            ("Free Physical Space", "5.82 TiB"),
        ] {
            assert_eq!(line(&drive, word), value, "{word}");
        }
    }

    #[test]
    fn without_room_below_the_drive_there_is_no_free_space_and_no_time() {
        let drive = StatusReport {
            physical_available_bytes: 3 << 30,
            backing_full: true,
            // As a server of an earlier version reports it.
            time_to_full: status::TimeToFull { seconds: Some(4e7), ..Default::default() },
            ..StatusReport::default()
        };
        let full = "the file system or volume under the drive is full";
        let free = format!("0 B ({full}; 3.00 GiB unused on the drive)");
        assert_eq!(line(&drive, "Free Physical Space"), free);
        assert_eq!(line(&drive, "Time to Full"), format!("none: {full}"));
        let drive = StatusReport { backing_full: false, ..drive };
        assert_eq!(line(&drive, "Free Physical Space"), "3.00 GiB");
        assert_eq!(line(&drive, "Time to Full"), human::duration(4e7));
    }

    #[test]
    fn every_detail_is_a_line() {
        let drive = StatusReport::default();
        assert_eq!(summary(&drive).len() + DETAILS.len(), lines(&drive).len());
        // With the line of path and state, 15.
        assert_eq!(summary(&drive).len(), 14);
    }

    #[test]
    fn warnings_have_number_and_name() {
        let drive = StatusReport {
            state: DriveState::Poisoned,
            critical_warning: CriticalWarning {
                bits: 0xc,
                names: vec![status::Warning::Reliability, status::Warning::ReadOnly],
            },
            ..StatusReport::default()
        };
        assert_eq!(line(&drive, "Critical Warning"), "0xc (reliability, read-only)");
        assert_eq!(line(&drive, "Device Status"), "Warning: reliability, read-only");
    }
}
