//! Options to create and open a drive.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use layout::geometry::validate_capacity;
use layout::{Geometry, PAGE_BYTES, ParityForm};
use media::{Arena, Lease, exact_size};

use crate::error::Error;
use crate::kept_memory::Left;
use crate::planted::Planted;
use crate::state::read_cache::ReadCache;

/// Runs a future to completion in the background: `tokio::spawn` in a server, the seeded executor in the
/// simulator.
pub type Spawner = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Runs work that keeps a processor busy for a long time, such as training a dictionary, and that only the
/// future waits for that requested it: a thread of its own in a server, one task among others in the
/// simulator.
pub type Compute = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// A monotonic clock in nanoseconds, for measurements only. Nothing that the engine does depends on it.
pub type Clock = fn() -> u64;

/// Options of a new drive.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Bytes of the backing that the drive may use.
    pub physical_size_bytes: u64,
    /// Capacity that hosts see.
    pub logical_capacity_bytes: u64,
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Segment size in bytes, a power of two from 512 KiB; `None`: by physical size.
    pub segment_bytes: Option<u32>,
    /// Compression of new blocks.
    pub codec: codec::Policy,
    /// Id of the drive.
    pub uuid: [u8; 16],
    /// Creation time in seconds since 1970, 0 if unknown.
    pub created_unix_seconds: u64,
    /// Bytes that may be written to the backing over its life (its maker's TBW), 0 if unknown.
    pub endurance_bytes: u64,
    /// Freed space is not discarded in the backing: it was allocated on purpose.
    pub keep_allocated: bool,
    /// Whether there are copies of superblock and checkpoints far from the start. `None`: if they take little
    /// of the drive. Never if there is no room for them.
    pub far_copies: Option<bool>,
    /// What segments set apart for parity.
    pub parity: ParityForm,
}

impl CreateOptions {
    /// Returns the geometry of the drive on a backing of `backing_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for impossible sizes.
    pub fn validate(&self, backing_bytes: u64) -> Result<Geometry, Error> {
        let invalid = |e: layout::DecodeError| Error::Invalid(e.to_string());
        let physical = self.physical_size_bytes / PAGE_BYTES as u64 * PAGE_BYTES as u64;
        if physical > backing_bytes {
            return Err(Error::Invalid(format!(
                "a physical size of {}, but the backing has {}",
                exact_size(physical),
                exact_size(backing_bytes)
            )));
        }
        let segment_bytes = self.segment_bytes;
        let segment_bytes =
            segment_bytes.or_else(|| Geometry::segment_bytes_for_parity(physical, self.parity));
        let geometry = match self.far_copies {
            None => Geometry::new(physical, segment_bytes),
            Some(false) => Geometry::without_far(physical, segment_bytes),
            Some(true) => Geometry::without_far(physical, segment_bytes).and_then(Geometry::with_far),
        };
        let geometry = Geometry { parity: self.parity, ..geometry.map_err(invalid)? };
        validate_capacity(self.logical_capacity_bytes).map_err(invalid)?;
        if self.sector_bytes != 512 && self.sector_bytes != 4096 {
            return Err(Error::Invalid(format!(
                "sector size of {} bytes: expected 512 or 4096",
                self.sector_bytes
            )));
        }
        Ok(geometry)
    }
}

/// Options to open a drive.
#[derive(Clone)]
pub struct OpenOptions {
    /// Set as soon as a checkpoint on the medium may name this run: its memory then belongs to the drive,
    /// whether or not the opening succeeds.
    pub begun: Arc<AtomicBool>,
    /// A (random) number never used before for this drive. It makes what this run writes distinguishable from
    /// everything that earlier runs left behind.
    pub entropy: u64,
    /// Memory for map nodes and, a sixteenth of it up to 512 KiB, for recently read frames, in bytes. At
    /// least 64 KiB are used for each.
    pub map_budget_bytes: u64,
    /// Nothing is written. Recovery happens in memory.
    pub read_only: bool,
    /// Opens a drive with a damaged log as it was before the damage. Its state names the loss. Only with
    /// `read_only`.
    pub accept_damage: bool,
    /// Acknowledge writes when they are in memory (the default). If false, every write is durable before it
    /// returns.
    pub write_cache: bool,
    /// Most adjacent blocks that a write compresses as one frame: 1 (none), 2, 4 or 8.
    pub frame_blocks: u64,
    /// Checkpoint after this many bytes of log. Bounds what recovery has to read.
    pub checkpoint_bytes: u64,
    /// Most memory for the map while the log of a drive that is opened read-only is rolled forward, in bytes.
    /// By default half of what is available when the options are made, so that an image that nobody trusts
    /// ends in an error. Four times the budget of the map are always allowed. A drive that is opened for
    /// writing has no limit.
    pub recovery_bytes_max: u64,
    /// Blocks of 4096 bytes in the sample for training dictionaries; 0: none are trained.
    pub sample_blocks: usize,
    /// Dictionaries are kept, and settled data is settled again with them, if data becomes smaller by this
    /// factor: 1.03 unless the simulator wants this to happen more often.
    pub dictionary_gain_min: f64,
    /// Random reads of a group of blocks from which on its frames are cut small: 8 unless the simulator wants
    /// this to happen more often.
    pub hot_reads: u8,
    /// Times that a request is made anew because others changed a block that it covers in part, after which
    /// they wait for it: 8 unless the simulator wants this to happen more often.
    pub conflicts_before_hold: u32,
    /// Compresses what hosts write in place of the processor, which does all other work. `None`: there is no
    /// such device.
    pub offload: Option<Arc<dyn offload::Offload>>,
    /// If the backing has no room: how many ticks a request for durability waits before it is refused.
    /// Changes are refused at once. 0 (the default) if nobody calls [`Drive::tick`](crate::Drive::tick).
    pub full_backing_patience_ticks: u64,
    /// Cache of decompressed blocks, which drives may share. `None` (the default): there is none.
    pub read_cache: Option<Arc<ReadCache>>,
    /// Background runner.
    pub spawner: Spawner,
    /// Runner for work that keeps a processor busy.
    pub compute: Compute,
    /// Measures the time inside the critical section; `None`: not measured.
    pub clock: Option<Clock>,
    /// Called before each entry of the critical section: the simulator runs another task there, as another
    /// thread could.
    pub before_entry: Option<fn()>,
    /// Called inside the critical section between two records of a batch: the simulator panics there.
    pub between_records: Option<fn()>,
    /// Requests are answered only while it holds. What is written to the backing is a matter of the
    /// [`Media`](media::Media). `None` (the default): nobody else can reach the backing.
    pub lease: Option<Arc<Lease>>,
    /// The boot of the machine: memories of others are not used.
    pub boot: [u8; 16],
    /// Memory of this run, in the shape of [`MEMORY_SHAPE`](crate::MEMORY_SHAPE), all zeros. If it outlives
    /// the process, so does everything that was acknowledged. `None` (the default): it does not.
    pub memory: Option<Arena>,
    /// Memories that earlier runs left. Those of this drive and this boot are used whole or refused.
    pub left_memories: Vec<Left>,
    /// A block device has the drive, and what is on that would not see a loss: after a run that did not close
    /// the drive, its memory is needed.
    pub needs_memory: bool,
    /// An administrator has given up what the last run acknowledged and is not here.
    pub gives_up_memory: bool,
    /// The run before did not close the drive: its owner's mark says so. The backing may then hold the space
    /// of any free segment, whatever the newest checkpoint says.
    pub left_open: bool,
    /// A deliberate mistake, to test the simulator.
    pub planted: Planted,
}

/// Default of [`OpenOptions::map_budget_bytes`].
pub const DEFAULT_MAP_BUDGET_BYTES: u64 = 128 << 20;
/// Default of [`OpenOptions::sample_blocks`]: 4 MiB.
pub(crate) const DEFAULT_SAMPLE_BLOCKS: usize = 1024;
/// Default of [`OpenOptions::dictionary_gain_min`]: rewriting and memory have their cost.
pub(crate) const DEFAULT_DICTIONARY_GAIN_MIN: f64 = 1.03;
/// Default of [`OpenOptions::hot_reads`]: cutting a frame costs as much as some fifty reads of its blocks.
pub(crate) const DEFAULT_HOT_READS: u8 = 8;
/// Default of [`OpenOptions::conflicts_before_hold`]: conflicts of small requests are rare and short, and
/// mostly one is all.
pub(crate) const DEFAULT_CONFLICTS_BEFORE_HOLD: u32 = 8;
/// Default of [`OpenOptions::frame_blocks`]: 32 KiB.
pub(crate) const DEFAULT_FRAME_BLOCKS: u64 = 8;
/// Default of [`OpenOptions::checkpoint_bytes`].
pub const DEFAULT_CHECKPOINT_BYTES: u64 = 256 << 20;

impl OpenOptions {
    /// Returns the defaults, given what the engine cannot provide itself.
    pub fn new(entropy: u64, spawner: Spawner) -> OpenOptions {
        OpenOptions {
            begun: Arc::default(),
            entropy,
            map_budget_bytes: DEFAULT_MAP_BUDGET_BYTES,
            read_only: false,
            accept_damage: false,
            write_cache: true,
            frame_blocks: DEFAULT_FRAME_BLOCKS,
            sample_blocks: DEFAULT_SAMPLE_BLOCKS,
            dictionary_gain_min: DEFAULT_DICTIONARY_GAIN_MIN,
            hot_reads: DEFAULT_HOT_READS,
            conflicts_before_hold: DEFAULT_CONFLICTS_BEFORE_HOLD,
            compute: Arc::new(|work| work()),
            checkpoint_bytes: DEFAULT_CHECKPOINT_BYTES,
            recovery_bytes_max: host::memory::available_bytes(&host::Root::machine())
                .map_or(u64::MAX, |bytes| bytes / 2),
            offload: None,
            full_backing_patience_ticks: 0,
            read_cache: None,
            spawner,
            clock: None,
            before_entry: None,
            between_records: None,
            lease: None,
            boot: [0; 16],
            memory: None,
            left_memories: Vec::new(),
            needs_memory: false,
            gives_up_memory: false,
            left_open: false,
            planted: Planted::default(),
        }
    }
}
