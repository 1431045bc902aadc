//! Fields of the listing that describe hardware: those of the disks under a drive, through sysfs.

use std::fs;
use std::path::{Path, PathBuf};

use host::disks::disks_under;
use host::{Root, numbered};
use status::{DeviceReport, StatusReport};

/// Lists of makers' names (hwdata, pciutils).
const PCI_IDS: [&str; 2] = ["usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids"];
/// Most directories above a disk that are looked at.
const DEPTH_MAX: usize = 16;

/// What is known of the disks under a drive. Values of several disks, if they differ, have commas between
/// them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hardware {
    pub(super) vendor_id: Option<String>,
    pub(super) subsystem_vendor_id: Option<String>,
    pub(super) manufacturer: Option<String>,
    /// The maker's name of the model, by which it is ordered.
    pub(super) part_number: Option<String>,
    pub(super) firmware: Option<String>,
    pub(super) link: Option<String>,
}

/// Returns what sysfs and the report of a drive say about the disks under it.
pub(super) fn under(root: &Root, drive: &StatusReport) -> Hardware {
    let disks = disks_under(root, &drive.path);
    let functions: Vec<PathBuf> = disks.iter().filter_map(|disk| pci_function(disk)).collect();
    let of_functions =
        |of: &dyn Fn(&Path) -> Option<String>| joined(functions.iter().filter_map(|it| of(it)));
    let of_reports =
        |of: fn(&DeviceReport) -> Option<String>| joined(drive.backing.devices.iter().filter_map(of));
    let scsi = joined(disks.iter().filter_map(|disk| scsi_vendor(disk)));
    Hardware {
        vendor_id: of_functions(&|it| text(it.join("vendor"))),
        subsystem_vendor_id: of_functions(&|it| text(it.join("subsystem_vendor"))),
        manufacturer: scsi.or_else(|| of_functions(&|it| maker(root, &text(it.join("vendor"))?))),
        part_number: of_reports(|device| device.model.clone()),
        firmware: of_reports(|device| device.firmware.clone()),
        link: of_functions(&|it| link(it)),
    }
}

/// The directories in sysfs of the disks are absolute.
fn text(path: PathBuf) -> Option<String> {
    Root::machine().text(path)
}

/// Joins values, each once.
fn joined(values: impl Iterator<Item = String>) -> Option<String> {
    let mut all: Vec<String> = Vec::new();
    for value in values.filter(|value| !value.is_empty()) {
        if !all.contains(&value) {
            all.push(value);
        }
    }
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns the directory of the PCI function that a disk is. A disk behind a controller (SATA, SAS, USB) is
/// none.
fn pci_function(disk: &Path) -> Option<PathBuf> {
    let device = fs::canonicalize(disk.join("device")).ok()?;
    // An NVMe disk of several paths: its controllers are below the subsystem.
    let controller = Root::machine().names(&device, |name| numbered(name, "nvme")).into_iter().next();
    let start = controller.and_then(|name| fs::canonicalize(device.join(name)).ok()).unwrap_or(device);
    for above in start.ancestors().take(DEPTH_MAX) {
        let name = above.file_name()?.to_str()?;
        if numbered(name, "host") {
            return None;
        }
        if above.join("subsystem_vendor").exists() && above.join("vendor").exists() {
            return Some(above.to_path_buf());
        }
    }
    None
}

/// Returns the maker that a SCSI disk reports. Of SATA disks that is only `ATA`; of others it may be a PCI
/// number.
fn scsi_vendor(disk: &Path) -> Option<String> {
    let vendor = text(disk.join("device/vendor"))?;
    (vendor != "ATA" && !vendor.starts_with("0x")).then_some(vendor)
}

/// Returns the name of the maker with a PCI number such as `0x144d`. A line with one is `144d  Name`.
fn maker(root: &Root, vendor: &str) -> Option<String> {
    let digits = vendor.strip_prefix("0x")?;
    let text = PCI_IDS.iter().find_map(|list| root.text(list))?;
    let line = text.lines().find_map(|line| line.strip_prefix(digits)?.strip_prefix("  "))?;
    Some(line.trim().to_string())
}

/// Returns speed and width of a link: `Speed 8GT/s, Width x4`. The kernel writes `8.0 GT/s PCIe`, or
/// `Unknown`.
fn link(function: &Path) -> Option<String> {
    let speed = text(function.join("current_link_speed"))?;
    let speed: f64 = speed.split_whitespace().next()?.parse().ok()?;
    let width = text(function.join("current_link_width")).filter(|width| width != "0")?;
    Some(format!("Speed {speed}GT/s, Width x{width}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn disks_that_are_pci_functions_and_others() {
        let pci = "sys/devices/pci0000:00/0000:00:03.0/0000:04:00.0";
        let file = |name: &str, text: &str| (format!("{pci}/{name}"), text.to_string());
        let mut files = vec![
            file("vendor", "0xcc53\n"),
            file("subsystem_vendor", "0xcc53\n"),
            file("current_link_speed", "8.0 GT/s PCIe\n"),
            file("current_link_width", "4\n"),
            file("nvme/nvme0/model", "CSDU3RF080B0\n"),
            file("nvme/nvme0/nvme0n1/size", "8\n"),
            (
                "usr/share/misc/pci.ids".into(),
                "# list\nc0de  Other\ncc53  ScaleFlux Inc.\n\t0002  Card\n".into(),
            ),
        ];
        let sata = "sys/devices/pci0000:00/0000:00:1f.2";
        files.extend([
            (format!("{sata}/vendor"), "0x8086\n".into()),
            (format!("{sata}/subsystem_vendor"), "0x8086\n".into()),
            (format!("{sata}/ata1/host0/target0/0:0:0:0/vendor"), "SEAGATE \n".into()),
            (format!("{sata}/ata1/host0/target0/0:0:0:0/block/sda/size"), "8\n".into()),
        ]);
        let files: Vec<(&str, &str)> =
            files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let (folder, root) = tree(&files);
        let nvme = folder.path().join(pci).join("nvme/nvme0/nvme0n1");
        std::os::unix::fs::symlink("../../nvme0", nvme.join("device")).expect("linked");
        let disk = folder.path().join(sata).join("ata1/host0/target0/0:0:0:0/block/sda");
        std::os::unix::fs::symlink("../../../0:0:0:0", disk.join("device")).expect("linked");
        let function = pci_function(&nvme).expect("a PCI function");
        assert!(function.ends_with("0000:04:00.0"));
        assert_eq!(link(&function).as_deref(), Some("Speed 8GT/s, Width x4"));
        assert_eq!(maker(&root, "0xcc53").as_deref(), Some("ScaleFlux Inc."));
        assert_eq!(maker(&root, "0x0002"), None);
        assert_eq!(pci_function(&disk), None);
        assert_eq!(scsi_vendor(&disk).as_deref(), Some("SEAGATE"));
    }

    #[test]
    fn values_that_differ_are_joined() {
        let of = |values: &[&str]| joined(values.iter().map(ToString::to_string));
        assert_eq!(of(&["a", "b", "a", ""]).as_deref(), Some("a, b"));
        assert_eq!(of(&[]), None);
    }
}
