//! Refusal to overwrite a file or block device that is in use.
//!
//! Opening a block device for writing claims it (`O_EXCL`), and opening a file locks it. This does not detect
//! users without such a claim: a loop device on a file, a swap file, a program that locks ranges of a file
//! (QEMU). In addition, the kernel reports "busy" without naming the user.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use host::Root;
use host::file::{device_number, is_same};
use host::loops::{LoopDevice, Source, loop_devices};
use host::mounts::{mounts, unescape};
use status::shown;

/// Number and interval of looks at a lock: that of a killed process lasts until its I/O that is under way has
/// ended.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Largest number of stacked devices followed.
const DEPTH_MAX: usize = 8;

/// User of a file or block device.
#[derive(Clone, Debug, PartialEq, Eq)]
enum User {
    Mount(PathBuf),
    Swap,
    /// A loop device, and its user.
    Loop(String, Option<Box<User>>),
    /// A loop device with the same bytes of the same file, and its user.
    SameBytes(String, Box<User>),
    /// A device that includes it, by device mapper or md, and its user.
    Holder(String, Option<Box<User>>),
    /// One of its partitions, and the user of that.
    Partition(String, Box<User>),
    /// A process that locks it: id and name, if visible.
    Lock(Option<(u64, String)>),
}

impl User {
    /// Recommended action.
    fn advice(&self) -> String {
        match self {
            User::Mount(point) => format!("unmount it first (`umount {}`)", shown(point)),
            User::Swap => "turn it off first (`swapoff`)".to_string(),
            User::Loop(_, Some(user)) | User::Holder(_, Some(user)) => user.advice(),
            User::Partition(_, user) | User::SameBytes(_, user) => user.advice(),
            User::Loop(device, None) => format!("detach it first (`losetup --detach {device}`)"),
            User::Holder(device, None) => match device.strip_prefix("/dev/mapper/") {
                // Made by kpartx, or of another kind that is named so.
                Some(mapped) => {
                    format!("remove it first (`dmsetup remove {mapped}`, of LVM `vgchange --activate n`)")
                }
                None => format!("stop {device} first"),
            },
            User::Lock(_) => "stop it first (`fuser -v` names the process)".to_string(),
        }
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let above = match self {
            User::Mount(point) => return write!(f, "mounted at {}", shown(point)),
            User::Swap => return f.write_str("swap space"),
            User::Lock(Some((pid, name))) => {
                return write!(f, "locked by process {pid} ({})", shown(Path::new(name)));
            }
            User::Lock(None) => return f.write_str("locked by another process"),
            User::Loop(device, above) => {
                write!(f, "backing file of {device}")?;
                above
            }
            User::SameBytes(device, user) => return write!(f, "the same bytes as {device}, {user}"),
            User::Partition(device, user) => return write!(f, "its partition {device} is {user}"),
            User::Holder(device, above) => {
                write!(f, "part of {device}")?;
                above
            }
        };
        above.as_ref().map_or(Ok(()), |above| write!(f, ", {above}"))
    }
}

/// Refuses a drive that is attached, and a disk with such a drive on one of its partitions: its server may be
/// down while a file system waits above.
pub(crate) fn refuse_attached(path: &Path) -> Result<()> {
    let path = std::path::absolute(path)?;
    let partitions = host::block::partitions(&path).into_iter().map(|partition| partition.path);
    for drive in [path].into_iter().chain(partitions) {
        let Some(found) = attach::client::find_drive(&drive) else { continue };
        match found.record.node {
            Some(node) => bail!("{}: attached as {}: detach it first", shown(&drive), node.display()),
            // It is being made or removed, or another program has it.
            None => bail!("{}: attached, without a device: detach it first", shown(&drive)),
        }
    }
    Ok(())
}

/// Fails if the file or block device at `path` is in use, and names the user. A path that does not exist is
/// not in use.
pub(crate) fn refuse(path: &Path) -> Result<()> {
    let root = Root::machine();
    let mut found = user(&root, path);
    for _ in 0..LOOKS {
        if !matches!(found, Some(User::Lock(_))) {
            break;
        }
        std::thread::sleep(LOOK_AGAIN);
        found = user(&root, path);
    }
    match found {
        Some(user) => bail!("{}: in use: {user}; {}", shown(path), user.advice()),
        None => Ok(()),
    }
}

fn user(root: &Root, path: &Path) -> Option<User> {
    let found = std::fs::metadata(path).ok()?;
    let kind = found.file_type();
    if kind.is_block_device() {
        let number = device_number(found.rdev());
        device_user(root, &number, Some(&found), 0).or_else(|| sibling_user(root, path, &number))
    } else if kind.is_file() {
        if swap(root, |it| is_same(it, &found)) {
            return Some(User::Swap);
        }
        loop_user(root, &found, 0).or_else(|| lock(root, &found))
    } else {
        None
    }
}

/// Returns the user of a block device. `number` is `MAJOR:MINOR`. `node` is its device node, needed to find
/// loop devices on it.
fn device_user(root: &Root, number: &str, node: Option<&Metadata>, depth: usize) -> Option<User> {
    if depth == DEPTH_MAX {
        return None;
    }
    let is_it = |it: &Metadata| it.file_type().is_block_device() && device_number(it.rdev()) == number;
    let is_source = |source: &str| std::fs::metadata(root.path(source)).is_ok_and(|it| is_it(&it));
    // btrfs mounts have their own device number. Their source is a device.
    let mount = mounts(root).into_iter().find(|mount| mount.device == number || is_source(&mount.source));
    if let Some(mount) = mount {
        return Some(User::Mount(mount.point));
    }
    if swap(root, is_it) {
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
    let shown = match root.text(holder.join("dm/name")) {
        Some(mapped) => format!("/dev/mapper/{}", shown(Path::new(&mapped))),
        None => format!("/dev/{name}"),
    };
    let above = root.text(holder.join("dev")).and_then(|number| device_user(root, &number, None, depth + 1));
    Some(User::Holder(shown, above.map(Box::new)))
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
        let node = root.path(Path::new("dev").join(&name));
        let is_own = number == own_number || whole.as_ref() == Some(&number);
        if is_own || !Source::at(&node)?.overlaps(&source) {
            return None;
        }
        let user = device_user(root, &number, None, 1)?;
        Some(User::SameBytes(format!("/dev/{name}"), Box::new(user)))
    })
}

/// Returns a loop device on the file or block device described by `found`.
fn loop_user(root: &Root, found: &Metadata, depth: usize) -> Option<User> {
    loop_devices(root).into_iter().find_map(|LoopDevice { name, number, file }| {
        // Compares the backing file by name, if visible to this process, or by the file that the kernel has
        // open.
        let named = std::fs::metadata(root.path(file)).ok();
        let opened = || Source::at(&root.path(Path::new("dev").join(&name)));
        let is_on_it = named.is_some_and(|named| is_same(&named, found))
            || opened().is_some_and(|source| source.identity == (found.dev(), found.ino()));
        let above = || device_user(root, &number, None, depth + 1);
        is_on_it.then(|| User::Loop(format!("/dev/{name}"), above().map(Box::new)))
    })
}

/// Returns whether swap space is on a file or device that `is_it` accepts. Format of `/proc/swaps`
/// (`proc(5)`): a header line, then lines that start with a path.
fn swap(root: &Root, is_it: impl Fn(&Metadata) -> bool) -> bool {
    let text = root.text("proc/swaps").unwrap_or_default();
    let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
    paths.into_iter().any(|path| std::fs::metadata(root.path(unescape(path))).is_ok_and(|it| is_it(&it)))
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

fn major(device: u64) -> u32 {
    rustix::fs::major(device)
}

fn minor(device: u64) -> u32 {
    rustix::fs::minor(device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tree;

    fn said(user: Option<User>) -> String {
        user.map_or_else(String::new, |user| format!("{user}; {}", user.advice()))
    }

    #[test]
    fn files_in_use_are_recognized() {
        let (folder, root) = tree(&[
            ("free", ""),
            ("swap file", ""),
            ("image", ""),
            ("mounted", ""),
            ("locked", ""),
            ("held", ""),
            ("proc/swaps", "Filename Type Size Used Priority\n/swap\\040file file 4 0 -2\n"),
            ("proc/self/mountinfo", "36 35 7:3 / /mnt\\040two\\012x rw - ext4 /dev/loop3 rw\n"),
            ("proc/77/comm", "qemu-system-x86\n"),
            ("sys/block/loop0/loop/backing_file", "/gone (deleted)\n"),
            ("sys/block/loop1/loop/backing_file", "/image\n"),
            ("sys/block/loop1/dev", "7:1\n"),
            ("sys/block/loop3/loop/backing_file", "/mounted\n"),
            ("sys/block/loop3/dev", "7:3\n"),
        ]);
        let metadata = |name: &str| std::fs::metadata(folder.path().join(name)).expect("it is there");
        let place = |name: &str| {
            let found = metadata(name);
            format!("{:02x}:{:02x}:{}", major(found.dev()), minor(found.dev()), found.ino())
        };
        let locks = format!(
            "1: POSIX  ADVISORY  WRITE 77 {} 0 EOF\n2: OFDLCK ADVISORY  READ -1 {} 100 103\n3: LEASE  ACTIVE READ 77 \
             {} 0 EOF\n",
            place("locked"),
            place("held"),
            place("free"),
        );
        std::fs::write(folder.path().join("proc/locks"), locks).expect("written");
        for (name, expected) in [
            ("free", ""),
            ("missing", ""),
            ("swap file", "swap space; turn it off first (`swapoff`)"),
            ("image", "backing file of /dev/loop1; detach it first (`losetup --detach /dev/loop1`)"),
            (
                "mounted",
                "backing file of /dev/loop3, mounted at /mnt two\\nx; unmount it first (`umount /mnt two\\nx`)",
            ),
            (
                "locked",
                "locked by process 77 (qemu-system-x86); stop it first (`fuser -v` names the process)",
            ),
            ("held", "locked by another process; stop it first (`fuser -v` names the process)"),
        ] {
            assert_eq!(said(user(&root, &folder.path().join(name))), expected, "{name}");
        }
    }

    #[test]
    fn devices_in_use_are_recognized() {
        let (folder, root) = tree(&[
            (
                "proc/self/mountinfo",
                "36 35 8:1 / / rw - ext4 /dev/sda1 rw\n37 35 253:1 / /srv rw - xfs /dev/x rw\n",
            ),
            ("sys/devices/sda/sda1/partition", "1\n"),
            ("sys/devices/sda/sda1/dev", "8:1\n"),
            ("sys/devices/sdb/sdb1/partition", "1\n"),
            ("sys/devices/sdb/sdb1/dev", "8:17\n"),
            ("sys/devices/sdb/holders/md0", ""),
            ("sys/devices/sdc/holders/dm-1", ""),
            ("sys/block/dm-1/dm/name", "vg-data\n"),
            ("sys/block/dm-1/dev", "253:1\n"),
            ("sys/devices/sdd/size", "8\n"),
        ]);
        let links = folder.path().join("sys/dev/block");
        std::fs::create_dir_all(&links).expect("made");
        for (number, target) in [
            ("8:0", "sda"),
            ("8:1", "sda/sda1"),
            ("8:16", "sdb"),
            ("8:17", "sdb/sdb1"),
            ("8:32", "sdc"),
            ("8:48", "sdd"),
        ] {
            let target = format!("../../devices/{target}");
            std::os::unix::fs::symlink(target, links.join(number)).expect("linked");
        }
        for (number, expected) in [
            ("8:0", "its partition /dev/sda1 is mounted at /; unmount it first (`umount /`)"),
            ("8:1", "mounted at /; unmount it first (`umount /`)"),
            ("8:16", "part of /dev/md0; stop /dev/md0 first"),
            ("8:17", "part of /dev/md0; stop /dev/md0 first"),
            ("8:32", "part of /dev/mapper/vg-data, mounted at /srv; unmount it first (`umount /srv`)"),
            ("8:48", ""),
        ] {
            assert_eq!(said(device_user(&root, number, None, 0)), expected, "{number}");
        }
    }
}
