//! Free space of the file system that holds a file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Returns the bytes available to an unprivileged user on the file system of a file or directory.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail * found.f_frsize)
}

/// Returns the bytes of a sparse file that are not allocated yet.
pub(crate) fn missing_bytes(path: &Path) -> io::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    Ok(metadata.len().saturating_sub(metadata.blocks() * 512))
}
