//! Removal of the partitions of a node. The kernel keeps those of a loop or nbd device when that gets another
//! disk, unless it scans itself; and whoever opens them then reads and writes that one.

use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fd::AsFd;
use rustix::io::Errno;

use crate::error::AttachError;
use crate::kernel;
use crate::users::who_uses;
use host::block::partitions;

/// Interval of attempts.
const POLL: Duration = Duration::from_millis(20);

/// Removes the partitions of the open block device at `path`, whoever made them. One that a process has open
/// for a moment is waited for.
///
/// # Errors
///
/// If one is open after `patience`; it is named.
pub(super) fn remove(open: impl AsFd, path: &Path, patience: Duration) -> Result<(), AttachError> {
    let since = Instant::now();
    loop {
        let Some(partition) = partitions(path).into_iter().next_back() else { return Ok(()) };
        match kernel::remove_partition(&open, partition.number) {
            // It may be gone by itself.
            Ok(()) | Err(Errno::NXIO) => {}
            Err(Errno::BUSY) if since.elapsed() < patience => sleep(POLL),
            Err(Errno::BUSY) => {
                let what =
                    format!("its partition {} is {}", partition.path.display(), who_uses(&partition.path));
                return Err(AttachError::Refused(format!("{}: {what}", path.display())));
            }
            Err(error) => return Err(AttachError::system(partition.path.display(), error.into())),
        }
        // Another process may keep recreating them.
        if since.elapsed() >= patience * 2 {
            let what = "another process keeps recreating partitions on it";
            return Err(AttachError::Refused(format!("{}: {what}", path.display())));
        }
    }
}
