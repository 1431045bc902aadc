//! The state of a drive, behind one lock. Everything in here is quick and never waits.

use std::collections::BTreeSet;

use layout::geometry::OWN_FIRST_BLOCK;
use layout::{Counters, Entry, Features, Geometry, Head, NODE_ENTRIES, NodeId, ScrubMark, Superblock};
use space::LOG_RECORDS_MAX;

use crate::error::Error;
use crate::planted::{Planted, PlantedBug};
use crate::state::batch::{Batch, Item, Payload, Seen};
use crate::state::checkpoints::Checkpoints;
use crate::state::cleaning::Cleaning;
use crate::state::cut::InProgress;
use crate::state::dictionary_use::DictionaryUse;
use crate::state::emptying::Emptying;
use crate::state::full_backing::FullBacking;
use crate::state::give_back::GiveBack;
use crate::state::held::Held;
use crate::state::log::{Appender, Log, Room};
use crate::state::lost::Lost;
use crate::state::lull::Lull;
use crate::state::map::Map;
use crate::state::map_shrink::MapShrink;
use crate::state::mode::Mode;
use crate::state::node::Slot;
use crate::state::parity::ParityState;
use crate::state::rules::first_broken;
use crate::state::segments::{Claim, Segments};
use crate::state::syncs::Syncs;
use crate::state::table::Table;

/// Why a batch was not appended. Nothing was changed.
#[derive(Debug)]
pub(crate) enum Stall {
    /// Physical space is full of live data.
    Full,
    /// No free segment: cleaning or a checkpoint may make one.
    Space,
    /// Too much data waits for the medium, or too much of the map for a checkpoint.
    Busy,
    /// A block is not what the batch was made for and must be read again.
    Conflict,
    /// Another request holds a block.
    Held,
    /// No writes are possible at all.
    Refused(Error),
}

pub(crate) struct Core {
    pub(crate) superblock: Superblock,
    pub(crate) segments: Segments,
    /// Contents of the segment table in the places of checkpoints.
    pub(crate) table: Table,
    pub(crate) log: Log,
    pub(crate) map: Map,
    pub(crate) counters: Counters,
    /// Scrubs, as the next checkpoint records them.
    pub(crate) scrub: ScrubMark,
    pub(crate) mode: Mode,
    pub(crate) checkpoints: Checkpoints,
    /// The segment that is partly cleaned.
    pub(crate) cleaning: Option<Cleaning>,
    pub(crate) emptying: Emptying,
    pub(crate) parity: ParityState,
    pub(crate) map_shrink: MapShrink,
    pub(crate) lost: Lost,
    /// Newest pack when making the accounting exact was last tried without success.
    pub(crate) accounts_tried: Option<u64>,
    pub(crate) syncs: Syncs,
    /// Packs that the backing had no room for.
    pub(crate) full_backing: FullBacking,
    /// Packs that the medium did not take since the last checkpoint.
    pub(crate) failed_packs: u32,
    /// Highest update number that a superblock was written with, or may have been.
    pub(crate) updates_tried: u64,
    /// Places of copies of superblock and checkpoints that did not take what was last written to them. On a
    /// read-only drive: of those that were not found.
    pub(crate) copies_not_taken: BTreeSet<u64>,
    /// A superblock or checkpoint is being written. There are never two at a time.
    pub(crate) writing_aside: bool,
    /// The right to maintenance is taken.
    pub(crate) maintaining: bool,
    /// The run before left a memory on this machine that was not found: what it had acknowledged is not all
    /// here.
    pub(crate) misses_memory: bool,
    /// Live units promised to requests of several batches.
    pub(crate) reserved_units: u64,
    /// Blocks that only one request may change now.
    pub(crate) held: Held,
    pub(crate) ticks: u64,
    /// When hosts changed something, and since when they have changed little.
    pub(crate) lull: Lull,
    /// Nothing is left to be done by ticks or maintenance, until something changes. See `upkeep/rest.rs`.
    pub(crate) resting: bool,
    /// Data records written by the host's requests and by settling since the drive was opened.
    pub(crate) written: crate::state::tally::Tally,
    pub(crate) dictionaries: DictionaryUse,
    /// Where settling found nothing worth writing.
    pub(crate) vain: crate::state::vain::Vain,
    /// When dictionaries are trained next.
    pub(crate) schedule: crate::state::training_schedule::Schedule,
    /// Yield of cleaning.
    pub(crate) harvest: crate::state::harvest::Harvest,
    pub(crate) give_back: GiveBack,
    pub(crate) notes: Vec<String>,
    pub(crate) recovered: crate::state::recovered::Recovered,
    /// See [`OpenOptions::between_records`](crate::OpenOptions::between_records).
    pub(crate) between_records: Option<fn()>,
    pub(crate) planted: Planted,
}

impl Core {
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.superblock.logical_capacity_bytes / layout::BLOCK_BYTES as u64
    }

    /// Returns whether these are blocks that hosts see, or the drive's own.
    fn exists(&self, first: u64, count: u64) -> bool {
        first >= OWN_FIRST_BLOCK || first + count <= self.blocks()
    }

    /// Checks invariants that hold whenever nobody is inside the lock and that are cheap to check. Returns a
    /// broken one.
    pub(crate) fn broken_invariant(&self) -> Option<&'static str> {
        let sequence = self.log.sequence();
        let checkpoint = self.checkpoints.in_progress.is_some();
        let rules = [
            (self.map.is_frozen() == checkpoint, "the map has a cut without a checkpoint, or none with one"),
            (
                self.segments.is_frozen() == checkpoint,
                "the table has a cut without a checkpoint, or none with one",
            ),
            (self.checkpoints.cut_committed <= sequence, "a checkpoint covers a pack that was not sealed"),
            (self.syncs.flushing_up_to <= sequence, "a flush waits for a pack that was not sealed"),
        ];
        let broken = first_broken(&rules);
        broken
            .or_else(|| self.log.broken_invariant())
            .or_else(|| self.map.broken_invariant())
            .or_else(|| self.segments.broken_invariant())
    }

    /// Returns why nobody should wait any longer for packs to be written.
    pub(crate) fn gave_up_writing(&self) -> Option<Error> {
        if let Err(poisoned) = self.mode.trusted() {
            return Some(poisoned);
        }
        self.full_backing.is_given_up(self.ticks).then_some(Error::BackingFull)
    }

    /// Adds a note for the administrator, once.
    pub(crate) fn note(&mut self, what: String) {
        const NOTES_MAX: usize = 64;
        tracing::debug!("{what}");
        if self.notes.len() < NOTES_MAX && !self.notes.contains(&what) {
            self.notes.push(what);
        }
    }

    /// Accounts a data record that became live, for this number of its blocks.
    fn account_record(&mut self, first: u64, entry: Entry, blocks: u64) {
        self.segments.add(entry);
        self.map.live_blocks += blocks;
        match first >= OWN_FIRST_BLOCK {
            true => {
                self.map.own.blocks += blocks;
                self.map.own.units += u64::from(entry.units());
            }
            false => {
                self.map.mix.add_record(entry);
                self.map.mix.add_blocks(entry, blocks);
            }
        }
    }

    /// Accounts blocks of one leaf, in rising order, whose entries were replaced. A record occupies its whole
    /// length until its last block dies; the leaf shows whether others live. The counts come from a
    /// checkpoint, whose checksum proves nothing: they may be wrong.
    pub(crate) fn release(&mut self, dead: &[(u64, Entry)]) {
        debug_assert!(
            dead.is_sorted_by(|(a, _), (b, _)| a < b),
            "blocks of a leaf die in rising order, once"
        );
        for (i, (block, entry)) in dead.iter().enumerate() {
            if entry.is_unmapped() {
                continue;
            }
            if !entry.is_record() {
                self.map.fill_blocks = self.map.fill_blocks.saturating_sub(1);
                self.map.own.fills = self.map.own.fills.saturating_sub(u64::from(*block >= OWN_FIRST_BLOCK));
                continue;
            }
            if self.watches_moves() {
                self.log.dies(*entry);
            }
            self.map.live_blocks = self.map.live_blocks.saturating_sub(1);
            let is_own = *block >= OWN_FIRST_BLOCK;
            match is_own {
                true => self.map.own.blocks = self.map.own.blocks.saturating_sub(1),
                false => self.map.mix.remove_block(*entry),
            }
            if self.planted.has(PlantedBug::ZeroShareFrame) {
                self.segments.release_share(*entry, entry.share_units(*block));
                continue;
            }
            if !entry.is_frame() {
                self.segments.release(*entry, 0);
                self.forget_record(*entry, is_own);
                continue;
            }
            let first = entry.first_block(*block);
            let mut before = dead[..i].iter().rev().take_while(|(other, _)| *other >= first);
            if before.any(|(_, other)| other == entry) {
                // Handled at the first of them.
                continue;
            }
            let of_frame = dead[i..].iter().take_while(|(other, _)| *other < first + entry.blocks());
            let shares =
                of_frame.filter(|(_, other)| other == entry).map(|(block, _)| entry.share_units(*block));
            let shares: u32 = shares.sum();
            if self.map.has_any(first, entry) {
                self.segments.add_repackable(*entry, shares);
            } else {
                self.segments.release(*entry, entry.units() - shares);
                self.forget_record(*entry, is_own);
            }
        }
    }

    fn forget_record(&mut self, entry: Entry, is_own: bool) {
        match is_own {
            true => self.map.own.release(entry),
            false => self.map.mix.remove_record(entry),
        }
    }

    /// Returns whether the log must know of records that die: see [`Log::dies`].
    fn watches_moves(&self) -> bool {
        !self.planted.has(PlantedBug::ApplyStaleMove)
    }

    /// Points a block to an entry without a record.
    fn publish(&mut self, block: u64, entry: Entry) {
        let old = self.map.set(block, entry);
        if !entry.is_unmapped() {
            self.map.fill_blocks += 1;
            self.map.own.fills += u64::from(block >= OWN_FIRST_BLOCK);
        }
        self.release(&[(block, old)]);
    }

    /// Points the blocks of a data record to it, except those that it leaves out (`left_out`: one bit per
    /// block).
    pub(crate) fn publish_record(&mut self, first: u64, entry: Entry, left_out: u8) {
        debug_assert!(self.exists(first, entry.blocks()), "{entry:?} of block {first} is outside the drive");
        self.account_record(first, entry, entry.blocks() - u64::from(left_out.count_ones()));
        let mut dead = [(0, Entry::UNMAPPED); Entry::FRAME_MAX_BLOCKS];
        let mut count = 0;
        for block in first..first + entry.blocks() {
            if left_out >> (block - first) & 1 == 0 {
                dead[count] = (block, self.map.set(block, entry));
                count += 1;
            }
        }
        self.release(&dead[..count]);
    }

    /// Points a range of blocks to one entry without a record.
    pub(crate) fn publish_range(&mut self, block: u64, count: u64, entry: Entry) {
        let end = block + count;
        let mut at = block;
        while at < end {
            let leaf = NodeId::leaf_of(at);
            let leaf_end = (leaf.index + 1) * NODE_ENTRIES as u64;
            let until = end.min(leaf_end);
            let whole = until - at == NODE_ENTRIES as u64;
            if entry.is_unmapped() && self.map.is_absent(leaf) {
                // Nothing to unmap.
            } else if whole {
                let mut dead = Vec::new();
                let first = leaf.index * NODE_ENTRIES as u64;
                self.map.clear_leaf(leaf, |slot, e| dead.push((first + slot, e)));
                self.release(&dead);
                if !entry.is_unmapped() {
                    self.map.fill_leaf(leaf, entry);
                    self.map.fill_blocks += NODE_ENTRIES as u64;
                }
            } else {
                (at..until).for_each(|b| self.publish(b, entry));
            }
            at = until;
        }
    }

    /// Appends a batch to the host head and publishes it: all or nothing, also after a crash. `urgent` is how
    /// far operations that free space may use the stock.
    pub(crate) fn append_batch(&mut self, batch: &Batch, source: &[u8], urgent: Claim) -> Result<(), Stall> {
        self.mode.writable().map_err(Stall::Refused)?;
        if self.full_backing.is_full() {
            return Err(Stall::Refused(Error::BackingFull));
        }
        if self.log.must_wait(Appender::Host) || self.must_checkpoint() {
            return Err(Stall::Busy);
        }
        let unseen = self.planted.has(PlantedBug::EdgeUnseen) || self.planted.has(PlantedBug::ComparedEarly);
        if !unseen && !self.is_as_expected(batch) {
            return Err(Stall::Conflict);
        }
        // Retired meanwhile. To forget a dictionary, the drive must know that nothing new needs it.
        if !batch.dictionaries.iter().all(|id| self.dictionaries.may_be_needed(*id)) {
            return Err(Stall::Conflict);
        }
        if batch.items.is_empty() {
            return Ok(());
        }
        let claim = if batch.frees() { urgent } else { Claim::Ordinary };
        if claim == Claim::Ordinary && !batch.reserved && !self.admits(batch) {
            return Err(Stall::Full);
        }
        self.update_map_need();
        if !self.segments.has_stock(claim) {
            return Err(Stall::Space);
        }
        let room = self.log.room_for_batch(batch.log_bytes, claim, &mut self.segments);
        let mut room = room.map_err(|_| Stall::Space)?;
        let (mut records, mut bytes) = (0, 0);
        for (at, item) in batch.items.iter().enumerate() {
            if let Some(between_records) = self.between_records.filter(|_| at > 0) {
                between_records();
            }
            let len = item.record_len();
            if let Room::Part(most) = room
                && bytes + len > most
            {
                self.log.go_on(records, batch.log_bytes - bytes, claim, &mut self.segments);
                room = Room::Whole;
                self.append_item(batch, item, source);
                // Immediately: a pack in between would hide the first part from roll-forward.
                (records, bytes) = (u32::MAX, bytes + len);
                continue;
            }
            self.append_item(batch, item, source);
            bytes += len;
            records = records.saturating_add(1);
        }
        debug_assert_eq!(bytes, batch.log_bytes, "a batch takes the room that was made for it");
        self.checkpoints.records_since += batch.items.len() as u64;
        match records {
            // Divided.
            u32::MAX => self.log.seal(Head::Host, &mut self.segments),
            _ => self.log.seal_if_full(Head::Host, &mut self.segments),
        }
        let blocks = batch.items.iter().map(Item::blocks);
        self.lull.note(blocks.map(|(first, end)| end - first).sum(), self.ticks);
        if self.map.over_budget() {
            self.map.evict();
        }
        Ok(())
    }

    fn append_item(&mut self, batch: &Batch, item: &Item, source: &[u8]) {
        match item {
            Item::Data { header, payload } => {
                let payload = match payload {
                    Payload::Scratch(range) => &batch.scratch[range.clone()],
                    Payload::Source(range) => &source[range.clone()],
                };
                let entry = self.log.append(Head::Host, header, payload);
                self.written.add(header, batch.level);
                self.vain.changed(header.block, header.block + header.blocks());
                self.publish_record(header.block, entry, header.left_out);
                self.note_retired(header);
            }
            Item::Range { header, payload, count, entry } => {
                if entry.is_unmapped() && self.planted.has(PlantedBug::DropTrim) {
                    self.publish_range(header.block, *count, *entry);
                    return;
                }
                debug_assert!(self.exists(header.block, *count), "{header:?} is outside the drive");
                self.log.append(Head::Host, header, payload);
                self.publish_range(header.block, *count, *entry);
            }
        }
    }

    /// Returns whether a batch has to wait for a request that holds a block.
    pub(crate) fn is_held(&self, batch: &Batch) -> bool {
        !self.planted.has(PlantedBug::HoldIgnored) && self.changes_held(batch)
    }

    /// Returns whether a batch changes a block that a request holds.
    pub(crate) fn changes_held(&self, batch: &Batch) -> bool {
        let changes = |item: &Item, block: u64| {
            let (first, end) = item.blocks();
            (first..end).contains(&block) && !item.leaves_out(block)
        };
        let mut held = self.held.blocks().iter();
        held.any(|block| batch.items.iter().any(|item| changes(item, *block)))
    }

    /// Returns whether all blocks that a batch merges are as they were.
    pub(crate) fn is_as_expected(&self, batch: &Batch) -> bool {
        batch.expected.iter().all(|seen| self.is_as_seen(seen))
    }

    /// Returns whether a block still has the record that it was read from: the same entry, in the same
    /// filling of its segment. An equal entry alone may be another record that was written to the same place.
    pub(crate) fn is_as_seen(&self, seen: &Seen) -> bool {
        let same = self.map.peek(seen.block) == Slot::Known(seen.entry);
        let asks_generation = !self.planted.has(PlantedBug::DroppedPin);
        same && (!asks_generation || self.segments.generation_of(seen.entry) == seen.generation)
    }

    /// Notes whether a copy of the superblock or a checkpoint was written.
    pub(crate) fn note_copy(&mut self, offset: u64, is_taken: bool) {
        match is_taken {
            true => self.copies_not_taken.remove(&offset),
            false => self.copies_not_taken.insert(offset),
        };
    }

    /// Returns whether changes to the map must wait for a checkpoint.
    pub(crate) fn map_pressure(&self) -> bool {
        let budget = self.map.budget_bytes();
        self.map.memory_bytes() > budget + budget / 4 && self.map.dirty_bytes() > budget / 2
    }

    /// Returns whether host writes must wait for a checkpoint: the changes of the map have outgrown the
    /// cache, or the log has outgrown what recovery should read.
    pub(crate) fn must_checkpoint(&self) -> bool {
        self.map_pressure()
            || self.log.since_checkpoint_bytes() > self.checkpoints.interval_bytes * 4
            || self.checkpoints.records_since > LOG_RECORDS_MAX * 2
    }

    /// Updates the number of segments that the changed map may take.
    pub(crate) fn update_map_need(&mut self) {
        let written = self.map_bytes();
        let unwritten = self.map.write_estimate_bytes(written);
        // After a crash, an opening would have to write what the checkpoint in progress has written.
        let cut = self.checkpoints.in_progress.as_ref().map_or(0, InProgress::estimate_bytes);
        let upper = self.map.upper_estimate_bytes(written);
        self.segments.set_map_need(unwritten, unwritten + cut, upper);
    }

    /// Returns whether the changed part of the map would take the last free segments.
    pub(crate) fn lacks_room_for_map(&mut self) -> bool {
        self.update_map_need();
        let need = self.segments.map_need();
        need > 0 && self.segments.free_count() <= need
    }

    /// Returns whether freed space is discarded in the backing.
    pub(crate) fn may_discard(&self) -> bool {
        !self.give_back.is_unsupported && self.superblock.features.compatible & Features::KEEP_ALLOCATED == 0
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.lull.is_idle(self.ticks)
    }
}
