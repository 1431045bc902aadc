//! Mounts of tests that run side by side. A new mount namespace has copies of all mounts of the machine, and
//! a file system is not unmounted before its last copy is.

use std::fs::{self, File};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::in_time;
use super::server::{text, wait_until};

/// Beginning of a shell script in a new mount namespace: drops the copies of mounted loop devices, which
/// other tests unmount. Without single quotes.
pub(crate) const DROP_COPIES: &str =
    r#"grep ^/dev/loop /proc/self/mounts | cut -d " " -f 2 | xargs -r umount --lazy || :;"#;

/// Unmounts the file system of a block device, everywhere.
pub(crate) fn unmount(point: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("proc is mounted");
    let fields = |line: &str| line.split(' ').take(2).map(str::to_owned).collect::<Vec<_>>();
    let device = mounts.lines().map(fields).find(|it| it[1] == text(point)).expect("mounted")[0].clone();
    // A process that examines new mounts may still be using it.
    wait_until("unmounted", || in_time("umount", &[point]).code == Some(0));
    wait_until_unused(&device);
}

/// Waits until no mount namespace has a block device mounted.
pub(crate) fn wait_until_unused(device: &str) {
    let exclusive = || File::options().read(true).custom_flags(libc::O_EXCL).open(device);
    wait_until("unmounted in all mount namespaces", || exclusive().is_ok());
}
