//! The state of a drive, behind one lock: everything in here is quick and never waits.

use layout::geometry::OWN_FIRST_BLOCK;
use layout::{Counters, Entry, Geometry, Head, NODE_ENTRIES, NodeId, Superblock, UNIT_BYTES};

use crate::batch::{Batch, Item, Payload};
use crate::checkpoint::InProgress;
use crate::clean::Cleaning;
use crate::error::Error;
use crate::log::Log;
use crate::maintain::MapWish;
use crate::map::Map;
use crate::node::Slot;
use crate::segments::{Claim, Segments};

/// Sealed packs may wait for the medium up to this much; then writers wait.
pub(crate) const UNWRITTEN_MAX_BYTES: u64 = 32 << 20;

/// Why a batch was not appended. Nothing was changed.
#[derive(Debug)]
pub(crate) enum Stall {
    /// Physical space is full of live data.
    Full,
    /// No free segment: cleaning or a checkpoint may make one.
    Space,
    /// Too much waits for the medium, or too much of the map for a checkpoint.
    Busy,
    /// A block is not what the batch was made for: read it again.
    Conflict,
    /// No writes at all.
    Refused(Error),
}

pub(crate) struct Core {
    pub(crate) superblock: Superblock,
    pub(crate) segments: Segments,
    pub(crate) log: Log,
    pub(crate) map: Map,
    pub(crate) counters: Counters,
    pub(crate) read_only: Option<String>,
    /// Set by a failed write or sync: what the medium holds is unknowable from then on.
    pub(crate) poisoned: Option<String>,
    pub(crate) closed: bool,
    pub(crate) in_progress: Option<InProgress>,
    /// The segment that is half cleaned.
    pub(crate) cleaning: Option<Cleaning>,
    pub(crate) map_wish: MapWish,
    /// A sync is under way: never two at a time.
    pub(crate) syncing: bool,
    /// A superblock or checkpoint is being written: never two at a time.
    pub(crate) writing_aside: bool,
    /// Syncs that have ended.
    pub(crate) syncs_count: u64,
    /// Somebody does maintenance.
    pub(crate) maintaining: bool,
    /// Live units promised to requests of several batches.
    pub(crate) reserved_units: u64,
    pub(crate) checkpoint_bytes: u64,
    /// Records appended since the last checkpoint's cut: bounds what roll-forward holds in memory.
    pub(crate) records_since_checkpoint: u64,
    pub(crate) ticks: u64,
    pub(crate) last_host_tick: u64,
    /// Data records written by the host's requests and by settling since the drive was opened.
    pub(crate) written: crate::written::Tally,
    /// The dictionaries that new records may be compressed with.
    pub(crate) dictionaries: Vec<u16>,
    /// When dictionaries are trained next.
    pub(crate) schedule: crate::train::Schedule,
    /// Training found dictionaries worth keeping, and no place for them.
    pub(crate) dictionary_places_wanted: bool,
    /// Places for dictionaries are being made.
    pub(crate) freeing: Option<crate::again::Freeing>,
    /// Segments (with their generations) that heads were in when the dictionary before was retired.
    pub(crate) open_at_retirement: Vec<layout::NextSegment>,
    /// A discard is under way.
    pub(crate) discarding: bool,
    /// The backing cannot discard.
    pub(crate) discard_unsupported: bool,
    pub(crate) notes: Vec<String>,
    pub(crate) recovered: crate::status::Recovered,
    #[cfg(feature = "planted-bugs")]
    pub(crate) planted_bug: Option<crate::PlantedBug>,
}

impl Core {
    pub(crate) fn geometry(&self) -> &Geometry {
        &self.superblock.geometry
    }

    pub(crate) fn blocks(&self) -> u64 {
        self.superblock.logical_capacity_bytes / layout::BLOCK_BYTES as u64
    }

    #[cfg(feature = "planted-bugs")]
    pub(crate) fn has_bug(&self, bug: crate::PlantedBug) -> bool {
        self.planted_bug == Some(bug)
    }

    /// Refuses where the drive takes no changes.
    pub(crate) fn writable(&self) -> Result<(), Error> {
        if let Some(why) = &self.poisoned {
            return Err(Error::ReadOnly(why.clone()));
        }
        if let Some(why) = &self.read_only {
            return Err(Error::ReadOnly(why.clone()));
        }
        if self.closed {
            return Err(Error::ReadOnly("the drive is closed".into()));
        }
        Ok(())
    }

    /// No write is trusted from now on.
    pub(crate) fn poison(&mut self, why: String) {
        self.poisoned.get_or_insert(why);
    }

    /// A record or fill became live: of a frame one block's part, which the block's number tells.
    pub(crate) fn account(&mut self, block: u64, entry: Entry) {
        if entry.is_record() {
            self.segments.add(entry, entry.share_units(block));
            self.map.live_blocks += 1;
            match block >= OWN_FIRST_BLOCK {
                true => self.map.own.0 += 1,
                false => self.map.mix.add(block, entry),
            }
        } else if !entry.is_unmapped() {
            self.map.fill_blocks += 1;
            self.map.own.1 += u64::from(block >= OWN_FIRST_BLOCK);
        }
    }

    /// A record or fill died; see [`Core::account`]. The counts come from a checkpoint, whose checksum proves nothing: they
    /// may be wrong.
    pub(crate) fn release(&mut self, block: u64, entry: Entry) {
        if entry.is_record() {
            #[cfg(feature = "planted-bugs")]
            let watches = !self.has_bug(crate::PlantedBug::ApplyStaleMove);
            #[cfg(not(feature = "planted-bugs"))]
            let watches = true;
            if watches {
                self.log.dies(entry);
            }
            self.segments.release(entry, entry.share_units(block));
            self.map.live_blocks = self.map.live_blocks.saturating_sub(1);
            match block >= OWN_FIRST_BLOCK {
                true => self.map.own.0 = self.map.own.0.saturating_sub(1),
                false => self.map.mix.remove(block, entry),
            }
        } else if !entry.is_unmapped() {
            self.map.fill_blocks = self.map.fill_blocks.saturating_sub(1);
            self.map.own.1 = self.map.own.1.saturating_sub(u64::from(block >= OWN_FIRST_BLOCK));
        }
    }

    /// Points a block to a new entry.
    pub(crate) fn publish(&mut self, block: u64, entry: Entry) {
        let old = self.map.set(block, entry);
        self.account(block, entry);
        self.release(block, old);
    }

    /// Points all blocks of a data record to it.
    pub(crate) fn publish_record(&mut self, first: u64, entry: Entry) {
        (first..first + entry.blocks()).for_each(|block| self.publish(block, entry));
    }

    /// Points a range of blocks to one entry that is no record.
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
                self.map.clear_leaf(leaf, |slot, e| dead.push((slot, e)));
                let first = leaf.index * NODE_ENTRIES as u64;
                dead.into_iter().for_each(|(slot, e)| self.release(first + slot, e));
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

    /// Appends a batch to the host head, all in one pack, and publishes it: the whole of it or nothing.
    pub(crate) fn append_batch(&mut self, batch: &Batch, source: &[u8]) -> Result<(), Stall> {
        self.writable().map_err(Stall::Refused)?;
        if self.log.unwritten_bytes() > UNWRITTEN_MAX_BYTES || self.must_checkpoint() {
            return Err(Stall::Busy);
        }
        for (block, entry) in &batch.expected {
            if self.map.peek(*block) != Slot::Known(*entry) {
                return Err(Stall::Conflict);
            }
        }
        // Retired meanwhile: who forgets a dictionary must know that nothing new needs it.
        if !batch.dictionaries.iter().all(|id| self.dictionaries.contains(id)) {
            return Err(Stall::Conflict);
        }
        let claim = if batch.frees() { Claim::Urgent } else { Claim::Ordinary };
        if claim == Claim::Ordinary
            && !batch.reserved
            && !self.fits(batch.data_units(), || self.known_freed(batch))
        {
            return Err(Stall::Full);
        }
        self.segments.set_map_need(self.map.write_estimate_bytes());
        if !self.segments.has_stock(claim) {
            return Err(Stall::Space);
        }
        self.log.room(Head::Host, batch.log_bytes, claim, &mut self.segments).map_err(|_| Stall::Space)?;
        for item in &batch.items {
            match item {
                Item::Data { header, payload } => {
                    let payload = match payload {
                        Payload::Scratch(range) => &batch.scratch[range.clone()],
                        Payload::Source(range) => &source[range.clone()],
                    };
                    let entry = self.log.append(Head::Host, header, payload);
                    self.written.add(header, batch.level);
                    self.publish_record(header.block, entry);
                }
                Item::Range { header, payload, count, entry } => {
                    #[cfg(feature = "planted-bugs")]
                    if entry.is_unmapped() && self.has_bug(crate::PlantedBug::DropTrim) {
                        self.publish_range(header.block, *count, *entry);
                        continue;
                    }
                    self.log.append(Head::Host, header, payload);
                    self.publish_range(header.block, *count, *entry);
                }
            }
        }
        self.records_since_checkpoint += batch.items.len() as u64;
        self.log.seal_if_full(Head::Host, &mut self.segments);
        self.last_host_tick = self.ticks;
        if self.map.over_budget() {
            self.map.evict();
        }
        Ok(())
    }

    /// Whether so many more live units fit, given what they replace. What the changed part of the map will take counts
    /// as taken (a checkpoint makes that exact), and so does what others have reserved.
    fn fits(&self, units: u64, freed: impl FnOnce() -> u64) -> bool {
        let dirty = self.map.dirty_bytes() / UNIT_BYTES as u64;
        let taken = self.segments.live_units() + dirty + self.reserved_units + units;
        let limit = self.segments.limit_units();
        taken <= limit || taken <= limit + freed()
    }

    /// Reserves live units for a request of several batches, so that it is refused whole or not at all.
    pub(crate) fn reserve(&mut self, units: u64, batches: &[Batch]) -> bool {
        let fits = self.fits(units, || batches.iter().map(|batch| self.known_freed(batch)).sum());
        if fits {
            self.reserved_units += units;
        }
        fits
    }

    /// Units that a batch's blocks occupy now, as far as is known without the medium.
    fn known_freed(&self, batch: &Batch) -> u64 {
        let units = |block| match self.map.peek(block) {
            Slot::Known(entry) if entry.is_record() => u64::from(entry.share_units(block)),
            _ => 0,
        };
        let of_item = |item: &Item| match item {
            Item::Data { header, .. } => {
                let blocks = header.block..header.block + header.blocks();
                blocks.map(units).sum::<u64>()
            }
            Item::Range { header, count, .. } => {
                (header.block..header.block + (*count).min(1 << 16)).map(units).sum()
            }
        };
        batch.items.iter().map(of_item).sum()
    }

    /// Whether changes to the map must wait for a checkpoint.
    pub(crate) fn map_pressure(&self) -> bool {
        let budget = self.map.budget_bytes();
        self.map.memory_bytes() > budget + budget / 4 && self.map.dirty_bytes() > budget / 2
    }

    pub(crate) fn is_idle(&self) -> bool {
        const IDLE_TICKS: u64 = 50;
        self.ticks - self.last_host_tick > IDLE_TICKS
    }
}
