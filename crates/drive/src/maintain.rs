//! Background work: when to clean, when to write a checkpoint, when to give space back to the backing.

use std::sync::Arc;

use layout::{Head, NodeId};
use media::Media;

use crate::core::{Core, UNWRITTEN_MAX_BYTES};
use crate::error::Error;
use crate::shared::{Drive, Shared};
use crate::space::watermarks;

/// Leaves loaded in a round to settle what changes to them replaced; cleared ones, which take no memory, besides.
const LEAVES_A_ROUND: usize = 256;
/// Leaves loaded at the least before a checkpoint that has to make the map smaller: what a tiny cache keeps anyway.
const LEAVES_A_CHECKPOINT_MIN: usize = 64;
/// Records of log that roll-forward should have to hold at most.
const RECORDS_MAX: u64 = 1 << 20;

/// The right to do maintenance; one has it at a time.
pub(crate) struct Maintenance<M: Media>(Arc<Shared<M>>);

impl<M: Media> Drop for Maintenance<M> {
    fn drop(&mut self) {
        self.0.core().maintaining = false;
        self.0.progress.notify(usize::MAX);
    }
}

/// What maintenance is called for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Nothing,
    Checkpoint,
    Clean,
    LoadOverlays,
    Discard,
}

impl Core {
    fn wanted(&self) -> Wanted {
        if self.writable().is_err() {
            return Wanted::Nothing;
        }
        let budget = self.map.budget_bytes();
        let free = self.segments.free_count();
        let (critical, low) = self.watermarks();
        let dead = if free < low { self.segments.dead_count() } else { 0 };
        if self.in_progress.is_some()
            || self.log.since_checkpoint_bytes() >= self.checkpoint_bytes
            || self.records_since_checkpoint >= RECORDS_MAX
            || self.map.dirty_bytes() > budget / 2
            || (free <= critical && (dead > 0 || self.segments.map_need() > 0))
        {
            return Wanted::Checkpoint;
        }
        if free + dead < low && self.segments.victim(self.log.sequence()).is_some() {
            return if self.map.overlays() > 0 { Wanted::LoadOverlays } else { Wanted::Clean };
        }
        if self.is_idle() {
            // A short log makes the next opening quick.
            const IDLE_LOG_BYTES: u64 = 8 << 20;
            if self.log.since_checkpoint_bytes() > IDLE_LOG_BYTES.min(self.checkpoint_bytes / 4) {
                return Wanted::Checkpoint;
            }
            if !self.discard_unsupported && !self.discarding && self.segments.has_discard() {
                return Wanted::Discard;
            }
        }
        Wanted::Nothing
    }

    /// Free segments at which a checkpoint must free dead ones, and below which (dead ones counted) cleaning works.
    fn watermarks(&self) -> (u32, u32) {
        let live = (self.segments.live_units() / self.segments.segment_units()) as u32;
        watermarks(self.segments.count(), live, self.segments.floor(Head::Host))
    }
}

impl<M: Media> Drive<M> {
    /// One unit of background work (cleaning, a checkpoint, a discard) if any is wanted; false if none was.
    ///
    /// # Errors
    /// What the medium answered. A failed write or sync has poisoned the drive.
    pub async fn maintain(&self) -> Result<bool, Error> {
        let shared = &self.0;
        if shared.core().wanted() == Wanted::Nothing {
            return Ok(false);
        }
        let _right = shared.maintenance().await;
        let wanted = shared.core().wanted();
        match wanted {
            Wanted::Nothing => return Ok(false),
            Wanted::Checkpoint => shared.checkpoint_with_overlays().await?,
            // What cannot be read does not keep the rest from being cleaned.
            Wanted::LoadOverlays if shared.load_overlays(LEAVES_A_ROUND).await.is_ok() => {}
            Wanted::LoadOverlays | Wanted::Clean => {
                if !shared.clean_one().await? {
                    shared.write_checkpoint(false).await?;
                }
            }
            Wanted::Discard => return Ok(shared.discard_one()),
        }
        shared.progress.notify(usize::MAX);
        Ok(true)
    }

    /// Cleans the best victim whether or not space is short; false if there is none.
    pub async fn clean(&self) -> Result<bool, Error> {
        self.0.core().writable()?;
        let _right = self.0.maintenance().await;
        self.0.clean_one().await
    }

    /// Writes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<(), Error> {
        self.0.core().writable()?;
        let _right = self.0.maintenance().await;
        self.0.write_checkpoint(false).await
    }

    /// Time passes: to be called every few milliseconds. An open pack that got nothing since the last tick is written
    /// out, and a drive without requests for fifty ticks counts as idle.
    pub fn tick(&self) {
        let packs = {
            let mut core = self.0.core();
            let core = &mut *core;
            core.ticks += 1;
            if core.writable().is_err() {
                return;
            }
            core.log.tick(&mut core.segments);
            core.log.take_outbox()
        };
        self.0.write_out(packs);
    }

    /// Makes everything durable, writes a last checkpoint and refuses everything from then on.
    pub async fn close(&self) -> Result<(), Error> {
        if self.0.core().read_only.is_some() {
            self.0.core().closed = true;
            return Ok(());
        }
        self.flush().await?;
        let _right = self.0.maintenance().await;
        if self.0.core().in_progress.is_some() {
            self.0.write_checkpoint(false).await?;
        }
        self.0.write_checkpoint(true).await?;
        self.0.core().closed = true;
        Ok(())
    }
}

impl<M: Media> Shared<M> {
    pub(crate) async fn maintenance(self: &Arc<Self>) -> Maintenance<M> {
        self.wait_for(|core| (!core.maintaining).then(|| core.maintaining = true)).await;
        Maintenance(self.clone())
    }

    /// A checkpoint; before it, leaves are loaded of which only changes are in memory: those that were cleared, and if
    /// changes take much of the cache or of the free segments, those with most changes. Written as overlays they would
    /// stay changed, and the next checkpoint would have them to write again. Fails also where that brought nothing and
    /// the map still waits for it.
    async fn checkpoint_with_overlays(self: &Arc<Self>) -> Result<(), Error> {
        let leaves = {
            let core = self.core();
            let crowded =
                core.map.dirty_bytes() > core.map.budget_bytes() / 2 || core.segments.map_need() > 0;
            // Whole leaves take more memory than changes until they are written: a sixteenth of the budget at a time.
            let some = core.map.budget_bytes() as usize / 16 / layout::BLOCK_BYTES;
            let leaves = if crowded { some.max(LEAVES_A_CHECKPOINT_MIN) } else { 0 };
            core.in_progress.is_none().then_some(leaves)
        };
        let loaded = match leaves {
            Some(leaves) => self.load_overlays(leaves).await,
            None => Ok(()),
        };
        self.write_checkpoint(false).await?;
        loaded.or_else(|error| if self.core().map_pressure() { Err(error) } else { Ok(()) })
    }

    /// Loads some leaves of which only changes are in memory: up to `max`, and cleared ones. Fails if there are any and
    /// none could be loaded.
    async fn load_overlays(self: &Arc<Self>, max: usize) -> Result<(), Error> {
        // With their ancestors they fit into what is kept of the newest nodes, however small the cache.
        const AT_ONCE: usize = 16;
        let leaves = {
            let core = self.core();
            if core.map.overlays() == 0 {
                return Ok(());
            }
            // A leaf may take a whole page in the log, and only segments that writing the map does not need are there
            // for it.
            let spare = core.segments.free_count().saturating_sub(core.segments.map_need() + 1);
            let spare_bytes = u64::from(spare) * u64::from(core.geometry().segment_bytes);
            let max = max.min((spare_bytes / 2 / layout::BLOCK_BYTES as u64) as usize);
            core.map.overlays_to_load(LEAVES_A_ROUND, max)
        };
        let (mut loaded, mut failed) = (0, None);
        for some in leaves.chunks(AT_ONCE) {
            for result in futures::future::join_all(some.iter().map(|leaf| self.load_whole(*leaf))).await {
                match result {
                    Ok(()) => loaded += 1,
                    Err(error) => failed = Some(error),
                }
            }
        }
        {
            let mut core = self.core();
            let bytes = core.map.write_estimate_bytes();
            core.segments.set_map_need(bytes);
        }
        failed.filter(|_| loaded == 0).map_or(Ok(()), Err)
    }

    /// Loads a leaf of which only changes are in memory, with what leads to it.
    async fn load_whole(&self, leaf: NodeId) -> Result<(), Error> {
        // A path at a time, and again should others have evicted or moved part of it.
        const LOADS_MAX: u32 = 16;
        for _ in 0..LOADS_MAX {
            let missing = self.core().map.overlay_image(leaf);
            let Some(missing) = missing else { break };
            self.load(missing).await?;
        }
        Ok(())
    }

    /// Physical space seems full, but what changes to leaves not loaded have replaced may still be counted as live, and
    /// the map not written yet is estimated: makes both exact. False if they were.
    pub(crate) async fn settle_accounts(self: &Arc<Self>) -> Result<bool, Error> {
        let _right = self.maintenance().await;
        let overlays = self.core().map.overlays();
        if overlays > 0 {
            self.load_overlays(LEAVES_A_ROUND).await?;
            if self.core().map.overlays() < overlays {
                return Ok(true);
            }
        }
        if self.core().map.dirty_bytes() == 0 {
            return Ok(false);
        }
        self.write_checkpoint(false).await?;
        Ok(true)
    }

    /// No segment is left for the host: cleans and frees until there is. False if that cannot be.
    pub(crate) async fn make_space(self: &Arc<Self>) -> Result<bool, Error> {
        const ROUNDS_MAX: usize = 16;
        let _right = self.maintenance().await;
        for _ in 0..ROUNDS_MAX {
            if self.core().segments.host_may_take() {
                return Ok(true);
            }
            let (before, overlays) = {
                let core = self.core();
                (core.segments.live_units(), core.map.overlays())
            };
            let mut cleaned = false;
            if self.core().segments.map_need() > 0 {
                self.checkpoint_with_overlays().await?;
            }
            while {
                let core = self.core();
                let (_, low) = core.watermarks();
                core.segments.free_count() + core.segments.dead_count() < low
            } {
                if self.core().map.overlays() > 0 {
                    self.load_overlays(LEAVES_A_ROUND).await?;
                }
                if !self.clean_one().await? {
                    break;
                }
                cleaned = true;
            }
            let free = self.core().segments.free_count();
            self.write_checkpoint(false).await?;
            let core = self.core();
            let idle = core.segments.free_count() <= free && core.segments.live_units() >= before;
            if !cleaned && idle && core.map.overlays() >= overlays {
                break;
            }
        }
        Ok(self.core().segments.host_may_take())
    }

    /// Too much waits for the medium or for a checkpoint: helps, and waits.
    pub(crate) async fn relieve(self: &Arc<Self>) -> Result<(), Error> {
        self.wait_for(|core| {
            let free = core.log.unwritten_bytes() <= UNWRITTEN_MAX_BYTES;
            (free || core.poisoned.is_some()).then_some(())
        })
        .await;
        self.core().writable()?;
        if self.core().must_checkpoint() {
            let _right = self.maintenance().await;
            if self.core().must_checkpoint() {
                self.checkpoint_with_overlays().await?;
            }
        }
        Ok(())
    }

    /// Gives one freed segment's space back to the backing. In the background, to its end: while it is under way the
    /// segment must not be written.
    fn discard_one(self: &Arc<Self>) -> bool {
        let taken = {
            let mut core = self.core();
            let segment = core.segments.take_for_discard();
            core.discarding = segment.is_some();
            segment.map(|s| (s, core.geometry().segment_offset(s), u64::from(core.geometry().segment_bytes)))
        };
        let Some((segment, offset, len)) = taken else { return false };
        let shared = self.clone();
        (self.spawner)(Box::pin(async move {
            let result = shared.media.discard(offset, len).await;
            {
                let mut core = shared.core();
                core.segments.discarded(segment);
                core.discarding = false;
                match result {
                    Ok(()) => core.counters.discarded_bytes += len,
                    // Not worth an error: the space is merely not given back.
                    Err(_) => core.discard_unsupported = true,
                }
            }
            shared.progress.notify(usize::MAX);
        }));
        true
    }
}

impl Core {
    /// Whether host writes must wait for a checkpoint: the map's changes have outgrown the cache, or the log has
    /// outgrown what recovery should read.
    pub(crate) fn must_checkpoint(&self) -> bool {
        self.map_pressure()
            || self.log.since_checkpoint_bytes() > self.checkpoint_bytes * 4
            || self.records_since_checkpoint > RECORDS_MAX * 2
    }
}
