//! Records that are not yet on the medium. They are read from their packs.

use std::sync::Arc;

use layout::Entry;
use media::IoBuf;

use super::Log;

/// Bytes of a record that is not yet on the medium.
pub(crate) enum InMemory {
    /// In a sealed pack, at this offset.
    Pack(Arc<IoBuf>, usize),
    /// A copy from an open pack.
    Copy(Box<[u8]>),
}

impl InMemory {
    /// Returns the bytes of the record.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        match self {
            InMemory::Pack(buf, at) => &buf[*at..at + len],
            InMemory::Copy(bytes) => bytes,
        }
    }
}

impl Log {
    /// Memory that packs take which wait for the medium, or were not taken by it and are to be written
    /// elsewhere, in bytes.
    pub(crate) fn in_memory_bytes(&self) -> u64 {
        self.in_memory.values().map(|buf| buf.capacity() as u64).sum()
    }

    /// Returns the bytes of a record that is still in memory: its whole pack and the offset of the record in
    /// it, or a copy of the record if its pack is still open. `None` for what is no record there: a map may
    /// point anywhere.
    pub(crate) fn in_memory(&self, entry: Entry) -> Option<InMemory> {
        let position = entry.position_bytes();
        for state in &self.heads {
            if let Some(open) = &state.open {
                let start = self.geometry.segment_offset(state.current.segment) + u64::from(state.offset);
                if (start..start + open.used as u64).contains(&position) {
                    let at = (position - start) as usize;
                    let bytes = open.buf[..open.used].get(at..at + entry.len_bytes())?;
                    return Some(InMemory::Copy(bytes.into()));
                }
            }
        }
        let (start, buf) = self.in_memory.range(..=position).next_back()?;
        let at = (position - start) as usize;
        (at + entry.len_bytes() <= buf.len()).then(|| InMemory::Pack(buf.clone(), at))
    }
}
