//! One device of a volume: an attached drive, or a plain file behind a loop device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use crate::error::{BenchError, Result};
use crate::process;
use crate::store::pumice::Asks;
use crate::store::{Space, Workshop, allocated_bytes, drop_cached, loops};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Folder of the records of attachments, beside the drives.
const RECORDS: &str = "run-attach";
/// Name of plain files, before their number.
const DISK: &str = "disk-";

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
        member.pids = member.record().map_or(Vec::new(), |it| {
            it.bridge_pid.into_iter().chain(it.connected_pid.or(it.server_pid)).collect()
        });
        Ok(member)
    }

    /// A new file behind a loop device.
    pub(super) fn raw(workshop: &Workshop<'_>, number: u32, size: u64) -> Result<Member> {
        let file = workshop.path(&format!("{DISK}{number}"));
        File::create(&file).and_then(|made| made.set_len(size)).map_err(BenchError::io(&file))?;
        let mut member = Member { file, device: PathBuf::new(), asks: None, pids: Vec::new() };
        let losetup = process::need("losetup", "mount")?;
        let path = member.file.display().to_string();
        let arguments = ["--find", "--show", "--direct-io=on", &path];
        let ended = process::run(&losetup, &arguments, workshop.folder, COMMAND, workshop.stop)?;
        member.device = ended.output.trim().into();
        Ok(member)
    }

    /// The record of the drive, while it is attached.
    fn record(&self) -> Option<Record> {
        records(self.file.parent()?).find(|record| record.path == self.file)
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

/// Records of attached drives, which `pumice attach` keeps in a folder and `pumice detach` removes.
fn records(folder: &Path) -> impl Iterator<Item = Record> {
    let folders = fs::read_dir(folder.join(RECORDS)).into_iter().flatten().flatten();
    let texts = folders.filter_map(|folder| fs::read_to_string(folder.path().join("attachment.json")).ok());
    texts.filter_map(|text| serde_json::from_str(&text).ok())
}

/// What could not be taken away in the folder of a run, and how to.
pub(super) fn left_behind(folder: &Path) -> Vec<String> {
    let runtime = quoted(&folder.join("run"));
    let drives = records(folder).map(|record| {
        let drive = quoted(&record.path);
        format!(
            "{drive} is still attached: unmount its device, or remove its volume group, then \
             PUMICE_RUNTIME_DIR={runtime} pumice detach {drive}"
        )
    });
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    let disks = files.filter(|file| file.file_name().to_string_lossy().starts_with(DISK)).map(|file| {
        let disk = quoted(&file.path());
        format!("{disk} is still behind a loop device, which losetup -j {disk} names")
    });
    let mut lines: Vec<String> = drives.chain(disks).collect();
    lines.sort();
    lines
}

/// A path as a word of the shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

impl Drop for Member {
    fn drop(&mut self) {
        let is_gone = match &self.asks {
            Some(asks) => {
                let asks = asks.unstoppable();
                if asks.run("detach", &[], COMMAND).is_err() {
                    let _ = asks.run("detach", &["--force"], COMMAND);
                }
                // An attachment that failed leaves no record, and nothing to detach.
                self.record().is_none()
            }
            None => loops::detach(&self.file),
        };
        // What is still attached needs its file to be taken away later.
        if is_gone {
            let _ = fs::remove_file(&self.file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Stop, tests::script};

    #[test]
    fn what_cannot_be_detached_stays() {
        let base = tempfile::tempdir().expect("a folder");
        let folder = base.path().join("it's here");
        fs::create_dir(&folder).expect("a folder");
        let program = base.path().join("pumice");
        // Detaches only once there is a file `free`.
        let text = "#!/bin/sh\nset -e\nrecords=$PUMICE_RUNTIME_DIR-attach\ncase $1 in\n\
            create) echo >\"$2\";;\n\
            attach) mkdir -p \"$records/1\"; echo '{\"device\": \"/dev/null\"}'\n\
                printf '{\"path\": \"%s\", \"bridge_pid\": 7}' \"$2\" >\"$records/1/attachment.json\";;\n\
            detach) [ -e free ]; rm -r \"$records/1\";;\nesac\n";
        let free = format!("cd '{}'\n", base.path().display());
        script(&program, &text.replacen("set -e\n", &format!("set -e\n{free}"), 1));
        let stop = Stop::default();
        let workshop = Workshop {
            program: &program,
            folder: &folder,
            size_bytes: 64 << 20,
            stop: &stop,
            drives: Vec::new(),
        };
        let member = || Member::drive(&workshop, 1, 64 << 20, 64 << 20).expect("a drive");
        let (first, file) = (member(), workshop.path("drive-1"));
        assert_eq!((first.device(), first.pids()), (Path::new("/dev/null"), vec![7]));
        drop(first);
        assert!(file.exists());
        let left = left_behind(&folder);
        let shown = folder.display().to_string().replace('\'', r"'\''");
        let command = format!("PUMICE_RUNTIME_DIR='{shown}/run' pumice detach '{shown}/drive-1'");
        assert!(left.len() == 1 && left[0].ends_with(&command), "{left:?}");
        fs::write(base.path().join("free"), "").expect("written");
        drop(member());
        assert!(!file.exists() && left_behind(&folder).is_empty());
    }
}
