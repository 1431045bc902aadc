//! A backing without room: a sparse file on a full file system, a thin volume of a full pool.
//!
//! Nothing is lost by that. A pack that was not taken for lack of room stays in memory, where its records are
//! read, and is written again from time to time, the same bytes to the same place. Until all packs are
//! written, changes are refused, so that what waits stays bounded, and nothing new is durable. Requests that
//! wait for durability fail after a while for lack of room.

use crate::state::log::SealedPack;

/// Ticks between two attempts to write again.
const RETRY_TICKS: u64 = 16;

/// Packs that wait for room on the backing.
#[derive(Default)]
pub(crate) struct FullBacking {
    /// Tick at which it ran out of room, while packs wait.
    since: Option<u64>,
    next_attempt: u64,
    waiting: Vec<SealedPack>,
    /// Packs that are being written again.
    in_flight: usize,
    /// Ticks to wait for room before reporting that there is none.
    patience_ticks: u64,
    /// Number of times that it ran out of room.
    times: u64,
}

impl FullBacking {
    /// Returns whether packs wait.
    pub(crate) fn is_full(&self) -> bool {
        self.since.is_some()
    }

    /// Sets after how many ticks without room nobody waits any longer.
    pub(crate) fn set_patience(&mut self, ticks: u64) {
        self.patience_ticks = ticks;
    }

    /// Returns whether packs have been waiting for too long and are not being written again just now.
    pub(crate) fn is_given_up(&self, now: u64) -> bool {
        self.in_flight == 0 && self.since.is_some_and(|since| now - since >= self.patience_ticks)
    }

    /// Returns the number of times that the backing ran out of room since the drive was opened.
    pub(crate) fn times(&self) -> u64 {
        self.times
    }

    /// The backing had no room for a pack.
    pub(crate) fn wait(&mut self, pack: SealedPack, now: u64) {
        self.waiting.push(pack);
        if self.since.is_none() {
            (self.since, self.next_attempt) = (Some(now), now + RETRY_TICKS);
            self.times += 1;
        }
    }

    /// Counts ticks that had passed before it ran out of room.
    pub(crate) fn shift(&mut self, ticks: u64) {
        if let Some(since) = &mut self.since {
            *since += ticks;
            self.next_attempt += ticks;
        }
    }

    /// Returns the packs to write again, if it is time.
    pub(crate) fn due(&mut self, now: u64) -> Vec<SealedPack> {
        match now < self.next_attempt {
            true => Vec::new(),
            false => self.again(now),
        }
    }

    /// Returns the packs to write again, unless that is in progress.
    pub(crate) fn again(&mut self, now: u64) -> Vec<SealedPack> {
        if self.in_flight > 0 {
            return Vec::new();
        }
        self.next_attempt = now + RETRY_TICKS;
        self.in_flight = self.waiting.len();
        std::mem::take(&mut self.waiting)
    }

    /// An attempt ended. The state is over when nothing waits any more.
    pub(crate) fn attempted(&mut self) {
        self.in_flight -= 1;
        if self.in_flight == 0 && self.waiting.is_empty() {
            self.since = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use layout::Head;
    use media::IoBuf;

    use super::*;

    fn pack(sequence: u64) -> SealedPack {
        let buf = Arc::new(IoBuf::zeroed(4096));
        SealedPack {
            sequence,
            head: Head::Host,
            segment: 0,
            position: 0,
            buf,
            is_announced: true,
            generation: 0,
            offset: 0,
            parity: Default::default(),
        }
    }

    #[test]
    fn ticks_that_had_passed_before_are_not_waited() {
        let mut full = FullBacking::default();
        full.shift(10);
        full.wait(pack(1), 5);
        full.shift(100_000);
        full.set_patience(1000);
        assert!(full.due(100_005 + RETRY_TICKS - 1).is_empty() && !full.is_given_up(100_005 + 999));
        assert!(full.is_given_up(100_005 + 1000));
        assert_eq!(full.due(100_005 + RETRY_TICKS).len(), 1);
    }

    #[test]
    fn all_that_waits_is_written_again_until_nothing_waits() {
        let mut full = FullBacking::default();
        assert!(full.due(100).is_empty() && !full.is_full());
        full.wait(pack(1), 100);
        full.wait(pack(2), 101);
        full.set_patience(10);
        assert!(full.is_full() && full.is_given_up(110) && !full.is_given_up(109));
        assert!(full.due(100 + RETRY_TICKS - 1).is_empty());
        let mut again = full.due(100 + RETRY_TICKS);
        assert_eq!(again.len(), 2);
        // A third fails meanwhile. There is no second attempt while one is in progress.
        full.wait(pack(3), 100 + RETRY_TICKS);
        assert!(full.due(100 + 3 * RETRY_TICKS).is_empty());
        full.wait(again.remove(0), 100 + 3 * RETRY_TICKS);
        (0..2).for_each(|_| full.attempted());
        assert!(full.is_full());
        assert_eq!(full.due(100 + 4 * RETRY_TICKS).len(), 2);
        (0..2).for_each(|_| full.attempted());
        assert!(!full.is_full());
        full.wait(pack(4), 500);
        assert_eq!(full.times(), 2);
    }
}
