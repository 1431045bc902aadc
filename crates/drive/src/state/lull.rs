//! Times in which hosts change little, or nothing.

/// Blocks that hosts may change before a lull begins anew: 1 MiB.
const BLOCKS_MAX: u64 = 256;
/// Ticks without a change after which the host counts as idle.
const IDLE_TICKS: u64 = 50;

/// When hosts changed something, and since when they have changed little.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lull {
    since: u64,
    blocks: u64,
    /// Tick of the last change.
    last: u64,
}

impl Lull {
    /// Counts changed blocks, at this tick.
    pub(crate) fn note(&mut self, blocks: u64, tick: u64) {
        self.last = tick;
        self.blocks = self.blocks.saturating_add(blocks);
        if self.blocks > BLOCKS_MAX {
            (self.since, self.blocks) = (tick, 0);
        }
    }

    /// Tick at which it began.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Returns whether the last change was long ago.
    pub(crate) fn is_idle(&self, now: u64) -> bool {
        now - self.last > IDLE_TICKS
    }

    /// Ticks were left out before the host's last change: it was made now.
    pub(crate) fn shift(&mut self, now: u64) {
        if self.since >= self.last {
            self.since = now;
        }
        self.last = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_does_not_end_it() {
        let mut lull = Lull::default();
        (1..=BLOCKS_MAX).for_each(|tick| lull.note(1, tick));
        assert_eq!(lull.since(), 0);
        lull.note(1, 300);
        assert_eq!(lull.since(), 300);
        lull.note(BLOCKS_MAX, 400);
        assert_eq!(lull.since(), 300);
        lull.note(u64::MAX, 500);
        assert_eq!(lull.since(), 500);
        lull.note(1, 501);
        lull.shift(900);
        assert_eq!(lull.since(), 500);
        lull.note(u64::MAX, 900);
        lull.shift(1000);
        assert_eq!(lull.since(), 1000);
        assert!(!lull.is_idle(1000 + IDLE_TICKS) && lull.is_idle(1001 + IDLE_TICKS));
    }
}
