//! Settling: cold data is recompressed as well as the drive can, with stronger settings, and neighbours
//! together however they were written.

use std::sync::Arc;

use codec::Policy;
use layout::{Entry, Head, LEAF_LEVEL, NODE_ENTRIES, NodeId};
use media::Media;

use crate::error::Error;
use crate::planted::PlantedBug;
use crate::shared::{Drive, Shared, yield_now};
use crate::state::batch::{Batch, Item, Payload};
use crate::state::core::Core;
use crate::state::log::Appender;
use crate::state::map::Missing;
use crate::state::pins::Pin;
use crate::state::segments::{Claim, SegmentState};
use crate::state::vain::Circumstances;
use crate::upkeep::make_settled::{GROUP_BLOCKS, Made, Pick, Worth, occupied_units};

/// Leaves examined in one step if there is nothing to do: one in each critical section, and some that are
/// empty.
const LEAVES_A_STEP: usize = 16;
/// Empty leaves skipped in one critical section.
const ABSENT_A_LOOK: usize = 64;
/// Blocks read and compressed in one step. It is also the most reads at the same time, for which a request
/// may have to wait.
const BLOCKS_A_STEP: u64 = 32;

/// Records that a step may settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Everything that is not settled.
    All,
    /// The same, but only groups of blocks that become smaller by one byte for at most
    /// [`SETTLE_PRICE_MAX`](crate::SETTLE_PRICE_MAX) bytes written, and if a number is given, only data in
    /// segments that were not written for this number of packs. Where nothing is worthwhile, it looks again
    /// only when a host has written there.
    Worthwhile(Option<u64>),
    /// Data settled before the dictionaries in use, if it becomes smaller by 3 % now. See
    /// [`Drive::gain_of_settling_again`].
    Again,
}

/// Result of a step of settling.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettleStep {
    /// First block of the next step; `None`: the end of the drive was reached.
    pub next_block: Option<u64>,
    /// Blocks recompressed.
    pub blocks_count: u64,
    /// Their size before, in bytes of live space.
    pub before_bytes: u64,
    /// Their size now, in bytes of live space.
    pub after_bytes: u64,
    /// There is no room to write for now: free segments are few.
    pub no_room: bool,
}

/// Result of the search for work.
enum Looked {
    /// Consecutive blocks to settle within a leaf, with their entries. Their segments are pinned, to be read.
    Work(u64, Vec<Entry>, Vec<Pin>),
    /// Nothing up to this block.
    Nothing(u64),
    Missing(Missing),
}

impl<M: Media> Drive<M> {
    /// Recompresses some data that is not settled, from `block` on, with the best settings. A pass over the
    /// drive is a sequence of steps from 0 on, each from where the previous one ended, until there is no next
    /// block.
    ///
    /// # Errors
    ///
    /// Errors of the medium. The drive is as it was, except for what earlier steps did.
    pub async fn settle_step(&self, block: u64, which: Settle) -> Result<SettleStep, Error> {
        let pick = match which {
            Settle::All => Pick::Unsettled(None, Worth::Any),
            Settle::Worthwhile(packs) => Pick::Unsettled(packs, Worth::Price),
            Settle::Again => match self.0.dictionaries.catalog().adopted_at {
                0 => return Ok(SettleStep::default()),
                adopted_at => Pick::Again(adopted_at),
            },
        };
        self.0.core().mode.writable()?;
        // The recipes ask for it.
        if self.0.codec() != Policy::None && !self.0.structure.may() && self.0.owes_structure() {
            let _right = self.0.maintenance().await;
            self.0.record_structure().await?;
        }
        self.0.settle_step(block, &pick).await
    }
}

impl<M: Media> Shared<M> {
    /// See [`Drive::settle_step`].
    pub(crate) async fn settle_step(self: &Arc<Self>, block: u64, pick: &Pick) -> Result<SettleStep, Error> {
        let shared = self;
        shared.core().mode.writable()?;
        if shared.codec() == Policy::None && !matches!(pick, Pick::Needing(..)) {
            return Ok(SettleStep::default());
        }
        if !shared.core().segments.host_may_take() {
            return Ok(SettleStep { next_block: Some(block), no_room: true, ..SettleStep::default() });
        }
        let (mut block, mut looks) = (block, 0);
        let (first, expected, pins) = loop {
            let looked = shared.core().look_for_unsettled(block, pick);
            match looked {
                Looked::Work(first, expected, pins) => break (first, expected, pins),
                Looked::Nothing(next) => {
                    looks += 1;
                    let next_block = shared.next_block(next);
                    if looks == LEAVES_A_STEP || next_block.is_none() {
                        return Ok(SettleStep { next_block, ..SettleStep::default() });
                    }
                    block = next;
                    yield_now().await;
                }
                Looked::Missing(missing) => {
                    if let Err(error) = shared.load(missing).await {
                        // What it maps is not available. Continues behind it.
                        if !matches!(error, Error::Corrupt(_)) || matches!(pick, Pick::Needing(..)) {
                            return Err(error);
                        }
                        let span = (NODE_ENTRIES as u64) << (9 * u32::from(missing.id.level));
                        let next_block = shared.next_block((missing.id.index + 1) * span);
                        return Ok(SettleStep { next_block, ..SettleStep::default() });
                    }
                }
            }
        };
        let count = expected.len() as u64;
        let (step, made) = shared.settle_found(first, expected, pins, pick).await?;
        if matches!(pick, Pick::Unsettled(_, Worth::Price)) {
            shared.core().vain.looked(first, first + count, !made);
        }
        Ok(step)
    }

    /// Recompresses the blocks from `first` on that had the `expected` entries (others are left out), unless
    /// they change meanwhile. Their segments are pinned. Returns the step, which is to begin with `first`
    /// again if it was interrupted, and whether anything was to be replaced. The pins are held until
    /// everything is read. After that, a block is unchanged if it has the same entry, in the same filling of
    /// the segment.
    pub(crate) async fn settle_found(
        self: &Arc<Self>,
        first: u64,
        expected: Vec<Entry>,
        pins: Vec<Pin>,
        pick: &Pick,
    ) -> Result<(SettleStep, bool), Error> {
        let shared = self;
        let generations = shared.core().generations_of(&expected);
        let end = first + expected.len() as u64;
        let mut step = SettleStep { next_block: shared.next_block(end), ..SettleStep::default() };
        let Made { batch, levels, .. } = shared.make_settled(first, &expected, pins, pick).await?;
        let mut at = 0;
        while at < batch.items.len() {
            let stop = shared.core().append_settled(
                &batch,
                &levels,
                &mut at,
                (first, &expected, &generations),
                pick,
                &mut step,
            );
            match stop {
                Stop::Done => continue,
                Stop::Missing(missing) => match shared.load(missing).await {
                    Ok(()) => continue,
                    Err(error) if matches!(pick, Pick::Needing(..)) => return Err(error),
                    // What it maps is not available. Continues behind it.
                    Err(Error::Corrupt(_)) => break,
                    Err(error) => return Err(error),
                },
                Stop::NoRoom => step.no_room = true,
                Stop::Changed => {}
                Stop::Wait => shared.relieve().await?,
            }
            step.next_block = Some(first);
            break;
        }
        // Not returned to the pool: it was allocated on another thread, and is larger than those that
        // requests need.
        Ok((step, !batch.items.is_empty()))
    }
}

/// Result of appending.
enum Stop {
    /// As far as possible in one critical section.
    Done,
    NoRoom,
    /// Must be examined again.
    Changed,
    /// Must be loaded first.
    Missing(Missing),
    Wait,
}

impl<M: Media> Shared<M> {
    fn next_block(&self, block: u64) -> Option<u64> {
        Some(block).filter(|block| *block < self.core().blocks())
    }
}

impl Core {
    /// Returns the next groups of blocks in the leaf of which some can be settled. If half of a group is not
    /// settled, its settled blocks are included too: it becomes one frame, if nothing in it prevents that.
    fn look_for_unsettled(&mut self, block: u64, pick: &Pick) -> Looked {
        let blocks = self.blocks();
        let group = GROUP_BLOCKS;
        let mut at = block / group * group;
        let weighs = matches!(pick, Pick::Unsettled(_, Worth::Price));
        if weighs {
            let (has_room, dictionaries) = (self.has_room(), self.dictionaries.active.clone());
            self.vain.review(Circumstances { blocks, has_room, dictionaries });
        }
        for _ in 0..ABSENT_A_LOOK {
            if at >= blocks {
                break;
            }
            if let Some(end) = self.vain.end_of_part(at).filter(|_| weighs) {
                at = end;
                continue;
            }
            let leaf = NodeId { level: LEAF_LEVEL, ..NodeId::leaf_of(at) };
            let leaf_end = blocks.min((leaf.index + 1) * NODE_ENTRIES as u64);
            if self.map.is_absent(leaf) {
                if weighs {
                    self.vain.looked(at, leaf_end, true);
                }
                at = leaf_end;
                continue;
            }
            let mut entries = Vec::with_capacity((leaf_end - at) as usize);
            let looked = self.map.lookup(at, (leaf_end - at) as usize, |_, entry| entries.push(entry));
            if let Err(missing) = looked {
                return Looked::Missing(missing);
            }
            for (first, some) in
                (at..).step_by(BLOCKS_A_STEP as usize).zip(entries.chunks_mut(BLOCKS_A_STEP as usize))
            {
                let mut waits = false;
                some.chunks_mut(group as usize).for_each(|group| waits |= self.pick(group, pick));
                let pins = self.pins_of(some);
                if pins.is_empty() {
                    if weighs {
                        self.vain.looked(first, first + some.len() as u64, !waits);
                    }
                    continue;
                }
                return Looked::Work(first, some.to_vec(), pins);
            }
            return Looked::Nothing(leaf_end);
        }
        Looked::Nothing(at)
    }

    /// Returns the fillings of the segments that blocks' records are in.
    pub(crate) fn generations_of(&self, entries: &[Entry]) -> Vec<u32> {
        entries.iter().map(|entry| self.segments.generation_of(*entry)).collect()
    }

    /// Pins the segments of records.
    pub(crate) fn pins_of(&mut self, entries: &[Entry]) -> Vec<Pin> {
        let records = entries.iter().filter(|entry| entry.is_record());
        let mut segments: Vec<u32> = records.map(|entry| self.segments.of(*entry)).collect();
        segments.sort_unstable();
        segments.dedup();
        segments.into_iter().map(|segment| self.segments.pin(segment)).collect()
    }

    /// Keeps only those of a group's entries that are to be settled. Returns whether others have to wait.
    pub(crate) fn pick(&self, group: &mut [Entry], pick: &Pick) -> bool {
        let may = |entry: &Entry| {
            let tries_raw = matches!(pick, Pick::Unsettled(..)) && entry.is_put_off();
            if !entry.is_record() || entry.is_raw() && !tries_raw {
                return false;
            }
            let segment = self.segments.get(self.segments.of(*entry));
            let old = match pick {
                Pick::Unsettled(None, _) | Pick::Hot => true,
                Pick::Unsettled(Some(packs), _) => {
                    segment.state() == SegmentState::Sealed
                        && segment.last_sequence() + packs <= self.log.sequence()
                }
                Pick::Again(until) | Pick::Needing(until, _) => segment.last_sequence() <= *until,
            };
            old && self.log.in_memory(*entry).is_none()
        };
        // Blocks that were cut for who reads them at random, when space is needed.
        let is_cut = |entry: &Entry| entry.is_settled() && !entry.is_frame();
        let joins = matches!(pick, Pick::Unsettled(..))
            && !self.has_room()
            && group.windows(2).any(|pair| pair.iter().all(is_cut));
        // These decide. Of the others, neighbours are included.
        let wants = |entry: &Entry| match pick {
            Pick::Unsettled(..) => !entry.is_settled() || joins && is_cut(entry),
            Pick::Again(_) => entry.is_settled(),
            Pick::Needing(..) => true,
            Pick::Hot => entry.is_frame(),
        };
        let records = group.iter().filter(|entry| entry.is_record()).count();
        let wanted = group.iter().filter(|entry| wants(entry) && may(entry)).count();
        let waits =
            group.iter().any(|entry| entry.is_record() && !entry.is_raw() && wants(entry) && !may(entry));
        let whole = wanted > 0 && wanted * 2 >= records && !matches!(pick, Pick::Hot);
        for entry in group.iter_mut() {
            if wanted == 0 || !may(entry) || !wants(entry) && !whole {
                *entry = Entry::UNMAPPED;
            }
        }
        waits
    }

    /// Appends recompressed items from `at` on, as long as their blocks are unchanged: the blocks from
    /// `first` on had the `expected` entries.
    fn append_settled(
        &mut self,
        batch: &Batch,
        levels: &[(usize, Option<i8>)],
        at: &mut usize,
        (first, expected, generations): (u64, &[Entry], &[u32]),
        pick: &Pick,
        step: &mut SettleStep,
    ) -> Stop {
        // Each is copied, at most 32 KiB.
        const ITEMS_A_STEP: usize = 4;
        // Blocks of one group, which are not to be left half cut.
        const BLOCKS_A_STEP: usize = GROUP_BLOCKS as usize;
        if self.mode.writable().is_err() {
            return Stop::NoRoom;
        }
        if self.log.must_wait(Appender::Background) || self.must_checkpoint() {
            return Stop::Wait;
        }
        self.update_map_need();
        let most = if matches!(pick, Pick::Hot) { BLOCKS_A_STEP } else { ITEMS_A_STEP };
        let until = batch.items.len().min(*at + most);
        while *at < until {
            let item = &batch.items[*at];
            // What was a record is no fill, and comes from no host's buffer.
            let Item::Data { header, payload: Payload::Scratch(range) } = item else {
                *at += 1;
                continue;
            };
            let place = (header.block - first) as usize;
            let before = &expected[place..place + header.blocks() as usize];
            if !self.is_current(header) {
                // The dictionaries changed meanwhile. It must be made anew.
                return Stop::Changed;
            }
            let mut now = Vec::with_capacity(before.len());
            if let Err(missing) = self.map.lookup(header.block, before.len(), |_, entry| now.push(entry)) {
                return Stop::Missing(missing);
            }
            let is_trusted = matches!(pick, Pick::Hot) && self.planted.has(PlantedBug::CutUnseen);
            let same = now == before && self.generations_of(&now) == generations[place..place + before.len()];
            if !same && !is_trusted {
                if matches!(pick, Pick::Needing(..)) && !self.planted.has(PlantedBug::OverwrittenPassedOver) {
                    // Its other blocks need what they needed: a search for that must not miss them.
                    return Stop::Changed;
                }
                *at += 1;
                continue;
            }
            if !self.segments.host_may_take() && !self.log.has_room(Head::Cleaning, header.record_len()) {
                return Stop::NoRoom;
            }
            let units = occupied_units(expected, place..place + header.blocks() as usize);
            if !self.append_to_cleaning(header, &batch.scratch[range.clone()], Claim::Ordinary) {
                return Stop::NoRoom;
            }
            let level = levels[levels.partition_point(|(end, _)| *end <= *at)].1;
            self.written.add(header, level);
            step.blocks_count += header.blocks();
            step.before_bytes += units * layout::UNIT_BYTES as u64;
            step.after_bytes += header.record_len() as u64;
            *at += 1;
        }
        if self.map.over_budget() {
            self.map.evict();
        }
        Stop::Done
    }
}
