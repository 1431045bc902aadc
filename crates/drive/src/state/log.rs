//! The log: three heads to which packs are appended, in one order.

mod failed;
mod filling;
mod in_memory;
mod memory;
mod publish;
mod syncs;
mod ticks;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use layout::pack::{HEADS, NextSegment, PACK_HEADER_BYTES, PackHeader, drive_tag};
use layout::record::{RECORD_HEADER_BYTES, RecordHeader, place_mask};
use layout::{Entry, Geometry, Head, HeadPosition, PAGE_BYTES, ParityForm};
use media::{Arena, IoBuf};
use space::{PACK_HARD_BYTES, PACK_SOFT_BYTES};

use self::failed::FailedPack;
pub(crate) use self::in_memory::InMemory;
pub use self::memory::MEMORY_SHAPE;
use self::memory::PackMemory;
pub(crate) use self::publish::Appender;
use crate::planted::{Planted, PlantedBug};
use crate::state::accumulator::Closed;
use crate::state::rules::first_broken;
use crate::state::segments::{Claim, SegmentState, Segments};

/// Smallest first part of a batch that is divided between two segments.
const PART_BYTES_MIN: usize = 8 << 10;

/// A pack that is complete and numbered, and is to be written.
pub(crate) struct SealedPack {
    pub(crate) sequence: u64,
    pub(crate) head: Head,
    pub(crate) segment: u32,
    pub(crate) position: u64,
    pub(crate) generation: u32,
    /// Offset in the segment.
    pub(crate) offset: u32,
    /// What the filling has set apart for parity.
    pub(crate) parity: ParityForm,
    pub(crate) buf: Arc<IoBuf>,
    /// Something else in the log names its segment.
    pub(crate) is_announced: bool,
}

struct OpenPack {
    buf: IoBuf,
    used: usize,
    records: u32,
    /// See [`PackHeader::continued`].
    continued: u32,
    records_crc: u32,
    limit: usize,
    /// Tick of the last append.
    tick: u64,
}

struct HeadState {
    current: NextSegment,
    /// What packs may take of the current segment, in bytes.
    room: u32,
    parity: ParityForm,
    offset: u32,
    next: NextSegment,
    /// A sealed pack or a durable checkpoint names `next`.
    announced: bool,
    open: Option<OpenPack>,
    /// Nothing more is appended to the current segment, because a write to it failed.
    leaves: bool,
    /// Nothing names the current segment: see [`Log::advance`].
    is_unannounced: bool,
}

/// Fit of a batch into the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// All of it into one pack.
    Whole,
    /// These bytes of records into the rest of a segment, the others into a pack in the next one.
    Part(usize),
}

/// No segment is available.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NoSegment;

pub(crate) struct Log {
    uuid: [u8; 16],
    tag: u32,
    geometry: Geometry,
    heads: [HeadState; HEADS],
    /// Number of the newest sealed pack.
    sequence: u64,
    /// Every pack up to this one is on the medium (not necessarily durable).
    written: u64,
    /// Packs on the medium that were written out of order.
    written_early: BTreeSet<u64>,
    /// Every pack up to this one is durable.
    durable: u64,
    /// Every pack up to this one was written and synced, except those that failed.
    synced: u64,
    /// Packs that the medium did not take and whose contents were not yet written elsewhere.
    failed: Vec<FailedPack>,
    /// First pack that the medium did not take and that no durable checkpoint makes unnecessary yet. Recovery
    /// would find the end of the log before it, so nothing behind it is durable.
    gap: Option<u64>,
    /// Numbers over which recovery could not follow the log now: of packs whose contents were written
    /// elsewhere since, and of packs to which nothing leads.
    gaps: Vec<u64>,
    /// Packs that an opening with the memory of this run needs until the gap is closed, though they were
    /// written, or written elsewhere.
    kept: Vec<(u64, Arc<IoBuf>)>,
    /// Newest pack that holds records.
    filled: u64,
    /// Newest pack of the host head that holds records.
    host_filled: u64,
    /// Number of sealed packs of the host head.
    host_sealed: u64,
    /// The durable number in the newest sealed pack.
    vouched: u64,
    /// Before this run's first checkpoint nothing leads to its packs. Until then no pack calls more durable
    /// than this number.
    durable_max: Option<u64>,
    /// Newest durable checkpoint.
    checkpoint: u64,
    /// Sealed packs not yet on the medium, by position.
    in_memory: BTreeMap<u64, Arc<IoBuf>>,
    /// Memory that they take.
    unwritten_bytes: u64,
    /// Bytes of packs written since the last sync was issued.
    unsynced_bytes: u64,
    /// The open pack of the cleaning head holds a record that the host has replaced since. It is sealed
    /// before the host's.
    cleaning_first: bool,
    outbox: Vec<SealedPack>,
    /// Fillings with parity to which nothing is added any more.
    closed: Vec<Closed>,
    memory: PackMemory,
    planted: Planted,
    tick: u64,
    /// Bytes of log since the cut of the last checkpoint, without the map's: those belong to the checkpoint
    /// itself, and another one would not reduce them.
    since_checkpoint: u64,
}

impl Log {
    /// A log that continues after `sequence`, with no segments yet.
    pub(crate) fn new(
        uuid: [u8; 16],
        geometry: Geometry,
        sequence: u64,
        checkpoint: u64,
        arena: Arena,
        planted: Planted,
    ) -> Log {
        let head = || HeadState {
            current: NextSegment::NONE,
            room: 0,
            parity: ParityForm::None,
            offset: 0,
            next: NextSegment::NONE,
            announced: false,
            open: None,
            leaves: false,
            is_unannounced: false,
        };
        Log {
            uuid,
            tag: drive_tag(&uuid),
            geometry,
            heads: [head(), head(), head()],
            sequence,
            written: sequence,
            written_early: BTreeSet::new(),
            durable: sequence,
            synced: sequence,
            failed: Vec::new(),
            gap: None,
            gaps: Vec::new(),
            kept: Vec::new(),
            filled: sequence,
            host_filled: sequence,
            host_sealed: 0,
            vouched: sequence,
            durable_max: Some(sequence),
            checkpoint,
            in_memory: BTreeMap::new(),
            unwritten_bytes: 0,
            unsynced_bytes: 0,
            cleaning_first: false,
            outbox: Vec::new(),
            closed: Vec::new(),
            memory: PackMemory::new(arena, planted),
            planted,
            tick: 0,
            since_checkpoint: 0,
        }
    }

    /// Makes room for `need` bytes of records in one pack of `head`. If that fails, nothing important has
    /// changed.
    pub(crate) fn room(
        &mut self,
        head: Head,
        need: usize,
        claim: Claim,
        segments: &mut Segments,
    ) -> Result<(), NoSegment> {
        if let Some(open) = &self.heads[head as usize].open {
            if open.used + need <= open.limit {
                return Ok(());
            }
            self.seal(head, segments);
        }
        if !self.fits(head, need) {
            self.advance(head, claim, segments)?;
        }
        assert!(self.fits(head, need), "a segment takes the largest pack");
        self.open_pack(head);
        Ok(())
    }

    /// Like [`Log::room`], for a batch of the host. If the batch does not fit into the rest of the segment,
    /// it may be divided between two packs, so that the end of the segment does not stay empty.
    /// [`Room::Part`] is followed by [`Log::go_on`].
    pub(crate) fn room_for_batch(
        &mut self,
        need: usize,
        claim: Claim,
        segments: &mut Segments,
    ) -> Result<Room, NoSegment> {
        const HOST: usize = Head::Host as usize;
        let left = match &self.heads[HOST] {
            state if state.current.is_some() && !state.leaves => (state.room - state.offset) as usize,
            _ => 0,
        };
        if let Some(open) = &self.heads[HOST].open
            && open.used + need > open.limit
            && left > PACK_HARD_BYTES
        {
            // Full, but not at the end of the segment.
            self.seal(Head::Host, segments);
            return self.room_for_batch(need, claim, segments);
        }
        let used = self.heads[HOST].open.as_ref().map_or(PACK_HEADER_BYTES, |open| open.used);
        let rest = left.min(PACK_HARD_BYTES).saturating_sub(used);
        if rest >= need || rest < PART_BYTES_MIN {
            return self.room(Head::Host, need, claim, segments).map(|()| Room::Whole);
        }
        self.promise(Head::Host, claim, segments);
        if !self.heads[HOST].next.is_some() {
            return Err(NoSegment);
        }
        // No pack may come between the two, such as one with records that this batch replaces.
        self.seal(Head::Cleaning, segments);
        if self.heads[HOST].open.is_none() {
            self.open_pack(Head::Host);
        }
        Ok(Room::Part(rest))
    }

    /// The last `records` of the host's open pack belong to a batch whose rest, `need` bytes, goes into the
    /// next segment. Makes room there.
    pub(crate) fn go_on(&mut self, records: u32, need: usize, claim: Claim, segments: &mut Segments) {
        if let Some(open) = &mut self.heads[Head::Host as usize].open {
            assert!(records <= open.records, "the first part of a batch is in the pack it continues from");
            open.continued = records;
        }
        self.seal(Head::Host, segments);
        // Promised before, and named by the pack just sealed.
        let advanced = self.advance(Head::Host, claim, segments);
        assert!(
            advanced.is_ok() && self.fits(Head::Host, need),
            "a promised segment takes the rest of a batch"
        );
        self.open_pack(Head::Host);
    }

    /// Returns whether a record of `need` bytes fits at a head without another segment.
    pub(crate) fn has_room(&self, head: Head, need: usize) -> bool {
        let open = self.heads[head as usize].open.as_ref();
        open.is_some_and(|open| open.used + need <= open.limit) || open.is_none() && self.fits(head, need)
    }

    fn fits(&self, head: Head, need: usize) -> bool {
        let state = &self.heads[head as usize];
        state.current.is_some()
            && !state.leaves
            && state.offset as usize + PACK_HEADER_BYTES + need <= state.room as usize
    }

    fn open_pack(&mut self, head: Head) {
        let buf = self.memory.of_open_pack();
        let state = &mut self.heads[head as usize];
        assert!(
            state.open.is_none() && state.current.is_some(),
            "a pack is opened in a segment, one at a time ({head:?})"
        );
        let limit = PACK_HARD_BYTES.min((state.room - state.offset) as usize);
        let (used, tick) = (PACK_HEADER_BYTES, self.tick);
        state.open = Some(OpenPack { buf, used, records: 0, continued: 0, records_crc: 0, limit, tick });
    }

    /// Moves a head to its next segment, and promises it another.
    fn advance(&mut self, head: Head, claim: Claim, segments: &mut Segments) -> Result<(), NoSegment> {
        self.promise(head, claim, segments);
        if !self.heads[head as usize].next.is_some() {
            return Err(NoSegment);
        }
        let mut is_unannounced = false;
        if !self.heads[head as usize].announced
            && let Err(error) = self.announce(segments)
        {
            // Behind a gap nothing is durable before a checkpoint makes the log unnecessary. Its cut must lie
            // behind this place.
            if self.gap.is_none() {
                return Err(error);
            }
            self.gaps.push(self.sequence + 1);
            is_unannounced = true;
        }
        let state = &mut self.heads[head as usize];
        assert!(state.open.is_none(), "a head leaves a segment with a pack open ({head:?})");
        if state.current.is_some() && segments.get(state.current.segment).state() == SegmentState::Open {
            segments.set_state(state.current.segment, SegmentState::Sealed);
            self.closed.extend(state.closed(segments));
        }
        state.current = state.next;
        state.begin(segments, &self.geometry);
        state.is_unannounced = is_unannounced;
        state.next = NextSegment::NONE;
        state.announced = false;
        segments.open(state.current.segment);
        self.promise(head, Claim::Ordinary, segments);
        Ok(())
    }

    /// Promises a next segment to a head that has none, if one is available.
    fn promise(&mut self, head: Head, claim: Claim, segments: &mut Segments) {
        let state = &mut self.heads[head as usize];
        if !state.next.is_some()
            && let Some((segment, generation)) = segments.take(head, claim)
        {
            state.next = NextSegment { segment, generation };
            state.announced = false;
        }
    }

    /// Promises segments to all heads that lack one.
    pub(crate) fn promise_all(&mut self, segments: &mut Segments) {
        for head in Head::ALL {
            self.promise(head, Claim::Ordinary, segments);
        }
    }

    /// Opens the map head's first segment of this run, at a checkpoint's cut. The checkpoint itself names it,
    /// and what is written there before the checkpoint is durable means nothing without it. Also used if that
    /// segment failed before.
    pub(crate) fn start_map_head(&mut self, segments: &mut Segments) {
        let state = &mut self.heads[Head::Map as usize];
        let begins = !state.current.is_some() || state.leaves && self.gap.is_some();
        if begins && state.next.is_some() {
            state.current = std::mem::replace(&mut state.next, NextSegment::NONE);
            state.begin(segments, &self.geometry);
            segments.open(state.current.segment);
            self.promise(Head::Map, Claim::Ordinary, segments);
        }
    }

    /// Seals an empty pack at some head, so that the log names all promised segments before any is written.
    fn announce(&mut self, segments: &mut Segments) -> Result<(), NoSegment> {
        let by = Head::ALL.into_iter().find(|&h| self.heads[h as usize].open.is_some() || self.fits(h, 0));
        let by = by.ok_or(NoSegment)?;
        if self.heads[by as usize].open.is_none() {
            self.open_pack(by);
        }
        self.seal(by, segments);
        Ok(())
    }

    /// A checkpoint is durable that names all promises made before its cut.
    pub(crate) fn checkpoint_durable(&mut self, number: u64, heads: &[HeadPosition; HEADS]) {
        self.checkpoint = number;
        self.durable_max = None;
        for (state, position) in self.heads.iter_mut().zip(heads) {
            if state.next.is_some() && state.next == position.next {
                state.announced = true;
            }
        }
    }

    /// Appends a record whose bytes are complete except for the mask of the checksum, and returns its entry.
    /// The caller has made room ([`Log::room`]). `header.crc` is the checksum without the mask.
    pub(crate) fn append(&mut self, head: Head, header: &RecordHeader, payload: &[u8]) -> Entry {
        let len = header.record_len();
        debug_assert_eq!(
            usize::from(header.payload_len),
            payload.len(),
            "a record's header names its length"
        );
        let (position, at) = self.place(head);
        let state = &mut self.heads[head as usize];
        let Some(open) = &mut state.open else { unreachable!("append without room") };
        assert!(at + len <= open.limit, "a record fits into its pack");
        let mask =
            place_mask(self.tag, state.current.segment, state.current.generation, state.offset + at as u32);
        let masked = RecordHeader { crc: header.crc ^ mask, ..*header };
        let bytes = &mut open.buf[at..at + len];
        masked.encode(bytes);
        open.records_crc = crc32c::crc32c_append(open.records_crc, &bytes[..RECORD_HEADER_BYTES]);
        let end = RECORD_HEADER_BYTES + payload.len();
        bytes[RECORD_HEADER_BYTES..end].copy_from_slice(payload);
        bytes[end..].fill(0);
        open.used = at + len;
        open.records += 1;
        open.tick = self.tick;
        if head == Head::Host && self.planted.has(PlantedBug::PublishedEarly) {
            self.memory.publish_open(self.open_fill());
        }
        header.entry_at(position)
    }

    /// A record died, overwritten or trimmed. If cleaning moved it to a pack that is still open, that pack
    /// must come before the host's in the order of packs. Otherwise roll-forward would bring the moved record
    /// back.
    pub(crate) fn dies(&mut self, entry: Entry) {
        let state = &self.heads[Head::Cleaning as usize];
        if let Some(open) = &state.open {
            let start = self.geometry.segment_offset(state.current.segment) + u64::from(state.offset);
            self.cleaning_first |= (start..start + open.used as u64).contains(&entry.position_bytes());
        }
    }

    /// Makes the open pack of the cleaning head come before the host's.
    pub(crate) fn put_cleaning_first(&mut self) {
        self.cleaning_first |= self.heads[Head::Cleaning as usize].open.is_some();
    }

    /// Returns the place of a head's next record: position on the backing, offset in the open pack.
    fn place(&self, head: Head) -> (u64, usize) {
        let state = &self.heads[head as usize];
        let Some(open) = &state.open else { unreachable!("append without room") };
        let start = self.geometry.segment_offset(state.current.segment) + u64::from(state.offset);
        (start + open.used as u64, open.used)
    }

    /// Seals the open pack of a head if it has grown enough.
    pub(crate) fn seal_if_full(&mut self, head: Head, segments: &mut Segments) {
        if self.heads[head as usize].open.as_ref().is_some_and(|open| open.used >= PACK_SOFT_BYTES) {
            self.seal(head, segments);
        }
    }

    /// Returns whether a head has a pack open in a segment: some of what lives there is not on the medium
    /// yet.
    pub(crate) fn has_open_pack_in(&self, segment: u32) -> bool {
        self.heads.iter().any(|head| head.open.is_some() && head.current.segment == segment)
    }

    /// Returns the segments to which heads append.
    pub(crate) fn open_segments(&self) -> Vec<NextSegment> {
        self.heads.iter().map(|head| head.current).filter(|current| current.is_some()).collect()
    }

    /// The drive has grown.
    pub(crate) fn set_geometry(&mut self, geometry: Geometry) {
        self.geometry = geometry;
    }

    /// Returns what a pack that is sealed now calls durable.
    fn durable_told(&self) -> u64 {
        self.durable.min(self.durable_max.unwrap_or(u64::MAX))
    }

    /// Seals the open pack of a head, if there is one: it is numbered and put in the outbox.
    pub(crate) fn seal(&mut self, head: Head, segments: &mut Segments) {
        if head == Head::Host && std::mem::take(&mut self.cleaning_first) {
            self.seal(Head::Cleaning, segments);
        }
        let Some(mut open) = self.heads[head as usize].open.take() else { return };
        self.cleaning_first &= head != Head::Cleaning;
        self.sequence += 1;
        let durable = self.durable_told();
        assert!(durable < self.sequence, "a pack vouches for itself");
        self.vouched = durable;
        if open.records > 0 {
            self.filled = self.sequence;
        }
        if head == Head::Host {
            self.host_sealed += 1;
            if open.records > 0 {
                self.host_filled = self.sequence;
            }
        }
        let len = open.used.next_multiple_of(PAGE_BYTES);
        assert!(
            len <= open.limit
                && open.limit <= (self.heads[head as usize].room - self.heads[head as usize].offset) as usize
        );
        open.buf[open.used..len].fill(0);
        let next = std::array::from_fn(|i| self.heads[i].next);
        let state = &mut self.heads[head as usize];
        let header = PackHeader {
            head,
            uuid: self.uuid,
            segment: state.current.segment,
            generation: state.current.generation,
            offset: state.offset,
            len: len as u32,
            used: open.used as u32,
            records: open.records,
            sequence: self.sequence,
            durable,
            checkpoint: self.checkpoint,
            next,
            continued: open.continued,
            parity: state.parity,
        };
        header.encode(open.records_crc, &mut open.buf);
        open.buf.set_len(len);
        let position = self.geometry.segment_offset(header.segment) + u64::from(header.offset);
        state.offset += len as u32;
        let is_announced = !std::mem::take(&mut state.is_unannounced);
        for state in &mut self.heads {
            state.announced |= state.next.is_some();
        }
        let filling = (segments.get(header.segment).generation(), segments.get(header.segment).state());
        assert!(
            filling.0 == header.generation
                && matches!(filling.1, SegmentState::Open | SegmentState::Bad | SegmentState::Damaged),
            "a pack goes to the filling of a segment that its head has: {filling:?}"
        );
        segments.pack_sealed(header.segment, self.sequence);
        let buf = Arc::new(self.memory.of_sealed_pack(open.buf));
        if !is_announced {
            self.kept.push((self.sequence, buf.clone()));
        }
        let displaced = self.in_memory.insert(position, buf.clone());
        assert!(displaced.is_none(), "a pack takes the place of one that is not written: {position:#x}");
        self.unwritten_bytes += self.memory.counted_bytes(&buf);
        if head != Head::Map {
            self.since_checkpoint += len as u64;
        }
        self.outbox.push(SealedPack {
            sequence: self.sequence,
            head,
            segment: header.segment,
            position,
            generation: header.generation,
            offset: header.offset,
            parity: header.parity,
            buf,
            is_announced,
        });
    }

    /// Seals all open packs.
    pub(crate) fn seal_all(&mut self, segments: &mut Segments) {
        for head in Head::ALL {
            self.seal(head, segments);
        }
    }

    /// Returns the packs to be written.
    pub(crate) fn take_outbox(&mut self) -> Vec<SealedPack> {
        std::mem::take(&mut self.outbox)
    }

    /// A pack reached the medium.
    pub(crate) fn pack_written(&mut self, pack: &SealedPack, segments: &mut Segments) {
        let was_there = self.in_memory.remove(&pack.position).is_some();
        assert!(was_there, "pack {} was written twice", pack.sequence);
        segments.get_mut(pack.segment).unwritten -= 1;
        self.unsynced_bytes += pack.buf.len() as u64;
        self.pack_done(pack);
    }

    fn pack_done(&mut self, pack: &SealedPack) {
        self.unwritten_bytes -= self.memory.counted_bytes(&pack.buf);
        let is_first = pack.sequence > self.written && self.written_early.insert(pack.sequence);
        assert!(is_first, "pack {} was done twice", pack.sequence);
        while self.written_early.remove(&(self.written + 1)) {
            self.written += 1;
        }
    }

    /// Part of [`Core::broken_invariant`](crate::state::core::Core::broken_invariant).
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        let rules = [
            (self.written <= self.sequence, "a pack was written before it was sealed"),
            (self.synced <= self.written, "a pack was synced before it was written"),
            (self.durable <= self.synced, "a pack is durable that was not synced"),
            (self.gap.is_none_or(|gap| self.durable < gap), "a pack behind a gap is durable"),
            (self.host_filled <= self.filled, "the host's packs are not among all"),
            (self.filled <= self.sequence, "a pack holds records that was not sealed"),
            (self.failed.is_empty() || self.gap.is_some(), "a pack that failed is no gap"),
            (
                self.unwritten_bytes == 0 || !self.in_memory.is_empty(),
                "a pack is neither in memory nor written",
            ),
        ];
        first_broken(&rules)
    }

    /// Positions of the heads, for a checkpoint. No pack may be open.
    pub(crate) fn positions(&self) -> [HeadPosition; HEADS] {
        std::array::from_fn(|i| {
            let state = &self.heads[i];
            let offset = if state.leaves { self.geometry.segment_bytes } else { state.offset };
            HeadPosition { current: state.current, offset, next: state.next }
        })
    }

    /// Returns whether these bytes of map can be written with `free` free segments and still leave one
    /// segment. Recovery after a crash needs that one for its own checkpoint.
    pub(crate) fn leaves_one_for_map(&self, bytes: u64, free: u32) -> bool {
        let next = u64::from(self.heads[Head::Map as usize].next.is_some());
        let whole = (u64::from(free) + next).checked_sub(1);
        let segment = u64::from(self.geometry.room_bytes());
        whole.is_some_and(|whole| bytes <= whole * segment + u64::from(self.room_bytes(Head::Map)))
    }

    /// Bytes left in the segment that a head fills.
    pub(crate) fn room_bytes(&self, head: Head) -> u32 {
        let state = &self.heads[head as usize];
        let open = state.open.as_ref().map_or(0, |open| open.used as u32);
        let used = state.offset + open;
        if state.current.is_some() && !state.leaves { state.room.saturating_sub(used) } else { 0 }
    }

    /// A checkpoint begins. Returns how much log it makes unnecessary once it is durable.
    pub(crate) fn take_since_checkpoint(&mut self) -> u64 {
        std::mem::take(&mut self.since_checkpoint)
    }

    /// That checkpoint was given up.
    pub(crate) fn add_since_checkpoint(&mut self, bytes: u64) {
        self.since_checkpoint += bytes;
    }

    pub(crate) fn since_checkpoint_bytes(&self) -> u64 {
        self.since_checkpoint
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Number of the newest pack that holds records. A flush waits for it.
    pub(crate) fn filled(&self) -> u64 {
        self.filled
    }

    /// Number of the newest pack of the host that holds records.
    pub(crate) fn host_filled(&self) -> u64 {
        self.host_filled
    }

    /// Returns whether a cut covers everything that hosts wrote.
    pub(crate) fn host_is_behind(&self, cut: u64) -> bool {
        self.host_filled <= cut && self.host_pack() == self.host_sealed()
    }

    /// Which pack of the host in this run, counted from 1, holds the last appended record.
    pub(crate) fn host_pack(&self) -> u64 {
        let open = self.heads[Head::Host as usize].open.as_ref();
        self.host_sealed + u64::from(open.is_some_and(|open| open.records > 0))
    }

    /// Number of packs of the host sealed in this run.
    pub(crate) fn host_sealed(&self) -> u64 {
        self.host_sealed
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable
    }

    pub(crate) fn checkpoint(&self) -> u64 {
        self.checkpoint
    }

    pub(crate) fn tag(&self) -> u32 {
        self.tag
    }
}

#[cfg(test)]
mod tests;
