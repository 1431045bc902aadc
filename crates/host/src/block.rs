//! Block devices as sysfs shows them: partitions, and what is made of a device.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::Root;

/// Most devices above a node that are examined.
const ABOVE_MAX: usize = 1024;

/// A partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    /// Its node: `/dev/loop0p1`.
    pub path: PathBuf,
    /// Its number on the disk.
    pub number: i32,
}

/// Returns the partitions that the kernel knows of the block device at `path`, by their numbers.
pub fn partitions(path: &Path) -> Vec<Partition> {
    folder(path).map(|folder| partitions_in(&folder)).unwrap_or_default()
}

/// Directory of a block device in sysfs.
fn folder(path: &Path) -> Option<PathBuf> {
    let number = fs::metadata(path).ok()?.rdev();
    (number != 0).then(|| Root::machine().block_device(number))
}

fn partitions_in(folder: &Path) -> Vec<Partition> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let partition = |entry: fs::DirEntry| {
        let number = fs::read_to_string(entry.path().join("partition")).ok()?.trim().parse().ok()?;
        Some(Partition { path: node(entry.file_name().to_str()?), number })
    };
    let mut found: Vec<Partition> = entries.filter_map(partition).collect();
    found.sort_by_key(|partition| partition.number);
    found
}

/// Returns the numbers, `MAJOR:MINOR`, of the block device at `path`, of its partitions, and of the devices
/// that are made of these: device mapper, RAID.
pub fn numbers_above(path: &Path) -> Vec<String> {
    folder(path).map(|folder| numbers_above_in(&folder, Path::new("/sys/block"))).unwrap_or_default()
}

fn numbers_above_in(folder: &Path, devices: &Path) -> Vec<String> {
    let (mut numbers, mut folders) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        let Ok(number) = fs::read_to_string(folder.join("dev")) else { continue };
        let number = number.trim().to_string();
        if numbers.contains(&number) || numbers.len() >= ABOVE_MAX {
            continue;
        }
        numbers.push(number);
        let names = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        folders.extend(names(folder.join("holders")).map(|holder| devices.join(holder.file_name())));
        let below = names(folder).map(|entry| entry.path());
        folders.extend(below.filter(|path| path.join("partition").exists()));
    }
    numbers
}

/// A part of a disk: a partition, or all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartOfDisk {
    /// Number of the disk, `MAJOR:MINOR`.
    pub disk: String,
    /// Kernel name of the part: `loop0p1`.
    pub name: String,
    /// First byte on the disk.
    pub start_bytes: u64,
    /// Length.
    pub len_bytes: u64,
}

/// Returns where a block device, by its number `MAJOR:MINOR`, is on its disk. A device that is made of others
/// (device mapper, RAID) counts as a disk. `None` if sysfs does not show it, as of file systems with numbers
/// of their own.
pub fn part_of_disk(root: &Root, number: &str) -> Option<PartOfDisk> {
    // Sectors of sysfs, whatever those of the disk are.
    const SECTOR_BYTES: u64 = 512;
    let folder = fs::canonicalize(root.path("sys/dev/block").join(number)).ok()?;
    let text = |name: &str| fs::read_to_string(folder.join(name)).ok().map(|it| it.trim().to_string());
    let bytes = |name: &str| text(name)?.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES);
    let is_partition = folder.join("partition").exists();
    Some(PartOfDisk {
        // The folder of a partition is in that of its disk.
        disk: text(if is_partition { "../dev" } else { "dev" })?,
        name: folder.file_name()?.to_str()?.to_string(),
        start_bytes: if is_partition { bytes("start")? } else { 0 },
        len_bytes: bytes("size")?,
    })
}

/// Path of a device node for a kernel name.
pub fn node(name: &str) -> PathBuf {
    Path::new("/dev").join(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn partitions_and_what_is_made_of_them() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        let write = |name: &str, text: &str| {
            fs::create_dir_all(at(name).parent().expect("a folder"))?;
            fs::write(at(name), text)
        };
        for (name, text) in [
            ("devices/loop0/dev", "7:0\n"),
            ("devices/loop0/queue/hw_sector_size", "512\n"),
            ("devices/loop0/loop0p10/partition", "10\n"),
            ("devices/loop0/loop0p10/dev", "259:1\n"),
            ("devices/loop0/loop0p2/partition", "2\n"),
            ("devices/loop0/loop0p2/dev", "259:0\n"),
            ("devices/loop0/loop0p2/start", "2048\n"),
            ("devices/loop0/loop0p2/size", "8\n"),
            ("devices/loop0/size", "4096\n"),
            ("devices/loop0/loop0p2/holders/dm-0/.", ""),
            ("block/dm-0/dev", "253:0\n"),
            ("block/dm-0/holders/dm-1/.", ""),
            ("block/dm-1/dev", "253:1\n"),
        ] {
            if name.ends_with("/.") {
                fs::create_dir_all(at(name.trim_end_matches("/.")))?;
            } else {
                write(name, text)?;
            }
        }
        symlink(at("devices/loop0"), at("7:0"))?;
        let found = partitions_in(&at("7:0"));
        let partition = |name: &str, number| Partition { path: node(name), number };
        assert_eq!(found, [partition("loop0p2", 2), partition("loop0p10", 10)]);
        let mut above = numbers_above_in(&at("7:0"), &at("block"));
        above.sort();
        assert_eq!(above, ["253:0", "253:1", "259:0", "259:1", "7:0"]);
        fs::create_dir_all(at("sys/dev/block"))?;
        symlink(at("devices/loop0/loop0p2"), at("sys/dev/block/259:0"))?;
        symlink(at("devices/loop0"), at("sys/dev/block/7:0"))?;
        let part = |name: &str, start_bytes, len_bytes| {
            Some(PartOfDisk { disk: "7:0".into(), name: name.into(), start_bytes, len_bytes })
        };
        let root = Root::new(folder.path());
        assert_eq!(part_of_disk(&root, "259:0"), part("loop0p2", 1 << 20, 4096));
        assert_eq!(part_of_disk(&root, "7:0"), part("loop0", 0, 2 << 20));
        assert_eq!(part_of_disk(&root, "0:35"), None);
        assert!(partitions_in(&at("none")).is_empty() && partitions(&at("devices")).is_empty());
        Ok(())
    }
}
