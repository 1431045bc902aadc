//! Admission of writes by space: what is occupied, what the map may take, and what a write frees.

use layout::{Entry, UNIT_BYTES};
use space::{PAIR_BYTES, kept_for_small, map_churn_bytes, map_growth_bytes};

use crate::planted::PlantedBug;
use crate::state::batch::{Batch, Item};
use crate::state::core::Core;
use crate::state::node::Slot;

/// Largest small write: units that it takes, less those that it frees.
const SMALL_UNITS: u64 = (20 << 10) / UNIT_BYTES as u64;
/// Overwrites in place may take one of so many parts of what is kept for rewriting the map.
const OVERWRITES_PART: u64 = 4;
/// Blocks of a long range that are examined individually.
const RANGE_BLOCKS_MAX: u64 = 1 << 16;

/// Space that a request takes and frees.
#[derive(Default)]
struct Exchange {
    taken: u64,
    freed: u64,
    /// What dies in segments that are set aside gives no room: the limit falls by it.
    freed_aside: u64,
    /// It maps blocks that were unmapped.
    adds: bool,
}

impl Core {
    /// Largest number of live units on the drive.
    pub(crate) fn limit_units(&self) -> u64 {
        self.segments.limit_units().saturating_sub(self.kept_for_map_units())
    }

    fn kept_for_map_units(&self) -> u64 {
        self.map_growth_units() + self.map_churn_units(self.map.dirty_bytes())
    }

    /// Largest number of live units after writes of any size.
    pub(crate) fn open_limit_units(&self) -> u64 {
        self.open_limit_units_of(self.segments.limit_units())
    }

    /// The same if the segments had this limit.
    pub(crate) fn open_limit_units_of(&self, of_segments: u64) -> u64 {
        let limit = of_segments.saturating_sub(self.kept_for_map_units());
        limit - kept_for_small(limit)
    }

    /// Limit that the status reports. It is that of writes of any size, and what data and map have taken
    /// beyond the space kept for small writes: TRIM makes the map larger, overwrites may use what is kept for
    /// rewriting it, and the limit falls when a segment is set aside. Nobody can count on the reserve that
    /// was used for that.
    pub(crate) fn shown_limit_units(&self) -> u64 {
        let limit = self.open_limit_units();
        if self.planted.has(PlantedBug::LimitLeftBehind) {
            return limit;
        }
        // Live data exceeds the limit by 1/256 of it at most.
        limit.max((self.segments.live_units() * 256).div_ceil(257))
    }

    /// Returns whether the drive is full. What the changed map may take does not count: it is written before
    /// anything is refused. Otherwise a small drive would alternate between full and not full with each
    /// checkpoint.
    pub(crate) fn is_full(&self) -> bool {
        let kept = self.map_growth_units() + self.map_churn_units(0);
        let limit = self.segments.limit_units().saturating_sub(kept);
        let room = (limit - kept_for_small(limit)).saturating_sub(self.segments.live_units());
        room * (UNIT_BYTES as u64) < layout::ATOMIC_WRITE_BYTES as u64
    }

    /// Returns the most by which the map can grow although nothing is added to it.
    fn map_growth_units(&self) -> u64 {
        map_growth_bytes(self.map.live_blocks, self.map_bytes()) / UNIT_BYTES as u64
    }

    /// Space of the map that is written.
    pub(crate) fn map_bytes(&self) -> u64 {
        let own = self.map.own.units;
        let data = self.map.mix.units.iter().fold(own, |sum: u64, units| sum.saturating_add(*units));
        self.segments.live_units().saturating_sub(data) * UNIT_BYTES as u64
    }

    /// Space kept free for rewriting the map, if `more_bytes` may be added to it.
    fn map_churn_units(&self, more_bytes: u64) -> u64 {
        let written = self.map_bytes();
        let (map, upper) = (written + more_bytes, self.map.upper_estimate_bytes(written));
        let geometry = self.geometry();
        map_churn_bytes(geometry.segments(), geometry.room_bytes(), map, upper) / UNIT_BYTES as u64
    }

    /// Space taken: live records, the changed map as it may be written, and reservations.
    pub(crate) fn taken_units(&self) -> u64 {
        let dirty = self.map.dirty_bytes() / UNIT_BYTES as u64;
        self.segments.live_units() + dirty + self.reserved_units
    }

    /// Space taken, and kept free for the map.
    pub(crate) fn claimed_units(&self) -> u64 {
        self.taken_units() + self.kept_for_map_units()
    }

    /// Rest of the limit.
    pub(crate) fn room_units(&self) -> u64 {
        self.limit_units().saturating_sub(self.taken_units())
    }

    /// Returns whether a batch fits.
    pub(crate) fn admits(&self, batch: &Batch) -> bool {
        self.fits(batch.data_units(), || self.exchange(batch)).is_some()
    }

    /// Returns whether `units` more live units fit. What takes no more than it frees (as `exchange` returns)
    /// always fits: a full drive can be overwritten in place. Returns how much of the room it takes.
    fn fits(&self, units: u64, exchange: impl FnOnce() -> Exchange) -> Option<u64> {
        let limit = |more: u64| if more > SMALL_UNITS { self.open_limit_units() } else { self.limit_units() };
        if self.taken_units() + units <= limit(units) {
            return Some(units);
        }
        let Exchange { taken, freed, freed_aside, adds } = exchange();
        let more = taken.saturating_sub(freed);
        // A file system must be able to write its journal and superblock wherever they lie.
        let aside = if taken <= SMALL_UNITS { freed_aside } else { 0 };
        // Data of one kind takes a little more or less. A part of what is kept for rewriting the map provides
        // for that. The rest stays, however many such writes come.
        let as_compressible = !adds && more.saturating_sub(aside) <= (freed + aside) / 16 + 4;
        let limit = match as_compressible {
            true => self.limit_units() + self.map_churn_units(self.map.dirty_bytes()) / OVERWRITES_PART,
            false => limit(more),
        };
        (more == 0 || self.taken_units() + more <= limit).then_some(more)
    }

    /// Reserves live units for a request of several batches, so that it is refused as a whole or not at all.
    /// What it takes beyond the records is for the map. Returns the number of units.
    pub(crate) fn reserve(&mut self, units: u64, batches: &[Batch]) -> Option<u64> {
        let exchange = || {
            let each = batches.iter().map(|batch| self.exchange(batch));
            let map = units.saturating_sub(batches.iter().map(Batch::data_units).sum());
            each.fold(Exchange { taken: map, ..Exchange::default() }, |sum, one| Exchange {
                taken: sum.taken + one.taken,
                freed: sum.freed + one.freed,
                freed_aside: sum.freed_aside + one.freed_aside,
                adds: sum.adds || one.adds,
            })
        };
        let fits = match batches {
            [] => self.fits(units, || Exchange { taken: units, adds: true, ..Exchange::default() }),
            _ => self.fits(units, exchange),
        };
        self.reserved_units += fits.unwrap_or(0);
        fits
    }

    /// Units that a batch takes, including the map for blocks that are new to it, and units of records that
    /// it replaces completely, as far as is known without the medium.
    fn exchange(&self, batch: &Batch) -> Exchange {
        let mut items: Vec<&Item> = batch.items.iter().collect();
        items.sort_unstable_by_key(|item| item.blocks());
        let is_covered = |block: u64| {
            let begun = &items[..items.partition_point(|item| item.blocks().0 <= block)];
            // Fills may lie within a frame that leaves them out.
            let near = begun.iter().rev().take(1 + layout::entry::FRAME_BLOCKS_MAX as usize);
            near.into_iter().any(|item| block < item.blocks().1 && !item.leaves_out(block))
        };
        let (mut new_blocks, mut freed, mut freed_aside) = (0, 0, 0);
        for item in &batch.items {
            let (first, end) = item.blocks();
            let maps = !matches!(item, Item::Range { entry, .. } if entry.is_unmapped());
            for block in (first..end.min(first + RANGE_BLOCKS_MAX)).filter(|block| !item.leaves_out(*block)) {
                match self.map.peek(block) {
                    Slot::Known(entry) if entry.is_record() => {
                        let units = u64::from(self.freed_by(block, entry, is_covered));
                        match self.segments.get(self.segments.of(entry)).is_set_aside() {
                            true => freed_aside += units,
                            false => freed += units,
                        }
                    }
                    Slot::Known(entry) if !entry.is_unmapped() => {}
                    _ => new_blocks += u64::from(maps),
                }
            }
        }
        let taken = batch.data_units() + (new_blocks * PAIR_BYTES).div_ceil(UNIT_BYTES as u64);
        Exchange { taken, freed, freed_aside, adds: new_blocks > 0 }
    }

    /// Returns what a record frees if the covered blocks are replaced: at the first of its live blocks,
    /// nothing at the others.
    fn freed_by(&self, block: u64, entry: Entry, is_covered: impl Fn(u64) -> bool) -> u32 {
        let first = entry.first_block(block);
        let has = |other: &u64| self.map.peek(*other) == Slot::Known(entry);
        let live = || (first..first + entry.blocks()).filter(has);
        let whole = live().next() == Some(block) && live().all(is_covered);
        if whole { entry.units() } else { 0 }
    }
}
