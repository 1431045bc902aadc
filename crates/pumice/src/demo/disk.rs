//! The demo drive as a block device with a file system: `pumice attach`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use ask::ask_status;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use status::StatusReport;

use super::mount::Mount;
use super::server::{of_attachment, path_text, runtime_dir};
use super::tools::{installed, wait_until};

/// Time limit of the start of another server.
const LIMIT: Duration = Duration::from_secs(60);
/// Time for which requests wait for a server, in seconds.
const TIMEOUT_SECONDS: &str = "60";

/// An attached drive. The process behind the device starts its server, again when it was killed. Dropping
/// this unmounts and detaches it.
pub(super) struct Disk {
    folder: PathBuf,
    device: String,
    /// How the device is made.
    way: String,
    mounted: Mount,
    is_attached: bool,
}

impl Disk {
    /// Returns the reason why a drive cannot be attached and mounted on this machine, if any.
    pub(super) fn missing() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("block devices and mounts need root".to_string());
        }
        let have = |devices: &[&str]| devices.iter().all(|device| Path::new(device).exists());
        if ![&["/dev/ublk-control"][..], &["/dev/fuse", "/dev/loop-control"], &["/dev/nbd0"]]
            .into_iter()
            .any(have)
        {
            return Some("no ublk, no nbd, and no /dev/fuse with /dev/loop-control here".to_string());
        }
        let programs = ["env", "mount", "umount", "mkfs.ext4", "e2fsck"];
        let missing = programs.into_iter().find(|program| !installed(program));
        missing.map(|program| format!("{program} is not installed; scripts/deps.sh installs it"))
    }

    /// Attaches the file `drive` in `folder`, which starts its server, and makes an ext4 file system on it.
    pub(super) fn make(folder: &Path) -> Result<Disk> {
        let drive = folder.join("drive");
        let arguments =
            ["attach", path_text(&drive)?, "--mkfs", "ext4", "--timeout", TIMEOUT_SECONDS, "--json"];
        let answer = of_attachment(folder, &arguments)?;
        let answer: Value = serde_json::from_str(&answer).context("the answer of attach")?;
        let text = |name: &str| answer[name].as_str().unwrap_or_default().to_string();
        Ok(Disk {
            folder: folder.to_path_buf(),
            device: text("device"),
            way: text("by"),
            mounted: Mount::default(),
            is_attached: true,
        })
    }

    /// Path of the block device.
    pub(super) fn device(&self) -> &str {
        &self.device
    }

    /// How the device is made: `ublk`, `loop` or `nbd`.
    pub(super) fn way(&self) -> &str {
        &self.way
    }

    /// Returns the status of the drive.
    pub(super) fn status(&self) -> Result<StatusReport> {
        let sockets = fs::read_dir(runtime_dir(&self.folder)).context("no server")?.flatten();
        let answers = sockets.into_iter().filter_map(|socket| ask_status(&socket.path()).ok());
        answers.flat_map(|answer| answer.drives).next().ok_or_else(|| anyhow!("no server has the drive"))
    }

    /// Kills the server with SIGKILL. Returns the status from the next one, and the time until it served the
    /// drive.
    pub(super) fn kill_server(&self) -> Result<(StatusReport, Duration)> {
        let server = |status: &StatusReport| status.server.as_ref().map(|server| server.pid);
        let killed = server(&self.status()?);
        let pid = killed.and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let since = Instant::now();
        kill_process(pid.context("the server has no process id")?, Signal::KILL)
            .context("cannot kill the server")?;
        let status = wait_until(LIMIT, "the next server", || {
            Ok(self.status().ok().filter(|status| server(status) != killed))
        })?;
        Ok((status, since.elapsed()))
    }

    /// Mounts the file system of the device.
    pub(super) fn mount(&mut self, point: &Path) -> Result<()> {
        let device = self.device().to_string();
        self.mounted.mount(&device, point)
    }

    /// Unmounts the file system, which writes its data to the drive.
    pub(super) fn unmount(&mut self) -> Result<()> {
        self.mounted.unmount()
    }

    /// Flushes the drive and removes the device.
    pub(super) fn detach(mut self) -> Result<()> {
        of_attachment(&self.folder, &["detach", &self.device])?;
        self.is_attached = false;
        Ok(())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // After a failure. Tries each step even if an earlier one failed; errors cannot be handled here.
        let _ = self.unmount();
        if self.is_attached {
            let _ = of_attachment(&self.folder, &["detach", "--force", &self.device]);
        }
    }
}
