//! Background work: when to clean, when to write a checkpoint, when to discard.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use layout::Head;
use media::Media;
use space::{LOG_RECORDS_MAX, Pace, Supply, pace, watermarks};

use crate::error::Error;
use crate::shared::{Drive, Shared};
use crate::state::core::Core;
use crate::state::harvest::CLEANED_IN_VAIN_MAX;
use crate::state::map_shrink::MapShrink;
use crate::state::segments::Gain;
use crate::upkeep::clean::Cleaned;

/// Fewest leaves loaded before a checkpoint that must make the map smaller: a tiny cache keeps as many
/// anyway.
const LEAVES_A_CHECKPOINT_MIN: u64 = 64;

/// The right to maintenance. It has one holder at a time.
pub(crate) struct Maintenance<M: Media>(Arc<Shared<M>>);

impl<M: Media> Drop for Maintenance<M> {
    fn drop(&mut self) {
        self.0.core().maintaining = false;
        self.0.progress.notify(usize::MAX);
    }
}

/// Work that is needed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    Nothing,
    Checkpoint,
    Clean,
    /// To move what lives on pages that were made again.
    MoveRepaired,
    /// To move what lives in a bad segment, or one that lost pages.
    Empty,
    LoadOverlays,
    /// To account what died under leaves that are not loaded.
    Account,
    Discard,
}

impl Core {
    pub(crate) fn wanted(&self) -> Wanted {
        if self.mode.writable().is_err() {
            return Wanted::Nothing;
        }
        if self.full_backing.is_full() {
            // Nothing can be written. A discard may make the missing room.
            return match self.may_discard() && self.may_discard_now() {
                true => Wanted::Discard,
                false => Wanted::Nothing,
            };
        }
        let free = self.segments.free_count();
        let (critical, low) = self.watermarks();
        let dead = self.segments.dead_count();
        // Only a smaller map would help. This is not repeated endlessly if the map cannot become smaller.
        let for_map = !self.map_shrink.waits(self.ticks) && self.map_wants_checkpoint();
        let may_clean = self.cleaning.is_some() || !self.segments.has_cleaned();
        if may_clean && self.cleans_first() && !self.cleans_in_vain(CLEANED_IN_VAIN_MAX) {
            return Wanted::Clean;
        }
        if self.checkpoints.in_progress.is_some()
            || self.log.has_gap()
            || self.log.since_checkpoint_bytes() >= self.checkpoints.interval_bytes
            || self.checkpoints.records_since >= LOG_RECORDS_MAX
            || for_map
            || (free <= critical && dead > 0)
        {
            return Wanted::Checkpoint;
        }
        if self.moves_repaired() {
            return Wanted::MoveRepaired;
        }
        if self.segment_to_empty().is_some() {
            return Wanted::Empty;
        }
        if self.cleaning.is_some() {
            return Wanted::Clean;
        }
        let now = self.log.sequence();
        if self.wants_room() && self.segments.victim(now, Gain::ROOM).is_some()
            || free + dead < low
                && !self.cleans_in_vain(CLEANED_IN_VAIN_MAX)
                && self.segments.victim(now, Gain::Segments).is_some()
        {
            return if self.map.overlays() > 0 { Wanted::LoadOverlays } else { Wanted::Clean };
        }
        if self.is_idle() {
            // A short log makes the next opening quick.
            const IDLE_LOG_BYTES: u64 = 8 << 20;
            if self.log.since_checkpoint_bytes() > IDLE_LOG_BYTES.min(self.checkpoints.interval_bytes / 4) {
                return Wanted::Checkpoint;
            }
            if self.owes_accounts() {
                return Wanted::Account;
            }
        }
        self.wanted_for_backing().unwrap_or(Wanted::Nothing)
    }

    /// Returns whether the drive looks more than half full, but may not be: what was overwritten or trimmed
    /// under leaves that are not loaded counts until they are. Without this, nobody would see the room that a
    /// host makes, and the backing would not get it back.
    fn owes_accounts(&self) -> bool {
        let seems_full = self.taken_units() > self.limit_units() / 2;
        self.may_account() && (seems_full || self.is_quiet() && self.may_discard() && self.may_tidy_up())
    }

    /// Returns whether the accounting is not exact, and can be made so.
    pub(crate) fn may_account(&self) -> bool {
        let tried = self.accounts_tried == Some(self.log.sequence());
        // Loaded leaves stay in memory until a checkpoint has written them.
        let fits = self.map.dirty_bytes() <= self.map.budget_bytes() / 2;
        self.map.overlays() > 0 && fits && !tried
    }

    /// Returns whether cleaning comes before another checkpoint. If the map has outgrown its memory,
    /// checkpoints follow each other, and what they write would take the last segments.
    fn cleans_first(&self) -> bool {
        let (critical, _) = self.watermarks();
        self.supply() <= critical
            && self.checkpoints.in_progress.is_none()
            && !self.log.has_gap()
            && (self.cleaning.is_some()
                || self.segments.victim(self.log.sequence(), Gain::Segments).is_some())
    }

    /// Returns whether a checkpoint is needed because the map changed much, or will need segments that are
    /// hardly available.
    fn map_wants_checkpoint(&self) -> bool {
        let (critical, _) = self.watermarks();
        self.map.dirty_bytes() > self.map.budget_bytes() / 2
            || (self.segments.free_count() <= critical && self.segments.map_need() > 0)
    }

    /// Returns whether little room is left under the limit, and packing frames anew may make some.
    pub(crate) fn wants_room(&self) -> bool {
        // As much as the stock of free segments.
        let count = u64::from(self.segments.count());
        let wanted = (count / 20).max(3) * self.segments.segment_units();
        self.segments.repackable_units() * 16 >= self.segments.segment_units() && self.room_units() < wanted
    }

    /// Returns whether there is much more room than is needed: at least an eighth is free.
    pub(crate) fn has_room(&self) -> bool {
        self.room_units() > self.limit_units() / 8 && !self.is_short()
    }

    pub(crate) fn pace(&self) -> Pace {
        if self.mode.writable().is_err() {
            return Pace::FREE;
        }
        let free = self.segments.free_count();
        let (critical, low) = self.watermarks();
        if free >= low {
            return Pace::FREE;
        }
        let room = self.log.room_bytes(Head::Host) as f64 / f64::from(self.geometry().segment_bytes);
        let dead = self.segments.dead_count();
        // If nothing can be cleaned, slowing writers down would gain nothing.
        if dead == 0
            && self.cleaning.is_none()
            && (self.cleans_in_vain(CLEANED_IN_VAIN_MAX)
                || self.segments.victim(self.log.sequence(), Gain::Segments).is_none())
        {
            return Pace::FREE;
        }
        pace(&Supply {
            free: f64::from(free) + room,
            available: f64::from(free + dead) + room,
            floor: f64::from(self.segments.floor(Head::Host)),
            marks: (f64::from(critical), f64::from(low)),
            idle: self.is_idle(),
        })
    }

    /// Returns whether free segments are so few that requests wait for cleaning.
    pub(crate) fn is_short(&self) -> bool {
        self.segments.free_count() <= self.watermarks().0
    }

    /// Number of free segments at which a checkpoint must free dead ones, and number (including dead ones)
    /// below which cleaning works.
    pub(crate) fn watermarks(&self) -> (u32, u32) {
        let live = (self.segments.live_units() / self.segments.segment_units()) as u32;
        watermarks(self.segments.count(), live, self.segments.floor(Head::Host))
    }
}

impl<M: Media> Drive<M> {
    /// Does one unit of background work (a step of cleaning, a checkpoint, a discard) if any is needed.
    /// Returns false if none was.
    ///
    /// # Errors
    ///
    /// Errors of the medium. A failed write or sync has poisoned the drive.
    pub async fn maintain(&self) -> Result<bool, Error> {
        let shared = &self.0;
        if shared.core().wanted() == Wanted::Nothing && !shared.owes_structure() {
            return Ok(false);
        }
        let _right = shared.maintenance().await;
        if shared.owes_structure() {
            shared.record_structure().await?;
        }
        let wanted = shared.core().wanted();
        tracing::debug!(?wanted, "maintenance");
        match wanted {
            Wanted::Nothing => return Ok(false),
            Wanted::Checkpoint => shared.checkpoint_with_overlays().await?,
            // What cannot be loaded does not keep the rest from being cleaned.
            Wanted::LoadOverlays if shared.loads_overlays().await => {}
            Wanted::LoadOverlays | Wanted::Clean => {
                let gain = shared.core().gain_wanted();
                match shared.clean_step(gain).await? {
                    Cleaned::NoRoom => shared.write_checkpoint().await?,
                    Cleaned::Nothing => {
                        shared.checkpoint_with_overlays().await?;
                        shared.core().note_harvest();
                    }
                    Cleaned::Segment => shared.core().note_harvest(),
                    Cleaned::Part => {}
                }
            }
            Wanted::MoveRepaired => shared.move_repaired().await?,
            Wanted::Empty => shared.empty_step().await?,
            Wanted::Account => return Ok(shared.account().await),
            Wanted::Discard => return Ok(shared.discard_some()),
        }
        shared.progress.notify(usize::MAX);
        Ok(true)
    }

    /// Returns how fast cleaning should go, and writers may. Examines every segment: call it at ticks.
    pub fn pace(&self) -> Pace {
        self.0.core().pace()
    }

    /// Cleans the best victim whether or not space is short. Returns false if there is none.
    pub async fn clean(&self) -> Result<bool, Error> {
        self.0.core().mode.writable()?;
        let _right = self.0.maintenance().await;
        self.0.clean_one(Gain::Segments).await
    }

    /// Writes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<(), Error> {
        self.0.core().mode.writable()?;
        let _right = self.0.maintenance().await;
        self.0.write_checkpoint().await
    }

    /// A tick, to be called every few milliseconds. Open packs that got nothing since the last tick are
    /// written, and a drive without requests for fifty ticks counts as idle. A drive at rest needs none
    /// ([`Drive::rest`]).
    pub fn tick(&self) {
        let (changed, again, due) = {
            let mut core = self.0.core();
            let core = &mut *core;
            core.ticks += 1;
            let changed = core.segments.waiting_count() > 0 || core.full_backing.is_full();
            core.segments.review_waiting();
            if core.mode.writable().is_err() {
                return;
            }
            core.log.tick(&mut core.segments);
            self.0.has_room.store(core.has_room(), Ordering::Relaxed);
            (changed, core.full_backing.due(core.ticks), core.begin_sync_of_moves())
        };
        if let Some(mark) = due {
            self.0.sync_in_background(mark);
        }
        self.0.write_out_again(again);
        self.0.write_parity_in_background();
        self.0.make_parity_in_background();
        if changed {
            self.0.progress.notify(usize::MAX);
        }
    }
}

impl<M: Media> Shared<M> {
    pub(crate) async fn maintenance(self: &Arc<Self>) -> Maintenance<M> {
        self.wait_for(|core| (!core.maintaining).then(|| core.maintaining = true)).await;
        Maintenance(self.clone())
    }

    /// Writes a checkpoint. Before it, loads leaves of which only changes are in memory: those that were
    /// cleared, and if changes take much of the cache or of the free segments, those with most changes.
    /// Written as overlays they would stay changed, and the next checkpoint would have to write them again.
    /// Also fails if that gained nothing and the map still needs it.
    pub(crate) async fn checkpoint_with_overlays(self: &Arc<Self>) -> Result<(), Error> {
        let most = {
            let core = self.core();
            let crowded =
                core.map.dirty_bytes() > core.map.budget_bytes() / 2 || core.segments.map_need() > 0;
            // Whole leaves take more memory than changes until they are written: a sixteenth of the budget at
            // a time.
            let some =
                (core.map.budget_bytes() / 16).max(LEAVES_A_CHECKPOINT_MIN * layout::BLOCK_BYTES as u64);
            core.checkpoints.in_progress.is_none().then_some(if crowded { some } else { 0 })
        };
        let loaded = match most {
            Some(bytes) => self.load_overlays(bytes).await,
            None => Ok(()),
        };
        self.clean_before_checkpoint().await?;
        self.write_checkpoint().await?;
        let mut core = self.core();
        let core = &mut *core;
        match loaded {
            // This checkpoint may have made room for the next.
            Err(Error::NoSpace) if core.spare_for_leaves() > 0 => Ok(()),
            Err(error) if core.map_wants_checkpoint() => {
                core.map_shrink.failed(core.ticks, &error);
                if core.map_pressure() { Err(error) } else { Ok(()) }
            }
            _ => {
                core.map_shrink = MapShrink::default();
                Ok(())
            }
        }
    }

    /// Cleans as many segments as the checkpoint may write, so that it does not take the last ones. Fewer, if
    /// that would change more of the map than there is memory for: the rest of the segment waits for the next
    /// checkpoint.
    async fn clean_before_checkpoint(self: &Arc<Self>) -> Result<(), Error> {
        let (mut segments, dirty_max) = {
            let core = self.core();
            let segments = 1 + core.map.write_estimate_bytes(core.map_bytes())
                / u64::from(core.geometry().segment_bytes);
            (segments, core.dirty_max_of_cleaning())
        };
        while segments > 0 && {
            let core = self.core();
            core.cleans_first() && core.map.dirty_bytes() <= dirty_max
        } {
            match self.clean_step(Gain::Soon).await? {
                Cleaned::Nothing | Cleaned::NoRoom => break,
                Cleaned::Segment => {
                    self.core().note_harvest();
                    segments -= 1;
                }
                Cleaned::Part => {}
            }
        }
        Ok(())
    }
}

impl Core {
    /// Returns the purpose of background cleaning.
    fn gain_wanted(&self) -> Gain {
        let is_there = || self.segments.victim(self.log.sequence(), Gain::ROOM).is_some();
        match () {
            () if self.wants_room() && is_there() => Gain::ROOM,
            () if self.is_short() => Gain::Soon,
            () if self.is_quiet() && self.may_discard() && self.has_thin() => Gain::Thin,
            () => Gain::Segments,
        }
    }
}
