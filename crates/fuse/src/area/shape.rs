//! Where things are in an area.
//!
//! ```text
//! page 0     magic | version | shape | landing                                              a word each
//! entries    state | unique | offset | length | kind and place (+ 1) << 32 | three spare    a word each
//! small      data of small writes
//! large      messages as the kernel writes them: data begins at the second page
//! ```

use std::ops::Range;

use super::error::AreaError;
use crate::wire::{TRANSFER_BYTES_MAX, WRITE_HEADER_BYTES};

/// Bytes to which everything is aligned. Pages of the kernel may be larger.
pub(super) const PAGE_BYTES: usize = 4096;
/// Bytes of the part of page 0 that is in use.
pub(super) const HEAD_BYTES: usize = 32;
/// Place of the number of the place that receives, plus one; zero: none.
pub(super) const LANDING: usize = 24;
/// Bytes of an entry.
const ENTRY_BYTES: usize = 64;
/// Largest write of which a copy is made, so that the place that has received it serves the next one.
pub(super) const SMALL_BYTES: usize = 8 << 10;
const LARGE_BYTES: usize = PAGE_BYTES + TRANSFER_BYTES_MAX as usize;
/// Where a message begins in a large place: its data is aligned for direct I/O.
pub(super) const MESSAGE: usize = PAGE_BYTES - WRITE_HEADER_BYTES;

const MAGIC: u64 = u64::from_le_bytes(*b"pumicefu");
const VERSION: u64 = 1;
/// Requests that an area holds: more than a loop device has in flight (128).
const REQUESTS_MAX: u16 = 160;

/// Sizes of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) entries: u16,
    /// Places for small writes.
    pub(super) small: u16,
    /// Places for messages.
    pub(super) large: u16,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape { entries: REQUESTS_MAX, small: REQUESTS_MAX, large: REQUESTS_MAX }
    }
}

impl Shape {
    /// Bytes of page 0 and the entries.
    pub(super) fn table_bytes(self) -> usize {
        PAGE_BYTES + (usize::from(self.entries) * ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
    }

    pub(super) fn len_bytes(self) -> usize {
        self.table_bytes() + usize::from(self.small) * SMALL_BYTES + usize::from(self.large) * LARGE_BYTES
    }

    /// Number of places: the small ones, then the large ones.
    pub(super) fn places(self) -> usize {
        usize::from(self.small) + usize::from(self.large)
    }

    pub(super) fn is_large(self, place: usize) -> bool {
        place >= self.small.into()
    }

    /// Bytes of a place.
    pub(super) fn place(self, place: usize) -> Range<usize> {
        let table_bytes = self.table_bytes();
        let (at, bytes) = match place.checked_sub(self.small.into()) {
            None => (table_bytes + place * SMALL_BYTES, SMALL_BYTES),
            Some(large) => {
                (table_bytes + usize::from(self.small) * SMALL_BYTES + large * LARGE_BYTES, LARGE_BYTES)
            }
        };
        at..at + bytes
    }

    /// Bytes of a place that may be data of a write.
    pub(super) fn data(self, place: usize) -> Range<usize> {
        let Range { start, end } = self.place(place);
        if self.is_large(place) { start + PAGE_BYTES..end } else { start..end }
    }

    /// Where a word of an entry is.
    pub(super) fn entry_word(self, entry: usize, word: usize) -> usize {
        PAGE_BYTES + entry * ENTRY_BYTES + word * size_of::<u64>()
    }

    /// The first bytes of an area without requests.
    pub(super) fn head(self) -> [u8; HEAD_BYTES] {
        let shape = [self.entries, self.small, self.large, 0].map(u16::to_ne_bytes).concat();
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(&MAGIC.to_ne_bytes());
        head[8..16].copy_from_slice(&VERSION.to_ne_bytes());
        head[16..24].copy_from_slice(&shape);
        head
    }

    /// Reads the first bytes of an area.
    pub(super) fn of_head(head: &[u8; HEAD_BYTES]) -> Result<Shape, AreaError> {
        let number = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
        if head[..8] != MAGIC.to_ne_bytes() {
            return Err(AreaError::NotAnArea);
        }
        match head[8..16] == VERSION.to_ne_bytes() {
            true => Ok(Shape { entries: number(16), small: number(18), large: number(20) }),
            false => Err(AreaError::OtherVersion),
        }
    }
}
