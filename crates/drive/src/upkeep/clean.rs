//! Cleaning: live records move out of a mostly dead segment, so that it can be freed. Compressed bytes move
//! as they are, except frames with dead blocks.

use std::sync::Arc;

use layout::{NodeId, RecordHeader, RecordKind};
use media::Media;
use space::with_ends;

use crate::error::Error;
use crate::medium::decode::decode_verified;
use crate::medium::load::Bounds;
use crate::planted::PlantedBug;
use crate::shared::{Shared, yield_now};
use crate::state::batch::{Batch, sum};
use crate::state::cleaning::{Cleaning, Losses, Pass, Window};
use crate::state::core::Core;
use crate::state::found_record::FoundRecord;
use crate::state::log::Appender;
use crate::state::map::Missing;
use crate::state::node::Slot;
use crate::state::segments::{Claim, Gain, SegmentState};

/// Records moved in one critical section.
pub(crate) const RECORDS_A_BATCH: usize = 64;
/// Records examined in one step of cleaning, after which the caller may pause.
pub(crate) const RECORDS_A_STEP: usize = 2 * RECORDS_A_BATCH;
/// With fewer free segments, only what frees more than it changes in the map is moved: checkpoints would take
/// the last ones.
const KEPT_FOR_MAP: u32 = 2;
/// Map nodes loaded per record, on average, after which fewer records are looked up at once: twice the path
/// to one record on the largest drive.
const LOADS_A_RECORD: usize = 8;

/// The live part of a record.
struct Live {
    /// Its number in the batch.
    found: usize,
    /// Its live blocks, one bit each, from the first on.
    blocks: u8,
    fate: Fate,
}

/// Treatment of a live record.
enum Fate {
    /// It moves as it is, with this header, which leaves out dead blocks.
    Move(RecordHeader),
    /// Its live blocks are packed anew: smaller, or without a retired dictionary.
    Anew(Batch),
    /// It stays: packed anew it would be larger, and as it is it cannot move.
    Stay,
}

/// Result for some records.
enum Moved {
    All,
    NoRoom,
    /// The memory of the map is too small for the paths to all of them.
    Crowded,
}

/// Result of appending them.
enum Step {
    Done,
    /// A record has changed since the batch was examined: examine it again.
    Changed,
    Missing(Missing),
    NoSegment,
    Wait,
}

/// How the live blocks of a record are packed anew. Requests wait for cleaning, so it compresses them twice
/// at most, as quickly as the host's data: what becomes larger by that moves as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tries {
    AsHostData,
    /// Larger without it, unless compressed well. Few records need one.
    WithoutItsDictionary,
    /// In all ways, as often as there are.
    All,
}

/// Result of a step of cleaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cleaned {
    /// Nothing is worth it, or there is no room to move anything, whatever is done.
    Nothing,
    /// No room before a checkpoint. Cleaning then continues with the same segment.
    NoRoom,
    /// Part of a segment.
    Part,
    /// The last of a segment.
    Segment,
}

impl<M: Media> Shared<M> {
    /// Empties the segment most worth it. Returns false if there is none, or no room to move anything.
    pub(crate) async fn clean_one(self: &Arc<Self>, gain: Gain) -> Result<bool, Error> {
        loop {
            match self.clean_step(gain).await? {
                Cleaned::Part => {}
                cleaned => return Ok(cleaned == Cleaned::Segment),
            }
        }
    }

    /// Cleans a part of the current segment, or of the one most worth it.
    pub(crate) async fn clean_step(self: &Arc<Self>, gain: Gain) -> Result<Cleaned, Error> {
        let Some(mut work) = self.core().take_cleaning(gain)? else { return Ok(Cleaned::Nothing) };
        let end = {
            let geometry = *self.core().geometry();
            geometry.segment_offset(work.segment) + u64::from(geometry.segment_bytes)
        };
        if std::mem::take(&mut work.is_new) && self.core().may_meet_losses() {
            match self.look_for_losses(&work, end).await {
                Losses::None => {}
                Losses::Some => {
                    if self.core().set_aside_damaged(&work) {
                        Self::count(&self.corrupt_records, 1);
                    }
                    // Nothing was moved in vain: there are others.
                    return Ok(Cleaned::Part);
                }
                // That was enough for one step.
                Losses::Unread => {
                    self.core().cleaning = Some(work);
                    return Ok(Cleaned::Part);
                }
            }
        }
        if work.window.is_none() {
            self.next_window(&mut work, end).await;
        }
        if let Some(mut window) = work.window.take() {
            let until = window.found.len().min(window.done + RECORDS_A_STEP);
            while window.done < until {
                let batch = &window.found[window.done..until.min(window.done + RECORDS_A_BATCH)];
                if !self.move_batch(batch, &window.bytes, &mut work.pass).await? {
                    return Ok(self.core().put_off_cleaning(work, window));
                }
                window.done += batch.len();
                work.stuck = false;
                yield_now().await;
            }
            if until < window.found.len() {
                work.window = Some(window);
            } else {
                work.at = window.end;
            }
        }
        let needed = {
            let mut core = self.core();
            if core.segments.get(work.segment).live_units() > 0 && (work.window.is_some() || work.at < end) {
                core.cleaning = Some(work);
                return Ok(Cleaned::Part);
            }
            let needed = std::mem::take(&mut work.pass.needed);
            Some(needed).filter(|needed| core.may_keep_dictionaries(needed))
        };
        let again = match needed {
            Some(needed) => {
                // Checkpoints may wait for all who have freed segments, and this one may be freed.
                work.pin = None;
                self.keep_dictionaries(&needed).await?
            }
            None => false,
        };
        let mut core = self.core();
        if again {
            // What stayed moves now.
            work.at = core.geometry().segment_offset(work.segment);
            let Pass { thorough, scans, verifies, .. } = work.pass;
            work.pass = Pass { as_is: true, thorough, scans, verifies, ..Pass::default() };
            work.found_to = 0;
            if core.is_at_hand(&work) {
                work.pin = Some(core.segments.pin(work.segment));
                core.cleaning = Some(work);
            }
            return Ok(Cleaned::Part);
        }
        // If it is another filling by now, a checkpoint has freed the previous one.
        if core.is_at_hand(&work) {
            if core.has_lost(&work) && !work.pass.scans {
                // The header of a pack may be damaged, and not what is in the pack.
                work.at = core.geometry().segment_offset(work.segment);
                let Pass { as_is, thorough, .. } = work.pass;
                work.pass = Pass { as_is, thorough, scans: true, verifies: true, ..Pass::default() };
                core.cleaning = Some(work);
                return Ok(Cleaned::Part);
            }
            if core.end_cleaning(&work) {
                Self::count(&self.corrupt_records, 1);
            }
        }
        Ok(Cleaned::Segment)
    }

    /// Moves the live records of a batch. Returns false if there is no room.
    pub(crate) async fn move_batch(
        self: &Arc<Self>,
        batch: &[FoundRecord],
        window: &[u8],
        pass: &mut Pass,
    ) -> Result<bool, Error> {
        let mut rest = batch;
        while !rest.is_empty() {
            let some = rest.len().min(RECORDS_A_BATCH >> pass.halved).max(1);
            match self.move_some(&rest[..some], window, pass).await? {
                Moved::All => rest = &rest[some..],
                Moved::NoRoom => return Ok(false),
                Moved::Crowded => pass.halved += 1,
            }
        }
        Ok(true)
    }

    /// Moves the live ones of some records, all of which are looked up at once.
    async fn move_some(
        self: &Arc<Self>,
        batch: &[FoundRecord],
        window: &[u8],
        pass: &mut Pass,
    ) -> Result<Moved, Error> {
        let mut loads = 0;
        loop {
            // If each block has a leaf of its own, the nodes on the paths to so many evict each other.
            if loads > LOADS_A_RECORD * batch.len() && batch.len() > 1 {
                return Ok(Moved::Crowded);
            }
            let mut live = Vec::new();
            let looked = self.core().find_live(batch, pass, &mut live);
            let node_units = match looked {
                Ok(node_units) => node_units,
                Err(missing) => {
                    loads += 1;
                    if !self.load_for(missing, pass).await {
                        return Ok(Moved::All);
                    }
                    continue;
                }
            };
            // What cannot be decompressed although its checksum is right stays, and the segment is set aside.
            let mut kept = Vec::with_capacity(live.len());
            for mut live in live {
                let found = &batch[live.found];
                if let Some(fate) = self.fate_of(found, window, live.blocks, pass) {
                    live.fate = fate;
                    kept.push(live);
                }
                if matches!(kept.last(), Some(Live { fate: Fate::Anew(_), .. })) {
                    // That took a while.
                    yield_now().await;
                }
            }
            let live = kept;
            let step = {
                let mut core = self.core();
                // What moves changes the map, and only the next checkpoint moves nodes.
                let moves = node_units > 0 || !live.is_empty();
                match moves && !pass.must_move && core.lacks_room_to_move(batch, &live) {
                    true => Step::NoSegment,
                    false => core.append_moved(batch, &live, window, pass),
                }
            };
            let mut left_units = node_units;
            for Live { found, fate, .. } in live {
                match fate {
                    Fate::Anew(batch) => batch.give_back(),
                    Fate::Stay => {
                        let FoundRecord { header, entry, .. } = &batch[found];
                        left_units += u64::from(entry.units());
                        if !pass.needed.contains(&header.extra) {
                            pass.needed.push(header.extra);
                        }
                    }
                    Fate::Move(_) => {}
                }
            }
            match step {
                Step::Done => {
                    pass.left_units += left_units;
                    return Ok(Moved::All);
                }
                Step::Changed => {}
                Step::Missing(missing) => {
                    loads += 1;
                    if !self.load_for(missing, pass).await {
                        return Ok(Moved::All);
                    }
                }
                Step::NoSegment => return Ok(Moved::NoRoom),
                Step::Wait => {
                    self.wait_for(|core| match core.log.must_wait(Appender::Background) {
                        false => Some(Ok(())),
                        true => core.gave_up_writing().map(Err),
                    })
                    .await?;
                    self.core().mode.writable()?;
                }
            }
        }
    }

    /// Decides about a record. A frame with dead blocks moves as it is, unless its live blocks are smaller
    /// packed anew: cleaning never writes more than it frees. A record that needs a retired dictionary moves
    /// as it is only if that was prepared: see [`Shared::keep_dictionaries`]. `None`: it would have to be
    /// packed anew, but cannot be decompressed.
    fn fate_of(
        self: &Arc<Self>,
        found: &FoundRecord,
        window: &[u8],
        blocks: u8,
        pass: &Pass,
    ) -> Option<Fate> {
        let (is_current, may_move) = {
            let core = self.core();
            (core.is_current(&found.header), core.may_move(&found.header, pass))
        };
        let payload = &window[found.payload.clone()];
        let is_whole = blocks == all_blocks(&found.header);
        if is_whole && is_current {
            return Some(Fate::Move(found.header));
        }
        let tries = match is_current {
            _ if pass.thorough => Tries::All,
            true => Tries::AsHostData,
            false => Tries::WithoutItsDictionary,
        };
        let anew = self.make_anew(found, payload, blocks, tries);
        let size = anew.as_ref().map_or(usize::MAX, |batch| batch.log_bytes);
        let size = if self.planted.has(PlantedBug::UnboundedCleaning) { size.min(1) } else { size };
        if size < found.header.record_len()
            || (size == found.header.record_len() || pass.must_move || pass.must_leave) && !is_current
        {
            return anew.map(Fate::Anew);
        }
        if let Some(anew) = anew {
            anew.give_back();
        } else if !may_move {
            return None;
        }
        if !may_move {
            return Some(Fate::Stay);
        }
        let mut header = RecordHeader { left_out: all_blocks(&found.header) & !blocks, ..found.header };
        sum(&mut header, payload);
        Some(Fate::Move(header))
    }

    /// Packs the live blocks of a record anew.
    fn make_anew(
        self: &Arc<Self>,
        found: &FoundRecord,
        payload: &[u8],
        live: u8,
        tries: Tries,
    ) -> Option<Batch> {
        let dictionary = self.dictionaries.of(found.header.extra).ok()?;
        let contents = decode_verified(&found.header, payload, dictionary.as_ref()).ok()?;
        let recipes = match tries {
            Tries::All => self.all_recipes(),
            Tries::AsHostData => vec![self.kept_recipe()],
            Tries::WithoutItsDictionary => vec![self.kept_recipe(), self.strongest_recipe(&contents)],
        };
        let as_one: &[bool] = match tries {
            Tries::All => &[false, true],
            // Neighbours are a frame, or two: holes would only add to it.
            Tries::AsHostData if !is_run(live) => &[true, false],
            Tries::AsHostData | Tries::WithoutItsDictionary => &[false],
        };
        let ways = recipes.iter().flat_map(|recipe| as_one.iter().map(move |as_one| (recipe, *as_one)));
        let mut batch = Batch::take();
        batch.add_smallest(ways, found.header.block, &contents, live);
        Some(batch)
    }

    /// Loads a node for cleaning. A corrupt one is remembered, so that it does not stop what others map.
    /// Returns false if the medium returned an error, perhaps a moment ago; the batch is then left as it is.
    pub(crate) async fn load_for(&self, missing: Missing, pass: &mut Pass) -> bool {
        let known = {
            let core = self.core();
            core.lost.over(missing.id, core.ticks).filter(|_| !pass.must_move).cloned()
        };
        let loaded = match known {
            Some(error) => Err(error),
            None => self.load(missing).await,
        };
        match loaded {
            Ok(()) => true,
            Err(Error::Corrupt(_)) => {
                pass.corrupt_nodes.push(missing.id);
                true
            }
            Err(_) => {
                pass.unreadable = true;
                false
            }
        }
    }
}

impl Core {
    /// Returns the current segment if it is still what it was, else the one most worth cleaning.
    fn take_cleaning(&mut self, gain: Gain) -> Result<Option<Cleaning>, Error> {
        self.mode.writable()?;
        let now = self.log.sequence();
        let best = || self.segments.victim(now, gain);
        if let Some(work) = self.cleaning.take()
            && self.is_at_hand(&work)
            && !(gain == Gain::Soon
                && (work.window.is_none() || work.stuck)
                && best().is_some_and(|best| self.is_sooner_freed(best, work.segment)))
        {
            return Ok(Some(work));
        }
        let Some(segment) = self.segments.victim(now, gain) else { return Ok(None) };
        tracing::debug!(
            segment,
            live_units = self.segments.get(segment).live_units(),
            ?gain,
            "cleaning a segment"
        );
        Ok(Some(Cleaning {
            segment,
            generation: self.segments.get(segment).generation(),
            at: self.geometry().segment_offset(segment),
            found_to: 0,
            window: None,
            pass: Pass { as_is: self.is_short(), thorough: gain == Gain::LAST_ROOM, ..Pass::default() },
            stuck: false,
            is_new: true,
            pin: Some(self.segments.pin(segment)),
        }))
    }

    /// There is no room to move the next part of a segment. A checkpoint may make some. If it did not, the
    /// segment is released.
    fn put_off_cleaning(&mut self, work: Cleaning, window: Window) -> Cleaned {
        if work.stuck || self.map.dirty_bytes() == 0 {
            if self.segments.free_count() >= KEPT_FOR_MAP {
                return Cleaned::Nothing;
            }
            // Others may hold only map nodes.
            self.segments.set_cleaned(work.segment);
            self.note_harvest();
            return Cleaned::Part;
        }
        self.cleaning = Some(Cleaning { window: Some(window), stuck: true, ..work });
        Cleaned::NoRoom
    }

    /// Returns whether a segment takes much less to be freed than the current one, which was chosen when
    /// there was time.
    fn is_sooner_freed(&self, segment: u32, at_hand: u32) -> bool {
        self.segments.get(segment).live_units() < self.segments.get(at_hand).live_units() / 2
    }

    pub(crate) fn is_at_hand(&self, work: &Cleaning) -> bool {
        let row = self.segments.get(work.segment);
        row.state() == SegmentState::Sealed && row.generation() == work.generation
    }

    /// After a checkpoint, which may have freed the current segment: releases it then.
    pub(crate) fn review_cleaning(&mut self) {
        // A pin would keep what was freed.
        let begun = self.emptying.work.take();
        self.emptying.work = begun.filter(|work| work.pin.is_none() || self.is_at_hand(work));
        self.forget_worn();
        if let Some(work) = self.cleaning.take() {
            if self.is_at_hand(&work) {
                self.cleaning = Some(work);
            } else {
                self.note_harvest();
            }
        }
    }

    /// Returns whether the changed part of the map leaves no room for what moving these would change.
    fn lacks_room_to_move(&mut self, batch: &[FoundRecord], live: &[Live]) -> bool {
        if self.lacks_room_for_map() {
            return true;
        }
        if self.segments.free_count() >= KEPT_FOR_MAP {
            return false;
        }
        let written = self.map_bytes();
        let estimate = self.map.write_estimate_bytes(written);
        if live.is_empty() {
            // The more of them at a time, the less is written of the nodes above.
            return !self.log.leaves_one_for_map(with_ends(estimate), self.segments.free_count());
        }
        // Small records change more of the map than they free, and they may be all that is left.
        let changes = written.min((live.len() * layout::BLOCK_BYTES) as u64);
        let units: u32 = live.iter().map(|live| batch[live.found].entry.units()).sum();
        changes > 2 * u64::from(units) * layout::UNIT_BYTES as u64
            || estimate > u64::from(self.geometry().segment_bytes) / 8
    }

    /// Returns whether a segment was read to its end, and holds what was not found. Everything found was
    /// moved, stays on purpose, or is dead and accounted as such. What still counts as live was not found, or
    /// nobody knows whether it lives.
    fn has_lost(&self, work: &Cleaning) -> bool {
        let row = self.segments.get(work.segment);
        u64::from(row.live_units()) > work.pass.left_units
            && !work.pass.unreadable
            && row.state() == SegmentState::Sealed
    }

    /// A segment is done. Returns true if it is set aside because its contents cannot be read.
    fn end_cleaning(&mut self, work: &Cleaning) -> bool {
        self.counters.segments_cleaned_count += 1;
        let left_units = self.segments.get(work.segment).live_units();
        tracing::debug!(segment = work.segment, left_units, "segment cleaned");
        if self.has_lost(work) {
            // Another attempt would gain nothing.
            return self.set_aside_damaged(work);
        }
        // Everything that could be packed anew was.
        self.segments.forget_repackable(work.segment);
        self.segments.set_cleaned(work.segment);
        false
    }

    /// Sets a segment aside that holds what cannot be read: what else lives in it stays there. Returns false
    /// if it is another filling by now.
    fn set_aside_damaged(&mut self, work: &Cleaning) -> bool {
        if !self.is_at_hand(work) {
            return false;
        }
        // Nothing in it will be packed anew.
        self.segments.forget_repackable(work.segment);
        self.segments.set_aside(work.segment, SegmentState::Damaged);
        let start = self.geometry().segment_offset(work.segment);
        self.note(format!(
            "segment {} at byte {start:#x} of the backing holds records that cannot be read: it is set aside",
            work.segment
        ));
        true
    }

    /// Finds the live records of a batch. Live map nodes are marked for rewriting. Returns the units of these
    /// nodes, or what must be loaded first.
    fn find_live(
        &mut self,
        batch: &[FoundRecord],
        pass: &Pass,
        live: &mut Vec<Live>,
    ) -> Result<u64, Missing> {
        let mut node_units = 0;
        for (i, found) in batch.iter().enumerate() {
            let answer = match found.header.kind {
                RecordKind::Data => self.live_blocks(found).map(|blocks| {
                    let blocks =
                        if self.moves_overwritten(pass) { all_blocks(&found.header) } else { blocks };
                    (blocks != 0).then(|| live.push(Live { found: i, blocks, fate: Fate::Stay }))
                }),
                RecordKind::Node => self.has_node(found).map(|has| {
                    has.then(|| {
                        self.map.rewrite(node_of(found));
                        node_units += u64::from(found.entry.units());
                    })
                }),
                RecordKind::Range | RecordKind::Overlay => Ok(None),
            };
            match answer {
                Err(missing) if !pass.corrupt_nodes.contains(&missing.id) => return Err(missing),
                _ => {}
            }
        }
        Ok(node_units)
    }

    /// Returns whether a record is the image of its node. The node is complete then.
    pub(crate) fn has_node(&mut self, found: &FoundRecord) -> Result<bool, Missing> {
        match self.map.has_image(node_of(found), found.entry)? {
            true => self.map.complete(node_of(found)),
            false => Ok(false),
        }
    }

    /// Returns whether no block has any of these data records any more. Leaves that changed are in memory.
    pub(crate) fn is_left(&self, found: &[FoundRecord], pass: &Pass) -> bool {
        let has = |found: &FoundRecord| {
            let blocks = found.header.block..found.header.block + found.header.blocks();
            let now = blocks.map(|block| self.map.peek(block));
            now.into_iter().any(|slot| slot == Slot::Known(found.entry))
        };
        let mut data = found.iter().filter(|found| found.header.kind == RecordKind::Data);
        pass.corrupt_nodes.is_empty() && !data.any(has)
    }

    /// Returns the blocks for which the map points to a data record, one bit each. Needs their leaf complete,
    /// so that what changes replaced is accounted too. All blocks of a frame are in one leaf.
    pub(crate) fn live_blocks(&mut self, found: &FoundRecord) -> Result<u8, Missing> {
        let (first, count) = (found.header.block, found.header.blocks());
        if !Bounds::of(&self.superblock).exists(first, count) || !self.map.complete(NodeId::leaf_of(first))? {
            return Ok(0);
        }
        let mut live = 0;
        self.map.lookup(first, count as usize, |block, now| {
            live |= u8::from(now == found.entry) << (block - first);
        })?;
        Ok(live)
    }

    /// Appends what still lives to the cleaning head, and points the map to it.
    fn append_moved(&mut self, batch: &[FoundRecord], live: &[Live], window: &[u8], pass: &Pass) -> Step {
        if self.log.must_wait(Appender::Background) {
            return Step::Wait;
        }
        self.update_map_need();
        let claim = match pass.must_move {
            true => Claim::Rescue,
            // If free segments are few, everyone waits for the result of this.
            false if self.is_short() => Claim::Urgent,
            false => Claim::Ordinary,
        };
        for live in live {
            let found = &batch[live.found];
            match self.live_blocks(found) {
                Ok(now) if now == live.blocks || self.moves_overwritten(pass) => {}
                // Overwritten, or moved by this batch before it was interrupted.
                Ok(0) => continue,
                Ok(_) => return Step::Changed,
                Err(missing) if pass.corrupt_nodes.contains(&missing.id) => continue,
                Err(missing) => return Step::Missing(missing),
            }
            let may_move = match &live.fate {
                Fate::Move(header) => self.may_move(header, pass),
                Fate::Anew(anew) => anew.dictionaries.iter().all(|id| self.dictionaries.active.contains(id)),
                Fate::Stay => true,
            };
            if !may_move {
                return Step::Changed;
            }
            match &live.fate {
                Fate::Stay => {}
                Fate::Move(header) => {
                    if !self.append_to_cleaning(header, &window[found.payload.clone()], claim) {
                        return Step::NoSegment;
                    }
                }
                Fate::Anew(anew) => {
                    if !self.append_anew(anew, claim) {
                        return Step::NoSegment;
                    }
                }
            }
        }
        Step::Done
    }

    /// The planted mistake.
    fn moves_overwritten(&self, pass: &Pass) -> bool {
        pass.must_leave && self.planted.has(PlantedBug::OverwrittenMoved)
    }

    /// Returns whether a data record may move as it is.
    fn may_move(&self, header: &RecordHeader, pass: &Pass) -> bool {
        self.is_current(header) || pass.as_is && self.dictionaries.outgoing.contains(&header.extra)
    }

    /// Returns whether records that need these retired dictionaries and would only become larger may be
    /// moved. That keeps the dictionaries longer, so only if space is short: a record or two must not hold a
    /// segment then.
    fn may_keep_dictionaries(&self, ids: &[u16]) -> bool {
        !ids.is_empty() && self.is_short()
    }
}

fn node_of(found: &FoundRecord) -> NodeId {
    NodeId { level: found.header.extra as u8, index: found.header.block }
}

/// Returns whether blocks, one bit each, are neighbours.
fn is_run(blocks: u8) -> bool {
    let from_first = u16::from(blocks) >> blocks.trailing_zeros().min(7);
    (from_first + 1).is_power_of_two()
}

/// Returns all blocks of a data record, one bit each.
fn all_blocks(header: &RecordHeader) -> u8 {
    u8::MAX >> (8 - header.blocks())
}
