//! Identity of files and devices.

use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Returns the absolute path, or the path as it is if the current directory is unknown.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns true if two paths lead to the same file or device. `false` if one leads nowhere.
pub fn same_file(a: &Path, b: &Path) -> bool {
    let metadata = |path: &Path| std::fs::metadata(path).ok();
    metadata(a).zip(metadata(b)).is_some_and(|(a, b)| is_same(&a, &b))
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
