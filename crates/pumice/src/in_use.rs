//! Refusal to overwrite a file or block device that is in use.
//!
//! Opening a block device for writing claims it (`O_EXCL`), and opening a file locks it. This does not detect
//! users without such a claim, and does not name the user.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};
use host::Root;
use host::in_use::{User, user};
use status::shown;

/// Number and interval of looks at a lock: that of a killed process lasts until its I/O that is under way has
/// ended.
const LOOKS: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Recommended action.
fn advice(user: &User) -> String {
    match user {
        User::Mount(point) => format!("unmount it first (`umount {}`)", shown(point)),
        User::Swap => "turn it off first (`swapoff`)".to_string(),
        User::Loop(_, Some(user)) | User::Holder(_, Some(user)) => advice(user),
        User::Partition(_, user) | User::SameBytes(_, user) => advice(user),
        User::Loop(device, None) => format!("detach it first (`losetup --detach {device}`)"),
        User::Holder(device, None) => match device.strip_prefix("/dev/mapper/") {
            // Made by kpartx, or of another kind that is named so.
            Some(mapped) => {
                let mapped = shown(Path::new(mapped));
                format!("remove it first (`dmsetup remove {mapped}`, of LVM `vgchange --activate n`)")
            }
            None => format!("stop {} first", shown(Path::new(device))),
        },
        User::Unknown(_) => "bring that file system back first".to_string(),
        User::Lock(_) => "stop it first (`fuser -v` names the process)".to_string(),
    }
}

/// A user in words.
struct InWords<'a>(&'a User);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let above = match self.0 {
            User::Mount(point) => return write!(f, "mounted at {}", shown(point)),
            User::Swap => return f.write_str("swap space"),
            User::Unknown(other) => {
                return write!(f, "perhaps by {other}, whose file system does not answer");
            }
            User::Lock(Some((pid, name))) => {
                return write!(f, "locked by process {pid} ({})", shown(Path::new(name)));
            }
            User::Lock(None) => return f.write_str("locked by another process"),
            User::Loop(device, above) => {
                write!(f, "backing file of {device}")?;
                above
            }
            User::SameBytes(device, user) => {
                return write!(f, "the same bytes as {device}, {}", InWords(user));
            }
            User::Partition(device, user) => return write!(f, "its partition {device} is {}", InWords(user)),
            User::Holder(device, above) => {
                write!(f, "part of {}", shown(Path::new(device)))?;
                above
            }
        };
        above.as_ref().map_or(Ok(()), |above| write!(f, ", {}", InWords(above)))
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
        Some(user) => bail!("{}: in use: {}; {}", shown(path), InWords(&user), advice(&user)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use rustix::fs::{major, minor};

    use host::in_use::user_of_device;

    use super::*;
    use crate::tree::tree;

    fn said(user: Option<User>) -> String {
        user.map_or_else(String::new, |user| format!("{}; {}", InWords(&user), advice(&user)))
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
            assert_eq!(said(user_of_device(&root, number)), expected, "{number}");
        }
    }
}
