//! Which units of an arena are in use. Buffers are dropped by any thread; only the owner of the table decides
//! when their units are used again.

use std::iter::once;
use std::ops::Range;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering};

/// With room for fewer of the largest regions, a file gets more pages.
const LOW_REGIONS: usize = 14;

/// The units of an arena.
pub(crate) struct Regions {
    units: Mutex<Units>,
    /// Units of the largest region.
    largest: usize,
    /// Some units were given back.
    has_returned: AtomicBool,
    /// Number of the largest regions for which there is room.
    room: AtomicUsize,
    /// There is little room, and there could be more.
    is_low: AtomicBool,
}

struct Units {
    is_free: Vec<bool>,
    /// Units that have pages: all below this number.
    backed: usize,
    /// The last attempt to get more pages failed.
    is_exhausted: bool,
    /// Given back, and not free yet.
    returned: Vec<Range<usize>>,
}

impl Regions {
    /// `count` units, of which the first `backed` have pages and are free.
    pub(crate) fn new(count: usize, backed: usize, largest: usize) -> Regions {
        let is_free = (0..count).map(|unit| unit < backed).collect();
        let regions = Regions {
            units: Mutex::new(Units { is_free, backed, is_exhausted: false, returned: Vec::new() }),
            largest,
            has_returned: AtomicBool::new(false),
            room: AtomicUsize::new(0),
            is_low: AtomicBool::new(false),
        };
        regions.mark(&mut regions.units.lock(), None, true);
        regions
    }

    /// Takes a region of `count` units at the lowest place that is free. Returns its first unit.
    pub(crate) fn take(&self, count: usize) -> Option<usize> {
        let mut units = self.units.lock();
        let first = units.find(count)?;
        self.mark(&mut units, once(first..first + count), false);
        Some(first)
    }

    /// Makes units free at once: nothing that is published refers to them.
    pub(crate) fn free(&self, range: Range<usize>) {
        self.mark(&mut self.units.lock(), once(range), true);
    }

    /// A region is used no more. It is free after [`Regions::reclaim`].
    pub(crate) fn give_back(&self, range: Range<usize>) {
        self.units.lock().returned.push(range);
        self.has_returned.store(true, Ordering::Release);
    }

    /// Makes regions free that were given back. `publish` is called before with the first unit of each.
    pub(crate) fn reclaim(&self, mut publish: impl FnMut(usize)) {
        if !self.has_returned.load(Ordering::Relaxed) {
            return;
        }
        self.has_returned.store(false, Ordering::Relaxed);
        let returned = {
            let mut units = self.units.lock();
            units.is_exhausted = false;
            std::mem::take(&mut units.returned)
        };
        returned.iter().for_each(|range| publish(range.start));
        self.mark(&mut self.units.lock(), returned, true);
    }

    /// Returns whether there is room for this many of the largest regions.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.room.load(Ordering::Relaxed) >= count
    }

    /// Returns whether more units should get pages.
    pub(crate) fn is_low(&self) -> bool {
        self.is_low.load(Ordering::Relaxed)
    }

    /// Number of units with pages.
    pub(crate) fn backed(&self) -> usize {
        self.units.lock().backed
    }

    /// Units up to this one have pages now.
    pub(crate) fn set_backed(&self, until: usize) {
        let mut units = self.units.lock();
        let range = std::mem::replace(&mut units.backed, until)..until;
        self.mark(&mut units, once(range), true);
    }

    /// There are no more pages for now.
    pub(crate) fn set_exhausted(&self) {
        self.units.lock().is_exhausted = true;
        self.is_low.store(false, Ordering::Relaxed);
    }

    /// Takes away units behind the last one in use, but for the first `kept` of all. Their pages may be given
    /// back. `None` if there are none.
    pub(crate) fn take_unused(&self, kept: usize) -> Option<Range<usize>> {
        let mut units = self.units.lock();
        let used = units.is_free[..units.backed].iter().rposition(|is_free| !is_free);
        let freed = used.map_or(0, |used| used + 1).max(kept)..units.backed;
        if freed.is_empty() {
            return None;
        }
        units.backed = freed.start;
        self.mark(&mut units, once(freed.clone()), false);
        // Until something is taken.
        self.is_low.store(false, Ordering::Relaxed);
        Some(freed)
    }

    /// Returns for each unit whether it is free.
    pub(crate) fn are_free(&self) -> Vec<bool> {
        self.units.lock().is_free.clone()
    }

    /// Takes over what [`Regions::are_free`] returned.
    pub(crate) fn set_free(&self, are_free: Vec<bool>) {
        self.units.lock().is_free = are_free;
    }

    fn mark(&self, units: &mut Units, ranges: impl IntoIterator<Item = Range<usize>>, is_free: bool) {
        ranges.into_iter().for_each(|range| units.is_free[range].fill(is_free));
        let runs = units.is_free.chunk_by(|a, b| a == b).filter(|run| run[0]);
        let room = runs.map(|run| run.len() / self.largest).sum();
        self.room.store(room, Ordering::Relaxed);
        let is_low = room < LOW_REGIONS && units.backed < units.is_free.len() && !units.is_exhausted;
        self.is_low.store(is_low, Ordering::Relaxed);
    }
}

impl Units {
    fn find(&self, count: usize) -> Option<usize> {
        let mut run = 0;
        let end = self.is_free.iter().position(|is_free| {
            run = if *is_free { run + 1 } else { 0 };
            run == count
        })?;
        Some(end + 1 - count)
    }
}
