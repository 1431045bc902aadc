//! Lives of a drive below a loop device: clients that go on while servers are killed and restarted, until the
//! keeper, both processes or the machine die, or the drive is detached.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use sim::oracle::LifeEnd;

use super::Story;
use crate::attachment::{self, Attachment};
use crate::client::{DeviceLoad, Plan, flush, read_back, read_back_device};
use crate::disk::{Action, Trigger, When};
use crate::error::{Error, Result};
use crate::server::LIMIT;

/// Longest time between two ends of servers.
const LIFE_MS_MAX: u64 = 800;
/// Most occurrences of an event that are skipped, as a power of two.
const SKIP_BITS: u64 = 8;
/// Deaths of a server under the same clients, at most.
const DEATHS_MAX: u64 = 5;
/// Servers that may be killed one after the other before one has served: three openings with the same memory
/// close the drive for good.
const OPENINGS_KILLED_MAX: u32 = 2;
/// Time for a device to fail after its keeper was killed. Later, it has survived.
const SURVIVES_AFTER: Duration = Duration::from_secs(5);

/// End of a life of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// A power cut, perhaps while a server opens the drive that is started after a kill.
    Cut { opening: bool },
    /// The keeper is killed.
    Keeper,
    /// The keeper and the server are killed.
    Both,
    /// The drive is detached.
    Detach,
}

/// An attached drive and its clients.
pub(super) struct Attached {
    attachment: Attachment,
    load: Option<DeviceLoad>,
    /// Server that was killed last.
    killed: Option<i32>,
    /// Servers that were killed since one has served.
    openings_killed: u32,
    /// Requests that had been answered when the last server was killed.
    progress: u64,
    /// Its server is that of the last keeper. It has opened nothing, so that what it shows need not be
    /// durable.
    has_old_server: bool,
}

impl Attached {
    fn progress(&self) -> u64 {
        self.load.as_ref().map_or(0, DeviceLoad::progress)
    }

    /// Waits until a server serves, if too many were killed before.
    fn may_be_killed(&mut self) -> Result<()> {
        let since = Instant::now();
        while self.progress() == self.progress && self.openings_killed >= OPENINGS_KILLED_MAX {
            if since.elapsed() > LIMIT {
                let problem = format!("did not answer for {} seconds", LIMIT.as_secs());
                return Err(Error::Server { problem, log: self.attachment.logs() });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        if self.progress() != self.progress {
            self.openings_killed = 0;
        }
        Ok(())
    }

    fn was_killed(&mut self, server: i32) {
        self.killed = Some(server);
        self.openings_killed += 1;
        self.progress = self.progress();
    }

    /// Kills everything, as a power cut does, and removes what is left in the kernel. `release` makes the
    /// disk answer.
    pub(super) fn lose_power(mut self, release: impl FnOnce()) -> Result<()> {
        let server = self.attachment.kill()?;
        release();
        if let Some(server) = server {
            server.wait()?;
        }
        if let Some(load) = &mut self.load {
            load.finish()?;
        }
        self.attachment.clear_away()
    }
}

impl Story {
    /// As [`Story::lives`], below a loop device.
    pub(super) fn attached_lives(&mut self) -> Result<()> {
        self.create()?;
        let mut end = LifeEnd::Closed;
        let cuts_max = self.setting.cuts_max.min(2 * self.shape.cuts);
        loop {
            if self.attached.is_none() {
                self.check("before the drive is attached")?;
            }
            self.attach()?;
            self.read_back_attached(end)?;
            if self.disk.counts().cuts + self.counts.kills >= cuts_max {
                break;
            }
            end = self.attached_life()?;
        }
        self.detach()?;
        self.check("at the end")
    }

    fn attach(&mut self) -> Result<()> {
        self.verifier.begin_life();
        let old = self.attached.as_ref().and_then(|old| old.attachment.server()).map(|server| server.pid());
        let attachment = Attachment::new(&self.program, &self.file(), &self.shape.arguments)?;
        let has_old_server = attachment.server().is_some_and(|server| Some(server.pid()) == old);
        self.counts.recoveries += u64::from(!has_old_server);
        let (load, killed) = (None, None);
        self.attached =
            Some(Attached { attachment, load, killed, openings_killed: 0, progress: 0, has_old_server });
        Ok(())
    }

    fn attached(&mut self) -> Result<&mut Attached> {
        self.attached.as_mut().ok_or_else(|| Error::server("is not attached"))
    }

    /// Compares everything that was ever written with the oracle, by the device or over NBD.
    fn read_back_attached(&mut self, end: LifeEnd) -> Result<()> {
        let end = if end == LifeEnd::Crash && self.memory.is_kept() { LifeEnd::Kept } else { end };
        let over_nbd = self.rng.chance(1, 2);
        let attached = self.attached()?;
        let has_old_server = attached.has_old_server;
        let (node, socket) = (attached.attachment.node().to_path_buf(), attached.attachment.socket()?);
        let sector_bytes = self.shape.config.sector_bytes;
        if over_nbd {
            read_back(&socket, sector_bytes, &self.verifier)
        } else {
            read_back_device(&node, sector_bytes, &self.verifier)
        }
        .map_err(|error| error.at(format!("attached again ({end:?})")))?;
        if has_old_server {
            flush(&node).map_err(Error::system("cannot flush the device"))?;
        }
        self.verifier.oracle.lock().resolve(end)?;
        self.rewriters.iter().try_for_each(|rewriter| rewriter.resume(&node, end))
    }

    /// Runs clients over deaths of the server, until something more ends. Returns what must be there then.
    fn attached_life(&mut self) -> Result<LifeEnd> {
        let plan = Plan::draw(&mut self.rng);
        let deaths = self.rng.below(DEATHS_MAX + 1);
        let end = self.draw_attached_end();
        self.note(&format!("{plan:?}, {deaths} deaths of the server, until {end:?}"));
        let node = self.attached()?.attachment.node().to_path_buf();
        let (config, verifier) = (&self.shape.config, &self.verifier);
        let load = DeviceLoad::start(&node, plan, config, verifier, &self.rewriters, &mut self.rng);
        self.attached()?.load = Some(load.map_err(Error::system("cannot open the device"))?);
        for _ in 0..deaths {
            self.end_server()?;
        }
        let ended = match end {
            End::Cut { opening } => self.cut_attached(opening)?,
            End::Keeper | End::Both => self.kill_keeper(end == End::Both)?,
            End::Detach => {
                let limit = self.draw_limit();
                self.wait(limit)?;
                self.detach()?;
                LifeEnd::Closed
            }
        };
        self.verifier.take_failure().map_or(Ok(ended), Err)
    }

    fn draw_attached_end(&mut self) -> End {
        match self.rng.below(10) {
            0..4 => End::Cut { opening: self.rng.chance(1, 3) },
            4..6 => End::Keeper,
            6..9 => End::Both,
            _ => End::Detach,
        }
    }

    fn draw_limit(&mut self) -> Duration {
        Duration::from_millis(self.rng.below(LIFE_MS_MAX))
    }

    /// Waits for a moment, of the disk or by time.
    fn wait_for_moment(&mut self) -> Result<()> {
        let when = When::draw(&mut self.rng);
        let trigger = Trigger::new(when, self.rng.skewed(SKIP_BITS), self.rng.skewed(3));
        let limit = self.draw_limit();
        self.disk.arm(trigger, Action::Ring);
        self.wait(limit)?;
        self.disk.disarm();
        Ok(())
    }

    /// Kills a server or asks it to stop. The clients go on.
    fn end_server(&mut self) -> Result<()> {
        // Some are killed while they open the drive.
        if self.rng.chance(3, 4) {
            self.wait_for_moment()?;
        }
        let is_killed = self.rng.chance(5, 6);
        let attached = self.attached()?;
        attached.may_be_killed()?;
        let server = attached.attachment.next_server(attached.killed)?;
        attached.was_killed(server.pid());
        if is_killed {
            server.signal(Signal::KILL);
            self.counts.kills += 1;
            self.counts.kills_kept += 1;
        } else {
            server.signal(Signal::TERM);
            server.wait()?;
            self.counts.restarts += 1;
        }
        self.note(if is_killed { "killed the server" } else { "stopped the server" });
        Ok(())
    }

    /// Cuts the power.
    fn cut_attached(&mut self, opening: bool) -> Result<LifeEnd> {
        let skip_bits = if opening {
            let attached = self.attached()?;
            let server = attached.attachment.next_server(attached.killed)?;
            server.signal(Signal::KILL);
            attached.was_killed(server.pid());
            super::RECOVERY_REQUESTS_BITS
        } else {
            SKIP_BITS
        };
        let trigger = Trigger::new(When::draw(&mut self.rng), self.rng.skewed(skip_bits), self.rng.skewed(3));
        self.draw_silence();
        self.disk.arm(trigger, Action::Cut);
        let limit = self.draw_limit();
        let fired = self.wait(limit)?;
        self.counts.cuts_after_flush += u64::from(fired && trigger.when == When::AfterFlush);
        self.counts.cuts_in_recovery += u64::from(fired && opening);
        self.disk.cut();
        self.linger();
        self.cut_and_restart("with clients of the device at work")?;
        Ok(LifeEnd::Crash)
    }

    /// Kills the keeper, and the server too if `both`. The device fails then, or it survives.
    fn kill_keeper(&mut self, both: bool) -> Result<LifeEnd> {
        self.wait_for_moment()?;
        let verifier = self.verifier.clone();
        let attached = self.attached()?;
        attached.may_be_killed()?;
        let server = attached.attachment.next_server(attached.killed)?;
        let Some(keeper) = attached.attachment.keeper() else {
            return Err(Error::server("has no keeper"));
        };
        verifier.begin_end();
        keeper.signal(Signal::KILL);
        if both {
            server.signal(Signal::KILL);
            attached.was_killed(server.pid());
        }
        keeper.wait()?;
        // Clients end when the device fails.
        let load = &mut attached.load;
        let since = Instant::now();
        while load.as_ref().is_some_and(|load| !load.has_ended()) && since.elapsed() < SURVIVES_AFTER {
            std::thread::sleep(Duration::from_millis(2));
        }
        let has_survived = load.as_ref().is_some_and(|load| !load.has_ended());
        verifier.stop();
        if let Some(mut load) = load.take() {
            load.finish()?;
        }
        self.counts.keeper_kills += 1;
        self.counts.kills += u64::from(both);
        self.counts.kills_kept += u64::from(both);
        self.counts.keeper_kills_survived += u64::from(has_survived);
        self.note(&format!("killed the keeper{}", if both { " and the server" } else { "" }));
        if has_survived {
            self.detach()?;
            return Ok(LifeEnd::Closed);
        }
        self.memory.server_killed(!self.setting.lies);
        // `attach` removes what is left too.
        if self.rng.chance(1, 2) {
            self.attached()?.attachment.clear_away()?;
            self.attached = None;
        }
        Ok(LifeEnd::Crash)
    }

    /// Ends the clients and detaches the drive.
    fn detach(&mut self) -> Result<()> {
        self.verifier.stop();
        if let Some(mut attached) = self.attached.take() {
            if let Some(load) = &mut attached.load {
                load.finish()?;
            }
            if let Err(error) = attached.attachment.detach() {
                // It is ended with the story.
                self.attached = Some(attached);
                return Err(error);
            }
            self.counts.closes += 1;
        }
        Ok(())
    }

    /// Ends what a failure has left.
    pub(super) fn end_attached(&mut self) {
        let Some(attached) = self.attached.take() else { return };
        let _ = self.program.note(&attached.attachment.logs());
        // Nothing more can be done about errors.
        let _ = attached.lose_power(|| self.disk.release());
        let _ = attachment::forget_memories(self.memory.folder());
    }
}
