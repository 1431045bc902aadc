//! The object under test: the drive, or something that claims to behave like one.

use std::future::Future;
use std::sync::Arc;

use codec::Policy;
use device::ExtentKind;
use drive::{
    CheckOptions, Covered, CreateOptions, Drive, Fault, Left, OpenOptions, Settle, Spawner, WipeOptions,
    Zeroes,
};
use layout::ParityForm;
use media::{Arena, SimMedia};
use offload::Offload;

use crate::backing::{Backing, Overwrites};
use crate::later::{self, Later};
use crate::{Bug, Config, Error, panics, switch};

/// Options of one opening of a subject.
#[derive(Clone)]
pub struct Opening {
    /// Random number that was never used before.
    pub entropy: u64,
    /// Open for reading only.
    pub read_only: bool,
    /// Open a damaged drive in the state before the damage, for reading only.
    pub rescue: bool,
    /// Most blocks that a write compresses as one frame: 1, 2, 4 or 8.
    pub frame_blocks: u64,
    /// True if a compression device may be used.
    pub may_offload: bool,
    /// The life before did not close the drive.
    pub left_open: bool,
    /// True if armed panics strike.
    pub may_panic: bool,
    /// Spawner of background work.
    pub spawner: Spawner,
    /// Refuses writes for lack of space from time to time.
    pub overwrites: Arc<Overwrites>,
    /// Memory of this run, if it outlives the process.
    pub memory: Option<Arena>,
    /// Memories of killed runs.
    pub left_memories: Vec<Arena>,
    /// Planted mistake.
    pub bug: Option<Bug>,
}

/// Numbers about space that contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SpaceError {
    /// Nothing is left for data.
    #[error("reserve and fixed space exceed the drive: {0:?}")]
    NoLimit(Space),
    /// Used space exceeds the limit by more than small writes may use.
    #[error("used exceeds the limit of {limit} bytes by more than is kept: {space:?}")]
    Used {
        /// Space for data, in bytes.
        limit: u64,
        /// The numbers.
        space: Space,
    },
    /// The parts exceed the limit.
    #[error("used, reclaimable and free space exceed the limit of {limit} bytes: {space:?}")]
    Sum {
        /// Space for data, in bytes.
        limit: u64,
        /// The numbers.
        space: Space,
    },
}

/// Space reported by a drive, in bytes of the backing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Occupied by live data and map.
    pub used_bytes: u64,
    /// Available at once.
    pub free_bytes: u64,
    /// Available after cleaning.
    pub reclaimable_bytes: u64,
    /// Size of a segment.
    pub segment_bytes: u64,
    /// Number of segments.
    pub segments: u64,
    /// All that the drive may use.
    pub size_bytes: u64,
    /// Part of it that host data may not fill.
    pub reserve_bytes: u64,
    /// Part of it for structures, and lost in segments set aside.
    pub fixed_bytes: u64,
    /// Number of segments that are free.
    pub free_segments: u64,
}

impl Space {
    /// Fails if the numbers contradict each other: used may exceed the limit by 1/256 of it, and otherwise
    /// used, reclaimable and free space are the limit.
    pub(crate) fn check(&self) -> Result<(), SpaceError> {
        const KEPT_FOR_SMALL: u64 = 256;
        let limit = self.size_bytes.checked_sub(self.reserve_bytes + self.fixed_bytes);
        let Some(limit) = limit else {
            return Err(SpaceError::NoLimit(*self));
        };
        if self.used_bytes > limit + limit / KEPT_FOR_SMALL {
            return Err(SpaceError::Used { limit, space: *self });
        }
        let sum = self.used_bytes + self.reclaimable_bytes + self.free_bytes;
        if sum > limit.max(self.used_bytes) {
            return Err(SpaceError::Sum { limit, space: *self });
        }
        Ok(())
    }
}

/// Result of a step of a pass over the blocks of a drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PassStep {
    /// Block at which the next step begins. 0 after the last block.
    pub next_block: u64,
    /// Anything was done.
    pub was_useful: bool,
}

/// A drive under test. The operations are those of [`Drive`].
#[allow(missing_docs)]
pub trait Subject: Clone + Send + Sync + 'static {
    fn create(media: &SimMedia, config: &Config) -> impl Future<Output = Result<(), Error>> + Send;
    fn open(
        media: Arc<SimMedia>,
        config: &Config,
        opening: Opening,
    ) -> impl Future<Output = Result<Self, Error>> + Send;
    fn read(&self, offset: u64, buf: &mut [u8]) -> impl Future<Output = Result<(), Error>> + Send;
    fn write(&self, offset: u64, data: &[u8], fua: bool) -> impl Future<Output = Result<(), Error>> + Send;
    fn flush(&self) -> impl Future<Output = Result<(), Error>> + Send;
    fn trim(&self, offset: u64, len: u64, fua: bool) -> impl Future<Output = Result<(), Error>> + Send;
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroes: Zeroes,
    ) -> impl Future<Output = Result<(), Error>> + Send;
    fn maintain(&self) -> impl Future<Output = Result<bool, Error>> + Send;
    fn clean(&self) -> impl Future<Output = Result<bool, Error>> + Send;
    fn checkpoint(&self) -> impl Future<Output = Result<(), Error>> + Send;
    fn tick(&self);
    fn close(&self) -> impl Future<Output = Result<(), Error>> + Send;
    fn check(&self, deep: bool) -> impl Future<Output = Result<Vec<Fault>, Error>> + Send;
    /// Compresses some data again, from this block on.
    fn settle(&self, _block: u64, _which: Settle) -> impl Future<Output = Result<PassStep, Error>> + Send {
        std::future::ready(Ok(PassStep::default()))
    }
    /// Compresses again data that was settled before the current dictionaries existed, from this block on.
    fn settle_again(&self, _block: u64) -> impl Future<Output = Result<PassStep, Error>> + Send {
        std::future::ready(Ok(PassStep::default()))
    }
    /// Cuts frames that are read at random often. Returns whether anything was done.
    fn cut_hot(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }
    /// Searches for data that needs the oldest dictionaries. Returns whether any dictionary was removed as a
    /// result.
    fn free(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }
    /// Trains a dictionary. Returns whether it was kept.
    fn train(&self) -> impl Future<Output = Result<bool, Error>> + Send {
        std::future::ready(Ok(false))
    }
    /// Sets the compression policy.
    fn set_codec(&self, _policy: Policy) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
    /// Sets what new fillings of segments set apart for parity.
    fn set_parity(&self, _form: ParityForm) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
    /// Returns the extents from an offset on: length in bytes, and whether it reads as zeros. Empty if the
    /// subject does not support it.
    fn extents(
        &self,
        _offset: u64,
        _len: u64,
    ) -> impl Future<Output = Result<Vec<(u64, bool)>, Error>> + Send {
        std::future::ready(Ok(Vec::new()))
    }
    /// Verifies some data from this block on.
    fn scrub(&self, _block: u64) -> impl Future<Output = Result<PassStep, Error>> + Send {
        std::future::ready(Ok(PassStep::default()))
    }
    /// Changes the memory for the map.
    fn set_map_budget(&self, _bytes: u64) {}
    /// Grows the drive to this physical size and logical capacity.
    fn grow(&self, _physical: u64, _logical: u64) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Ok(()))
    }
    /// Wipes the drive on a backing that is not open. [`Subject::CAN_WIPE`] is false for subjects that do not
    /// support it.
    fn wipe(_media: Arc<SimMedia>) -> impl Future<Output = Result<(), Error>> + Send {
        std::future::ready(Err(Error::Invalid("it cannot be wiped".into())))
    }
    /// Number of connections so far that hosts began to establish.
    fn connections_begun(&self) -> u64 {
        0
    }
    /// The latest of them that may send requests. No request of a connection that was lost before it began
    /// takes effect any more.
    fn connection_fenced(&self) -> u64 {
        0
    }
    /// Sets whether connections of its hosts are cut at random, if it has any.
    fn disturb(&self, _disturbed: bool) {}
    /// Mistakes that can be planted in it.
    fn bugs() -> Vec<Bug> {
        Bug::all().collect()
    }
    /// True if what it acknowledged survives its process with [`Opening::memory`].
    const KEEPS_MEMORY: bool = false;
    /// True if it writes elsewhere if pages accept no writes.
    const AVOIDS_BAD_PAGES: bool = false;
    /// True if [`Subject::wipe`] works.
    const CAN_WIPE: bool = false;
    /// Returns whether it holds no data at all.
    fn is_empty(&self) -> bool {
        false
    }
    /// Number of the openings for writing, and the ids of the newest, newest first; empty if they have none.
    fn openings(&self) -> (u64, Vec<u64>) {
        (0, Vec::new())
    }
    /// Changes of a block by others while a request held it, since the drive was opened.
    fn hold_overruns(&self) -> u64 {
        0
    }
    /// Memory of data that waits for the backing, in bytes.
    fn waiting_memory_bytes(&self) -> u64;
    /// Number of segments that it has set aside because they accept no writes.
    fn bad_segments(&self) -> u64 {
        0
    }
    /// Number of segments that it has set aside because their contents contradict the map or cannot be read.
    fn damaged_segments(&self) -> u64 {
        0
    }
    /// Fillings that are covered by parity now.
    fn covered(&self) -> Vec<Covered> {
        Vec::new()
    }
    /// Space that it reports. [`Subject::HAS_SPACE`] is false for subjects that do not support it.
    fn space(&self) -> Option<Space> {
        None
    }
    /// True if [`Subject::space`] works.
    const HAS_SPACE: bool = false;
    /// Internal counters for the coverage report. They only grow.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
    /// Counters of the last recovery.
    fn recovered(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// Steps of [`Subject::free`] per piece of background work.
const FREE_STEPS: usize = 8;
/// Most extents requested at once.
const EXTENTS_MAX: usize = 64;

impl Subject for Drive<Backing> {
    async fn create(media: &SimMedia, config: &Config) -> Result<(), Error> {
        let options = CreateOptions {
            physical_size_bytes: config.physical_bytes,
            logical_capacity_bytes: config.capacity_bytes(),
            sector_bytes: config.sector_bytes,
            segment_bytes: Some(config.segment_bytes),
            codec: config.codec,
            uuid: config.uuid,
            created_unix_seconds: 0,
            endurance_bytes: 0,
            keep_allocated: false,
            far_copies: Some(config.far_copies),
            parity: config.parity,
        };
        Ok(Drive::<SimMedia>::create(media, &options).await?)
    }

    async fn open(media: Arc<SimMedia>, config: &Config, opening: Opening) -> Result<Self, Error> {
        let offload = Later::sometimes(opening.entropy, &opening.spawner, config.is_contended());
        let offload = offload.filter(|_| opening.may_offload);
        let compute = later::compute(opening.entropy, &opening.spawner);
        let mut options = OpenOptions::new(opening.entropy, opening.spawner);
        options.compute = compute;
        options.offload = offload.map(|offload| offload as Arc<dyn Offload>);
        options.map_budget_bytes = config.map_budget_bytes;
        options.read_cache = config.read_cache.clone();
        // The second time.
        options.hot_reads = 2;
        options.conflicts_before_hold = config.conflicts_before_hold;
        options.read_only = opening.read_only || opening.rescue;
        options.accept_damage = opening.rescue;
        options.write_cache = config.write_cache;
        // A seed must not depend on the memory of the machine.
        options.recovery_bytes_max = u64::MAX;
        options.checkpoint_bytes = config.checkpoint_bytes;
        // Small enough for training to happen within a run.
        options.sample_blocks = 48;
        if config.is_learning() {
            options.dictionary_gain_min = 0.0;
        }
        options.clock = opening.may_panic.then_some(panics::clock);
        options.between_records = opening.may_panic.then_some(panics::between_records);
        options.left_open = opening.left_open;
        options.memory = opening.memory;
        let left = |memory: Arena| Left { memory: Arc::new(memory), is_elsewhere: false };
        options.left_memories = opening.left_memories.into_iter().map(left).collect();
        options.before_entry = Some(switch::before_entry);
        options.frame_blocks = opening.frame_blocks;
        // Less than the number of beats after which a life without progress is considered stuck.
        options.full_backing_patience_ticks = opening.entropy % 12;
        options.planted = drive::Planted::new(opening.bug.and_then(Bug::of_drive));
        Ok(Drive::open(Arc::new(Backing::new(media, opening.overwrites)), options).await?)
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        Ok(self.read(offset, buf).await?)
    }

    async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        Ok(self.write(offset, data, fua).await?)
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(self.flush().await?)
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        Ok(self.trim(offset, len, fua).await?)
    }

    async fn write_zeroes(&self, offset: u64, len: u64, zeroes: Zeroes) -> Result<(), Error> {
        Ok(self.write_zeroes(offset, len, zeroes).await?)
    }

    async fn maintain(&self) -> Result<bool, Error> {
        Ok(self.maintain().await?)
    }

    async fn clean(&self) -> Result<bool, Error> {
        Ok(self.clean().await?)
    }

    async fn checkpoint(&self) -> Result<(), Error> {
        Ok(self.checkpoint().await?)
    }

    async fn settle(&self, block: u64, which: Settle) -> Result<PassStep, Error> {
        let step = self.settle_step(block, which).await?;
        Ok(PassStep { next_block: step.next_block.unwrap_or(0), was_useful: step.blocks_count > 0 })
    }

    async fn settle_again(&self, block: u64) -> Result<PassStep, Error> {
        if block == 0 {
            self.gain_of_settling_again().await?;
        }
        Subject::settle(self, block, Settle::Again).await
    }

    async fn cut_hot(&self) -> Result<bool, Error> {
        let step = self.cut_hot_step().await?;
        Ok(step.is_some_and(|step| step.blocks_count > 0))
    }

    async fn free(&self) -> Result<bool, Error> {
        let before = self.dictionaries().len();
        for _ in 0..FREE_STEPS {
            let step = self.free_dictionaries_step().await?;
            if step.next_block.is_none() || step.no_room {
                break;
            }
        }
        Ok(self.dictionaries().len() < before)
    }

    async fn train(&self) -> Result<bool, Error> {
        // Both change the catalog, and wait for the medium in between.
        let (trained, forgotten) = futures::join!(self.train(), self.forget_dictionaries());
        forgotten?;
        Ok(!trained?.ids.is_empty())
    }

    fn tick(&self) {
        self.tick();
    }

    async fn close(&self) -> Result<(), Error> {
        self.close().await?;
        while self.discard_closed().await {}
        Ok(())
    }

    async fn check(&self, deep: bool) -> Result<Vec<Fault>, Error> {
        let options = CheckOptions { deep, ..CheckOptions::default() };
        Ok(self.examine(options, |_| {}).await?.faults)
    }

    async fn set_codec(&self, policy: Policy) -> Result<(), Error> {
        Ok(self.set_codec(policy).await?)
    }

    async fn set_parity(&self, form: ParityForm) -> Result<(), Error> {
        Ok(self.set_parity(form).await?)
    }

    async fn extents(&self, offset: u64, len: u64) -> Result<Vec<(u64, bool)>, Error> {
        let extents = self.extents(offset, len, EXTENTS_MAX).await?;
        Ok(extents.into_iter().map(|extent| (extent.len, extent.kind != ExtentKind::Data)).collect())
    }

    async fn scrub(&self, block: u64) -> Result<PassStep, Error> {
        let step = self.scrub_step(block).await?;
        match step.faults.first() {
            None => {
                let was_useful = step.records_count > 0 || step.read_bytes > 0;
                let next_block = step.next_block.unwrap_or_else(|| self.scrub_begin().0);
                Ok(PassStep { next_block, was_useful })
            }
            Some(fault) => Err(Error::FailedOrDamaged(fault.to_string())),
        }
    }

    fn set_map_budget(&self, bytes: u64) {
        self.set_map_budget_bytes(bytes);
    }

    async fn grow(&self, physical: u64, logical: u64) -> Result<(), Error> {
        self.set_physical_size(physical).await?;
        Ok(self.set_logical_capacity(logical).await?)
    }

    async fn wipe(media: Arc<SimMedia>) -> Result<(), Error> {
        Drive::<SimMedia>::wipe(&*media, WipeOptions::any()).await?;
        Ok(())
    }

    const CAN_WIPE: bool = true;
    const KEEPS_MEMORY: bool = true;
    const AVOIDS_BAD_PAGES: bool = true;

    fn is_empty(&self) -> bool {
        let status = self.status();
        (status.logical_used_bytes, status.physical_used_bytes) == (0, 0)
    }

    fn openings(&self) -> (u64, Vec<u64>) {
        let status = self.status();
        (status.counters.opens_count, status.runs)
    }

    fn hold_overruns(&self) -> u64 {
        self.status().hold_overruns_count
    }

    fn waiting_memory_bytes(&self) -> u64 {
        self.status().unwritten_memory_bytes
    }

    fn bad_segments(&self) -> u64 {
        self.status().segments_bad_count.into()
    }

    fn damaged_segments(&self) -> u64 {
        self.status().segments_damaged_count.into()
    }

    fn covered(&self) -> Vec<Covered> {
        self.covered()
    }

    fn space(&self) -> Option<Space> {
        let status = self.status();
        Some(Space {
            used_bytes: status.physical_used_bytes,
            free_bytes: status.physical_free_bytes,
            reclaimable_bytes: status.physical_reclaimable_bytes,
            segment_bytes: status.segment_bytes.into(),
            segments: status.segments_count.into(),
            size_bytes: status.physical_size_bytes,
            reserve_bytes: status.physical_reserve_bytes + status.physical_parity_bytes,
            free_segments: status.segments_free_count.into(),
            fixed_bytes: status.physical_fixed_bytes,
        })
    }

    const HAS_SPACE: bool = true;

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let status = self.status();
        let counters = status.counters;
        let structured = status.written.iter().filter(|way| way.codec == codec::CodecId::Structured);
        vec![
            ("drive: checkpoints", counters.checkpoints_count),
            ("drive: segments cleaned", counters.segments_cleaned_count),
            ("drive: pages moved by cleaning", counters.cleaning_written_bytes / 4096),
            ("drive: bytes discarded", counters.discarded_bytes),
            ("drive: corrupt records met", counters.corrupt_records_count),
            ("drive: pages made again from parity", status.parity.repaired_pages_count),
            ("drive: map nodes loaded", status.map_loads_count),
            ("drive: map nodes evicted", status.map_evictions_count),
            ("drive: reads out of kept frames", status.frame_hits_count),
            ("drive: requests that held blocks", status.holds_count),
            ("drive: waits for held blocks", status.hold_waits_count),
            ("drive: blocks out of the read cache", status.read_cache_hits_count),
            (
                "drive: blocks stored by their structure",
                structured.map(|way| way.share.logical_bytes / 4096).sum(),
            ),
        ]
    }

    fn recovered(&self) -> Vec<(&'static str, u64)> {
        let recovered = self.status().recovered;
        let unclean = u64::from(!recovered.clean);
        vec![
            ("drive: packs rolled forward", recovered.packs_count),
            ("drive: records of the log that were durable and are damaged", recovered.damaged_records_count),
            ("drive: unclean opens", unclean),
        ]
    }
}
