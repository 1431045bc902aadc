//! Making appended records durable. Concurrent flushes share packs and syncs. A gap in the log needs a
//! checkpoint.

use std::sync::Arc;

use layout::Head;
use media::Media;

use crate::error::Error;
use crate::medium::durability::{Next, next_step};
use crate::shared::{Shared, yield_now};
use crate::state::log::Log;

impl<M: Media> Shared<M> {
    /// Makes everything appended to the host's head durable. Callers that arrive while others wait for the
    /// medium share the next pack and its sync.
    pub(crate) async fn flush_log(self: &Arc<Self>) -> Result<(), Error> {
        let wanted = self.core().log.host_pack();
        // Requests that are ready at the same moment go into the same pack.
        yield_now().await;
        loop {
            let (target, sealed) = {
                let mut core = self.core();
                let core = &mut *core;
                let is_busy = core.log.durable() < core.syncs.flushing_up_to && !core.mode.is_poisoned();
                let mut sealed = core.log.host_sealed() >= wanted;
                if !sealed && !is_busy {
                    core.log.seal(Head::Host, &mut core.segments);
                    core.syncs.flushing_up_to = core.log.filled();
                    sealed = true;
                }
                let target = if sealed { core.log.host_filled() } else { core.syncs.flushing_up_to };
                (target, sealed)
            };
            self.durable(target).await?;
            if sealed {
                return Ok(());
            }
        }
    }

    /// Makes moved records durable too.
    pub(crate) async fn flush_moved(self: &Arc<Self>) -> Result<(), Error> {
        let target = self.seal(&[Head::Cleaning, Head::Host]);
        self.durable(target).await
    }

    /// Waits until every pack up to `target` (already sealed and sent) is durable, syncing as needed. The
    /// caller must not have the right to maintenance: if the medium did not take a pack, a checkpoint has to
    /// make it unnecessary.
    async fn durable(self: &Arc<Self>, target: u64) -> Result<(), Error> {
        loop {
            match self.wait_for(|core| next_step(core, target, Log::durable)).await? {
                Next::Done => return Ok(()),
                Next::Sync(mark) => self.sync_in_background(mark),
                Next::Checkpoint => {
                    let _right = self.maintenance().await;
                    if self.core().log.has_gap() {
                        self.write_checkpoint().await?;
                    }
                }
            }
        }
    }
}
