//! Checkpoints: a durable root of the map, so that recovery has little to roll forward and dead segments
//! become free.
//!
//! A checkpoint has a cut, a sequence number. It describes the drive as it was then, while writes continue.
//! Leaves are written in rising order, and each node above as soon as all nodes below it are written, so that
//! it need not stay in memory to the end. Leaves of which only changes are in memory are written as overlays.
//! When all of that is durable, the slot is written. If whoever began a checkpoint is dropped, the next one
//! who does maintenance continues it.

use std::sync::Arc;

use layout::record::RECORD_HEADER_BYTES;
use layout::superblock::SUPERBLOCK_COPIES;
use layout::table::page_of;
use layout::{
    BLOCK_BYTES, Checkpoint, Entry, Head, LEAF_LEVEL, NODE_ENTRIES, NodeId, RecordHeader, RecordKind, Rows,
    SegmentUse,
};
use media::Media;

use crate::error::Error;
use crate::planted::PlantedBug;
use crate::shared::{Run, Shared, yield_now};
use crate::state::batch::sum;
use crate::state::core::Core;
use crate::state::cut::InProgress;
use crate::state::log::Appender;
use crate::state::map::{Map, Missing};
use crate::state::node::Base;
use crate::state::segments::{Claim, OthersHeld, SegmentState};
use crate::state::table::Writing;

/// Nodes written in one critical section.
const NODES_A_STEP: usize = 64;
/// With fewer copies, a second checkpoint follows.
const COPIES_MIN: usize = 2;
/// Largest record of a node: all entries as pairs.
const NODE_RECORD_MAX_BYTES: usize = RECORD_HEADER_BYTES + NODE_ENTRIES * 10 + 16;

/// Result of a step of writing nodes.
enum Step {
    More,
    Missing(Missing),
    /// Wait until the medium has taken what was sent.
    Wait,
    NoSegment,
    Done,
}

impl Core {
    /// Begins the cut.
    fn begin_checkpoint(&mut self, clean: bool) {
        self.log.seal_all(&mut self.segments);
        self.log.promise_all(&mut self.segments);
        self.log.start_map_head(&mut self.segments);
        assert!(self.checkpoints.in_progress.is_none(), "a checkpoint is begun in a checkpoint");
        let dirty = self.map.freeze();
        let (leaves, upper): (Vec<_>, Vec<_>) = dirty.into_iter().partition(|id| id.level == LEAF_LEVEL);
        let number = self.log.checkpoint() + 1 + self.checkpoints.skipped_count;
        let changed = self.segments.begin_cut();
        self.table.change(&changed, number);
        tracing::debug!(
            number,
            sequence = self.log.sequence(),
            leaves = leaves.len(),
            clean,
            "checkpoint begun"
        );
        self.checkpoints.in_progress = Some(InProgress {
            number,
            sequence: self.log.sequence(),
            clean,
            others_held: self.segments.others_held(),
            heads: self.log.positions(),
            counters: self.counters,
            live_blocks: self.map.live_blocks,
            mix: self.map.mix,
            fill_blocks: self.map.fill_blocks,
            dead: self.segments.dead().into_iter().collect(),
            open: self.log.open_segments().iter().map(|open| open.segment).collect(),
            log_bytes: self.log.take_since_checkpoint(),
            log_records: std::mem::take(&mut self.checkpoints.records_since),
            leaves: leaves.into(),
            upper: upper.into_iter().collect(),
            overlay_records: 0,
            unreadable: Default::default(),
            written_bytes: 0,
            is_placed: false,
            encode_buffer: Vec::new(),
        });
        if self.planted.has(PlantedBug::ReuseSegmentEarly) {
            for segment in self.segments.dead() {
                self.segments.free(segment);
            }
        }
    }

    /// Writes some nodes.
    fn checkpoint_step(&mut self) -> Step {
        let Some(mut progress) = self.checkpoints.in_progress.take() else { return Step::Done };
        let step = self.write_nodes(&mut progress);
        self.checkpoints.in_progress = Some(progress);
        if self.map.over_budget() {
            self.map.evict();
        }
        step
    }

    fn write_nodes(&mut self, progress: &mut InProgress) -> Step {
        for _ in 0..NODES_A_STEP {
            if self.log.must_wait(Appender::Checkpoint) {
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
            if overlay(&self.map)
                && let Some(missing) = self.map.overlay_missing(id)
                && !progress.unreadable.contains(&missing.id)
            {
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
        let extra = overlay_extra(progress.number, form.base() == Base::MediaCleared);
        self.append_to_map(RecordKind::Overlay, id, coding as u8, extra, progress);
        progress.overlay_records += 1;
        self.map.overlay_written(id);
    }

    /// Appends a record of the map with the encoded payload. Returns its place.
    fn append_to_map(
        &mut self,
        kind: RecordKind,
        id: NodeId,
        codec: u8,
        extra: u16,
        progress: &mut InProgress,
    ) -> Entry {
        let payload = &progress.encode_buffer;
        let payload_len = payload.len() as u16;
        let mut header =
            RecordHeader { crc: 0, block: id.index, payload_len, kind, codec, extra, left_out: 0 };
        progress.written_bytes += header.record_len() as u64;
        sum(&mut header, payload);
        self.log.append(Head::Map, &header, payload)
    }

    fn write_node(&mut self, id: NodeId, progress: &mut InProgress) {
        let Some(form) = self.map.at_cut(id) else { return };
        let payload = &mut progress.encode_buffer;
        payload.clear();
        let image = if form.mapped().next().is_none() {
            Entry::UNMAPPED
        } else {
            let coding = layout::node::encode_node(|| form.mapped(), payload);
            self.append_to_map(RecordKind::Node, id, coding as u8, id.level.into(), progress)
        };
        let old = self.map.image_written(id, image);
        // Both tables: the one of the cut describes the map with its nodes at the places of this checkpoint.
        if image.is_record() {
            self.add_at_cut(image, progress);
            self.segments.add(image);
        }
        if old.is_record() {
            self.release_at_cut(old, progress);
            self.segments.release(old, 0);
        }
        if let Some((parent, _)) = id.parent()
            && !(old.is_unmapped() && image.is_unmapped())
        {
            progress.upper.insert(parent);
        }
    }

    /// Adds a node's image to the table of the cut.
    fn add_at_cut(&mut self, image: Entry, progress: &mut InProgress) {
        let segment = self.segments.of(image);
        self.table.change_page(page_of(segment), progress.number);
        progress.dead.remove(&segment);
        if let Some(row) = self.segments.row_at_cut(segment) {
            row.live_units += image.units();
        }
    }

    /// Removes a node's image from the table of the cut.
    fn release_at_cut(&mut self, image: Entry, progress: &mut InProgress) {
        let segment = self.segments.of(image);
        self.table.change_page(page_of(segment), progress.number);
        let Some(row) = self.segments.row_at_cut(segment) else { return };
        row.live_units = row.live_units.saturating_sub(image.units());
        row.repackable_units = row.repackable_units.min(row.live_units);
        if row.live_units == 0 && row.usage == SegmentUse::Used && !progress.open.contains(&segment) {
            progress.dead.insert(segment);
        }
    }

    /// Encodes the header of the checkpoint. Everything it points to is durable.
    fn encode_checkpoint(&mut self, run: &Run) -> Option<Writing> {
        let mut progress = self.checkpoints.in_progress.take()?;
        let is_written = progress.leaves.is_empty() && progress.upper.is_empty();
        assert!(is_written, "a checkpoint is placed before all of its nodes are written");
        let synced = self.log.synced_up_to();
        assert!(progress.sequence <= synced, "a checkpoint describes what was not synced");
        progress.is_placed = true;
        for &segment in &progress.dead {
            self.table.change_page(page_of(segment), progress.number);
            if let Some(row) = self.segments.row_at_cut(segment) {
                row.usage = SegmentUse::Free;
            }
        }
        // Segments to which nodes were written after the cut are found by roll-forward. Their rows stay as
        // they were, but their contents count from now on.
        let mut header = Checkpoint {
            uuid: self.superblock.log_id(),
            number: progress.number,
            sequence: progress.sequence,
            root: self.map.root_image(),
            // Not if somebody writes while the drive is being closed.
            clean: progress.clean && self.log.host_is_behind(progress.sequence),
            may_hold_more: progress.others_held == OthersHeld::MayBe,
            written_through: run.writes_through,
            memory_boot: run.memory_boot,
            overlay_records: progress.overlay_records,
            live_blocks: progress.live_blocks,
            mix: progress.mix,
            fill_blocks: progress.fill_blocks,
            generations: self.segments.generations(),
            entropy: run.entropy,
            earlier_runs: run.earlier,
            durable: self.log.durable_behind(progress.sequence),
            superblock_update: self.superblock.update,
            heads: progress.heads,
            counters: progress.counters,
            scrub: self.scrub,
            rows: Rows::default(),
        };
        header.clamp_counted(self.superblock.logical_capacity_bytes / BLOCK_BYTES as u64);
        let writing = self.table.begin_writing(&header, &self.segments);
        self.checkpoints.in_progress = Some(progress);
        Some(writing)
    }

    /// The checkpoint is durable: what it freed may be used again.
    fn commit_checkpoint(&mut self) {
        let Some(progress) = self.checkpoints.in_progress.take() else { return };
        tracing::debug!(
            number = progress.number,
            written_bytes = progress.written_bytes,
            freed_segments = progress.dead.len(),
            "checkpoint committed"
        );
        self.map.thaw();
        self.segments.end_cut();
        assert!(progress.number > self.log.checkpoint(), "checkpoint numbers rise");
        assert!(progress.sequence >= self.checkpoints.cut_committed, "the cut of a checkpoint moves forward");
        self.log.checkpoint_durable(progress.number, &progress.heads);
        self.checkpoints.cut_committed = progress.sequence;
        self.give_back.note_checkpoint(self.ticks, self.lull.since());
        self.failed_packs = 0;
        self.checkpoints.skipped_count = 0;
        self.counters.checkpoints_count += 1;
        self.segments.let_discard();
        if progress.others_held == OthersHeld::Discarded {
            self.segments.set_no_others_held();
        }
        for segment in progress.dead {
            // What was live at the cut and died since is not included. What was dead stays dead.
            if self.segments.get(segment).state() == SegmentState::Sealed {
                self.segments.free(segment);
            }
        }
        self.segments.forget_cleaned();
        self.update_map_need();
        self.log.promise_all(&mut self.segments);
        self.review_cleaning();
    }

    /// Forgets gaps in the log that the newest checkpoint made unnecessary.
    fn close_gap(&mut self) {
        self.log.gap_closed(self.checkpoints.cut_committed);
    }

    /// Gives up the checkpoint in progress, because something that it points to did not reach the medium.
    /// Everything it was to write is left to the next one.
    pub(crate) fn abandon_checkpoint(&mut self) {
        let Some(progress) = self.checkpoints.in_progress.take() else { return };
        tracing::debug!(number = progress.number, "checkpoint abandoned");
        if progress.is_placed {
            // Two checkpoints with the same number could not be distinguished. The next goes to the same
            // slot: the other slot holds the one to fall back on.
            self.checkpoints.skipped_count += 2;
        }
        self.log.add_since_checkpoint(progress.log_bytes);
        self.checkpoints.records_since += progress.log_records;
        self.map.give_up_cut(progress.leaves.into_iter().chain(progress.upper));
        self.segments.end_cut();
        self.update_map_need();
    }
}

/// Returns the extra field of an overlay record: whether everything before it is gone, and the checkpoint it
/// belongs to.
pub(crate) fn overlay_extra(checkpoint: u64, cleared: bool) -> u16 {
    ((checkpoint & 0x7fff) as u16) << 1 | u16::from(cleared)
}

/// Reason for a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    Needed,
    /// A second one, in case that the first is lost. It stops if there is no room: nobody waits for it.
    Extra,
}

/// Result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    Committed,
    /// Committed. But if a copy is lost, the rest does not show that it is the newest: the medium took no
    /// other copy, or the previous number was given up.
    Doubtful,
    /// The medium did not take a pack. Its contents have to be written elsewhere first.
    PackFailed,
}

impl<M: Media> Shared<M> {
    /// Writes a checkpoint, or continues one that was begun. The caller has the right to maintenance. What
    /// the medium did not take is written elsewhere first.
    pub(crate) async fn write_checkpoint(self: &Arc<Self>) -> Result<(), Error> {
        self.complete_checkpoint(false).await
    }

    /// Writes the last checkpoint before the drive is closed. It says that it is, unless somebody writes
    /// meanwhile. The caller has the right to maintenance.
    pub(crate) async fn write_closing_checkpoint(self: &Arc<Self>) -> Result<(), Error> {
        self.complete_checkpoint(true).await
    }

    async fn complete_checkpoint(self: &Arc<Self>, clean: bool) -> Result<(), Error> {
        let mut purpose = Purpose::Needed;
        loop {
            self.rehome().await?;
            let was_doubtful = purpose == Purpose::Extra;
            let attempt = match self.attempt_checkpoint(clean, purpose).await {
                Err(error) if was_doubtful && !matches!(error, Error::ReadOnly(_) | Error::BackingFull) => {
                    let mut core = self.core();
                    core.note(format!("a second checkpoint, to be safe, was not completed: {error}"));
                    // Nobody continues it: the caller may change what it would describe.
                    core.abandon_checkpoint();
                    core.close_gap();
                    drop(core);
                    self.progress.notify(usize::MAX);
                    return Ok(());
                }
                attempt => attempt?,
            };
            match attempt {
                Attempt::Committed => return Ok(()),
                Attempt::Doubtful if was_doubtful => return Ok(()),
                // The next checkpoint goes to the other slot, with the next number.
                Attempt::Doubtful => purpose = Purpose::Extra,
                // This comes to an end: each pack that fails is counted, and too many of them poison the
                // drive.
                Attempt::PackFailed => {}
            }
        }
    }

    async fn attempt_checkpoint(self: &Arc<Self>, clean: bool, purpose: Purpose) -> Result<Attempt, Error> {
        {
            let mut core = self.core();
            core.mode.writable()?;
            self.fold_counters(&mut core);
            match &mut core.checkpoints.in_progress {
                // A checkpoint that was to be the last one is not, if the drive is still used.
                Some(progress) => progress.clean &= clean,
                None => core.begin_checkpoint(clean),
            }
        }
        if !self.write_all_nodes(purpose).await? {
            return Ok(Attempt::PackFailed);
        }
        let target = self.core().log.sequence();
        self.synced(target).await?;
        if self.core().checkpoints.says_discarded() {
            // Before a checkpoint says so.
            self.sync_once().await?;
        }
        let (encoded, geometry) = {
            let mut core = self.core();
            if core.log.has_failed() {
                core.abandon_checkpoint();
                return Ok(Attempt::PackFailed);
            }
            (core.encode_checkpoint(&self.run), core.superblock.geometry)
        };
        let Some(writing) = encoded else { return Ok(Attempt::Committed) };
        let number = writing.number;
        let places = geometry.checkpoint_places(number);
        let written = self.write_copies(&writing, &places).await?;
        self.sync_once().await?;
        let is_doubtful = {
            let mut core = self.core();
            let copies: Vec<usize> = (0..places.len()).filter(|copy| written[*copy]).collect();
            for copy in &copies {
                core.table.end_place(number, *copy);
            }
            let is_doubtful = core.checkpoints.skipped_count > 0 || copies.len() < COPIES_MIN;
            core.commit_checkpoint();
            // Those who wait for a gap to be closed are woken when the second one is written, too.
            if !is_doubtful || purpose == Purpose::Extra {
                core.close_gap();
            }
            is_doubtful
        };
        self.progress.notify(usize::MAX);
        if let Some(copy) = written.iter().position(|is_written| clean && *is_written) {
            // Otherwise the next opening writes the checkpoint again.
            let _ = self.write_to_end(places[copy], writing.header_of_durable()).await;
        }
        Ok(if is_doubtful { Attempt::Doubtful } else { Attempt::Committed })
    }

    /// Writes all nodes and overlays of the checkpoint in progress. Returns false if it was abandoned because
    /// the medium did not take a pack.
    async fn write_all_nodes(self: &Arc<Self>, purpose: Purpose) -> Result<bool, Error> {
        loop {
            let (step, away) = {
                let mut core = self.core();
                if core.log.has_failed() {
                    core.abandon_checkpoint();
                    return Ok(false);
                }
                (core.checkpoint_step(), core.away())
            };
            match step {
                Step::More => yield_now().await,
                Step::Missing(missing) => self.load_for_overlay(missing).await?,
                Step::Wait => {
                    self.wait_for(|core| match core.log.must_wait(Appender::Checkpoint) {
                        false => Some(Ok(())),
                        true => core.gave_up_writing().map(Err),
                    })
                    .await?;
                }
                // What readers still use becomes free.
                Step::NoSegment if self.wait_for_readers(away).await => self.core().mode.writable()?,
                Step::NoSegment if purpose == Purpose::Extra => {
                    self.core().abandon_checkpoint();
                    return Err(Error::NoSpace);
                }
                Step::NoSegment => return Err(self.poison_without_segments()),
                Step::Done => return Ok(true),
            }
        }
    }

    /// Loads a node that an overlay of the checkpoint needs, or notes that it cannot be read.
    async fn load_for_overlay(self: &Arc<Self>, missing: Missing) -> Result<(), Error> {
        let is_lost = {
            let core = self.core();
            core.lost.over(missing.id, core.ticks).is_some()
        };
        let loaded = if is_lost { Ok(false) } else { self.load(missing).await.map(|()| true) };
        match loaded {
            Ok(false) | Err(Error::Io(_) | Error::Corrupt(_)) => {
                if let Some(progress) = &mut self.core().checkpoints.in_progress {
                    progress.unreadable.insert(missing.id);
                }
                Ok(())
            }
            loaded => loaded.map(drop),
        }
    }

    /// Poisons the drive because no segment is left for the map, and returns the error.
    fn poison_without_segments(&self) -> Error {
        let mut core = self.core();
        let (free, dead) = (core.segments.free_count(), core.segments.dead_count());
        let waiting = core.segments.waiting_count();
        let why = format!(
            "no segment is left for the map ({free} free, {dead} to be freed by a checkpoint, {waiting} still \
             read): it cannot go on"
        );
        core.mode.poison(why.clone());
        drop(core);
        self.progress.notify(usize::MAX);
        Error::poisoned(&why)
    }

    /// Writes the copies of a checkpoint to these places. Returns which were written. If none was, the drive
    /// is poisoned.
    async fn write_copies(self: &Arc<Self>, writing: &Writing, places: &[u64]) -> Result<Vec<bool>, Error> {
        let mut written = vec![false; places.len()];
        let mut failure = None;
        for (copy, (is_written, start)) in written.iter_mut().zip(places.iter().copied()).enumerate() {
            if copy >= SUPERBLOCK_COPIES && self.planted.has(PlantedBug::FarCopyForgotten) {
                continue;
            }
            self.core().table.begin_place(writing.number, copy);
            match self.write_parts(start, writing, copy).await {
                Ok(()) => *is_written = true,
                // If there was no room, it is written again completely when there is.
                Err(error @ (Error::ReadOnly(_) | Error::BackingFull)) => return Err(error),
                Err(error) => failure = Some(error),
            }
            self.core().note_copy(start, *is_written);
        }
        if let Some(error) = failure {
            let mut core = self.core();
            let why = format!("one of the places for checkpoints cannot be written: {error}");
            // One copy is a checkpoint, two are a safer one.
            match written.contains(&true) {
                true => core.note(why),
                false => core.mode.poison(why),
            }
        }
        Ok(written)
    }

    /// Writes the parts of a copy of a checkpoint, one after the other.
    async fn write_parts(self: &Arc<Self>, start: u64, writing: &Writing, copy: usize) -> Result<(), Error> {
        let mut from = 0;
        loop {
            let part = {
                let core = self.core();
                core.table.part(writing, copy, from, &core.segments)
            };
            let Some(part) = part else { return Ok(()) };
            let len = part.bytes.len() as u64;
            self.write_to_end(start + part.offset_bytes, part.bytes).await?;
            self.core().counters.map_written_bytes += len;
            from = part.next;
        }
    }
}
