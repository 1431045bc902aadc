//! Length of the backing while the drive is served. Another program may shorten it.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::sync::Arc;

/// An open backing, whose length can be asked for.
#[derive(Debug)]
pub(crate) struct Length(Arc<File>);

impl Length {
    /// Of a file or block device. Its name may change afterwards.
    pub(crate) fn of(file: Arc<File>) -> Length {
        Length(file)
    }

    /// Returns by how many bytes the backing is shorter than `needed`. `None` if that cannot be determined.
    ///
    /// A file system on the network may block the thread.
    pub(crate) fn missing_bytes(&self, needed: u64) -> Option<u64> {
        // Of a block device, too, the end is its size.
        let length = (&*self.0).seek(SeekFrom::End(0)).ok()?;
        Some(needed.saturating_sub(length))
    }
}
