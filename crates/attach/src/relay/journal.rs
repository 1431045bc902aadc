//! Changes that the server has acknowledged and no flush has made durable yet.
//!
//! A killed server has lost some of them. The relay replays them before it sends anything else to the next
//! server. The replay may be interrupted and restarted, or may meet a server that has them all. So the
//! journal keeps only valid data: each change replaces the parts of older ones in its range. A change with
//! FUA is durable: it only removes older ones. Replaying the journal, even in part, never returns the drive
//! to an older state.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::operation::Operation;

/// Memory of a piece besides its data, in bytes. Bounds the number of trims.
const PIECE_BYTES: usize = 128;

/// Number of a change in the order of acknowledgements.
pub(super) type Number = u64;

/// The valid changes, in pieces that do not overlap.
pub(super) struct Journal {
    /// By where they start.
    pieces: BTreeMap<u64, Piece>,
    /// Pieces that are left of each change. Its data is in memory as a whole until none is.
    left: BTreeMap<Number, Left>,
    next: Number,
    /// Of the changes that are left.
    data_bytes: usize,
    bytes_max: usize,
}

/// A part of a change that nothing has replaced.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    change: Arc<Operation>,
    number: Number,
    start: u64,
    end: u64,
}

struct Left {
    pieces: usize,
    data_bytes: usize,
}

impl Piece {
    /// The request that replays it.
    pub(super) fn operation(&self) -> Arc<Operation> {
        match self.change.changes() {
            Some((start, end)) if (start, end) != (self.start, self.end) => {
                Arc::new(self.change.part(self.start, self.end))
            }
            _ => self.change.clone(),
        }
    }
}

impl Journal {
    pub(super) fn new(bytes_max: usize) -> Journal {
        Journal { pieces: BTreeMap::new(), left: BTreeMap::new(), next: 0, data_bytes: 0, bytes_max }
    }

    /// Number of the next change. A flush that is sent now covers all changes with lower numbers.
    pub(super) fn next(&self) -> Number {
        self.next
    }

    /// Takes a change that was acknowledged after all others.
    pub(super) fn add(&mut self, change: Arc<Operation>) {
        let Some((start, end)) = change.changes() else { return };
        self.cut(start, end);
        if change.is_durable() || start == end {
            return;
        }
        let number = self.next;
        self.next += 1;
        let data_bytes = change.data().len();
        self.data_bytes += data_bytes;
        self.left.insert(number, Left { pieces: 1, data_bytes });
        self.pieces.insert(start, Piece { change, number, start, end });
    }

    /// Takes a range out of all pieces.
    fn cut(&mut self, start: u64, end: u64) {
        let before = self.pieces.range(..start).next_back().map(|(at, _)| *at);
        let within = self.pieces.range(start..end).map(|(at, _)| *at);
        let touched: Vec<u64> = before.into_iter().chain(within).collect();
        for at in touched {
            let Some(piece) = self.pieces.get(&at).filter(|piece| piece.end > start).cloned() else {
                continue;
            };
            self.pieces.remove(&at);
            let rests = [(piece.start, start.min(piece.end)), (end.max(piece.start), piece.end)];
            for (start, end) in rests.into_iter().filter(|(start, end)| start < end) {
                self.pieces.insert(start, Piece { start, end, ..piece.clone() });
                self.count(piece.number, 1);
            }
            self.count(piece.number, -1);
        }
    }

    /// Counts pieces of a change that came or went.
    fn count(&mut self, number: Number, pieces: isize) {
        let Some(left) = self.left.get_mut(&number) else { return };
        left.pieces = left.pieces.saturating_add_signed(pieces);
        if left.pieces == 0 {
            self.data_bytes -= left.data_bytes;
            self.left.remove(&number);
        }
    }

    /// Forgets the changes with lower numbers than `next`: a flush has made them durable.
    pub(super) fn forget(&mut self, next: Number) {
        let kept = self.left.split_off(&next);
        let forgotten = std::mem::replace(&mut self.left, kept);
        if !forgotten.is_empty() {
            self.data_bytes -= forgotten.values().map(|left| left.data_bytes).sum::<usize>();
            self.pieces.retain(|_, piece| piece.number >= next);
        }
    }

    /// The valid pieces, in the order of acknowledgements.
    pub(super) fn pieces(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = self.pieces.values().cloned().collect();
        pieces.sort_by_key(|piece| piece.number);
        pieces
    }

    /// Returns whether there is nothing to replay.
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Returns whether a part of a range would be replayed.
    pub(super) fn overlaps(&self, start: u64, end: u64) -> bool {
        // Pieces do not overlap: the last one that starts before the end reaches farthest.
        self.pieces.range(..end).next_back().is_some_and(|(_, piece)| piece.end > start)
    }

    /// Memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.data_bytes + self.pieces.len() * PIECE_BYTES
    }

    /// Half of the memory is in use: time for a flush.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes() >= self.bytes_max / 2
    }

    /// Changes have to wait for a flush. `coming_bytes`: of changes that are in flight.
    pub(super) fn is_full(&self, coming_bytes: usize) -> bool {
        self.bytes() + coming_bytes >= self.bytes_max
    }

    /// Changes have to wait even if a flush has failed.
    pub(super) fn is_overfull(&self, coming_bytes: usize) -> bool {
        self.bytes() + coming_bytes >= self.bytes_max.saturating_mul(2)
    }
}

/// Most memory that a change takes in the journal when it comes, in bytes.
pub(super) fn size(change: &Operation) -> usize {
    change.data().len() + PIECE_BYTES
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(offset: u64) -> Arc<Operation> {
        Arc::new(Operation::Write { offset, data: vec![1; 1000], fua: false })
    }

    fn operations(journal: &Journal) -> Vec<Arc<Operation>> {
        journal.pieces().iter().map(Piece::operation).collect()
    }

    #[test]
    fn a_flush_forgets_what_came_before_it() {
        let mut journal = Journal::new(4096);
        journal.add(write(0));
        journal.add(write(1000));
        let flush = journal.next();
        journal.add(write(2000));
        assert!(journal.is_half_full() && !journal.is_full(0) && journal.is_full(4096));
        journal.forget(flush);
        assert_eq!(operations(&journal), [write(2000)]);
        assert_eq!(journal.bytes(), 1000 + PIECE_BYTES);
        // Flushes may be answered in any order.
        journal.forget(flush - 1);
        assert_eq!(journal.next(), 3);
        journal.forget(journal.next());
        assert_eq!((journal.bytes(), operations(&journal).len()), (0, 0));
    }

    #[test]
    fn trims_have_a_limit_too() {
        let mut journal = Journal::new(PIECE_BYTES * 4);
        for at in 0..4 {
            assert!(!journal.is_full(0));
            journal.add(Arc::new(Operation::Trim { offset: at * 512, length: 512, fua: false }));
        }
        assert!(journal.is_full(0) && !journal.is_overfull(0));
    }

    #[test]
    fn data_stays_in_memory_until_all_of_it_was_replaced() {
        let mut journal = Journal::new(1 << 20);
        journal.add(write(0));
        journal.add(Arc::new(Operation::Trim { offset: 100, length: 800, fua: true }));
        assert_eq!(journal.bytes(), 1000 + 2 * PIECE_BYTES);
        journal.add(Arc::new(Operation::Trim { offset: 0, length: 100, fua: true }));
        assert_eq!(journal.bytes(), 1000 + PIECE_BYTES);
        journal.add(Arc::new(Operation::Trim { offset: 900, length: 100, fua: true }));
        assert_eq!(journal.bytes(), 0);
    }

    #[test]
    fn ranges_that_would_be_made_again_are_known() {
        let mut journal = Journal::new(1 << 20);
        journal.add(write(1000));
        journal.add(write(5000));
        for (start, end, overlaps) in
            [(0, 1000, false), (0, 1001, true), (1999, 3000, true), (2000, 5000, false), (5999, 9000, true)]
        {
            assert_eq!(journal.overlaps(start, end), overlaps, "{start} to {end}");
        }
        journal.forget(journal.next());
        assert!(journal.is_empty() && !journal.overlaps(0, u64::MAX));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Change {
            kind: u8,
            offset: u64,
            length: u64,
        },
        /// Answered when so many more changes were acknowledged.
        Flush {
            after: usize,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let change = (0..6_u8, 0..60_u64, 0..30_u64).prop_map(|(kind, offset, length)| Step::Change {
            kind,
            offset,
            length,
        });
        let flush = (0..4_usize).prop_map(|after| Step::Flush { after });
        prop::collection::vec(prop_oneof![8 => change, 1 => flush], 1..80)
    }

    proptest! {
        /// What a byte is, and whether the journal makes it so again, against a list of bytes.
        #[test]
        fn it_makes_again_what_is_valid_and_not_durable(steps in steps()) {
            let mut journal = Journal::new(1 << 20);
            // Of each byte: its value, and the number of the change that is to be made again.
            let mut model: Vec<(u8, Option<Number>)> = vec![(0, None); 100];
            let mut flushes: Vec<(usize, Number)> = Vec::new();
            for (at, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Flush { after } => flushes.push((after, journal.next())),
                    Step::Change { kind, offset, length } => {
                        let fua = kind % 2 == 1;
                        let byte = at as u8 + 1;
                        let change = match kind / 2 {
                            0 => Operation::Write { offset, data: vec![byte; length as usize], fua },
                            1 => Operation::Trim { offset, length: length as u32, fua },
                            _ => Operation::WriteZeroes { offset, length: length as u32, no_hole: true, fua },
                        };
                        let value = if kind / 2 == 0 { byte } else { 0 };
                        let number = (!fua).then_some(journal.next());
                        model[offset as usize..(offset + length) as usize].fill((value, number));
                        journal.add(Arc::new(change));
                    }
                }
                flushes.iter_mut().for_each(|(after, _)| *after = after.saturating_sub(1));
                for (_, covers) in flushes.extract_if(.., |(after, _)| *after == 0) {
                    journal.forget(covers);
                    for (_, number) in &mut model {
                        *number = number.filter(|number| *number >= covers);
                    }
                }
                let mut again: Vec<Option<u8>> = vec![None; 100];
                for operation in operations(&journal) {
                    let (start, end) = operation.changes().expect("a change");
                    for byte in start..end {
                        let value = operation.data().get((byte - start) as usize).copied().unwrap_or(0);
                        prop_assert_eq!(again[byte as usize].replace(value), None, "made again once");
                    }
                }
                for (byte, (value, number)) in model.iter().enumerate() {
                    prop_assert_eq!(again[byte], number.map(|_| *value), "byte {}", byte);
                }
            }
            journal.forget(journal.next());
            prop_assert_eq!((journal.bytes(), journal.pieces.len(), journal.left.len()), (0, 0, 0));
        }
    }
}
