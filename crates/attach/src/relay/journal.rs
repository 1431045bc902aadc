//! Changes that the server has acknowledged, and that no flush has made durable yet.
//!
//! A server that was killed has lost them. They are made again, in the order of their acknowledgements, before anything else
//! is asked of the next server. A change with FUA is durable, but is kept too: an older change of the same range, made again,
//! would otherwise replace it.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::operation::Operation;

/// Memory of an entry besides its data, in bytes. Bounds the number of trims.
const ENTRY_BYTES: usize = 128;

/// Number of a change in the order of acknowledgements.
pub(super) type Number = u64;

/// The changes, oldest first.
pub(super) struct Journal {
    entries: VecDeque<Arc<Operation>>,
    /// Number of the first entry.
    first: Number,
    bytes: usize,
    bytes_max: usize,
}

impl Journal {
    pub(super) fn new(bytes_max: usize) -> Journal {
        Journal { entries: VecDeque::new(), first: 0, bytes: 0, bytes_max }
    }

    /// Number of the next change. A flush that is sent now covers all changes with lower numbers.
    pub(super) fn next(&self) -> Number {
        self.first + self.entries.len() as Number
    }

    pub(super) fn add(&mut self, change: Arc<Operation>) {
        self.bytes += size(&change);
        self.entries.push_back(change);
    }

    /// Forgets the changes with lower numbers than `next`: a flush has made them durable.
    pub(super) fn forget(&mut self, next: Number) {
        while self.first < next
            && let Some(change) = self.entries.pop_front()
        {
            self.first += 1;
            self.bytes -= size(&change);
        }
    }

    /// The changes in order.
    pub(super) fn entries(&self) -> Vec<Arc<Operation>> {
        self.entries.iter().cloned().collect()
    }

    /// Memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Half of the memory is in use: time for a flush.
    pub(super) fn is_half_full(&self) -> bool {
        self.bytes >= self.bytes_max / 2
    }

    /// Changes have to wait for a flush. `coming_bytes`: of changes that are in flight.
    pub(super) fn is_full(&self, coming_bytes: usize) -> bool {
        self.bytes + coming_bytes >= self.bytes_max
    }

    /// Changes have to wait even if a flush has failed.
    pub(super) fn is_overfull(&self, coming_bytes: usize) -> bool {
        self.bytes + coming_bytes >= self.bytes_max.saturating_mul(2)
    }
}

/// Memory of a change in the journal, in bytes.
pub(super) fn size(change: &Operation) -> usize {
    change.data().len() + ENTRY_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64) -> Arc<Operation> {
        Arc::new(Operation::Write { offset, data: vec![1; 1000], fua: false })
    }

    #[test]
    fn a_flush_forgets_what_came_before_it() {
        let mut journal = Journal::new(4096);
        journal.add(write(0));
        journal.add(write(1000));
        let flush = journal.next();
        journal.add(write(0));
        assert!(journal.is_half_full() && !journal.is_full(0) && journal.is_full(4096));
        journal.forget(flush);
        assert_eq!(journal.entries(), [write(0)]);
        assert_eq!(journal.bytes(), 1000 + ENTRY_BYTES);
        // Flushes may be answered in any order.
        journal.forget(flush - 1);
        assert_eq!(journal.next(), 3);
        journal.forget(journal.next());
        assert_eq!((journal.bytes(), journal.entries().len()), (0, 0));
    }

    #[test]
    fn trims_have_a_limit_too() {
        let mut journal = Journal::new(ENTRY_BYTES * 4);
        for _ in 0..4 {
            assert!(!journal.is_full(0));
            journal.add(Arc::new(Operation::Trim { offset: 0, length: 512, fua: false }));
        }
        assert!(journal.is_full(0) && !journal.is_overfull(0));
    }
}
