//! An entry of the toy's log: a header page, then data, padded to whole pages.
//!
//! ```text
//! header  0 magic | 8 generation | 16 first of this generation | 24 number | 32 durable number | 40 kind
//!        48 offset | 56 len | 64 CRC32C of the data | 68 CRC32C of bytes 0..68
//! ```

use media::{IoBuf, PAGE_BYTES};

const MAGIC: u64 = u64::from_le_bytes(*b"toyentry");
const CRC_AT: usize = 68;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Write = 1,
    Zero = 2,
    SnapshotEnd = 3,
}

/// An entry, without its data.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) generation: u64,
    pub(super) first: u64,
    pub(super) number: u64,
    /// The newest entry known to be durable when this one was written.
    pub(super) durable: u64,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// Number of pages of an entry with this much data.
pub(super) fn pages(data_bytes: u64) -> u64 {
    1 + data_bytes.div_ceil(PAGE_BYTES as u64)
}

impl Entry {
    pub(super) fn data_len(&self) -> u64 {
        if self.kind == Kind::Write { self.len } else { 0 }
    }

    pub(super) fn encode(&self, data: &[u8]) -> IoBuf {
        let mut buf = IoBuf::zeroed(pages(data.len() as u64) as usize * PAGE_BYTES);
        let kind = self.kind as u64;
        let words =
            [MAGIC, self.generation, self.first, self.number, self.durable, kind, self.offset, self.len];
        for (chunk, word) in buf.chunks_exact_mut(8).zip(words) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        buf[64..CRC_AT].copy_from_slice(&crc32c::crc32c(data).to_le_bytes());
        let crc = crc32c::crc32c(&buf[..CRC_AT]);
        buf[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        buf[PAGE_BYTES..PAGE_BYTES + data.len()].copy_from_slice(data);
        buf
    }

    /// Decodes the header page of an entry. Returns the entry and the checksum of its data.
    pub(super) fn decode(page: &[u8]) -> Option<(Entry, u32)> {
        let word = |index: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&page[index * 8..index * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let crc = (word(8) >> 32) as u32;
        if word(0) != MAGIC || crc != crc32c::crc32c(&page[..CRC_AT]) {
            return None;
        }
        let kind =
            [Kind::Write, Kind::Zero, Kind::SnapshotEnd].into_iter().find(|&kind| kind as u64 == word(5))?;
        let entry = Entry {
            generation: word(1),
            first: word(2),
            number: word(3),
            durable: word(4),
            kind,
            offset: word(6),
            len: word(7),
        };
        Some((entry, word(8) as u32))
    }
}
