//! Places of the fixed structures and of the segments.

use crate::limits::SUPERBLOCK_COPIES;
use crate::table::with_header_bytes;
use crate::{ATOMIC_WRITE_BYTES, BLOCK_BYTES, DecodeError, Entry, ParityForm};

/// Offset of the first checkpoint area, in bytes.
pub(crate) const CHECKPOINT_AREA_OFFSET: u64 = 128 * 1024;
/// The first segment begins at a multiple of this.
const SEGMENTS_ALIGN: u64 = 1024 * 1024;
/// Fewest segments a drive can work with: three heads with a successor each, a reserve, and room for data.
pub const MIN_SEGMENTS: u32 = 24;
/// Smallest segment: it must hold the largest pack.
pub const MIN_SEGMENT_BYTES: u32 = 512 * 1024;
/// Largest segment.
pub const MAX_SEGMENT_BYTES: u32 = 256 * 1024 * 1024;
/// Segments of the largest new drives, unless others are asked for.
const LARGEST_USUAL_SEGMENT_BYTES: u32 = 64 << 20;
/// Segments of new drives with parity that would otherwise have smaller ones, and that have room for many:
/// all of a lost pack of 256 KiB is then made again at 1/32 and 1/16.
const PARITY_SEGMENT_BYTES: u32 = 16 << 20;
/// New drives of this size and more have room for many such segments.
const PARITY_SEGMENT_FROM_BYTES: u64 = 16 << 30;
/// Most segments, after growth.
const MAX_SEGMENTS: u32 = 1 << 26;
/// Most bytes of the backing in use.
const MAX_PHYSICAL_BYTES: u64 = 1 << 53;
/// Most blocks of logical space: four levels of 512 entries.
pub const MAX_BLOCKS: u64 = 512 * 512 * 512 * 512;
/// From this block on, up to [`MAX_BLOCKS`], lies what the drive keeps for itself: one leaf, see
/// [`crate::catalog`].
pub const OWN_FIRST_BLOCK: u64 = MAX_BLOCKS - 512;

/// The sizes everything else follows from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of the backing in use.
    pub physical_size_bytes: u64,
    /// Bytes of a segment, a power of two.
    pub segment_bytes: u32,
    /// Rows that a checkpoint area has room for: the most segments the drive can grow to.
    pub max_segments: u32,
    /// Where the [far copies](crate::far) of superblock and checkpoints begin, in bytes; `None` if there are
    /// none.
    pub far: Option<u64>,
    /// What new fillings of segments have set apart for parity.
    pub parity: ParityForm,
}

impl Geometry {
    /// The geometry for a new drive of `physical_size_bytes`, with room to grow fourfold, without far copies.
    pub fn without_far(
        physical_size_bytes: u64,
        segment_bytes: Option<u32>,
    ) -> Result<Geometry, DecodeError> {
        let segment_bytes = segment_bytes.unwrap_or_else(|| usual_segment_bytes(physical_size_bytes));
        // Multiplied before it is divided: what is left over of a segment grows fourfold too. No bytes in a
        // segment are refused below.
        let max_segments =
            physical_size_bytes.saturating_mul(4).checked_div(u64::from(segment_bytes)).unwrap_or(0);
        let max_segments = u32::try_from(max_segments)
            .map_err(|_| DecodeError::Field("geometry", "too many segments: choose larger ones"))?;
        let (far, parity) = (None, ParityForm::None);
        let geometry = Geometry { physical_size_bytes, segment_bytes, max_segments, far, parity };
        geometry.validate()?;
        Ok(geometry)
    }

    /// Returns the segment size of a new drive for which none was asked for, if parity makes a difference.
    pub fn segment_bytes_for_parity(physical_size_bytes: u64, parity: ParityForm) -> Option<u32> {
        let by_size = match physical_size_bytes {
            PARITY_SEGMENT_FROM_BYTES.. => usual_segment_bytes(physical_size_bytes).max(PARITY_SEGMENT_BYTES),
            _ => return None,
        };
        parity.part().map(|_| by_size)
    }

    /// As [`Geometry::new`], for a drive with parity of this form.
    pub fn with_parity(
        physical_size_bytes: u64,
        segment_bytes: Option<u32>,
        parity: ParityForm,
    ) -> Result<Geometry, DecodeError> {
        let segment_bytes =
            segment_bytes.or_else(|| Geometry::segment_bytes_for_parity(physical_size_bytes, parity));
        Ok(Geometry { parity, ..Geometry::new(physical_size_bytes, segment_bytes)? })
    }

    /// The largest physical size of a new drive, in bytes: it may still grow fourfold.
    pub fn largest_new_bytes(segment_bytes: Option<u32>) -> u64 {
        let segment_bytes = u64::from(segment_bytes.unwrap_or(LARGEST_USUAL_SEGMENT_BYTES));
        (u64::from(MAX_SEGMENTS) * segment_bytes / 4).min(MAX_PHYSICAL_BYTES)
    }

    /// Refuses sizes that cannot be.
    pub fn validate(&self) -> Result<(), DecodeError> {
        let bad = |why| Err(DecodeError::Field("geometry", why));
        if !self.segment_bytes.is_power_of_two()
            || !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes)
        {
            return bad("segment size is not a power of two from 512 KiB to 256 MiB");
        }
        if self.max_segments > MAX_SEGMENTS {
            return bad("more than 67,108,864 segments: choose larger ones");
        }
        if self.physical_size_bytes > MAX_PHYSICAL_BYTES {
            return bad("physical size over 8 PiB");
        }
        if self.segments() < MIN_SEGMENTS || self.segments() > self.max_segments {
            return bad("physical size holds too few segments (24 at the least) or too many");
        }
        assert!(ATOMIC_WRITE_BYTES < MIN_SEGMENT_BYTES as usize);
        self.validate_far()
    }

    /// Bytes of one checkpoint area: header page and table.
    pub fn checkpoint_area_bytes(&self) -> u64 {
        with_header_bytes(self.max_segments as usize) as u64
    }

    /// Returns the offset of a checkpoint area: `slot` 0 or 1, `copy` below [`Geometry::copies`]. The copies
    /// of a slot lie apart.
    pub fn checkpoint_offset(&self, slot: usize, copy: usize) -> u64 {
        assert!(slot < 2 && copy < self.copies());
        match self.far {
            Some(far) if copy >= SUPERBLOCK_COPIES => {
                far + CHECKPOINT_AREA_OFFSET + slot as u64 * self.checkpoint_area_bytes()
            }
            _ => CHECKPOINT_AREA_OFFSET + (copy * 2 + slot) as u64 * self.checkpoint_area_bytes(),
        }
    }

    /// Returns the offsets of the two copies near the start of the checkpoint of this number.
    pub fn checkpoint_offsets(&self, number: u64) -> [u64; 2] {
        [0, 1].map(|copy| self.checkpoint_offset((number % 2) as usize, copy))
    }

    /// Returns the offsets of all copies of the checkpoint of this number.
    pub fn checkpoint_places(&self, number: u64) -> Vec<u64> {
        (0..self.copies()).map(|copy| self.checkpoint_offset((number % 2) as usize, copy)).collect()
    }

    /// Returns the offset of a copy of the superblock near the start.
    pub fn superblock_offset(copy: usize) -> u64 {
        assert!(copy < SUPERBLOCK_COPIES);
        copy as u64 * 64 * 1024
    }

    /// Returns the offset of segment 0.
    pub fn segments_offset(&self) -> u64 {
        (CHECKPOINT_AREA_OFFSET + 4 * self.checkpoint_area_bytes()).next_multiple_of(SEGMENTS_ALIGN)
    }

    /// Segments on the drive.
    pub fn segments(&self) -> u32 {
        let room = self.physical_size_bytes.saturating_sub(self.segments_offset());
        u32::try_from(room / u64::from(self.segment_bytes)).unwrap_or(u32::MAX)
    }

    /// Bytes of a segment that packs of a new filling may take.
    pub fn room_bytes(&self) -> u32 {
        self.parity.room_bytes(self.segment_bytes)
    }

    /// Returns the offset of a segment.
    pub fn segment_offset(&self, segment: u32) -> u64 {
        self.segments_offset() + u64::from(segment) * u64::from(self.segment_bytes)
    }

    /// The segment that holds a byte of the backing, and the byte's offset in it.
    pub fn locate(&self, position_bytes: u64) -> Option<(u32, u32)> {
        let within = position_bytes.checked_sub(self.segments_offset())?;
        let segment = within >> self.segment_bytes.trailing_zeros();
        let offset = within & u64::from(self.segment_bytes - 1);
        (segment < u64::from(self.segments())).then_some((segment as u32, offset as u32))
    }

    /// Returns whether an entry is a record that lies wholly within one segment, and not one of the far
    /// copies. An entry read from the backing has to pass this (or be unmapped, or a fill) before anything is
    /// done with its position: a checksum proves no origin.
    pub fn holds(&self, entry: Entry) -> bool {
        entry.is_record()
            && entry.is_valid()
            && self.locate(entry.position_bytes()).is_some_and(|(segment, offset)| {
                offset as usize + entry.len_bytes() <= self.segment_bytes as usize && !self.is_far(segment)
            })
    }
}

/// Segments of a new drive without parity, unless others are asked for.
fn usual_segment_bytes(physical_size_bytes: u64) -> u32 {
    match physical_size_bytes >> 30 {
        0 => 1 << 20,
        1..256 => 4 << 20,
        256..4096 => 16 << 20,
        _ => LARGEST_USUAL_SEGMENT_BYTES,
    }
}

/// Refuses a logical capacity that cannot be: zero, not whole blocks, or over 256 TiB.
pub fn validate_capacity(bytes: u64) -> Result<(), DecodeError> {
    if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES as u64) {
        return Err(DecodeError::Field("capacity", "not a positive multiple of 4096 bytes"));
    }
    if bytes / BLOCK_BYTES as u64 > OWN_FIRST_BLOCK {
        return Err(DecodeError::Field("capacity", "over 256 TiB less 2 MiB"));
    }
    Ok(())
}
