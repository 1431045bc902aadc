//! A file system in memory in the folder of an attachment, for what the drive's server keeps across a kill.
//!
//! Most machines have their run-time directory in memory, and servers use that. Many containers do not.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use ask::runtime_dir::MEMORY;
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// `TMPFS_MAGIC` of `linux/magic.h`.
const IN_MEMORY: u64 = 0x0102_1994;
/// More than the memories of two servers, one that was killed and the next, and what they leave to others.
const OPTIONS: &std::ffi::CStr = c"size=160m,mode=0700";

/// Returns a directory in memory for the server of an attachment. `None` if it needs none: the run-time
/// directory is in memory.
///
/// # Errors
/// If it cannot be mounted.
pub(crate) fn make(folder: &Path) -> io::Result<Option<PathBuf>> {
    let runtime = ask::make_runtime_dir()?;
    if is_in_memory(&runtime) {
        return Ok(None);
    }
    let dir = folder.join(MEMORY);
    DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
    if !is_in_memory(&dir) {
        mount("pumice", &dir, "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, OPTIONS)?;
    }
    Ok(Some(dir))
}

fn is_in_memory(dir: &Path) -> bool {
    fs::File::open(dir)
        .and_then(|opened| Ok(rustix::fs::fstatfs(&opened)?))
        .is_ok_and(|found| u64::try_from(found.f_type) == Ok(IN_MEMORY))
}

/// Returns whether nobody needs a memory any more: its first word is zero then, and no process has it locked.
fn is_over(memory: &Path) -> bool {
    let mut begin = [0; 8];
    File::options().read(true).write(true).open(memory).is_ok_and(|file| {
        flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
            && file.read_exact_at(&mut begin, 0).is_ok()
            && begin == [0; 8]
    })
}

/// Removes the directory, unless a memory is in it that the next server needs.
pub(crate) fn remove(folder: &Path) {
    let dir = folder.join(MEMORY);
    for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
        if is_over(&entry.path()) {
            // Its server may be of another user, who may not remove it.
            let _ = fs::remove_file(entry.path());
        }
    }
    if fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_none()) {
        // It may not be mounted.
        let _ = unmount(&dir, UnmountFlags::empty());
        let _ = fs::remove_dir(&dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_server_left_stays() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let dir = folder.path().join(MEMORY);
        fs::create_dir(&dir)?;
        fs::write(dir.join("memory"), "needed still")?;
        remove(folder.path());
        assert!(dir.exists());
        fs::write(dir.join("memory"), [0; 16])?;
        remove(folder.path());
        assert!(!dir.exists());
        remove(folder.path());
        Ok(())
    }
}
