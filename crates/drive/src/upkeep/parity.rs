//! Parity of fillings: written when the last pack of one was, and made for those that a crash left without.
//!
//! Parity is no pack: no flush waits for it, and a failed write of it is no gap in the log.

use std::sync::Arc;

use layout::ParityShape;
use layout::pack::{PACK_HEADER_BYTES, PackAddress, PackHeader, decode_pack};
use media::{IoBuf, Media};
use space::PACK_HARD_BYTES;

use crate::error::lacks_room;
use crate::medium::write_out::bad_segments_max;
use crate::planted::PlantedBug;
use crate::shared::{Shared, yield_now};
use crate::state::accumulator::{Accumulator, FillingId};
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
        let row = self.segments.get(id.segment);
        let is_there = row.generation() == id.generation && row.live_units() > 0;
        let is_there = is_there && matches!(row.state(), SegmentState::Open | SegmentState::Sealed);
        is_there.then(|| self.segments.pin(id.segment))
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

    /// After an opening: every filling of which no checkpoint says that its parity is there has to be looked
    /// at.
    pub(crate) fn list_unprotected(&mut self) {
        let known = self.segments.known();
        let wanted = known.filter(|(_, row)| {
            row.parity().part().is_some()
                && !row.has_parity()
                && row.live_units() > 0
                && row.state() == SegmentState::Sealed
        });
        let ids = wanted.map(|(segment, row)| FillingId { segment, generation: row.generation() });
        self.parity.to_make = ids.collect();
    }

    fn take_to_make(&mut self) -> Option<(FillingId, Pin)> {
        while self.mode.writable().is_ok()
            && !self.parity.is_hurried
            && let Some(id) = self.parity.to_make.pop_first()
        {
            if let Some(pin) = self.pin_filling(id).filter(|_| !self.segments.get(id.segment).has_parity()) {
                return Some((id, pin));
            }
        }
        None
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
        {
            let mut core = self.core();
            core.mark_unchanged();
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
            let masked = !self.planted.has(PlantedBug::ParityUnmasked);
            let pieces = accumulator.lock().pieces(log_id, tag, masked);
            let bytes = pieces.iter().map(|(_, piece)| piece.len() as u64).sum::<u64>();
            let begun = accumulator.lock().written_pieces;
            let outcome = self.write_pieces(id, pieces, begun).await;
            let mut core = self.core();
            match outcome {
                Outcome::Written => {
                    tracing::debug!(?id, bytes, "parity written");
                    core.parity.written(id);
                    if self.planted.has(PlantedBug::ParityPresentEarly) {
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
                Outcome::NoRoom => _ = core.parity.to_make.insert(id),
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
        let Some(_pin) = pin else { return Outcome::Unwanted };
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

    /// Makes the parity of fillings of earlier runs, unless that is being done.
    pub(crate) fn make_parity_in_background(self: &Arc<Self>) {
        {
            let mut core = self.core();
            core.mark_unchanged();
            let parity = &core.parity;
            if parity.is_making
                || parity.to_make.is_empty()
                || parity.is_hurried
                || core.full_backing.is_full()
            {
                return;
            }
            core.parity.is_making = true;
        }
        let shared = self.clone();
        (self.spawner)(Box::pin(async move { shared.make_parity().await }));
    }

    async fn make_parity(self: Arc<Self>) {
        loop {
            let next = {
                let mut core = self.core();
                let next = core.take_to_make();
                if next.is_none() {
                    core.parity.is_making = false;
                }
                next
            };
            let Some((id, _pin)) = next else { break };
            if self.has_index(id).await {
                self.core().segments.set_has_parity(id);
            } else if let Some(made) = self.read_filling(id).await {
                self.accumulators.insert(id, made);
                self.write_parity_in_background();
                // One at a time, for the memory that it takes.
                self.wait_for(|core| {
                    let is_there = self.accumulators.get(id).is_some() && core.mode.writable().is_ok();
                    (!is_there || core.parity.is_hurried).then_some(())
                })
                .await;
            } else {
                // What can be read of it is safer elsewhere.
                self.core().parity.worn.insert(id);
            }
        }
        self.progress.notify(usize::MAX);
    }

    /// Returns whether the parity of a filling of an earlier run is there.
    async fn has_index(&self, id: FillingId) -> bool {
        let (log_id, form, last) = {
            let core = self.core();
            let row = core.segments.get(id.segment);
            (core.superblock.log_id(), row.parity(), row.last_sequence())
        };
        let found = self.of(&log_id).read_index(id, Some(form)).await;
        found.is_some_and(|(index, _)| index.last_sequence == last)
    }

    /// Reads a filling of an earlier run up to its last pack, and adds up its parity. Nothing if a page of it
    /// cannot be read or is not as it was written.
    async fn read_filling(&self, id: FillingId) -> Option<Accumulator> {
        let (geometry, form, log_id, last) = {
            let core = self.core();
            let row = core.segments.get(id.segment);
            (*core.geometry(), row.parity(), core.superblock.log_id(), row.last_sequence())
        };
        let shape = ParityShape::new(geometry.segment_bytes, form)?;
        let start = geometry.segment_offset(id.segment);
        let mut made = Accumulator::new(id, shape);
        let mut offset = 0;
        while offset < shape.room_bytes() {
            let len = (shape.room_bytes() - offset).min(WINDOW_BYTES);
            let (window, read) =
                self.media.read(start + u64::from(offset), IoBuf::pooled(len as usize)).await;
            read.ok()?;
            Self::count(&self.media_read_bytes, u64::from(len));
            let mut at = 0;
            while at < len {
                let bytes = &window[at as usize..];
                let place = PackAddress {
                    uuid: &log_id,
                    segment: id.segment,
                    generation: id.generation,
                    offset: offset + at,
                };
                let header = PackHeader::decode(bytes).ok();
                let header = header.filter(|header| header.len as usize <= PACK_HARD_BYTES)?;
                if header.len > len - at {
                    break;
                }
                decode_pack(bytes, place, |_, _| {}).ok()?;
                made.add(offset + at, &bytes[..header.len as usize]);
                at += header.len;
                if header.sequence == last {
                    made.close(offset + at, last);
                    return Some(made);
                }
            }
            if at == 0 {
                return None;
            }
            offset += at;
            yield_now().await;
        }
        None
    }

    /// Before the drive is closed: nothing waits for a good moment any more, and what heads have left or leave
    /// now gets its parity. Returns once it is written.
    pub(crate) async fn finish_parity(self: &Arc<Self>) {
        {
            let mut core = self.core();
            let core = &mut *core;
            core.parity.is_hurried = true;
            core.log.leave_segments(&mut core.segments);
        }
        self.close_fillings();
        self.progress.notify(usize::MAX);
        self.write_parity_in_background();
        self.wait_for(|core| (!core.parity.is_writing && !core.parity.is_making).then_some(())).await;
    }
}

/// Bytes of a filling that are read at once: several of the largest packs.
const WINDOW_BYTES: u32 = 2 << 20;
const _: () = assert!(WINDOW_BYTES as usize >= PACK_HARD_BYTES && PACK_HARD_BYTES > PACK_HEADER_BYTES);

impl Core {
    /// The medium did not take parity. Its segment is set aside as after any failed write, unless there are
    /// too many: what lives there stays readable.
    fn parity_failed(&mut self, id: FillingId, error: &std::io::Error) {
        self.counters.write_errors_count += 1;
        let row = self.segments.get(id.segment);
        let (_, bad) = self.segments.set_aside_counts();
        let is_sealed = row.generation() == id.generation && row.state() == SegmentState::Sealed;
        if is_sealed && bad < bad_segments_max(self.segments.count()) {
            self.note(format!(
                "segment {} takes no writes and is not used any more: writing its parity failed: {error}",
                id.segment
            ));
            self.segments.set_aside(id.segment, SegmentState::Bad);
        }
    }
}
