//! Discarding of free space in the backing.

use std::sync::Arc;

use media::Media;

use crate::error::lacks_room;
use crate::shared::Shared;

impl<M: Media> Shared<M> {
    /// Discards the space of one freed segment, in the background and to completion: until then the segment must not
    /// be written.
    pub(crate) fn discard_one(self: &Arc<Self>) -> bool {
        let taken = {
            let mut core = self.core();
            let segment = core.segments.take_for_discard();
            core.discarding = segment.is_some();
            segment.map(|s| (s, core.geometry().segment_offset(s), u64::from(core.geometry().segment_bytes)))
        };
        let Some((segment, offset, len)) = taken else { return false };
        let shared = self.clone();
        (self.spawner)(Box::pin(async move {
            let result = shared.media.discard(offset, len).await;
            {
                let mut core = shared.core();
                core.segments.discarded(segment);
                core.discarding = false;
                match result {
                    Ok(()) => core.counters.discarded_bytes += len,
                    // A discard may need space itself: a copy-on-write file system may have none left.
                    Err(error) if lacks_room(&error) => {}
                    // Not worth an error: the space is merely not discarded.
                    Err(_) => core.discard_unsupported = true,
                }
            }
            shared.progress.notify(usize::MAX);
        }));
        true
    }
}
