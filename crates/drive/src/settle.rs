//! Settling: what lies cold is compressed again, as well as the drive can: stronger, and neighbours together however they
//! were written.

use std::ops::Range;
use std::sync::Arc;

use codec::Policy;
use layout::entry::RAW_UNITS;
use layout::{BLOCK_BYTES, Entry, Head, LEAF_LEVEL, NODE_ENTRIES, NodeId};
use media::Media;

use crate::batch::{Batch, Item, Payload};
use crate::core::{Core, UNWRITTEN_MAX_BYTES};
use crate::error::Error;
use crate::map::Missing;
use crate::recipe::Recipe;
use crate::segments::{Pin, State};
use crate::shared::{Drive, Shared};

/// Blocks of a settled frame at most: groups of so many are looked at together.
const GROUP_BLOCKS: u64 = 8;
/// zstd level and blocks of settled frames where a dictionary helps: it brings what neighbours would, and smaller frames
/// are read sooner (docs/codec.md has the measurements).
const WITH_DICTIONARY: (i8, u64) = (6, 4);
/// The same where there is none: frames twice as large gain 2 % and take half as long again to read; level 9 gains nothing
/// at this size.
const WITHOUT_DICTIONARY: (i8, u64) = (8, 4);
/// Leaves stepped over in one step, where there is nothing to do.
const LEAVES_A_STEP: usize = 64;
/// Blocks compressed in one step: 512 KiB.
const BLOCKS_A_STEP: u64 = 128;

/// Which records a step may settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Everything that is not settled yet.
    All,
    /// Only what lies in segments that nothing was written to since so many packs.
    OlderThan(u64),
}

/// What a step of settling did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SettleStep {
    /// Where the next step goes on; `None`: that was the end of the drive.
    pub next_block: Option<u64>,
    /// Blocks compressed again.
    pub blocks_count: u64,
    /// What they took before and take now, in bytes of live space.
    pub before_bytes: u64,
    /// See [`SettleStep::before_bytes`].
    pub after_bytes: u64,
    /// There is no room to write to for now: free segments are few.
    pub no_room: bool,
}

/// What looking for work found.
enum Looked {
    /// Blocks to settle, one behind the other within a leaf, with their entries. Their segments stay what they are, so that an
    /// equal entry later means an unchanged block.
    Work(u64, Vec<Entry>, Vec<Pin>),
    /// Nothing up to this block.
    Nothing(u64),
    Missing(Missing),
}

impl<M: Media> Drive<M> {
    /// Compresses some of what is not settled yet, from `block` on, with what is best: a pass over the drive is steps from 0
    /// on, each where the one before says, until there is no next block.
    ///
    /// # Errors
    /// What the medium answered; the drive is as it was, but for what earlier steps did.
    pub async fn settle_step(&self, block: u64, which: Settle) -> Result<SettleStep, Error> {
        let shared = &self.0;
        shared.core().writable()?;
        if shared.codec() == Policy::None {
            return Ok(SettleStep::default());
        }
        if !shared.core().segments.host_may_take() {
            return Ok(SettleStep { next_block: Some(block), no_room: true, ..SettleStep::default() });
        }
        let (first, expected, _pins) = loop {
            let looked = shared.core().look_for_unsettled(block, which);
            match looked {
                Looked::Work(first, expected, pins) => break (first, expected, pins),
                Looked::Nothing(next) => {
                    return Ok(SettleStep { next_block: shared.next_block(next), ..SettleStep::default() });
                }
                Looked::Missing(missing) => {
                    if let Err(error) = shared.load(missing).await {
                        // What it maps cannot be had: on behind it.
                        if !matches!(error, Error::Corrupt(_)) {
                            return Err(error);
                        }
                        let span = (NODE_ENTRIES as u64) << (9 * u32::from(missing.id.level));
                        let next_block = shared.next_block((missing.id.index + 1) * span);
                        return Ok(SettleStep { next_block, ..SettleStep::default() });
                    }
                }
            }
        };
        let end = first + expected.len() as u64;
        let mut step = SettleStep { next_block: shared.next_block(end), ..SettleStep::default() };
        let mut contents = vec![0; expected.len() * BLOCK_BYTES];
        match shared.read_span(first * BLOCK_BYTES as u64, &mut contents).await {
            Ok(()) => {}
            // Told to whoever reads it, and by a scrub.
            Err(Error::Corrupt(_)) => return Ok(step),
            Err(error) => return Err(error),
        }
        let recipes = shared.strong_recipes();
        let runs = runs_of(&expected);
        let made = shared.compute(move || {
            let mut batch = Batch::take();
            for run in runs {
                let bytes = &contents[run.start * BLOCK_BYTES..run.end * BLOCK_BYTES];
                let [with, without] = &recipes;
                let recipe = if with.dictionary_for(bytes).is_some() { with } else { without };
                batch.add_run(recipe, first + run.start as u64, bytes, None);
            }
            batch
        });
        let batch = made.await.map_err(|_| Error::Io("compressing was given up".into()))?;
        let mut at = 0;
        while at < batch.items.len() {
            let (stop, packs) = {
                let mut core = shared.core();
                (core.append_settled(&batch, &mut at, first, &expected, &mut step), core.log.take_outbox())
            };
            shared.write_out(packs);
            match stop {
                Stop::Done => {}
                Stop::NoRoom => {
                    step.no_room = true;
                    step.next_block = Some(first);
                    break;
                }
                Stop::Wait => shared.relieve().await?,
            }
        }
        // Not given back: it was made on another thread, and is larger than those that requests need.
        Ok(step)
    }
}

enum Stop {
    Done,
    NoRoom,
    Wait,
}

/// Runs of blocks that are to be settled, none longer than a group.
fn runs_of(entries: &[Entry]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (i, _) in entries.iter().enumerate().filter(|(_, entry)| entry.is_record()) {
        match runs.last_mut() {
            Some(run) if run.end == i && !i.is_multiple_of(GROUP_BLOCKS as usize) => run.end = i + 1,
            _ => runs.push(i..i + 1),
        }
    }
    runs
}

impl<M: Media> Shared<M> {
    fn next_block(&self, block: u64) -> Option<u64> {
        Some(block).filter(|block| *block < self.core().blocks())
    }

    /// How cold blocks are compressed: those that a dictionary fits, and others.
    fn strong_recipes(self: &Arc<Self>) -> [Recipe; 2] {
        let recipe = |(least, frame_blocks), dictionaries| {
            let level = match self.codec() {
                Policy::Zstd(level) => level.max(least),
                _ => least,
            };
            Recipe { policy: Policy::Zstd(level), frame_blocks, dictionaries, settled: true }
        };
        [recipe(WITH_DICTIONARY, self.dictionaries.active()), recipe(WITHOUT_DICTIONARY, Arc::new([]))]
    }
}

impl Core {
    /// The next groups of blocks of which some can be settled. Of a group, which becomes a frame if nothing in it is in the
    /// way, settled blocks are taken too if half of it is not settled.
    fn look_for_unsettled(&mut self, block: u64, which: Settle) -> Looked {
        let blocks = self.blocks();
        let group = GROUP_BLOCKS;
        let mut at = block / group * group;
        for _ in 0..LEAVES_A_STEP {
            if at >= blocks {
                break;
            }
            let leaf = NodeId { level: LEAF_LEVEL, ..NodeId::leaf_of(at) };
            let leaf_end = blocks.min((leaf.index + 1) * NODE_ENTRIES as u64);
            if self.map.is_absent(leaf) {
                at = leaf_end;
                continue;
            }
            let until = leaf_end.min(at + BLOCKS_A_STEP);
            let mut entries = Vec::with_capacity((until - at) as usize);
            if let Err(missing) = self.map.lookup(at, (until - at) as usize, |_, entry| entries.push(entry)) {
                return Looked::Missing(missing);
            }
            for group in entries.chunks_mut(group as usize) {
                self.pick(group, which);
            }
            let mut segments: Vec<u32> =
                entries.iter().filter(|e| e.is_record()).map(|entry| self.segments.of(*entry)).collect();
            segments.sort_unstable();
            segments.dedup();
            if !segments.is_empty() {
                let pins = segments.into_iter().map(|segment| self.segments.pin(segment)).collect();
                return Looked::Work(at, entries, pins);
            }
            at = until;
        }
        Looked::Nothing(at)
    }

    /// Leaves of a group's entries only those that are to be settled.
    fn pick(&self, group: &mut [Entry], which: Settle) {
        let may = |entry: &Entry| {
            if !entry.is_record() || entry.units() == RAW_UNITS && !entry.is_frame() {
                return false;
            }
            let segment = self.segments.get(self.segments.of(*entry));
            let old = match which {
                Settle::All => true,
                Settle::OlderThan(packs) => {
                    segment.state == State::Sealed && segment.last_sequence + packs <= self.log.sequence()
                }
            };
            old && self.log.in_memory(*entry).is_none()
        };
        let records = group.iter().filter(|entry| entry.is_record()).count();
        let wanted = group.iter().filter(|entry| !entry.is_settled() && may(entry)).count();
        let whole = wanted > 0 && wanted * 2 >= records;
        for entry in group.iter_mut() {
            if wanted == 0 || !may(entry) || entry.is_settled() && !whole {
                *entry = Entry::UNMAPPED;
            }
        }
    }

    /// Appends what was made, from item `at` on, as far as its blocks are what they were.
    fn append_settled(
        &mut self,
        batch: &Batch,
        at: &mut usize,
        first: u64,
        expected: &[Entry],
        step: &mut SettleStep,
    ) -> Stop {
        const ITEMS_A_STEP: usize = 16;
        if self.writable().is_err() {
            return Stop::NoRoom;
        }
        if self.log.unwritten_bytes() > UNWRITTEN_MAX_BYTES || self.must_checkpoint() {
            return Stop::Wait;
        }
        self.segments.set_map_need(self.map.write_estimate_bytes());
        let until = batch.items.len().min(*at + ITEMS_A_STEP);
        while *at < until {
            let item = &batch.items[*at];
            // What was a record is no fill, and comes from no host's buffer.
            let Item::Data { header, payload: Payload::Scratch(range) } = item else {
                *at += 1;
                continue;
            };
            let place = (header.block - first) as usize;
            let before = &expected[place..place + header.blocks() as usize];
            let mut same = self.is_current(header);
            for (block, entry) in (header.block..).zip(before) {
                same &= self.map.peek(block) == crate::node::Slot::Known(*entry);
            }
            if !same {
                *at += 1;
                continue;
            }
            if !self.segments.host_may_take() && !self.log.has_room(Head::Cleaning, header.record_len()) {
                return Stop::NoRoom;
            }
            let shares =
                (header.block..).zip(before).map(|(block, entry)| u64::from(entry.share_units(block)));
            let units: u64 = shares.sum();
            if !self.append_to_cleaning(header, &batch.scratch[range.clone()]) {
                return Stop::NoRoom;
            }
            self.tally(header);
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
