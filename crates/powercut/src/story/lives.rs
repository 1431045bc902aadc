//! One life of the server: clients at work, and its end.

use std::time::{Duration, Instant};

use sim::oracle::LifeEnd;

use super::Story;
use super::losses::Sweeps;
use crate::client::{Load, Plan};
use crate::disk::{Action, Trigger, When};
use crate::error::{Error, Result};
use crate::mode::Mode;

/// Longest life once all clients work.
const LIFE_MS_MAX: u64 = 800;
/// The same while pages are lost, so that losses are noticed and lost places written again.
const LIFE_WITH_LOSSES_MS_MAX: u64 = 3000;
/// Most occurrences of an event that are skipped, as a power of two.
const SKIP_BITS: u64 = 9;
/// Longest time that a server runs on without power.
const LINGER_MS_MAX: u64 = 15;

/// End of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Cut(Trigger),
    Kill(Trigger),
    Close,
    /// A power cut while the server closes the drive.
    CutInClose(Trigger),
    /// One sync fails after this many more, followed by another end.
    FailedSync(u64, After),
}

/// Event that follows a failed sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    Cut,
    Kill,
    Stop,
}

impl Story {
    /// Runs clients until the power is cut, or the server is killed or asked to stop.
    pub(super) fn live(&mut self) -> Result<LifeEnd> {
        let end = self.draw_end();
        let socket = self.program.socket();
        let plan = Plan::draw(&mut self.rng);
        self.note(&format!("{plan:?}, until {end:?}"));
        let busy = self.setting.fio && self.rng.chance(1, 4);
        let fill = self.setting.fio && self.rng.chance(1, 3);
        let busy = if busy { Some(self.fio.be_busy(&socket, &mut self.rng)?) } else { None };
        let load = Load::start(&socket, plan, &self.shape.config, &self.verifier, &mut self.rng);
        let load = load.map_err(Error::system("clients cannot connect"))?;
        let sweeps = self.begin_sweeps();
        let fill = if fill { Some(self.fio.fill(&socket, &mut self.rng)?) } else { None };
        // Half of the fills run to their end.
        let fill = match fill {
            Some(job) if self.rng.chance(1, 2) => {
                let verifier = self.verifier.clone();
                let is_filled = self.fio.filled(job, || verifier.has_failed())?;
                self.doubt_fill(is_filled);
                None
            }
            other => other,
        };
        let ended = self.end_life(end, load);
        self.counts.sweeps += sweeps.map_or(0, Sweeps::end);
        if let Some(job) = fill {
            // The fill counts if it succeeded before the cut, and otherwise the content is unknown.
            let is_filled = self.fio.filled(job, || true)?;
            self.doubt_fill(is_filled);
        }
        if let Some(job) = busy {
            self.counts.fio_interrupted += 1;
            job.stop()?;
        }
        let ended = ended?;
        self.verifier.take_failure().map_or(Ok(ended), Err)
    }

    /// fio does not report that its last flush failed: only a disk that has served all syncs until then shows
    /// that it did not.
    fn doubt_fill(&mut self, is_filled: bool) {
        if is_filled && (!self.disk.is_powered() || self.has_failed_sync()) {
            self.fio.forget_fill();
        }
    }

    fn draw_end(&mut self) -> End {
        let rng = &mut self.rng;
        let when = When::draw(rng);
        let skip = rng.skewed(SKIP_BITS);
        let more = if rng.chance(1, 2) { 0 } else { rng.skewed(4) };
        let trigger = Trigger::new(when, skip, more);
        let after = [After::Cut, After::Kill, After::Stop][rng.index(3)];
        let after = if self.setting.mode.restarts_after_failed_sync() { after } else { After::Cut };
        let failing = match self.setting.mode {
            Mode::Fsyncgate | Mode::StaleDisk => 30,
            Mode::Kills | Mode::Attached => 0,
            Mode::Direct | Mode::Cache | Mode::Parity => 8,
        };
        if self.setting.mode == Mode::Kills && rng.chance(3, 4) {
            return End::Kill(trigger);
        }
        match rng.below(100) {
            draw if draw < failing => End::FailedSync(rng.skewed(4), after),
            30..36 => End::Close,
            36..43 => End::Kill(trigger),
            43..50 => End::CutInClose(Trigger::new(
                [When::InRequest, When::InSync, When::AfterSync, When::AtSlot][rng.index(4)],
                rng.skewed(3),
                more,
            )),
            _ => End::Cut(trigger),
        }
    }

    fn end_life(&mut self, end: End, load: Load) -> Result<LifeEnd> {
        let ms_max = if self.losses.is_some() { LIFE_WITH_LOSSES_MS_MAX } else { LIFE_MS_MAX };
        let limit = Duration::from_millis(1 + self.rng.below(ms_max));
        match end {
            End::Cut(trigger) => {
                self.draw_silence();
                self.disk.arm(trigger, Action::Cut);
                let fired = self.wait(limit)?;
                self.counts.cuts_after_flush += u64::from(fired && trigger.when == When::AfterFlush);
                self.disk.cut();
                self.linger();
                self.cut_and_restart("with clients at work")?;
                load.abandon();
                Ok(LifeEnd::Crash)
            }
            End::Kill(trigger) => {
                self.disk.arm(trigger, Action::Ring);
                self.wait(limit)?;
                self.disk.disarm();
                self.kill("with clients at work");
                load.abandon();
                Ok(LifeEnd::Crash)
            }
            End::Close => {
                // In half of the cases the clients finish before.
                if self.rng.chance(1, 2) {
                    self.wait(limit)?;
                    self.verifier.stop();
                    load.finish();
                    self.close()?;
                } else {
                    self.wait(limit)?;
                    self.close()?;
                    load.abandon();
                }
                self.note("closed");
                Ok(LifeEnd::Closed)
            }
            End::CutInClose(trigger) => {
                self.wait(limit)?;
                self.draw_silence();
                self.verifier.begin_end();
                self.disk.arm(trigger, Action::Cut);
                if let Some(server) = &self.server {
                    server.ask_to_stop();
                }
                let closed = self.wait_for_end()?;
                let cut = !self.disk.is_powered();
                self.counts.cuts_in_close += u64::from(cut);
                self.counts.closes += u64::from(closed && !cut);
                if !closed && !cut {
                    return Err(self.server_failed("did not close the drive"));
                }
                self.cut_and_restart("while it closed")?;
                load.abandon();
                Ok(if closed { LifeEnd::Closed } else { LifeEnd::Crash })
            }
            End::FailedSync(skip, after) => self.fail_sync(skip, after, limit, load),
        }
    }

    fn fail_sync(&mut self, skip: u64, after: After, limit: Duration, load: Load) -> Result<LifeEnd> {
        self.disk.fail_sync(skip);
        self.wait(limit)?;
        self.linger();
        match after {
            After::Cut => {
                self.draw_silence();
                self.cut_and_restart("after a failed sync")?;
                load.abandon();
                return Ok(LifeEnd::Crash);
            }
            After::Kill => self.kill("after a failed sync"),
            After::Stop => {
                self.verifier.begin_end();
                let failed = self.has_failed_sync();
                if let Some(server) = &self.server {
                    server.ask_to_stop();
                }
                let closed = self.wait_for_end()?;
                // A sync may also fail during closing, or not at all.
                let failed_too = self.has_failed_sync();
                self.disk.heal();
                if !closed && !failed_too {
                    return Err(self.server_failed("did not close the drive"));
                }
                self.note(if failed_too { "stopped after a failed sync" } else { "closed" });
                self.counts.closes += u64::from(closed);
                self.counts.failed_sync_restarts += u64::from(failed_too);
                self.memory.server_ended();
                self.server = None;
                load.abandon();
                return Ok(if closed && !failed { LifeEnd::Closed } else { LifeEnd::Crash });
            }
        }
        load.abandon();
        Ok(LifeEnd::Crash)
    }

    /// Waits at most `limit` for the disk's trigger, or until a failure. Returns whether the trigger fired.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<bool> {
        let since = Instant::now();
        loop {
            let left = limit.saturating_sub(since.elapsed());
            if self.disk.wait(left.min(Duration::from_millis(20))) {
                return Ok(true);
            }
            if let Some(why) = self.verifier.take_failure() {
                return Err(why);
            }
            if let Some(status) = self.server.as_mut().and_then(launch::Server::ended) {
                return Err(self.server_failed(format!("ended by itself, with {status}")));
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Waits for the server to end or the power to be cut. Returns whether the server ended successfully.
    fn wait_for_end(&mut self) -> Result<bool> {
        let since = Instant::now();
        loop {
            let Some(server) = &mut self.server else { return Ok(false) };
            if let Some(status) = server.ended() {
                return Ok(status.success());
            }
            if !self.disk.is_powered() {
                return Ok(false);
            }
            if since.elapsed() > Duration::from_secs(60) {
                return Err(Error::server("does not stop in a minute"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a server run on for a moment with a disk that fails. What it acknowledges meanwhile must be true
    /// too.
    pub(super) fn linger(&mut self) {
        if self.rng.chance(1, 2) {
            std::thread::sleep(Duration::from_millis(self.rng.below(LINGER_MS_MAX)));
        }
    }

    /// Error of the server, with its log.
    fn server_failed(&self, problem: impl Into<String>) -> Error {
        let log = self.server.as_ref().map(launch::Server::logged).unwrap_or_default();
        Error::Server { problem: problem.into(), log }
    }
}
