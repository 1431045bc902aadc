//! Parity goes out to the medium, when the last pack of a filling was written.
//!
//! Parity is no pack: no flush waits for it, and a failed write of it is no gap in the log.

use std::sync::Arc;

use media::{IoBuf, Media};

use crate::error::lacks_room;
use crate::medium::write_out::bad_segments_max;
use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::accumulator::FillingId;
use crate::state::core::Core;
use crate::state::pins::Pin;
use crate::state::segments::SegmentState;

/// With more complete fillings, their parity goes out even while a flush waits.
const COMPLETE_MAX: usize = 1;

/// What became of writing the parity of a filling.
enum Outcome {
    Written,
    /// A flush waits; so many pieces are written.
    Paused(usize),
    /// The backing has no room now.
    NoRoom,
    Failed(std::io::Error),
    /// Nothing lives there any more, or the drive writes nothing.
    Unwanted,
}

impl Core {
    /// Pins a filling if something lives in it.
    pub(crate) fn pin_filling(&mut self, id: FillingId) -> Option<Pin> {
        self.lives(id).then(|| self.segments.pin(id.segment))
    }

    /// Returns whether something lives in a filling that is not set aside.
    pub(crate) fn lives(&self, id: FillingId) -> bool {
        let row = self.segments.get(id.segment);
        let is_there = row.generation() == id.generation && row.live_units() > 0;
        is_there && matches!(row.state(), SegmentState::Open | SegmentState::Sealed)
    }

    /// The parity of these is not in memory any more, and is made later.
    fn drop_parity(&mut self, ids: Vec<FillingId>) {
        let kept: Vec<FillingId> = self.parity.dropped.drain(..).chain(ids).collect();
        let lives: Vec<FillingId> = kept.into_iter().filter(|id| self.lives(*id)).collect();
        self.parity.dropped.extend(lives);
    }

    /// A filling stays without parity.
    pub(crate) fn give_up_parity(&mut self, id: FillingId) {
        let segments = &self.segments;
        self.parity.give_up(id, |id| segments.get(id.segment).generation() == id.generation);
    }

    /// A flush waits for the medium.
    fn flush_waits(&self) -> bool {
        self.log.durable() < self.syncs.flushing_up_to && !self.log.has_gap()
    }

    /// A sync succeeded: the parity that was written before it is there.
    pub(crate) fn parity_synced(&mut self) {
        for id in self.parity.synced() {
            self.segments.set_has_parity(id);
        }
    }

    /// The medium did not take parity. Its segment is set aside as after any failed write, unless there are
    /// too many: what lives there stays readable.
    fn parity_failed(&mut self, id: FillingId, error: &std::io::Error) {
        // The drive was taken over: no place is bad for that.
        if self.mode.poison_reason() == Some(&*error.to_string()) {
            return;
        }
        self.counters.write_errors_count += 1;
        let row = self.segments.get(id.segment);
        let (_, bad) = self.segments.set_aside_counts();
        let is_sealed = row.generation() == id.generation && row.state() == SegmentState::Sealed;
        let then = match is_sealed && bad < bad_segments_max(self.segments.count()) {
            true => {
                self.segments.set_aside(id.segment, SegmentState::Bad);
                "takes no writes and is not used any more"
            }
            false => {
                self.give_up_parity(id);
                "has no parity"
            }
        };
        self.note(format!("segment {} {then}: writing its parity failed: {error}", id.segment));
    }
}

impl<M: Media> Shared<M> {
    /// Takes fillings that heads have left since, and writes the parity of those that are complete.
    pub(crate) fn close_fillings(self: &Arc<Self>) {
        let closed = {
            let mut core = self.core();
            core.mark_unchanged();
            let closed = core.log.take_closed();
            // Segments that took no write are emptied, and have no parity.
            self.accumulators.retain(|id| {
                let row = core.segments.get(id.segment);
                row.generation() == id.generation && !row.is_set_aside()
            });
            closed
        };
        let mut is_due = false;
        for filling in &closed {
            is_due |= self.accumulators.close(filling, self.segment_bytes);
        }
        if is_due {
            self.write_parity_in_background();
        }
    }

    /// Returns whether the parity of complete fillings can go out now. What waits for a flush to end goes on
    /// at the next sync or tick.
    fn may_write_parity(&self, core: &Core) -> bool {
        let count = self.accumulators.complete_count();
        count > COMPLETE_MAX || count > 0 && (core.parity.is_hurried || !core.flush_waits())
    }

    /// Writes the parity of complete fillings, unless that is being done or a flush waits.
    pub(crate) fn write_parity_in_background(self: &Arc<Self>) {
        if self.accumulators.complete_count() == 0 {
            return;
        }
        let surplus = self.accumulators.take_surplus();
        {
            let mut core = self.core();
            match surplus.is_empty() {
                true => core.mark_unchanged(),
                false => core.drop_parity(surplus),
            }
            if core.parity.is_writing || !self.may_write_parity(&core) {
                return;
            }
            core.parity.is_writing = true;
        }
        let shared = self.clone();
        (self.spawner)(Box::pin(async move { shared.write_parity().await }));
    }

    async fn write_parity(self: Arc<Self>) {
        loop {
            let next = {
                let mut core = self.core();
                let next = match self.may_write_parity(&core) {
                    true => self.accumulators.next_complete(),
                    false => None,
                };
                // One that becomes complete from now on finds no task at work.
                core.parity.is_writing = next.is_some();
                next
            };
            let Some((id, accumulator)) = next else { break };
            let (log_id, tag) = {
                let core = self.core();
                (core.superblock.log_id(), core.log.tag())
            };
            let pieces = accumulator.lock().pieces(log_id, tag);
            let bytes = pieces.iter().map(|(_, piece)| piece.len() as u64).sum::<u64>();
            let begun = accumulator.lock().written_pieces;
            let outcome = self.write_pieces(id, pieces, begun).await;
            let mut core = self.core();
            match outcome {
                Outcome::Written => {
                    tracing::debug!(?id, bytes, "parity written");
                    core.parity.written(id);
                    if self.planted.has(PlantedBug::ParityTrustedUnsynced) {
                        core.segments.set_has_parity(id);
                    }
                    core.counters.physical_written_bytes += bytes;
                    core.parity.parity_written_bytes += bytes;
                }
                Outcome::Paused(pieces) => {
                    accumulator.lock().written_pieces = pieces;
                    self.accumulators.put_back(id);
                    continue;
                }
                Outcome::NoRoom => {
                    let now = core.ticks;
                    core.parity.make_later(id, now);
                }
                Outcome::Failed(error) => core.parity_failed(id, &error),
                Outcome::Unwanted => {}
            }
            drop(core);
            self.accumulators.remove(id);
        }
        self.progress.notify(usize::MAX);
    }

    async fn write_pieces(&self, id: FillingId, pieces: Vec<(u32, IoBuf)>, begun: usize) -> Outcome {
        let (pin, start) = {
            let mut core = self.core();
            (core.pin_filling(id), core.geometry().segment_offset(id.segment))
        };
        let Some(pin) = pin else { return Outcome::Unwanted };
        let _pin = (!self.planted.has(PlantedBug::ParityUnpinned)).then_some(pin);
        for (number, (offset, piece)) in pieces.into_iter().enumerate().skip(begun) {
            {
                let core = self.core();
                if core.mode.writable().is_err() {
                    return Outcome::Unwanted;
                }
                let is_urgent = core.parity.is_hurried || self.accumulators.complete_count() >= COMPLETE_MAX;
                if core.flush_waits() && !is_urgent {
                    return Outcome::Paused(number);
                }
            }
            match self.media.write(start + u64::from(offset), Arc::new(piece)).await {
                Ok(()) => {}
                Err(error) if lacks_room(&error) => return Outcome::NoRoom,
                Err(error) => return Outcome::Failed(error),
            }
        }
        Outcome::Written
    }
}
