//! Bytes on the backing: superblock, owner pages, checkpoint, pack, record, map node. Pure encode and decode.
//!
//! `docs/reference/format.md` gives the same format as tables, `docs/design/format-overview.md` the reasons.
//! All integers are little-endian. Every decoder takes bytes from outside: it returns an error for malformed
//! input and never panics.

#![forbid(unsafe_code)]

mod bytes;
pub mod catalog;
pub mod checkpoint;
pub mod entry;
pub mod far;
pub mod geometry;
mod limits;
pub mod memory;
pub mod mend;
pub mod node;
pub mod owner;
pub mod pack;
mod page;
pub mod parity;
pub mod record;
pub mod row;
pub mod rows;
pub mod superblock;
pub mod table;
pub mod table_reader;

pub use catalog::{Catalog, CatalogEntry};
pub use checkpoint::{Checkpoint, CheckpointSummary, Counters, HeadPosition, Mix, ScrubMark};
pub use entry::Entry;
pub use geometry::Geometry;
pub use memory::RunMemory;
pub use node::{LEAF_LEVEL, NODE_ENTRIES, NodeId, ROOT};
pub use owner::OwnerPage;
pub use pack::{Head, NextSegment, PackHeader};
pub use parity::{ParityForm, ParityIndex, ParityShape, ParseParityError};
pub use record::{RecordHeader, RecordKind};
pub use row::{SegmentRow, SegmentUse};
pub use rows::Rows;
pub use superblock::{Features, Superblock};

/// Unit of mapping: bytes of logical space in a block.
pub const BLOCK_BYTES: usize = 4096;
/// Unit of transfer to and from the backing, and the padding of packs, in bytes.
pub const PAGE_BYTES: usize = 4096;
/// Granularity of records, in bytes. Positions and lengths in the map count these.
pub const UNIT_BYTES: usize = 16;
/// Largest write that is atomic across a power cut, in bytes.
pub const ATOMIC_WRITE_BYTES: usize = 256 * 1024;
/// Version of the format described here.
pub const FORMAT_VERSION: u32 = 3;

/// Why bytes from the backing were not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// Not such a structure at all.
    #[error("{0}: no magic number")]
    Magic(&'static str),
    /// Written in a version of the format that this release does not read.
    #[error("{what}: format version {found}, expected {known}: {}", version_advice(*.found, *.known))]
    Version {
        /// The structure.
        what: &'static str,
        /// Version found.
        found: u32,
        /// Version that this release reads.
        known: u32,
    },
    /// Uses something that this release does not support, named by a bit each.
    #[error("{what}: unsupported {uses} {bits:#x}: use the release that wrote it, or a newer one")]
    Unsupported {
        /// The structure.
        what: &'static str,
        /// Meaning of the bits.
        uses: &'static str,
        /// The bits that are not supported.
        bits: u64,
    },
    /// The checksum does not hold.
    #[error("{0}: checksum mismatch")]
    Checksum(&'static str),
    /// A field has a value that cannot be.
    #[error("{0}: {1}")]
    Field(&'static str, &'static str),
    /// Fewer bytes than the structure takes.
    #[error("{0}: truncated")]
    Truncated(&'static str),
}

fn version_advice(found: u32, known: u32) -> &'static str {
    if found > known {
        "use the release that wrote it, or a newer one"
    } else {
        "it was never released; copy the data out with the program that wrote it, then create the drive anew"
    }
}
