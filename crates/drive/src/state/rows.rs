//! The rows of the segment table as a checkpoint writes them: which pages changed, and what they held at the
//! cut.

use layout::SegmentRow;
use layout::table::{page_of, page_rows, table_pages};

/// The rows of one page of the table.
pub(crate) type Page = Box<[SegmentRow]>;

/// Information about the table that a checkpoint needs in addition to the rows.
#[derive(Debug, Default)]
pub(crate) struct RowPages {
    /// Pages with a row that changed since the last cut.
    changed: Vec<bool>,
    /// While a checkpoint is being written: pages that changed since its cut, as they were at the cut.
    at_cut: Option<Vec<Option<Page>>>,
}

impl RowPages {
    /// Sets the number of rows. A new page counts as changed.
    pub(crate) fn resize(&mut self, rows: usize) {
        assert!(self.at_cut.is_none(), "a table does not grow under a checkpoint");
        if let Some(last) = self.changed.last_mut() {
            *last = true;
        }
        self.changed.resize(table_pages(rows), true);
    }

    /// The rows are those of a checkpoint that has all of them.
    pub(crate) fn loaded(&mut self) {
        self.changed.fill(false);
    }

    /// A row is about to change. `rows` returns the present rows of its page.
    pub(crate) fn touch(&mut self, segment: u32, rows: impl FnOnce(std::ops::Range<usize>) -> Page) {
        let page = page_of(segment);
        if let Some(at_cut) = &mut self.at_cut
            && at_cut[page].is_none()
        {
            at_cut[page] = Some(rows(page_rows(page, usize::MAX)));
        }
        self.changed[page] = true;
    }

    /// Begins a cut. Returns which pages changed since the one before.
    pub(crate) fn cut(&mut self) -> Vec<bool> {
        assert!(self.at_cut.is_none(), "a cut is begun in a cut");
        self.at_cut = Some((0..self.changed.len()).map(|_| None).collect());
        let pages = self.changed.len();
        std::mem::replace(&mut self.changed, vec![false; pages])
    }

    /// Returns a page as it was at the cut, if it changed since.
    pub(crate) fn at_cut(&self, page: usize) -> Option<&Page> {
        self.at_cut.as_ref()?[page].as_ref()
    }

    /// The same, for changes. `rows` returns the rows of the page if none changed since the cut.
    pub(crate) fn at_cut_mut(
        &mut self,
        segment: u32,
        rows: impl FnOnce(std::ops::Range<usize>) -> Page,
    ) -> Option<&mut SegmentRow> {
        let page = page_of(segment);
        let range = page_rows(page, usize::MAX);
        let first = range.start;
        let rows = self.at_cut.as_mut()?[page].get_or_insert_with(|| rows(range));
        rows.get_mut(segment as usize - first)
    }

    /// Returns whether a cut is kept.
    pub(crate) fn is_frozen(&self) -> bool {
        self.at_cut.is_some()
    }

    /// The checkpoint is complete or given up.
    pub(crate) fn end_cut(&mut self) {
        self.at_cut = None;
    }
}
