//! The file systems whose files are searched, and where they are on the drive.

use std::collections::HashSet;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use attach::client;
use host::Root;
use host::block::{PartOfDisk, node, numbers_above, part_of_disk};
use host::file::device_number;
use host::mounts::{Mount, mount_of, mounts};
use status::{StatusReport, shown};

use crate::{joined, usage};

/// File systems that spread over several devices: the places that they report are not those of a device.
const OWN_ADDRESSES: [&str; 3] = ["btrfs", "bcachefs", "zfs"];

/// A mounted file system on the drive.
#[derive(Debug)]
pub(in crate::check) struct FileSystem {
    pub(super) point: PathBuf,
    /// Its type.
    pub(super) kind: String,
    /// The block device.
    pub(super) device: PathBuf,
    /// Number of its files' device.
    pub(super) number: u64,
    /// Bytes of the drive that the device has.
    pub(super) on_drive: Range<u64>,
}

/// The disk that is the drive.
struct Disk {
    /// Number, `MAJOR:MINOR`.
    number: String,
    node: PathBuf,
}

/// Returns the file system at a mount point or, without one, all that are mounted from the drive.
pub(in crate::check) fn find(drive: &StatusReport, point: Option<&Path>) -> Result<Vec<FileSystem>> {
    let disk = attached(drive);
    let all = mounts(&Root::machine());
    if let Some(point) = point {
        let absolute = std::fs::canonicalize(point).with_context(|| shown(point).to_string())?;
        // The last one at a mount point hides the others.
        let Some(mount) = all.iter().rfind(|mount| mount.point == absolute) else {
            let of = mount_of(&all, &absolute).map(|it| format!("; it is below {}", shown(&it.point)));
            bail!("{}: not a mount point{}", shown(point), of.unwrap_or_default());
        };
        return Ok(vec![file_system(mount, disk.as_ref(), drive)?]);
    }
    let path = drive.path.display();
    let Some(disk) = disk else {
        bail!(
            "{path}: no block device is known to be it (`pumice attach`): name the mount point, --files=MOUNT"
        )
    };
    let numbers = numbers_above(&disk.node);
    // btrfs has device numbers of its own. Its source is a device.
    let source = |mount: &Mount| std::fs::metadata(&mount.source).ok().map(|it| device_number(it.rdev()));
    let is_above = |mount: &&Mount| {
        numbers.contains(&mount.device) || source(mount).is_some_and(|number| numbers.contains(&number))
    };
    let mut above: Vec<&Mount> = all.iter().filter(is_above).collect();
    // Each file system once, by a mount of all of it if there is one.
    above.sort_by_key(|mount| mount.root != Path::new("/"));
    let mut seen = HashSet::new();
    above.retain(|mount| seen.insert(&mount.device));
    if above.is_empty() {
        bail!("{path}: no file system of {} is mounted here", disk.node.display());
    }
    let mut refusals = Vec::new();
    let found: Vec<FileSystem> = above
        .into_iter()
        .filter_map(|mount| file_system(mount, Some(&disk), drive).map_err(|why| refusals.push(why)).ok())
        .collect();
    match refusals.is_empty() || !found.is_empty() {
        true => refusals.iter().for_each(|why| usage::complain(&format!("warning: not searched: {why:#}"))),
        false => return Err(refusals.remove(0)),
    }
    Ok(found)
}

/// Returns the disk as which `pumice attach` shows the drive.
fn attached(drive: &StatusReport) -> Option<Disk> {
    let attachments = client::chosen(|record| record.matches(drive).is_some());
    let (mut drives, _) = joined::joined(vec![drive.clone()], attachments);
    let node = drives.pop()?.1?.record.node?;
    let number = std::fs::metadata(&node).ok()?.rdev();
    Some(Disk { number: device_number(number), node })
}

/// Returns a mounted file system, if it is on the drive and its files can be found.
fn file_system(mount: &Mount, disk: Option<&Disk>, drive: &StatusReport) -> Result<FileSystem> {
    let (point, kind) = (shown(&mount.point), &mount.kind);
    if OWN_ADDRESSES.contains(&kind.as_str()) {
        bail!("{point}: {kind} has addresses of its own, which are not those of the drive");
    }
    // XFS keeps the contents of files on another device then.
    if mount.has("rtdev") {
        bail!("{point}: {kind} with a real-time device, which is not the drive");
    }
    if mount.root != Path::new("/") {
        let root = shown(&mount.root);
        bail!("{point}: only {root} of its file system is mounted there; name a mount of all of it");
    }
    let root = Root::machine();
    let part = part_of_disk(&root, &mount.device)
        .ok_or_else(|| anyhow!("{point}: {kind} is not on a block device"))?;
    let device = node(&part.name);
    match disk {
        Some(disk) if disk.number != part.disk => bail!(
            "{point}: on {}, which is neither {} nor a partition of it",
            device.display(),
            disk.node.display()
        ),
        Some(_) => {}
        None => must_look_like(drive, &part, &root).with_context(|| point.to_string())?,
    }
    let number = std::fs::metadata(&mount.point).with_context(|| point.to_string())?.dev();
    if device_number(number) != mount.device {
        bail!("{point}: another file system is mounted over it");
    }
    let on_drive = part.start_bytes..part.start_bytes.saturating_add(part.len_bytes);
    Ok(FileSystem { point: mount.point.clone(), kind: kind.clone(), device, number, on_drive })
}

/// Refuses a disk that cannot be the drive, where it is not known which one is.
fn must_look_like(drive: &StatusReport, part: &PartOfDisk, root: &Root) -> Result<()> {
    let device = node(&part.name);
    let (capacity, disk) = (drive.logical_capacity_bytes, part_of_disk(root, &part.disk));
    let has_size = disk.as_ref().is_some_and(|disk| disk.len_bytes == capacity);
    // A volume may be made of several disks, in any order.
    let is_volume = disk.as_ref().is_some_and(|it| it.name.starts_with("dm-") || it.name.starts_with("md"));
    if !has_size || is_volume {
        bail!(
            "on {}, which is neither the drive nor a partition of it: the drive has {capacity} bytes",
            device.display()
        );
    }
    usage::complain(&format!(
        "warning: {} is taken to be on the drive, because its disk has the size of it: `pumice attach` has not made it",
        device.display()
    ));
    Ok(())
}
