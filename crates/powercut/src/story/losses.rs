//! Loss of pages below a drive with parity, all through a story, and what its servers say of it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use launch::Readiness;
use media::SimRng;
use parking_lot::Mutex;
use serde::Deserialize;
use sim::oracle::LifeEnd;

use super::Story;
use crate::client::{Verifier, read_back_damaged, sweep};
use crate::disk::{Chooser, Disk, Extent, LossCounts};
use crate::error::{Error, Result};
use crate::server::{LIMIT, Program};

/// Longest times between two losses, one of them for each story.
const PAUSES_MS_MAX: [u64; 3] = [10, 40, 160];
/// Of how many fillings one loses something; of some stories always the last.
const PARTS: [u64; 4] = [1, 2, 6, 24];
/// Longest time between two readings of everything.
const SWEEP_PAUSE_MS_MAX: u64 = 60;

/// Loses pages of a disk within the cover of parity, whatever else happens.
pub(super) struct Losses {
    chooser: Arc<Mutex<Chooser>>,
    is_over: Arc<AtomicBool>,
    is_paused: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Losses {
    /// Begins to lose pages.
    pub(super) fn begin(disk: Arc<Disk>, program: Program, mut rng: SimRng) -> Losses {
        let chooser = Arc::new(Mutex::new(Chooser::new(rng.fork())));
        let is_over = Arc::new(AtomicBool::new(false));
        let pause_ms_max = PAUSES_MS_MAX[rng.index(PAUSES_MS_MAX.len())];
        let is_gentle = rng.chance(1, 5);
        let is_paused = Arc::new(AtomicBool::new(false));
        let (of_thread, is_over_too, is_paused_too) = (chooser.clone(), is_over.clone(), is_paused.clone());
        let thread = thread::spawn(move || {
            while !is_over_too.load(Ordering::SeqCst) {
                thread::sleep(Duration::from_millis(1 + rng.below(pause_ms_max)));
                let part = if is_gentle { PARTS[PARTS.len() - 1] } else { PARTS[rng.index(PARTS.len())] };
                let mut chooser = of_thread.lock();
                if is_paused_too.load(Ordering::SeqCst) {
                    continue;
                }
                disk.lose_pages(&mut chooser, Extent::Covered, part);
                // Failure to write the log is no reason to stop.
                chooser.take_notes().iter().for_each(|note| _ = program.note(note));
            }
        });
        Losses { chooser, is_over, is_paused, thread: Some(thread) }
    }

    /// Begins or ends a pause, in which nothing is lost.
    pub(super) fn pause(&self, is_paused: bool) {
        // Not in the middle of a loss.
        let _chooser = self.chooser.lock();
        self.is_paused.store(is_paused, Ordering::SeqCst);
    }

    /// Before the drive is opened: see [`Disk::settle_unreadable`].
    pub(super) fn settle(&self, disk: &Disk) {
        disk.settle_unreadable(&mut self.chooser.lock());
    }

    /// Ends the losses.
    fn end(&mut self) -> Result<()> {
        self.is_over.store(true, Ordering::SeqCst);
        match self.thread.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(Error::Violation("pages were chosen that parity does not cover".to_string())),
            _ => Ok(()),
        }
    }

    /// Pages lost so far.
    pub(super) fn counts(&self) -> LossCounts {
        self.chooser.lock().counts()
    }
}

impl Drop for Losses {
    fn drop(&mut self) {
        // A panic was printed.
        let _ = self.end();
    }
}

/// What servers say of their repairs.
#[derive(Clone)]
pub(super) struct Repairs {
    /// With a folder of its own for output.
    program: Program,
    drive: PathBuf,
    verifier: Arc<Verifier>,
    said: Arc<Mutex<Said>>,
}

#[derive(Default)]
struct Said {
    /// Opening that is counted now.
    instance: String,
    repaired: u64,
    /// By all openings before.
    repaired_before: u64,
}

/// Output of `pumice status --json`, as far as it is needed here.
#[derive(Deserialize)]
struct Answer {
    drives: Vec<DriveAnswer>,
}

#[derive(Deserialize)]
struct DriveAnswer {
    state: String,
    state_reason: Option<String>,
    parity: ParityAnswer,
    server: Option<ServerAnswer>,
}

#[derive(Deserialize)]
struct ParityAnswer {
    repaired_pages_count: u64,
    lost_pages_count: u64,
    last_lost_byte: Option<u64>,
}

#[derive(Deserialize)]
struct ServerAnswer {
    instance: String,
}

impl Repairs {
    pub(super) fn new(program: &Program, drive: &Path, verifier: &Arc<Verifier>) -> std::io::Result<Repairs> {
        let folder = program.folder.join("status");
        std::fs::create_dir_all(&folder)?;
        let program = Program { folder, ..program.clone() };
        let (drive, verifier) = (drive.to_path_buf(), verifier.clone());
        Ok(Repairs { program, drive, verifier, said: Arc::default() })
    }

    /// Pages repaired by all servers so far.
    pub(super) fn repaired(&self) -> u64 {
        let said = self.said.lock();
        said.repaired_before + said.repaired
    }

    /// Asks the server. It must be online and have lost nothing, unless something excuses it.
    pub(super) fn ask(&self) {
        let arguments = ["status".to_string(), self.drive.display().to_string(), "--json".to_string()];
        // It may have been killed just now.
        let Ok(output) = self.program.run(&arguments) else { return };
        let drive = match serde_json::from_str::<Answer>(&output) {
            Ok(answer) => answer.drives.into_iter().next(),
            Err(error) => {
                self.verifier.fail(Error::server(format!("answered with a malformed status: {error}")));
                return;
            }
        };
        let Some(DriveAnswer { state, state_reason, parity, server: Some(server) }) = drive else { return };
        if !self.verifier.is_excused() && (state != "online" || parity.lost_pages_count > 0) {
            let why = format!(
                "the drive is {state} ({state_reason:?}), with {} pages lost that parity covers, the last at {:?}",
                parity.lost_pages_count, parity.last_lost_byte
            );
            self.verifier.fail(Error::Violation(why));
        }
        let mut said = self.said.lock();
        if said.instance != server.instance {
            said.repaired_before += said.repaired;
            said.instance = server.instance;
        }
        said.repaired = parity.repaired_pages_count;
    }
}

/// Reads everything again and again, until it is stopped or the server ends.
pub(super) struct Sweeps {
    thread: JoinHandle<()>,
    count: Arc<AtomicU64>,
}

impl Sweeps {
    fn begin(repairs: Repairs, socket: PathBuf, sector_bytes: u32, mut rng: SimRng) -> Sweeps {
        let count = Arc::new(AtomicU64::new(0));
        let done = count.clone();
        let thread = thread::spawn(move || {
            while sweep(&socket, sector_bytes, &repairs.verifier) {
                done.fetch_add(1, Ordering::Relaxed);
                repairs.ask();
                thread::sleep(Duration::from_millis(rng.below(SWEEP_PAUSE_MS_MAX)));
            }
        });
        Sweeps { thread, count }
    }

    /// Waits for the end. Returns the number of times everything was read.
    pub(super) fn end(self) -> u64 {
        // A panic was printed.
        let _ = self.thread.join();
        self.count.load(Ordering::Relaxed)
    }
}

/// Output of `pumice check --json`, as far as it is needed here.
#[derive(Default, Deserialize)]
struct Checked {
    faults_count: u64,
}

impl Story {
    /// Begins to lose pages, in the mode for it.
    pub(super) fn begin_losses(&mut self) -> Result<()> {
        let repairs = Repairs::new(&self.program, &self.file(), &self.verifier);
        self.repairs = Some(repairs.map_err(Error::system("cannot make a folder"))?);
        self.losses = Some(Losses::begin(self.disk.clone(), self.program.clone(), self.rng.fork()));
        Ok(())
    }

    /// Begins to read everything, beside the clients, in the mode for it.
    pub(super) fn begin_sweeps(&mut self) -> Option<Sweeps> {
        let repairs = self.repairs.clone()?;
        let sector_bytes = self.shape.config.sector_bytes;
        Some(Sweeps::begin(repairs, self.program.socket(), sector_bytes, self.rng.fork()))
    }

    /// Before the drive is opened, in the mode for it: pages of segments that are not in use can be read.
    pub(super) fn settle_losses(&self) {
        if let Some(losses) = self.losses.as_ref().filter(|_| !self.setting.strict) {
            losses.settle(&self.disk);
        }
    }

    /// Asks the server for its repairs, in the mode for it.
    pub(super) fn ask_for_repairs(&self) -> Result<()> {
        if let Some(repairs) = &self.repairs {
            repairs.ask();
        }
        self.verifier.take_failure().map_or(Ok(()), Err)
    }

    /// At the end of a story, with the drive closed: nothing more is lost within the cover of parity; in some
    /// stories, pages are lost beyond it.
    pub(super) fn end_losses(&mut self) -> Result<()> {
        let Some(losses) = &mut self.losses else { return Ok(()) };
        losses.end()?;
        let chooser = losses.chooser.clone();
        self.check("after the last loss")?;
        if !self.rng.chance(1, 3) {
            return Ok(());
        }
        let part = PARTS[self.rng.index(3)];
        self.note("pages are lost beyond the cover of parity");
        let mut beyond = Chooser::new(self.rng.fork());
        beyond.continue_after(&mut chooser.lock());
        self.disk.lose_pages(&mut beyond, Extent::Beyond, part);
        beyond.take_notes().iter().for_each(|note| self.note(note));
        self.counts.beyond = beyond.counts();
        self.counts.beyond_drives = 1;
        self.read_damaged()
    }

    /// Each read of a drive that lost too much is right or fails, and a check names damage if one fails.
    fn read_damaged(&mut self) -> Result<()> {
        let file = self.file();
        let arguments =
            ["check".to_string(), file.display().to_string(), "--deep".to_string(), "--json".to_string()];
        let (output, names_damage) = match self.program.run(&arguments) {
            Ok(output) => (output, false),
            Err(failed) => (failed.output, true),
        };
        let checked: Checked = serde_json::from_str(&output).unwrap_or_default();
        self.counts.beyond_faults += checked.faults_count;
        self.verifier.begin_life();
        let server = self.program.serve(&file, &self.shape.arguments);
        let mut server = server.map_err(Error::system("cannot start the server"))?;
        let started = server.wait_ready(1, LIMIT, || false);
        let logged = server.logged();
        self.server = Some(server);
        let bad = match started.map_err(Error::system("cannot wait for the server"))? {
            Readiness::Serves => {
                let socket = self.program.socket();
                let failed = read_back_damaged(&socket, self.shape.config.sector_bytes, &self.verifier)
                    .map_err(|error| error.at("after losses beyond the cover of parity"))?;
                self.counts.beyond_errors += failed.len() as u64;
                self.verifier.oracle.lock().resolve(LifeEnd::Closed)?;
                !failed.is_empty()
            }
            Readiness::Ended(status) if status.code() == Some(1) => {
                self.counts.beyond_refused += 1;
                true
            }
            other => {
                let problem = format!("does not open a drive that lost too much, nor refuses it: {other:?}");
                return Err(Error::Server { problem, log: logged });
            }
        };
        if bad && !names_damage {
            let why = format!("reads fail, and check --deep has found nothing:\n{output}");
            return Err(Error::Violation(why));
        }
        self.server = None;
        Ok(())
    }
}
