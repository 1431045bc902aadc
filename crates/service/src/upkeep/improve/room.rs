//! Room in the file system under a drive. Background work rewrites data before the space of the old data is
//! discarded: it must not take the last room from hosts, on this drive or on others.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The part of the drive's size that has to be free.
const PART: u64 = 16;
/// Bounds of that, in bytes.
const LEAST_BYTES: u64 = 8 << 20;
const MOST_BYTES: u64 = 1 << 30;

/// Returns whether the file system under a drive has so little room that only hosts should write. Disks
/// always have room, and so have files for which it has all the blocks that they do not have yet; so has what
/// cannot be asked.
pub(super) fn is_short(path: &Path) -> bool {
    let Ok(file) = fs::metadata(path) else { return false };
    let missing_bytes = file.len().saturating_sub(file.blocks() * 512);
    if file.file_type().is_block_device() || missing_bytes == 0 {
        return false;
    }
    let Ok(system) = rustix::fs::statvfs(path) else { return false };
    let free_bytes = system.f_bavail.saturating_mul(system.f_frsize);
    free_bytes < (file.len() / PART).clamp(LEAST_BYTES, MOST_BYTES).min(missing_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sparse_files_ask_for_room() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file");
        assert!(!is_short(&path), "there is none");
        fs::write(&path, [7; 8192]).expect("written");
        assert!(!is_short(&path));
        fs::File::options().write(true).open(&path).expect("open").set_len(16 << 20).expect("sparse");
        let system = rustix::fs::statvfs(&path).expect("a file system");
        assert_eq!(is_short(&path), system.f_bavail * system.f_frsize < LEAST_BYTES);
        assert!(!is_short(Path::new("/dev/null")));
    }
}
