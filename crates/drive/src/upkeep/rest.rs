//! Rest: a drive to which nothing happens needs neither ticks nor maintenance, and whoever serves it can
//! sleep.
//!
//! What a tick or maintenance may do depends on the state inside the lock, and on the number of ticks. So a
//! drive rests when that state wants nothing and no number of ticks is waited for; and each critical section
//! that may have changed the state rouses it, unless it says that what it changes is nothing of that kind.

use std::sync::atomic::Ordering;

use media::Media;

use crate::shared::{Drive, Shared};
use crate::state::core::Core;
use crate::upkeep::decide::Wanted;

impl Core {
    /// Returns whether nothing can be done before something changes.
    fn may_rest(&self) -> bool {
        let ticks_are_needed = self.segments.waiting_count() > 0 || self.full_backing.is_full();
        if self.mode.writable().is_err() {
            return !ticks_are_needed;
        }
        !ticks_are_needed
            && self.is_idle()
            && self.log.is_at_rest(&self.segments)
            && !self.maintaining
            && !self.parity.is_busy()
            && !self.map_shrink.waits(self.ticks)
            && self.pace().writers.is_none()
            && self.wanted() == Wanted::Nothing
            && !self.will_owe_backing()
    }
}

impl<M: Media> Shared<M> {
    fn begins_rest(&self) -> bool {
        let mut core = self.core();
        let owes_parity = self.accumulators.complete_count() > 0 && core.mode.writable().is_ok();
        if self.structure.is_wanted(u64::MAX) || owes_parity || !core.may_rest() {
            return false;
        }
        self.has_room.store(core.has_room(), Ordering::Relaxed);
        core.resting = true;
        core.mark_unchanged();
        true
    }
}

impl<M: Media> Drive<M> {
    /// Returns whether the run before left a memory on this machine that was not found: what it acknowledged
    /// and had not written is lost.
    pub fn misses_memory(&self) -> bool {
        self.0.core().misses_memory
    }

    /// Returns whether something that is acknowledged or going to be is missing in the memory for packs.
    pub fn memory_has_lapsed(&self) -> bool {
        self.0.core().log.memory_has_lapsed()
    }

    /// Gives back most of the memory for packs. For a drive to which nothing has happened for a while: the
    /// next requests bring it back.
    pub fn give_back_memory(&self) {
        self.0.memory.give_back();
    }

    /// If ticks and maintenance have nothing to do before something changes, waits until it does, and returns
    /// true. Otherwise returns false at once. What calls [`Drive::tick`] tells how many it has left out
    /// meanwhile ([`Drive::miss_ticks`]).
    pub async fn rest(&self) -> bool {
        // Before it rests, so that no change is missed.
        let roused = self.0.roused.listen();
        if !self.0.begins_rest() {
            return false;
        }
        roused.await;
        true
    }

    /// Counts ticks that were left out during a rest: what waits for a number of them waits for a time.
    pub fn miss_ticks(&self, count: u64) {
        let mut core = self.0.core();
        let is_idle = core.is_idle();
        core.ticks += count;
        // A drive whose backing is full does not rest, so it ran out of room after the rest.
        core.full_backing.shift(count);
        if !is_idle {
            // The host came back at the end of the rest.
            let now = core.ticks;
            core.lull.shift(now);
        }
    }
}
