//! Kills of the process alone, after which the memory of its run is still there: all that was acknowledged
//! must be too.
//!
//! Between two steps of the executor the memory is as the last critical section left it. So kills in the
//! middle of one are tried on copies: each store to the memory's table is a step, before which memory,
//! backing and oracle can be copied.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use drive::MEMORY_SHAPE;
use media::{Arena, SimMedia, SimRng};
use parking_lot::Mutex;

use super::{Run, Stop};
use crate::backing::Overwrites;
use crate::excuses::Struck;
use crate::oracle::{LifeEnd, Oracle};
use crate::{Subject, panics};

/// One kill in this many takes the memory with it.
const LOST_ONE_IN: u64 = 8;
/// The number of stores until a kill is drawn below two to this power.
const STORES_BITS: u64 = 9;
/// The same once the backing did not take a write: its contents are written elsewhere, and a checkpoint
/// follows.
const STORES_AFTER_FAILURE_BITS: u64 = 6;

/// The memory of a killed run that an opening has missed. It comes back when the drive is another run's.
#[derive(Default)]
pub(super) struct Stray {
    hidden: Option<Arena>,
    is_back: bool,
}

impl Stray {
    /// What an opening is given besides the memories of killed runs.
    pub(super) fn back(&self) -> Option<Arena> {
        self.hidden.as_ref().filter(|_| self.is_back).cloned()
    }

    /// The drive was opened.
    pub(super) fn comes_back(&mut self) {
        self.is_back = self.hidden.is_some();
    }

    pub(super) fn copy(&self) -> Stray {
        Stray { hidden: self.hidden.as_ref().map(copy_of), is_back: self.is_back }
    }
}

/// Takes a copy of everything before a store.
#[derive(Default)]
pub(super) struct Moment {
    /// Stores until then; 0: none is wanted.
    countdown: AtomicU64,
    source: Mutex<Option<Source>>,
    taken: Mutex<Option<Taken>>,
}

/// What is copied.
struct Source {
    media: Arc<SimMedia>,
    overwrites: Arc<Overwrites>,
    oracle: Arc<Mutex<Oracle>>,
    capacity: Arc<AtomicU64>,
    rng: SimRng,
    /// Writes that had failed before. `None`: none fail, or a kill follows one already.
    failures: Option<u64>,
}

struct Taken {
    memory: Arena,
    media: SimMedia,
    overwrites: Overwrites,
    oracle: Oracle,
    capacity: u64,
}

impl Moment {
    fn store_follows(&self, memory: &Arena) {
        let mut left = self.countdown.load(Ordering::Relaxed);
        if left == 0 {
            return;
        }
        if let Some(source) = self.source.lock().as_mut()
            && source.failures.is_some_and(|before| failed_writes(&source.media) > before)
        {
            source.failures = None;
            left = left.min(1 + source.rng.skewed(STORES_AFTER_FAILURE_BITS));
        }
        self.countdown.store(left - 1, Ordering::Relaxed);
        if left > 1 {
            return;
        }
        let mut source = self.source.lock();
        let Some(source) = source.as_mut() else { return };
        // A client is noting something just now.
        let Some(oracle) = source.oracle.try_lock() else { return };
        *self.taken.lock() = Some(Taken {
            memory: copy_of(memory),
            media: source.media.branch(source.rng.fork()),
            overwrites: source.overwrites.branch(),
            oracle: oracle.clone(),
            capacity: source.capacity.load(Ordering::Relaxed),
        });
    }
}

impl<S: Subject> Run<S> {
    /// Returns the memory for the next run.
    pub(super) fn new_memory(&mut self) -> Option<Arena> {
        if !S::KEEPS_MEMORY {
            return None;
        }
        let moment = self.moment.clone();
        let memory = Arena::private(MEMORY_SHAPE).ok();
        let memory =
            memory.map(|memory| memory.watched(Box::new(move |memory| moment.store_follows(memory))));
        self.memory.clone_from(&memory);
        memory
    }

    /// The process ends. If it is killed, and nothing else, the memory of its run stays.
    pub(super) fn leave_memory(&mut self, is_killed: bool) {
        let memory = self.memory.take();
        let was_open = std::mem::take(&mut self.was_open);
        if !is_killed || self.remembering.chance(1, LOST_ONE_IN) {
            self.left_memories.clear();
            self.is_kept = false;
            // A power cut takes all.
            let hidden = memory.filter(|_| is_killed && was_open).map(|memory| copy_of(&memory));
            self.stray = Stray { hidden, is_back: false };
            return;
        }
        self.count("crash: killed, the memory stays");
        self.left_memories.extend(memory.as_ref().map(copy_of));
        // What an earlier crash lost is lost.
        self.is_kept = (was_open || self.is_kept) && self.keeps_promises();
    }

    /// Returns whether nothing happens to the backing after which less is promised.
    fn keeps_promises(&self) -> bool {
        let faults = &self.config.trouble.faults;
        let spoils = [
            faults.sync_error_ppm,
            faults.sticky_read_error_ppm,
            faults.rot_ppm,
            faults.misdirect_ppm,
            faults.lost_range_ppm,
        ];
        S::KEEPS_MEMORY && spoils.iter().all(|ppm| *ppm == 0)
    }

    /// The engine does not use a memory that is there.
    pub(super) fn memory_refused(&mut self, why: &str) -> Result<(), Stop> {
        if self.is_kept {
            return Err(Stop::Failed(format!("the memory of the killed run was refused: {why}")));
        }
        self.count("restart: a memory was refused");
        if self.stray.back().is_some() {
            self.count("restart: a memory of another run was refused");
        }
        self.left_memories.clear();
        self.stray = Stray::default();
        Ok(())
    }

    /// Lets a copy of everything be taken while clients work, in some cases.
    pub(super) fn arm_kill(&mut self) {
        let stores = self.remembering.skewed(STORES_BITS);
        let source = Source {
            media: self.media.clone(),
            overwrites: self.overwrites.clone(),
            oracle: self.oracle.clone(),
            capacity: self.capacity.clone(),
            rng: self.remembering.fork(),
            failures: self.config.writes_may_fail().then(|| failed_writes(&self.media)),
        };
        *self.moment.source.lock() = Some(source);
        self.moment.countdown.store(stores, Ordering::Relaxed);
    }

    /// Kills the copy that was taken, if one was, opens it and checks it.
    pub(super) fn kill_copy(&mut self) -> Result<(), Stop> {
        self.moment.countdown.store(0, Ordering::Relaxed);
        *self.moment.source.lock() = None;
        let Some(taken) = self.moment.taken.lock().take() else { return Ok(()) };
        self.count("life: a copy was killed in a critical section");
        self.trace(|| "a kill:".into());
        let armed = panics::arm(None);
        let kept = self.generators();
        let rng = self.remembering.fork();
        let mut copy = self.fork(rng);
        self.restore(kept);
        copy.overwrites = Arc::new(taken.overwrites);
        copy.media_counted = Struck::counts(&taken.media, &copy.overwrites);
        copy.media = Arc::new(taken.media.kill());
        copy.overwrites.forget();
        copy.oracle = Arc::new(Mutex::new(taken.oracle));
        copy.capacity = Arc::new(AtomicU64::new(taken.capacity));
        copy.ledger.crashed();
        copy.before = Struck::counts(&copy.media, &copy.overwrites);
        (copy.memory, copy.left_memories, copy.was_open) = (None, vec![taken.memory], false);
        copy.is_kept = copy.keeps_promises();
        let checked = copy.open().and_then(|()| copy.read_back(LifeEnd::Crash));
        copy.count_media();
        panics::arm(armed);
        self.counts.lock().absorb(&copy.counts.lock());
        self.steps += copy.steps;
        self.trace(|| "the kill ends".into());
        match checked {
            Ok(()) | Err(Stop::Refused) => Ok(()),
            Err(failed) => Err(failed),
        }
    }

    /// Generators that a copy forks: the rest of a seed does not depend on how many copies are killed.
    fn generators(&self) -> [SimRng; 8] {
        let these = [&self.hiding, &self.looking, &self.hanging, &self.brim, &self.vain, &self.echoing];
        let [hiding, looking, hanging, brim, vain, echoing] = these.map(SimRng::clone);
        [hiding, looking, hanging, brim, vain, echoing, self.losing.clone(), self.striking.clone()]
    }

    fn restore(&mut self, generators: [SimRng; 8]) {
        [
            self.hiding,
            self.looking,
            self.hanging,
            self.brim,
            self.vain,
            self.echoing,
            self.losing,
            self.striking,
        ] = generators;
    }
}

fn failed_writes(media: &SimMedia) -> u64 {
    let counts = media.counts();
    counts.write_errors + counts.bad_page_errors
}

pub(super) fn copy_of(memory: &Arena) -> Arena {
    let copy = memory.snapshot();
    copy.unwrap_or_else(|error| panic!("no memory for a copy: {error}"))
}
