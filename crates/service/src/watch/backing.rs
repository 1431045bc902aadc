//! Devices under a drive: temperature, power, wear. Values that the machine does not report stay unknown.

mod disk;
mod smart;

use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use host::Root;
use host::disks::disks_under;
use status::{BackingKind, BackingReport, DeviceReport};

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
    pub(crate) fn probe(&self, path: &Path) -> BackingReport {
        let kind = match std::fs::metadata(path) {
            Ok(found) if found.file_type().is_block_device() => BackingKind::BlockDevice,
            Ok(_) => BackingKind::File,
            Err(_) => BackingKind::Unknown,
        };
        let disks = disks_under(&Root::machine(), path);
        let devices = disks.iter().map(|disk| {
            let mut device = disk::describe(disk);
            if let Some(smartctl) = &self.smartctl {
                smartctl.complete(&mut device);
            }
            device
        });
        BackingReport::new(kind, devices.collect())
    }
}

/// Returns what sysfs reports about the disks under a file, directory or block device.
pub fn devices_under(root: &Root, path: &Path) -> Vec<DeviceReport> {
    disks_under(root, path).iter().map(|disk| disk::describe(disk)).collect()
}
