//! The segment table on the backing: what each place of a checkpoint holds of it, so that only differences are
//! written.

use std::sync::Arc;

use layout::table::{encode_page, table_crc};
use layout::{Checkpoint, PAGE_BYTES, SegmentRow};
use media::IoBuf;

use crate::state::segments::Segments;

/// Places for checkpoints: two slots, two copies each.
const SLOTS: usize = 2;
pub(crate) const COPIES: usize = 2;
/// Most pages in one write.
const RUN_PAGES: usize = 64;

/// Part of a checkpoint: offset from the beginning of its copy, and bytes.
pub(crate) type Part = (u64, Arc<IoBuf>);

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
    /// The table of checkpoint `number` with these rows. `whole`: which copies in its own slot hold it. The copies in
    /// the other slot hold the checkpoint before, if its rows are given.
    pub(crate) fn of(
        number: u64,
        rows: &[SegmentRow],
        whole: [bool; COPIES],
        before: [Option<&[SegmentRow]>; COPIES],
    ) -> Table {
        let pages = layout::table::table_pages(rows.len());
        let mut table =
            Table { changed_at: vec![0; pages], crcs: vec![0; pages], written_at: [[0; COPIES]; SLOTS] };
        let mut page_bytes = [0; PAGE_BYTES];
        let known = before.iter().flatten().find(|before| before.len() == rows.len());
        for page in 0..pages {
            let range = layout::table::page_rows(page, rows.len());
            table.crcs[page] = encode_page(page, &rows[range.clone()], &mut page_bytes);
            let same = known.is_some_and(|before| before[range.clone()] == rows[range]);
            table.changed_at[page] = if same { number.saturating_sub(1) } else { number };
        }
        let slot = (number % SLOTS as u64) as usize;
        for copy in 0..COPIES {
            table.written_at[slot][copy] = if whole[copy] { number } else { 0 };
            let is_known = before[copy].is_some_and(|before| Some(&before) == known);
            table.written_at[1 - slot][copy] = if is_known { number.saturating_sub(1) } else { 0 };
        }
        table
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

    /// Returns the parts of a checkpoint that its places lack, for each copy. `header` has no rows: the table is that
    /// of the segments' cut.
    pub(crate) fn encode(&mut self, header: &Checkpoint, segments: &Segments) -> [Vec<Part>; COPIES] {
        let slot = (header.number % SLOTS as u64) as usize;
        let oldest = self.written_at[slot].into_iter().min().unwrap_or(0);
        let mut pages: Vec<Option<Box<[u8]>>> = vec![None; self.changed_at.len()];
        for (page, bytes) in pages.iter_mut().enumerate() {
            if self.changed_at[page] > oldest {
                let mut encoded = vec![0; PAGE_BYTES].into_boxed_slice();
                self.crcs[page] = encode_page(page, &segments.page_at_cut(page), &mut encoded);
                *bytes = Some(encoded);
            }
        }
        let mut first = vec![0; PAGE_BYTES].into_boxed_slice();
        header.encode_header(segments.count(), table_crc(&self.crcs), &mut first);
        std::array::from_fn(|copy| {
            let written_at = self.written_at[slot][copy];
            let lacks = (0..pages.len()).filter(|page| self.changed_at[*page] > written_at);
            let mut places: Vec<(usize, &[u8])> = vec![(0, &first)];
            places.extend(lacks.filter_map(|page| Some((page + 1, pages[page].as_deref()?))));
            parts(&places)
        })
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

/// Joins pages that follow each other.
fn parts(places: &[(usize, &[u8])]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = places;
    while let Some((first, _)) = rest.first() {
        let len = rest.iter().zip(*first..).take(RUN_PAGES).take_while(|((at, _), page)| at == page).count();
        let (run, after) = rest.split_at(len);
        let mut buf = IoBuf::zeroed(len * PAGE_BYTES);
        for ((_, bytes), out) in run.iter().zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            out.copy_from_slice(bytes);
        }
        parts.push(((first * PAGE_BYTES) as u64, Arc::new(buf)));
        rest = after;
    }
    parts
}
