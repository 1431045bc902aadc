//! A file in a btrfs that compresses everything by zstd at level 1, on a loop device. It is written by way of
//! the page cache: btrfs does not compress direct writes.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Space, Store, Workshop, loops, mounts};
use crate::error::{BenchError, Result};
use crate::fio::IoTarget;
use crate::process::{self, Stop};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Smallest file system that is made: smaller ones mix data and metadata.
const SMALLEST_BYTES: u64 = 1 << 30;

/// A mounted file system with one file.
pub(crate) struct Btrfs {
    io_target: IoTarget,
    mount: PathBuf,
    backing: PathBuf,
    size_bytes: u64,
}

/// Size of the file system: what was overwritten stays until it is committed, or all of a compressed extent
/// was.
pub(super) fn most_bytes(size_bytes: u64) -> u64 {
    size_bytes.saturating_mul(2)
}

pub(crate) fn lacks() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("mounting needs root".to_string());
    }
    for (program, package) in [("mkfs.btrfs", "btrfs-progs"), ("losetup", "mount"), ("mount", "mount")] {
        if process::find(program).is_none() {
            return Some(format!("no {program} (package {package})"));
        }
    }
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    (!known.split_whitespace().any(|word| word == "btrfs")).then(|| "the kernel has no btrfs".to_string())
}

fn run(program: &str, arguments: &[&str], folder: &Path, stop: &Stop) -> Result<String> {
    let path = process::need(program, "mount")?;
    process::run(&path, arguments, folder, COMMAND, stop).map(|ended| ended.output)
}

impl Btrfs {
    pub(crate) fn open(workshop: &Workshop<'_>) -> Result<Btrfs> {
        let backing = workshop.path("btrfs.raw");
        let size = most_bytes(workshop.size_bytes).max(SMALLEST_BYTES);
        File::create(&backing).and_then(|file| file.set_len(size)).map_err(BenchError::io(&backing))?;
        let run = |program: &str, arguments: &[&str]| run(program, arguments, workshop.folder, workshop.stop);
        let backing_text = backing.display().to_string();
        let mount = workshop.path("btrfs");
        // Before the loop device is made, so that it goes away whatever fails.
        let store = Btrfs {
            io_target: IoTarget::Cached(mount.join("file")),
            mount,
            backing,
            size_bytes: workshop.size_bytes,
        };
        let found = run("losetup", &["--find", "--show", "--direct-io=on", &backing_text])?;
        let device = found.trim();
        run("mkfs.btrfs", &["-q", device])?;
        fs::create_dir_all(&store.mount).map_err(BenchError::io(&store.mount))?;
        let mount_text = store.mount.display().to_string();
        run("mount", &["-t", "btrfs", "-o", "compress-force=zstd:1", device, &mount_text])?;
        // From here on it goes away with the mount, even if this program is killed.
        run("losetup", &["--detach", device])?;
        let file = store.mount.join("file");
        File::create(&file).and_then(|made| made.set_len(store.size_bytes)).map_err(BenchError::io(&file))?;
        Ok(store)
    }

    /// Bytes of data and metadata that the file system has in use.
    fn used_bytes(&self) -> Option<u64> {
        let found = run(
            "findmnt",
            &["-n", "-o", "UUID", &self.mount.display().to_string()],
            &std::env::temp_dir(),
            &Stop::default(),
        );
        let allocation = PathBuf::from("/sys/fs/btrfs").join(found.ok()?.trim()).join("allocation");
        ["data", "metadata", "system"]
            .iter()
            .map(|kind| {
                let text = fs::read_to_string(allocation.join(kind).join("disk_used")).ok()?;
                text.trim().parse::<u64>().ok()
            })
            .sum()
    }
}

impl Store for Btrfs {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
    }

    fn capacity_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn is_in_kernel(&self) -> bool {
        true
    }

    fn must_compress(&self) -> bool {
        true
    }

    fn space(&self) -> Result<Option<Space>> {
        let file = File::open(&self.mount).map_err(BenchError::io(&self.mount))?;
        rustix::fs::syncfs(&file).map_err(|error| BenchError::io(&self.mount)(error.into()))?;
        let Some(used) = self.used_bytes() else { return Ok(None) };
        let logical = super::allocated_bytes(&self.mount.join("file"));
        let ratio = logical as f64 / used.max(1) as f64;
        Ok(Some(Space { logical_used_bytes: logical, physical_used_bytes: used, ratio, ..Space::default() }))
    }
}

impl Drop for Btrfs {
    fn drop(&mut self) {
        mounts::unmount(&self.mount);
        loops::detach(&self.backing);
        let _ = fs::remove_dir(&self.mount);
        let _ = fs::remove_file(&self.backing);
    }
}
