//! Sources of data: files, directories, devices, NBD exports, buckets. Sources are never written to.

mod bucket;
mod file;
pub mod nbd;
mod objects;
mod pace;
mod population;
pub mod s3;
mod walk;

use std::io;
use std::sync::Arc;

pub(crate) use file::ReadOrder;
pub use pace::Pace;
pub use population::{Extent, Item, Location, Population, Skipped, Trouble};
pub use walk::WalkOptions;

/// A source of bytes at offsets.
pub(crate) trait ReadAt: Send {
    /// Fills `buf` from `offset` on. Reads fewer bytes only at the end of the source.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize>;

    /// True if the source has changed since it was listed.
    fn has_changed(&self) -> bool {
        false
    }
}

/// An export that items are read from.
pub(crate) trait Export: Send + Sync {
    /// URI as the user gave it.
    fn uri(&self) -> &str;

    /// Connects to it.
    fn open(&self) -> io::Result<Box<dyn ReadAt>>;
}

/// A bucket that items are read from.
pub(crate) trait Bucket: Send + Sync {
    /// Name of the bucket.
    fn name(&self) -> &str;

    /// Returns the object with this key, of this length. It is read only while it has this entity tag.
    fn open(self: Arc<Self>, key: &str, tag: &str, bytes: u64) -> Box<dyn ReadAt>;
}

/// Reason why a source cannot be scanned at all.
#[derive(Debug, thiserror::Error)]
#[error("{name}: {why}")]
pub struct SourceError {
    /// Name given by the user.
    pub name: String,
    /// Description of the error and its remedy.
    pub why: String,
}

impl SourceError {
    pub(crate) fn new(name: impl Into<String>, why: impl ToString) -> SourceError {
        SourceError { name: name.into(), why: why.to_string() }
    }
}
