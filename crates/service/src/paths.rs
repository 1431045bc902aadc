//! Comparison of paths.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Returns the absolute path, or the path as it is if the current directory is unknown.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// Returns true if two paths lead to the same file or device.
pub(crate) fn same_file(a: &Path, b: &Path) -> bool {
    let identity = |path: &Path| {
        let metadata = std::fs::metadata(path).ok()?;
        // A device is the same wherever its node is.
        Some(if metadata.rdev() != 0 { (0, 0, metadata.rdev()) } else { (metadata.dev(), metadata.ino(), 0) })
    };
    identity(a).is_some_and(|identity_a| identity(b) == Some(identity_a))
}
