//! Giving free space back to the backing: when, and how much at a time.
//!
//! What is free comes back in three steps: a checkpoint frees dead segments, the next one lets them be
//! discarded, and the discard gives their space back. On an idle drive the second checkpoint has nothing to
//! write but its slot, and nothing dies by it, so they come to an end.

use std::sync::Arc;

use layout::UNIT_BYTES;
use media::Media;

use crate::error::lacks_room;
use crate::shared::{Drive, Shared};
use crate::state::core::Core;
use crate::state::harvest::CLEANED_IN_VAIN_MAX;
use crate::upkeep::decide::Wanted;

/// A drive whose host changed little for so many ticks gives back all that is free.
const QUIET_TICKS: u64 = 1000;
/// Dead space for which a shorter pause of the host is enough.
const DEAD_AT_A_PAUSE_BYTES: u64 = 8 << 20;
/// Ticks between two checkpoints for the backing of a drive whose host never pauses.
const BUSY_TICKS: u64 = 1000;
/// Ticks between two discards on a drive in use.
const BUSY_DISCARD_TICKS: u64 = 16;
/// Ticks after which a discard that found no room is tried again.
const RETRY_TICKS: u64 = 500;
/// Most checkpoints for the backing while hosts change little: so many, and one for so many segments.
const QUIET_CHECKPOINTS_MIN: u32 = 64;
const QUIET_CHECKPOINTS_PART: u32 = 4;
/// Largest discard: a device may take long for one, and requests wait behind it.
const DISCARD_MAX_BYTES: u64 = 256 << 20;
/// Largest discard of a closed drive. Its server ends between two of them.
const CLOSED_DISCARD_MAX_BYTES: u64 = 64 << 20;
/// Dead space that matters: at least so much, and a part of what lives.
const MUCH_BYTES: u64 = 16 << 20;
const MUCH_PART: u64 = 64;

impl Core {
    /// Returns the next step to give free space back to the backing, if it is time for one.
    pub(crate) fn wanted_for_backing(&self) -> Option<Wanted> {
        if !self.may_discard() {
            return None;
        }
        let bytes = |segments: u32| u64::from(segments) * u64::from(self.geometry().segment_bytes);
        let (discards, kept) = (self.segments.discards_count(), self.segments.kept_for_fallback_count());
        let dead = self.segments.dead_count();
        if !self.is_idle() {
            let since = self.ticks - self.give_back.checkpoint_tick;
            let is_much = |segments| bytes(segments) >= self.much_units() * UNIT_BYTES as u64;
            let may_wait = !is_much(discards + kept + dead) || self.discards_at_once() == 0;
            return match () {
                () if may_wait => None,
                () if self.may_discard_now() => Some(Wanted::Discard),
                () if since >= BUSY_TICKS && is_much(kept + dead) => Some(Wanted::Checkpoint),
                () => None,
            };
        }
        let is_quiet = self.is_quiet();
        let is_much = bytes(dead) >= DEAD_AT_A_PAUSE_BYTES;
        match () {
            () if self.may_discard_now() => Some(Wanted::Discard),
            () if !self.may_tidy_up() => None,
            () if kept > 0 && discards == 0 && !self.give_back.discarding => Some(Wanted::Checkpoint),
            () if dead > 0 && (is_much || is_quiet && !self.has_thin()) => Some(Wanted::Checkpoint),
            () if is_quiet && self.has_thin() => Some(Wanted::Clean),
            // Map nodes that cleaning found are moved by the next checkpoint.
            () if is_quiet && self.segments.has_cleaned() => Some(Wanted::Checkpoint),
            () => None,
        }
    }

    /// Returns whether there will be something to do for the backing when the drive has been quiet for
    /// longer.
    pub(crate) fn will_owe_backing(&self) -> bool {
        let waits = self.segments.dead_count() > 0
            || self.segments.discards_count() > 0
            || self.segments.has_cleaned()
            || self.may_account()
            || self.has_thin();
        self.may_discard()
            && waits
            && (!self.is_quiet() || self.give_back.discarding || self.ticks < self.give_back.next_tick)
    }

    /// Returns whether the drive may write to give space back. With hardly any memory for the map, what one
    /// checkpoint frees the next one takes, so there is an end to it until hosts change something.
    pub(crate) fn may_tidy_up(&self) -> bool {
        let most = QUIET_CHECKPOINTS_MIN + self.segments.count() / QUIET_CHECKPOINTS_PART;
        self.give_back.checkpoints_since(self.lull.since()) < most
    }

    /// Returns whether hosts have changed little for long, and nothing just now.
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_idle() && self.ticks - self.lull.since() > QUIET_TICKS
    }

    /// Units of dead space that are worth some writing.
    fn much_units(&self) -> u64 {
        (MUCH_BYTES / UNIT_BYTES as u64).max(self.segments.live_units() / MUCH_PART)
    }

    /// Returns whether cleaning segments that are a quarter dead, or more, would give much back.
    pub(crate) fn has_thin(&self) -> bool {
        if self.give_back.backing_is_short {
            // It writes before it frees.
            return false;
        }
        self.segments.thin_units() >= self.much_units() && !self.cleans_in_vain(CLEANED_IN_VAIN_MAX)
    }

    pub(crate) fn may_discard_now(&self) -> bool {
        !self.give_back.discarding
            && self.segments.discards_count() > 0
            && self.ticks >= self.give_back.next_tick
    }

    /// Number of segments that one discard may take. Meanwhile nobody can have them.
    fn discards_at_once(&self) -> u32 {
        let most_bytes = if self.mode.is_closed() { CLOSED_DISCARD_MAX_BYTES } else { DISCARD_MAX_BYTES };
        let most = (most_bytes / u64::from(self.geometry().segment_bytes)).max(1) as u32;
        if self.mode.is_closed() || self.full_backing.is_full() {
            return most;
        }
        let spare = self.segments.free_count().saturating_sub(self.watermarks().1);
        most.min(if self.is_idle() { spare.max(1) } else { spare })
    }
}

impl<M: Media> Shared<M> {
    /// Discards the space of some free segments, in the background and to completion: until then they must
    /// not be written.
    pub(crate) fn discard_some(self: &Arc<Self>) -> bool {
        let taken = {
            let mut core = self.core();
            let most = core.discards_at_once();
            let segments = if most == 0 { None } else { core.segments.take_for_discard(most) };
            core.give_back.discarding = segments.is_some();
            segments.map(|segments| {
                let segment_bytes = u64::from(core.geometry().segment_bytes);
                let len = u64::from(segments.end - segments.start) * segment_bytes;
                (core.geometry().segment_offset(segments.start), len, segment_bytes, segments)
            })
        };
        let Some((offset, len, segment_bytes, segments)) = taken else { return false };
        let shared = self.clone();
        (self.spawner)(Box::pin(async move {
            let result = shared.media.discard(offset, len).await;
            {
                let mut core = shared.core();
                // A discard may need space itself: a copy-on-write file system may have none left.
                let is_held = result.as_ref().is_err_and(lacks_room);
                let used = core.segments.discarded(segments, is_held);
                core.give_back.discarding = false;
                core.give_back.next_tick = match () {
                    () if is_held => core.ticks + RETRY_TICKS,
                    () if core.is_idle() || core.mode.is_closed() => core.ticks,
                    () => core.ticks + BUSY_DISCARD_TICKS,
                };
                match result {
                    Ok(()) => {
                        core.counters.discarded_bytes += u64::from(used) * segment_bytes;
                        core.segments.note_discard();
                    }
                    Err(_) if is_held => {}
                    // Not worth an error: the space is merely not discarded.
                    Err(_) => core.give_back.is_unsupported = true,
                }
            }
            shared.progress.notify(usize::MAX);
        }));
        true
    }
}

impl<M: Media> Drive<M> {
    /// Discards some of the free space of a closed drive in the backing. Returns false if there is none left
    /// that the backing may hold, or it cannot discard now. May be given up at any time: what is left is
    /// discarded after the next opening.
    pub async fn discard_closed(&self) -> bool {
        let shared = &self.0;
        let done = {
            let core = shared.core();
            !core.mode.is_closed()
                || core.mode.is_read_only()
                || core.mode.is_poisoned()
                || !core.may_discard()
        };
        if done
            || shared
                .wait_for(|core| {
                    (!core.give_back.discarding).then_some(core.ticks < core.give_back.next_tick)
                })
                .await
        {
            return false;
        }
        if !shared.discard_some() {
            return false;
        }
        shared.wait_for(|core| (!core.give_back.discarding).then_some(())).await;
        true
    }

    /// Tells the drive whether the file system under it has so little room that only hosts should write to
    /// it.
    pub fn set_backing_is_short(&self, is_short: bool) {
        let mut core = self.0.core();
        match core.give_back.backing_is_short == is_short {
            true => core.mark_unchanged(),
            false => core.give_back.backing_is_short = is_short,
        }
    }
}
