//! Room on the file system that a file is on.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What an ordinary user may still take on the file system of a file or directory, in bytes.
pub(crate) fn free_bytes(path: &Path) -> io::Result<u64> {
    let found = rustix::fs::statvfs(path)?;
    Ok(found.f_bavail * found.f_frsize)
}

/// What a sparse file has not taken from its file system yet, in bytes.
pub(crate) fn missing_bytes(path: &Path) -> io::Result<u64> {
    let metadata = std::fs::metadata(path)?;
    Ok(metadata.len().saturating_sub(metadata.blocks() * 512))
}
