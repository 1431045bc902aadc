//! What makes one volume of several devices: LVM, or btrfs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{BenchError, Result};
use crate::fio::IoTarget;
use crate::process::{self, Stop};
use crate::store::{Workshop, mounts};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Part of each request that goes to one device: btrfs has no other, and LVM's default is the same.
const STRIPE: &str = "64k";
/// Share of the free space of a new btrfs that one file takes: its metadata grows a little.
const FILLED: f64 = 0.97;

/// A layer, taken away when dropped. The devices stay.
pub(super) enum Layer {
    /// A volume group with one logical volume.
    Lvm {
        group: String,
        devices: Vec<String>,
    },
    Btrfs {
        mount: PathBuf,
        devices: Vec<String>,
    },
}

/// The node may be there without the driver: packages make it.
fn has_device_mapper() -> bool {
    File::open("/dev/mapper/control").is_ok() && process::find("lvcreate").is_some()
}

/// Why neither works here; `None` if one does.
pub(super) fn lacks() -> Option<String> {
    if has_device_mapper() {
        return None;
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if !known.split_whitespace().any(|word| word == "btrfs") {
        return Some("the kernel has neither device-mapper nor btrfs".to_string());
    }
    let mkfs = process::find("mkfs.btrfs").is_none();
    mkfs.then(|| "no device-mapper, and no mkfs.btrfs (package btrfs-progs)".to_string())
}

pub(super) fn name() -> &'static str {
    match has_device_mapper() {
        true => "LVM, stripes of 64 KiB",
        false => "btrfs RAID-0, stripes of 64 KiB: the kernel has no device-mapper",
    }
}

fn run(program: &str, package: &'static str, arguments: &[&str], folder: &Path, stop: &Stop) -> Result<()> {
    process::run(&process::need(program, package)?, arguments, folder, COMMAND, stop).map(drop)
}

/// A command of LVM that sees these devices only, waits for no udev, and keeps no copies of metadata in /etc.
fn lvm(program: &str, devices: &[String], more: &[&str], folder: &Path, stop: &Stop) -> Result<()> {
    const SETTINGS: &str = "devices { types=[\"ublkb\", 16, \"loop\", 16] } activation { udev_sync=0 udev_rules=0 } \
                            backup { backup=0 archive=0 }";
    let devices = devices.join(",");
    let arguments = [&["--devices", devices.as_str(), "--config", SETTINGS], more].concat();
    run(program, "lvm2", &arguments, folder, stop)
}

impl Layer {
    /// Makes a volume of devices of `capacity_bytes` together. Returns also where it is, and how much of it
    /// jobs can use.
    pub(super) fn new(
        workshop: &Workshop<'_>,
        devices: &[&Path],
        capacity_bytes: u64,
    ) -> Result<(Layer, IoTarget, u64)> {
        let devices: Vec<String> = devices.iter().map(|device| device.display().to_string()).collect();
        match has_device_mapper() {
            true => Layer::lvm(workshop, devices, capacity_bytes),
            false => Layer::btrfs(workshop, devices),
        }
    }

    fn lvm(
        workshop: &Workshop<'_>,
        devices: Vec<String>,
        capacity_bytes: u64,
    ) -> Result<(Layer, IoTarget, u64)> {
        /// Taken at the start of each device, and what does not fill an extent at its end.
        const LABEL_BYTES: u64 = 8 << 20;
        let group = format!("pumice_bench_{}", std::process::id());
        let count = devices.len() as u64;
        // Before it is made, so that it goes away whatever fails.
        let layer = Layer::Lvm { group: group.clone(), devices: devices.clone() };
        let run = |program: &str, more: &[&str]| lvm(program, &devices, more, workshop.folder, workshop.stop);
        let names: Vec<&str> = devices.iter().map(String::as_str).collect();
        run("vgcreate", &[&[group.as_str()], &names[..]].concat())?;
        let stripes = count.to_string();
        let mut more = vec!["--yes", "--wipesignatures", "n", "--zero", "n", "--extents", "100%FREE"];
        if count > 1 {
            more.extend(["--stripes", &stripes, "--stripesize", STRIPE]);
        }
        more.extend(["--name", "data", &group]);
        run("lvcreate", &more)?;
        let path = PathBuf::from(format!("/dev/mapper/{group}-data"));
        if !path.exists() {
            // Without udev nobody else makes it.
            run_mknodes(workshop)?;
        }
        Ok((layer, IoTarget::File(path), capacity_bytes - count * LABEL_BYTES))
    }

    /// A file that is neither copied on write nor checked by the file system, so that it costs little: what
    /// is left is the stripe.
    fn btrfs(workshop: &Workshop<'_>, devices: Vec<String>) -> Result<(Layer, IoTarget, u64)> {
        let mount = workshop.path("volume");
        let layer = Layer::Btrfs { mount: mount.clone(), devices: devices.clone() };
        let run = |program: &str, package, arguments: &[&str]| {
            run(program, package, arguments, workshop.folder, workshop.stop)
        };
        let profile = if devices.len() > 1 { "raid0" } else { "single" };
        let names: Vec<&str> = devices.iter().map(String::as_str).collect();
        let make = [&["-q", "-f", "-d", profile, "-m", profile], &names[..]].concat();
        run("mkfs.btrfs", "btrfs-progs", &make)?;
        fs::create_dir_all(&mount).map_err(BenchError::io(&mount))?;
        let all: Vec<String> = devices.iter().map(|device| format!("device={device}")).collect();
        let options = format!("nodatacow,noatime,{}", all.join(","));
        let mount_text = mount.display().to_string();
        run("mount", "mount", &["-t", "btrfs", "-o", &options, &devices[0], &mount_text])?;
        let file = mount.join("file");
        let free = rustix::fs::statvfs(&mount).map_err(|error| BenchError::io(&mount)(error.into()))?;
        let bytes = ((free.f_bavail * free.f_frsize) as f64 * FILLED) as u64 >> 20 << 20;
        File::create(&file).and_then(|made| made.set_len(bytes)).map_err(BenchError::io(&file))?;
        Ok((layer, IoTarget::File(file), bytes))
    }
}

fn run_mknodes(workshop: &Workshop<'_>) -> Result<()> {
    run("dmsetup", "dmsetup", &["mknodes"], workshop.folder, workshop.stop)
}

impl Drop for Layer {
    fn drop(&mut self) {
        let (folder, never) = (std::env::temp_dir(), Stop::default());
        match self {
            Layer::Lvm { group, devices } => {
                let _ = lvm("vgremove", devices, &["--force", "--yes", group], &folder, &never);
            }
            Layer::Btrfs { mount, devices } => {
                mounts::unmount(mount);
                for device in devices {
                    // The kernel remembers the parts of a file system; another one may come on the same
                    // device.
                    let arguments = ["device", "scan", "--forget", device];
                    let _ = run("btrfs", "btrfs-progs", &arguments, &folder, &never);
                }
                let _ = fs::remove_dir(mount);
            }
        }
    }
}
