//! The pause before another checkpoint that is to shrink the map, after one could not.

use crate::error::Error;

/// First and longest pause, in ticks.
const PAUSE_TICKS: (u64, u64) = (10, 6000);

/// The request for a checkpoint that makes the map smaller. If changes lie over nodes that cannot be read,
/// none can. It is then requested more and more rarely.
#[derive(Debug, Default)]
pub(crate) struct MapShrink {
    pub(crate) until_tick: u64,
    pub(crate) ticks: u64,
    pub(crate) error: Option<Error>,
}

impl MapShrink {
    pub(crate) fn waits(&self, now: u64) -> bool {
        now < self.until_tick
    }

    pub(crate) fn failed(&mut self, now: u64, error: &Error) {
        self.ticks = (self.ticks * 2).clamp(PAUSE_TICKS.0, PAUSE_TICKS.1);
        self.until_tick = now + self.ticks;
        self.error = Some(error.clone());
    }
}
