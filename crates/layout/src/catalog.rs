//! The catalog of dictionaries: what the drive keeps for itself, as blocks beyond any capacity.
//!
//! Blocks from [`OWN_FIRST_BLOCK`] on are written, mapped, moved and checked like any others; no host reaches
//! them. The first holds the catalog, the second its copy. Each dictionary has a slot of 32 blocks: its
//! bytes, and again as a copy.

use crate::bytes::{put, u16_at, u32_at, u64_at};
use crate::geometry::OWN_FIRST_BLOCK;
use crate::page::PageKind;
use crate::{BLOCK_BYTES, DecodeError};

/// Dictionaries that a drive can hold.
pub const CATALOG_SLOTS: usize = 15;
/// Longest dictionary, in bytes.
pub const DICTIONARY_BYTES_MAX: usize = COPY_BLOCKS as usize * BLOCK_BYTES;
/// Copies of the catalog and of each dictionary.
pub const CATALOG_COPIES: u64 = 2;
const COPY_BLOCKS: u64 = 16;
const SLOT_BLOCKS: u64 = CATALOG_COPIES * COPY_BLOCKS;
const PAGE: PageKind = PageKind { what: WHAT, magic: *b"PUMICDIC", crc_at: 8 };
const ENTRIES_AT: usize = 32;
const ENTRY_BYTES: usize = 24;
const WHAT: &str = "catalog of dictionaries";

/// A dictionary that the drive holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogEntry {
    /// Its number in records: from 1 on; 0 if the slot is empty.
    pub id: u16,
    /// Its length in bytes.
    pub len_bytes: u32,
    /// CRC32C of its bytes.
    pub crc: u32,
    /// Nothing new uses it. Packs up to this sequence number may; 0: it is in use.
    pub retired_at: u64,
}

/// All dictionaries, by slot.
///
/// ```text
///   0  8  magic "PUMICDIC"       8  4  CRC32C of the block, this field as zero      12  2  id last given    14  2  zero
///  16  8  adopted at       24  8  zero
///  32     15 slots of 24 bytes:  0  2  id (0: empty)   2  2  zero   4  4  length   8  4  CRC32C   12  4  zero
///                               16  8  retired at
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    /// The id given last: ids are not used again before all others were.
    pub last_id: u16,
    /// When the dictionaries in use came: packs above this sequence number were written with them. 0: not
    /// known (a program that did not tell wrote it), or there are none.
    pub adopted_at: u64,
    /// Slots; `None`: empty.
    pub slots: [Option<CatalogEntry>; CATALOG_SLOTS],
}

impl Catalog {
    /// First block of a copy of the catalog.
    pub fn block(copy: u64) -> u64 {
        OWN_FIRST_BLOCK + copy
    }

    /// First block of a copy of a slot's dictionary.
    pub fn dictionary_block(slot: usize, copy: u64) -> u64 {
        OWN_FIRST_BLOCK + SLOT_BLOCKS * (slot as u64 + 1) + COPY_BLOCKS * copy
    }

    /// One block.
    pub fn encode(&self) -> [u8; BLOCK_BYTES] {
        let mut b = [0; BLOCK_BYTES];
        put(&mut b, 12, &self.last_id.to_le_bytes());
        put(&mut b, 16, &self.adopted_at.to_le_bytes());
        for (i, slot) in self.slots.iter().enumerate() {
            let Some(entry) = slot else { continue };
            let at = ENTRIES_AT + i * ENTRY_BYTES;
            put(&mut b, at, &entry.id.to_le_bytes());
            put(&mut b, at + 4, &entry.len_bytes.to_le_bytes());
            put(&mut b, at + 8, &entry.crc.to_le_bytes());
            put(&mut b, at + 16, &entry.retired_at.to_le_bytes());
        }
        PAGE.seal(&mut b);
        b
    }

    /// Reads a block written by [`Catalog::encode`].
    pub fn decode(block: &[u8]) -> Result<Catalog, DecodeError> {
        let b = PAGE.verify(block)?;
        let mut catalog = Catalog { last_id: u16_at(b, 12), adopted_at: u64_at(b, 16), ..Catalog::default() };
        for (i, slot) in catalog.slots.iter_mut().enumerate() {
            let at = ENTRIES_AT + i * ENTRY_BYTES;
            let id = u16_at(b, at);
            let len_bytes = u32_at(b, at + 4);
            if id == 0 {
                continue;
            }
            if len_bytes == 0 || len_bytes as usize > DICTIONARY_BYTES_MAX {
                return Err(DecodeError::Field(WHAT, "impossible length of a dictionary"));
            }
            let (crc, retired_at) = (u32_at(b, at + 8), u64_at(b, at + 16));
            *slot = Some(CatalogEntry { id, len_bytes, crc, retired_at });
        }
        let mut ids: Vec<u16> = catalog.slots.iter().flatten().map(|entry| entry.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(DecodeError::Field(WHAT, "two dictionaries of one id"));
        }
        Ok(catalog)
    }
}
