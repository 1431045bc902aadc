//! The segments of a drive: what each holds, which are free, which is worth cleaning.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use layout::pack::HEADS;
use layout::{Entry, Geometry, Head, SegmentRow, SegmentUse, UNIT_BYTES};

use crate::space::{host_floor_segments, reserve_segments};

/// State of a segment in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// May be given to a head.
    Free,
    /// Promised to a head, not yet written.
    Promised,
    /// A head appends to it.
    Open,
    /// Full or given up: only read, cleaned and freed.
    Sealed,
    /// Holds a record that could not be read: stays as it is.
    Damaged,
}

/// How hard a segment is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// As each head may.
    Ordinary,
    /// For what frees space (TRIM): goes as deep into the stock as cleaning.
    Urgent,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    /// Live bytes in 16-byte units.
    pub(crate) live_units: u32,
    /// Number of this filling.
    pub(crate) generation: u32,
    /// Sequence number of the newest pack in it.
    pub(crate) last_sequence: u64,
    pub(crate) state: State,
    /// Packs of it that are in memory, not yet on the medium.
    pub(crate) unwritten: u16,
    /// Freed, but its space was not given back to the backing yet.
    pub(crate) discard: bool,
    /// Cleaned since the last checkpoint: what is live in it are map nodes, which the next one moves.
    pub(crate) cleaned: bool,
}

impl Segment {
    fn is_dead(&self) -> bool {
        self.state == State::Sealed && self.live_units == 0
    }
}

/// Segments whose readers are counted in one piece of memory: a drive that grows adds pieces.
const PINS_A_CHUNK: u32 = 4096;

/// Counts readers of each segment, so that none is written again under them.
#[derive(Debug, Default)]
struct Pins(Vec<Arc<[AtomicU32]>>);

impl Pins {
    fn grow(&mut self, segments: u32) {
        let chunk = || (0..PINS_A_CHUNK).map(|_| AtomicU32::new(0)).collect();
        self.0.resize_with(segments.div_ceil(PINS_A_CHUNK) as usize, chunk);
    }

    fn chunk(&self, segment: u32) -> &Arc<[AtomicU32]> {
        &self.0[(segment / PINS_A_CHUNK) as usize]
    }

    fn pinned(&self, segment: u32) -> bool {
        self.chunk(segment)[(segment % PINS_A_CHUNK) as usize].load(Ordering::Acquire) > 0
    }
}

/// Keeps a segment from being reused while it lives.
#[derive(Debug)]
pub(crate) struct Pin {
    chunk: Arc<[AtomicU32]>,
    index: u32,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.chunk[self.index as usize].fetch_sub(1, Ordering::Release);
    }
}

pub(crate) struct Segments {
    geometry: Geometry,
    table: Vec<Segment>,
    free: Vec<u32>,
    /// Set aside.
    damaged: Vec<u32>,
    pins: Pins,
    live_units: u64,
    /// Sealed ones without anything live.
    dead: u32,
    /// How many free segments each head must leave for others.
    floors: [u32; HEADS],
    /// Segments that writing the changed part of the map would take: nobody else may have them.
    map_need: u32,
    reserve: u32,
    entropy: u64,
    generations: u64,
}

impl Segments {
    /// All free. `entropy` makes the generations handed out here differ from those of every earlier run.
    pub(crate) fn new(geometry: Geometry, entropy: u64) -> Segments {
        let mut segments = Segments {
            geometry,
            table: Vec::new(),
            free: Vec::new(),
            damaged: Vec::new(),
            pins: Pins::default(),
            live_units: 0,
            dead: 0,
            floors: [0; HEADS],
            map_need: 0,
            reserve: 0,
            entropy,
            generations: 0,
        };
        segments.set_geometry(geometry);
        segments
    }

    /// Makes rows for all segments there are, and says how many are held back.
    fn set_geometry(&mut self, geometry: Geometry) {
        let count = geometry.segments();
        let blank = Segment {
            live_units: 0,
            generation: 0,
            last_sequence: 0,
            state: State::Free,
            unwritten: 0,
            discard: false,
            cleaned: false,
        };
        self.geometry = geometry;
        self.table.resize(count as usize, blank);
        self.pins.grow(count);
        self.reserve = reserve_segments(count);
        self.floors = [host_floor_segments(count), 2, 0];
    }

    /// The drive has grown: the new segments are free, and handed out after all others.
    pub(crate) fn grow(&mut self, geometry: Geometry) {
        let before = self.count();
        self.set_geometry(geometry);
        self.free.splice(0..0, (before..self.count()).rev());
    }

    /// Takes over the rows of a checkpoint.
    pub(crate) fn load(&mut self, rows: &[SegmentRow]) {
        for (segment, row) in self.table.iter_mut().zip(rows) {
            segment.live_units = row.live_units;
            segment.generation = row.generation;
            segment.last_sequence = row.last_sequence;
            segment.state = match row.usage {
                SegmentUse::Free => State::Free,
                SegmentUse::Used => State::Sealed,
                SegmentUse::Damaged => State::Damaged,
            };
        }
        self.live_units = self.table.iter().map(|s| u64::from(s.live_units)).sum();
        self.dead = self.table.iter().filter(|s| s.is_dead()).count() as u32;
        let damaged = |s: &u32| self.get(*s).state == State::Damaged;
        self.damaged = (0..self.count()).filter(damaged).collect();
    }

    /// Lists the free segments, once loading and roll-forward have said which are used.
    pub(crate) fn list_free(&mut self) {
        // Highest first, so that popping hands out the lowest: the file stays compact.
        self.free =
            (0..self.table.len() as u32).rev().filter(|&s| self.get(s).state == State::Free).collect();
    }

    /// Rows for a checkpoint.
    pub(crate) fn rows(&self) -> Vec<SegmentRow> {
        let row = |s: &Segment| SegmentRow {
            live_units: s.live_units,
            generation: s.generation,
            last_sequence: s.last_sequence,
            usage: match s.state {
                State::Free | State::Promised => SegmentUse::Free,
                State::Open | State::Sealed => SegmentUse::Used,
                State::Damaged => SegmentUse::Damaged,
            },
        };
        self.table.iter().map(row).collect()
    }

    pub(crate) fn count(&self) -> u32 {
        self.table.len() as u32
    }

    pub(crate) fn get(&self, segment: u32) -> &Segment {
        &self.table[segment as usize]
    }

    pub(crate) fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.table[segment as usize]
    }

    /// The segment a record lies in. Entries come from our own map: they were checked when read.
    pub(crate) fn of(&self, entry: Entry) -> u32 {
        match self.geometry.locate(entry.position_bytes()) {
            Some((segment, _)) => segment,
            None => unreachable!("map entry outside the segments: {entry:?}"),
        }
    }

    /// A segment's life goes on.
    pub(crate) fn set_state(&mut self, segment: u32, state: State) {
        let row = &mut self.table[segment as usize];
        self.dead -= u32::from(row.is_dead());
        row.state = state;
        self.dead += u32::from(row.is_dead());
    }

    /// So many units of a record became live: all of it, or a block's part of a frame.
    pub(crate) fn add(&mut self, entry: Entry, units: u32) {
        let segment = self.of(entry);
        let row = &mut self.table[segment as usize];
        self.dead -= u32::from(row.is_dead() && units > 0);
        row.live_units += units;
        self.live_units += u64::from(units);
    }

    /// So many units of a record died.
    pub(crate) fn release(&mut self, entry: Entry, units: u32) {
        let segment = self.of(entry);
        let row = &mut self.table[segment as usize];
        debug_assert!(row.live_units >= units, "segment {segment} holds less than what dies in it");
        self.dead -= u32::from(row.is_dead());
        row.live_units = row.live_units.saturating_sub(units);
        self.dead += u32::from(row.is_dead());
        self.live_units = self.live_units.saturating_sub(u64::from(units));
    }

    pub(crate) fn pin(&self, segment: u32) -> Pin {
        let (chunk, index) = (self.pins.chunk(segment).clone(), segment % PINS_A_CHUNK);
        chunk[index as usize].fetch_add(1, Ordering::Relaxed);
        Pin { chunk, index }
    }

    /// Takes a free segment for a head, gives it a new generation and marks it promised.
    pub(crate) fn take(&mut self, head: Head, claim: Claim) -> Option<(u32, u32)> {
        let floor = match claim {
            Claim::Ordinary => self.floor(head),
            Claim::Urgent => self.floor(Head::Cleaning).min(self.floor(head)),
        };
        if self.free_count() <= floor {
            return None;
        }
        let at = self.free.iter().rposition(|s| !self.pins.pinned(*s))?;
        let segment = self.free.remove(at);
        self.generations += 1;
        let generation = mix(self.entropy, self.generations);
        let row = &mut self.table[segment as usize];
        debug_assert_eq!(row.live_units, 0);
        row.generation = generation;
        row.discard = false;
        row.cleaned = false;
        self.set_state(segment, State::Promised);
        Some((segment, generation))
    }

    /// Frees a segment that holds nothing live.
    pub(crate) fn free(&mut self, segment: u32) {
        let row = self.get_mut(segment);
        debug_assert_eq!(row.live_units, 0);
        row.discard = true;
        self.set_state(segment, State::Free);
        self.free.push(segment);
    }

    /// A free segment whose space may be given back to the backing now; it leaves the free list until
    /// [`Segments::discarded`].
    pub(crate) fn take_for_discard(&mut self) -> Option<u32> {
        let wanted = |s: &u32| self.get(*s).discard && !self.pins.pinned(*s);
        let at = self.free.iter().position(wanted)?;
        let segment = self.free.remove(at);
        self.get_mut(segment).discard = false;
        Some(segment)
    }

    /// Back on the free list after a discard. At the far end: others, still allocated in the backing, go first.
    pub(crate) fn discarded(&mut self, segment: u32) {
        self.free.insert(0, segment);
    }

    pub(crate) fn free_count(&self) -> u32 {
        self.free.len() as u32
    }

    /// Whether the host may get another segment.
    pub(crate) fn host_may_take(&self) -> bool {
        self.free_count() > self.floor(Head::Host)
    }

    /// Free segments that a head must leave to others.
    pub(crate) fn floor(&self, head: Head) -> u32 {
        match head {
            Head::Map => 0,
            Head::Host | Head::Cleaning => self.floors[head as usize] + self.map_need,
        }
    }

    /// Whether enough is free for the map to be written and for cleaning to go on, whatever a host write adds to both.
    pub(crate) fn has_stock(&self, claim: Claim) -> bool {
        let least = match claim {
            Claim::Ordinary => self.floor(Head::Cleaning),
            Claim::Urgent => self.map_need,
        };
        self.free_count() > least
    }

    /// Says how many bytes of map wait to be written.
    pub(crate) fn set_map_need(&mut self, dirty_bytes: u64) {
        // A quarter on top: ends of segments too short for a node.
        self.map_need = ((dirty_bytes + dirty_bytes / 4) / u64::from(self.geometry.segment_bytes)) as u32;
    }

    pub(crate) fn map_need(&self) -> u32 {
        self.map_need
    }

    /// Whether freed space could be given back to the backing.
    pub(crate) fn has_discard(&self) -> bool {
        self.free.iter().any(|&s| self.get(s).discard)
    }

    /// Segments that data may not fill: over-provisioning for cleaning, the heads and the map.
    pub(crate) fn reserve(&self) -> u32 {
        self.reserve
    }

    /// The newest pack of that segment, of all that hold something live, whose newest pack is the oldest.
    pub(crate) fn oldest_sequence(&self) -> u64 {
        let live = self.table.iter().filter(|row| row.live_units > 0);
        live.map(|row| row.last_sequence).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn live_units(&self) -> u64 {
        self.live_units
    }

    /// Most live units the drive takes.
    pub(crate) fn limit_units(&self) -> u64 {
        (u64::from(self.count() - self.reserve) * self.segment_units()).saturating_sub(self.set_aside_units())
    }

    /// Sets a segment aside for good.
    pub(crate) fn set_aside(&mut self, segment: u32) {
        self.set_state(segment, State::Damaged);
        self.damaged.push(segment);
    }

    /// Room lost in segments that were set aside.
    pub(crate) fn set_aside_units(&self) -> u64 {
        let lost = |s: &u32| self.segment_units() - u64::from(self.get(*s).live_units);
        self.damaged.iter().map(lost).sum()
    }

    pub(crate) fn segment_units(&self) -> u64 {
        u64::from(self.geometry.segment_bytes) / UNIT_BYTES as u64
    }

    pub(crate) fn generations(&self) -> u64 {
        self.generations
    }

    /// Sealed segments without anything live, wholly written: what the next checkpoint frees.
    pub(crate) fn dead_count(&self) -> u32 {
        self.dead
    }

    /// After a checkpoint: what could not be emptied may be tried again.
    pub(crate) fn forget_cleaned(&mut self) {
        self.table.iter_mut().for_each(|s| s.cleaned = false);
    }

    /// The segment most worth cleaning, by benefit over cost as in Sprite LFS (Rosenblum and Ousterhout, 1992,
    /// section 3.6): (1 - u) x age / (1 + u), with u the live share, and age counted in packs since the last write.
    pub(crate) fn victim(&self, now: u64) -> Option<u32> {
        let full = self.segment_units() as f64;
        let score = |s: &Segment| {
            let u = f64::from(s.live_units) / full;
            let age = (now - s.last_sequence.min(now)) as f64 + 1.0;
            (1.0 - u) * age / (1.0 + u)
        };
        let candidate = |s: &Segment| {
            s.state == State::Sealed
                && s.unwritten == 0
                && !s.cleaned
                && s.live_units > 0
                // Nearly full ones cost more than they give.
                && u64::from(s.live_units) * 100 < self.segment_units() * 97
        };
        (0..self.count())
            .filter(|&s| candidate(self.get(s)))
            .max_by(|&a, &b| score(self.get(a)).total_cmp(&score(self.get(b))))
    }
}

/// A 32-bit number for each filling, different in every run (splitmix64's finaliser, Steele et al. 2014).
fn mix(entropy: u64, counter: u64) -> u32 {
    let mut z = entropy.wrapping_add(counter.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ z >> 31) as u32
}
