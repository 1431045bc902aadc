//! Where data is read from: files, directories, devices, NBD exports, buckets. Nothing here writes.

mod file;
pub mod nbd;
mod pace;
mod population;
pub mod s3;
mod walk;

use std::io;

pub use pace::Pace;
pub use population::{Extent, Item, Place, Population, Skipped, Trouble};
pub use walk::WalkOptions;

/// Something with bytes at offsets.
pub(crate) trait ReadAt: Send {
    /// Fills `buf` from `offset` on, as far as there is something: fewer bytes only at the end.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// Whether it is no longer what it was when it was listed.
    fn has_changed(&self) -> bool {
        false
    }
}

/// Why a source cannot be scanned at all.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {why}")]
pub struct SourceError {
    /// As the user named it.
    pub name: String,
    /// What is wrong, and what to do.
    pub why: String,
}

impl SourceError {
    pub(crate) fn new(name: impl Into<String>, why: impl ToString) -> SourceError {
        SourceError { name: name.into(), why: why.to_string() }
    }
}
