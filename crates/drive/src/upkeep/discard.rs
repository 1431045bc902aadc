//! Free space goes back to the backing.

use std::sync::Arc;

use media::Media;

use crate::shared::Shared;
use crate::state::full_backing::lacks_room;

impl<M: Media> Shared<M> {
    /// Gives one freed segment's space back to the backing. In the background, to its end: while it is under way the
    /// segment must not be written.
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
                    // Giving space back may take some: of a copy-on-write file system there may be none left.
                    Err(error) if lacks_room(&error) => {}
                    // Not worth an error: the space is merely not given back.
                    Err(_) => core.discard_unsupported = true,
                }
            }
            shared.progress.notify(usize::MAX);
        }));
        true
    }
}
