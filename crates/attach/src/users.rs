//! Descriptions of the processes that have a device open, and of file systems still on it.

use std::path::Path;

use host::Root;
use host::mounts::mounts;
use host::process::name;
use host::users::{self, Opener, file_system_users, is_claimed, mounted_elsewhere, numbers};

/// Most processes that are named.
const NAMED_MAX: usize = 5;

/// Returns the processes, except this one, that have the device node at `path` open, or one of its
/// partitions, as `ID (NAME)`; of a partition `ID (NAME), by /dev/loop0p1`. Without root, only those of this
/// user.
pub fn openers(path: &Path) -> Vec<String> {
    let shown = |Opener { pid, partition }| match partition {
        Some(part) => format!("{}, by {}", named(pid), part.display()),
        None => named(pid),
    };
    users::openers(path).into_iter().map(shown).collect()
}

/// Returns the exclusive holder of the device at `path`, or of a partition of it, if nobody has it open and
/// no mount of it is visible: a file system that was unmounted lazily, or is mounted where this process does
/// not see it. Reads nothing from the device.
pub fn hidden_claim(path: &Path) -> Option<String> {
    if !is_claimed(path) {
        return None;
    }
    if let Some((pid, point)) = mounted_elsewhere(path) {
        return Some(format!(
            "mounted at {point} in the mount namespace of process {}: unmount it there",
            named(pid)
        ));
    }
    let mut users = file_system_users(path).map(named);
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

/// Returns the users of the device at `path`, or its exclusive holder, for a message: `in use by process 12
/// (dd)`.
pub(crate) fn who_uses(path: &Path) -> String {
    let openers = openers(path);
    if !openers.is_empty() {
        return format!("in use by process {}", openers.join(", "));
    }
    let numbers = numbers(path);
    let mount = mounts(&Root::machine()).into_iter().find(|mount| numbers.contains(&mount.device));
    match mount {
        Some(mount) => format!("mounted at {}", status::shown(&mount.point)),
        None => hidden_claim(path).unwrap_or_else(|| "in use by another process".to_string()),
    }
}

fn named(pid: u32) -> String {
    format!("{pid} ({})", name(pid))
}
