//! The table of segments: a row for each, in pages with checksums of their own.
//!
//! A checkpoint writes those pages of its slot that are not what they must be already, so its cost follows what changed. The
//! header page names the checksums of all pages, so that a page left from an earlier checkpoint is found.
//!
//! ```text
//!   0  4  CRC32C of the page, this field as zero    4  4  number of the page, from 0 on
//!   8  8  zero                                      16  .  170 rows of 24 bytes
//! ```

use std::ops::Range;

use crate::bytes::{put, u32_at, u64_at};
use crate::checkpoint::SEQUENCE_LIMIT;
use crate::{DecodeError, PAGE_BYTES};

/// Bytes of a segment's row.
pub const ROW_BYTES: usize = 24;
/// Rows of a page; the last page may have fewer, and zeros in their place.
pub const ROWS_A_PAGE: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / ROW_BYTES;
const PAGE_HEADER_BYTES: usize = 16;
const WHAT: &str = "checkpoint table";

/// What a segment is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SegmentUse {
    /// Holds nothing; may be opened by a head.
    Free = 0,
    /// Holds packs, or is open.
    Used = 1,
    /// Holds a record that cleaning could not read: never freed.
    Damaged = 2,
    /// A write to it failed: what it holds can be read and moved out, nothing is written to it any more.
    Bad = 3,
}

/// A segment's row in the table.
///
/// ```text
///   0  4  live bytes in 16 B units    4  4  generation    8  8  sequence number of the last pack in it
///  16  4  repackable bytes in 16 B units                 20  1  use                21  3  zero
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRow {
    /// Sum of the lengths of the records in it of which anything is live, in 16-byte units.
    pub live_units: u32,
    /// Number of this filling.
    pub generation: u32,
    /// Sequence number of the last pack written to it.
    pub last_sequence: u64,
    /// Of the live units, an estimate of what belongs to dead blocks of frames of which others live: what packing those
    /// anew may gain.
    pub repackable_units: u32,
    /// What it is used for.
    pub usage: SegmentUse,
}

impl SegmentRow {
    /// The row of a segment that was never used.
    pub const BLANK: SegmentRow = SegmentRow {
        live_units: 0,
        generation: 0,
        last_sequence: 0,
        repackable_units: 0,
        usage: SegmentUse::Free,
    };

    /// Writes the row. The sequence number is below [`SEQUENCE_LIMIT`].
    pub fn encode(&self, out: &mut [u8]) {
        debug_assert!(self.last_sequence < SEQUENCE_LIMIT);
        put(out, 0, &self.live_units.to_le_bytes());
        put(out, 4, &self.generation.to_le_bytes());
        put(out, 8, &self.last_sequence.to_le_bytes());
        put(out, 16, &self.repackable_units.to_le_bytes());
        put(out, 20, &[self.usage as u8, 0, 0, 0]);
    }

    /// Reads a row.
    pub fn decode(b: &[u8]) -> Result<SegmentRow, DecodeError> {
        if b.len() < ROW_BYTES {
            return Err(DecodeError::Truncated("segment row"));
        }
        let bad = |why| Err(DecodeError::Field("segment row", why));
        let row = SegmentRow {
            live_units: u32_at(b, 0),
            generation: u32_at(b, 4),
            last_sequence: u64_at(b, 8),
            repackable_units: u32_at(b, 16),
            usage: match b[20] {
                0 => SegmentUse::Free,
                1 => SegmentUse::Used,
                2 => SegmentUse::Damaged,
                3 => SegmentUse::Bad,
                _ => return bad("unknown segment use"),
            },
        };
        if row.last_sequence >= SEQUENCE_LIMIT {
            return bad("impossible sequence number");
        }
        Ok(row)
    }
}

/// Pages of a table of so many rows.
pub fn table_pages(rows: usize) -> usize {
    rows.div_ceil(ROWS_A_PAGE)
}

/// The page that a segment's row is on.
pub fn page_of(segment: u32) -> usize {
    segment as usize / ROWS_A_PAGE
}

/// The segments whose rows are on a page, of a table of so many rows.
pub fn page_rows(page: usize, rows: usize) -> Range<usize> {
    page * ROWS_A_PAGE..rows.min((page + 1) * ROWS_A_PAGE)
}

/// Writes a page of the table; answers its checksum.
pub fn encode_page(page: usize, rows: &[SegmentRow], out: &mut [u8]) -> u32 {
    let b = &mut out[..PAGE_BYTES];
    b.fill(0);
    put(b, 4, &(page as u32).to_le_bytes());
    for (row, raw) in rows.iter().zip(b[PAGE_HEADER_BYTES..].chunks_exact_mut(ROW_BYTES)) {
        row.encode(raw);
    }
    let crc = crc32c::crc32c(b);
    put(b, 0, &crc.to_le_bytes());
    crc
}

/// The checksum over a table, out of those of its pages.
pub fn table_crc(pages: &[u32]) -> u32 {
    pages.iter().fold(0, |crc, page| crc32c::crc32c_append(crc, &page.to_le_bytes()))
}

/// Reads a table of so many rows, and the checksums of its pages.
pub(crate) fn decode_table(bytes: &[u8], rows: usize) -> Result<(Vec<SegmentRow>, Vec<u32>), DecodeError> {
    let pages = bytes.chunks_exact(PAGE_BYTES).take(table_pages(rows));
    let (mut table, mut crcs) = (Vec::with_capacity(bytes.len() / ROW_BYTES), Vec::new());
    for (page, b) in pages.enumerate() {
        let crc = crc32c::crc32c_append(crc32c::crc32c(&[0; 4]), &b[4..]);
        if crc != u32_at(b, 0) || u32_at(b, 4) as usize != page {
            return Err(DecodeError::Checksum(WHAT));
        }
        let of_page = page_rows(page, rows).len();
        for raw in b[PAGE_HEADER_BYTES..].chunks_exact(ROW_BYTES).take(of_page) {
            table.push(SegmentRow::decode(raw)?);
        }
        crcs.push(crc);
    }
    if table.len() < rows { Err(DecodeError::Truncated(WHAT)) } else { Ok((table, crcs)) }
}
