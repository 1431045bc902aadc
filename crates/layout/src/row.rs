//! A segment's row in the [table](crate::table) of segments.

use crate::bytes::{put, u32_at, u64_at};
use crate::limits::SEQUENCE_LIMIT;
use crate::{DecodeError, ParityForm};

/// Bytes of a segment's row.
pub const ROW_BYTES: usize = 24;
const ROW: &str = "segment row";

/// Use of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentUse {
    /// Holds nothing; may be opened by a head.
    Free = 0,
    /// Holds packs, or is open.
    Used = 1,
    /// Holds a record that cleaning could not read: never freed.
    Damaged = 2,
    /// A write to it failed: never written again. Its records stay readable until they are moved out.
    Bad = 3,
}

/// A segment's row in the table.
///
/// ```text
///   0  4  live bytes in 16 B units    4  4  generation    8  8  sequence number of the last pack in it
///  16  4  repackable bytes in 16 B units                 20  1  use
///  21  1  bits 0 to 3: the form of parity of this filling; bit 7: parity is there       22  2  zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// Sum of the lengths of the records in it that have a live block, in 16-byte units. A frame counts whole
    /// until its last block dies.
    pub live_units: u32,
    /// Number of this filling.
    pub generation: u32,
    /// Sequence number of the last pack written to it.
    pub last_sequence: u64,
    /// Estimate of the live units that dead blocks of frames take: what cleaning may gain by compressing the
    /// live blocks anew. Never more than the equal shares of those dead blocks; 0 is always allowed.
    pub repackable_units: u32,
    /// Its use.
    pub usage: SegmentUse,
    /// What this filling has set apart for parity. Means nothing on drives without the feature.
    pub parity: ParityForm,
    /// That parity is durable. Otherwise it may be there all the same.
    pub has_parity: bool,
}

/// [`SegmentRow::has_parity`].
const HAS_PARITY: u8 = 0x80;
const FORM: u8 = 0x0f;

impl SegmentRow {
    /// The row of a segment that was never used.
    pub const BLANK: SegmentRow = SegmentRow {
        live_units: 0,
        generation: 0,
        last_sequence: 0,
        repackable_units: 0,
        usage: SegmentUse::Free,
        parity: ParityForm::None,
        has_parity: false,
    };

    /// The row of a segment that is set aside for the [far copies](crate::far): as of one that takes no
    /// writes, so that a program that does not know of them leaves it alone.
    pub const ASIDE: SegmentRow = SegmentRow { usage: SegmentUse::Bad, ..SegmentRow::BLANK };

    /// Returns whether it may be the row of such a segment.
    pub fn is_aside(&self) -> bool {
        self.usage == SegmentUse::Bad && self.live_units == 0
    }

    /// Writes the row to the first [`ROW_BYTES`] of `out`. The sequence number is below [`SEQUENCE_LIMIT`].
    pub fn encode(&self, out: &mut [u8]) {
        assert!(self.last_sequence < SEQUENCE_LIMIT, "a row that decoding refuses");
        put(out, 0, &self.live_units.to_le_bytes());
        put(out, 4, &self.generation.to_le_bytes());
        put(out, 8, &self.last_sequence.to_le_bytes());
        put(out, 16, &self.repackable_units.to_le_bytes());
        let parity = self.parity as u8 | if self.has_parity { HAS_PARITY } else { 0 };
        put(out, 20, &[self.usage as u8, parity, 0, 0]);
    }

    /// Reads a row. Whether it fits the drive's segments is for
    /// [`Checkpoint::validate`](crate::Checkpoint::validate).
    pub fn decode(b: &[u8]) -> Result<SegmentRow, DecodeError> {
        if b.len() < ROW_BYTES {
            return Err(DecodeError::Truncated(ROW));
        }
        let usage = match b[20] {
            0 => SegmentUse::Free,
            1 => SegmentUse::Used,
            2 => SegmentUse::Damaged,
            3 => SegmentUse::Bad,
            _ => return Err(DecodeError::Field(ROW, "unknown segment use")),
        };
        let row = SegmentRow {
            live_units: u32_at(b, 0),
            generation: u32_at(b, 4),
            last_sequence: u64_at(b, 8),
            repackable_units: u32_at(b, 16),
            usage,
            parity: ParityForm::of_number(b[21] & FORM).unwrap_or_default(),
            has_parity: b[21] & HAS_PARITY != 0,
        };
        if row.last_sequence >= SEQUENCE_LIMIT {
            return Err(DecodeError::Field(ROW, "impossible sequence number"));
        }
        Ok(row)
    }
}
