//! When dictionaries are trained.

/// Training is repeated when this many times as much was written as before the last one, up to [`AGAIN_BLOCKS_MAX`].
const AGAIN_FACTOR: u64 = 4;
/// 16 GiB.
const AGAIN_BLOCKS_MAX: u64 = 4 << 20;

/// When training is due, in blocks written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    /// The drive holds enough data, and was never trained.
    pub(crate) untrained: bool,
    pub(crate) due_blocks: u64,
    pub(crate) first_blocks: u64,
}

impl Schedule {
    pub(crate) fn new(sample_blocks: usize) -> Schedule {
        let due_blocks = sample_blocks as u64;
        Schedule { untrained: false, due_blocks, first_blocks: due_blocks }
    }

    /// Makes training due now, because enough data was seen.
    pub(crate) fn now(&mut self) {
        self.due_blocks = 0;
    }

    pub(crate) fn next(&mut self) {
        self.untrained = false;
        let due = self.due_blocks.max(self.first_blocks);
        self.due_blocks = (due * AGAIN_FACTOR).min(AGAIN_BLOCKS_MAX).max(due);
    }
}
