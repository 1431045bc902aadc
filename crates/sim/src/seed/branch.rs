//! A crash that is tried out: the life that it ends goes on.
//!
//! A moment of a life is worth more than one power cut, and a life is worth more than one moment: most of a seed's time goes into
//! its clients' work, and opening a drive and reading all of it back is cheap beside that. So the backing is taken down as it is
//! at many moments of a life, the power of the copy is cut, and the drive on it is opened and held against a copy of the oracle.
//! Nothing of that touches the life itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::SimRng;
use parking_lot::Mutex;

use super::{Run, Stop, executor};
use crate::excuses::Struck;
use crate::oracle::LifeEnd;
use crate::{Counts, Subject, panics};

impl<S: Subject> Run<S> {
    /// Crashes a copy of the drive as it is now.
    pub(super) fn branch(&mut self) -> Result<(), Stop> {
        self.count("life: branched");
        self.tell(|| "a branch:".into());
        // Strikes the life, not what is tried out.
        let armed = panics::arm(None);
        let rng = self.rng.fork();
        let mut branch = self.fork(rng);
        let end = branch.be_crashed();
        panics::arm(armed);
        branch.count_media();
        self.counts.lock().absorb(&branch.counts.lock());
        self.steps += branch.steps;
        self.tell(|| "the branch ends".into());
        match end {
            Ok(()) | Err(Stop::Refused) => Ok(()),
            Err(Stop::Failed(why)) => Err(Stop::Failed(why)),
        }
    }

    /// The drive as it is now, on a backing of its own, held against an oracle of its own. Nobody has it open.
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
            verbose: self.verbose,
            drive: None,
            counted: Vec::new(),
            media_counted: Struck::counts(&self.media, &self.overwrites),
            before: Struck::counts(&self.media, &self.overwrites),
            wiping: None,
            ledger: self.ledger.clone(),
            is_full: self.is_full,
            stays_full: self.stays_full,
            slices: 0,
            unreadable: self.unreadable.clone(),
            author: self.author.clone(),
            overwrites: Arc::new(self.overwrites.branch()),
            capacity: Arc::new(AtomicU64::new(self.capacity.load(Ordering::Relaxed))),
            hiding: self.hiding.fork(),
            looking: self.looking.fork(),
        }
    }

    /// What follows after a crash.
    fn be_crashed(&mut self) -> Result<(), Stop> {
        self.crash();
        self.open()?;
        self.read_back(LifeEnd::Crash)?;
        if self.rng.chance(1, 8) {
            // What a reader was shown stays.
            self.crash();
            self.open()?;
            self.read_back(LifeEnd::Crash)?;
        }
        if self.rng.chance(1, 4) { self.must_serve_again() } else { Ok(()) }
    }
}
