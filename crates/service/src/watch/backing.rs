//! What the machine knows of the devices under a drive: temperature, power, wear. What it does not tell stays unknown.

mod smart;
mod topology;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use smart::Smartctl;

/// The backing of a drive. Whatever is [`None`] the machine does not tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BackingReport {
    /// `file` or `block device`.
    pub kind: String,
    /// Hottest of the devices, degrees Celsius.
    pub temperature_celsius: Option<f64>,
    /// Of all devices together, watts; only if each of them tells.
    pub power_watts: Option<f64>,
    /// Of the most worn device, percent of its life, as it says of itself; may exceed 100.
    pub percentage_used: Option<f64>,
    /// The disks under it, through partitions, device mapper, RAID and loop devices.
    pub devices: Vec<DeviceReport>,
}

/// A disk under the drive.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[allow(missing_docs, reason = "the names are the interface and say it")]
pub struct DeviceReport {
    /// The kernel's name, such as `nvme0n1`.
    pub name: String,
    pub model: Option<String>,
    pub serial: Option<String>,
    pub firmware: Option<String>,
    pub rotational: Option<bool>,
    pub temperature_celsius: Option<f64>,
    /// From here on the device or its driver calls it too hot.
    pub temperature_limit_celsius: Option<f64>,
    pub power_watts: Option<f64>,
    /// Of its life, as it says of itself.
    pub percentage_used: Option<f64>,
    pub power_on_hours: Option<u64>,
    /// Its own verdict on itself.
    pub smart_passed: Option<bool>,
    /// NVMe: its own critical warnings.
    pub critical_warning: Option<u32>,
}

impl DeviceReport {
    /// Whether it is hotter than it should be.
    fn too_hot(&self) -> bool {
        let over = |limit: f64| self.temperature_celsius.is_some_and(|celsius| celsius >= limit);
        self.temperature_limit_celsius.is_some_and(over) || self.warns(1)
    }

    /// Whether it doubts itself.
    fn unreliable(&self) -> bool {
        self.smart_passed == Some(false) || self.warns(2)
    }

    fn warns(&self, bit: u32) -> bool {
        self.critical_warning.is_some_and(|bits| bits & 1 << bit != 0)
    }
}

impl BackingReport {
    /// Of a kind, on these devices.
    fn new(kind: &str, devices: Vec<DeviceReport>) -> BackingReport {
        let highest = |of: fn(&DeviceReport) -> Option<f64>| devices.iter().filter_map(of).reduce(f64::max);
        let power: Option<Vec<f64>> = devices.iter().map(|device| device.power_watts).collect();
        BackingReport {
            kind: kind.to_string(),
            temperature_celsius: highest(|device| device.temperature_celsius),
            power_watts: power.filter(|watts| !watts.is_empty()).map(|watts| watts.iter().sum()),
            percentage_used: highest(|device| device.percentage_used),
            devices,
        }
    }

    /// Whether one of the devices is too hot.
    pub(crate) fn too_hot(&self) -> bool {
        self.devices.iter().any(DeviceReport::too_hot)
    }

    /// Whether one of the devices doubts itself.
    pub(crate) fn unreliable(&self) -> bool {
        self.devices.iter().any(DeviceReport::unreliable)
    }
}

/// Where to look.
#[derive(Clone, Debug)]
pub(crate) struct Prober {
    /// `/sys`.
    sysfs: PathBuf,
    /// `/proc/self/mountinfo`: the devices of filesystems that have device numbers of their own (btrfs).
    mountinfo: PathBuf,
    smartctl: Option<Smartctl>,
}

impl Prober {
    /// On this machine; asks `smartctl` where it is installed.
    pub(crate) fn new() -> Prober {
        Prober {
            sysfs: PathBuf::from("/sys"),
            mountinfo: PathBuf::from("/proc/self/mountinfo"),
            smartctl: Smartctl::find(),
        }
    }

    /// Without programs that may take a while.
    pub(crate) fn sysfs_only() -> Prober {
        Prober { smartctl: None, ..Prober::new() }
    }

    /// Looks at the devices under `path`. Reads files of the kernel and may run `smartctl` for seconds: not for threads
    /// that carry requests.
    pub(crate) fn look(&self, path: &Path) -> BackingReport {
        let topology = topology::Topology { sysfs: &self.sysfs, mountinfo: &self.mountinfo };
        let (kind, disks) = topology.disks_under(path);
        let devices = disks.iter().map(|disk| {
            let mut device = topology::describe(disk);
            if let Some(smartctl) = &self.smartctl {
                smartctl.complete(&mut device);
            }
            device
        });
        BackingReport::new(kind, devices.collect())
    }
}

/// The directories in sysfs of the disks under a file, directory or block device. `root` stands for `/`.
pub fn disks_under(root: &Path, path: &Path) -> Vec<PathBuf> {
    let (sysfs, mountinfo) = (root.join("sys"), root.join("proc/self/mountinfo"));
    topology::Topology { sysfs: &sysfs, mountinfo: &mountinfo }.disks_under(path).1
}

/// What sysfs tells of the devices under a file, directory or block device. `root` stands for `/`.
pub fn devices_under(root: &Path, path: &Path) -> Vec<DeviceReport> {
    disks_under(root, path).iter().map(|disk| topology::describe(disk)).collect()
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
            "file",
            vec![device(Some(31.0), Some(5.0), None), device(Some(44.0), Some(7.5), Some(8.0))],
        );
        assert_eq!(report.temperature_celsius, Some(44.0));
        assert_eq!(report.power_watts, Some(12.5));
        assert_eq!(report.percentage_used, Some(8.0));
        let report =
            BackingReport::new("file", vec![device(None, Some(5.0), None), device(None, None, None)]);
        assert_eq!((report.temperature_celsius, report.power_watts), (None, None));
        assert_eq!(BackingReport::new("file", Vec::new()).power_watts, None, "nothing known is not 0 W");
    }

    #[test]
    fn limits_and_the_device_s_own_warnings_count() {
        let hot = DeviceReport { temperature_limit_celsius: Some(70.0), ..device(Some(70.0), None, None) };
        assert!(BackingReport::new("file", vec![hot.clone()]).too_hot());
        let fine = DeviceReport { temperature_celsius: Some(69.0), ..hot };
        assert!(!BackingReport::new("file", vec![fine.clone()]).too_hot());
        let warns = |bits| BackingReport {
            devices: vec![DeviceReport { critical_warning: Some(bits), ..fine.clone() }],
            ..BackingReport::default()
        };
        assert!(warns(2).too_hot() && !warns(2).unreliable());
        assert!(warns(4).unreliable() && !warns(4).too_hot());
        let failed = DeviceReport { smart_passed: Some(false), ..fine };
        assert!(BackingReport::new("file", vec![failed]).unreliable());
    }
}
