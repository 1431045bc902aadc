//! Ends of lives: closed, killed, or by a power cut; and counts of events on the backing.

use std::sync::Arc;

use super::{Run, Stop, executor};
use crate::doing::Doing;
use crate::excuses::Struck;
use crate::oracle::LifeEnd;
use crate::{Error, Subject, World, panics};

impl<S: Subject> Run<S> {
    /// Ends the life in a random way while nothing is in flight.
    pub(super) fn end_quietly(&mut self, world: &Arc<World<S>>) -> Result<LifeEnd, Stop> {
        if self.rng.chance(1, 4) && !self.config.is_faulty() {
            let deep = self.rng.chance(1, 2);
            self.check(deep)?;
        }
        if self.rng.chance(1, 3) {
            self.crash();
            return Ok(LifeEnd::Crash);
        }
        if self.rng.chance(1, 2) { self.close_disturbed(world) } else { self.close_at_last(world) }
    }

    /// Closes the drive while nothing else is in progress.
    pub(super) fn close_at_last(&mut self, world: &World<S>) -> Result<LifeEnd, Stop> {
        let Err(error) = self.close()? else {
            self.crash();
            return Ok(LifeEnd::Closed);
        };
        world.judge(Doing::Close, &error);
        world.failure().map_or(Ok(()), |why| Err(Stop::Failed(why)))?;
        self.crash();
        Ok(LifeEnd::Crash)
    }

    /// Closes the drive and returns the result.
    fn close(&mut self) -> Result<Result<(), Error>, Stop> {
        let Some(drive) = self.drive.clone() else { return Ok(Ok(())) };
        let closing = drive.clone();
        let closed = self.do_now("close", async move { closing.close().await })?;
        self.trace(|| format!("close: {closed:?}"));
        if closed.is_ok() {
            self.left_open = false;
            self.count("life: closed");
            self.ledger.flushed();
            let late =
                self.do_now("write after close", async move { drive.write(0, &[0; 4096], false).await })?;
            if late.is_ok() {
                return Err(Stop::Failed("a closed drive took a write".into()));
            }
        }
        Ok(closed)
    }

    /// Closes a drive whose backing has no faults.
    pub(super) fn close_quietly(&mut self) -> Result<(), Stop> {
        self.close()?.map_err(|error| Stop::Failed(format!("close of a quiet drive failed: {error}")))
    }

    /// Handles a planned panic inside the drive's lock. All changes must be refused from then on, with an
    /// error. The process ends some time later.
    pub(super) fn be_poisoned(&mut self) -> Result<LifeEnd, Stop> {
        self.count("life: panic in the engine");
        self.trace(|| "panic in the engine".into());
        panics::arm(None);
        self.executor.give_up();
        let wrote = self
            .attempt("write after a panic", |drive| async move { drive.write(0, &[0; 4096], false).await })?;
        let trimmed =
            self.attempt("trim after a panic", |drive| async move { drive.trim(0, 4096, false).await })?;
        let flushed = self.attempt("flush after a panic", |drive| async move { drive.flush().await })?;
        let kept =
            self.attempt("checkpoint after a panic", |drive| async move { drive.checkpoint().await })?;
        for (what, result) in [("write", wrote), ("trim", trimmed), ("flush", flushed), ("checkpoint", kept)]
        {
            if !result.as_ref().is_err_and(Error::is_read_only) {
                return Err(Stop::Failed(format!("after a panic inside the engine, {what}: {result:?}")));
            }
        }
        self.crash();
        Ok(LifeEnd::Crash)
    }

    /// Cuts the power or kills the process.
    pub(super) fn crash(&mut self) {
        self.drop_drive();
        self.ledger.crashed();
        // The next process should read what is still shown although it is lost, so a kill is more
        // likely then.
        let ghosts = self.media.ghost_pages();
        let kill = self.rng.chance(if ghosts > 0 { 2 } else { 1 }, 4);
        if ghosts > 0 {
            self.count(if kill {
                "crash: killed, reads show what is lost"
            } else {
                "crash: power cut, reads showed what was lost"
            });
        }
        self.leave_memory(kill);
        self.was_killed = kill;
        self.media = Arc::new(if kill { self.media.kill() } else { self.media.power_cut() });
        self.overwrites.forget();
        self.before = Struck::counts(&self.media, &self.overwrites);
        self.trace(|| if kill { "killed".into() } else { "power cut".into() });
        self.count(if kill { "life: killed" } else { "life: power cut" });
    }

    pub(super) fn drop_drive(&mut self) {
        panics::arm(None);
        if let Some(drive) = self.drive.take() {
            let mut counts = self.counts.lock();
            for (name, times) in drive.counters() {
                // Counters may include those of earlier lives.
                let before =
                    self.counted.iter().find(|(theirs, _)| *theirs == name).map_or(0, |(_, times)| *times);
                counts.add(name, times.saturating_sub(before));
            }
        }
        self.steps += self.executor.steps();
        self.counts.lock().add("life: a task interrupted another", self.executor.switched());
        self.executor = executor(&self.config, self.rng.fork());
    }

    pub(super) fn count_media(&mut self) {
        self.drop_drive();
        let (media, before) = (Struck::counts(&self.media, &self.overwrites), &self.media_counted);
        let mut counts = self.counts.lock();
        for (name, times) in [
            ("media: read", media.reads - before.reads),
            ("media: write", media.writes - before.writes),
            ("media: sync", media.syncs - before.syncs),
            ("media: discard", media.discards - before.discards),
            ("fault: write torn", media.torn_writes - before.torn_writes),
            ("fault: write lost", media.lost_writes - before.lost_writes),
            ("fault: read error", media.read_errors - before.read_errors),
            ("fault: write error", media.write_errors - before.write_errors),
            ("fault: sync error", media.sync_errors - before.sync_errors),
            ("fault: page shows no more what a failed sync lost", media.faded_pages - before.faded_pages),
            ("fault: backing full", media.full_errors - before.full_errors),
            ("backing: room made", media.rooms_made - before.rooms_made),
            ("fault: write to a bad page", media.bad_page_errors - before.bad_page_errors),
            ("fault: write to a bad copy", media.bad_copy_errors - before.bad_copy_errors),
            ("fault: a range lost", media.lost_ranges - before.lost_ranges),
            ("fault: rotten sector", media.rotten_sectors - before.rotten_sectors),
            ("media: rot in nothing but data of hosts", media.rotten_data - before.rotten_data),
            ("fault: misdirected write", media.misdirected_writes - before.misdirected_writes),
        ] {
            counts.add(name, times);
        }
    }
}
