//! Identity of drives and of the files they are in.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use host::file::{absolute, device_number, same_file};
use host::foreign::{self, Hangs};
use layout::superblock::{SUPERBLOCK_COPIES, Superblock};
use layout::{Geometry, PAGE_BYTES};
use status::{FileId, StatusReport};

/// Time for a look at the superblocks: less than a search takes.
const PATIENCE: Duration = Duration::from_secs(2);

/// Returns whether a report is that of the drive at `path`.
pub(crate) fn is_at(report: &StatusReport, path: &Path) -> bool {
    // A drive that is down may have no file.
    report.path == absolute(path) || same_file(path, &report.path).unwrap_or(false)
}

/// Returns what metadata is that of. A device is the same wherever its node is.
pub fn file_id(found: &Metadata) -> FileId {
    let (device, inode) = match found.rdev() {
        0 => (found.dev(), Some(found.ino())),
        device => (device, None),
    };
    FileId { device: device_number(device), inode }
}

/// Returns the id in the superblocks of the drive at `path`, whether or not a server has it. `None` if there
/// is no valid one. Takes no lock.
///
/// # Errors
/// If its file system hangs.
pub fn drive_id(path: &Path) -> Result<Option<String>, Hangs> {
    let path = path.to_path_buf();
    foreign::within(PATIENCE, move || read_drive_id(&path))
}

fn read_drive_id(path: &Path) -> Option<String> {
    // Looked at before it is opened: that blocks on some kinds of files.
    let kind = std::fs::metadata(path).ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    let file = File::open(path).ok()?;
    let mut page = [0; PAGE_BYTES];
    (0..SUPERBLOCK_COPIES).find_map(|copy| {
        file.read_exact_at(&mut page, Geometry::superblock_offset(copy)).ok()?;
        let superblock = Superblock::decode(&page).ok()?;
        Some(uuid::Uuid::from_bytes(superblock.uuid).to_string())
    })
}
