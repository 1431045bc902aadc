//! Parity is made from the medium for fillings that a crash left without, and for those whose parity was
//! dropped from memory because too much of it waited.

use std::sync::Arc;

use layout::ParityShape;
use layout::pack::{PACK_HEADER_BYTES, PackAddress, PackHeader, decode_pack};
use media::{IoBuf, Media};
use space::PACK_HARD_BYTES;

use crate::shared::{Shared, yield_now};
use crate::state::accumulator::{Accumulator, FillingId};
use crate::state::core::Core;
use crate::state::pins::Pin;
use crate::state::segments::SegmentState;

/// Bytes of a filling that are read at once: several of the largest packs.
const WINDOW_BYTES: u32 = 2 << 20;
const _: () = assert!(WINDOW_BYTES as usize >= PACK_HARD_BYTES && PACK_HARD_BYTES > PACK_HEADER_BYTES);

/// Fillings whose parity was dropped from memory and is made before the drive is closed. The next opening
/// makes that of the others.
const MADE_AT_CLOSE_MAX: u32 = 32;

impl Core {
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
            && let Some(id) = self.parity.take_to_make(self.ticks)
        {
            if let Some(pin) = self.pin_filling(id).filter(|_| !self.segments.get(id.segment).has_parity()) {
                return Some((id, pin));
            }
        }
        None
    }
}

impl<M: Media> Shared<M> {
    /// Makes the parity of fillings that have none, unless that is being done.
    pub(crate) fn make_parity_in_background(self: &Arc<Self>) {
        {
            let mut core = self.core();
            core.mark_unchanged();
            if core.parity.is_making || !core.parity.makes(core.ticks) || core.full_backing.is_full() {
                return;
            }
            core.parity.is_making = true;
        }
        let shared = self.clone();
        (self.spawner)(Box::pin(async move { shared.make_parity().await }));
    }

    async fn make_parity(self: Arc<Self>) {
        loop {
            // What is made here would be dropped again otherwise.
            self.wait_for(|core| {
                (self.accumulators.few_wait() || core.mode.writable().is_err()).then_some(())
            })
            .await;
            let next = {
                let mut core = self.core();
                let next = core.take_to_make();
                core.parity.making = next.as_ref().map(|(id, _)| *id);
                core.parity.is_making = next.is_some();
                next
            };
            let Some((id, _pin)) = next else { break };
            if self.has_parity(id).await {
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
                let mut core = self.core();
                core.give_up_parity(id);
                if !core.parity.is_failing(core.ticks) {
                    core.parity.worn.insert(id);
                }
            }
        }
        self.progress.notify(usize::MAX);
    }

    /// Returns whether the parity of a filling is there, all of it: a crash may have taken some of its
    /// pieces.
    async fn has_parity(&self, id: FillingId) -> bool {
        let (log_id, form, last) = {
            let core = self.core();
            let row = core.segments.get(id.segment);
            (core.superblock.log_id(), row.parity(), row.last_sequence())
        };
        match self.of(&log_id).on_medium(id, Some(form), Some(last)).await {
            Some(cover) => cover.bad_parity().await.is_empty(),
            None => false,
        }
    }

    /// Reads a filling up to its last pack, and adds up its parity. Nothing if a page of it cannot be read or
    /// is not as it was written.
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

    /// Before the drive is closed: nothing waits for a good moment any more, and what heads have left or
    /// leave now gets its parity. Returns once it is written.
    pub(crate) async fn finish_parity(self: &Arc<Self>) {
        let hurry = Hurry(self);
        {
            let mut core = self.core();
            let core = &mut *core;
            core.parity.is_hurried = true;
            core.parity.makes_at_close = MADE_AT_CLOSE_MAX;
            core.log.leave_segments(&mut core.segments);
        }
        self.close_fillings();
        self.progress.notify(usize::MAX);
        self.write_parity_in_background();
        self.make_parity_in_background();
        self.wait_for(|core| (!core.parity.is_writing && !core.parity.is_making).then_some(())).await;
        std::mem::forget(hurry);
    }
}

/// Ends the hurry if closing is given up.
struct Hurry<'a, M: Media>(&'a Shared<M>);

impl<M: Media> Drop for Hurry<'_, M> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.0.core().parity.is_hurried = false;
        }
    }
}
