//! What is wrong with a record. Where it is, its reader knows.

use codec::{CodecError, UnknownCodec};
use layout::{DecodeError, Entry, RecordKind};

use crate::error::Error;
use crate::state::dictionaries::NoDictionary;

/// Reason why the record at a place of the backing is not the expected one.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RecordFault {
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] Error),
    #[error(transparent)]
    Record(#[from] DecodeError),
    #[error(transparent)]
    UnknownCodec(#[from] UnknownCodec),
    #[error(transparent)]
    Contents(#[from] CodecError),
    #[error(transparent)]
    Dictionary(#[from] NoDictionary),
    #[error("it is no data ({0:?})")]
    NotData(RecordKind),
    #[error("it is the record of {}", blocks(*first, *count))]
    OtherBlocks { first: u64, count: u64 },
    #[error("it leaves this block out")]
    LeavesOut,
    /// A node of the map was expected.
    #[error("it is another record")]
    NotTheNode,
    /// An entry of a node of the map is impossible.
    #[error("slot {slot} cannot hold {entry:?}")]
    Entry { slot: usize, entry: Entry },
}

fn blocks(first: u64, count: u64) -> String {
    match count {
        1 => format!("block {first}"),
        several => format!("{several} blocks from {first} on"),
    }
}
