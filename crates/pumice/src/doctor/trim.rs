//! Checks that space deleted above the drive is freed on the drive.

use std::path::Path;

use host::mounts::Mount;
use status::shown;

use super::Patient;
use super::finding::Finding;
use super::mounted::{Above, NOT_SEEN};
use crate::human;

/// Link that exists if systemd runs `fstrim` every week.
const TRIM_TIMER: &str = "etc/systemd/system/timers.target.wants/fstrim.timer";
/// Largest difference that is ignored, in bytes: recently deleted data.
const GAP_MIN_BYTES: u64 = 16 << 20;
/// Largest difference that is ignored, as a fraction of the data on the drive: one in ten.
const GAP_SHARE: u64 = 10;

/// Reports how each file system on the drive is trimmed.
pub(super) fn above(patient: &Patient, devices: &[(String, Vec<Above>)]) -> Vec<Finding> {
    let check = "trim-above";
    let advice = "mount with -o discard, or enable fstrim.timer, wherever it is used";
    let mut findings = Vec::new();
    for (device, mounted) in devices {
        if mounted.is_empty() {
            let found = format!("/dev/{device} is this drive, and not mounted");
            findings.push(Finding::unknown(check, found, advice));
        }
        findings.extend(mounted.iter().map(|(device, mount)| trim(patient, device, mount)));
    }
    if findings.is_empty() {
        findings.push(Finding::unknown(
            check,
            "no block device of this machine is seen to be this drive",
            advice,
        ));
    }
    findings
}

/// Compares the data on the drive with the space used by the file systems on it. The difference was freed by
/// a file system but not trimmed. Used space is the device size minus free space, so it includes the journal
/// and tables, which df omits.
pub(super) fn gap(patient: &Patient, devices: &[(String, Vec<Above>)]) -> Finding {
    let check = "trim-gap";
    let mounted: Vec<&Above> = devices.iter().flat_map(|(_, mounted)| mounted).collect();
    let Some(status) = patient.status.as_ref().filter(|_| !mounted.is_empty()) else {
        return Finding::unknown(
            check,
            "no file system of this machine is seen to be on this drive",
            NOT_SEEN,
        );
    };
    let mut used = 0;
    for (device, mount) in mounted {
        let at = shown(&mount.point);
        // In sectors of 512 bytes, whatever the sector size of the disk.
        let sectors = patient.root.number(format!("sys/class/block/{device}/size"));
        let space = rustix::fs::statvfs(patient.root.path(&mount.point));
        let (Some(sectors), Ok(space)) = (sectors, space) else {
            return Finding::unknown(
                check,
                format!("the space of {at} is not available"),
                "compare df with it",
            );
        };
        let free = space.f_bfree.saturating_mul(space.f_frsize);
        used += sectors.saturating_mul(512).saturating_sub(free);
    }
    let held = status.logical_used_bytes;
    let gap = held.saturating_sub(used);
    let found = format!("the drive holds {}, file systems use {}", human::bytes(held), human::bytes(used));
    if gap < GAP_MIN_BYTES || gap < held / GAP_SHARE {
        return Finding::ok(check, found);
    }
    Finding::warn(
        check,
        format!("{found}: {} freed and not trimmed", human::bytes(gap)),
        "run fstrim on them now; trim-above shows whether it happens by itself",
    )
}

fn trim(patient: &Patient, device: &str, mount: &Mount) -> Finding {
    let check = "trim-above";
    let at = format!("{} at {} (/dev/{device})", mount.kind, shown(&mount.point));
    if patient.root.number(format!("sys/class/block/{device}/queue/discard_max_bytes")) == Some(0) {
        return Finding::warn(
            check,
            format!("{at}: its device passes no discards on"),
            "what is deleted there stays taken on the drive: allow discards in the layer between",
        );
    }
    if mount.has("discard") {
        return Finding::ok(check, format!("{at} discards what is deleted"));
    }
    if std::fs::symlink_metadata(patient.root.path(TRIM_TIMER)).is_ok() {
        return match is_trimmed_by_timer(&patient.root.text("etc/fstab").unwrap_or_default(), mount) {
            true => Finding::ok(check, format!("{at} is trimmed by fstrim.timer")),
            false => Finding::warn(
                check,
                format!("{at} is not in /etc/fstab, so fstrim.timer does not trim it"),
                "what is deleted there stays taken on the drive: mount with -o discard, or list it in /etc/fstab",
            ),
        };
    }
    Finding::warn(
        check,
        format!("{at} neither discards nor is trimmed by fstrim.timer"),
        "what is deleted there stays taken on the drive: mount with -o discard, or systemctl enable --now fstrim.timer",
    )
}

/// Whether `fstrim.service` trims a file system: those in fstab, or all that are mounted if it lists none
/// (`fstrim --listed-in /etc/fstab:/proc/self/mountinfo`).
fn is_trimmed_by_timer(fstab: &str, mount: &Mount) -> bool {
    let mut points = fstab
        .lines()
        .map(str::trim_start)
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().nth(1))
        .map(|point| point.replace("\\040", " "))
        .peekable();
    points.peek().is_none() || points.any(|point| Path::new(&point) == mount.point)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_trims_what_fstab_lists_or_else_all() {
        let mount = Mount {
            device: "7:0".into(),
            root: "/".into(),
            point: "/srv/a b".into(),
            kind: "ext4".into(),
            source: "/dev/loop0".into(),
            options: Vec::new(),
        };
        let is_trimmed = |fstab| is_trimmed_by_timer(fstab, &mount);
        assert!(is_trimmed("") && is_trimmed("# /dev/sda1 / ext4\n\n"));
        assert!(!is_trimmed("/dev/sda1 / ext4 defaults 0 1\n"));
        assert!(is_trimmed("/dev/sda1 / ext4\nLABEL=x /srv/a\\040b ext4\n"));
    }
}
