//! One device of a volume: an attached drive, or a plain file behind a loop device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::error::{BenchError, Result};
use crate::process::{self, Stop};
use crate::store::pumice::Asks;
use crate::store::{Space, Workshop, allocated_bytes, drop_cached};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);

/// A device, removed with its file when dropped.
pub(super) struct Member {
    file: PathBuf,
    device: PathBuf,
    /// How to ask about the drive; `None`: a plain file.
    asks: Option<Asks>,
    pids: Vec<u32>,
}

/// What is used of `pumice attach --json`.
#[derive(Deserialize)]
struct Attached {
    device: PathBuf,
}

/// What is used of the record of an attachment.
#[derive(Deserialize)]
struct Record {
    path: PathBuf,
    bridge_pid: Option<u32>,
    server_pid: Option<u32>,
    connected_pid: Option<u32>,
}

impl Member {
    /// A new drive, served and attached by the program itself.
    pub(super) fn drive(workshop: &Workshop<'_>, number: u32, size: u64, capacity: u64) -> Result<Member> {
        let file = workshop.path(&format!("drive-{number}"));
        let asks = Asks::new(workshop, &file);
        // Before it is attached, so that it goes away whatever fails.
        let mut member = Member { file, device: PathBuf::new(), asks: None, pids: Vec::new() };
        let (size, capacity) = (size.to_string(), capacity.to_string());
        asks.run("create", &["--size", &size, "--capacity", &capacity, "--codec", "auto"], COMMAND)?;
        let cache = workshop.read_cache();
        let more = ["--json", "--", "--background-cpu", "10", "--read-cache", &cache];
        let attached = asks.run("attach", &more, COMMAND);
        member.asks = Some(asks);
        let text = attached?;
        let wrong = |error: serde_json::Error| BenchError::Format {
            what: "pumice attach".to_string(),
            problem: error.to_string(),
        };
        member.device = serde_json::from_str::<Attached>(&text).map_err(wrong)?.device;
        member.pids = pids(&workshop.path("run-attach"), &member.file);
        Ok(member)
    }

    /// A new file behind a loop device.
    pub(super) fn raw(workshop: &Workshop<'_>, number: u32, size: u64) -> Result<Member> {
        let file = workshop.path(&format!("disk-{number}"));
        File::create(&file).and_then(|made| made.set_len(size)).map_err(BenchError::io(&file))?;
        let mut member = Member { file, device: PathBuf::new(), asks: None, pids: Vec::new() };
        let losetup = process::need("losetup", "mount")?;
        let path = member.file.display().to_string();
        let arguments = ["--find", "--show", "--direct-io=on", &path];
        let ended = process::run(&losetup, &arguments, workshop.folder, COMMAND, workshop.stop)?;
        member.device = ended.output.trim().into();
        Ok(member)
    }

    pub(super) fn device(&self) -> &Path {
        &self.device
    }

    /// The server of the drive, and the process between it and the kernel.
    pub(super) fn pids(&self) -> Vec<u32> {
        self.pids.clone()
    }

    pub(super) fn space(&self) -> Result<Option<Space>> {
        let Some(asks) = &self.asks else {
            let used = allocated_bytes(&self.file);
            let space =
                Space { logical_used_bytes: used, physical_used_bytes: used, ratio: 1.0, ..Space::default() };
            return Ok(Some(space));
        };
        asks.space().map(Some)
    }

    pub(super) fn drop_caches(&self) {
        drop_cached(&self.file);
    }
}

/// Processes of an attached drive, from the records that `pumice attach` keeps in a folder.
fn pids(records: &Path, drive: &Path) -> Vec<u32> {
    let folders = fs::read_dir(records).into_iter().flatten().flatten();
    let texts = folders.filter_map(|folder| fs::read_to_string(folder.path().join("attachment.json")).ok());
    let found = texts.filter_map(|text| serde_json::from_str::<Record>(&text).ok());
    let record = found.into_iter().find(|record| record.path == drive);
    record.map_or(Vec::new(), |it| {
        it.bridge_pid.into_iter().chain(it.connected_pid.or(it.server_pid)).collect()
    })
}

impl Drop for Member {
    fn drop(&mut self) {
        let (folder, never) = (std::env::temp_dir(), Stop::default());
        if let Some(asks) = &self.asks {
            let asks = asks.unstoppable();
            if asks.run("detach", &[], COMMAND).is_err() {
                let _ = asks.run("detach", &["--force"], COMMAND);
            }
        } else if let (false, Some(losetup)) = (self.device.as_os_str().is_empty(), process::find("losetup"))
        {
            let device = self.device.display().to_string();
            let _ = process::run(&losetup, &["--detach", &device], &folder, COMMAND, &never);
        }
        let _ = fs::remove_file(&self.file);
    }
}
