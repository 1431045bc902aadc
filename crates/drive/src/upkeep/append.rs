//! Appending a batch of a request, with whatever it takes to make room for it.

use std::sync::Arc;

use layout::{LEAF_LEVEL, NodeId};
use media::Media;

use crate::error::Error;
use crate::planted::PlantedBug;
use crate::shared::Shared;
use crate::state::batch::{Batch, Item};
use crate::state::core::Stall;
use crate::state::segments::Claim;
use crate::upkeep::relief::Effort;
use crate::wait::wait_until;

/// Other requests may take space as soon as it is made. Without a limit, a write might make some for ever.
const ATTEMPTS_MAX: u32 = 10_000;

impl<M: Media> Shared<M> {
    /// Loads the leaves that a batch changes, as far as they can be read. Returns whether any was unknown.
    pub(crate) async fn look_up(&self, batch: &Batch) -> bool {
        let mut any = false;
        let mut known = None;
        for (first, end) in batch.items.iter().map(Item::blocks) {
            for leaf in NodeId::leaf_of(first).index..=NodeId::leaf_of(end - 1).index {
                if known.replace(leaf) == Some(leaf) {
                    continue;
                }
                let id = NodeId { level: LEAF_LEVEL, index: leaf };
                loop {
                    let missing = self.core().map.complete(id).err();
                    let Some(missing) = missing else { break };
                    if self.load(missing).await.is_err() {
                        break;
                    }
                    any = true;
                }
            }
        }
        any
    }

    /// Appends a batch, waiting as long as necessary. Returns false if a block changed meanwhile, and the
    /// batch must be made anew. Waits for a request that holds a block, unless the caller `holds` it.
    pub(crate) async fn append(
        self: &Arc<Self>,
        batch: &Batch,
        source: &[u8],
        effort: &mut Effort,
        holds: bool,
    ) -> Result<bool, Error> {
        let mut attempts = ATTEMPTS_MAX;
        let mut urgent = Claim::Urgent;
        let mut looked_up = false;
        loop {
            if self.planted.has(PlantedBug::ComparedEarly) && !self.core().is_as_expected(batch) {
                return Ok(false);
            }
            let (result, away) = {
                let mut core = self.core();
                let must_wait = !holds && core.is_held(batch) && core.mode.writable().is_ok();
                let overruns = !holds && core.changes_held(batch);
                core.held.waits_count += u64::from(must_wait);
                let result = match must_wait {
                    true => Err(Stall::Held),
                    false => core.append_batch(batch, source, urgent),
                };
                if result.is_ok() {
                    core.held.overruns_count += u64::from(overruns);
                    core.counters.host_written_bytes += source.len() as u64;
                }
                (result, core.away())
            };
            if let Err(stall) = &result {
                tracing::debug!(?stall, "not appended");
            }
            match result {
                Ok(()) => return Ok(true),
                Err(Stall::Conflict) => return Ok(false),
                Err(Stall::Held) => self.wait_for_turn(batch).await,
                Err(Stall::Refused(error)) => return Err(error),
                Err(Stall::Full) => {
                    // What it replaces counts, and is known only if the map is loaded.
                    let news = !std::mem::replace(&mut looked_up, true) && self.look_up(batch).await;
                    if !news && !self.refine_accounts(effort).await? {
                        return Err(Error::NoSpace);
                    }
                }
                Err(Stall::Space) => {
                    attempts -= 1;
                    let made = self.make_space().await?;
                    // What frees space needs less than `make_space` looks for. It is tried once more, with
                    // what is kept for cleaning.
                    let last_try = batch.frees() && urgent != Claim::Last;
                    if !made && last_try {
                        urgent = Claim::Last;
                    }
                    if attempts == 0 || !(made || last_try || self.wait_for_readers(away).await) {
                        return Err(Error::NoSpace);
                    }
                }
                Err(Stall::Busy) => self.relieve().await?,
            }
        }
    }

    /// Waits until another request holds no block that `batch` changes, or until nothing can be written any
    /// more.
    async fn wait_for_turn(&self, batch: &Batch) {
        let is_over = || {
            let core = self.core();
            (!core.is_held(batch) || core.mode.writable().is_err()).then_some(())
        };
        wait_until(&self.progress, is_over).await;
    }
}
