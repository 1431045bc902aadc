//! Closing: everything becomes durable, and a last checkpoint leaves nothing to roll forward.

use std::sync::Arc;

use media::Media;

use crate::error::Error;
use crate::shared::{Drive, Shared};

/// Attempts at a last checkpoint while others write.
const CLEAN_CHECKPOINTS_MAX: u32 = 5;

impl<M: Media> Drive<M> {
    /// From now on nobody waits for room on a full backing, except for one more attempt, because no more
    /// ticks will come. To be called before the drive is closed, and before what calls [`Drive::tick`] is
    /// stopped.
    pub fn stop_waiting_for_room(&self) {
        let again = {
            let mut core = self.0.core();
            core.full_backing.set_patience(0);
            let now = core.ticks;
            core.full_backing.again(now)
        };
        self.0.write_out_again(again);
        self.0.progress.notify(usize::MAX);
    }

    /// Makes everything durable, writes a last checkpoint, and refuses everything from then on. Free space
    /// that the backing still holds may be given back then: see [`Drive::discard_closed`].
    pub async fn close(&self) -> Result<(), Error> {
        if self.0.core().mode.is_read_only() {
            self.0.core().mode.close();
            return Ok(());
        }
        self.stop_waiting_for_room();
        self.0.flush().await?;
        let _right = self.0.maintenance().await;
        if self.0.core().checkpoints.in_progress.is_some() {
            self.0.write_checkpoint().await?;
        }
        self.0.account_before_closing().await;
        // What a checkpoint freed is given back after the next, which has nothing but its slot to write.
        let mut gives_back = true;
        // Requests in flight may write meanwhile. A drive that never comes to rest opens as after a crash.
        for _ in 0..CLEAN_CHECKPOINTS_MAX {
            self.0.write_closing_checkpoint().await?;
            let (is_last, is_kept) = {
                let core = self.0.core();
                let is_kept = core.may_discard() && core.segments.kept_for_fallback_count() > 0;
                (core.log.host_is_behind(core.checkpoints.cut_committed), is_kept)
            };
            if is_last {
                if is_kept && std::mem::take(&mut gives_back) {
                    continue;
                }
                return self.0.finish_closing().await;
            }
        }
        self.0.write_checkpoint().await?;
        self.0.finish_closing().await
    }
}

impl<M: Media> Shared<M> {
    /// Everything is durable but the parity of what the heads filled: the next opening finds it.
    async fn finish_closing(self: &Arc<Self>) -> Result<(), Error> {
        self.finish_parity().await;
        let is_written = self.core().parity.is_written();
        let synced = if is_written { self.sync_once().await } else { Ok(()) };
        self.core().mode.close();
        synced
    }
}
