//! An NBD export as a block device with a file system, without the nbd kernel module. `qemu-storage-daemon`
//! provides the export as a file (FUSE), and `losetup` makes a block device of that file. Trim, write zeroes
//! and flush are passed through. Unlike the device of `pumice attach` it is lost with its server. Without
//! direct I/O on the loop device: with it, such a file corrupts ext4 (docs/explanation/attach.md).

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use launch::wait;
use rustix::process::{Pid, Signal, kill_process};

use crate::common::mounts::wait_until_unused;
use crate::mount::Mount;
use crate::tools::{command, installed, kill, run, run_always, wait_until};

/// Timeout of each step.
const LIMIT: Duration = Duration::from_secs(60);

/// A block device on an NBD export. Dropping it unmounts and detaches everything, in order.
pub(crate) struct Disk {
    daemon: Child,
    /// The file on which the daemon mounts the export.
    file: PathBuf,
    device: Option<String>,
    mounted: Mount,
}

impl Disk {
    /// Returns the reason why such a device cannot be created on this machine, if any.
    pub(crate) fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("loop devices and mounts need root".to_string());
        }
        if !Path::new("/dev/fuse").exists() || !Path::new("/dev/loop-control").exists() {
            return Some("no /dev/fuse or no /dev/loop-control here".to_string());
        }
        let programs = ["qemu-storage-daemon", "losetup", "mount", "umount"];
        programs.into_iter().find(|program| !installed(program)).map(|it| format!("{it} is not installed"))
    }

    /// Attaches the export at a Unix socket. `folder` holds the intermediate file.
    pub(crate) fn attach(folder: &Path, socket: &Path) -> Result<Disk> {
        let file = folder.join("export");
        File::create(&file).with_context(|| format!("{}: cannot make it", file.display()))?;
        let escaped = |path: &Path| path.display().to_string().replace(',', ",,");
        let node = "driver=nbd,node-name=n,discard=unmap,server.type=unix";
        let blockdev = format!("{node},server.path={}", escaped(socket));
        let export = format!("type=fuse,id=e,node-name=n,writable=on,mountpoint={}", escaped(&file));
        let mut daemon = command("qemu-storage-daemon", &["--blockdev", &blockdev, "--export", &export])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run qemu-storage-daemon")?;
        let shown = wait_until(LIMIT, "qemu-storage-daemon", || {
            if let Some(status) = daemon.try_wait()? {
                bail!("qemu-storage-daemon ended at once ({status})");
            }
            Ok(fs::metadata(&file).is_ok_and(|metadata| metadata.len() > 0).then_some(()))
        });
        if let Err(error) = shown {
            kill(&mut daemon);
            return Err(error);
        }
        let mut disk = Disk { daemon, file, device: None, mounted: Mount::default() };
        let device =
            run("losetup", &[OsStr::new("--find"), "--show".as_ref(), disk.file.as_os_str()], LIMIT)?;
        disk.device = Some(device.trim().to_string());
        Ok(disk)
    }

    /// Path of the block device.
    pub(crate) fn device(&self) -> &str {
        self.device.as_deref().unwrap_or_default()
    }

    /// Mounts the file system of the device.
    pub(crate) fn mount(&mut self, point: &Path) -> Result<()> {
        let device = self.device().to_string();
        self.mounted.mount(&device, point)
    }

    /// Unmounts the file system, which writes its data to the drive.
    pub(crate) fn unmount(&mut self) -> Result<()> {
        self.mounted.unmount()?;
        wait_until_unused(self.device());
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Tries each step even if an earlier one failed. Errors cannot be handled here.
        let _ = self.unmount();
        if let Some(device) = self.device.take() {
            let _ = run_always("losetup", &["--detach", &device], LIMIT);
        }
        if !terminate(&mut self.daemon) {
            let _ = run_always("umount", &[OsStr::new("-l"), self.file.as_os_str()], LIMIT);
        }
    }
}

/// Asks a child to end, and kills it after a while. Returns true if it exited successfully.
fn terminate(child: &mut Child) -> bool {
    // The process id is still valid, because the child was not waited for yet.
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    let ended = wait(child, LIMIT).ok().flatten();
    if ended.is_none() {
        kill(child);
    }
    ended.is_some_and(|status| status.success())
}
