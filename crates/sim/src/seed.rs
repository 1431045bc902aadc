//! One seed: the lives of one drive, from creation through crashes to the last check.

mod verify;

use std::sync::Arc;

use drive::Error;
use media::{Faults, SimMedia, SimRng};
use parking_lot::Mutex;

use crate::client::{client, maintenance};
use crate::executor::{Cut, End, Executor, NoPulse, Pulse, SLOTS_END_BYTES};
use crate::full::filler;
use crate::groups::weaver;
use crate::oracle::{LifeEnd, Oracle, Violation};
use crate::{Bug, Config, Counts, Opening, Style, Subject, World};

/// Steps that a wipe may take until the plug is pulled: about as many as it has.
const WIPE_STEPS: u64 = 60;
/// What lies before this on a backing is superblocks, which say nothing of the log.
const SUPERBLOCKS_END_BYTES: u64 = 128 << 10;
/// Crashes during recovery in a row.
const OPEN_CUTS_MAX: u32 = 3;

/// How a seed went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it went through.
    pub counts: Counts,
    /// What was wrong.
    pub failure: Option<String>,
    /// Scheduler steps taken: the same number for the same seed, or something is not deterministic.
    pub steps: u64,
}

/// How far the wipe came that the drive went through since it was last open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wiping {
    /// It said it was done.
    Done,
    /// The power was cut on the way.
    Cut,
    /// Something could not be read, and nothing was changed.
    Refused,
}

/// Why a seed ends early.
enum Stop {
    /// A promise was broken.
    Failed(String),
    /// The damage done to the backing was too much for the drive, and it said so.
    Refused,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Stop {
        Stop::Failed(violation.0)
    }
}

/// Runs a seed.
pub fn run<S: Subject>(seed: u64, bug: Option<Bug>, verbose: bool) -> Report {
    let mut rng = SimRng::new(seed);
    let config = Arc::new(Config::draw(&mut rng));
    if verbose {
        eprintln!("{config:#?}");
    }
    let media = SimMedia::new(config.backing_bytes, rng.fork(), Faults::default());
    let media = Arc::new(media.vouching_from(SUPERBLOCKS_END_BYTES));
    let oracle = Arc::new(Mutex::new(Oracle::new()));
    let counts = Arc::new(Mutex::new(Counts::default()));
    let executor = Executor::new(rng.fork());
    let mut run = Run::<S> {
        rng,
        config,
        media,
        oracle,
        counts,
        executor,
        steps: 0,
        bug,
        verbose,
        drive: None,
        counted: Vec::new(),
        wiping: None,
    };
    let failure = match run.lives() {
        Ok(()) | Err(Stop::Refused) => None,
        Err(Stop::Failed(why)) => Some(why),
    };
    run.count_media();
    let counts = run.counts.lock().clone();
    Report { counts, failure, steps: run.steps + run.executor.steps() }
}

struct Run<S> {
    rng: SimRng,
    config: Arc<Config>,
    media: Arc<SimMedia>,
    oracle: Arc<Mutex<Oracle>>,
    counts: Arc<Mutex<Counts>>,
    executor: Executor,
    /// Taken by earlier lives' executors.
    steps: u64,
    bug: Option<Bug>,
    verbose: bool,
    drive: Option<S>,
    /// What the drive's counters said when it was opened.
    counted: Vec<(&'static str, u64)>,
    wiping: Option<Wiping>,
}

impl<S: Subject> Run<S> {
    fn lives(&mut self) -> Result<(), Stop> {
        self.create()?;
        let mut end = LifeEnd::Closed;
        for _ in 0..self.config.lives {
            self.open()?;
            self.read_back(end)?;
            if self.rng.chance(1, 4) {
                // What a reader was shown after a restart stays, even if nothing was written since.
                self.crash();
                self.open()?;
                self.read_back(LifeEnd::Crash)?;
            }
            end = self.live()?;
            // Where the backing does lasting damage, what is left of a wipe cut short would prove nothing.
            if S::CAN_WIPE && !self.config.does_damage() && self.rng.chance(1, 8) {
                self.wipe()?;
            }
        }
        self.open()?;
        self.read_back(end)?;
        self.check(true)
    }

    fn count(&self, name: &'static str) {
        self.counts.lock().add(name, 1);
    }

    fn tell(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{}", what());
        }
    }

    /// Runs one operation by itself. A failure to finish is a failure of the seed.
    fn do_now<T: Send + 'static>(
        &mut self,
        what: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stop> {
        let ticker = Ticker(self.drive.clone());
        let result = self.executor.block_on(&self.media, &ticker, Cut::Never, future);
        result.map_err(|end| Stop::Failed(format!("{what} never returns: {end:?}")))
    }

    fn create(&mut self) -> Result<(), Stop> {
        let (media, config) = (self.media.clone(), self.config.clone());
        let result = self.do_now("create", async move { S::create(&media, &config).await })?;
        result.map_err(|error| Stop::Failed(format!("create failed: {error}")))?;
        if self.rng.chance(1, 2) {
            self.crash();
        }
        Ok(())
    }

    fn opening(&mut self, rescue: bool) -> Opening {
        Opening {
            entropy: self.rng.next_u64(),
            rescue,
            frame_blocks: self.config.draw_frame_blocks(&mut self.rng),
            spawner: self.executor.spawner(),
            bug: self.bug,
        }
    }

    /// Opens the drive, with crashes on the way and errors that go away.
    fn open(&mut self) -> Result<(), Stop> {
        let mut cuts = 0;
        let mut errors = 0;
        loop {
            let cut = if cuts < OPEN_CUTS_MAX { self.draw_early_cut() } else { Cut::Never };
            let opening = self.opening(false);
            let (media, config) = (self.media.clone(), self.config.clone());
            let open = async move { S::open(media, &config, opening).await };
            match self.executor.block_on(&self.media, &NoPulse, cut, open) {
                Ok(Ok(drive)) => {
                    self.tell(|| "opened".into());
                    self.count_recovery(&drive);
                    self.count("restart: opened");
                    self.counted = drive.counters();
                    self.drive = Some(drive);
                    return Ok(());
                }
                Ok(Err(error)) => {
                    self.tell(|| format!("open failed: {error}"));
                    errors += 1;
                    self.open_failed(&error, errors)?;
                    self.crash();
                }
                Err(End::Cut) => {
                    cuts += 1;
                    self.count("restart: crashed during recovery");
                    self.count_cut(cut);
                    self.crash();
                }
                Err(end) => return Err(Stop::Failed(format!("open never returns: {end:?}"))),
            }
        }
    }

    /// Wipes the drive, which is not open, or pulls the plug on the way.
    fn wipe(&mut self) -> Result<(), Stop> {
        let cut = if self.rng.chance(3, 4) { Cut::After(self.rng.below(WIPE_STEPS)) } else { Cut::Never };
        let media = self.media.clone();
        let wiping = match self.executor.block_on(&self.media, &NoPulse, cut, S::wipe(media)) {
            Ok(Ok(())) => Wiping::Done,
            Ok(Err(Error::Io(_))) if self.config.is_faulty() => Wiping::Refused,
            Ok(Err(error)) => return Err(Stop::Failed(format!("a wipe failed: {error}"))),
            Err(End::Cut) => Wiping::Cut,
            Err(end) => return Err(Stop::Failed(format!("a wipe never returns: {end:?}"))),
        };
        self.tell(|| format!("wipe: {wiping:?}"));
        self.wiping = Some(wiping);
        self.crash();
        Ok(())
    }

    /// What a recovery did is all there is at first; the counters that only grow count from here.
    fn count_recovery(&self, drive: &S) {
        let mut counts = self.counts.lock();
        for (name, times) in drive.recovered() {
            counts.add(name, times);
        }
    }

    /// Clients at work, until they are done or the plug is pulled.
    fn live(&mut self) -> Result<LifeEnd, Stop> {
        let Some(drive) = self.drive.clone() else { return Ok(LifeEnd::Crash) };
        self.media.set_faults(self.config.faults.clone());
        let (media, config) = (self.media.clone(), self.config.clone());
        let world = World::new(drive, media, config, self.oracle.clone(), self.counts.clone(), self.verbose);
        let world = Arc::new(world);
        for _ in 0..self.config.clients {
            world.enter();
            let (world, rng) = (world.clone(), self.rng.fork());
            match self.config.style {
                Style::Full => self.executor.spawn(filler(world, rng)),
                Style::Frames => self.executor.spawn(weaver(world, rng)),
                _ => self.executor.spawn(client(world, rng)),
            }
        }
        self.executor.spawn(maintenance(world.clone(), self.rng.fork()));
        let cut = self.draw_cut();
        let end = self.executor.run(&self.media, &*world, cut);
        self.tell(|| format!("clients: {end:?}"));
        let overlapping = self.media.counts().overlapping_writes;
        if overlapping > 0 {
            return Err(Stop::Failed(format!("{overlapping} writes to places with another in flight")));
        }
        if let Some(failure) = world.failure() {
            return Err(Stop::Failed(failure));
        }
        match end {
            End::Finished => self.end_quietly(&world),
            End::Cut => {
                self.count_cut(cut);
                self.crash();
                Ok(LifeEnd::Crash)
            }
            stuck => Err(Stop::Failed(format!("clients wait for ever: {stuck:?}"))),
        }
    }

    /// What a cut meets with.
    fn count_cut(&self, cut: Cut) {
        if self.media.is_at_risk_before(SLOTS_END_BYTES) {
            self.count("cut: a checkpoint written, not synced");
        } else if matches!(cut, Cut::AtSlot(..) | Cut::AfterSlot(..)) {
            self.count("cut: just after a checkpoint's last sync");
        }
    }

    /// When to crash while clients are at work, if at all.
    fn draw_cut(&mut self) -> Cut {
        let steps = self.config.draw_steps(&mut self.rng);
        match self.rng.below(20) {
            0..3 => Cut::After(steps),
            3..5 => Cut::AtRisk(steps),
            5..8 => Cut::InSync(steps, self.rng.skewed(8)),
            8..12 => Cut::InMaintenance(steps, self.rng.below(160)),
            12..15 => Cut::AtSlot(steps, self.rng.skewed(6)),
            15..17 => Cut::AfterSlot(steps, self.rng.skewed(5)),
            _ => Cut::Never,
        }
    }

    /// When to crash during recovery, if at all.
    fn draw_early_cut(&mut self) -> Cut {
        match self.rng.below(16) {
            0..2 => Cut::After(self.rng.skewed(9)),
            2..4 => Cut::InSync(0, self.rng.skewed(5)),
            4..6 => Cut::AtSlot(0, self.rng.skewed(6)),
            6 => Cut::AfterSlot(0, self.rng.skewed(5)),
            _ => Cut::Never,
        }
    }

    /// Nothing is in flight: ends the life in one of the ways there are.
    fn end_quietly(&mut self, world: &World<S>) -> Result<LifeEnd, Stop> {
        if self.rng.chance(1, 4) && !self.config.is_faulty() {
            let deep = self.rng.chance(1, 2);
            self.check(deep)?;
        }
        if self.rng.chance(1, 3) {
            self.crash();
            return Ok(LifeEnd::Crash);
        }
        let drive = world.subject.clone();
        let closed = self.do_now("close", async move { drive.close().await })?;
        self.tell(|| format!("close: {closed:?}"));
        let Err(error) = closed else {
            self.count("life: closed");
            let drive = world.subject.clone();
            let late =
                self.do_now("write after close", async move { drive.write(0, &[0; 4096], false).await })?;
            if late.is_ok() {
                return Err(Stop::Failed("a closed drive took a write".into()));
            }
            self.crash();
            return Ok(LifeEnd::Closed);
        };
        world.judge("close", &error);
        world.failure().map_or(Ok(()), |why| Err(Stop::Failed(why)))?;
        self.crash();
        Ok(LifeEnd::Crash)
    }

    /// Cuts the power or kills the process.
    fn crash(&mut self) {
        self.drop_drive();
        // A page cache that lost writes and does not know it lets no later process notice either.
        let kill = self.rng.chance(1, 4) && self.media.counts().sync_errors == 0;
        self.media = Arc::new(if kill { self.media.kill() } else { self.media.power_cut() });
        self.tell(|| if kill { "killed".into() } else { "power cut".into() });
        self.count(if kill { "life: killed" } else { "life: power cut" });
    }

    fn drop_drive(&mut self) {
        if let Some(drive) = self.drive.take() {
            let mut counts = self.counts.lock();
            for (name, times) in drive.counters() {
                // Earlier lives' may be in there.
                let before =
                    self.counted.iter().find(|(theirs, _)| *theirs == name).map_or(0, |(_, times)| *times);
                counts.add(name, times.saturating_sub(before));
            }
        }
        self.steps += self.executor.steps();
        self.executor = Executor::new(self.rng.fork());
    }

    fn count_media(&mut self) {
        self.drop_drive();
        let media = self.media.counts();
        let mut counts = self.counts.lock();
        for (name, times) in [
            ("media: read", media.reads),
            ("media: write", media.writes),
            ("media: sync", media.syncs),
            ("media: discard", media.discards),
            ("fault: write torn", media.torn_writes),
            ("fault: write lost", media.lost_writes),
            ("fault: read error", media.read_errors),
            ("fault: write error", media.write_errors),
            ("fault: sync error", media.sync_errors),
            ("fault: backing full", media.full_errors),
            ("fault: rotten sector", media.rotten_sectors),
            ("fault: misdirected write", media.misdirected_writes),
        ] {
            counts.add(name, times);
        }
    }
}

/// Ticks the drive and nothing else.
struct Ticker<S>(Option<S>);

impl<S: Subject> Pulse for Ticker<S> {
    fn beat(&self, _idle: bool) {
        if let Some(drive) = &self.0 {
            drive.tick();
        }
    }

    fn progress(&self) -> u64 {
        0
    }
}
