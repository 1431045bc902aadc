//! Syncs, and the numbers up to which packs are durable by them.

use super::Log;

impl Log {
    /// A sync is issued.
    pub(crate) fn sync_begins(&mut self) {
        self.unsynced_bytes = 0;
    }

    pub(crate) fn unsynced_bytes(&self) -> u64 {
        self.unsynced_bytes
    }

    /// A sync covered everything up to `sequence`.
    pub(crate) fn synced(&mut self, sequence: u64) {
        self.synced = self.synced.max(sequence);
        let before_gap = self.gap.map_or(u64::MAX, |gap| gap - 1);
        self.durable = self.durable.max(self.synced.min(before_gap));
    }

    /// A sync failed. What was written and is not durable may be on the medium or not, and no later sync
    /// tells.
    pub(crate) fn sync_failed(&self) {
        self.memory.publish_failed_sync();
    }

    /// Every pack up to this one was written and synced, except those that the medium did not take.
    pub(crate) fn synced_up_to(&self) -> u64 {
        self.synced
    }

    /// The number that a checkpoint with this cut may call durable: up to the first gap behind the cut.
    pub(crate) fn durable_behind(&self, cut: u64) -> u64 {
        let failed = self.failed.iter().map(|pack| pack.sequence);
        let gap = failed.chain(self.gaps.iter().copied()).filter(|gap| *gap > cut).min();
        self.synced.min(gap.map_or(u64::MAX, |gap| gap - 1))
    }
}
