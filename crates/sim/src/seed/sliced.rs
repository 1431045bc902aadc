//! Work that is interrupted: at some moments crashes are tried on copies, and in some cases the power is cut
//! for good.
//!
//! If a drive does one thing at a time, nothing is in progress when it crashes. Here something is. The
//! requests themselves record their beginning and end in the oracle, so their fate is known even if nobody
//! receives the result.

use std::sync::Arc;

use parking_lot::Mutex;

use super::{Run, Stop, Ticker};
use crate::executor::{Cut, End};
use crate::oracle::{LifeEnd, Oracle};
use crate::{Error, Subject};

/// One piece of work in this many is interrupted. Checking a whole drive takes as long as many pieces of
/// work.
const INTERRUPTED_ONE_IN: u64 = 8;
/// Most crashes tried in one piece of work.
const SLICES_MAX: u64 = 2;
/// The least number of steps between two of them is drawn below two to this power.
const SLICE_STEPS_BITS: u64 = 13;
/// One interrupted piece of work in this many is ended by a power cut.
const CUT_ONE_IN: u64 = 4;

impl<S: Subject> Run<S> {
    /// Does something with the drive, interrupted in some cases. Returns `None` if the power was cut; the
    /// drive has then been opened again and compared with the oracle.
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

/// Records the result of a write in the oracle, and returns it.
pub(super) fn conclude(
    oracle: &Mutex<Oracle>,
    write: u32,
    is_durable: bool,
    answer: Result<(), Error>,
) -> Result<(), Error> {
    let mut oracle = oracle.lock();
    match &answer {
        Ok(()) => oracle.acknowledge(write, is_durable),
        // No reads are in progress, so the write has not been shown.
        Err(Error::NoSpace) if !oracle.is_divided(write) => _ = oracle.refuse(write),
        Err(_) => oracle.fail(write),
    }
    answer
}
