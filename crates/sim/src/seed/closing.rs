//! Closing that is disturbed: the power is cut meanwhile, requests come until the drive is closed and after,
//! or closing is given up.
//!
//! Or the sync of the last checkpoint fails. Reads may show that checkpoint until the power is cut, and it
//! looks like that of any closed drive.
//!
//! Everything acknowledged before closing began is durable once it has ended. Concurrent requests are
//! processed as usual, or refused because the drive is closed.

use std::sync::Arc;

use media::{Faults, SimRng};
use parking_lot::Mutex;

use super::{Run, Stop, Ticker};
use crate::client::{read, write, zero};
use crate::doing::Doing;
use crate::executor::{Cut, End, yield_now};
use crate::impatient::Impatient;
use crate::oracle::{Kind, LifeEnd};
use crate::requests::flush;
use crate::{Error, Subject, World};

/// Most requests of each client while the drive is closed.
const REQUESTS_MAX: u64 = 8;
/// The number of steps until a power cut is drawn below two to this power. Closing a small drive takes some
/// hundred steps.
const CUT_STEPS_BITS: u64 = 9;

/// One opening in this many is followed by such a closing, in seeds whose syncs fail.
const IN_VAIN_ONE_IN: u64 = 2;
/// All of them, in parts per million.
const ALL_PPM: u32 = 1_000_000;

impl<S: Subject> Run<S> {
    /// Closes the drive, which was just opened, and lets the first sync of its last checkpoint fail, in some
    /// cases. Then opens it again.
    pub(super) fn perhaps_close_in_vain(&mut self) -> Result<(), Stop> {
        if self.config.trouble.faults.sync_error_ppm == 0 || !self.vain.chance(1, IN_VAIN_ONE_IN) {
            return Ok(());
        }
        let Some(drive) = self.drive.clone() else { return Ok(()) };
        let ticker = Ticker(Some(drive.clone()));
        let closed = Arc::new(Mutex::new(None));
        let slot = closed.clone();
        self.executor.spawn(async move {
            let answer = drive.close().await;
            *slot.lock() = Some(answer);
        });
        let mut end = self.executor.run(&self.media, &ticker, Cut::AtSlot(0, 0));
        if end == End::Cut {
            self.media.set_faults(Faults { sync_error_ppm: ALL_PPM, ..self.faults_at_rest() });
            end = self.executor.run(&self.media, &ticker, Cut::Never);
            self.calm();
        }
        self.must_not_overlap()?;
        let answer = closed.lock().take();
        match (end, answer) {
            (End::Finished, Some(Err(error))) if self.struck().excuses(Doing::Close, &error) => {
                self.count("close: the sync of the last checkpoint failed");
            }
            (End::Finished, Some(Ok(()))) => self.count("close: nothing to write"),
            (end, answer) => {
                return Err(Stop::Failed(format!("close whose sync fails: {end:?}, {answer:?}")));
            }
        }
        self.crash();
        self.open()?;
        self.read_back(LifeEnd::Crash)
    }

    /// Closes the drive with one or more of these disturbances.
    pub(super) fn close_disturbed(&mut self, world: &Arc<World<S>>) -> Result<LifeEnd, Stop> {
        // A server that shuts down accepts no requests.
        let with_requests = !self.config.is_served() && self.rng.chance(2, 3);
        let given_up = self.rng.chance(1, 4);
        let steps = self.rng.skewed(CUT_STEPS_BITS);
        let cut = if self.rng.chance(1, 2) { self.draw_moment(steps) } else { Cut::Never };
        world.set_closing();
        if with_requests {
            self.count("close: with requests under way");
            for _ in 0..self.config.clients {
                let (world, rng) = (world.clone(), self.rng.fork());
                self.executor.spawn(latecomer(world, rng));
            }
        }
        let began = world.oracle.lock().begin_flush();
        let closed = Arc::new(Mutex::new(None));
        let (slot, drive, mut rng) = (closed.clone(), world.subject.clone(), self.rng.fork());
        self.executor.spawn(async move {
            if given_up && Impatient::new(drive.close(), &mut rng).await.is_none() {
                return;
            }
            let answer = drive.close().await;
            *slot.lock() = Some(answer);
        });
        let end = self.executor.run(&self.media, &**world, cut);
        self.must_not_overlap()?;
        world.failure().map_or(Ok(()), |why| Err(Stop::Failed(why)))?;
        match end {
            End::Finished => {}
            End::Cut => {
                self.count("close: power cut meanwhile");
                self.count_cut(cut);
                self.crash();
                return Ok(LifeEnd::Crash);
            }
            stuck => {
                return Err(Stop::Failed(format!("close, or a request beside it, never returns: {stuck:?}")));
            }
        }
        let answer = closed.lock().take();
        self.trace(|| format!("close: {answer:?}"));
        match answer {
            None => {
                self.count("close: given up");
                // The drive is closed again, or left as it is.
                if self.rng.chance(1, 2) {
                    self.crash();
                    return Ok(LifeEnd::Crash);
                }
                return self.close_at_last(world);
            }
            Some(Ok(())) => world.oracle.lock().end_flush(began),
            Some(Err(error)) => world.judge(Doing::Close, &error),
        }
        world.failure().map_or(Ok(()), |why| Err(Stop::Failed(why)))?;
        self.crash();
        // Of the requests that came during closing, only those reported as durable are durable.
        Ok(LifeEnd::Crash)
    }
}

/// A host that sends requests while the drive is closed.
async fn latecomer<S: Subject>(world: Arc<World<S>>, mut rng: SimRng) {
    for _ in 0..1 + rng.below(REQUESTS_MAX) {
        match rng.below(10) {
            0..4 => {
                let fua = rng.chance(1, 3);
                write(&world, &mut rng, fua).await;
            }
            4 => zero(&world, &mut rng, Kind::Trim).await,
            5 => read(&world, &mut rng).await,
            6 | 7 => flush(&world, &mut rng).await,
            8 => match world.subject.maintain().await {
                Ok(_) | Err(Error::NoSpace) => {}
                Err(error) => world.judge(Doing::Maintain, &error),
            },
            _ => yield_now().await,
        }
        world.made_progress();
    }
}
