//! Parity of a filling while it is written: it adds up pack by pack, in any order, outside the drive's lock.

use std::collections::{BTreeMap, VecDeque};
use std::iter;
use std::ops::Range;
use std::sync::Arc;

use layout::parity::parity_mask;
use layout::{PAGE_BYTES, ParityForm, ParityIndex, ParityShape};
use media::IoBuf;

use crate::sync::Mutex;

/// Parity is written in pieces of about this size: a flush that comes meanwhile waits for one at most.
const PIECE_BYTES: usize = 128 << 10;

const PAGE: u32 = PAGE_BYTES as u32;
/// Bytes of a parity page that are masked.
const MASKED_BYTES: usize = size_of::<u32>();

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
    groups: IoBuf,
    /// Which of them have pages. The others hold anything.
    begun: Vec<bool>,
    /// Packs that are being written, by their first page. They are in the groups already: before a pack is
    /// written it is in the processor's cache, and later it is not.
    pending: BTreeMap<u32, Pending>,
    /// Checksums by page; `None`: it was not written.
    sums: Vec<Option<u32>>,
    written: u32,
    /// Pages of the filling and its last pack, once that is known.
    end: Option<(u32, u64)>,
    /// Pieces of its parity that were written.
    pub(crate) written_pieces: usize,
}

/// A pack that is being written.
struct Pending {
    buf: Arc<IoBuf>,
    /// Checksums of its pages.
    sums: Vec<u32>,
}

impl Accumulator {
    pub(crate) fn new(id: FillingId, shape: ParityShape) -> Accumulator {
        Accumulator {
            id,
            shape,
            groups: IoBuf::pooled(shape.groups() as usize * PAGE_BYTES),
            begun: vec![false; shape.groups() as usize],
            pending: BTreeMap::new(),
            sums: vec![None; shape.room_pages() as usize],
            written: 0,
            end: None,
            written_pieces: 0,
        }
    }

    pub(crate) fn shape(&self) -> &ParityShape {
        &self.shape
    }

    /// Adds whole pages at an offset, which were written. Each is added once.
    pub(crate) fn add(&mut self, offset: u32, bytes: &[u8]) {
        let sums = self.add_to_groups(offset, bytes);
        self.take(offset, sums);
    }

    /// Adds a pack that is about to be written.
    fn begin(&mut self, offset: u32, buf: Arc<IoBuf>) {
        let sums = self.add_to_groups(offset, &buf);
        let before = self.pending.insert(offset / PAGE, Pending { buf, sums });
        assert!(before.is_none(), "a pack at {offset} of {:?} is written twice at a time", self.id);
    }

    /// Writing it came to an end. Returns whether it was the last of a complete filling.
    fn finish(&mut self, offset: u32, is_written: bool) -> bool {
        let Some(Pending { buf, sums }) = self.pending.remove(&(offset / PAGE)) else { return false };
        if is_written {
            self.take(offset, sums);
        } else {
            // Adding it again takes it out.
            self.add_to_groups(offset, &buf);
        }
        is_written && self.is_complete()
    }

    /// Returns the checksums of the pages.
    fn add_to_groups(&mut self, offset: u32, bytes: &[u8]) -> Vec<u32> {
        let pages = (offset / PAGE..).zip(bytes.chunks_exact(PAGE_BYTES));
        let add = |(page, bytes): (u32, &[u8])| {
            let group = self.shape.group_of(page) as usize;
            let sum = &mut self.groups[group * PAGE_BYTES..(group + 1) * PAGE_BYTES];
            match std::mem::replace(&mut self.begun[group], true) {
                true => xor(sum, bytes),
                false => sum.copy_from_slice(bytes),
            }
            crc32c::crc32c(bytes)
        };
        pages.map(add).collect()
    }

    fn take(&mut self, offset: u32, sums: Vec<u32>) {
        for (page, sum) in (offset as usize / PAGE_BYTES..).zip(sums) {
            let before = self.sums[page].replace(sum);
            assert!(before.is_none(), "page {page} of {:?} was added twice", self.id);
            self.written += 1;
        }
    }

    /// Memory that it takes.
    fn bytes(&self) -> usize {
        self.groups.capacity() + std::mem::size_of_val(&self.sums[..])
    }

    /// Nothing is added behind these pages any more.
    pub(crate) fn close(&mut self, end: u32, last_sequence: u64) {
        self.end = Some((end / PAGE, last_sequence));
    }

    /// Returns whether all of its pages were written.
    pub(crate) fn is_complete(&self) -> bool {
        self.end.is_some_and(|(end, _)| end == self.written)
    }

    /// The checksum of a page; `None` if it was not written.
    pub(crate) fn sum(&self, page: u32) -> Option<u32> {
        self.sums.get(page as usize).copied().flatten()
    }

    /// The XOR of the members of a group that were written, and these members with their checksums.
    pub(crate) fn group(&self, group: u32) -> (Vec<u8>, Vec<(u32, u32)>) {
        let members = self.shape.members(group, self.shape.room_pages());
        let members = members.filter_map(|page| self.sum(page).map(|sum| (page, sum)));
        let mut sum = match self.begun[group as usize] {
            true => self.parity(group).to_vec(),
            false => vec![0; PAGE_BYTES],
        };
        for (first, pack) in &self.pending {
            let pages = (*first..).zip(pack.buf.chunks_exact(PAGE_BYTES));
            let of_group = pages.filter(|(page, _)| self.shape.group_of(*page) == group);
            of_group.for_each(|(_, bytes)| xor(&mut sum, bytes));
        }
        (sum, members.collect())
    }

    fn parity(&self, group: u32) -> &[u8] {
        let at = group as usize * PAGE_BYTES;
        &self.groups[at..at + PAGE_BYTES]
    }

    /// What is to be written for a complete filling: pieces, with their offsets in the segment.
    pub(crate) fn pieces(&self, log_id: [u8; 16], tag: u32) -> Vec<(u32, IoBuf)> {
        let Some((end, last_sequence)) = self.end.filter(|_| self.is_complete()) else {
            unreachable!("parity of {:?} is written before it is complete", self.id)
        };
        let FillingId { segment, generation } = self.id;
        let shape = &self.shape;
        let used = shape.groups_used(end);
        let mask_of = |group| parity_mask(tag, segment, generation, shape.parity_offset(group));
        let stored_sum = |group| {
            let (first, rest) = self.parity(group).split_at(MASKED_BYTES);
            let mut masked = [0; MASKED_BYTES];
            masked.copy_from_slice(first);
            mask(&mut masked, mask_of(group));
            crc32c::crc32c_append(crc32c::crc32c(&masked), rest)
        };
        let pages = self.sums[..end as usize].iter().map(|sum| sum.unwrap_or_default()).collect();
        let parity = (0..used).map(stored_sum).collect();
        let list = ParityIndex { log_id, segment, generation, last_sequence, pages, parity };
        let mut index = IoBuf::pooled(shape.index_bytes());
        list.encode(shape, &mut index);

        let [first, last] = shape.index_offsets();
        let index_bytes = index.len() as u32;
        let write_page = |offset: u32, to: &mut [u8]| {
            let of_copy = |copy: u32| offset.checked_sub(copy).filter(|at| *at < index_bytes);
            match of_copy(first).or_else(|| of_copy(last)) {
                Some(at) => to.copy_from_slice(&index[at as usize..at as usize + PAGE_BYTES]),
                None => {
                    let group = (offset - first - index_bytes) / PAGE;
                    to.copy_from_slice(self.parity(group));
                    mask(to, mask_of(group));
                }
            }
        };
        let parity_end = first + index_bytes + used * PAGE;
        // Pages of groups without members may lie before the last copy.
        let back = (parity_end < last).then_some(last..last + index_bytes);
        let front = first..if back.is_some() { parity_end } else { last + index_bytes };
        let mut pieces = Vec::new();
        for range in iter::once(front).chain(back).flat_map(divided) {
            let mut piece = IoBuf::pooled(range.len());
            for (offset, page) in range.clone().step_by(PAGE_BYTES).zip(piece.chunks_exact_mut(PAGE_BYTES)) {
                write_page(offset, page);
            }
            pieces.push((range.start, piece));
        }
        pieces
    }
}

/// Divides a range of whole pages into pieces of about the same size.
fn divided(range: Range<u32>) -> impl Iterator<Item = Range<u32>> {
    let pages = range.len() / PAGE_BYTES;
    let count = ((range.len() + PIECE_BYTES / 2) / PIECE_BYTES).max(1);
    let bytes = (pages.div_ceil(count) * PAGE_BYTES) as u32;
    range.clone().step_by(bytes as usize).map(move |from| from..range.end.min(from + bytes))
}

/// Adds a page to another.
pub(crate) fn xor(to: &mut [u8], page: &[u8]) {
    to.iter_mut().zip(page).for_each(|(to, byte)| *to ^= byte);
}

/// Masks a parity page, or undoes that.
pub(crate) fn mask(page: &mut [u8], mask: u32) {
    xor(&mut page[..MASKED_BYTES], &mask.to_le_bytes());
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
    /// Adds a pack that is about to be written. It counts once [`finish`](Self::finish) says that it was.
    pub(crate) fn begin(&self, id: FillingId, shape: ParityShape, offset: u32, buf: &Arc<IoBuf>) {
        self.of(id, shape).lock().begin(offset, buf.clone());
    }

    /// The planted mistake: a pack is added twice.
    pub(crate) fn add_again(&self, id: FillingId, offset: u32, bytes: &[u8]) {
        if let Some(accumulator) = self.get(id) {
            accumulator.lock().add_to_groups(offset, bytes);
        }
    }

    /// Writing a pack came to an end. Returns whether that completes its filling.
    pub(crate) fn finish(&self, id: FillingId, offset: u32, is_written: bool) -> bool {
        let Some(accumulator) = self.get(id) else { return false };
        let is_complete = accumulator.lock().finish(offset, is_written);
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

    fn page(value: u8) -> Arc<IoBuf> {
        let mut buf = IoBuf::pooled(PAGE_BYTES);
        buf.fill(value);
        Arc::new(buf)
    }

    const ID: FillingId = FillingId { segment: 3, generation: 1 };

    /// A pack that is being written is no member yet, and one that failed is none.
    #[test]
    fn packs_are_members_once_they_are_written() {
        let shape = ParityShape::new(1 << 20, ParityForm::Part32).expect("a shape");
        let mut made = Accumulator::new(ID, shape);
        // All in one group.
        let [first, second, third] = [0, 1, 2].map(|number| number * shape.groups() * PAGE);
        let found = |made: &Accumulator| {
            let (sum, members) = made.group(0);
            assert!(sum.iter().all(|byte| *byte == sum[0]), "{sum:?}");
            (sum[0], members.len())
        };
        made.begin(first, page(1));
        assert_eq!(found(&made), (0, 0));
        made.finish(first, true);
        made.begin(second, page(2));
        made.begin(third, page(4));
        assert_eq!(found(&made), (1, 1));
        made.finish(third, false);
        assert_eq!(found(&made), (1, 1));
        made.finish(second, true);
        assert_eq!(found(&made), (3, 2));
        assert_eq!(made.sum(third / PAGE), None);
        made.begin(third, page(4));
        assert_eq!(found(&made), (3, 2));
        made.finish(third, true);
        assert_eq!(found(&made), (7, 3));
        assert_eq!(made.sum(third / PAGE), Some(crc32c::crc32c(&page(4))));
    }

    /// A filling is complete once, when the last of its packs was written and nothing more comes.
    #[test]
    fn fillings_are_complete_once() {
        let shape = ParityShape::new(1 << 20, ParityForm::Part32).expect("a shape");
        let closed = Closed { id: ID, form: ParityForm::Part32, end: 2 * PAGE, last_sequence: 2 };
        for closed_first in [true, false] {
            let all = Accumulators::default();
            let close = || all.close(&closed, 1 << 20);
            all.begin(ID, shape, PAGE, &page(2));
            assert!(!all.finish(ID, PAGE, true));
            if closed_first {
                assert!(!close());
            }
            all.begin(ID, shape, 0, &page(1));
            assert!(!all.finish(ID, 0, false), "it failed");
            all.begin(ID, shape, 0, &page(1));
            let is_last = all.finish(ID, 0, true);
            assert_eq!((is_last, closed_first || close()), (closed_first, true));
            assert!(!all.finish(ID, 0, true), "nothing is on the way");
            assert_eq!(all.complete_count(), 1);
        }
    }

    /// Every page of parity and of both copies of the index is in one piece, and nothing else is written.
    #[test]
    fn pieces_cover_parity_and_both_indexes() {
        for form in [ParityForm::Part64, ParityForm::Part32, ParityForm::Part16] {
            for bits in 19..27 {
                let shape = ParityShape::new(1 << bits, form).expect("a shape");
                let (groups, room) = (shape.groups(), shape.room_pages());
                for end in [1, groups.saturating_sub(1).max(1), groups, groups + 1, room] {
                    let mut made = Accumulator::new(ID, shape);
                    (0..end).for_each(|number| made.add(number * PAGE, &page(number as u8 | 1)));
                    made.close(end * PAGE, 9);
                    let pieces = made.pieces([7; 16], 5);
                    let mut stored = BTreeMap::new();
                    for (offset, piece) in &pieces {
                        assert!(piece.len() <= PIECE_BYTES * 3 / 2, "{form}, {bits} bits: {}", piece.len());
                        for (offset, page) in (*offset..).step_by(PAGE_BYTES).zip(piece.chunks(PAGE_BYTES)) {
                            assert!(stored.insert(offset, page).is_none(), "{offset} is written twice");
                        }
                    }
                    let copy = |first: u32| {
                        let mut bytes = Vec::new();
                        for offset in (first..first + shape.index_bytes() as u32).step_by(PAGE_BYTES) {
                            bytes.extend(stored.get(&offset).expect("a page of the index").iter());
                        }
                        ParityIndex::decode(&bytes, 1 << bits).expect("an index").0
                    };
                    let [index, second] = shape.index_offsets().map(copy);
                    assert_eq!(index, second);
                    assert_eq!((index.segment, index.generation, index.last_sequence), (3, 1, 9));
                    assert_eq!((index.end(), index.parity.len() as u32), (end, end.min(groups)));
                    for (group, sum) in (0..).zip(&index.parity) {
                        let offset = shape.parity_offset(group);
                        let mut parity = stored[&offset].to_vec();
                        assert_eq!(crc32c::crc32c(&parity), *sum);
                        mask(&mut parity, parity_mask(5, 3, 1, offset));
                        shape
                            .members(group, end)
                            .for_each(|member| xor(&mut parity, &page(member as u8 | 1)));
                        assert!(parity.iter().all(|byte| *byte == 0), "group {group}");
                    }
                    let pages = 2 * shape.index_bytes() / PAGE_BYTES + index.parity.len();
                    assert_eq!(stored.len(), pages);
                }
            }
        }
    }
}
