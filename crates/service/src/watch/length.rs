//! Length of the backing while the drive is served. Another program may shorten it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::path::Path;

/// An open backing, whose length can be asked for.
#[derive(Debug)]
pub(crate) struct Length(File);

impl Length {
    /// Opens the file or block device. Its name may change afterwards. `None` if it cannot be opened.
    pub(crate) fn open(path: &Path) -> Option<Length> {
        File::open(path).ok().map(Length)
    }

    /// Returns by how many bytes the backing is shorter than `needed`. `None` if that cannot be determined.
    ///
    /// A file system on the network may block the thread.
    pub(crate) fn missing_bytes(&self, needed: u64) -> Option<u64> {
        // Of a block device, too, the end is its size.
        let length = (&self.0).seek(SeekFrom::End(0)).ok()?;
        Some(needed.saturating_sub(length))
    }
}
