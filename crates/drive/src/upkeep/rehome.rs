//! Packs that the medium did not take are written elsewhere.
//!
//! A pack that cannot be written leaves a gap in the log: an opening now would find the end of the log before
//! it. But its contents are all in memory. So its segment is not written any more, its live records are
//! appended again as cleaning would, changed nodes of the map are written again, and a checkpoint whose cut
//! lies behind all that makes the log with the gap unnecessary. Until then nothing behind the gap counts as
//! durable.

use std::sync::Arc;

use layout::Head;
use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::cleaning::Pass;
use crate::state::found_record::find_verified;
use crate::upkeep::clean::RECORDS_A_BATCH;

impl<M: Media> Shared<M> {
    /// Writes the contents of packs elsewhere that the medium did not take. The caller has the right to
    /// maintenance, and writes a checkpoint next.
    pub(crate) async fn rehome(self: &Arc<Self>) -> Result<(), Error> {
        loop {
            let failed = {
                let mut core = self.core();
                let failed = core.log.first_failed();
                if failed.is_some() {
                    // It may point to contents of the pack, and its cut may lie before it.
                    core.abandon_checkpoint();
                }
                failed
            };
            let Some((position, segment, buf)) = failed else { return Ok(()) };
            self.core().mode.writable()?;
            let (tag, generation, start) = {
                let core = self.core();
                let start = core.geometry().segment_offset(segment);
                (core.log.tag(), core.segments.get(segment).generation(), start)
            };
            let found = find_verified(&buf, tag, (segment, generation), position, (position - start) as u32);
            let mut pass = Pass::of_everything();
            let mut moved = true;
            for batch in found.chunks(RECORDS_A_BATCH) {
                moved &= self.move_batch(batch, &buf, &mut pass).await?;
            }
            if pass.unreadable {
                // The pack is still in memory. Another attempt may succeed.
                return Err(Error::Io(
                    "what a pack replaced that the medium did not take cannot be read".into(),
                ));
            }
            // Nothing may point to what never was on the medium.
            if !moved || !self.core().is_left(&found, &pass) {
                let why = "the medium did not take a pack, and what it holds cannot be written elsewhere";
                self.core().mode.poison(format!("{why}: byte {position:#x} of the backing"));
                self.progress.notify(usize::MAX);
                return Err(Error::poisoned(why));
            }
            let mut core = self.core();
            let core = &mut *core;
            core.log.rehomed(position, &mut core.segments);
            core.log.seal(Head::Cleaning, &mut core.segments);
        }
    }
}
