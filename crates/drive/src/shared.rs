//! State that all clones of a drive share: the medium, the core behind its lock, and the events that requests
//! wait for.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use event_listener::Event;
use layout::checkpoint::EARLIER_RUNS;
use layout::{Checkpoint, Superblock};
use media::{Arena, Lease, Media};
use offload::Offload;
use parking_lot::{Mutex, MutexGuard};

use crate::options::Clock;

use crate::error::Error;
use crate::options::{Compute, OpenOptions, Spawner};
use crate::planted::{Planted, PlantedBug};
use crate::state::accumulator::Accumulators;
use crate::state::core::Core;
use crate::state::dictionaries::Dictionaries;
use crate::state::frame_cache::Frames;
use crate::state::heat::Heat;
use crate::state::log::SealedPack;
use crate::state::policy::{policy_numbers, policy_of};
use crate::state::read_cache::CachedBlocks;
use crate::state::repairs::Turns;
use crate::state::sample::Sampler;
use crate::state::structure::Structure;
use crate::wait::wait_until;

/// A drive. Clones share it.
///
/// Offsets and lengths are in bytes; any range within the capacity is legal. Requests may run concurrently
/// and finish in any order; their futures may be polled on any thread.
pub struct Drive<M>(pub(crate) Arc<Shared<M>>);

impl<M> Clone for Drive<M> {
    fn clone(&self) -> Self {
        Drive(self.0.clone())
    }
}

/// Sends sealed packs to the medium. It is passed in: this layer knows no medium.
pub(crate) type SendPacks<M> = fn(Arc<Shared<M>>, Vec<SealedPack>);

/// What a run notes of itself in its checkpoints.
pub(crate) struct Run {
    pub(crate) entropy: u64,
    /// See [`Checkpoint::earlier_runs`](layout::Checkpoint::earlier_runs).
    pub(crate) earlier: [u64; EARLIER_RUNS],
    /// The drive was opened for writing.
    writes: bool,
    /// See [`Checkpoint::memory_boot`](layout::Checkpoint::memory_boot).
    pub(crate) memory_boot: [u8; 16],
    pub(crate) writes_through: bool,
}

impl Run {
    /// `has_all`: what the last run acknowledged is here, or was given up.
    pub(crate) fn new(options: &OpenOptions, last: &Checkpoint, has_all: bool) -> Run {
        let mut earlier = last.earlier_runs;
        earlier.rotate_right(1);
        // Nobody who relies on that run may go on from here. Who only looks may not see all that there is.
        earlier[0] =
            if has_all || options.read_only || last.entropy == 0 { last.entropy } else { !last.entropy };
        Run {
            entropy: options.entropy,
            earlier,
            writes: !options.read_only,
            memory_boot: options.memory.as_ref().map_or([0; 16], |_| options.boot),
            writes_through: !options.write_cache,
        }
    }

    /// Entropies of the openings for writing, newest first, as far as they are known.
    pub(crate) fn ids(&self) -> Vec<u64> {
        let all = std::iter::once(self.entropy).filter(|_| self.writes).chain(self.earlier);
        all.take_while(|entropy| *entropy != 0).collect()
    }
}

pub(crate) struct Shared<M> {
    /// For background tasks.
    this: Weak<Shared<M>>,
    /// Takes the packs that were sealed in a critical section when it is left.
    send: SendPacks<M>,
    pub(crate) media: Arc<M>,
    pub(crate) planted: Planted,
    /// Memory of packs, which the log uses.
    pub(crate) memory: Arena,
    core: Mutex<Core>,
    /// Parity of the fillings of this run, until it is on the medium.
    pub(crate) accumulators: Accumulators,
    /// Segments in which something is being repaired.
    pub(crate) turns: Turns,
    /// A pack was written, a sync ended, a checkpoint was committed, or the drive was poisoned.
    pub(crate) progress: Event,
    /// A drive at rest has changed.
    pub(crate) roused: Event,
    pub(crate) spawner: Spawner,
    /// Numbers of the codec policy in the superblock.
    codec: AtomicU16,
    /// See [`Drive::set_hurried`].
    pub(crate) hurried: AtomicBool,
    /// There is room for data that is compressed later.
    pub(crate) has_room: AtomicBool,
    pub(crate) dictionaries: Arc<Dictionaries>,
    pub(crate) structure: Structure,
    /// Recently read frames.
    pub(crate) frames: Frames,
    /// Counts of frames read at random.
    pub(crate) heat: Heat,
    /// See [`OpenOptions::conflicts_before_hold`].
    pub(crate) conflicts_before_hold: u32,
    /// Blocks read at random.
    pub(crate) cached: CachedBlocks,
    pub(crate) sampler: Sampler,
    pub(crate) compute: Compute,
    /// See [`OpenOptions::dictionary_gain_min`].
    pub(crate) dictionary_gain_min: f64,
    /// Compresses what hosts write.
    pub(crate) offload: Option<Arc<dyn Offload>>,
    /// Most blocks that a write compresses as one frame.
    pub(crate) frame_blocks: u64,
    pub(crate) write_cache: bool,
    /// A copy of the field of the superblock, to check requests without the lock.
    pub(crate) capacity_bytes: AtomicU64,
    /// It never changes.
    pub(crate) segment_bytes: u32,
    /// See [`OpenOptions::lease`].
    lease: Option<Arc<Lease>>,
    pub(crate) run: Run,
    clock: Option<Clock>,
    before_entry: Option<fn()>,
    /// Time spent inside the lock, if there is a clock.
    engine_nanoseconds: AtomicU64,
    /// Counted outside the lock.
    pub(crate) host_read_bytes: AtomicU64,
    pub(crate) media_read_bytes: AtomicU64,
    pub(crate) corrupt_records: AtomicU64,
    pub(crate) read_errors: AtomicU64,
}

fn packed(policy: codec::Policy) -> u16 {
    let (policy, level) = policy_numbers(policy);
    u16::from_le_bytes([policy, level as u8])
}

/// The critical section, left when dropped. Packs sealed in it are then sent to the medium.
pub(crate) struct Entered<'a, M: Media> {
    shared: &'a Shared<M>,
    /// `Some` until it is dropped.
    core: Option<MutexGuard<'a, Core>>,
    /// The thread was unwinding when it entered.
    was_panicking: bool,
    since: Option<(Clock, u64)>,
    /// Something may have changed.
    changed: bool,
}

impl<M: Media> Entered<'_, M> {
    /// What has changed so far is nothing that background work depends on.
    pub(crate) fn mark_unchanged(&mut self) {
        self.changed = false;
    }
}

impl<M: Media> Deref for Entered<'_, M> {
    type Target = Core;
    fn deref(&self) -> &Core {
        match &self.core {
            Some(core) => core,
            None => unreachable!("the critical section was left"),
        }
    }
}

impl<M: Media> DerefMut for Entered<'_, M> {
    fn deref_mut(&mut self) -> &mut Core {
        self.changed = true;
        match &mut self.core {
            Some(core) => core,
            None => unreachable!("the critical section was left"),
        }
    }
}

impl<M: Media> Drop for Entered<'_, M> {
    fn drop(&mut self) {
        let Some(mut core) = self.core.take() else { return };
        let goes_on = core.planted.has(PlantedBug::GoesOnAfterPanic);
        if std::thread::panicking() && !self.was_panicking && !goes_on {
            // Whatever was begun is incomplete.
            core.mode.poison("a panic inside the engine: its state cannot be trusted".into());
        }
        // A panic may have left anything; nothing of it is used any more.
        let is_to_be_trusted = !core.mode.is_poisoned() && !std::thread::panicking();
        if let Some(broken) = core.broken_invariant().filter(|_| is_to_be_trusted) {
            core.mode.poison(format!("the engine's state is inconsistent: {broken}"));
            drop(core);
            panic!("the engine's state is inconsistent: {broken}");
        }
        if is_to_be_trusted || core.planted.has(PlantedBug::PublishedAfterPanic) {
            core.log.publish();
        }
        let sealed = core.log.take_outbox();
        let rouses = self.changed && std::mem::take(&mut core.resting);
        drop(core);
        if rouses {
            self.shared.roused.notify(usize::MAX);
        }
        if let Some((clock, entered)) = self.since {
            self.shared.engine_nanoseconds.fetch_add(clock() - entered, Ordering::Relaxed);
        }
        if !sealed.is_empty()
            && !std::thread::panicking()
            && let Some(shared) = self.shared.this.upgrade()
        {
            (self.shared.send)(shared, sealed);
        }
    }
}

impl<M: Media> Shared<M> {
    pub(crate) fn new(
        media: Arc<M>,
        mut core: Core,
        codec: codec::Policy,
        (options, run): (&OpenOptions, Run),
        send: SendPacks<M>,
    ) -> Arc<Shared<M>> {
        let frames = Frames::new(options.planted.has(PlantedBug::StaleFrame));
        core.map.set_budget_bytes(frames.set_budget_bytes(options.map_budget_bytes));
        Arc::new_cyclic(|this| Shared {
            this: this.clone(),
            send,
            planted: options.planted,
            media,
            memory: core.log.arena().clone(),
            capacity_bytes: AtomicU64::new(core.superblock.logical_capacity_bytes),
            segment_bytes: core.geometry().segment_bytes,
            structure: Structure::of(&core.superblock, options.planted),
            core: Mutex::new(core),
            accumulators: Accumulators::default(),
            turns: Turns::default(),
            progress: Event::new(),
            roused: Event::new(),
            spawner: options.spawner.clone(),
            codec: AtomicU16::new(packed(codec)),
            hurried: AtomicBool::new(false),
            has_room: AtomicBool::new(false),
            dictionaries: Arc::default(),
            frames,
            heat: Heat::new(options.hot_reads),
            conflicts_before_hold: options.conflicts_before_hold,
            cached: CachedBlocks::new(
                options.read_cache.clone(),
                options.planted.has(PlantedBug::StaleBlock),
            ),
            sampler: Sampler::new(options.sample_blocks, options.entropy),
            compute: options.compute.clone(),
            dictionary_gain_min: options.dictionary_gain_min,
            offload: options.offload.clone(),
            frame_blocks: options.frame_blocks.clamp(1, layout::entry::FRAME_BLOCKS_MAX),
            write_cache: options.write_cache,
            lease: options.lease.clone(),
            run,
            clock: options.clock,
            before_entry: options.before_entry,
            engine_nanoseconds: AtomicU64::new(0),
            host_read_bytes: AtomicU64::new(0),
            media_read_bytes: AtomicU64::new(0),
            corrupt_records: AtomicU64::new(0),
            read_errors: AtomicU64::new(0),
        })
    }

    /// Returns how new blocks are compressed.
    pub(crate) fn codec(&self) -> codec::Policy {
        let [policy, level] = self.codec.load(Ordering::Relaxed).to_le_bytes();
        policy_of(policy, level as i8).unwrap_or_default()
    }

    pub(crate) fn set_codec(&self, policy: codec::Policy) {
        self.codec.store(packed(policy), Ordering::Relaxed);
    }

    /// Enters the critical section.
    pub(crate) fn core(&self) -> Entered<'_, M> {
        self.memory.grow();
        if let Some(before_entry) = self.before_entry {
            before_entry();
        }
        let core = Some(self.core.lock());
        let mut entered = Entered {
            shared: self,
            core,
            was_panicking: std::thread::panicking(),
            since: None,
            changed: false,
        };
        // Last: a clock that panics does so inside the critical section.
        entered.since = self.clock.map(|clock| (clock, clock()));
        entered
    }

    /// Time spent inside the critical section so far; 0 without a clock.
    pub(crate) fn engine_nanoseconds(&self) -> u64 {
        self.engine_nanoseconds.load(Ordering::Relaxed)
    }

    /// Passes on the answer to a host, once the drive is known to be this owner's. An error is passed on at
    /// any time: it promises nothing.
    pub(crate) async fn acknowledge<T>(&self, answer: Result<T, Error>) -> Result<T, Error> {
        match &self.lease {
            Some(lease) if answer.is_ok() && !self.planted.has(PlantedBug::LeaseForgotten) => {
                lease.confirm().await.map_err(|lost| Error::poisoned(&lost.0))?;
                answer
            }
            _ => answer,
        }
    }

    pub(crate) fn superblock(&self) -> Superblock {
        self.core().superblock.clone()
    }

    /// Adds to a counter outside the lock.
    pub(crate) fn count(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// Adds the counts kept outside the lock to the drive's counters.
    pub(crate) fn fold_counters(&self, core: &mut Core) {
        let take = |counter: &AtomicU64| counter.swap(0, Ordering::Relaxed);
        core.counters.host_read_bytes += take(&self.host_read_bytes);
        core.counters.physical_read_bytes += take(&self.media_read_bytes);
        core.counters.corrupt_records_count += take(&self.corrupt_records);
        core.counters.read_errors_count += take(&self.read_errors);
    }

    /// Waits until `ready` returns a value. It is called again at every progress.
    pub(crate) async fn wait_for<T>(&self, mut ready: impl FnMut(&mut Core) -> Option<T>) -> T {
        wait_until(&self.progress, || ready(&mut self.core())).await
    }
}

impl<M: Media> Drive<M> {
    /// Another process has the drive now. Nothing is written or answered any more; the reason is in the
    /// status.
    pub fn disown(&self, why: &str) {
        self.0.core().mode.poison(why.to_string());
        self.0.progress.notify(usize::MAX);
    }

    /// Refuses ranges outside the drive. Any range of bytes within it is possible, whatever its sector size.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> Result<(), Error> {
        let capacity = self.0.capacity_bytes.load(Ordering::Relaxed);
        if offset.checked_add(len).is_none_or(|end| end > capacity) {
            return Err(Error::Invalid(format!(
                "{len} bytes at {offset} reach beyond the capacity of {capacity}"
            )));
        }
        Ok(())
    }
}

/// Lets other tasks of the executor run.
pub(crate) async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}
