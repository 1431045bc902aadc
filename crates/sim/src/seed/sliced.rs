//! Work that is cut short: at some moments of it a crash is tried out, and now and then the power is cut for good.
//!
//! Where a drive does one thing at a time by itself, nothing is under way when it crashes. Here something is, and the requests
//! themselves tell the oracle when they begin and how they end: what becomes of them is known also if nobody hears of it.

use std::sync::Arc;

use drive::Error;
use parking_lot::Mutex;

use super::{Run, Stop, Ticker};
use crate::Subject;
use crate::executor::{Cut, End};
use crate::oracle::{LifeEnd, Oracle};

/// Work that is interrupted: one in so many. Looking at all of a drive takes as long as much of it.
const INTERRUPTED_ONE_IN: u64 = 8;
/// Crashes tried out in one piece of work, at most.
const SLICES_MAX: u64 = 2;
/// Steps from one to the next: below 2 to the power of this, at least.
const SLICE_STEPS_BITS: u64 = 13;
/// Of the pieces of work that are interrupted, one in so many is over then.
const CUT_ONE_IN: u64 = 4;

impl<S: Subject> Run<S> {
    /// Does something with the drive, interrupted now and then. No answer: the power was cut, the drive has been opened again and
    /// held against the oracle.
    pub(super) fn do_in_slices<T: Send + 'static, F: Future<Output = Result<T, Error>> + Send + 'static>(
        &mut self,
        what: &str,
        work: impl FnOnce(S) -> F,
    ) -> Result<Option<Result<T, Error>>, Stop> {
        if self.slices == 0 || !self.rng.chance(1, INTERRUPTED_ONE_IN) {
            return self.attempt(what, work).map(Some);
        }
        let Some(drive) = self.drive.clone() else { return Err(Stop::Failed(format!("{what}: no drive"))) };
        let answer = Arc::new(Mutex::new(None));
        let (slot, future) = (answer.clone(), work(drive.clone()));
        self.executor.spawn(async move {
            let value = future.await;
            *slot.lock() = Some(value);
        });
        let ticker = Ticker(Some(drive));
        let mut left = (1 + self.rng.below(SLICES_MAX)).min(self.slices);
        let is_cut = self.rng.chance(1, CUT_ONE_IN);
        loop {
            let cut = match left {
                0 => Cut::Never,
                _ => {
                    let steps = self.rng.skewed(SLICE_STEPS_BITS);
                    self.draw_moment(steps)
                }
            };
            let end = self.executor.run(&self.media, &ticker, cut);
            self.must_not_overlap()?;
            match end {
                End::Finished => break,
                End::Cut => {
                    left -= 1;
                    self.slices -= 1;
                    self.count_cut(cut);
                    if is_cut && left == 0 {
                        self.count("sliced: power cut with requests under way");
                        self.crash();
                        self.open()?;
                        self.read_back(LifeEnd::Crash)?;
                        return Ok(None);
                    }
                    self.count("sliced: crash tried out with requests under way");
                    self.branch()?;
                }
                end => return Err(Stop::Failed(format!("{what} never returns: {end:?}"))),
            }
        }
        let answer = answer.lock().take();
        answer.map(Some).ok_or_else(|| Stop::Failed(format!("{what} has no answer")))
    }
}

/// The oracle hears how a write ended. Answers the same.
pub(super) fn conclude(
    oracle: &Mutex<Oracle>,
    write: u32,
    is_durable: bool,
    answer: Result<(), Error>,
) -> Result<(), Error> {
    let mut oracle = oracle.lock();
    match &answer {
        Ok(()) => oracle.acknowledge(write, is_durable),
        // Nobody reads meanwhile, so that it was not shown.
        Err(Error::NoSpace) if !oracle.is_divided(write) => _ = oracle.refuse(write),
        Err(_) => oracle.fail(write),
    }
    answer
}
