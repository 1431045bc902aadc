//! A map entry: where a block's record lies, or what it reads as without one.

use crate::UNIT_BYTES;

const KIND_SHIFT: u32 = 62;
const KIND_RECORD: u64 = 1;
const KIND_FILL: u64 = 2;
const UNITS_SHIFT: u32 = 50;
const UNITS_MASK: u64 = 0xfff;
const POSITION_MASK: u64 = (1 << UNITS_SHIFT) - 1;

/// Eight bytes of the map.
///
/// ```text
/// bits 63..62  kind: 0 unmapped (all bits zero), 1 record, 2 fill
/// record:      61..50 length in 16 B units (1..4095), 49..0 position in 16 B units from the start of the backing
/// fill:        31..0  the 32-bit word (little-endian) that the block repeats
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Entry(pub u64);

impl Entry {
    /// Nothing mapped: reads as zeros.
    pub const UNMAPPED: Entry = Entry(0);
    /// Bytes of the longest record an entry can tell of.
    pub const MAX_LEN_BYTES: usize = UNITS_MASK as usize * UNIT_BYTES;

    /// A record at `position_bytes` (a multiple of 16) of `len_bytes` (a multiple of 16, up to 65,520).
    pub fn record(position_bytes: u64, len_bytes: usize) -> Entry {
        let units = (len_bytes / UNIT_BYTES) as u64;
        let position = position_bytes / UNIT_BYTES as u64;
        debug_assert!(units > 0 && units <= UNITS_MASK && position <= POSITION_MASK);
        Entry(KIND_RECORD << KIND_SHIFT | units << UNITS_SHIFT | position)
    }

    /// A block that repeats one 32-bit word.
    pub fn fill(word: u32) -> Entry {
        Entry(KIND_FILL << KIND_SHIFT | u64::from(word))
    }

    /// Whether nothing is mapped.
    pub fn is_unmapped(self) -> bool {
        self.0 == 0
    }

    /// Whether this is a record.
    pub fn is_record(self) -> bool {
        self.0 >> KIND_SHIFT == KIND_RECORD
    }

    /// The word of a fill.
    pub fn fill_word(self) -> Option<u32> {
        (self.0 >> KIND_SHIFT == KIND_FILL).then_some(self.0 as u32)
    }

    /// Position of a record in bytes from the start of the backing.
    pub fn position_bytes(self) -> u64 {
        (self.0 & POSITION_MASK) * UNIT_BYTES as u64
    }

    /// Length of a record in bytes, header and padding to 16 in.
    pub fn len_bytes(self) -> usize {
        self.units() as usize * UNIT_BYTES
    }

    /// Length of a record in 16-byte units.
    pub fn units(self) -> u32 {
        (self.0 >> UNITS_SHIFT & UNITS_MASK) as u32
    }

    /// Whether the bits are of a form this version writes.
    pub fn is_valid(self) -> bool {
        match self.0 >> KIND_SHIFT {
            0 => self.0 == 0,
            KIND_RECORD => self.units() > 0,
            KIND_FILL => self.0 & !(3 << KIND_SHIFT) <= u64::from(u32::MAX),
            _ => false,
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_unmapped() {
            write!(f, "unmapped")
        } else if let Some(word) = self.fill_word() {
            write!(f, "fill {word:#010x}")
        } else {
            write!(f, "record at {:#x}, {} bytes", self.position_bytes(), self.len_bytes())
        }
    }
}
