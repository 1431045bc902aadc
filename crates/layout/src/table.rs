//! The table of segments: a row for each segment, in pages that have a checksum each.
//!
//! A checkpoint writes only those pages that differ from what its slot holds, so its cost follows what
//! changed. Its header page covers the checksums of all pages: a page left from an earlier checkpoint, or
//! written to the place of another one, makes that copy of the checkpoint invalid.
//!
//! ```text
//!   0  4  CRC32C of the page, this field as zero    4  4  number of the page, from 0 on
//!   8  8  zero                                      16  .  170 rows of 24 bytes
//! ```

use std::ops::Range;

use crate::bytes::{put, u32_at, u64_at};
use crate::limits::SEQUENCE_LIMIT;
use crate::{DecodeError, PAGE_BYTES, Rows};

/// Bytes of a segment's row.
pub const ROW_BYTES: usize = 24;
/// Rows of a page. The last page may have fewer, and zeros behind them.
pub const ROWS_A_PAGE: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / ROW_BYTES;
const PAGE_HEADER_BYTES: usize = 16;
const WHAT: &str = "checkpoint table";
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
///  16  4  repackable bytes in 16 B units                 20  1  use                21  3  zero
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

    /// Writes the row to the first [`ROW_BYTES`] of `out`. The sequence number is below [`SEQUENCE_LIMIT`].
    pub fn encode(&self, out: &mut [u8]) {
        assert!(self.last_sequence < SEQUENCE_LIMIT, "a row that decoding refuses");
        put(out, 0, &self.live_units.to_le_bytes());
        put(out, 4, &self.generation.to_le_bytes());
        put(out, 8, &self.last_sequence.to_le_bytes());
        put(out, 16, &self.repackable_units.to_le_bytes());
        put(out, 20, &[self.usage as u8, 0, 0, 0]);
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
        };
        if row.last_sequence >= SEQUENCE_LIMIT {
            return Err(DecodeError::Field(ROW, "impossible sequence number"));
        }
        Ok(row)
    }
}

/// Bytes of a table of `segments` rows, and of the header page before it.
pub(crate) fn with_header_bytes(segments: usize) -> usize {
    (1 + table_pages(segments)) * PAGE_BYTES
}

/// Number of pages of a table of `rows` rows.
pub fn table_pages(rows: usize) -> usize {
    rows.div_ceil(ROWS_A_PAGE)
}

/// Number of the page that holds a segment's row.
pub fn page_of(segment: u32) -> usize {
    segment as usize / ROWS_A_PAGE
}

/// The segments whose rows are on page number `page`, which must be below [`table_pages`], of a table of
/// `rows` rows.
pub fn page_rows(page: usize, rows: usize) -> Range<usize> {
    assert!(page < table_pages(rows), "a page behind the table");
    page * ROWS_A_PAGE..rows.min((page + 1) * ROWS_A_PAGE)
}

/// Writes page number `page` of the table, with up to [`ROWS_A_PAGE`] rows, to the first page of `out`.
/// Returns its checksum.
pub fn encode_page(page: usize, rows: &[SegmentRow], out: &mut [u8]) -> u32 {
    assert!(rows.len() <= ROWS_A_PAGE, "more rows than a page has room for");
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

/// The checksum over a table: CRC32C of the checksums of its pages, in order, as little-endian words.
pub fn table_crc(page_crcs: &[u32]) -> u32 {
    page_crcs.iter().fold(0, |crc, page| crc32c::crc32c_append(crc, &page.to_le_bytes()))
}

/// Reads a table page by page, so that memory grows only with pages that are there and whole, whatever number
/// of rows a header page claims.
#[derive(Debug)]
pub struct TableReader {
    /// Rows that the table has.
    count: usize,
    /// See [`table_crc`].
    expected_crc: u32,
    rows: Rows,
    pages: usize,
    crc: u32,
}

impl TableReader {
    /// For a table of `count` rows whose checksum ([`table_crc`]) is `expected_crc`.
    pub(crate) fn new(count: usize, expected_crc: u32) -> TableReader {
        TableReader { count, expected_crc, rows: Rows::default(), pages: 0, crc: 0 }
    }

    /// Reads the next pages of the table. What follows the last page is ignored, and so is a part of a page
    /// at the end of `bytes`.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut rows = [SegmentRow::BLANK; ROWS_A_PAGE];
        let left = table_pages(self.count) - self.pages;
        for b in bytes.chunks_exact(PAGE_BYTES).take(left) {
            let crc = crc32c::crc32c_append(crc32c::crc32c(&[0; 4]), &b[4..]);
            if crc != u32_at(b, 0) {
                return Err(DecodeError::Checksum(WHAT));
            }
            if u32_at(b, 4) as usize != self.pages {
                return Err(DecodeError::Field(WHAT, "page of another place"));
            }
            let here = page_rows(self.pages, self.count).len();
            for (row, raw) in rows[..here].iter_mut().zip(b[PAGE_HEADER_BYTES..].chunks_exact(ROW_BYTES)) {
                *row = SegmentRow::decode(raw)?;
            }
            self.rows.push_page(&rows[..here]);
            self.crc = crc32c::crc32c_append(self.crc, &crc.to_le_bytes());
            self.pages += 1;
        }
        Ok(())
    }

    /// Returns the rows, if all pages were taken and are those that the header page covers.
    pub fn finish(self) -> Result<Rows, DecodeError> {
        if self.pages < table_pages(self.count) {
            return Err(DecodeError::Truncated(WHAT));
        }
        if self.crc != self.expected_crc {
            return Err(DecodeError::Checksum(WHAT));
        }
        Ok(self.rows)
    }
}
