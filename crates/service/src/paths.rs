//! Comparison of paths, and of what they lead to.

use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Weak;

use layout::superblock::{SUPERBLOCK_COPIES, Superblock};
use layout::{Geometry, PAGE_BYTES};
use media::AnyMedia;
use status::{FileId, StatusReport};

/// Returns the absolute path, or the path as it is if the current directory is unknown.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns true if two paths lead to the same file or device.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|found| file_id(&found));
    id(a).is_some_and(|id_a| id(b) == Some(id_a))
}

/// Returns whether a report is that of the drive at `path`.
pub(crate) fn is_at(report: &StatusReport, path: &Path) -> bool {
    // A drive that is down may have no file.
    report.path == absolute(path) || same_file(&report.path, path)
}

/// Returns what metadata is that of. A device is the same wherever its node is.
pub(crate) fn file_id(found: &Metadata) -> FileId {
    let (device, inode) = match found.rdev() {
        0 => (found.dev(), Some(found.ino())),
        device => (device, None),
    };
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    FileId { device: format!("{major}:{minor}"), inode }
}

/// Returns what a drive has open. `None` once it is closed, for a drive in memory, and if the file system
/// does not tell.
pub(crate) fn id_of_media(media: &Weak<AnyMedia>) -> Option<FileId> {
    match &*media.upgrade()? {
        AnyMedia::File(file) => file.metadata().ok().map(|found| file_id(&found)),
        AnyMedia::Memory(_) => None,
    }
}

/// Returns the id in the superblocks of the drive at `path`, whether or not a server has it. `None` if there
/// is no valid one. Takes no lock.
pub(crate) fn drive_id(path: &Path) -> Option<String> {
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
