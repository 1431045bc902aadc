//! What the drive knows of its parity: which fillings have it, which wait for it, and what was repaired.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::state::accumulator::FillingId;
use crate::state::repairs::{News, Repairs};
use crate::state::verified::Verified;

/// With repairs at more places in this time, the backing is failing: moving whole segments to it would wear
/// it out.
const REPAIRS_MAX: usize = 256;
/// An hour, in ticks of ten milliseconds.
const REPAIRS_TICKS: u64 = 360_000;
/// Ticks before records that could not be moved are tried again.
const MOVE_AGAIN_TICKS: u64 = 100;
/// Ticks before parity is made again for which the backing had no room.
const MAKE_AGAIN_TICKS: u64 = 1000;

/// What follows a repair.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Then {
    /// What lives on these pages is to be moved.
    Move,
    /// Nothing: whoever reads them is moving it.
    Moving,
}

/// See the module's description.
#[derive(Default)]
pub(crate) struct ParityState {
    /// A task writes parity of complete fillings. There is one at most.
    pub(crate) is_writing: bool,
    /// A task makes parity from the medium. There is one at most.
    pub(crate) is_making: bool,
    /// The filling for which it does.
    pub(crate) making: Option<FillingId>,
    /// So many more are made although the drive is being closed.
    pub(crate) makes_at_close: u32,
    /// Nothing waits for a good moment any more: the drive is being closed.
    pub(crate) is_hurried: bool,
    /// Fillings whose parity was written, and no sync begun since.
    written: Vec<FillingId>,
    /// The same, and a sync is in progress that was begun later.
    syncing: Vec<FillingId>,
    /// Fillings of earlier runs for which it is not known whether they have parity.
    pub(crate) to_make: BTreeSet<FillingId>,
    /// Fillings of this run whose parity took too much memory.
    pub(crate) dropped: VecDeque<FillingId>,
    /// Fillings that get none: the medium did not take it, or a page of them is lost.
    pub(crate) given_up: BTreeSet<FillingId>,
    /// Pages that were made again and whose records are still there.
    to_move: BTreeMap<FillingId, BTreeSet<u32>>,
    /// Fillings that lost pages: what else lives there has no spare any more, and moves too.
    pub(crate) worn: BTreeSet<FillingId>,
    move_at_tick: u64,
    make_at_tick: u64,
    /// Records were moved off repaired pages, and no sync begun since: what lost a page is not to be needed
    /// after a crash.
    pub(crate) has_moved: bool,
    pub(crate) repairs: Repairs,
    pub(crate) verified: Verified,
    /// Ticks of the latest repairs at places of their own.
    repaired_at: VecDeque<u64>,
    pub(crate) repaired_pages: u64,
    pub(crate) lost_pages: u64,
    pub(crate) parity_written_bytes: u64,
    /// Place of the page repaired last, and of the one that could not be.
    pub(crate) last_repaired: Option<u64>,
    pub(crate) last_lost: Option<u64>,
}

impl ParityState {
    /// The parity of a filling was written.
    pub(crate) fn written(&mut self, id: FillingId) {
        self.written.push(id);
    }

    /// Returns whether parity was written that no sync covers yet.
    pub(crate) fn is_written(&self) -> bool {
        !self.written.is_empty()
    }

    /// A sync is issued.
    pub(crate) fn sync_begins(&mut self) {
        self.syncing.append(&mut self.written);
    }

    /// It succeeded. Returns the fillings whose parity is durable.
    pub(crate) fn synced(&mut self) -> Vec<FillingId> {
        std::mem::take(&mut self.syncing)
    }

    /// Number of fillings whose parity is not there, or not yet known to be. `lives`: something lives there.
    pub(crate) fn uncovered_count(&self, lives: impl Fn(FillingId) -> bool) -> u32 {
        let others = self.dropped.iter().chain(&self.given_up).filter(|id| lives(**id)).count();
        (self.to_make.len() + others) as u32 + u32::from(self.making.is_some())
    }

    /// A filling gets no parity.
    pub(crate) fn give_up(&mut self, id: FillingId, is_there: impl Fn(FillingId) -> bool) {
        self.given_up.retain(|id| is_there(*id));
        self.given_up.insert(id);
    }

    /// Something is to be done in the background.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_writing || self.is_making || self.owes() || self.has_moved || !self.to_move.is_empty()
    }

    /// Pages were made again.
    pub(crate) fn repaired(&mut self, id: FillingId, pages: &[u32], then: Then, now: u64) {
        self.count_repairs(id, pages, now);
        if then == Then::Move {
            self.to_move.entry(id).or_default().extend(pages);
        }
    }

    /// These pages of parity, or of its index, are not as they were written: the filling has no spare for
    /// some of its groups.
    pub(crate) fn spares_lost(&mut self, id: FillingId, pages: &[u32], now: u64) {
        // Found before, and still there.
        if self.worn.contains(&id) {
            return;
        }
        if !self.is_failing(now) {
            self.worn.insert(id);
        }
        self.count_repairs(id, pages, now);
    }

    /// Pages of a pack were made again at the opening, and are written where they were.
    pub(crate) fn repaired_at_opening(&mut self, pages: u64, pack: u64) {
        self.repaired_pages += pages;
        if self.repaired_at.len() < REPAIRS_MAX {
            self.repaired_at.push_back(0);
        }
        self.last_repaired = Some(pack);
    }

    /// Pages that were made again before were asked for once more: what lives on them has not moved.
    pub(crate) fn move_again(&mut self, id: FillingId, pages: &[u32]) {
        self.to_move.entry(id).or_default().extend(pages);
    }

    fn count_repairs(&mut self, id: FillingId, pages: &[u32], now: u64) {
        for page in pages {
            let news = self.repairs.note(id, *page);
            self.repaired_pages += u64::from(news != News::Nothing);
            if news == News::Place {
                self.repaired_at.push_back(now);
            }
        }
        while self.repaired_at.len() > REPAIRS_MAX {
            self.repaired_at.pop_front();
        }
    }

    /// Returns whether the backing loses so much that only single records are worth moving.
    pub(crate) fn is_failing(&self, now: u64) -> bool {
        self.repaired_at.len() >= REPAIRS_MAX
            && self.repaired_at.front().is_some_and(|first| now.saturating_sub(*first) < REPAIRS_TICKS)
    }

    /// Returns whether records on repaired pages are to be moved now.
    pub(crate) fn moves(&self, now: u64) -> bool {
        !self.to_move.is_empty() && now >= self.move_at_tick
    }

    /// Takes repaired pages of a filling.
    pub(crate) fn take_moves(&mut self) -> Option<(FillingId, BTreeSet<u32>)> {
        self.to_move.pop_first()
    }

    /// Fillings wait for their parity to be made.
    fn owes(&self) -> bool {
        !self.dropped.is_empty() || !self.to_make.is_empty()
    }

    /// Returns whether parity of fillings is to be made from the medium now. A drive that is being closed
    /// does not wait for many.
    pub(crate) fn makes(&self, now: u64) -> bool {
        match self.is_hurried {
            true => !self.dropped.is_empty() && self.makes_at_close > 0,
            false => !self.dropped.is_empty() || !self.to_make.is_empty() && now >= self.make_at_tick,
        }
    }

    /// Takes a filling whose parity is to be made now.
    pub(crate) fn take_to_make(&mut self, now: u64) -> Option<FillingId> {
        if !self.makes(now) {
            return None;
        }
        self.makes_at_close = self.makes_at_close.saturating_sub(1);
        self.dropped.pop_front().or_else(|| self.to_make.pop_first())
    }

    /// The backing had no room for the parity of a filling.
    pub(crate) fn make_later(&mut self, id: FillingId, now: u64) {
        self.to_make.insert(id);
        self.make_at_tick = now + MAKE_AGAIN_TICKS;
    }

    /// There was no room to move them.
    pub(crate) fn put_off(&mut self, id: FillingId, pages: BTreeSet<u32>, now: u64) {
        self.to_move.entry(id).or_default().extend(pages);
        self.move_at_tick = now + MOVE_AGAIN_TICKS;
    }
}
