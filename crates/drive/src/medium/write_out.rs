//! Writes to the medium: packs of the log, and everything outside the log.

use std::sync::{Arc, OnceLock};

use layout::ParityShape;
use media::{IoBuf, Media};

use crate::error::{Error, lacks_room};
use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::accumulator::FillingId;
use crate::state::core::Core;
use crate::state::log::SealedPack;
use crate::state::segments::SegmentState;

/// Most packs that the medium does not take between two checkpoints, or at an opening. Their contents stay in
/// memory until the second.
pub(crate) const FAILED_PACKS_MAX: u32 = 128;
/// One of so many segments may be bad, at most. With more, the whole medium is broken, and not a place on it.
const BAD_SEGMENTS_PART: u32 = 8;
const BAD_SEGMENTS_MIN: u32 = 6;

impl<M: Media> Shared<M> {
    /// Sends sealed packs to the medium, in the background.
    pub(crate) fn write_out(self: Arc<Self>, packs: Vec<SealedPack>) {
        for pack in packs {
            let shared = self.clone();
            (self.spawner)(Box::pin(async move { shared.write_pack(pack, false).await }));
        }
    }

    /// Sends packs to the medium again for which it had no room.
    pub(crate) fn write_out_again(self: &Arc<Self>, packs: Vec<SealedPack>) {
        for pack in packs {
            let shared = self.clone();
            (self.spawner)(Box::pin(async move { shared.write_pack(pack, true).await }));
        }
    }

    async fn write_pack(self: Arc<Self>, pack: SealedPack, again: bool) {
        let id = FillingId { segment: pack.segment, generation: pack.generation };
        let shape = ParityShape::new(self.segment_bytes, pack.parity);
        if let Some(shape) = shape {
            self.accumulators.begin(id, shape, pack.offset, &pack.buf);
        }
        let result = self.media.write(pack.position, pack.buf.clone()).await;
        tracing::debug!(
            sequence = pack.sequence,
            head = ?pack.head,
            segment = pack.segment,
            position = pack.position,
            len = pack.buf.len(),
            error = result.as_ref().err().map(tracing::field::display),
            "pack written"
        );
        if self.planted.has(PlantedBug::PackAddedTwice) {
            self.accumulators.add_again(id, pack.offset, &pack.buf);
        }
        // Before the copy in memory goes.
        if shape.is_some() && self.accumulators.finish(id, pack.offset, result.is_ok()) {
            self.write_parity_in_background();
        }
        let (due, has_closed) = {
            let mut core = self.core();
            let core = &mut *core;
            match result {
                Ok(()) => {
                    core.log.pack_written(&pack, &mut core.segments);
                    let len = pack.buf.len() as u64;
                    core.counters.physical_written_bytes += len;
                    match pack.head {
                        layout::Head::Host => {}
                        layout::Head::Cleaning => core.counters.cleaning_written_bytes += len,
                        layout::Head::Map => core.counters.map_written_bytes += len,
                    }
                }
                Err(error) if lacks_room(&error) => core.full_backing.wait(pack, core.ticks),
                // The drive was taken over: no place is bad for that.
                Err(error) if core.mode.poison_reason() == Some(&*error.to_string()) => {}
                Err(error) => core.pack_failed(pack, &error),
            }
            if again {
                core.full_backing.attempted();
            }
            (core.begin_due_sync(), core.log.has_closed())
        };
        if has_closed {
            self.close_fillings();
        }
        self.progress.notify(usize::MAX);
        if let Some(mark) = due {
            self.sync_in_background(mark);
        }
    }

    /// Writes outside the log, one at a time and each to completion, even if the request that needs it is
    /// dropped: a write still in flight when the same place is written again could come last. The caller
    /// handles a failure.
    pub(crate) async fn write_to_end(self: &Arc<Self>, offset: u64, buf: Arc<IoBuf>) -> Result<(), Error> {
        {
            let core = self.core();
            let segment = core.geometry().locate(offset).map(|(segment, _)| segment);
            let is_aside = segment.is_none_or(|segment| core.geometry().is_far(segment));
            assert!(is_aside, "segments are written by the log alone");
        }
        let begun = self.wait_for(|core| match core.mode.trusted() {
            Err(poisoned) => Some(Err(poisoned)),
            Ok(()) if core.writing_aside => None,
            Ok(()) => {
                core.writing_aside = true;
                Some(Ok(()))
            }
        });
        begun.await?;
        let done = Arc::new(OnceLock::new());
        let (shared, outcome) = (self.clone(), done.clone());
        (self.spawner)(Box::pin(async move {
            let len = buf.len() as u64;
            let result = shared.media.write(offset, buf).await;
            {
                let mut core = shared.core();
                let was_writing = std::mem::replace(&mut core.writing_aside, false);
                assert!(was_writing, "two writes outside the log at a time");
                match &result {
                    Ok(()) => core.counters.physical_written_bytes += len,
                    Err(_) => core.counters.write_errors_count += 1,
                }
            }
            let doing = || format!("writing at byte {offset:#x} of the backing");
            let _ = outcome.set(result.map_err(|error| Error::not_taken(&doing(), &error)));
            shared.progress.notify(usize::MAX);
        }));
        self.wait_for(|core| match done.get() {
            Some(result) => Some(result.clone()),
            None => core.mode.trusted().err().map(Err),
        })
        .await
    }
}

/// Most bad segments of `count` segments.
pub(crate) fn bad_segments_max(count: u32) -> u32 {
    (count / BAD_SEGMENTS_PART).max(BAD_SEGMENTS_MIN)
}

impl Core {
    /// The medium did not take a pack. One place may be bad. If many are, continuing elsewhere does not help.
    fn pack_failed(&mut self, pack: SealedPack, error: &std::io::Error) {
        self.counters.write_errors_count += 1;
        self.failed_packs += 1;
        let (position, segment) = (pack.position, pack.segment);
        let what = format!("writing a pack at byte {position:#x} of the backing failed: {error}");
        let is_known = self.segments.get(segment).state() == SegmentState::Bad;
        let (_, bad) = self.segments.set_aside_counts();
        if self.failed_packs > FAILED_PACKS_MAX || !is_known && bad >= bad_segments_max(self.segments.count())
        {
            self.mode.poison(what);
        } else {
            self.note(format!("segment {segment} takes no writes and is not used any more: {what}"));
            self.log.pack_failed(pack, &mut self.segments);
        }
    }
}
