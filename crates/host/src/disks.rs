//! The disks under a file or device: below partitions, device mapper, RAID and loop devices.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::Root;
use crate::file::device_number;
use crate::loops::backing_file;
use crate::mounts::mounts;

/// Most layers (partition, device mapper, RAID, loop) followed.
const DEPTH_MAX: usize = 16;
/// Most disks reported.
const DISKS_MAX: usize = 64;

/// Returns the sysfs directories of the disks under a file, directory or block device.
pub fn disks_under(root: &Root, path: &Path) -> Vec<PathBuf> {
    let mut disks = Vec::new();
    if let Ok(metadata) = std::fs::metadata(path) {
        Topology { root }.descend(device_of(&metadata), 0, &mut disks);
    }
    disks
}

/// Returns the number of a block device, or of the one that a file is on.
pub fn device_of(found: &Metadata) -> u64 {
    if found.file_type().is_block_device() { found.rdev() } else { found.dev() }
}

struct Topology<'a> {
    root: &'a Root,
}

impl Topology<'_> {
    /// Adds the disks under the device with a number.
    fn descend(&self, number: u64, depth: usize, disks: &mut Vec<PathBuf>) {
        if let Ok(device) = std::fs::canonicalize(self.root.block_device(number)) {
            self.descend_from(&device, depth, disks);
        } else if depth < DEPTH_MAX
            && let Some(source) = self.mount_source(&device_number(number))
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
        if let Ok(Some(file)) = backing_file(device) {
            if let Ok(metadata) = std::fs::metadata(file) {
                self.descend(device_of(&metadata), depth + 1, disks);
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
    fn mount_source(&self, number: &str) -> Option<PathBuf> {
        let mount = mounts(self.root).into_iter().find(|mount| mount.device == number)?;
        Some(PathBuf::from(mount.source)).filter(|source| source.is_absolute())
    }
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
            disks_under(&Root::new(self.0.path()), path)
                .iter()
                .map(|disk| disk.file_name().unwrap_or_default().to_string_lossy().into_owned())
                .collect()
        }

        /// `dev/block/MAJOR:MINOR` of the file system that a file is on, in this sysfs.
        fn number_of(path: &Path) -> Result<String, std::io::Error> {
            let number = std::fs::metadata(path)?.dev();
            Ok(format!("dev/block/{}", device_number(number)))
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
        // A loop of links: the search still ends.
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
        let root = Root::new(sysfs.0.path());
        let topology = Topology { root: &root };
        assert_eq!(topology.mount_source("0:99"), Some(PathBuf::from("/dev/nvme 9n1p3")));
        assert_eq!(topology.mount_source("0:21"), None, "proc is no path");
        assert_eq!(topology.mount_source("0:1"), None);
        Ok(())
    }
}
