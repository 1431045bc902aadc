//! Checkpoints of this run: the one that is being written, and how far the newest reaches.

use crate::state::cut::InProgress;
use crate::state::segments::OthersHeld;

/// State of checkpoints. The rules are in `upkeep/checkpoint.rs`.
pub(crate) struct Checkpoints {
    pub(crate) in_progress: Option<InProgress>,
    /// A checkpoint is wanted after this many bytes of log.
    pub(crate) interval_bytes: u64,
    /// Records appended since the cut of the last checkpoint. Bounds the memory of roll-forward.
    pub(crate) records_since: u64,
    /// Newest pack before the cut of the newest checkpoint of this run.
    pub(crate) cut_committed: u64,
    /// Numbers of checkpoints that were given up while they were being written to their places.
    pub(crate) skipped_count: u64,
}

impl Checkpoints {
    pub(crate) fn new(interval_bytes: u64) -> Checkpoints {
        Checkpoints {
            in_progress: None,
            interval_bytes,
            records_since: 0,
            cut_committed: 0,
            skipped_count: 0,
        }
    }

    /// Returns whether the checkpoint in progress says that the space of all free segments was discarded.
    pub(crate) fn says_discarded(&self) -> bool {
        self.in_progress.as_ref().is_some_and(|progress| progress.others_held == OthersHeld::Discarded)
    }
}
