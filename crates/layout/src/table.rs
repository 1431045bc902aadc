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

use crate::PAGE_BYTES;
use crate::bytes::put;
use crate::row::{ROW_BYTES, SegmentRow};

/// Rows of a page. The last page may have fewer, and zeros behind them.
pub const ROWS_A_PAGE: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / ROW_BYTES;
/// Bytes before the rows of a page.
pub(crate) const PAGE_HEADER_BYTES: usize = 16;

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
