//! Report of the backing of a drive and of the disks under it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::states::{BackingKind, BackingPlace};

/// A file, or a block device, whatever paths lead to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct FileId {
    /// Number of the file system of a file, or of the block device itself: `MAJOR:MINOR`.
    pub device: String,
    /// Number of a file in its file system; `None` for a block device.
    pub inode: Option<u64>,
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inode {
            Some(inode) => write!(f, "inode {inode} of file system {}", self.device),
            None => write!(f, "block device {}", self.device),
        }
    }
}

/// The backing of a drive. [`None`] is what the machine does not report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackingReport {
    /// File or block device.
    pub kind: BackingKind,
    /// Bytes of the drive behind the end of its backing, which another program has truncated; 0 if the drive
    /// is not served.
    pub missing_bytes: u64,
    /// Where the backing is; unknown if the drive is not served.
    pub place: BackingPlace,
    /// The file or device that the server has open; `None` if the drive is not served.
    pub file: Option<FileId>,
    /// Temperature of the hottest disk.
    pub temperature_celsius: Option<f64>,
    /// Power of all disks together, if each reports it.
    pub power_watts: Option<f64>,
    /// Used life of the most worn disk, as it reports it; may exceed 100.
    pub percentage_used: Option<f64>,
    /// Disks under the drive, through partitions, device mapper, RAID and loop devices.
    pub devices: Vec<DeviceReport>,
}

/// A disk under a drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names say it")]
pub struct DeviceReport {
    /// Kernel name, such as `nvme0n1`.
    pub name: String,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    pub rotational: Option<bool>,
    pub temperature_celsius: Option<f64>,
    /// Temperature from which on the disk or its driver considers it too hot.
    pub temperature_limit_celsius: Option<f64>,
    pub power_watts: Option<f64>,
    /// Used life, as the disk reports it.
    pub percentage_used: Option<f64>,
    pub power_on_hours: Option<u64>,
    /// Result of the disk's own test.
    pub smart_passed: Option<bool>,
    /// Critical warnings of an NVMe disk.
    pub critical_warning: Option<u32>,
}

impl DeviceReport {
    fn too_hot(&self) -> bool {
        let over = |limit: f64| self.temperature_celsius.is_some_and(|celsius| celsius >= limit);
        self.temperature_limit_celsius.is_some_and(over) || self.warns(1)
    }

    fn unreliable(&self) -> bool {
        self.smart_passed == Some(false) || self.warns(2)
    }

    fn warns(&self, bit: u32) -> bool {
        self.critical_warning.is_some_and(|bits| bits & 1 << bit != 0)
    }
}

impl BackingReport {
    /// Summarizes the disks of a backing.
    pub fn new(kind: BackingKind, devices: Vec<DeviceReport>) -> BackingReport {
        let highest = |of: fn(&DeviceReport) -> Option<f64>| devices.iter().filter_map(of).reduce(f64::max);
        let power: Option<Vec<f64>> = devices.iter().map(|device| device.power_watts).collect();
        BackingReport {
            kind,
            missing_bytes: 0,
            place: BackingPlace::Unknown,
            file: None,
            temperature_celsius: highest(|device| device.temperature_celsius),
            power_watts: power.filter(|watts| !watts.is_empty()).map(|watts| watts.iter().sum()),
            percentage_used: highest(|device| device.percentage_used),
            devices,
        }
    }

    /// Returns whether a disk is too hot.
    pub fn too_hot(&self) -> bool {
        self.devices.iter().any(DeviceReport::too_hot)
    }

    /// Returns whether a disk reports that it is unreliable.
    pub fn unreliable(&self) -> bool {
        self.devices.iter().any(DeviceReport::unreliable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(celsius: Option<f64>, watts: Option<f64>, used: Option<f64>) -> DeviceReport {
        DeviceReport {
            temperature_celsius: celsius,
            power_watts: watts,
            percentage_used: used,
            ..DeviceReport::default()
        }
    }

    #[test]
    fn hottest_and_most_worn_count_and_power_is_known_of_all_or_not() {
        let report = BackingReport::new(
            BackingKind::File,
            vec![device(Some(31.0), Some(5.0), None), device(Some(44.0), Some(7.5), Some(8.0))],
        );
        assert_eq!(report.temperature_celsius, Some(44.0));
        assert_eq!(report.power_watts, Some(12.5));
        assert_eq!(report.percentage_used, Some(8.0));
        let report = BackingReport::new(
            BackingKind::File,
            vec![device(None, Some(5.0), None), device(None, None, None)],
        );
        assert_eq!((report.temperature_celsius, report.power_watts), (None, None));
        assert_eq!(
            BackingReport::new(BackingKind::File, Vec::new()).power_watts,
            None,
            "nothing known is not 0 W"
        );
    }

    #[test]
    fn limits_and_the_disk_s_own_warnings_count() {
        let hot = DeviceReport { temperature_limit_celsius: Some(70.0), ..device(Some(70.0), None, None) };
        assert!(BackingReport::new(BackingKind::File, vec![hot.clone()]).too_hot());
        let fine = DeviceReport { temperature_celsius: Some(69.0), ..hot };
        assert!(!BackingReport::new(BackingKind::File, vec![fine.clone()]).too_hot());
        let warns = |bits| BackingReport {
            devices: vec![DeviceReport { critical_warning: Some(bits), ..fine.clone() }],
            ..BackingReport::default()
        };
        assert!(warns(2).too_hot() && !warns(2).unreliable());
        assert!(warns(4).unreliable() && !warns(4).too_hot());
        let failed = DeviceReport { smart_passed: Some(false), ..fine };
        assert!(BackingReport::new(BackingKind::File, vec![failed]).unreliable());
    }
}
