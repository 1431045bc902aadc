//! File systems that a run has mounted.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::process::{self, Stop};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Time until a busy file system is unmounted again.
const BUSY: Duration = Duration::from_millis(500);

/// Whether something is mounted on a folder, which is on another device then than the folder around it. Paths
/// are not compared: the kernel lists mounts by other names than they were given.
fn is_mounted(mount: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev());
    let around = mount.parent().and_then(|parent| device(parent).ok());
    match device(mount) {
        Ok(device) => Some(device) != around,
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

/// Unmounts a file system if it is mounted; one that stays busy goes away with its last user.
pub(super) fn unmount(mount: &Path) {
    let Some(umount) = process::find("umount") else { return };
    let (folder, never) = (std::env::temp_dir(), Stop::default());
    for lazy in [false, false, true] {
        if !is_mounted(mount) {
            break;
        }
        let more = if lazy { vec![OsStr::new("-l")] } else { Vec::new() };
        let arguments = [more, vec![mount.as_os_str()]].concat();
        if process::run(&umount, &arguments, &folder, COMMAND, &never).is_err() && !lazy {
            std::thread::sleep(BUSY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_other_devices() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(is_mounted(Path::new("/proc")) && is_mounted(Path::new("/proc/../proc")));
        assert!(!is_mounted(folder.path()));
        assert!(!is_mounted(&folder.path().join("nothing")));
    }
}
