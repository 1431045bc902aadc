//! Parity of a filling while it is written: it adds up pack by pack, in any order, outside the drive's lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use layout::parity::parity_mask;
use layout::{PAGE_BYTES, ParityForm, ParityIndex, ParityShape};
use media::IoBuf;

use crate::sync::Mutex;

/// Parity is written in pieces of this size: a flush that comes meanwhile waits for one of them at most.
const PIECE_BYTES: usize = 128 << 10;

/// Complete fillings that wait for their parity to be written, at most, and their memory.
const WAITING_MAX: usize = 32;
const WAITING_BYTES_MAX: usize = 16 << 20;

/// A filling of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FillingId {
    pub(crate) segment: u32,
    pub(crate) generation: u32,
}

/// A filling to which nothing is added any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    pub(crate) id: FillingId,
    pub(crate) form: ParityForm,
    /// Where its last pack ends, in bytes.
    pub(crate) end: u32,
    pub(crate) last_sequence: u64,
}

/// Parity and checksums of the pages that were written to a filling so far.
pub(crate) struct Accumulator {
    id: FillingId,
    shape: ParityShape,
    /// XOR of the pages of each group, one after the other.
    groups: Vec<u8>,
    /// Checksums by page; `None`: it was not added.
    sums: Vec<Option<u32>>,
    added: u32,
    /// Pages of the filling and its last pack, once that is known.
    end: Option<(u32, u64)>,
    /// Pieces of its parity that were written.
    pub(crate) written_pieces: usize,
}

impl Accumulator {
    pub(crate) fn new(id: FillingId, shape: ParityShape) -> Accumulator {
        Accumulator {
            id,
            shape,
            groups: vec![0; shape.groups() as usize * PAGE_BYTES],
            sums: vec![None; shape.room_pages() as usize],
            added: 0,
            end: None,
            written_pieces: 0,
        }
    }

    pub(crate) fn shape(&self) -> &ParityShape {
        &self.shape
    }

    /// Adds whole pages at an offset, which were written. Each is added once.
    pub(crate) fn add(&mut self, offset: u32, bytes: &[u8]) {
        let first = offset as usize / PAGE_BYTES;
        for (page, bytes) in (first..).zip(bytes.chunks_exact(PAGE_BYTES)) {
            let before = self.sums[page].replace(crc32c::crc32c(bytes));
            assert!(before.is_none(), "page {page} of {:?} was added twice", self.id);
            let at = self.shape.group_of(page as u32) as usize * PAGE_BYTES;
            xor(&mut self.groups[at..at + PAGE_BYTES], bytes);
            self.added += 1;
        }
    }

    /// Memory that it takes.
    fn bytes(&self) -> usize {
        self.groups.len() + std::mem::size_of_val(&self.sums[..])
    }

    /// Nothing is added behind these pages any more.
    pub(crate) fn close(&mut self, end: u32, last_sequence: u64) {
        self.end = Some((end / PAGE_BYTES as u32, last_sequence));
    }

    /// Returns whether all of its pages were added.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some_and(|(end, _)| end == self.added)
    }

    /// The checksum of a page; `None` if it was not added.
    pub(crate) fn sum(&self, page: u32) -> Option<u32> {
        self.sums.get(page as usize).copied().flatten()
    }

    /// The XOR of the added members of a group, and these members with their checksums.
    pub(crate) fn group(&self, group: u32) -> (Vec<u8>, Vec<(u32, u32)>) {
        let at = group as usize * PAGE_BYTES;
        let members = self.shape.members(group, self.shape.room_pages());
        let members = members.filter_map(|page| self.sum(page).map(|sum| (page, sum)));
        (self.groups[at..at + PAGE_BYTES].to_vec(), members.collect())
    }

    /// What is to be written for a complete filling: pieces, with their offsets in the segment.
    pub(crate) fn pieces(&self, log_id: [u8; 16], tag: u32) -> Vec<(u32, IoBuf)> {
        let Some((end, last_sequence)) = self.end.filter(|_| self.is_complete()) else {
            unreachable!("parity of {:?} is written before it is complete", self.id)
        };
        let FillingId { segment, generation } = self.id;
        let mut parity: Vec<(u32, IoBuf)> = Vec::new();
        let mut sums = Vec::new();
        for group in 0..self.shape.groups_used(end) {
            let offset = self.shape.parity_offset(group);
            let at = group as usize * PAGE_BYTES;
            let mut page = IoBuf::zeroed(PAGE_BYTES);
            page.copy_from_slice(&self.groups[at..at + PAGE_BYTES]);
            mask(&mut page, parity_mask(tag, segment, generation, offset));
            sums.push(crc32c::crc32c(&page));
            parity.push((offset, page));
        }
        let pages = self.sums[..end as usize].iter().map(|sum| sum.unwrap_or_default()).collect();
        let list = ParityIndex { log_id, segment, generation, last_sequence, pages, parity: sums };
        let mut index = IoBuf::zeroed(self.shape.index_bytes());
        list.encode(&self.shape, &mut index);
        let [first, last] = self.shape.index_offsets();
        let mut front = IoBuf::zeroed(index.len() + parity.len() * PAGE_BYTES);
        front[..index.len()].copy_from_slice(&index);
        for (offset, page) in &parity {
            let at = (offset - first) as usize;
            front[at..at + PAGE_BYTES].copy_from_slice(page);
        }
        let mut pieces = Vec::new();
        for (number, bytes) in front.chunks(PIECE_BYTES).enumerate() {
            let mut piece = IoBuf::zeroed(bytes.len());
            piece.copy_from_slice(bytes);
            pieces.push((first + (number * PIECE_BYTES) as u32, piece));
        }
        pieces.push((last, index));
        pieces
    }
}

/// Adds a page to another.
pub(crate) fn xor(to: &mut [u8], page: &[u8]) {
    to.iter_mut().zip(page).for_each(|(to, byte)| *to ^= byte);
}

/// Masks a parity page, or undoes that.
pub(crate) fn mask(page: &mut [u8], mask: u32) {
    xor(&mut page[..4], &mask.to_le_bytes());
}

/// The fillings of this run whose parity is not on the medium yet.
#[derive(Default)]
pub(crate) struct Accumulators(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    open: BTreeMap<FillingId, Arc<Mutex<Accumulator>>>,
    /// Those that are complete, in the order in which they became so.
    complete: VecDeque<FillingId>,
}

impl Inner {
    /// Number of complete ones, from the first on, that are within both limits.
    fn within(&self, most: usize, most_bytes: usize) -> usize {
        let mut bytes = 0;
        let of = |id: &FillingId| self.open.get(id).map_or(0, |accumulator| accumulator.lock().bytes());
        let is_within = |id: &&FillingId| {
            bytes += of(id);
            bytes <= most_bytes
        };
        self.complete.iter().take(most).take_while(is_within).count()
    }
}

impl Accumulators {
    /// Adds a pack that was written. Returns whether that completes its filling.
    pub(crate) fn add(&self, id: FillingId, shape: ParityShape, offset: u32, bytes: &[u8]) -> bool {
        let accumulator = self.of(id, shape);
        let is_complete = {
            let mut accumulator = accumulator.lock();
            accumulator.add(offset, bytes);
            accumulator.is_complete()
        };
        if is_complete {
            self.0.lock().complete.push_back(id);
        }
        is_complete
    }

    /// Nothing is added to a filling any more but packs that are on the way to the medium. Returns whether it
    /// is complete.
    pub(crate) fn close(&self, closed: &Closed, segment_bytes: u32) -> bool {
        let Some(shape) = ParityShape::new(segment_bytes, closed.form) else { return false };
        let accumulator = self.of(closed.id, shape);
        let is_complete = {
            let mut accumulator = accumulator.lock();
            let was_complete = accumulator.is_complete();
            accumulator.close(closed.end, closed.last_sequence);
            !was_complete && accumulator.is_complete()
        };
        if is_complete {
            self.0.lock().complete.push_back(closed.id);
        }
        is_complete
    }

    fn of(&self, id: FillingId, shape: ParityShape) -> Arc<Mutex<Accumulator>> {
        let new = || Arc::new(Mutex::new(Accumulator::new(id, shape)));
        self.0.lock().open.entry(id).or_insert_with(new).clone()
    }

    /// Takes up a filling that was read again.
    pub(crate) fn insert(&self, id: FillingId, accumulator: Accumulator) {
        let mut inner = self.0.lock();
        let is_complete = accumulator.is_complete();
        inner.open.insert(id, Arc::new(Mutex::new(accumulator)));
        if is_complete {
            inner.complete.push_back(id);
        }
    }

    pub(crate) fn get(&self, id: FillingId) -> Option<Arc<Mutex<Accumulator>>> {
        self.0.lock().open.get(&id).cloned()
    }

    /// Returns the next complete filling. It stays until it is removed.
    pub(crate) fn next_complete(&self) -> Option<(FillingId, Arc<Mutex<Accumulator>>)> {
        let mut inner = self.0.lock();
        while let Some(id) = inner.complete.pop_front() {
            if let Some(accumulator) = inner.open.get(&id) {
                return Some((id, accumulator.clone()));
            }
        }
        None
    }

    /// Writing one was broken off.
    pub(crate) fn put_back(&self, id: FillingId) {
        self.0.lock().complete.push_front(id);
    }

    /// Number of complete ones that wait.
    pub(crate) fn complete_count(&self) -> usize {
        self.0.lock().complete.len()
    }

    /// Forgets the complete ones that came last, if too many wait, and returns them. The first one stays.
    pub(crate) fn take_surplus(&self) -> Vec<FillingId> {
        let mut inner = self.0.lock();
        let kept = inner.within(WAITING_MAX, WAITING_BYTES_MAX).max(1).min(inner.complete.len());
        let surplus: Vec<FillingId> = inner.complete.drain(kept..).collect();
        surplus.iter().for_each(|id| _ = inner.open.remove(id));
        surplus
    }

    /// Returns whether so few wait that others may be made from the medium.
    pub(crate) fn few_wait(&self) -> bool {
        let inner = self.0.lock();
        inner.within(WAITING_MAX / 4, WAITING_BYTES_MAX / 4) == inner.complete.len()
    }

    pub(crate) fn remove(&self, id: FillingId) {
        self.0.lock().open.remove(&id);
    }

    /// Forgets fillings that are not wanted any more.
    pub(crate) fn retain(&self, mut wanted: impl FnMut(FillingId) -> bool) {
        self.0.lock().open.retain(|id, _| wanted(*id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the form: one that waits alone is never dropped, or it would be made for ever.
    #[test]
    fn the_first_one_that_waits_stays() {
        for form in [ParityForm::Part64, ParityForm::Part32, ParityForm::Part16] {
            for bits in 20..29 {
                let shape = ParityShape::new(1 << bits, form).expect("a shape");
                let all = Accumulators::default();
                for segment in 0..3 {
                    let id = FillingId { segment, generation: 1 };
                    let mut made = Accumulator::new(id, shape);
                    made.close(0, 1);
                    all.insert(id, made);
                    let dropped = all.take_surplus();
                    assert!(segment > 0 || dropped.is_empty(), "{form}, {bits} bits: {dropped:?}");
                }
                assert!(all.complete_count() >= 1);
            }
        }
    }
}
