//! Times in which hosts change little.

/// Blocks that hosts may change before a lull begins anew: 1 MiB.
const BLOCKS_MAX: u64 = 256;

/// Since when hosts have changed little, if they have changed anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lull {
    since: u64,
    blocks: u64,
}

impl Lull {
    /// Counts changed blocks, at this tick.
    pub(crate) fn note(&mut self, blocks: u64, tick: u64) {
        self.blocks = self.blocks.saturating_add(blocks);
        if self.blocks > BLOCKS_MAX {
            *self = Lull { since: tick, blocks: 0 };
        }
    }

    /// Tick at which it began.
    pub(crate) fn since(&self) -> u64 {
        self.since
    }

    /// Ticks were left out before the host's last change.
    pub(crate) fn shift(&mut self, from: u64, to: u64) {
        if self.since >= from {
            self.since = to;
        }
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
        lull.shift(501, 900);
        assert_eq!(lull.since(), 500);
        lull.shift(500, 900);
        assert_eq!(lull.since(), 900);
    }
}
