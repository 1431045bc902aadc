//! Users of a block device: processes that have it open, and file systems on it.
//!
//! Examines files of other processes without asking their file systems, which may hang.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::block::partitions;
use crate::process::{ids, mount_namespace, open_files};

/// Numbers of a device.
type Device = (u32, u32);

/// Device that holds a file of a process, and the device that the file is, if any.
struct FileDevices {
    holds: Device,
    leads_to: Device,
}

/// A process that has a device open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// Process id.
    pub pid: u32,
    /// The node of the partition by which it has it, if that is one.
    pub partition: Option<PathBuf>,
}

/// Returns the processes, except this one, that have the device node at `path` open, or one of its
/// partitions. Without root, only those of this user.
pub fn openers(path: &Path) -> Vec<Opener> {
    let Some(device) = device_at(path) else { return Vec::new() };
    let parts: Vec<_> =
        partitions(path).into_iter().filter_map(|part| Some((device_at(&part.path)?, part.path))).collect();
    let opened = |pid: u32| {
        let mut devices = open_files(pid).filter_map(|file| Some(devices_of(&file)?.leads_to));
        let partition = devices.find_map(|it| match parts.iter().find(|(part, _)| *part == it) {
            Some((_, part)) => Some(Some(part.clone())),
            None => (it == device).then_some(None),
        })?;
        Some(Opener { pid, partition })
    };
    others().filter_map(opened).collect()
}

/// Returns whether the device at `path`, or a partition of it, has an exclusive holder: a mounted file
/// system, swap space, another device. Reads nothing from the device.
pub fn is_claimed(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    matches!(rustix::fs::open(path, flags, Mode::empty()), Err(Errno::BUSY))
}

/// Returns the numbers, `MAJOR:MINOR`, of the device at `path` and of its partitions.
pub fn numbers(path: &Path) -> Vec<String> {
    devices(path).iter().map(|(major, minor)| format!("{major}:{minor}")).collect()
}

/// Returns the processes, except this one, that use a file of a file system on the device at `path` or on one
/// of its partitions, mounted or not.
pub fn file_system_users(path: &Path) -> impl Iterator<Item = u32> {
    let devices = devices(path);
    others().filter(move |pid| uses(*pid, &devices))
}

/// Returns a process of another mount namespace in which the device at `path` is mounted, or one of its
/// partitions, and where.
pub fn mounted_elsewhere(path: &Path) -> Option<(u32, String)> {
    let numbers = numbers(path);
    let mut seen = vec![mount_namespace("self")?];
    others().find_map(|pid| {
        let namespace = mount_namespace(pid)?;
        if seen.contains(&namespace) {
            return None;
        }
        seen.push(namespace);
        let mounts = BufReader::new(fs::File::open(format!("/proc/{pid}/mountinfo")).ok()?);
        // `proc_pid_mountinfo(5)`: the device is the third field, the mount point the fifth.
        let point = mounts.lines().map_while(Result::ok).find_map(|line| {
            let mut fields = line.split(' ').skip(2);
            let number = fields.next()?;
            numbers.iter().any(|it| it == number).then(|| fields.nth(1).unwrap_or_default().to_string())
        });
        Some((pid, point?))
    })
}

/// The device at `path` and its partitions.
fn devices(path: &Path) -> Vec<Device> {
    let parts = partitions(path).into_iter().map(|part| part.path);
    parts.chain([path.to_path_buf()]).filter_map(|it| device_at(&it)).collect()
}

/// Ids of all processes but this one.
fn others() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    ids().filter(move |pid| *pid != own)
}

/// Returns whether a process uses a file of a file system on one of these devices.
fn uses(pid: u32, devices: &[Device]) -> bool {
    let more = ["cwd", "root", "exe"].map(|name| PathBuf::from(format!("/proc/{pid}/{name}")));
    open_files(pid).chain(more).any(|file| devices_of(&file).is_some_and(|it| devices.contains(&it.holds)))
}

fn devices_of(path: &Path) -> Option<FileDevices> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()?;
    Some(FileDevices {
        holds: (found.stx_dev_major, found.stx_dev_minor),
        leads_to: (found.stx_rdev_major, found.stx_rdev_minor),
    })
}

fn device_at(path: &Path) -> Option<Device> {
    let device = fs::metadata(path).ok()?.rdev();
    (device != 0).then(|| (rustix::fs::major(device), rustix::fs::minor(device)))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn processes_that_have_a_device_or_a_file_system_are_found() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let opener = Opener { pid: child.id(), partition: None };
        assert!(openers(Path::new("/dev/null")).contains(&opener));
        assert!(!openers(Path::new("/dev/full")).contains(&opener));
        assert_eq!(openers(Path::new("/proc")), [], "no device");
        let on = devices_of(Path::new(&format!("/proc/{}/cwd", child.id()))).expect("found").holds;
        assert!(uses(child.id(), &[on]) && !uses(child.id(), &[(0, 0)]));
        assert!(!is_claimed(Path::new("/dev/null")));
        drop(child.stdin.take());
        child.wait().expect("ended");
    }
}
