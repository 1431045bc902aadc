//! A map entry: where a block's record lies, or what it reads as without one.

use crate::{BLOCK_BYTES, UNIT_BYTES};

const KIND_SHIFT: u32 = 62;
const KIND_RECORD: u64 = 1;
const KIND_FILL: u64 = 2;
const KIND_FRAME: u64 = 3;
const UNITS_SHIFT: u32 = 50;
const UNITS_MASK: u64 = 0xfff;
const SETTLED: u64 = 1 << 49;
const POSITION_MASK: u64 = (1 << 49) - 1;
const FRAME_BLOCKS_SHIFT: u32 = 60;
const FRAME_SETTLED: u64 = 1 << 59;
const FRAME_STEPS_SHIFT: u32 = 49;
const FRAME_STEPS_MASK: u64 = 0x3ff;

/// A frame's record is a multiple of this: its length has 10 bits in an entry.
pub const FRAME_STEP_BYTES: usize = 2 * UNIT_BYTES;
/// Most blocks in a frame; a frame has 2, 4 or 8.
pub const FRAME_BLOCKS_MAX: u64 = 8;

/// Kinds of records that [`Entry::class`] tells apart.
pub const CLASSES: usize = 9;
/// Units of a block that is stored raw: its header is one.
pub const RAW_UNITS: u32 = (BLOCK_BYTES / UNIT_BYTES) as u32 + 1;

/// Eight bytes of the map.
///
/// ```text
/// bits 63..62  kind: 0 unmapped (all bits zero), 1 record of one block, 2 fill, 3 record of a frame
/// record:      61..50 length in 16 B units (1..4095), 49 settled, 48..0 position in 16 B units from the start of the backing
/// frame:       61..60 binary logarithm of its blocks less 1 (2, 4 or 8 blocks), 59 settled, 58..49 length in 32 B steps
///              (1..1023), 48..0 position as above. All blocks of a frame have the same entry
/// fill:        31..0  the 32-bit word (little-endian) that the block repeats
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Entry(pub u64);

impl Entry {
    /// Nothing mapped: reads as zeros.
    pub const UNMAPPED: Entry = Entry(0);
    /// Bytes of the longest record of one block an entry can tell of.
    pub const MAX_LEN_BYTES: usize = UNITS_MASK as usize * UNIT_BYTES;
    /// Blocks of a frame, at most.
    pub const FRAME_MAX_BLOCKS: usize = 8;
    /// Bytes of the longest frame.
    pub const FRAME_MAX_LEN_BYTES: usize = FRAME_STEPS_MASK as usize * FRAME_STEP_BYTES;

    /// A record at `position_bytes` (a multiple of 16) of `len_bytes` (a multiple of 16, up to 65,520).
    pub fn record(position_bytes: u64, len_bytes: usize) -> Entry {
        let units = (len_bytes / UNIT_BYTES) as u64;
        let position = position_bytes / UNIT_BYTES as u64;
        assert!(units > 0 && units <= UNITS_MASK && position <= POSITION_MASK);
        Entry(KIND_RECORD << KIND_SHIFT | units << UNITS_SHIFT | position)
    }

    /// A frame of `blocks` (2, 4 or 8) at `position_bytes` (a multiple of 16) of `len_bytes` (a multiple of
    /// 32, up to 32,736).
    pub fn frame(position_bytes: u64, len_bytes: usize, blocks: u64) -> Entry {
        let steps = (len_bytes / FRAME_STEP_BYTES) as u64;
        let position = position_bytes / UNIT_BYTES as u64;
        assert!(blocks.is_power_of_two() && (2..=FRAME_BLOCKS_MAX).contains(&blocks));
        assert!(steps > 0 && steps <= FRAME_STEPS_MASK && position <= POSITION_MASK);
        let log = u64::from(blocks.trailing_zeros()) - 1;
        Entry(KIND_FRAME << KIND_SHIFT | log << FRAME_BLOCKS_SHIFT | steps << FRAME_STEPS_SHIFT | position)
    }

    /// A record or a frame, by the number of its blocks.
    pub fn of_blocks(position_bytes: u64, len_bytes: usize, blocks: u64) -> Entry {
        match blocks {
            1 => Entry::record(position_bytes, len_bytes),
            _ => Entry::frame(position_bytes, len_bytes, blocks),
        }
    }

    /// The same record, said to be settled: compressed as well as the drive can, nothing is gained by doing
    /// it again. An uncompressed block is said to be put off.
    #[must_use]
    pub fn settled(self) -> Entry {
        match self.kind() {
            KIND_RECORD => Entry(self.0 | SETTLED),
            KIND_FRAME => Entry(self.0 | FRAME_SETTLED),
            _ => self,
        }
    }

    /// Returns whether this is a compressed record that was said to be settled.
    pub fn is_settled(self) -> bool {
        match self.kind() {
            KIND_RECORD => self.0 & SETTLED != 0 && !self.is_raw(),
            KIND_FRAME => self.0 & FRAME_SETTLED != 0,
            _ => false,
        }
    }

    /// Returns whether this is an uncompressed block, whether or not it is put off.
    pub fn is_raw(self) -> bool {
        self.kind() == KIND_RECORD && self.units() == RAW_UNITS
    }

    /// Returns whether this is an uncompressed block that may be smaller compressed, which was put off until
    /// it is settled.
    pub fn is_put_off(self) -> bool {
        self.is_raw() && self.0 & SETTLED != 0
    }

    /// A block that repeats one 32-bit word.
    pub fn fill(word: u32) -> Entry {
        Entry(KIND_FILL << KIND_SHIFT | u64::from(word))
    }

    fn kind(self) -> u64 {
        self.0 >> KIND_SHIFT
    }

    /// Returns whether nothing is mapped.
    pub fn is_unmapped(self) -> bool {
        self.0 == 0
    }

    /// Returns whether this is a record, of one block or of a frame.
    pub fn is_record(self) -> bool {
        matches!(self.kind(), KIND_RECORD | KIND_FRAME)
    }

    /// Returns whether this is the record of a frame.
    pub fn is_frame(self) -> bool {
        self.kind() == KIND_FRAME
    }

    /// The word of a fill.
    pub fn fill_word(self) -> Option<u32> {
        (self.kind() == KIND_FILL).then_some(self.0 as u32)
    }

    /// Position of a record in bytes from the start of the backing.
    pub fn position_bytes(self) -> u64 {
        (self.0 & POSITION_MASK) * UNIT_BYTES as u64
    }

    /// Length of a record in bytes, header and padding in.
    pub fn len_bytes(self) -> usize {
        self.units() as usize * UNIT_BYTES
    }

    /// Length of a record in 16-byte units.
    pub fn units(self) -> u32 {
        if self.is_frame() {
            (self.0 >> FRAME_STEPS_SHIFT & FRAME_STEPS_MASK) as u32 * (FRAME_STEP_BYTES / UNIT_BYTES) as u32
        } else {
            (self.0 >> UNITS_SHIFT & UNITS_MASK) as u32
        }
    }

    /// Blocks that the record holds.
    pub fn blocks(self) -> u64 {
        if self.is_frame() { 2 << (self.0 >> FRAME_BLOCKS_SHIFT & 3) } else { 1 }
    }

    /// First block of the record that holds `block`: frames lie at multiples of their blocks.
    pub fn first_block(self, block: u64) -> u64 {
        block & !(self.blocks() - 1)
    }

    /// Returns whether two blocks with this entry belong to one record. Two frames may have the same entry in
    /// a map that no correct drive wrote.
    pub fn joins(self, block: u64, other: u64) -> bool {
        self.is_frame() && self.first_block(block) == self.first_block(other)
    }

    /// Equal share of one block in the units of its record. Of a frame, the remainder of the division goes to
    /// the first blocks. The live units of a segment count whole records; shares are for estimates only, such
    /// as its repackable units. `block` may be a block's number or its slot in a leaf.
    pub fn share_units(self, block: u64) -> u32 {
        if !self.is_frame() {
            return self.units();
        }
        let (units, blocks) = (self.units(), self.blocks() as u32);
        units / blocks + u32::from(((block % u64::from(blocks)) as u32) < units % blocks)
    }

    /// Which of [`CLASSES`] kinds of record this is: 0 stored raw, 1 to 4 one block or a frame of 2, 4 or 8,
    /// 5 to 8 the same settled.
    pub fn class(self) -> usize {
        if self.is_raw() {
            return 0;
        }
        1 + self.blocks().trailing_zeros() as usize + if self.is_settled() { 4 } else { 0 }
    }

    /// Returns whether the bits are of a form this version writes.
    pub fn is_valid(self) -> bool {
        match self.kind() {
            0 => self.0 == 0,
            KIND_FILL => self.0 & !(3 << KIND_SHIFT) <= u64::from(u32::MAX),
            KIND_FRAME => self.units() > 0 && self.blocks() <= FRAME_BLOCKS_MAX,
            _ => self.units() > 0,
        }
    }
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_unmapped() {
            write!(f, "unmapped")
        } else if let Some(word) = self.fill_word() {
            write!(f, "fill {word:#010x}")
        } else if self.is_frame() {
            write!(
                f,
                "frame of {} blocks at {:#x}, {} bytes",
                self.blocks(),
                self.position_bytes(),
                self.len_bytes()
            )
        } else {
            write!(f, "record at {:#x}, {} bytes", self.position_bytes(), self.len_bytes())
        }
    }
}
