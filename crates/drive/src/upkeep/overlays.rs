//! Leaves of which only changes are in memory are loaded, so that what died under them is accounted.

use std::cell::Cell;
use std::sync::Arc;

use layout::NodeId;
use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::core::Core;

/// Leaves loaded in a round to account what changes to them replaced; in addition to cleared ones, which take
/// no memory.
const LEAVES_A_ROUND: usize = 256;
/// Their memory at most.
pub(crate) const BYTES_A_ROUND: u64 = (LEAVES_A_ROUND * layout::BLOCK_BYTES) as u64;

impl Core {
    /// Number of free segments that writing the map does not need, available for leaves that are loaded.
    pub(crate) fn spare_for_leaves(&self) -> u32 {
        self.segments.free_count().saturating_sub(self.segments.map_need() + 1)
    }
}

impl<M: Media> Shared<M> {
    /// Loads some leaves, to account what died under them. Returns false if that was not possible; then it is
    /// not repeated before something has changed.
    pub(crate) async fn account(self: &Arc<Self>) -> bool {
        // What cannot be read now continues to count.
        let did = self.loads_overlays().await;
        let mut core = self.core();
        core.accounts_tried = Some(core.log.sequence()).filter(|_| !did);
        did
    }

    /// Makes the accounting exact before the drive is closed, so that what died can be given back, unless too
    /// many leaves would have to be read for that.
    pub(crate) async fn account_before_closing(self: &Arc<Self>) {
        /// A disk reads so many in some seconds.
        const LEAVES_MAX: u64 = 1024;
        while {
            let core = self.core();
            core.may_discard() && core.may_account() && core.map.overlays() <= LEAVES_MAX
        } {
            if !self.account().await {
                return;
            }
        }
    }

    /// Loads some leaves of which only changes are in memory. Returns false if none could be loaded, or no
    /// room is left for them.
    pub(crate) async fn loads_overlays(self: &Arc<Self>) -> bool {
        let before = self.core().map.overlays();
        let _ = self.load_overlays(BYTES_A_ROUND).await;
        self.core().map.overlays() < before
    }

    /// Loads some leaves of which only changes are in memory: leaves that take up to `bytes` more memory, and
    /// cleared ones. Fails if there are any and none could be loaded. What lies under unreadable nodes is
    /// passed over for a while.
    pub(crate) async fn load_overlays(self: &Arc<Self>, bytes: u64) -> Result<(), Error> {
        // Together with their ancestors they fit into the newest nodes that are always kept, however small
        // the cache.
        const AT_ONCE: usize = 16;
        // An almost empty leaf takes little.
        const LEAF_BYTES_MIN: u64 = 128;
        let (leaves, dirty, spare) = {
            let core = self.core();
            if core.map.overlays() == 0 {
                return Ok(());
            }
            // A leaf may take a whole page in the log, and only segments that writing the map does not need
            // are available for it.
            let spare = core.spare_for_leaves();
            let max = if spare == 0 { 0 } else { (bytes / LEAF_BYTES_MIN) as usize };
            let why = Cell::new(None);
            let leaves = core.map.overlays_to_load(LEAVES_A_ROUND, max, |leaf| {
                let error = core.lost.over(leaf, core.ticks);
                why.set(error.or(why.get()));
                error.is_some()
            });
            if leaves.is_empty() {
                return match why.get() {
                    _ if spare == 0 => Err(Error::NoSpace),
                    Some(error) => Err(error.clone()),
                    None => Ok(()),
                };
            }
            (leaves, core.map.dirty_bytes(), spare)
        };
        let (mut loaded, mut failed) = (0, None);
        for some in leaves.chunks(AT_ONCE) {
            for result in futures::future::join_all(some.iter().map(|leaf| self.load_whole(*leaf))).await {
                match result {
                    Ok(()) => loaded += 1,
                    Err(error) => failed = Some(error),
                }
            }
            let mut core = self.core();
            core.update_map_need();
            if core.map.dirty_bytes() > dirty + bytes || core.spare_for_leaves() < spare.div_ceil(2) {
                break;
            }
        }
        failed.filter(|_| loaded == 0).map_or(Ok(()), Err)
    }

    /// Loads a leaf of which only changes are in memory, with its path.
    async fn load_whole(&self, leaf: NodeId) -> Result<(), Error> {
        // One path at a time, and again if others have evicted or moved a part of it.
        const LOADS_MAX: u32 = 16;
        for _ in 0..LOADS_MAX {
            let missing = self.core().map.overlay_image(leaf);
            let Some(missing) = missing else { break };
            {
                let core = self.core();
                // Perhaps on the path of another leaf, just now.
                if let Some(error) = core.lost.over(missing.id, core.ticks) {
                    return Err(error.clone());
                }
            }
            self.load(missing).await?;
        }
        Ok(())
    }
}
