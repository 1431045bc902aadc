//! Checkpoints: a durable root of the map, so that recovery has little to roll forward and dead segments come free.
//!
//! A checkpoint has a cut: a sequence number. It describes the drive as it was then, while writes go on. Leaves come
//! in rising order, and each node above as soon as all below it are written, so that it need not stay in memory to the
//! end. Leaves of which only changes are in memory are written as overlays.
//! When all of that is durable, the slot is written. A checkpoint that was begun is carried on by whoever next does
//! maintenance, should the one who began it be given up.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use layout::pack::HEADS;
use layout::record::RECORD_HEADER_BYTES;
use layout::{
    Checkpoint, Counters, Entry, Head, HeadPosition, LEAF_LEVEL, NODE_ENTRIES, NodeId, ROOT, RecordHeader,
    RecordKind, SegmentRow, SegmentUse,
};
use media::{IoBuf, Media};

use crate::batch::sum;
use crate::core::{Core, UNWRITTEN_MAX_BYTES};
use crate::error::Error;
use crate::map::{Map, Missing};
use crate::node::Base;
use crate::segments::{Claim, State};
use crate::shared::{Shared, yield_now};

/// Nodes written in one critical section.
const NODES_A_STEP: usize = 64;
/// Largest record of a node: all entries as pairs.
const NODE_RECORD_MAX_BYTES: usize = RECORD_HEADER_BYTES + NODE_ENTRIES * 10 + 16;

/// A checkpoint being written.
pub(crate) struct InProgress {
    number: u64,
    sequence: u64,
    clean: bool,
    heads: [HeadPosition; HEADS],
    counters: Counters,
    live_blocks: u64,
    mix: layout::Mix,
    fill_blocks: u64,
    /// The table as at the cut, adjusted for the nodes this checkpoint wrote.
    rows: Vec<SegmentRow>,
    /// Segments that were sealed at the cut.
    sealed: Vec<u32>,
    /// Leaves still to be written, in rising order.
    leaves: VecDeque<NodeId>,
    /// Nodes above the leaves that have to be written, lowest level first.
    upper: BTreeSet<NodeId>,
    overlay_records: u64,
    encode_buffer: Vec<u8>,
}

impl InProgress {
    /// The node to write next: one above the leaves that no leaf to come lies under, the lowest first, else a leaf.
    fn next(&self) -> Option<NodeId> {
        let Some(leaf) = self.leaves.front() else { return self.upper.first().copied() };
        let ready = |level: u8| {
            let first = self.upper.range(NodeId { level, index: 0 }..).next()?;
            (*first < leaf.ancestor(level)).then_some(*first)
        };
        (LEAF_LEVEL + 1..=ROOT.level).find_map(ready).or(Some(*leaf))
    }

    /// A node was dealt with.
    fn done(&mut self, id: NodeId) {
        if id.level == LEAF_LEVEL {
            self.leaves.pop_front();
        } else {
            self.upper.remove(&id);
        }
    }
}

/// What a step of writing nodes came to.
enum Step {
    More,
    Missing(Missing),
    /// Wait for the medium to take what was sent.
    Wait,
    NoSegment,
    Done,
}

impl Core {
    /// The cut.
    fn begin_checkpoint(&mut self, clean: bool) {
        self.log.seal_all(&mut self.segments);
        self.log.promise_all(&mut self.segments);
        self.log.start_map_head(&mut self.segments);
        let dirty = self.map.freeze();
        let (leaves, upper): (Vec<_>, Vec<_>) = dirty.into_iter().partition(|id| id.level == LEAF_LEVEL);
        let sealed = |s: &u32| self.segments.get(*s).state == State::Sealed;
        self.in_progress = Some(InProgress {
            number: self.log.checkpoint() + 1,
            sequence: self.log.sequence(),
            clean,
            heads: self.log.positions(),
            counters: self.counters,
            live_blocks: self.map.live_blocks,
            mix: self.map.mix,
            fill_blocks: self.map.fill_blocks,
            rows: self.segments.rows(),
            sealed: (0..self.segments.count()).filter(sealed).collect(),
            leaves: leaves.into(),
            upper: upper.into_iter().collect(),
            overlay_records: 0,
            encode_buffer: Vec::new(),
        });
        self.log.reset_since_checkpoint();
        self.records_since_checkpoint = 0;
        #[cfg(feature = "planted-bugs")]
        if self.has_bug(crate::PlantedBug::ReuseSegmentEarly) {
            for segment in 0..self.segments.count() {
                let row = self.segments.get(segment);
                if row.state == State::Sealed && row.live_units == 0 {
                    self.segments.free(segment);
                }
            }
        }
    }

    /// Writes some nodes.
    fn checkpoint_step(&mut self) -> Step {
        let Some(mut progress) = self.in_progress.take() else { return Step::Done };
        let step = self.write_nodes(&mut progress);
        self.in_progress = Some(progress);
        if self.map.over_budget() {
            self.map.evict();
        }
        step
    }

    fn write_nodes(&mut self, progress: &mut InProgress) -> Step {
        for _ in 0..NODES_A_STEP {
            if self.log.unwritten_bytes() > UNWRITTEN_MAX_BYTES {
                return Step::Wait;
            }
            let Some(id) = progress.next() else {
                self.log.seal(Head::Map, &mut self.segments);
                return Step::Done;
            };
            if id.level == LEAF_LEVEL && !self.map.belongs_to_cut(id) {
                progress.done(id);
                continue;
            }
            let overlay = |map: &Map| map.at_cut(id).is_some_and(|form| !form.is_complete());
            let missing =
                if overlay(&self.map) { self.map.overlay_missing(id) } else { self.map.parent_missing(id) };
            if let Some(missing) = missing {
                return Step::Missing(missing);
            }
            let overlay = overlay(&self.map);
            if self.log.room(Head::Map, NODE_RECORD_MAX_BYTES, Claim::Ordinary, &mut self.segments).is_err() {
                return Step::NoSegment;
            }
            if overlay {
                self.write_overlay(id, progress)
            } else {
                self.write_node(id, progress)
            }
            progress.done(id);
            self.log.seal_if_full(Head::Map, &mut self.segments);
        }
        Step::More
    }

    fn write_overlay(&mut self, id: NodeId, progress: &mut InProgress) {
        let Some(form) = self.map.at_cut(id) else { return };
        let payload = &mut progress.encode_buffer;
        payload.clear();
        let coding = layout::node::encode_overlay(|| form.changes(), payload);
        let mut header = RecordHeader {
            crc: 0,
            block: id.index,
            payload_len: payload.len() as u16,
            kind: RecordKind::Overlay,
            codec: coding as u8,
            extra: overlay_extra(progress.number, form.base() == Base::MediaCleared),
        };
        sum(&mut header, payload);
        self.log.append(Head::Map, &header, payload);
        progress.overlay_records += 1;
        self.map.overlay_written(id);
    }

    fn write_node(&mut self, id: NodeId, progress: &mut InProgress) {
        let Some(form) = self.map.at_cut(id) else { return };
        let payload = &mut progress.encode_buffer;
        payload.clear();
        let image = if form.mapped().next().is_none() {
            Entry::UNMAPPED
        } else {
            let coding = layout::node::encode_node(|| form.mapped(), payload);
            let mut header = RecordHeader {
                crc: 0,
                block: id.index,
                payload_len: payload.len() as u16,
                kind: RecordKind::Node,
                codec: coding as u8,
                extra: u16::from(id.level),
            };
            sum(&mut header, payload);
            self.log.append(Head::Map, &header, payload)
        };
        let old = self.map.image_written(id, image);
        // Both tables: the one of the cut describes the map with its nodes where this checkpoint puts them.
        if image.is_record() {
            self.segments.add(image, image.units());
            progress.rows[self.segments.of(image) as usize].live_units += image.units();
        }
        if old.is_record() {
            self.segments.release(old, old.units());
            let live = &mut progress.rows[self.segments.of(old) as usize].live_units;
            *live = live.saturating_sub(old.units());
        }
        if let Some((parent, _)) = id.parent()
            && !(old.is_unmapped() && image.is_unmapped())
        {
            progress.upper.insert(parent);
        }
    }

    /// The checkpoint's bytes, now that all it points to is durable; and its number.
    fn encode_checkpoint(&mut self, entropy: u64) -> Option<(u64, IoBuf)> {
        let generations = self.segments.generations();
        let root = self.map.root_image();
        let uuid = self.superblock.log_id();
        let progress = self.in_progress.as_mut()?;
        for &segment in &progress.sealed {
            let row = &mut progress.rows[segment as usize];
            if row.live_units == 0 {
                row.usage = SegmentUse::Free;
            }
        }
        // Segments the nodes went to after the cut are found by roll-forward: their rows stay as they were, but what
        // they hold counts from now on.
        let checkpoint = Checkpoint {
            uuid,
            number: progress.number,
            sequence: progress.sequence,
            root,
            clean: progress.clean,
            overlay_records: progress.overlay_records,
            live_blocks: progress.live_blocks,
            mix: progress.mix,
            fill_blocks: progress.fill_blocks,
            generations,
            entropy,
            durable: self.log.durable(),
            heads: progress.heads,
            counters: progress.counters,
            rows: std::mem::take(&mut progress.rows),
        };
        let mut buf = IoBuf::zeroed(Checkpoint::encoded_len(checkpoint.rows.len()));
        checkpoint.encode(&mut buf);
        progress.rows = checkpoint.rows;
        Some((progress.number, buf))
    }

    /// The checkpoint is durable: what it freed may be used again.
    fn commit_checkpoint(&mut self) {
        let Some(progress) = self.in_progress.take() else { return };
        self.map.thaw();
        self.log.checkpoint_durable(progress.number, &progress.heads);
        self.counters.checkpoints_count += 1;
        for segment in progress.sealed {
            let row = self.segments.get(segment);
            if row.state == State::Sealed && progress.rows[segment as usize].usage == SegmentUse::Free {
                self.segments.free(segment);
            }
        }
        self.segments.forget_cleaned();
        self.review_cleaning();
        self.segments.set_map_need(self.map.write_estimate_bytes());
        self.log.promise_all(&mut self.segments);
    }
}

/// The extra field of an overlay record: whether all before it is gone, and which checkpoint it belongs to.
pub(crate) fn overlay_extra(checkpoint: u64, cleared: bool) -> u16 {
    ((checkpoint & 0x7fff) as u16) << 1 | u16::from(cleared)
}

impl<M: Media> Shared<M> {
    /// Writes a checkpoint, or carries on one that was begun. The caller holds the maintenance lock.
    pub(crate) async fn write_checkpoint(self: &Arc<Self>, clean: bool) -> Result<(), Error> {
        {
            let mut core = self.core();
            core.writable()?;
            self.fold_counters(&mut core);
            if core.in_progress.is_none() {
                core.begin_checkpoint(clean);
            }
        }
        loop {
            let (step, packs) = {
                let mut core = self.core();
                (core.checkpoint_step(), core.log.take_outbox())
            };
            self.write_out(packs);
            match step {
                Step::More => yield_now().await,
                Step::Missing(missing) => self.load(missing).await?,
                Step::Wait => {
                    self.wait_for(|core| match &core.poisoned {
                        Some(why) => Some(Err(Error::ReadOnly(why.clone()))),
                        None => (core.log.unwritten_bytes() <= UNWRITTEN_MAX_BYTES).then_some(Ok(())),
                    })
                    .await?;
                }
                Step::NoSegment => {
                    let mut core = self.core();
                    let (free, dead) = (core.segments.free_count(), core.segments.dead_count());
                    let why = format!(
                        "no segment is left for the map ({free} free, {dead} to be freed by a checkpoint): it cannot go on"
                    );
                    core.poison(why.clone());
                    drop(core);
                    self.progress.notify(usize::MAX);
                    return Err(Error::ReadOnly(why));
                }
                Step::Done => break,
            }
        }
        let target = self.core().log.sequence();
        self.durable(target).await?;
        let (encoded, geometry) = {
            let mut core = self.core();
            (core.encode_checkpoint(self.entropy), core.superblock.geometry)
        };
        let Some((number, buf)) = encoded else { return Ok(()) };
        let buf = Arc::new(buf);
        for copy in 0..2 {
            self.write_to_end(geometry.checkpoint_offset((number % 2) as usize, copy), buf.clone()).await?;
        }
        self.sync_once().await?;
        {
            let mut core = self.core();
            core.counters.map_written_bytes += 2 * buf.len() as u64;
            core.commit_checkpoint();
        }
        self.progress.notify(usize::MAX);
        Ok(())
    }
}
