//! Crashes on copies of the drive, while the life itself continues.
//!
//! Most of the time of a seed goes into the work of its clients. Opening a drive and reading everything back
//! is cheap in comparison, so several crashes per life are tried. At many moments of a life the backing is
//! copied as it is, and the power of the copy is cut. The drive on the copy is opened and compared with a
//! copy of the oracle. Nothing of that affects the life itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::SimRng;
use parking_lot::Mutex;

use super::memory::copy_of;
use super::{Run, Stop, executor};
use crate::excuses::Struck;
use crate::oracle::LifeEnd;
use crate::{Counts, Subject, panics};

impl<S: Subject> Run<S> {
    /// Crashes a copy of the drive in its current state.
    pub(super) fn branch(&mut self) -> Result<(), Stop> {
        self.count("life: branched");
        self.trace(|| "a branch:".into());
        // A planned panic is meant for the life, not for the branch.
        let armed = panics::arm(None);
        let rng = self.rng.fork();
        let mut branch = self.fork(rng);
        let end = branch.be_crashed();
        panics::arm(armed);
        branch.count_media();
        self.counts.lock().absorb(&branch.counts.lock());
        self.steps += branch.steps;
        self.trace(|| "the branch ends".into());
        match end {
            Ok(()) | Err(Stop::Refused) => Ok(()),
            Err(Stop::Failed(why)) => Err(Stop::Failed(why)),
        }
    }

    /// Returns a copy of the drive in its current state, not open, with a separate backing and oracle.
    pub(super) fn fork(&mut self, mut rng: SimRng) -> Run<S> {
        Run {
            media: Arc::new(self.media.branch(rng.fork())),
            executor: executor(&self.config, rng.fork()),
            rng,
            config: self.config.clone(),
            oracle: Arc::new(Mutex::new(self.oracle.lock().clone())),
            counts: Arc::new(Mutex::new(Counts::default())),
            steps: 0,
            bug: self.bug,
            memory: self.memory.as_ref().map(copy_of),
            left_memories: self.left_memories.iter().map(copy_of).collect(),
            stray: self.stray.copy(),
            was_open: self.was_open,
            is_kept: self.is_kept,
            moment: Arc::default(),
            remembering: self.remembering.fork(),
            verbose: self.verbose,
            drive: None,
            counted: Vec::new(),
            last_opening: self.last_opening,
            media_counted: Struck::counts(&self.media, &self.overwrites),
            before: Struck::counts(&self.media, &self.overwrites),
            wiping: None,
            ledger: self.ledger.clone(),
            left_open: self.left_open,
            is_full: self.is_full,
            stays_full: self.stays_full,
            slices: 0,
            unreadable: self.unreadable.clone(),
            author: self.author.clone(),
            overwrites: Arc::new(self.overwrites.branch()),
            capacity: Arc::new(AtomicU64::new(self.capacity.load(Ordering::Relaxed))),
            hiding: self.hiding.fork(),
            looking: self.looking.fork(),
            hanging: self.hanging.fork(),
            brim: self.brim.fork(),
            vain: self.vain.fork(),
            echoing: self.echoing.fork(),
            losing: self.losing.fork(),
            was_killed: self.was_killed,
            lost_blocks: Arc::new(Mutex::new(self.lost_blocks.lock().clone())),
            striking: self.striking.fork(),
            lost_start: self.lost_start.clone(),
        }
    }

    /// Crashes the branch, opens it and checks it.
    fn be_crashed(&mut self) -> Result<(), Stop> {
        self.crash();
        self.open()?;
        self.read_back(LifeEnd::Crash)?;
        if self.rng.chance(1, 8) {
            // Content that a reader was shown stays.
            self.crash();
            self.open()?;
            self.read_back(LifeEnd::Crash)?;
        }
        if self.rng.chance(1, 4) { self.must_serve_again() } else { Ok(()) }
    }
}
