//! Devices under a drive: temperature, power, wear. What the machine does not report stays unknown.

mod mounts;
mod smart;
mod topology;

use std::path::{Path, PathBuf};

use status::{BackingReport, DeviceReport};

pub use mounts::{Mount, mount_of, mounts, unescape};
pub(crate) use smart::Smartctl;

/// Sources of information.
#[derive(Clone, Debug)]
pub(crate) struct Prober {
    smartctl: Option<Smartctl>,
}

impl Prober {
    /// For this machine, with `smartctl` if it is installed.
    pub(crate) fn new() -> Prober {
        Prober { smartctl: Smartctl::find() }
    }

    /// Without programs that may take a while.
    pub(crate) fn sysfs_only() -> Prober {
        Prober { smartctl: None }
    }

    /// Examines the devices under `path`. Reads files of the kernel and may run `smartctl` for seconds: not
    /// for threads that carry requests.
    pub(crate) fn look(&self, path: &Path) -> BackingReport {
        let topology = topology::Topology { root: Path::new("/") };
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

/// Returns the sysfs directories of the disks under a file, directory or block device. `root` stands for `/`.
pub fn disks_under(root: &Path, path: &Path) -> Vec<PathBuf> {
    topology::Topology { root }.disks_under(path).1
}

/// Returns what sysfs reports about the devices under a file, directory or block device. `root` stands for
/// `/`.
pub fn devices_under(root: &Path, path: &Path) -> Vec<DeviceReport> {
    disks_under(root, path).iter().map(|disk| topology::describe(disk)).collect()
}
