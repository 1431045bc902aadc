//! Identity of files and devices.

use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::foreign::{self, Hangs};

/// Suffix that the kernel appends to the name of a deleted or replaced file.
const DELETED: &[u8] = b" (deleted)";
/// Start of the name that an NFS client gives to a deleted file that is open. It deletes the file when that
/// is closed.
const NFS_DELETED: &[u8] = b".nfs";

/// Returns the absolute path, or the path as it is if the current directory is unknown.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns true if `path` and the path of a file of others lead to the same file or device. `false` if one
/// leads nowhere.
///
/// # Errors
///
/// [`Hangs`] if the file system of the other does.
pub fn same_file(path: &Path, other: &Path) -> Result<bool, Hangs> {
    let Ok(own) = std::fs::metadata(path) else { return Ok(false) };
    Ok(foreign::metadata(other)?.is_some_and(|other| is_same(&own, &other)))
}

/// Returns whether both are the same file. A block device is the same wherever its node is.
pub fn is_same(a: &Metadata, b: &Metadata) -> bool {
    match (a.file_type().is_block_device(), b.file_type().is_block_device()) {
        (true, true) => a.rdev() == b.rdev(),
        (false, false) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        (true, false) | (false, true) => false,
    }
}

/// Formats the number of a device as the kernel does: `MAJOR:MINOR`.
pub fn device_number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// Returns the name that a file had before it was deleted or replaced, of a name that the kernel shows for an
/// open file; `None` if it is not shown as deleted. A name may end like that.
pub fn name_of_deleted(shown: &Path) -> Option<&Path> {
    shown.as_os_str().as_bytes().strip_suffix(DELETED).map(|name| Path::new(OsStr::from_bytes(name)))
}

/// Returns whether an open file has the name that an NFS client gives to one that was deleted.
pub fn is_nfs_deleted(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(NFS_DELETED))
}
