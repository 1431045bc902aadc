//! Rows of the segment table in memory. Pages of segments that were never used take none.

use std::ops::{Index, IndexMut};

use crate::row::SegmentRow;
use crate::table::{ROWS_A_PAGE, page_rows, table_pages};

/// Rows of one page of the table.
type Page = [SegmentRow; ROWS_A_PAGE];
const BLANK_PAGE: Page = [SegmentRow::BLANK; ROWS_A_PAGE];
static BLANK: Page = BLANK_PAGE;

/// Rows of a segment table. A drive may have millions of segments of which few were ever used: pages whose
/// rows are all [`SegmentRow::BLANK`] take 8 bytes, other ones 24 bytes a row.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    len: usize,
    /// Rows behind `len` are blank.
    pages: Vec<Option<Box<Page>>>,
    /// See [`Rows::foreign_pages`].
    foreign: Vec<usize>,
}

impl Rows {
    /// Rows of `len` segments that were never used.
    pub fn blank(len: usize) -> Rows {
        let mut rows = Rows::default();
        rows.grow(len);
        rows
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds blank rows until there are `len`. Never removes any.
    pub fn grow(&mut self, len: usize) {
        self.len = self.len.max(len);
        self.pages.resize_with(table_pages(self.len), || None);
    }

    /// The row of a segment; `None` if there are fewer.
    pub fn get(&self, segment: usize) -> Option<&SegmentRow> {
        let page = self.pages.get(segment / ROWS_A_PAGE).filter(|_| segment < self.len)?;
        Some(&page.as_deref().unwrap_or(&BLANK)[segment % ROWS_A_PAGE])
    }

    /// Rows of page number `page`, which must be below [`table_pages`].
    pub fn page(&self, page: usize) -> &[SegmentRow] {
        let count = page_rows(page, self.len).len();
        &self.pages[page].as_deref().unwrap_or(&BLANK)[..count]
    }

    /// All rows.
    pub fn iter(&self) -> impl Iterator<Item = &SegmentRow> {
        (0..self.pages.len()).flat_map(|page| self.page(page))
    }

    /// Rows that differ from [`SegmentRow::BLANK`], with their segments, in rising order. Takes time in
    /// proportion to the pages in memory.
    pub fn used(&self) -> impl Iterator<Item = (u32, &SegmentRow)> {
        let pages = (0..self.pages.len()).filter(|page| self.pages[*page].is_some());
        let rows = pages.flat_map(|page| (page * ROWS_A_PAGE..).zip(self.page(page)));
        rows.filter(|(_, row)| **row != SegmentRow::BLANK).map(|(segment, row)| (segment as u32, row))
    }

    /// Pages of the table that these rows were read from whose bytes differ from what this release encodes,
    /// in rising order: a later release wrote what this one ignores. They are not part of a comparison of
    /// rows.
    pub fn foreign_pages(&self) -> &[usize] {
        &self.foreign
    }

    /// Notes that the page appended last was read from other bytes than this release encodes.
    pub(crate) fn note_foreign(&mut self) {
        self.foreign.extend(self.pages.len().checked_sub(1));
    }

    /// Appends the rows of the next page, which may be the last one. All pages before it must be full.
    pub(crate) fn push_page(&mut self, rows: &[SegmentRow]) {
        assert!(
            self.len.is_multiple_of(ROWS_A_PAGE) && rows.len() <= ROWS_A_PAGE,
            "pages are appended whole"
        );
        self.len += rows.len();
        let is_blank = rows.iter().all(|row| *row == SegmentRow::BLANK);
        self.pages.push((!is_blank).then(|| {
            let mut page = Box::new(BLANK_PAGE);
            page[..rows.len()].copy_from_slice(rows);
            page
        }));
    }
}

impl Index<usize> for Rows {
    type Output = SegmentRow;

    fn index(&self, segment: usize) -> &SegmentRow {
        match self.get(segment) {
            Some(row) => row,
            None => panic!("row {segment} of {}", self.len),
        }
    }
}

impl IndexMut<usize> for Rows {
    fn index_mut(&mut self, segment: usize) -> &mut SegmentRow {
        assert!(segment < self.len, "row {segment} of {}", self.len);
        let page = self.pages[segment / ROWS_A_PAGE].get_or_insert_with(|| Box::new(BLANK_PAGE));
        &mut page[segment % ROWS_A_PAGE]
    }
}

impl PartialEq for Rows {
    fn eq(&self, other: &Rows) -> bool {
        self.len == other.len && (0..self.pages.len()).all(|page| self.page(page) == other.page(page))
    }
}

impl Eq for Rows {}

impl FromIterator<SegmentRow> for Rows {
    fn from_iter<T: IntoIterator<Item = SegmentRow>>(rows: T) -> Rows {
        let mut found = Rows::default();
        let mut rows = rows.into_iter();
        loop {
            let page: Vec<SegmentRow> = rows.by_ref().take(ROWS_A_PAGE).collect();
            if page.is_empty() {
                return found;
            }
            found.push_page(&page);
        }
    }
}

impl From<Vec<SegmentRow>> for Rows {
    fn from(rows: Vec<SegmentRow>) -> Rows {
        rows.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: u32) -> SegmentRow {
        SegmentRow { generation: n, ..SegmentRow::BLANK }
    }

    #[test]
    fn rows_are_those_of_a_list() {
        for len in [0, 1, 169, 170, 171, 500] {
            let list: Vec<SegmentRow> = (0..len).map(|n| row(n / 3 % 2 * n)).collect();
            let rows = Rows::from(list.clone());
            assert_eq!((rows.len(), rows.is_empty()), (list.len(), list.is_empty()));
            assert_eq!(rows.iter().copied().collect::<Vec<_>>(), list);
            assert!((0..len as usize + 2).all(|n| rows.get(n) == list.get(n)));
            let used: Vec<u32> = rows.used().map(|(segment, _)| segment).collect();
            assert_eq!(used, (0..len).filter(|n| list[*n as usize] != SegmentRow::BLANK).collect::<Vec<_>>());
        }
    }

    #[test]
    fn blank_pages_take_no_memory_and_are_equal_to_pages_of_blank_rows() {
        let mut rows = Rows::blank(400);
        assert!(rows.pages.iter().all(Option::is_none));
        rows[200] = row(7);
        assert_eq!(rows.pages.iter().filter(|page| page.is_some()).count(), 1);
        assert_ne!(rows, Rows::blank(400));
        rows[200] = SegmentRow::BLANK;
        assert_eq!(rows, Rows::blank(400));
        assert_ne!(rows, Rows::blank(399));
        assert!(Rows::from(vec![SegmentRow::BLANK; 400]).pages.iter().all(Option::is_none));
    }

    #[test]
    fn growth_adds_blank_rows() {
        let mut rows: Rows = (1..=100).map(row).collect();
        rows.grow(180);
        rows.grow(50);
        let expected = (1..=100).map(row).chain([SegmentRow::BLANK; 80]);
        assert_eq!(rows, expected.collect());
    }
}
