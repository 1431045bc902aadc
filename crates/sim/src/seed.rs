//! One seed: the lives of one drive, from creation through crashes to the last check.

mod branch;
mod closing;
mod ending;
mod large;
mod lessons;
mod liveness;
mod looking;
mod opening;
mod scattered;
mod sliced;
mod space;
mod upper;
mod verify;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use media::{Faults, MediaCounts, SimMedia, SimOrder, SimRng};
use parking_lot::Mutex;

use crate::backing::Overwrites;
use crate::client::{client, maintenance};
use crate::executor::{Cut, End, Executor, Pulse, SLOTS_END_BYTES};
use crate::full::filler;
use crate::groups::weaver;
use crate::ledger::{BLOCK_BYTES, Ledger};
use crate::log_numbers::read_log_numbers;
use crate::oracle::{LifeEnd, Oracle, Violation};
use crate::rounds::{mender, painter};
use crate::{Bug, Config, Counts, Style, Subject, World, panics};

/// What is drawn for [`Run::hiding`] differs from all else of a seed by this.
const HIDING: u64 = 0x41dd_e241_dde2_41dd;
/// The same for [`Run::looking`].
const LOOKING: u64 = 0x100c_1e57_100c_1e57;
/// The same for [`Run::overwrites`].
const OVERWRITES: u64 = 0x0f11_0f11_0f11_0f11;
/// What lies before this on a backing is superblocks, which say nothing of the log.
const SUPERBLOCKS_END_BYTES: u64 = 128 << 10;

/// Steps from one branch of a life to the next: below 2 to the power of this, at least.
const BRANCH_STEPS_BITS: u64 = 7;

/// Writes to a page that takes none, in one life: one fills its segment, which is then set aside, and one more may be under way.
const REFUSALS_A_BAD_PAGE_MAX: u64 = 2;

/// Interruptions of work by itself, in a seed.
const SLICES_MAX: u64 = 12;

/// In which order a life's media operations complete, mostly.
const ORDERS: [SimOrder; 6] = [
    SimOrder::Random,
    SimOrder::Random,
    SimOrder::Random,
    SimOrder::Newest,
    SimOrder::Oldest,
    SimOrder::Priority,
];

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

/// What the clients of a seed are up to.
pub fn style<S: Subject>(seed: u64) -> Style {
    Config::draw(&mut SimRng::new(seed), S::HAS_SPACE).style
}

/// Runs a seed.
pub fn run<S: Subject>(seed: u64, bug: Option<Bug>, verbose: bool) -> Report {
    let mut rng = SimRng::new(seed);
    let mut config = Config::draw(&mut rng, S::HAS_SPACE);
    if S::AVOIDS_BAD_PAGES {
        config.draw_bad_copy(seed);
    }
    config.draw_scattered(seed);
    config.draw_lessons(seed);
    config.draw_maintainers(seed);
    config.draw_full_on_overwrite(seed);
    let config = Arc::new(config);
    if verbose {
        eprintln!("{config:#?}");
    }
    let media = SimMedia::new(config.backing_bytes, rng.fork(), Faults::default());
    let trouble = &config.trouble;
    let media = media
        .vouching_from(SUPERBLOCKS_END_BYTES)
        .reading_log_numbers(read_log_numbers)
        .cached(trouble.cache)
        .tearing(trouble.tear_bytes);
    let media = Arc::new(media);
    if S::AVOIDS_BAD_PAGES {
        trouble.bad_bytes.iter().for_each(|&byte| media.make_bad(byte));
    }
    let stays_full = trouble.stays_full;
    let oracle = Arc::new(Mutex::new(Oracle::new()));
    let counts = Arc::new(Mutex::new(Counts::default()));
    let executor = executor(&config, rng.fork());
    let ledger = Ledger::new(config.annex_block());
    let capacity = Arc::new(AtomicU64::new(config.capacity_bytes()));
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
        media_counted: MediaCounts::default(),
        before: MediaCounts::default(),
        wiping: None,
        ledger,
        is_full: false,
        stays_full,
        slices: SLICES_MAX,
        unreadable: Vec::new(),
        author: None,
        capacity,
        overwrites: Arc::new(Overwrites::new(SimRng::new(seed ^ OVERWRITES))),
        hiding: SimRng::new(seed ^ HIDING),
        looking: SimRng::new(seed ^ LOOKING),
    };
    let lives = match run.config.style {
        Style::Large if run.config.lessons => run.lessons(),
        Style::Large if run.config.scattered => run.scattered_lives(),
        Style::Large => run.large_lives(),
        _ => run.lives(),
    };
    let failure = match lives {
        Ok(()) | Err(Stop::Refused) => None,
        Err(Stop::Failed(why)) => Some(why),
    };
    run.count_media();
    let counts = run.counts.lock().clone();
    Report { counts, failure, steps: run.steps + run.executor.steps() }
}

/// The executor for a drive.
fn executor(config: &Config, rng: SimRng) -> Executor {
    let executor = Executor::new(rng);
    match config {
        config if config.is_served() => executor.with_clock(),
        // Each block that is moved takes nodes of the map that push each other out of its memory.
        config if config.scattered => executor.with_patience(8),
        _ => executor,
    }
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
    /// What the backing's counters said when it was branched off.
    media_counted: MediaCounts,
    /// What they said when this life of it began.
    before: MediaCounts,
    wiping: Option<Wiping>,
    /// What the annex holds.
    ledger: Ledger,
    /// The drive has refused a block, and nothing was given up since.
    is_full: bool,
    /// The backing is full, and stays so.
    stays_full: bool,
    /// Times that work by itself may still be interrupted.
    slices: u64,
    /// Pages that cannot be read for now, in bytes.
    unreadable: Vec<u64>,
    /// What a drive that learns is made to hold, if it is one.
    author: Option<Arc<lessons::Author>>,
    /// What hosts may address, at least.
    capacity: Arc<AtomicU64>,
    /// Refuses writes, now and then, for want of room.
    overwrites: Arc<Overwrites>,
    /// Draws what cannot be read at an opening. Of its own, so that all else of a seed is as it would be without.
    hiding: SimRng,
    /// Draws who looks at the drive before it is opened. Of its own too.
    looking: SimRng,
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
            self.must_serve_again()?;
            self.probe_space()?;
            end = self.live()?;
            // Where the backing does lasting damage, what is left of a wipe cut short would prove nothing.
            if S::CAN_WIPE && !self.config.does_damage() && self.rng.chance(1, 8) {
                self.wipe()?;
            }
        }
        self.open()?;
        self.read_back(end)?;
        self.lift_fullness();
        self.must_serve_again()?;
        self.probe_space()?;
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
        self.must_not_overlap()?;
        result.map_err(|end| Stop::Failed(format!("{what} never returns: {end:?}")))
    }

    /// Which of two writes to one place arrives last is left to chance.
    fn must_not_overlap(&self) -> Result<(), Stop> {
        let discards = self.overwrites.discards_over_writes();
        if discards > 0 {
            return Err(Stop::Failed(format!("{discards} discards of places with a write in flight")));
        }
        match self.media.counts().overlapping_writes {
            0 => Ok(()),
            count => Err(Stop::Failed(format!("{count} writes to places with another in flight"))),
        }
    }

    /// Clients at work, until they are done or the plug is pulled.
    fn live(&mut self) -> Result<LifeEnd, Stop> {
        let Some(drive) = self.drive.clone() else { return Ok(LifeEnd::Crash) };
        let mut faults = self.config.trouble.faults.clone();
        if !S::AVOIDS_BAD_PAGES {
            faults.bad_page_ppm = 0;
        }
        self.media.set_faults(faults);
        self.overwrites.set_ppm(self.config.trouble.full_on_overwrite_ppm);
        let order = ORDERS[self.rng.index(ORDERS.len())];
        self.media.set_order(order);
        self.count(match order {
            SimOrder::Random => "order: any operation completes next",
            SimOrder::Newest => "order: the newest operation completes next",
            SimOrder::Oldest => "order: the oldest operation completes next",
            SimOrder::Priority => "order: operations complete by priorities",
        });
        let (media, config) = (self.media.clone(), self.config.clone());
        let mut world =
            World::new(drive, media, config, self.oracle.clone(), self.counts.clone(), self.verbose);
        world.before = self.before.clone();
        world.capacity = self.capacity.clone();
        world.overwrites = self.overwrites.clone();
        world.annex_bytes = self.ledger.mapped_blocks() * BLOCK_BYTES;
        let world = Arc::new(world);
        for number in 0..self.config.clients {
            world.enter();
            let (world, rng) = (world.clone(), self.rng.fork());
            match self.config.style {
                Style::Full => self.executor.spawn(filler(world, rng)),
                Style::Frames => self.executor.spawn(weaver(world, rng)),
                Style::Rounds if number == 0 => self.executor.spawn(painter(world, rng)),
                Style::Rounds => {
                    let slowness = 4 + self.rng.below(8);
                    self.executor.spawn_slow(mender(world, rng), slowness);
                }
                _ => self.executor.spawn(client(world, rng)),
            }
        }
        for number in 0..self.config.maintainers {
            if number > 0 {
                self.count("life: several look after the drive");
            }
            self.executor.spawn(maintenance(world.clone(), self.rng.fork()));
        }
        world.subject.disturb(true);
        panics::arm(self.draw_panic(2));
        let end = self.live_on(&world);
        panics::arm(None);
        world.subject.disturb(false);
        end
    }

    /// Runs the clients, and tries crashes out on the way.
    fn live_on(&mut self, world: &Arc<World<S>>) -> Result<LifeEnd, Stop> {
        let mut branches = self.config.draw_branches(&mut self.rng);
        let refused_before = self.media.counts().bad_page_errors;
        loop {
            let cut = if branches > 0 {
                let steps = self.rng.skewed(BRANCH_STEPS_BITS);
                self.draw_moment(steps)
            } else {
                self.draw_cut()
            };
            let end = self.executor.run(&self.media, &**world, cut);
            self.tell(|| format!("clients: {end:?}"));
            self.must_not_overlap()?;
            if let Some(failure) = world.failure() {
                return Err(Stop::Failed(failure));
            }
            let refused = self.media.counts().bad_page_errors - refused_before;
            let bad = self.media.bad_pages() as u64;
            if refused > bad * REFUSALS_A_BAD_PAGE_MAX {
                return Err(Stop::Failed(format!(
                    "{refused} writes in one life to {bad} pages that take none: segments that did not take a write are used again"
                )));
            }
            match end {
                End::Finished => {
                    panics::arm(None);
                    return self.end_quietly(world);
                }
                End::Panicked => return self.be_poisoned(),
                End::Cut if branches > 0 => {
                    branches -= 1;
                    self.count_cut(cut);
                    self.branch()?;
                }
                End::Cut => {
                    self.count_cut(cut);
                    self.crash();
                    return Ok(LifeEnd::Crash);
                }
                stuck => return Err(Stop::Failed(format!("clients wait for ever: {stuck:?}"))),
            }
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
        if self.rng.chance(3, 20) { Cut::Never } else { self.draw_moment(steps) }
    }

    /// A moment at which to crash, after so many steps at least.
    fn draw_moment(&mut self, steps: u64) -> Cut {
        match self.rng.below(17) {
            0..3 => Cut::After(steps),
            3..5 => Cut::AtRisk(steps),
            5..8 => Cut::InSync(steps, self.rng.skewed(8)),
            8..12 => Cut::InMaintenance(steps, self.rng.below(160)),
            12..15 => Cut::AtSlot(steps, self.rng.skewed(6)),
            _ => Cut::AfterSlot(steps, self.rng.skewed(5)),
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
