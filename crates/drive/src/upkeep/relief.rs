//! Ways out for requests that find no space.

use std::sync::Arc;

use media::Media;

use crate::error::Error;
use crate::shared::Shared;
use crate::state::claims::Gain;
use crate::state::core::Core;
use crate::state::harvest::CLEANED_IN_VAIN_BY_REQUESTS_MAX;
use crate::state::log::Appender;
use crate::upkeep::clean::Cleaned;
use crate::upkeep::overlays::BYTES_A_ROUND;

/// Limits what a request may still do to refine accounts, however often it is made anew. Others continue to
/// change the map: without a limit, a write to a full drive might never end.
pub(crate) struct Effort {
    rounds: u32,
    checkpoints: u32,
    cleanings: u32,
    /// True if cleaning is the next attempt.
    cleans: bool,
}

impl Default for Effort {
    fn default() -> Self {
        Effort { rounds: 128, checkpoints: 8, cleanings: 16, cleans: true }
    }
}

impl Effort {
    /// Sets whether to clean now; not if there is another way to be tried first.
    pub(crate) fn cleaning(&mut self, cleans: bool) -> &mut Effort {
        self.cleans = cleans;
        self
    }
}

/// Segments that will be free without a checkpoint. Seen in the same entry in which a segment was missing:
/// they may come back before anybody looks again.
#[derive(Clone, Copy)]
pub(crate) struct Away {
    /// Freed segments that readers still use.
    waiting: u32,
    /// The backing discards some.
    discarding: bool,
}

impl Core {
    /// Returns what is away now.
    pub(crate) fn away(&self) -> Away {
        Away { waiting: self.segments.waiting_count(), discarding: self.give_back.discarding }
    }
}

impl<M: Media> Shared<M> {
    /// Physical space seems full. But what changes to leaves not loaded have replaced may still count as
    /// live, and the unwritten map is estimated: makes both more exact. Returns false if that gained nothing,
    /// or `effort` is used up.
    pub(crate) async fn refine_accounts(self: &Arc<Self>, effort: &mut Effort) -> Result<bool, Error> {
        let _right = self.maintenance().await;
        let overlays = self.core().map.overlays();
        if overlays > 0
            && let Some(rounds) = effort.rounds.checked_sub(1)
        {
            effort.rounds = rounds;
            // What cannot be read is no reason to refuse what has nothing to do with it.
            let _ = self.load_overlays(BYTES_A_ROUND).await;
            if self.core().map.overlays() < overlays {
                return Ok(true);
            }
        }
        let before = self.core().account_units();
        if self.core().map.dirty_bytes() > 0
            && let Some(checkpoints) = effort.checkpoints.checked_sub(1)
        {
            effort.checkpoints = checkpoints;
            self.write_checkpoint().await?;
            let after = self.core().account_units();
            // Either it looks less full, or there is more room now for loading leaves, which may show that it
            // is.
            if after.claimed < before.claimed || (overlays > 0 && after.spare > before.spare) {
                return Ok(true);
            }
        }
        // Frames with dead blocks may be smaller packed anew.
        while effort.cleans
            && let Some(cleanings) = effort.cleanings.checked_sub(1)
            && self.core().has_repackable()
        {
            effort.cleanings = cleanings;
            let before = self.core().account_units();
            if !self.clean_one(Gain::LAST_ROOM).await? {
                self.write_checkpoint().await?;
            }
            if self.core().account_units().claimed < before.claimed {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// No segment is left for the host: cleans and frees until there is one. Returns false if that is
    /// impossible.
    pub(crate) async fn make_space(self: &Arc<Self>) -> Result<bool, Error> {
        const ROUNDS_MAX: usize = 16;
        let _right = self.maintenance().await;
        for round in 0..ROUNDS_MAX {
            {
                let mut core = self.core();
                core.segments.review_waiting();
                if core.segments.host_may_take() {
                    return Ok(true);
                }
            }
            let (before, overlays) = {
                let core = self.core();
                (core.segments.live_units(), core.map.overlays())
            };
            let mut cleaned = false;
            if self.core().segments.map_need() > 0 {
                self.checkpoint_with_overlays().await?;
            }
            let mut dirty_max = self.core().dirty_max_of_cleaning();
            while {
                let core = self.core();
                let (critical, low) = core.watermarks();
                // At first no more than necessary, because requests are waiting. If that is not enough,
                // everything.
                let goal = if round == 0 { critical + (low - critical) / 4 } else { low };
                core.supply() < goal && !core.cleans_in_vain(CLEANED_IN_VAIN_BY_REQUESTS_MAX)
            } {
                if self.core().map.overlays() > 0 {
                    let _ = self.load_overlays(BYTES_A_ROUND).await;
                }
                if self.core().map.dirty_bytes() > dirty_max {
                    self.write_checkpoint().await?;
                    dirty_max = self.core().dirty_max_of_cleaning();
                }
                match self.clean_step(Gain::Soon).await? {
                    Cleaned::Part => {}
                    Cleaned::NoRoom => self.write_checkpoint().await?,
                    Cleaned::Nothing => break,
                    Cleaned::Segment => {
                        cleaned = true;
                        self.core().note_harvest();
                    }
                }
            }
            let free = self.core().segments.free_count();
            self.write_checkpoint().await?;
            let core = self.core();
            let idle = core.segments.free_count() <= free && core.segments.live_units() >= before;
            if round > 0 && !cleaned && idle && core.map.overlays() >= overlays {
                break;
            }
        }
        Ok(self.core().segments.host_may_take())
    }

    /// Waits until readers are done with a freed segment, or the backing is done with discarding some, of
    /// those that were `away` when a segment was missing. Returns false if there were none.
    pub(crate) async fn wait_for_readers(self: &Arc<Self>, away: Away) -> bool {
        let Away { waiting: before, discarding } = away;
        // Examined again at each tick, because readers send no notification when they are done.
        self.wait_for(|core| {
            core.segments.review_waiting();
            let over = core.segments.waiting_count() < before
                || discarding && !core.give_back.discarding
                || before == 0 && !discarding
                || core.mode.writable().is_err();
            over.then_some(())
        })
        .await;
        before > 0 || discarding
    }

    /// Too much waits for the medium or for a checkpoint: helps, and waits.
    pub(crate) async fn relieve(self: &Arc<Self>) -> Result<(), Error> {
        self.wait_for(|core| {
            let free = !core.log.must_wait(Appender::Host);
            (free || core.mode.is_poisoned() || core.full_backing.is_full()).then_some(())
        })
        .await;
        self.core().mode.writable()?;
        if self.core().full_backing.is_full() {
            return Err(Error::BackingFull);
        }
        if self.core().must_checkpoint() {
            let _right = self.maintenance().await;
            {
                let core = self.core();
                if core.map_pressure()
                    && core.map_shrink.waits(core.ticks)
                    && let Some(error) = &core.map_shrink.error
                {
                    // Another checkpoint would gain as little.
                    return Err(error.clone());
                }
            }
            if self.core().must_checkpoint() {
                self.checkpoint_with_overlays().await?;
            }
        }
        Ok(())
    }
}

/// Fill level of the drive as far as it is known, and number of segments for loading leaves, which would show
/// it better.
struct Account {
    claimed: u64,
    spare: u32,
}

impl Core {
    fn account_units(&self) -> Account {
        Account { claimed: self.claimed_units(), spare: self.spare_for_leaves() }
    }

    /// Returns whether a segment holds frames to pack anew.
    fn has_repackable(&self) -> bool {
        self.segments.victim(self.log.sequence(), Gain::LAST_ROOM).is_some()
    }

    /// Returns the bytes of changed map in memory at which cleaning between two checkpoints has to stop. More
    /// than the present changes by as much as the map may take anyway.
    pub(crate) fn dirty_max_of_cleaning(&self) -> u64 {
        self.map.dirty_bytes() + self.map.budget_bytes().max(BYTES_A_ROUND)
    }
}
