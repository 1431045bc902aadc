//! One drive, from its creation through power cuts to the final check.

mod attached;
mod check;
mod lives;
mod losses;
mod memory;
mod shape;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use launch::{Readiness, Server};
use media::SimRng;
use sim::oracle::LifeEnd;

use crate::client::{REWRITTEN_BYTES, Rewriter, Verifier, read_back};
use crate::counts::Counts;
use crate::disk::{Action, Disk, Stale, Trigger, When};
use crate::error::{Error, Result};
use crate::fio::{BUSY_BYTES, Fio, SETTLED_BYTES};
use crate::mode::Mode;
use crate::mount::Mounted;
use crate::server::{LIMIT, Program};
use attached::Attached;
use losses::{Losses, Repairs};
use memory::Memory;
use shape::Shape;

/// Most power cuts in a row during one recovery.
const RECOVERY_CUTS_MAX: u64 = 3;
/// Number of requests of a recovering server among which a cut is drawn, as a power of two. It is about the
/// number that it sends.
const RECOVERY_REQUESTS_BITS: u64 = 6;

/// Parameters of a story.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The program under test.
    pub program: PathBuf,
    /// Mode of the story.
    pub mode: Mode,
    /// Seed. It determines everything except the concurrency of threads and processes.
    pub seed: u64,
    /// Most power cuts. The story may have fewer.
    pub cuts_max: u64,
    /// I/O back end of the server, `uring` or `plain`, if not as drawn.
    pub io: Option<String>,
    /// True if fio is used too.
    pub fio: bool,
    /// Syncs of the disk make nothing durable: the story must fail.
    pub lies: bool,
    /// Mistake that a debug build of the program is to make: stories must fail.
    pub planted: Option<String>,
    /// Excuse nothing, not even mistakes of the program that are known.
    pub strict: bool,
    /// Print all events.
    pub verbose: bool,
}

/// Result of a story.
pub struct Ending {
    /// Counts of events.
    pub counts: Counts,
    /// Reason of the failure, if any.
    pub failure: Option<Error>,
}

/// Runs a story in a folder. Logs are kept there, and images in case of a failure.
///
/// # Errors
/// If FUSE or something else is missing.
pub fn run(setting: &Setting, folder: &Path) -> io::Result<Ending> {
    let mut rng = SimRng::new(setting.seed);
    let shape = Shape::draw(setting, &mut rng);
    let stale = if setting.mode == Mode::StaleDisk { Stale::Shown } else { Stale::Hidden };
    let disk = Arc::new(Disk::new(shape.config.physical_bytes, shape.pace, stale, rng.fork()));
    let point = folder.join("mnt");
    std::fs::create_dir_all(&point)?;
    let mounted = Mounted::new(disk.clone(), shape.cache, &point)?;
    let io = setting.io.clone().unwrap_or_else(|| shape.io.to_string());
    let memory = Memory::of(setting.seed, folder, setting.mode == Mode::Attached)?;
    let run = memory.folder().to_path_buf();
    let (path, planted) = (setting.program.clone(), setting.planted.clone());
    let program = Program { path, folder: folder.to_path_buf(), run, io, planted };
    program.note(&format!("seed {}, mode {}: {shape:#?}", setting.seed, setting.mode))?;
    let rewriters = Rewriter::all(shape.config.logical_bytes + SETTLED_BYTES + BUSY_BYTES);
    let mut story = Story {
        fio: Fio::new(folder, shape.config.logical_bytes),
        verifier: Arc::new(Verifier::new(disk.clone())),
        setting: setting.clone(),
        rng,
        shape,
        disk,
        point,
        mounted: Some(mounted),
        program,
        server: None,
        attached: None,
        rewriters,
        memory,
        losses: None,
        repairs: None,
        counts: Counts { drives: 1, ..Counts::default() },
    };
    let failure = match setting.mode {
        Mode::Attached => story.attached_lives().err(),
        _ => story.lives().err(),
    };
    if let Some(why) = &failure {
        story.keep(&why.to_string())?;
    }
    let mut counts = story.total();
    story.end();
    counts.failures = u64::from(failure.is_some());
    Ok(Ending { counts, failure })
}

struct Story {
    setting: Setting,
    rng: SimRng,
    shape: Shape,
    disk: Arc<Disk>,
    verifier: Arc<Verifier>,
    fio: Fio,
    point: PathBuf,
    mounted: Option<Mounted>,
    program: Program,
    server: Option<Server>,
    attached: Option<Attached>,
    rewriters: Vec<Arc<Rewriter>>,
    memory: Memory,
    losses: Option<Losses>,
    repairs: Option<Repairs>,
    counts: Counts,
}

impl Story {
    fn lives(&mut self) -> Result<()> {
        self.create()?;
        if self.setting.mode == Mode::Parity {
            self.begin_losses()?;
        }
        let mut end = LifeEnd::Closed;
        let cuts_max = self.setting.cuts_max.min(self.shape.cuts);
        loop {
            self.open()?;
            self.read_back(end)?;
            if self.rng.chance(1, 6) {
                // Content that a reader was shown after a restart stays, even if nothing was written since.
                self.crash_at_once()?;
                self.open()?;
                self.read_back(LifeEnd::Crash)?;
            }
            let kills = if self.setting.mode == Mode::Kills { self.counts.kills } else { 0 };
            if self.disk.counts().cuts + kills >= cuts_max {
                break;
            }
            end = self.live()?;
        }
        self.close()?;
        self.check("at the end")?;
        self.end_losses()
    }

    fn note(&self, what: &str) {
        if self.setting.verbose {
            eprintln!("seed {}: {what}", self.setting.seed);
        }
        // Failure to write the log is no reason to stop.
        let _ = self.program.note(what);
    }

    fn file(&self) -> PathBuf {
        self.point.join(one_file::FILE_NAME)
    }

    fn create(&mut self) -> Result<()> {
        let config = &self.shape.config;
        let capacity = config.logical_bytes + SETTLED_BYTES + BUSY_BYTES + REWRITTEN_BYTES;
        let arguments = [
            "create".to_string(),
            self.file().display().to_string(),
            format!("--capacity={capacity}"),
            format!("--sector={}", config.sector_bytes),
            format!("--segment={}", config.segment_bytes),
            format!("--codec={}", config.codec),
            format!("--parity={}", self.shape.parity),
        ];
        self.program.run(&arguments)?;
        if self.setting.lies {
            self.disk.lie();
        }
        if self.rng.chance(1, 2) { self.cut_and_restart("after create") } else { Ok(()) }
    }

    /// Starts the server, with power cuts and failed syncs meanwhile.
    fn open(&mut self) -> Result<()> {
        self.check("before the drive is opened")?;
        let mut cuts = 0;
        loop {
            self.settle_losses();
            self.verifier.begin_life();
            let is_cut = cuts < RECOVERY_CUTS_MAX && self.rng.chance(1, 6);
            if is_cut {
                let when = [When::InRequest, When::InSync, When::AfterSync, When::AtSlot][self.rng.index(4)];
                let skip = if when == When::InRequest { self.rng.skewed(RECOVERY_REQUESTS_BITS) } else { 0 };
                let skip = skip + self.rng.below(2);
                let trigger = Trigger::new(when, skip, self.rng.skewed(3));
                self.note(&format!("a power cut while it opens, if {trigger:?} comes"));
                self.draw_silence();
                self.disk.arm(trigger, Action::Cut);
            } else if self.setting.mode.restarts_after_failed_sync() && self.rng.chance(1, 24) {
                self.note("a sync fails while it opens");
                self.disk.fail_sync(self.rng.below(3));
            }
            let lost_before = self.lost_pages();
            let server = self.program.serve(&self.file(), &self.shape.arguments);
            let mut server = server.map_err(Error::system("cannot start the server"))?;
            let disk = self.disk.clone();
            let started = server.wait_ready(1, LIMIT, || !disk.is_powered());
            let logged = server.logged();
            self.server = Some(server);
            let started = started.map_err(Error::system("cannot wait for the server"))?;
            if started == Readiness::Late {
                return Err(Error::server(format!("does not serve after {} seconds", LIMIT.as_secs())));
            }
            if !self.disk.is_powered() {
                cuts += 1;
                self.counts.cuts_in_recovery += 1;
                self.cut_and_restart("while it opened")?;
                self.check("after a power cut while it opened")?;
                continue;
            }
            self.disk.disarm();
            self.disk.heal();
            match started {
                // The server may run all the same, poisoned or not, because the sync belonged to background
                // work.
                _ if self.disk.is_powered() && self.has_failed_sync() => {
                    self.note("a sync failed while it opened");
                    self.server = None;
                    self.counts.failed_sync_restarts += 1;
                }
                Readiness::Serves if self.disk.is_powered() => {
                    self.counts.recoveries += 1;
                    if let Some(losses) = &self.losses {
                        losses.pause(false);
                    }
                    return Ok(());
                }
                // A page was lost between two reads of it.
                Readiness::Ended(_) if self.losses_excuse(lost_before) => {
                    self.note("pages were lost while it opened; again without losses");
                    self.server = None;
                    self.counts.opened_again += 1;
                }
                Readiness::Ended(status) => {
                    let problem = format!("does not open the drive; it ended with {status}");
                    return Err(Error::Server { problem, log: logged });
                }
                // The power was cut between the two checks.
                Readiness::Serves | Readiness::Interrupted | Readiness::Late => {
                    cuts += 1;
                    self.counts.cuts_in_recovery += 1;
                    self.cut_and_restart("while it opened")?;
                }
            }
        }
    }

    /// Pages lost so far, within the cover of parity.
    fn lost_pages(&self) -> u64 {
        self.losses.as_ref().map_or(0, |losses| losses.counts().pages())
    }

    /// Returns whether a drive may not have opened because pages were lost meanwhile. If so, nothing is lost
    /// until it has opened.
    fn losses_excuse(&self, lost_before: u64) -> bool {
        let Some(losses) = self.losses.as_ref().filter(|_| !self.setting.strict) else { return false };
        losses.pause(true);
        self.lost_pages() > lost_before
    }

    /// Compares everything that was ever written with the oracle, and lets fio verify its data.
    fn read_back(&mut self, end: LifeEnd) -> Result<()> {
        let end = if end == LifeEnd::Crash && self.memory.is_kept() { LifeEnd::Kept } else { end };
        self.counts.kills_kept += u64::from(end == LifeEnd::Kept);
        let socket = self.program.socket();
        read_back(&socket, self.shape.config.sector_bytes, &self.verifier)
            .map_err(|error| error.at(format!("after the restart ({end:?})")))?;
        self.verifier.oracle.lock().resolve(end)?;
        self.fio.verify(&socket)?;
        self.ask_for_repairs()?;
        if self.rng.chance(1, 8) { self.scrub() } else { Ok(()) }
    }

    /// Draws whether the disk fails requests after the next cut, or does not reply.
    fn draw_silence(&mut self) {
        let silent = self.rng.chance(1, 3);
        self.disk.set_silent(silent);
    }

    /// Cuts the power or kills the server while no clients work.
    fn crash_at_once(&mut self) -> Result<()> {
        let may_kill = self.setting.mode.restarts_after_failed_sync() || !self.has_failed_sync();
        if may_kill && self.rng.chance(1, 3) {
            self.kill("as soon as it had been read");
            return Ok(());
        }
        self.draw_silence();
        self.disk.cut();
        self.cut_and_restart("as soon as it had been read")
    }

    /// Returns whether a sync failed since the server was started.
    fn has_failed_sync(&self) -> bool {
        self.verifier.has_failed_sync()
    }

    /// Kills the server without a power cut.
    fn kill(&mut self, when: &str) {
        self.note(&format!("killed {when}"));
        self.counts.kills += 1;
        self.counts.failed_sync_restarts += u64::from(self.has_failed_sync());
        self.memory.server_killed(!self.has_failed_sync() && !self.setting.lies);
        self.disk.heal();
        self.server = None;
    }

    /// Cuts the power, if it is on, ends the server, empties the page cache and restores the power.
    fn cut_and_restart(&mut self, when: &str) -> Result<()> {
        self.disk.cut();
        self.verifier.begin_end();
        self.note(&format!("power cut {when}"));
        if let Some(server) = &mut self.server {
            server.kill();
        }
        if let Some(attached) = self.attached.take() {
            attached.lose_power(|| self.disk.release())?;
        }
        self.disk.release();
        self.server = None;
        self.memory.lose()?;
        let failed = |source| Error::System { what: "cannot mount the disk again", source };
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount().map_err(failed)?;
        }
        self.disk.restart();
        self.mounted = Some(Mounted::new(self.disk.clone(), self.shape.cache, &self.point).map_err(failed)?);
        Ok(())
    }

    /// Asks the server to stop, and waits until it has closed the drive.
    fn close(&mut self) -> Result<()> {
        self.verifier.begin_end();
        let Some(mut server) = self.server.take() else { return Ok(()) };
        server.ask_to_stop();
        let status = server.wait(LIMIT).map_err(Error::system("cannot wait for the server"))?;
        let status =
            status.ok_or_else(|| Error::server(format!("does not stop in {} seconds", LIMIT.as_secs())))?;
        if !status.success() {
            let problem = format!("did not close the drive; it ended with {status}");
            return Err(Error::Server { problem, log: server.logged() });
        }
        self.counts.closes += 1;
        Ok(())
    }

    /// Saves images for the analysis of a failure.
    fn keep(&self, why: &str) -> io::Result<()> {
        let (now, at_cut) = self.disk.images();
        now.save(&self.program.folder.join("image.now"))?;
        if let Some(at_cut) = at_cut {
            at_cut.save(&self.program.folder.join("image.cut"))?;
        }
        std::fs::write(self.program.folder.join("failure"), why)
    }

    fn end(&mut self) {
        self.disk.cut();
        if let Some(server) = &mut self.server {
            server.kill();
        }
        self.end_attached();
        self.disk.release();
        self.server = None;
        self.mounted = None;
    }

    fn total(&self) -> Counts {
        let (disk, clients) = (self.disk.counts(), self.verifier.counts());
        let losses = self.losses.as_ref().map(Losses::counts).unwrap_or_default();
        Counts {
            cuts: disk.cuts,
            failed_syncs: disk.failed_syncs,
            kept_writes: disk.kept_writes,
            lost_writes: disk.lost_writes,
            torn_writes: disk.torn_writes,
            disk_written_bytes: disk.written_bytes,
            changes: clients.changes,
            flushes: clients.flushes,
            written_bytes: clients.written_bytes,
            verified_bytes: clients.verified_bytes,
            refusals: clients.refusals,
            errors: clients.errors,
            rewrites: clients.rewrites,
            losses,
            repaired_pages: self.repairs.as_ref().map_or(0, Repairs::repaired),
            fio_filled: self.fio.filled,
            fio_verified: self.fio.verified,
            ..self.counts
        }
    }
}
