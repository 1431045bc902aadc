//! Syncs of the medium, one at a time, and what is durable by them.

use std::sync::Arc;

use layout::Head;
use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::core::Core;
use crate::state::log::Log;

/// If no host asks for durability, a sync follows after this part of the log between two checkpoints.
const UNSYNCED_PART: u64 = 4;

/// Next step of a request that waits for durability.
pub(crate) enum Next {
    Done,
    /// Sync, for everything up to this number.
    Sync(u64),
    /// Close a gap in the log.
    Checkpoint,
}

impl Core {
    /// A sync is about to be issued. Returns up to which pack it will have made the log durable.
    fn begin_sync(&mut self) -> u64 {
        assert!(!self.syncs.in_progress, "two syncs at a time");
        self.syncs.in_progress = true;
        // Unless some of it is still on its way.
        self.parity.has_moved &= !self.log.is_written();
        self.log.sync_begins();
        self.parity.sync_begins();
        self.log.written()
    }

    /// If much was written since the last sync, begins one, so that the next opening has little to write
    /// again: what no pack calls durable. Returns the same as [`Core::begin_sync`].
    pub(crate) fn begin_due_sync(&mut self) -> Option<u64> {
        let is_due = self.log.unsynced_bytes() >= self.checkpoints.interval_bytes / UNSYNCED_PART;
        (is_due && !self.syncs.in_progress && !self.mode.is_poisoned()).then(|| self.begin_sync())
    }

    /// What was moved off repaired pages is written: begins a sync. Returns the same as
    /// [`Core::begin_sync`].
    pub(crate) fn begin_sync_of_moves(&mut self) -> Option<u64> {
        let is_due = self.parity.has_moved && self.log.is_written();
        (is_due && !self.syncs.in_progress && !self.mode.is_poisoned()).then(|| self.begin_sync())
    }
}

/// Next step of a request that waits until `reached` is at `target`. `None` if it only has to wait.
pub(crate) fn next_step(
    core: &mut Core,
    target: u64,
    reached: fn(&Log) -> u64,
) -> Option<Result<Next, Error>> {
    if reached(&core.log) >= target {
        return Some(Ok(Next::Done));
    }
    if let Err(poisoned) = core.mode.trusted() {
        return Some(Err(poisoned));
    }
    if core.log.written() < target {
        return core.gave_up_writing().map(Err);
    }
    if core.syncs.in_progress {
        return None;
    }
    if core.log.synced_up_to() >= target {
        return Some(Ok(Next::Checkpoint));
    }
    Some(Ok(Next::Sync(core.begin_sync())))
}

impl<M: Media> Shared<M> {
    /// Seals open packs, which sends them to the medium. Returns the number that has to be durable for them
    /// to be.
    pub(crate) fn seal(&self, heads: &[Head]) -> u64 {
        let mut core = self.core();
        let core = &mut *core;
        for head in heads {
            core.log.seal(*head, &mut core.segments);
        }
        core.log.filled()
    }

    /// Waits until every pack up to `target` was written and synced, except those that the medium did not
    /// take.
    pub(crate) async fn synced(self: &Arc<Self>, target: u64) -> Result<(), Error> {
        loop {
            match self.wait_for(|core| next_step(core, target, Log::synced_up_to)).await? {
                Next::Sync(mark) => self.sync_in_background(mark),
                Next::Done | Next::Checkpoint => return Ok(()),
            }
        }
    }

    /// In the background, so that the sync counts even if the request that needs it is dropped.
    pub(crate) fn sync_in_background(self: &Arc<Self>, mark: u64) {
        let shared = self.clone();
        (self.spawner)(Box::pin(async move { shared.sync(mark).await }));
    }

    /// Syncs the medium once, for what was written outside the log. Like every sync it waits for the one in
    /// progress: of two at a time, one could swallow the error that concerns the other's writes, and report
    /// success.
    pub(crate) async fn sync_once(self: &Arc<Self>) -> Result<(), Error> {
        let begun = self.wait_for(|core| match core.mode.trusted() {
            Err(poisoned) => Some(Err(poisoned)),
            Ok(()) if core.syncs.in_progress => None,
            Ok(()) => Some(Ok((core.syncs.ended_count, core.begin_sync()))),
        });
        let (done_before, mark) = begun.await?;
        self.sync_in_background(mark);
        self.wait_for(|core| match core.mode.trusted() {
            Err(poisoned) => Some(Err(poisoned)),
            Ok(()) => (core.syncs.ended_count > done_before).then_some(Ok(())),
        })
        .await
    }

    async fn sync(self: Arc<Self>, mark: u64) {
        let result = self.media.sync().await;
        tracing::debug!(mark, error = result.as_ref().err().map(tracing::field::display), "medium synced");
        {
            let mut core = self.core();
            let was_syncing = std::mem::replace(&mut core.syncs.in_progress, false);
            assert!(was_syncing, "two syncs at a time");
            core.syncs.ended_count += 1;
            match result {
                // After a failed write or sync, success means nothing any more for earlier writes.
                Ok(()) if core.mode.is_poisoned() => {}
                Ok(()) => {
                    core.log.synced(mark);
                    core.parity_synced();
                }
                Err(error) => {
                    core.counters.write_errors_count += 1;
                    core.log.sync_failed();
                    core.mode.poison(format!("a sync of the backing failed: {error}"));
                }
            }
        }
        self.write_parity_in_background();
        self.progress.notify(usize::MAX);
    }
}
