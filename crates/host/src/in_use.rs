//! Users of a file or block device: mounts, swap space, devices on top of it, locks.
//!
//! The kernel reports "busy" without naming the user, and does not report all: a loop device on a file, a
//! swap file, a program that locks ranges of a file (QEMU).

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use crate::Root;
use crate::file::{device_number, is_same};
use crate::foreign::{self, Hangs};
use crate::loops::{LoopDevice, Source, loop_devices};
use crate::mounts::{Mount, mount_of, mounts, unescape};

/// Largest number of stacked devices followed.
const DEPTH_MAX: usize = 8;

/// User of a file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// It is mounted at this point.
    Mount(PathBuf),
    /// It is swap space.
    Swap,
    /// A loop device, and its user.
    Loop(String, Option<Box<User>>),
    /// A loop device with the same bytes of the same file, and its user.
    SameBytes(String, Box<User>),
    /// The node of a device that includes it, by device mapper or md, and its user.
    Holder(String, Option<Box<User>>),
    /// One of its partitions, and the user of that.
    Partition(String, Box<User>),
    /// A process that locks it: id and name, if visible.
    Lock(Option<(u64, String)>),
    /// A loop device or a swap file that may be on it. Its file system hangs, so that is unknown.
    Unknown(String),
}

/// Returns the user of the file or block device at `path`. A path that does not exist has none.
pub fn user(root: &Root, path: &Path) -> Option<User> {
    let found = std::fs::metadata(path).ok()?;
    let kind = found.file_type();
    if kind.is_block_device() {
        let number = device_number(found.rdev());
        device_user(root, &number, Some(&found), 0).or_else(|| sibling_user(root, path, &number))
    } else if kind.is_file() {
        let swap = match swap(root, |it| is_same(it, &found)) {
            Swap::Is => Some(User::Swap),
            Swap::MayBe(other) => may_be(root, Path::new(&other), &found).then_some(User::Unknown(other)),
            Swap::IsNot => None,
        };
        swap.or_else(|| loop_user(root, &found, 0)).or_else(|| lock(root, &found))
    } else {
        None
    }
}

/// Returns the user of a block device by its number, `MAJOR:MINOR`. Loop devices on it are not found: that
/// takes its node.
pub fn user_of_device(root: &Root, number: &str) -> Option<User> {
    device_user(root, number, None, 0)
}

/// Returns the user of a block device. `number` is `MAJOR:MINOR`. `node` is its device node, needed to find
/// loop devices on it.
fn device_user(root: &Root, number: &str, node: Option<&Metadata>, depth: usize) -> Option<User> {
    if depth == DEPTH_MAX {
        return None;
    }
    let is_it = |it: &Metadata| it.file_type().is_block_device() && device_number(it.rdev()) == number;
    // The node of a device hangs with no file system.
    let is_source = |source: &str| {
        source.starts_with('/')
            && matches!(foreign::metadata(root.path(source)), Ok(Some(found)) if is_it(&found))
    };
    // btrfs mounts have their own device number. Their source is a device.
    let mount = mounts(root).into_iter().find(|mount| mount.device == number || is_source(&mount.source));
    if let Some(mount) = mount {
        return Some(User::Mount(mount.point));
    }
    if matches!(swap(root, is_it), Swap::Is) {
        return Some(User::Swap);
    }
    let directory = PathBuf::from("sys/dev/block").join(number);
    holder(root, &directory, depth)
        .or_else(|| partition_user(root, &directory, depth))
        .or_else(|| whole_user(root, &directory, depth))
        .or_else(|| loop_user(root, node?, depth))
}

/// Returns the device that includes the one in `directory`: device mapper, md, bcache.
fn holder(root: &Root, directory: &Path, depth: usize) -> Option<User> {
    let name = root.names(directory.join("holders"), |_| true).into_iter().next()?;
    let holder = Path::new("sys/block").join(&name);
    let node = match root.text(holder.join("dm/name")) {
        Some(mapped) => format!("/dev/mapper/{mapped}"),
        None => format!("/dev/{name}"),
    };
    let above = root.text(holder.join("dev")).and_then(|number| device_user(root, &number, None, depth + 1));
    Some(User::Holder(node, above.map(Box::new)))
}

/// Returns a partition in use, of the disk in `directory`.
fn partition_user(root: &Root, directory: &Path, depth: usize) -> Option<User> {
    let partitions = root.names(directory, |name| root.path(directory).join(name).join("partition").exists());
    partitions.into_iter().find_map(|name| {
        let number = root.text(directory.join(&name).join("dev"))?;
        let user = device_user(root, &number, None, depth + 1)?;
        Some(User::Partition(format!("/dev/{name}"), Box::new(user)))
    })
}

/// Returns the user of the whole disk that contains the partition in `directory`.
fn whole_user(root: &Root, directory: &Path, depth: usize) -> Option<User> {
    if !root.path(directory).join("partition").exists() {
        return None;
    }
    // The kernel resolves `..` after following the link.
    holder(root, &directory.join(".."), depth)
}

/// Returns the user of another loop device that overlaps the one at `path` with the number `own_number`.
fn sibling_user(root: &Root, path: &Path, own_number: &str) -> Option<User> {
    let source = Source::at(path)?;
    let directory = PathBuf::from("sys/dev/block").join(own_number);
    // For a partition, the whole device is excluded as well: its other partitions do not matter.
    let whole = root.path(directory.join("partition")).exists().then(|| root.text(directory.join("../dev")));
    let whole = whole.flatten();
    loop_devices(root).into_iter().find_map(|LoopDevice { name, number, .. }| {
        let is_own = number == own_number || whole.as_ref() == Some(&number);
        // Of a file system that hangs, it could not have been opened.
        if is_own || !source_of(root, &name).ok()??.overlaps(&source) {
            return None;
        }
        let user = device_user(root, &number, None, 1)?;
        Some(User::SameBytes(format!("/dev/{name}"), Box::new(user)))
    })
}

/// Returns the source of a loop device of another process. The kernel asks the file system of its file.
fn source_of(root: &Root, name: &str) -> Result<Option<Source>, Hangs> {
    let node = root.path(Path::new("dev").join(name));
    foreign::in_time(move || Source::at(&node))
}

/// Returns a loop device on the file or block device described by `found`, or one that may be on that file.
fn loop_user(root: &Root, found: &Metadata, depth: usize) -> Option<User> {
    loop_devices(root).into_iter().find_map(|LoopDevice { name, number, file }| {
        let device = format!("/dev/{name}");
        // The server of another attached drive may hang.
        if is_of_drive(root, &file) && !may_be(root, &file, found) {
            return None;
        }
        // Compares the backing file by name, if visible to this process, or by the file that the kernel has
        // open.
        let is_on_it = foreign::metadata(root.path(&file)).and_then(|named| {
            if named.is_some_and(|named| is_same(&named, found)) {
                return Ok(true);
            }
            let opened = source_of(root, &name)?;
            Ok(opened.is_some_and(|source| source.identity == (found.dev(), found.ino())))
        });
        match is_on_it {
            Ok(true) => {
                let above = device_user(root, &number, None, depth + 1);
                Some(User::Loop(device, above.map(Box::new)))
            }
            Ok(false) => None,
            Err(Hangs) => may_be(root, &file, found).then_some(User::Unknown(device)),
        }
    })
}

/// Returns whether a path is on the FUSE file system of an attached drive.
fn is_of_drive(root: &Root, path: &Path) -> bool {
    mount_of(&mounts(root), path).is_some_and(|mount| mount.kind == "fuse.pumice")
}

/// Returns whether a path whose file system hangs may lead to the file or device described by `found`: the
/// node of a device is on no such file system, and a file on one file system is not on another.
fn may_be(root: &Root, path: &Path, found: &Metadata) -> bool {
    let mounts = mounts(root);
    // Of btrfs, mounts and files have different numbers.
    let is_elsewhere = |mount: &Mount| mount.kind != "btrfs" && mount.device != device_number(found.dev());
    found.file_type().is_file() && !mount_of(&mounts, path).is_some_and(is_elsewhere)
}

/// Whether swap space is on a file or device.
enum Swap {
    Is,
    /// On this path perhaps: its file system hangs.
    MayBe(String),
    IsNot,
}

/// Returns whether swap space is on a file or device that `is_it` accepts. Format of `/proc/swaps`
/// (`proc(5)`): a header line, then lines that start with a path.
fn swap(root: &Root, is_it: impl Fn(&Metadata) -> bool) -> Swap {
    let text = root.text("proc/swaps").unwrap_or_default();
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    let mut answer = Swap::IsNot;
    for path in paths {
        match foreign::metadata(root.path(unescape(path))) {
            Ok(Some(found)) if is_it(&found) => return Swap::Is,
            Ok(_) => {}
            Err(Hangs) => answer = Swap::MayBe(path.to_string()),
        }
    }
    answer
}

/// Returns a process that locks a file. Format of `proc_locks(5)`:
/// `1: POSIX ADVISORY WRITE 700 fd:00:2531452 0 EOF`. The device is in hexadecimal. The process of an open
/// file description lock is -1.
fn lock(root: &Root, found: &Metadata) -> Option<User> {
    let device = found.dev();
    let place = format!("{:02x}:{:02x}:{}", major(device), minor(device), found.ino());
    let text = root.text("proc/locks").unwrap_or_default();
    let pid = text.lines().find_map(|line| {
        // A process that waits for a lock has `->` before the kind.
        let fields: Vec<&str> = line.split_whitespace().filter(|field| *field != "->").collect();
        // A lease (LEASE, DELEG) is not a lock.
        let locks = fields.get(1).is_some_and(|kind| ["POSIX", "OFDLCK", "FLOCK"].contains(kind));
        (locks && fields.get(5) == Some(&place.as_str())).then(|| fields[4].parse::<u64>().ok())
    })?;
    let named = |pid: u64| Some((pid, root.text(format!("proc/{pid}/comm"))?));
    Some(User::Lock(pid.and_then(named)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    #[test]
    fn a_file_on_another_file_system_is_not_the_one_that_cannot_be_looked_at() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let found = file.as_file().metadata().expect("it is there");
        let own = device_number(found.dev());
        let mounts = format!("1 0 {own} / / rw - ext4 /dev/sda rw\n2 1 0:99 / /nfs rw - nfs server:/ rw\n");
        let (_folder, root) = tree(&[("proc/self/mountinfo", &mounts)]);
        assert!(may_be(&root, Path::new("/srv/image"), &found));
        assert!(!may_be(&root, Path::new("/nfs/image"), &found));
        let directory = std::fs::metadata("/").expect("a directory");
        assert!(!may_be(&root, Path::new("/srv/image"), &directory), "no file");
    }
}
