//! The segments of a drive: contents, which are free, and which are worth cleaning.

mod discard;
mod set_aside;

use std::collections::BTreeSet;
use std::ops::Range;

use layout::pack::HEADS;
use layout::{Entry, Geometry, Head, ParityForm, Rows, SegmentRow, SegmentUse, UNIT_BYTES};
use space::{data_bytes_max, dense_bytes, host_floor_segments, with_ends};

use crate::planted::{Planted, PlantedBug};
use crate::state::accumulator::FillingId;
pub(crate) use crate::state::claims::{Claim, Gain};
use crate::state::pins::{Pin, Pins};
use crate::state::rows::{Page, RowPages};
use crate::state::rules::first_broken;
use crate::state::sample::Random;
use crate::state::segment::UNKNOWN;
pub(crate) use crate::state::segment::{Segment, SegmentState};
use crate::state::segment_set::SegmentSet;
use crate::state::segment_table::SegmentTable;

pub(crate) use discard::OthersHeld;

pub(crate) struct Segments {
    geometry: Geometry,
    table: SegmentTable,
    pages: RowPages,
    /// Handed out lowest number first, so that a file stays compact and recovery knows where to search.
    free: SegmentSet,
    /// Freed while being read.
    waiting: Vec<u32>,
    /// Sealed ones without anything live.
    dead: BTreeSet<u32>,
    /// Damaged and bad segments.
    set_aside: Vec<u32>,
    /// Those cleaned since the last checkpoint.
    cleaned: Vec<u32>,
    /// Free segments whose space the backing may still hold, and which may be discarded.
    discards: SegmentSet,
    /// Whether the backing may hold others that are free, too.
    others_held: OthersHeld,
    /// Freed by the last checkpoint. Only the next checkpoint lets them be discarded: if both copies of the
    /// last one are lost, recovery uses the one before.
    kept_for_fallback: Vec<u32>,
    pins: Pins,
    live_units: u64,
    repackable_units: u64,
    /// Number of free segments that each head must leave for others.
    floors: [u32; HEADS],
    /// Segments needed to write the changed part of the map, now and again at an opening after a crash.
    /// Nobody else may take them.
    map_need: u32,
    /// The same if all nodes above the leaves had changed, as may happen when a segment of single blocks is
    /// cleaned. Hosts leave this number.
    upper_need: u32,
    /// See [`data_bytes_max`].
    data_bytes_max: u64,
    /// Source of generations: different ones in every run.
    random: Random,
    generations: u64,
    planted: Planted,
}

impl Segments {
    /// All segments free. Because of `entropy`, the generations handed out differ from those of every earlier
    /// run.
    pub(crate) fn new(geometry: Geometry, entropy: u64) -> Segments {
        let mut segments = Segments {
            geometry,
            table: SegmentTable::default(),
            pages: RowPages::default(),
            free: SegmentSet::default(),
            waiting: Vec::new(),
            dead: BTreeSet::new(),
            set_aside: Vec::new(),
            cleaned: Vec::new(),
            discards: SegmentSet::default(),
            others_held: OthersHeld::No,
            kept_for_fallback: Vec::new(),
            pins: Pins::default(),
            live_units: 0,
            repackable_units: 0,
            floors: [0; HEADS],
            map_need: 0,
            upper_need: 0,
            data_bytes_max: 0,
            random: Random(entropy),
            generations: 0,
            planted: Planted::default(),
        };
        segments.set_geometry(geometry);
        segments
    }

    /// Makes rows for all segments, and updates the numbers held back.
    fn set_geometry(&mut self, geometry: Geometry) {
        let count = geometry.segments();
        self.geometry = geometry;
        self.table.grow(count);
        self.free.grow(count);
        self.discards.grow(count);
        self.pages.resize(count as usize);
        self.pins.grow(count);
        self.set_room(geometry);
        self.floors = [host_floor_segments(count), 2, 0];
    }

    /// Takes over how much of a segment packs may fill: nothing else of the geometry has changed.
    pub(crate) fn set_room(&mut self, geometry: Geometry) {
        let count = geometry.segments();
        self.geometry = geometry;
        self.data_bytes_max = match self.planted.has(PlantedBug::ReserveForgotten) {
            true => u64::from(count.saturating_sub(2 * HEADS as u32)) * u64::from(geometry.room_bytes()),
            false => data_bytes_max(count, geometry.room_bytes()),
        };
    }

    /// Plants a mistake.
    pub(crate) fn plant(&mut self, planted: Planted) {
        self.planted = planted;
        self.set_geometry(self.geometry);
    }

    /// Adds the segments of a drive that has grown, as free.
    pub(crate) fn grow(&mut self, geometry: Geometry) {
        let before = self.count();
        self.set_geometry(geometry);
        self.free.insert_from(before, self.count());
    }

    /// Takes over the rows of a checkpoint. They count as changed unless all of them are on the medium.
    /// What they say of parity counts on drives with that feature.
    pub(crate) fn load(&mut self, rows: &Rows, are_all: bool, uses_parity: bool) {
        if are_all {
            self.pages.loaded();
        }
        for (segment, row) in rows.used() {
            let segment = self.table.get_mut(segment);
            segment.live_units = row.live_units;
            segment.repackable_units = row.repackable_units;
            segment.filled_units = UNKNOWN;
            segment.generation = row.generation;
            segment.last_sequence = row.last_sequence;
            if uses_parity {
                segment.parity = row.parity;
                segment.has_parity = row.has_parity;
            }
            segment.state = match row.usage {
                SegmentUse::Free => SegmentState::Free,
                SegmentUse::Used => SegmentState::Sealed,
                SegmentUse::Damaged => SegmentState::Damaged,
                SegmentUse::Bad => SegmentState::Bad,
            };
        }
        self.live_units = self.known().map(|(_, s)| u64::from(s.live_units)).sum();
        self.repackable_units = self.known().map(|(_, s)| u64::from(s.repackable_units)).sum();
        self.dead = self.all(Segment::is_dead).collect();
        // Those of the far copies too: their rows say the same.
        self.set_aside = self.all(Segment::is_set_aside).collect();
    }

    /// Builds the list of free segments, after loading and roll-forward have found the used ones.
    pub(crate) fn list_free(&mut self, may_hold_others: bool) {
        let mut free = SegmentSet::all(self.count());
        self.all(|s| s.state != SegmentState::Free).for_each(|segment| _ = free.remove(segment));
        self.free = free;
        self.list_discards(may_hold_others);
    }

    /// Segments in rising order. Most of those that were never used are left out: all segments that are not
    /// here are free, and nothing is known of them.
    pub(crate) fn known(&self) -> impl DoubleEndedIterator<Item = (u32, &Segment)> {
        self.table.known()
    }

    /// Of the known segments, those with a property that no segment has that was never used.
    fn all(&self, is: impl Fn(&Segment) -> bool) -> impl DoubleEndedIterator<Item = u32> {
        self.known().filter(move |(_, s)| is(s)).map(|(segment, _)| segment)
    }

    pub(crate) fn count(&self) -> u32 {
        self.table.len()
    }

    pub(crate) fn get(&self, segment: u32) -> &Segment {
        self.table.get(segment)
    }

    /// For changes of what is not part of a row.
    pub(crate) fn get_mut(&mut self, segment: u32) -> &mut Segment {
        self.table.get_mut(segment)
    }

    /// The parity of a filling is durable.
    pub(crate) fn set_has_parity(&mut self, id: FillingId) {
        let row = self.get(id.segment);
        if row.generation == id.generation && row.state == SegmentState::Sealed && !row.has_parity {
            self.row_mut(id.segment).has_parity = true;
        }
    }

    /// For changes of the row.
    fn row_mut(&mut self, segment: u32) -> &mut Segment {
        let table = &self.table;
        self.pages.touch(segment, |range| rows_of(table, range));
        self.table.get_mut(segment)
    }

    /// Returns the segment of a record. Entries come from the map and were checked when it was read.
    pub(crate) fn of(&self, entry: Entry) -> u32 {
        match self.geometry.locate(entry.position_bytes()) {
            Some((segment, _)) => segment,
            None => unreachable!("map entry outside the segments: {entry:?}"),
        }
    }

    /// Returns the generation of the segment of a record. Two equal entries are the same record only if this
    /// is equal too.
    pub(crate) fn generation_of(&self, entry: Entry) -> u32 {
        if entry.is_record() { self.get(self.of(entry)).generation } else { 0 }
    }

    /// Changes the state of a segment, and updates the lists.
    pub(crate) fn set_state(&mut self, segment: u32, state: SegmentState) {
        let row = self.row_mut(segment);
        let before = std::mem::replace(&mut row.state, state);
        debug_assert!(before.may_become(state), "segment {segment} became {state:?} from {before:?}");
        self.note_death(segment);
    }

    /// Updates the list of dead segments after a change.
    fn note_death(&mut self, segment: u32) {
        match self.table.get(segment).is_dead() {
            true => self.dead.insert(segment),
            false => self.dead.remove(&segment),
        };
    }

    /// A record became live.
    pub(crate) fn add(&mut self, entry: Entry) {
        let (segment, units) = (self.of(entry), entry.units());
        let row = self.row_mut(segment);
        row.live_units += units;
        row.filled_units = row.filled_units.saturating_add(units);
        self.live_units += u64::from(units);
        let row = self.get(segment);
        let room = row.parity.room_bytes(self.geometry.segment_bytes) / UNIT_BYTES as u32;
        debug_assert!(row.live_units <= room, "segment {segment} holds more than it has room for");
        if row.state == SegmentState::Sealed {
            self.note_death(segment);
        }
    }

    /// Nothing of a record is live any more. `packable` is at most what its blocks that died before added to
    /// [`Segments::add_repackable`].
    pub(crate) fn release(&mut self, entry: Entry, packable: u32) {
        let (segment, units) = (self.of(entry), entry.units());
        if self.get(segment).live_units < units {
            // The count was wrong before, as in an image that no correct drive wrote. Something else may live
            // there uncounted, so the segment is never freed.
            tracing::debug!(segment, ?entry, "holds less than what dies in it");
            self.set_aside(segment, SegmentState::Damaged);
        }
        let row = self.row_mut(segment);
        let before = (row.live_units, row.repackable_units);
        row.live_units = row.live_units.saturating_sub(units);
        // The block that dies last takes its part of the estimate along. The rest belongs to no dead block.
        row.repackable_units = row.repackable_units.saturating_sub(packable).min(row.live_units);
        let now = (row.live_units, row.repackable_units);
        self.live_units -= u64::from(before.0 - now.0);
        self.repackable_units -= u64::from(before.1 - now.1);
        self.note_death(segment);
    }

    /// Blocks of a live record died; `units` are their shares.
    pub(crate) fn add_repackable(&mut self, entry: Entry, units: u32) {
        let segment = self.of(entry);
        let row = self.row_mut(segment);
        let added = units.min(row.live_units.saturating_sub(row.repackable_units));
        row.repackable_units += added;
        debug_assert!(row.repackable_units <= row.live_units, "more of segment {segment} dies than lives");
        self.repackable_units += u64::from(added);
    }

    /// Packing the contents of a segment anew was tried and gains nothing.
    pub(crate) fn forget_repackable(&mut self, segment: u32) {
        let row = self.row_mut(segment);
        let was = std::mem::take(&mut row.repackable_units);
        self.repackable_units -= u64::from(was);
    }

    /// Possible gain from packing frames anew, on the whole drive.
    pub(crate) fn repackable_units(&self) -> u64 {
        self.repackable_units
    }

    /// A pack was sealed in a segment, and is being written.
    pub(crate) fn pack_sealed(&mut self, segment: u32, sequence: u64) {
        let row = self.row_mut(segment);
        row.last_sequence = sequence;
        row.unwritten += 1;
    }

    /// Applies packs that roll-forward found in a segment.
    pub(crate) fn restore(&mut self, segment: u32, generation: u32, last_sequence: u64, parity: ParityForm) {
        // A segment that was set aside stays so, whatever the log says that it holds.
        if !self.get(segment).is_set_aside() {
            self.set_state(segment, SegmentState::Sealed);
        }
        let row = self.row_mut(segment);
        if row.generation != generation {
            row.has_parity = false;
        }
        row.parity = parity;
        row.generation = generation;
        row.last_sequence = last_sequence;
    }

    pub(crate) fn pin(&mut self, segment: u32) -> Pin {
        self.pins.pin(segment)
    }

    fn is_pinned(&self, segment: u32) -> bool {
        self.pins.is_pinned(segment) && !self.planted.has(PlantedBug::DroppedPin)
    }

    /// Takes a free segment for a head, gives it a new generation and marks it as promised.
    pub(crate) fn take(&mut self, head: Head, claim: Claim) -> Option<(u32, u32)> {
        let floor = match claim {
            Claim::Ordinary => self.floor(head),
            // Cleaning may go one deeper than operations that free space, because it makes segments from what
            // they free.
            Claim::Urgent if head == Head::Cleaning => self.kept_for_map() + 1,
            Claim::Urgent => self.stock().min(self.floor(head)),
            Claim::Last => self.last_stock().min(self.floor(head)),
            Claim::Rescue => self.map_need.min(self.floor(head)),
        };
        self.review_waiting();
        if self.free_count() <= floor {
            return None;
        }
        let segment = self.free.pop_first()?;
        self.generations += 1;
        let (generation, parity) = (self.random.draw() as u32, self.geometry.parity);
        let row = self.row_mut(segment);
        let is_unused = row.state == SegmentState::Free && (row.live_units, row.unwritten) == (0, 0);
        assert!(is_unused, "segment {segment} is on the free list and in use: {row:?}");
        row.generation = generation;
        row.parity = parity;
        row.has_parity = false;
        row.filled_units = 0;
        row.cleaned = false;
        self.discards.remove(segment);
        self.set_state(segment, SegmentState::Promised);
        Some((segment, generation))
    }

    /// A head begins to fill a promised segment. One that was set aside since stays so.
    pub(crate) fn open(&mut self, segment: u32) {
        if !self.get(segment).is_set_aside() {
            self.set_state(segment, SegmentState::Open);
        }
    }

    /// Frees a segment that holds nothing live. It is handed out again when its last reader is done.
    pub(crate) fn free(&mut self, segment: u32) {
        assert_eq!(self.get(segment).live_units, 0, "segment {segment} is freed under what is live in it");
        debug_assert_eq!(self.get(segment).unwritten, 0, "segment {segment} is freed while packs go to it");
        self.kept_for_fallback.push(segment);
        if self.is_pinned(segment) {
            self.set_state(segment, SegmentState::Waiting);
            self.waiting.push(segment);
        } else {
            self.set_free(segment);
        }
    }

    fn set_free(&mut self, segment: u32) {
        self.set_state(segment, SegmentState::Free);
        self.free.insert(segment);
        if std::mem::take(&mut self.get_mut(segment).discard) {
            self.discards.insert(segment);
        }
    }

    /// Checks whether the readers of freed segments are done. Returns whether any segment became free.
    pub(crate) fn review_waiting(&mut self) -> bool {
        let waiting = std::mem::take(&mut self.waiting);
        let (held, done): (Vec<u32>, Vec<u32>) = waiting.into_iter().partition(|s| self.is_pinned(*s));
        self.waiting = held;
        done.iter().for_each(|segment| self.set_free(*segment));
        !done.is_empty()
    }

    /// Returns whether a checkpoint's cut is kept.
    pub(crate) fn is_frozen(&self) -> bool {
        self.pages.is_frozen()
    }

    /// Part of [`Core::broken_invariant`](crate::state::core::Core::broken_invariant).
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        let (segments, free) = (self.table.len() as usize, self.free.len() as usize);
        let lists = free + self.waiting.len() + self.set_aside.len();
        first_broken(&[
            (lists <= segments, "a segment is on two lists"),
            (self.dead.len() <= segments, "there are more dead segments than segments"),
            (self.discards.len() as usize <= free, "more segments can be discarded than are free"),
        ])
    }

    /// Number of freed segments that readers still use.
    pub(crate) fn waiting_count(&self) -> u32 {
        self.waiting.len() as u32
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free.len()
    }

    /// Returns whether the host may get another segment.
    pub(crate) fn host_may_take(&self) -> bool {
        self.free_count() > self.floor(Head::Host)
    }

    /// Number of free segments that a head must leave for others.
    pub(crate) fn floor(&self, head: Head) -> u32 {
        match head {
            Head::Map => 0,
            Head::Cleaning => self.floors[head as usize] + self.map_need,
            Head::Host => self.floors[head as usize] + self.map_need.max(self.upper_need),
        }
    }

    /// Number of free segments that the next checkpoint may need. Changes under nodes that are not loaded may
    /// turn out to change those nodes.
    fn kept_for_map(&self) -> u32 {
        self.map_need.max(self.upper_need / 2)
    }

    /// Number of free segments that operations which free space leave if cleaning gained nothing.
    fn last_stock(&self) -> u32 {
        self.floors[Head::Cleaning as usize] + self.kept_for_map()
    }

    /// Number of free segments that requests leave for cleaning, also requests that free space.
    fn stock(&self) -> u32 {
        self.floors[Head::Cleaning as usize] + self.map_need.max(self.upper_need)
    }

    /// Returns whether enough segments are free to write the map and to continue cleaning, whatever a host
    /// write adds to both.
    pub(crate) fn has_stock(&self, claim: Claim) -> bool {
        let least = match claim {
            Claim::Ordinary | Claim::Urgent => self.stock(),
            Claim::Last => self.last_stock(),
            Claim::Rescue => self.map_need,
        };
        self.free_count() > least
    }

    /// Sets the bytes of map that wait to be written, those that an opening would have to write after a power
    /// cut now, and the size of all nodes above the leaves.
    pub(crate) fn set_map_need(&mut self, unwritten_bytes: u64, recovered_bytes: u64, upper_bytes: u64) {
        let segments = |bytes: u64| (with_ends(bytes) / u64::from(self.geometry.room_bytes())) as u32;
        self.map_need = segments(unwritten_bytes) + segments(recovered_bytes);
        self.upper_need = 2 * segments(upper_bytes);
    }

    pub(crate) fn map_need(&self) -> u32 {
        self.map_need
    }

    /// Of all segments that hold something live, the newest pack of the one whose newest pack is oldest.
    pub(crate) fn oldest_sequence(&self) -> u64 {
        let live = self.known().filter(|(_, row)| row.live_units > 0);
        live.map(|(_, row)| row.last_sequence).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn live_units(&self) -> u64 {
        self.live_units
    }

    /// Largest number of live units in the segments.
    pub(crate) fn limit_units(&self) -> u64 {
        (self.data_bytes_max / UNIT_BYTES as u64).saturating_sub(self.set_aside_units())
    }

    /// The same with other segments of the same number.
    pub(crate) fn limit_units_with(&self, geometry: &Geometry) -> u64 {
        let most = data_bytes_max(self.count(), geometry.room_bytes());
        (most / UNIT_BYTES as u64).saturating_sub(self.set_aside_units())
    }

    /// Segments will be those of another geometry: what is taken in has room in both.
    pub(crate) fn lower_limit(&mut self, geometry: &Geometry) {
        let most = data_bytes_max(self.count(), geometry.room_bytes());
        self.data_bytes_max = self.data_bytes_max.min(most);
    }

    /// What packs may take of a segment that is filled now.
    pub(crate) fn segment_units(&self) -> u64 {
        u64::from(self.geometry.room_bytes()) / UNIT_BYTES as u64
    }

    pub(crate) fn generations(&self) -> u64 {
        self.generations
    }

    /// Number of sealed segments that hold nothing live. The next checkpoint frees them.
    pub(crate) fn dead_count(&self) -> u32 {
        self.dead.len() as u32
    }

    /// Returns these segments.
    pub(crate) fn dead(&self) -> Vec<u32> {
        self.dead.iter().copied().collect()
    }

    /// Cleaning is done with a segment. What lives in it stays until the next checkpoint.
    pub(crate) fn set_cleaned(&mut self, segment: u32) {
        self.get_mut(segment).cleaned = true;
        self.cleaned.push(segment);
    }

    /// Returns whether a segment was cleaned since the last checkpoint.
    pub(crate) fn has_cleaned(&self) -> bool {
        !self.cleaned.is_empty()
    }

    /// After a checkpoint: segments that could not be emptied may be tried again.
    pub(crate) fn forget_cleaned(&mut self) {
        for segment in std::mem::take(&mut self.cleaned) {
            self.get_mut(segment).cleaned = false;
        }
    }

    /// Returns the segment most worth cleaning. To gain segments: by benefit over cost as in Sprite LFS
    /// (Rosenblum and Ousterhout, 1992, section 3.6): (1 - u) x age / (1 + u), where u is the share that
    /// would be live once frames are packed anew, and age is counted in packs since the last write. To gain
    /// room: the one with most to pack anew.
    pub(crate) fn victim(&self, now: u64, gain: Gain) -> Option<u32> {
        let full = self.segment_units();
        let dense = dense_bytes(self.geometry.room_bytes()) / UNIT_BYTES as u64;
        let candidates = self.all(|s| s.may_be_cleaned() && s.is_worth_cleaning(full, dense));
        if self.planted.has(PlantedBug::FullestCleaned) && matches!(gain, Gain::Segments | Gain::Soon) {
            return candidates.max_by_key(|&s| self.get(s).expected_units());
        }
        match gain {
            Gain::Segments => {
                let score = |s: &Segment| {
                    let u = f64::from(s.expected_units()) / full as f64;
                    let age = (now - s.last_sequence.min(now)) as f64 + 1.0;
                    (1.0 - u) * age / (1.0 + u)
                };
                candidates.max_by(|&a, &b| score(self.get(a)).total_cmp(&score(self.get(b))))
            }
            Gain::Soon => candidates.min_by_key(|&s| self.get(s).expected_units()),
            Gain::Thin => candidates
                .filter(|&s| self.get(s).thin_units(full) > 0)
                .min_by_key(|&s| self.get(s).expected_units()),
            Gain::Room(part) => candidates
                // A small part of a segment is not worth moving all of it.
                .filter(|&s| u64::from(self.get(s).repackable_units) * u64::from(part) > full)
                .max_by_key(|&s| self.get(s).repackable_units),
        }
    }

    /// Dead units in segments of which at least a quarter is dead and that cleaning has not tried since the
    /// last checkpoint.
    pub(crate) fn thin_units(&self) -> u64 {
        let full = self.segment_units();
        self.known().filter(|(_, s)| s.may_be_cleaned()).map(|(_, s)| s.thin_units(full)).sum()
    }

    /// Begins a cut of the table for a checkpoint. Returns which pages changed since the cut before.
    pub(crate) fn begin_cut(&mut self) -> Vec<bool> {
        self.pages.cut()
    }

    /// Returns a page of the table as it was at the cut.
    pub(crate) fn page_at_cut(&self, page: usize) -> Page {
        match self.pages.at_cut(page) {
            Some(rows) => rows.clone(),
            None => rows_of(&self.table, layout::table::page_rows(page, self.count() as usize)),
        }
    }

    /// Returns a row as it was at the cut, for changes. None of its rows may have been read from
    /// [`Segments::page_at_cut`] yet.
    pub(crate) fn row_at_cut(&mut self, segment: u32) -> Option<&mut SegmentRow> {
        let table = &self.table;
        self.pages.at_cut_mut(segment, |range| rows_of(table, range))
    }

    /// The checkpoint is complete, or was given up.
    pub(crate) fn end_cut(&mut self) {
        self.pages.end_cut();
    }

    /// The planted mistake: the share of a block dies with it, and rounds to zero if the record is short.
    pub(crate) fn release_share(&mut self, entry: Entry, share: u32) {
        let segment = self.of(entry);
        let row = self.row_mut(segment);
        let died = share.min(row.live_units);
        row.live_units -= died;
        self.live_units -= u64::from(died);
        self.note_death(segment);
    }
}

fn rows_of(table: &SegmentTable, range: Range<usize>) -> Page {
    (range.start as u32..table.len().min(range.end as u32)).map(|segment| table.get(segment).row()).collect()
}
