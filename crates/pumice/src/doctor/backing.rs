//! The backing of the drive: file system, space, direct I/O, discard.
//!
//! Tests either read, or write to a temporary file beside the drive. Nothing is ever written to the drive.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

use host::mounts::{Mount, mount_of, mounts};
use media::{Allocation, Direct, FileMedia, MediaError};
use rustix::fs::{FallocateFlags, IFlags};
use status::shown;

use super::disks::queue_of;
use super::finding::Finding;
use super::{Patient, Target};
use crate::free_space::free_bytes;
use crate::human;

/// Size of the temporary file for tests.
const TRIAL_BYTES: u64 = 1 << 20;
/// Unit of direct I/O in bytes.
const PAGE_BYTES: u64 = 4096;

pub(super) fn checks(patient: &Patient) -> Vec<Finding> {
    let mounts = mounts(&patient.root);
    let mount = mount_of(&mounts, patient.place());
    let mut findings = Vec::new();
    if patient.target != Target::BlockDevice {
        findings.push(filesystem(patient, mount));
        findings.push(promised_space(patient));
    }
    findings.push(direct_io(patient));
    findings.push(discard(patient));
    findings
}

fn filesystem(patient: &Patient, mount: Option<&Mount>) -> Finding {
    let check = "filesystem-below";
    let Some(mount) = mount else {
        return Finding::unknown(
            check,
            "the mount cannot be found",
            "ext4 and XFS are good places for a drive",
        );
    };
    let kind = mount.kind.as_str();
    let at = format!("{kind} at {}", shown(&mount.point));
    let compressing = mount.has("compress") || mount.has("compress-force");
    match kind {
        "ext4" | "ext3" | "ext2" | "xfs" | "f2fs" | "jfs" => Finding::ok(check, at),
        "btrfs" if has_flag(patient, IFlags::NOCOW) => {
            Finding::ok(check, format!("{at}, without copy-on-write here"))
        }
        "btrfs" | "zfs" | "bcachefs" | "nilfs2" => {
            let also = if compressing { " and compresses once more" } else { "" };
            Finding::warn(
                check,
                format!("{at} copies on write below a drive that does so itself{also}"),
                match kind {
                    "btrfs" => "make the file in a directory with chattr +C, or use a partition",
                    "zfs" => "use a partition, or a zvol with compression=off",
                    _ => "use a partition, ext4 or XFS",
                },
            )
        }
        "tmpfs" | "ramfs" => {
            Finding::warn(check, format!("{at} is memory"), "nothing in it survives a restart")
        }
        "overlay" => Finding::warn(
            check,
            format!("{at} is a container's layer"),
            "use a volume, for it may go with the container",
        ),
        "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" => Finding::warn(
            check,
            format!("{at} is on a network"),
            "locks and flushes are only as good as its server's; local disks are better",
        ),
        _ if kind.starts_with("fuse") => {
            Finding::warn(check, format!("{at} runs in user space"), "see that its fsync reaches the disk")
        }
        _ => Finding::unknown(check, at, "ext4 and XFS are good places for a drive"),
    }
}

/// Returns whether the file, or the directory of a file to be created, has a flag.
fn has_flag(patient: &Patient, flag: IFlags) -> bool {
    let flags = File::open(patient.place()).and_then(|file| Ok(rustix::fs::ioctl_getflags(&file)?));
    flags.is_ok_and(|flags| flags.contains(flag))
}

/// Checks that the file system has the space that a sparse file may still need.
fn promised_space(patient: &Patient) -> Finding {
    let check = "promised-space";
    let (size, taken) = match (patient.target, patient.size) {
        (Target::New, Some(size)) => (size, 0),
        (Target::New, None) => {
            return match free_bytes(patient.directory()) {
                Ok(free) => {
                    Finding::ok(check, format!("{} free; --size checks against it", human::bytes(free)))
                }
                Err(error) => Finding::unknown(check, format!("not available: {error}"), "see df"),
            };
        }
        _ => match std::fs::metadata(&patient.path) {
            Ok(metadata) => (metadata.len(), metadata.blocks() * 512),
            Err(error) => return Finding::unknown(check, format!("not available: {error}"), "see df"),
        },
    };
    let free = match free_bytes(patient.directory()) {
        Ok(free) => free,
        Err(error) => return Finding::unknown(check, format!("not available: {error}"), "see df"),
    };
    let missing = size.saturating_sub(taken);
    let found = format!(
        "{} of {} not taken from the file system yet, {} free there",
        human::bytes(missing),
        human::bytes(size),
        human::bytes(free)
    );
    if missing == 0 {
        Finding::ok(check, "all of it is taken from the file system")
    } else if missing > free {
        Finding::fail(
            check,
            found,
            "the file system can run full under the drive, which refuses writes then: free some, or make it smaller",
        )
    } else if patient.target == Target::New {
        Finding::ok(check, format!("{found}; use pumice create --preallocate to allocate it now"))
    } else {
        Finding::warn(
            check,
            found,
            "others may take it first; a drive made by create --preallocate keeps its space",
        )
    }
}

/// Tests whether direct I/O works.
fn direct_io(patient: &Patient) -> Finding {
    let check = "direct-io";
    let advice = "I/O goes through the page cache: slower, and memory is used twice; prefer a device with sectors of \
                  up to 4 KiB, ext4 or XFS";
    if patient.target == Target::New {
        return match on_trial(patient, Direct::On, |_| Ok(())) {
            Ok(()) => Finding::ok(check, "works in 4 KiB units (tried on a file beside it)"),
            Err(Trial::Direct) => Finding::warn(check, "is refused here", advice),
            Err(Trial::NoFile(why) | Trial::Other(why)) => {
                Finding::fail(check, why, "a drive could not be made here either")
            }
        };
    }
    // Opens without a lock, since a server may hold it.
    let direct = i32::try_from(rustix::fs::OFlags::DIRECT.bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(direct).open(&patient.path);
    let read = opened.and_then(|file| {
        // Two pages contain one whole aligned page, whatever the alignment of the allocation.
        let mut pages = vec![0; 2 * PAGE_BYTES as usize];
        let at = pages.as_ptr().align_offset(PAGE_BYTES as usize);
        Ok(rustix::io::pread(&file, &mut pages[at..at + PAGE_BYTES as usize], 0)?)
    });
    match read {
        Ok(_) => Finding::ok(check, "a 4 KiB read around the page cache works"),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Finding::warn(check, "is refused here", advice)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Finding::unknown(check, "not tried: the drive may not be read", "run it as the drive's owner")
        }
        Err(error) => Finding::fail(check, format!("a read failed: {error}"), "look after the backing"),
    }
}

/// Checks whether freed space can be returned to the backing.
fn discard(patient: &Patient) -> Finding {
    let check = "discard";
    let advice = "space that the drive frees stays taken in the backing";
    if patient.target == Target::BlockDevice {
        let Some(queue) = queue_of(patient) else {
            return Finding::unknown(check, "sysfs does not know the device", "see lsblk --discard");
        };
        return match patient.root_number(&queue.join("discard_max_bytes")) {
            Some(0) => Finding::warn(check, "the device takes no discards", advice),
            Some(most) => {
                let grain = patient.root_number(&queue.join("discard_granularity")).unwrap_or(0);
                let (grain, most) = (human::bytes(grain), human::bytes(most));
                Finding::ok(
                    check,
                    format!("the device takes discards in steps of {grain}, up to {most} at once"),
                )
            }
            None => Finding::unknown(check, "not available in sysfs", "see lsblk --discard"),
        };
    }
    let punched = on_trial(patient, Direct::Off, |file| {
        file.write_all(&vec![0x5a; TRIAL_BYTES as usize])?;
        file.sync_all()?;
        let before = file.metadata()?.blocks();
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&*file, hole, 0, TRIAL_BYTES)?;
        file.sync_all()?;
        Ok((before, file.metadata()?.blocks()))
    });
    match punched {
        Ok((before, after)) if after < before => {
            Finding::ok(check, "holes can be punched (tried on a file beside it)")
        }
        Ok(_) => Finding::warn(check, "holes are taken, but free nothing", advice),
        Err(Trial::NoFile(why)) => Finding::unknown(check, format!("not tried: {why}"), advice),
        Err(Trial::Other(why)) => Finding::warn(check, format!("cannot punch holes here: {why}"), advice),
        Err(Trial::Direct) => Finding::unknown(check, "not tried", advice),
    }
}

/// Reason why a test could not be made.
enum Trial {
    /// Direct I/O is refused.
    Direct,
    /// This user can create no file there.
    NoFile(String),
    Other(String),
}

/// Runs `act` on a new temporary file in the directory of the drive.
fn on_trial<T>(
    patient: &Patient,
    direct: Direct,
    act: impl FnOnce(&mut File) -> io::Result<T>,
) -> Result<T, Trial> {
    let failed = |error: io::Error| Trial::Other(format!("{}: {error}", patient.directory().display()));
    // The error of this library has the temporary name in it.
    let no_file =
        |error: io::Error| Trial::NoFile(format!("{}: {}", patient.directory().display(), error.kind()));
    let folder = tempfile::Builder::new()
        .prefix(".pumice-doctor-")
        .tempdir_in(patient.directory())
        .map_err(no_file)?;
    let path = folder.path().join("trial");
    // Created and opened in the same way as the file of a drive.
    let made = FileMedia::create(&path, TRIAL_BYTES, Allocation::Sparse, direct);
    drop(made.map_err(|error| match error {
        MediaError::DirectRefused { .. } => Trial::Direct,
        error => Trial::Other(error.to_string()),
    })?);
    let mut file = OpenOptions::new().read(true).write(true).open(&path).map_err(failed)?;
    act(&mut file).map_err(failed)
}
