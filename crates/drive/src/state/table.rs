//! The segment table on the backing: what each place of a checkpoint holds of it, so that only differences
//! are written.

use std::sync::Arc;

use layout::far::COPIES_MAX;
use layout::table::{encode_page, table_crc};
use layout::{Checkpoint, PAGE_BYTES, Rows};
use media::IoBuf;

use crate::state::segments::Segments;

/// Places for checkpoints: two slots, two or three copies each.
const SLOTS: usize = 2;
pub(crate) const COPIES: usize = COPIES_MAX;
/// In place of the number of a checkpoint: there is no such copy, and nothing to write to it.
const ABSENT: u64 = u64::MAX;
/// Most pages in one write.
const RUN_PAGES: usize = 64;

/// A checkpoint that is being written to its places.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) number: u64,
    header: Box<[u8; PAGE_BYTES]>,
    /// The checkpoint that each place holds: it lacks the pages that changed later.
    since: [u64; COPIES],
}

impl Writing {
    /// Returns the header page with a note that a sync of the whole checkpoint has succeeded.
    pub(crate) fn header_of_durable(&self) -> Arc<IoBuf> {
        let mut page = IoBuf::zeroed(PAGE_BYTES);
        page.copy_from_slice(&*self.header);
        Checkpoint::note_durable(&mut page);
        Arc::new(page)
    }
}

/// Part of a checkpoint.
#[derive(Debug)]
pub(crate) struct Part {
    /// Offset from the beginning of its copy.
    pub(crate) offset_bytes: u64,
    pub(crate) bytes: Arc<IoBuf>,
    /// Page of the place that follows it.
    pub(crate) next: usize,
}

/// Contents of the places.
#[derive(Debug)]
pub(crate) struct Table {
    /// For each page of the table, the checkpoint in which it changed last.
    changed_at: Vec<u64>,
    /// Checksum of each page in the newest checkpoint.
    crcs: Vec<u32>,
    /// The checkpoint that each place holds completely; 0: unknown.
    written_at: [[u64; COPIES]; SLOTS],
}

impl Table {
    /// The table of checkpoint `number` with these rows. `whole`: which copies in its own slot hold it. The
    /// copies in the other slot hold the checkpoint before, if its rows are given. `foreign`: pages of which
    /// a place holds other bytes than this release encodes for the rows in them. No checksum is known that
    /// fits all places, so the next checkpoints write these pages to each of them, as if they changed in the
    /// next.
    pub(crate) fn of(
        number: u64,
        rows: &Rows,
        whole: [bool; COPIES],
        before: [Option<&Rows>; COPIES],
        foreign: &[usize],
    ) -> Table {
        let pages = layout::table::table_pages(rows.len());
        let mut table =
            Table { changed_at: vec![0; pages], crcs: vec![0; pages], written_at: [[0; COPIES]; SLOTS] };
        let mut page_bytes = [0; PAGE_BYTES];
        let known = before.iter().flatten().find(|before| before.len() == rows.len());
        for page in 0..pages {
            table.crcs[page] = encode_page(page, rows.page(page), &mut page_bytes);
            let same = known.is_some_and(|before| before.page(page) == rows.page(page));
            table.changed_at[page] = if same { number.saturating_sub(1) } else { number };
        }
        for &page in foreign {
            table.change_page(page, number + 1);
        }
        let slot = (number % SLOTS as u64) as usize;
        for copy in 0..COPIES {
            table.written_at[slot][copy] = if whole[copy] { number } else { 0 };
            let is_known = before[copy].is_some_and(|before| Some(&before) == known);
            table.written_at[1 - slot][copy] = if is_known { number.saturating_sub(1) } else { 0 };
        }
        table
    }

    /// The same on a drive with so many copies.
    pub(crate) fn with_copies(mut self, copies: usize) -> Table {
        self.written_at.iter_mut().for_each(|slot| slot[copies..].fill(ABSENT));
        self
    }

    /// Notes the changed pages that checkpoint `number` is going to write.
    pub(crate) fn change(&mut self, changed: &[bool], number: u64) {
        self.changed_at.resize(changed.len(), number);
        self.crcs.resize(changed.len(), 0);
        for (at, _) in self.changed_at.iter_mut().zip(changed).filter(|(_, changed)| **changed) {
            *at = number;
        }
    }

    /// A page changed while the checkpoint was being written.
    pub(crate) fn change_page(&mut self, page: usize, number: u64) {
        self.changed_at[page] = number;
    }

    /// Encodes a checkpoint's header page. `header` has no rows: the table is that of the segments' cut,
    /// which must not change from here on.
    pub(crate) fn begin_writing(&mut self, header: &Checkpoint, segments: &Segments) -> Writing {
        let since = self.written_at[(header.number % SLOTS as u64) as usize];
        let oldest = since.into_iter().min().unwrap_or(0);
        let mut page_bytes = [0; PAGE_BYTES];
        for page in 0..self.changed_at.len() {
            if self.changed_at[page] > oldest {
                self.crcs[page] = encode_page(page, &segments.page_at_cut(page), &mut page_bytes);
            }
        }
        header.encode_header(segments.count(), table_crc(&self.crcs), &mut page_bytes);
        Writing { number: header.number, header: Box::new(page_bytes), since }
    }

    /// Returns the next part of a checkpoint that one of its places lacks, at or behind page `from` of the
    /// place: the header is page 0, the table begins with page 1. Parts are small, so that a large table
    /// takes no memory as a whole. `None` behind the last.
    pub(crate) fn part(
        &self,
        writing: &Writing,
        copy: usize,
        from: usize,
        segments: &Segments,
    ) -> Option<Part> {
        let is_lacking = |page: &usize| match page.checked_sub(1) {
            None => true,
            Some(page) => self.changed_at[page] > writing.since[copy],
        };
        let pages = self.changed_at.len();
        let first = (from..=pages).find(is_lacking)?;
        let len = (first..=pages).take(RUN_PAGES).take_while(is_lacking).count();
        let mut bytes = IoBuf::zeroed(len * PAGE_BYTES);
        for (page, out) in (first..).zip(bytes.chunks_exact_mut(PAGE_BYTES)) {
            match page.checked_sub(1) {
                None => out.copy_from_slice(&*writing.header),
                Some(page) => {
                    let crc = encode_page(page, &segments.page_at_cut(page), out);
                    debug_assert_eq!(
                        crc, self.crcs[page],
                        "a page of the table changed under its checkpoint"
                    );
                }
            }
        }
        Some(Part { offset_bytes: (first * PAGE_BYTES) as u64, bytes: Arc::new(bytes), next: first + len })
    }

    /// A place is about to be written.
    pub(crate) fn begin_place(&mut self, number: u64, copy: usize) {
        self.written_at[(number % SLOTS as u64) as usize][copy] = 0;
    }

    /// A place holds a checkpoint completely and durably.
    pub(crate) fn end_place(&mut self, number: u64, copy: usize) {
        self.written_at[(number % SLOTS as u64) as usize][copy] = number;
    }
}
