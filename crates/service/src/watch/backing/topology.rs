//! The disks under a file, according to sysfs.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use status::{BackingKind, DeviceReport};

use super::mounts::mounts;

/// Most layers (partition, device mapper, RAID, loop) followed.
const DEPTH_MAX: usize = 16;
/// Most disks reported.
const DISKS_MAX: usize = 64;

/// Files of the kernel, below a directory that stands for `/`.
pub(super) struct Topology<'a> {
    pub(super) root: &'a Path,
}

impl Topology<'_> {
    /// Returns whether `path` is a file or a block device, and the disks under it as directories in sysfs.
    pub(super) fn disks_under(&self, path: &Path) -> (BackingKind, Vec<PathBuf>) {
        let mut disks = Vec::new();
        let Ok(metadata) = std::fs::metadata(path) else { return (BackingKind::Unknown, disks) };
        let (kind, number) = if metadata.file_type().is_block_device() {
            (BackingKind::BlockDevice, metadata.rdev())
        } else {
            (BackingKind::File, metadata.dev())
        };
        self.descend(number, 0, &mut disks);
        (kind, disks)
    }

    /// Adds the disks under the device with a number.
    fn descend(&self, number: u64, depth: usize, disks: &mut Vec<PathBuf>) {
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let link = self.root.join(format!("sys/dev/block/{major}:{minor}"));
        if let Ok(device) = std::fs::canonicalize(link) {
            self.descend_from(&device, depth, disks);
        } else if depth < DEPTH_MAX
            && let Some(source) = self.mount_source(major, minor)
            && let Ok(metadata) = std::fs::metadata(source)
            && metadata.file_type().is_block_device()
        {
            self.descend(metadata.rdev(), depth + 1, disks);
        }
    }

    /// Finds the disks under a device, given by its directory in sysfs.
    fn descend_from(&self, device: &Path, depth: usize, disks: &mut Vec<PathBuf>) {
        if depth > DEPTH_MAX || disks.len() >= DISKS_MAX || disks.iter().any(|disk| disk == device) {
            return;
        }
        if device.join("partition").exists()
            && let Some(parent) = device.parent()
        {
            return self.descend_from(parent, depth + 1, disks);
        }
        if let Some(file) = text(&device.join("loop/backing_file")) {
            if let Ok(metadata) = std::fs::metadata(file) {
                let block = metadata.file_type().is_block_device();
                self.descend(if block { metadata.rdev() } else { metadata.dev() }, depth + 1, disks);
            }
            return;
        }
        let mut below: Vec<PathBuf> = std::fs::read_dir(device.join("slaves"))
            .map(|entries| entries.flatten().filter_map(|it| std::fs::canonicalize(it.path()).ok()).collect())
            .unwrap_or_default();
        if below.is_empty() {
            disks.push(device.to_path_buf());
            return;
        }
        below.sort();
        below.iter().for_each(|device| self.descend_from(device, depth + 1, disks));
    }

    /// Returns the device of a file system that has a device number of its own.
    fn mount_source(&self, major: u32, minor: u32) -> Option<PathBuf> {
        let number = format!("{major}:{minor}");
        let mount = mounts(self.root).into_iter().find(|mount| mount.device == number)?;
        Some(PathBuf::from(mount.source)).filter(|source| source.is_absolute())
    }
}

/// Returns what sysfs reports about a disk.
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
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    /// A directory that looks like `/`, with paths below its `sys`.
    struct Sysfs(tempfile::TempDir);

    impl Sysfs {
        fn new() -> Result<Sysfs, std::io::Error> {
            tempfile::tempdir().map(Sysfs)
        }

        fn path(&self, path: &str) -> PathBuf {
            self.0.path().join("sys").join(path)
        }

        fn put(&self, path: &str, text: &str) -> Outcome {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
            Ok(std::fs::write(path, format!("{text}\n"))?)
        }

        fn link(&self, path: &str, to: &str) -> Outcome {
            let path = self.path(path);
            std::fs::create_dir_all(path.parent().ok_or("no parent")?)?;
            std::fs::create_dir_all(self.path(to))?;
            Ok(symlink(self.path(to), path)?)
        }

        fn disks(&self, path: &Path) -> Vec<String> {
            let (_, disks) = Topology { root: self.0.path() }.disks_under(path);
            disks
                .iter()
                .map(|disk| disk.file_name().unwrap_or_default().to_string_lossy().into_owned())
                .collect()
        }

        /// `dev/block/MAJOR:MINOR` of the file system that a file is on, in this sysfs.
        fn number_of(path: &Path) -> Result<String, std::io::Error> {
            let number = std::fs::metadata(path)?.dev();
            Ok(format!("dev/block/{}:{}", rustix::fs::major(number), rustix::fs::minor(number)))
        }
    }

    #[test]
    fn a_partition_leads_to_its_disk() -> Outcome {
        let sysfs = Sysfs::new()?;
        let file = tempfile::NamedTempFile::new()?;
        sysfs.put("devices/nvme0n1/nvme0n1p2/partition", "2")?;
        sysfs.link(&Sysfs::number_of(file.path())?, "devices/nvme0n1/nvme0n1p2")?;
        assert_eq!(sysfs.disks(file.path()), ["nvme0n1"]);
        Ok(())
    }

    #[test]
    fn device_mapper_leads_to_all_disks_once() -> Outcome {
        let sysfs = Sysfs::new()?;
        let file = tempfile::NamedTempFile::new()?;
        for (disk, partition) in [("sda", "sda1"), ("sdb", "sdb1")] {
            sysfs.put(&format!("devices/{disk}/{partition}/partition"), "1")?;
            sysfs.link(&format!("devices/md0/slaves/{partition}"), &format!("devices/{disk}/{partition}"))?;
        }
        sysfs.link("devices/dm-0/slaves/md0", "devices/md0")?;
        sysfs.link("devices/dm-0/slaves/sda", "devices/sda")?;
        sysfs.link(&Sysfs::number_of(file.path())?, "devices/dm-0")?;
        assert_eq!(sysfs.disks(file.path()), ["sda", "sdb"]);
        Ok(())
    }

    #[test]
    fn a_loop_device_leads_to_where_its_file_is() -> Outcome {
        let sysfs = Sysfs::new()?;
        let file = tempfile::NamedTempFile::new()?;
        // The loop device is on a file of the same file system, which is on sdc: found twice, reported once.
        sysfs.put("devices/loop0/loop/backing_file", &file.path().display().to_string())?;
        sysfs.link("devices/dm-1/slaves/loop0", "devices/loop0")?;
        sysfs.link("devices/dm-1/slaves/sdc", "devices/sdc")?;
        sysfs.link(&Sysfs::number_of(file.path())?, "devices/dm-1")?;
        // It leads to itself, and the search still ends.
        assert_eq!(sysfs.disks(file.path()), ["sdc"]);
        Ok(())
    }

    #[test]
    fn what_is_on_no_device_has_none() -> Outcome {
        let sysfs = Sysfs::new()?;
        let file = tempfile::NamedTempFile::new()?;
        assert_eq!(sysfs.disks(file.path()), Vec::<String>::new());
        assert_eq!(sysfs.disks(Path::new("/no/such/file")), Vec::<String>::new());
        Ok(())
    }

    #[test]
    fn mounts_name_the_device_of_a_filesystem_with_its_own_number() -> Outcome {
        let sysfs = Sysfs::new()?;
        sysfs.put(
            "../proc/self/mountinfo",
            "22 27 0:21 / /proc rw - proc proc rw\n\
             40 27 0:99 /@srv /srv/a\\040b rw,relatime shared:5 - btrfs /dev/nvme\\0409n1p3 rw,compress=zstd",
        )?;
        let topology = Topology { root: sysfs.0.path() };
        assert_eq!(topology.mount_source(0, 99), Some(PathBuf::from("/dev/nvme 9n1p3")));
        assert_eq!(topology.mount_source(0, 21), None, "proc is no path");
        assert_eq!(topology.mount_source(0, 1), None);
        Ok(())
    }

    #[test]
    fn an_nvme_disk_is_described() -> Outcome {
        let sysfs = Sysfs::new()?;
        for (name, value) in [
            ("queue/rotational", "0"),
            ("device/model", "Some Disk 1TB           "),
            ("device/serial", "S123"),
            ("device/firmware_rev", "1.0"),
            ("device/hwmon3/temp1_input", "38850"),
            ("device/hwmon3/temp1_max", "81850"),
            ("device/hwmon3/power1_input", "5250000"),
        ] {
            sysfs.put(&format!("nvme0n1/{name}"), value)?;
        }
        let report = describe(&sysfs.path("nvme0n1"));
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
        Ok(())
    }

    #[test]
    fn a_sata_disk_is_described_and_nonsense_is_unknown() -> Outcome {
        let sysfs = Sysfs::new()?;
        sysfs.put("sda/queue/rotational", "1")?;
        sysfs.put("sda/device/hwmon/hwmon1/temp1_input", "29000")?;
        sysfs.put("sda/device/hwmon/hwmon1/temp1_max", "0")?;
        sysfs.put("sda/device/model", "")?;
        sysfs.put("sda/device/hwmon/hwmon1/power1_input", "much")?;
        let report = describe(&sysfs.path("sda"));
        assert_eq!((report.temperature_celsius, report.temperature_limit_celsius), (Some(29.0), None));
        assert_eq!((report.model, report.power_watts, report.rotational), (None, None, Some(true)));
        let nothing = describe(&sysfs.path("vda"));
        assert_eq!(nothing, DeviceReport { name: "vda".into(), ..DeviceReport::default() });
        Ok(())
    }
}
