//! File systems that a run has mounted.

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::process::{self, Stop};

/// Longest time for a command.
const COMMAND: Duration = Duration::from_secs(60);
/// Time until a busy file system is unmounted again.
const BUSY: Duration = Duration::from_millis(500);

/// Unmounts a file system if it is mounted; one that stays busy goes away with its last user.
pub(super) fn unmount(mount: &Path) {
    let Some(umount) = process::find("umount") else { return };
    let (folder, never) = (std::env::temp_dir(), Stop::default());
    let mount = mount.display().to_string();
    let is_mounted = || {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        mounts.lines().any(|line| line.split(' ').nth(1) == Some(mount.as_str()))
    };
    for lazy in [false, false, true] {
        if !is_mounted() {
            break;
        }
        let arguments = if lazy { vec!["-l", mount.as_str()] } else { vec![mount.as_str()] };
        if process::run(&umount, &arguments, &folder, COMMAND, &never).is_err() && !lazy {
            std::thread::sleep(BUSY);
        }
    }
}
