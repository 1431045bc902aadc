//! When dictionaries are trained.

/// Training is repeated when this many times as much was written as before the last one, up to
/// [`AGAIN_BLOCKS_MAX`].
const AGAIN_FACTOR: u64 = 4;
/// The same after one in which nothing was trained, which took little time.
const SOON_FACTOR: u64 = 2;
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

    /// Makes the next training due later than the last one, in which something was `trained` or not.
    pub(crate) fn next(&mut self, trained: bool) {
        let factor = if trained { AGAIN_FACTOR } else { SOON_FACTOR };
        self.untrained = false;
        let due = self.due_blocks.max(self.first_blocks);
        self.due_blocks = (due * factor).min(AGAIN_BLOCKS_MAX).max(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trainings_become_rare_and_less_so_where_nothing_is_trained() {
        let mut schedule = Schedule::new(1024);
        let mut due = |trained| {
            schedule.next(trained);
            schedule.due_blocks
        };
        assert_eq!([due(true), due(false), due(true)], [4096, 8192, 32_768]);
        for trained in [false, true].repeat(10) {
            due(trained);
        }
        assert_eq!(due(false), AGAIN_BLOCKS_MAX);
        schedule.now();
        schedule.next(false);
        assert_eq!(schedule.due_blocks, 2048, "as at the start");
    }
}
