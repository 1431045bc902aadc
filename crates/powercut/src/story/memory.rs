//! The runtime directory of a story's servers, with the memories of their runs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::attachment;
use crate::error::{Error, Result};

/// A file system in memory that most machines have.
const IN_MEMORY: &str = "/dev/shm";
/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i128 = 0x0102_1994;

/// Room for memories that a file system must have.
const ROOM_MIN_BYTES: u64 = 1 << 30;

/// Memories, which a kill leaves and a power cut takes.
pub(super) struct Memory {
    folder: PathBuf,
    /// Removed at the end of the story.
    _temporary: Option<tempfile::TempDir>,
    /// Servers have a memory there.
    is_possible: bool,
    /// The last server was killed, and nothing else happened.
    is_kept: bool,
}

impl Memory {
    /// That of a story. Every second one has it in memory, where that is possible. The keeper of an attached
    /// drive makes one in memory if it is elsewhere.
    pub(super) fn of(seed: u64, folder: &Path, is_attached: bool) -> io::Result<Memory> {
        let temporary = match seed.is_multiple_of(2) && is_in_memory(Path::new(IN_MEMORY)) {
            true => Some(tempfile::Builder::new().prefix("power-cuts-").tempdir_in(IN_MEMORY)?),
            false => None,
        };
        let run = temporary.as_ref().map_or(folder, |made| made.path()).join("run");
        let is_possible = is_attached || is_in_memory(run.parent().unwrap_or(folder));
        Ok(Memory { folder: run, _temporary: temporary, is_possible, is_kept: false })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// A server was killed. `is_promised`: what it has acknowledged must be there afterwards.
    pub(super) fn server_killed(&mut self, is_promised: bool) {
        self.is_kept = self.is_possible && is_promised;
    }

    /// A server ended by itself and could not close the drive: nothing is promised.
    pub(super) fn server_ended(&mut self) {
        self.is_kept = false;
    }

    /// Returns whether the next server has what the last one acknowledged.
    pub(super) fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The machine has lost its power.
    pub(super) fn lose(&mut self) -> Result<()> {
        self.is_kept = false;
        let emptied = match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => attachment::forget_memories(&self.folder),
        };
        emptied.map_err(Error::system("cannot empty the runtime directory"))
    }
}

/// Returns whether a folder is in memory, with room for the memories of several stories at a time.
fn is_in_memory(folder: &Path) -> bool {
    let has_room =
        |found: rustix::fs::StatVfs| found.f_bavail.saturating_mul(found.f_frsize) >= ROOM_MIN_BYTES;
    rustix::fs::statfs(folder).is_ok_and(|found| i128::from(found.f_type) == TMPFS)
        && rustix::fs::statvfs(folder).is_ok_and(has_room)
}
