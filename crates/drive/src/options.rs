//! How a drive is made and opened.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use crate::planted::Planted;

/// Runs a future to its end in the background: `tokio::spawn` in a server, the seeded executor in the simulator.
pub type Spawner = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// Runs work that keeps a processor busy for long, such as training a dictionary, and that nothing waits for but the
/// future that asked for it: a thread of its own in a server, a task among others in the simulator.
pub type Compute = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// A monotonic clock in nanoseconds, for measuring only: nothing the engine does depends on it.
pub type Clock = fn() -> u64;

/// What a new drive shall be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Bytes of the backing the drive may use.
    pub physical_size_bytes: u64,
    /// What the host sees.
    pub logical_capacity_bytes: u64,
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Segment size in bytes, a power of two from 512 KiB; `None`: by physical size.
    pub segment_bytes: Option<u32>,
    /// How new blocks are compressed.
    pub codec: codec::Policy,
    /// The drive's identity.
    pub uuid: [u8; 16],
    /// Creation time in seconds since 1970, 0 if unknown.
    pub created_unix_seconds: u64,
    /// Bytes that may be written to the backing over its life (its maker's TBW), 0 if unknown.
    pub endurance_bytes: u64,
    /// Freed space is not given back to the backing: it was allocated on purpose.
    pub keep_allocated: bool,
}

/// How a drive is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// A number never used before for this drive (random): makes what this run writes distinguishable from all that
    /// earlier runs left behind.
    pub entropy: u64,
    /// Memory for map nodes and, a sixteenth of it up to 512 KiB, for frames read lately, in bytes. At least 64 KiB are
    /// used for each.
    pub map_budget_bytes: u64,
    /// Nothing is written; recovery happens in memory.
    pub read_only: bool,
    /// Opens a drive whose log is damaged as it was before the damage, with the loss named in its state. Only with
    /// `read_only`.
    pub accept_damage: bool,
    /// Acknowledge writes when they are in memory (the default); off: every write is durable before it returns.
    pub write_cache: bool,
    /// Most adjacent blocks that a write compresses as one frame: 1 (none), 2, 4 or 8.
    pub frame_blocks: u64,
    /// Checkpoint after this many bytes of log: bounds what recovery has to read.
    pub checkpoint_bytes: u64,
    /// Blocks of 4096 bytes in the sample that dictionaries are trained on; 0: none are trained.
    pub sample_blocks: usize,
    /// Dictionaries are kept, and what was settled is settled again with them, if data gets smaller by this factor: 1.03 unless the
    /// simulator wants more to happen.
    pub dictionary_gain_min: f64,
    /// Compresses what hosts write, in the processor's place; the processor does all other work. `None`: there is none.
    pub offload: Option<Arc<dyn offload::Offload>>,
    /// Where the backing has no room: how many ticks those wait who want something durable before they are refused. Changes are
    /// refused at once. 0 (the default) where nobody calls [`Drive::tick`](crate::Drive::tick).
    pub full_backing_patience_ticks: u64,
    /// Background runner.
    pub spawner: Spawner,
    /// Runner for what keeps a processor busy.
    pub compute: Compute,
    /// Measures the time inside the critical section; `None`: not measured.
    pub clock: Option<Clock>,
    /// A mistake made on purpose, to see whether the simulator finds it.
    pub planted: Planted,
}

/// Default of [`OpenOptions::map_budget_bytes`].
pub const DEFAULT_MAP_BUDGET_BYTES: u64 = 128 << 20;
/// Default of [`OpenOptions::sample_blocks`]: 4 MiB.
pub(crate) const DEFAULT_SAMPLE_BLOCKS: usize = 1024;
/// Default of [`OpenOptions::dictionary_gain_min`]: writing anew and memory have their price.
pub(crate) const DEFAULT_DICTIONARY_GAIN_MIN: f64 = 1.03;
/// Default of [`OpenOptions::frame_blocks`]: 32 KiB.
pub(crate) const DEFAULT_FRAME_BLOCKS: u64 = 8;
/// Default of [`OpenOptions::checkpoint_bytes`].
pub const DEFAULT_CHECKPOINT_BYTES: u64 = 256 << 20;

impl OpenOptions {
    /// The defaults, given what the engine cannot make itself.
    pub fn new(entropy: u64, spawner: Spawner) -> OpenOptions {
        OpenOptions {
            entropy,
            map_budget_bytes: DEFAULT_MAP_BUDGET_BYTES,
            read_only: false,
            accept_damage: false,
            write_cache: true,
            frame_blocks: DEFAULT_FRAME_BLOCKS,
            sample_blocks: DEFAULT_SAMPLE_BLOCKS,
            dictionary_gain_min: DEFAULT_DICTIONARY_GAIN_MIN,
            compute: Arc::new(|work| work()),
            checkpoint_bytes: DEFAULT_CHECKPOINT_BYTES,
            offload: None,
            full_backing_patience_ticks: 0,
            spawner,
            clock: None,
            planted: Planted::default(),
        }
    }
}
