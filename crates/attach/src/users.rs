//! Processes that have a device open, and file systems that are on it still.
//!
//! Files of other processes are looked at without asking their file systems, which may hang.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use host::Root;
use host::mounts::mounts;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, statx};
use rustix::io::Errno;

use crate::block::partitions;

/// Most processes that are named.
const NAMED_MAX: usize = 5;

/// Numbers of a device.
type Device = (u32, u32);

/// What a file of a process is on, and what it leads to if it is a device.
struct Found {
    on: Device,
    leads_to: Device,
}

/// Returns the processes, except this one, that have the device node at `path` open, or one of its
/// partitions, as `ID (NAME)`; of a partition `ID (NAME), by /dev/loop0p1`. Without root, only those of this
/// user.
pub fn openers(path: &Path) -> Vec<String> {
    let Some(device) = device_at(path) else { return Vec::new() };
    let parts: Vec<_> =
        partitions(path).into_iter().filter_map(|part| Some((device_at(&part.path)?, part.path))).collect();
    let opened = |id: u32| {
        let mut devices = files(id).filter_map(|file| Some(found(&file)?.leads_to));
        let by = devices.find_map(|it| match parts.iter().find(|(part, _)| *part == it) {
            Some((_, part)) => Some(format!(", by {}", part.display())),
            None => (it == device).then(String::new),
        })?;
        Some(named(id) + &by)
    };
    processes().filter_map(opened).collect()
}

/// Returns who has the device at `path`, or a partition of it, to itself, if nobody has it open and nothing
/// is known to be mounted there: a file system that was unmounted lazily, or that is mounted where this
/// process does not see it. Reads nothing from the device.
pub fn hidden_claim(path: &Path) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Err(Errno::BUSY) => {}
        _ => return None,
    }
    let devices: Vec<Device> = devices_of(path).collect();
    if let Some((process, point)) = mounted_elsewhere(&devices) {
        return Some(format!(
            "mounted at {point} in the mount namespace of process {}: unmount it there",
            named(process)
        ));
    }
    let mut users = processes().filter(|id| uses(*id, &devices)).map(named);
    let some: Vec<String> = users.by_ref().take(NAMED_MAX).collect();
    let more = if users.next().is_some() { " and others" } else { "" };
    Some(match some.is_empty() {
        false => format!(
            "a file system on it was unmounted lazily (`umount -l`), and is in use by process {}{more}: end that",
            some.join(", ")
        ),
        true => "a file system on it was unmounted lazily (`umount -l`), and something uses it that is no process: \
            another mount or a loop device on it, swap space or an NFS export"
            .to_string(),
    })
}

/// Returns who has the device at `path` open, or has it to itself, for a message:
/// `in use by process 12 (dd)`.
pub(crate) fn who_uses(path: &Path) -> String {
    let openers = openers(path);
    if !openers.is_empty() {
        return format!("in use by process {}", openers.join(", "));
    }
    let devices: Vec<Device> = devices_of(path).collect();
    let is_on_it = |device: &str| devices.iter().any(|(major, minor)| device == format!("{major}:{minor}"));
    let mount = mounts(&Root::machine()).into_iter().find(|mount| is_on_it(&mount.device));
    match mount {
        Some(mount) => format!("mounted at {}", status::shown(&mount.point)),
        None => hidden_claim(path).unwrap_or_else(|| "in use by another process".to_string()),
    }
}

/// The device at `path` and its partitions.
fn devices_of(path: &Path) -> impl Iterator<Item = Device> {
    let parts = partitions(path).into_iter().map(|part| part.path);
    parts.chain([path.to_path_buf()]).filter_map(|it| device_at(&it))
}

/// Ids of all processes but this one.
fn processes() -> impl Iterator<Item = u32> {
    let own = std::process::id();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(move |id| *id != own)
}

/// Links to the files that a process has open.
fn files(process: u32) -> impl Iterator<Item = PathBuf> {
    let files = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    files.map(|file| file.path())
}

/// Returns whether a process uses a file of a file system on one of these devices.
fn uses(process: u32, devices: &[Device]) -> bool {
    let more = ["cwd", "root", "exe"].map(|name| PathBuf::from(format!("/proc/{process}/{name}")));
    files(process).chain(more).any(|file| found(&file).is_some_and(|it| devices.contains(&it.on)))
}

fn named(process: u32) -> String {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    format!("{process} ({})", name.trim_end())
}

fn found(path: &Path) -> Option<Found> {
    let found = statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::BASIC_STATS).ok()?;
    Some(Found {
        on: (found.stx_dev_major, found.stx_dev_minor),
        leads_to: (found.stx_rdev_major, found.stx_rdev_minor),
    })
}

fn device_at(path: &Path) -> Option<Device> {
    let device = fs::metadata(path).ok()?.rdev();
    (device != 0).then(|| (rustix::fs::major(device), rustix::fs::minor(device)))
}

/// Returns a process of another mount namespace in which one of these devices is mounted, and where.
fn mounted_elsewhere(devices: &[Device]) -> Option<(u32, String)> {
    let numbers: Vec<String> = devices.iter().map(|(major, minor)| format!("{major}:{minor}")).collect();
    let mut seen = vec![fs::read_link("/proc/self/ns/mnt").ok()?];
    processes().find_map(|process| {
        let namespace = fs::read_link(format!("/proc/{process}/ns/mnt")).ok()?;
        if seen.contains(&namespace) {
            return None;
        }
        seen.push(namespace);
        let mounts = BufReader::new(fs::File::open(format!("/proc/{process}/mountinfo")).ok()?);
        // `proc_pid_mountinfo(5)`: the device is the third field, the mount point the fifth.
        let point = mounts.lines().map_while(Result::ok).find_map(|line| {
            let mut fields = line.split(' ').skip(2);
            let number = fields.next()?;
            numbers.iter().any(|it| it == number).then(|| fields.nth(1).unwrap_or_default().to_string())
        });
        Some((process, point?))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn processes_that_have_a_device_or_a_file_system_are_named() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("cat");
        let name = format!("{} (cat)", child.id());
        assert!(openers(Path::new("/dev/null")).contains(&name));
        assert!(!openers(Path::new("/dev/full")).contains(&name));
        assert_eq!(openers(Path::new("/proc")), [""; 0], "no device");
        let on = found(Path::new(&format!("/proc/{}/cwd", child.id()))).expect("found").on;
        assert!(uses(child.id(), &[on]) && !uses(child.id(), &[(0, 0)]));
        assert_eq!(hidden_claim(Path::new("/dev/null")), None);
        drop(child.stdin.take());
        child.wait().expect("ended");
    }
}
