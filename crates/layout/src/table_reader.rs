//! Reading of the [table](crate::table) of segments.

use crate::bytes::u32_at;
use crate::row::{ROW_BYTES, SegmentRow};
use crate::table::{PAGE_HEADER_BYTES, ROWS_A_PAGE, encode_page, page_rows, table_pages};
use crate::{DecodeError, PAGE_BYTES, Rows};

const WHAT: &str = "checkpoint table";

/// Reads a table page by page, so that memory grows only with pages that are there and whole, whatever number
/// of rows a header page claims.
#[derive(Debug)]
pub struct TableReader {
    /// Rows that the table has.
    count: usize,
    /// See [`table_crc`](crate::table::table_crc).
    expected_crc: u32,
    rows: Rows,
    pages: usize,
    crc: u32,
}

impl TableReader {
    /// For a table of `count` rows whose checksum ([`table_crc`](crate::table::table_crc)) is `expected_crc`.
    pub(crate) fn new(count: usize, expected_crc: u32) -> TableReader {
        TableReader { count, expected_crc, rows: Rows::default(), pages: 0, crc: 0 }
    }

    /// Reads the next pages of the table. What follows the last page is ignored, and so is a part of a page
    /// at the end of `bytes`.
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        let mut rows = [SegmentRow::BLANK; ROWS_A_PAGE];
        let mut encoded = [0; PAGE_BYTES];
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
            encode_page(self.pages, &rows[..here], &mut encoded);
            if encoded[..] != b[..] {
                self.rows.note_foreign();
            }
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
