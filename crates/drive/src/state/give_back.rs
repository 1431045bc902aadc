//! Giving free space back to the backing: what is in progress, and when more may follow.

/// State of giving free space back. The rules are in `upkeep/discard.rs`.
#[derive(Default)]
pub(crate) struct GiveBack {
    /// A discard is in progress.
    pub(crate) discarding: bool,
    /// Tick before which no discard is begun.
    pub(crate) next_tick: u64,
    /// The backing cannot discard.
    pub(crate) is_unsupported: bool,
    /// The file system under the drive has little room: only hosts should write to it.
    pub(crate) backing_is_short: bool,
    /// Tick of the last checkpoint.
    pub(crate) checkpoint_tick: u64,
    /// Beginning of a lull, and checkpoints since.
    quiet_checkpoints: (u64, u32),
}

impl GiveBack {
    /// A checkpoint was committed at a tick, in the lull that began at `since`.
    pub(crate) fn note_checkpoint(&mut self, tick: u64, since: u64) {
        self.checkpoint_tick = tick;
        self.quiet_checkpoints = (since, self.checkpoints_since(since) + 1);
    }

    /// Returns the number of checkpoints in the lull that began at `since`.
    pub(crate) fn checkpoints_since(&self, since: u64) -> u32 {
        if self.quiet_checkpoints.0 == since { self.quiet_checkpoints.1 } else { 0 }
    }
}
