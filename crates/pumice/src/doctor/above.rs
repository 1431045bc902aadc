//! Users of the drive on this machine: block devices attached to it by clients, and file systems mounted from
//! them.

use std::collections::HashSet;
use std::path::PathBuf;

use host::loops::{LoopDevice, loop_devices};
use host::mounts::{Mount, mounts};
use host::numbered;

use super::Patient;
use super::finding::Finding;
use super::mounted::{Above, NOT_SEEN, stack};
use super::{partitions, queue, shortage, trim};

/// All checks of this module.
const CHECKS: [&str; 7] =
    ["trim-above", "trim-gap", "partition-above", "flush-above", "wbt-above", "shortage-above", "swap-above"];

pub(super) fn checks(patient: &Patient) -> Vec<Finding> {
    let Some(pid) = patient.server_pid() else {
        let unknown = |check| Finding::unknown(check, "not being served", NOT_SEEN);
        return CHECKS.map(unknown).to_vec();
    };
    let devices = devices(patient, &sockets(patient, pid));
    let all = mounts(&patient.root);
    let mounted: Vec<(String, Vec<Above>)> = devices
        .into_iter()
        .map(|device| {
            let above = mounted(patient, &all, &device);
            (device, above)
        })
        .collect();
    let mut findings = trim::above(patient, &mounted);
    findings.push(trim::gap(patient, &mounted));
    findings.extend(partitions::checks(patient, &mounted));
    findings.extend(queue::checks(patient, &mounted));
    findings.extend(shortage::checks(patient, &mounted));
    findings
}

/// Returns the paths of the Unix sockets of a process.
fn sockets(patient: &Patient, pid: u32) -> HashSet<String> {
    let directory = patient.root.path(format!("proc/{pid}/fd"));
    let Ok(entries) = std::fs::read_dir(directory) else { return HashSet::new() };
    let inode = |entry: std::fs::DirEntry| {
        let link = std::fs::read_link(entry.path()).ok()?;
        Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_string())
    };
    let inodes: HashSet<String> = entries.flatten().filter_map(inode).collect();
    // proc(5): Num RefCount Protocol Flags Type St Inode Path
    let table = patient.root.text("proc/net/unix").unwrap_or_default();
    let path = |line: &str| {
        let mut fields = line.split_whitespace();
        let inode = fields.nth(6)?;
        let path = fields.next()?;
        (inodes.contains(inode) && path.starts_with('/')).then(|| path.to_string())
    };
    table.lines().filter_map(path).collect()
}

/// Returns the block devices that `pumice attach` has made, and those that clients have attached to an export
/// at one of the sockets.
fn devices(patient: &Patient, sockets: &HashSet<String>) -> Vec<String> {
    let block = |word: &'static str| patient.root.names("sys/block", move |name| numbered(name, word));
    let names = |command: &str, what: &str| command.contains(what);
    let commands = commands(patient);
    let connects =
        |command: &str| sockets.iter().any(|socket| names(command, socket)) && names_export(patient, command);
    let mut found = patient.attached.clone();
    for device in block("nbd") {
        // The client process that holds the connection.
        let pid = patient.root.number(format!("sys/block/{device}/pid"));
        let command = pid.and_then(|pid| command(patient, &pid.to_string()));
        if command.is_some_and(|command| connects(&command)) {
            found.push(device);
        }
    }
    for LoopDevice { name: device, file, .. } in loop_devices(&patient.root) {
        // A program that provides the export as a file, such as qemu-storage-daemon or nbdfuse, names both on
        // its command line.
        let folder = file.parent().map(|folder| folder.display().to_string()).unwrap_or_default();
        let file = file.display().to_string();
        // Of a file system that was unmounted, the path begins at its root: that says nothing.
        let is_known = folder != "/";
        let makes = |command: &String| {
            connects(command) && is_known && (names(command, &file) || names(command, &folder))
        };
        if commands.iter().any(makes) {
            found.push(device);
        }
    }
    found.sort();
    found.dedup();
    found
}

/// Returns whether a command line may refer to this drive's export. Clients name an export where a socket
/// offers several.
fn names_export(patient: &Patient, command: &str) -> bool {
    let name = patient.path.file_name().unwrap_or_default().to_string_lossy();
    let own = format!("{}.nbd", patient.path.display());
    command.contains(&own) || command.contains(name.as_ref())
}

fn commands(patient: &Patient) -> Vec<String> {
    let pids = patient.root.names("proc", |name| name.bytes().all(|byte| byte.is_ascii_digit()));
    pids.iter().filter_map(|pid| command(patient, pid)).collect()
}

fn command(patient: &Patient, pid: &str) -> Option<String> {
    Some(patient.root.text(format!("proc/{pid}/cmdline"))?.replace('\0', " "))
}

/// Returns the mounts of a device, its partitions and the devices stacked on them, each file system once.
fn mounted(patient: &Patient, all: &[Mount], device: &str) -> Vec<Above> {
    let of_device = |name: String| {
        let number = patient.root.text(PathBuf::from("sys/class/block").join(&name).join("dev"));
        let source = format!("/dev/{name}");
        let mut seen = HashSet::new();
        let mounts = all
            .iter()
            .filter(move |mount| Some(&mount.device) == number.as_ref() || mount.source == source)
            .filter(move |mount| seen.insert(mount.device.clone()));
        mounts.map(move |mount| (name.clone(), mount.clone()))
    };
    stack(&patient.root, device).into_iter().flat_map(of_device).collect()
}
