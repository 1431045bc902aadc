//! Records that are not on the medium yet: they are read out of their packs.

use std::sync::Arc;

use layout::Entry;
use media::IoBuf;

use super::Log;

/// Where the bytes of a record that is not on the medium yet are.
pub(crate) enum InMemory {
    /// In a sealed pack, at this offset.
    Pack(Arc<IoBuf>, usize),
    /// A copy out of an open pack.
    Copy(Box<[u8]>),
}

impl InMemory {
    /// The record's bytes.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            InMemory::Pack(buf, at) => &buf[*at..at + len],
            InMemory::Copy(bytes) => bytes,
        }
    }
}

impl Log {
    /// The bytes of a record that is still in memory: its pack (whole) and where in it the record begins, or, for a
    /// pack still open, a copy of the record's bytes.
    pub(crate) fn in_memory(&self, entry: Entry) -> Option<InMemory> {
        let position = entry.position_bytes();
        for state in &self.heads {
            if let Some(open) = &state.open {
                let start = self.geometry.segment_offset(state.current.segment) + u64::from(state.offset);
                if (start..start + open.used as u64).contains(&position) {
                    let at = (position - start) as usize;
                    return Some(InMemory::Copy(open.buf[at..at + entry.len_bytes()].into()));
                }
            }
        }
        let (start, buf) = self.in_memory.range(..=position).next_back()?;
        let at = (position - start) as usize;
        (at < buf.len()).then(|| InMemory::Pack(buf.clone(), at))
    }
}
