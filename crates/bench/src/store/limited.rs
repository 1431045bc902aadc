//! A slow disk: a file whose bytes pass through nbdkit's filter `rate`, mounted by nbdfuse. It needs no
//! control groups.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Workshop;
use crate::error::{BenchError, Result};
use crate::process::{self, Server, Stop};

/// How long the disk may go beyond its rate after it was idle, in seconds. nbdkit's default of 2 s would be
/// much of a run here.
const BURST_SECONDS: &str = "0.1";
/// Longest time to unmount.
const UNMOUNT: Duration = Duration::from_secs(20);

/// A mounted file of limited speed.
pub(crate) struct Limited {
    folder: PathBuf,
    path: PathBuf,
    raw: PathBuf,
    kit: Server,
    fuse: Option<Server>,
}

/// Why no backing can be limited; `None` if it can.
pub(crate) fn lacks() -> Option<String> {
    for (program, package) in [("nbdkit", "nbdkit"), ("nbdfuse", "libnbd-bin"), ("umount", "mount")] {
        if process::find(program).is_none() {
            return Some(format!("no {program} (package {package})"));
        }
    }
    let fuse = File::options().read(true).write(true).open("/dev/fuse");
    fuse.err().map(|error| format!("/dev/fuse: {error}"))
}

impl Limited {
    /// Makes a new, empty file that reads and writes at most `mb_per_s`.
    pub(crate) fn new(workshop: &Workshop<'_>, mb_per_s: u32) -> Result<Limited> {
        if let Some(why) = lacks() {
            return Err(BenchError::target("limited backing", why));
        }
        // Room for the spare space of drives.
        let size = workshop.size_bytes / 4 * 5;
        let raw = workshop.path("limited.raw");
        File::create(&raw).and_then(|file| file.set_len(size)).map_err(BenchError::io(&raw))?;
        let socket = workshop.path("limited.sock");
        let _ = fs::remove_file(&socket);
        let bits = u64::from(mb_per_s) * 8_000_000;
        let arguments = [
            "-f".to_string(),
            "-U".to_string(),
            socket.display().to_string(),
            "--filter=rate".to_string(),
            "file".to_string(),
            raw.display().to_string(),
            "cache=none".to_string(),
            format!("rate={bits}"),
            format!("burstiness={BURST_SECONDS}"),
        ];
        let nbdkit = process::need("nbdkit", "nbdkit")?;
        let kit = Server::start(&nbdkit, &arguments, &[], &workshop.path("nbdkit.log"))?;
        kit.wait(workshop.stop, || Ok(socket.exists().then_some(())))?;
        let folder = workshop.path("limited");
        fs::create_dir_all(&folder).map_err(BenchError::io(&folder))?;
        let path = folder.join("disk");
        File::create(&path).map_err(BenchError::io(&path))?;
        let uri = super::nbd_uri(&socket);
        let nbdfuse = process::need("nbdfuse", "libnbd-bin")?;
        let arguments = [path.display().to_string(), uri];
        let fuse = Server::start(&nbdfuse, &arguments, &[], &workshop.path("nbdfuse.log"))?;
        let limited = Limited { folder: folder.clone(), path, raw, kit, fuse: Some(fuse) };
        if let Some(fuse) = &limited.fuse {
            fuse.wait(workshop.stop, || {
                Ok(limited.path.metadata().is_ok_and(|found| found.len() == size).then_some(()))
            })?;
        }
        Ok(limited)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Processes behind it.
    pub(crate) fn pids(&self) -> Vec<u32> {
        std::iter::once(self.kit.pid()).chain(self.fuse.as_ref().map(Server::pid)).collect()
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        if let Some(umount) = process::find("umount") {
            let arguments = [self.path.display().to_string()];
            let temporary = std::env::temp_dir();
            if process::run(&umount, &arguments, &temporary, UNMOUNT, &Stop::default()).is_err() {
                // Busy: it goes away with its last user.
                let lazy = ["-l".to_string(), arguments[0].clone()];
                let _ = process::run(&umount, &lazy, &temporary, UNMOUNT, &Stop::default());
            }
        }
        drop(self.fuse.take());
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.folder);
        let _ = fs::remove_file(&self.raw);
    }
}
