//! One seed: the lives of one drive, from creation through crashes to the final check.

mod branch;
mod brim;
mod closing;
mod ending;
mod hanging;
mod held;
mod large;
mod lessons;
mod liveness;
mod looking;
mod memory;
mod opening;
mod pages;
mod scattered;
mod sliced;
mod space;
mod start;
mod troubled;
mod upper;
mod verify;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use media::{Arena, Faults, MediaCounts, SimMedia, SimOrder, SimRng};
use parking_lot::Mutex;

use crate::backing::Overwrites;
use crate::bytes::{byte_host, draw_owners};
use crate::client::client;
use crate::echo::echo;
use crate::executor::{Cut, End, Executor, Pulse, SLOTS_END_BYTES};
use crate::full::filler;
use crate::groups::weaver;
use crate::host_data::is_host_data;
use crate::hot::reader;
use crate::ledger::{BLOCK_BYTES, Ledger};
use crate::log_numbers::read_log_numbers;
use crate::maintenance::maintenance;
use crate::oracle::{LifeEnd, Oracle, Violation};
use crate::report::Report;
use crate::rounds::{mender, painter};
use crate::strikes::Strikes;
use crate::{Bug, Config, Counts, Style, Subject, World, panics};
use memory::{Moment, Stray};

/// Changes the seed for the generator [`Run::hiding`].
const HIDING: u64 = 0x41dd_e241_dde2_41dd;
/// Changes the seed for the generator [`Run::looking`].
const LOOKING: u64 = 0x100c_1e57_100c_1e57;
/// Changes the seed for the generator [`Run::hanging`].
const HANGING: u64 = 0x4a46_0b51_4a46_0b51;
/// Changes the seed for the generator [`Run::brim`].
const BRIM: u64 = 0xb219_f0ff_b219_f0ff;
/// Changes the seed for the generator [`Run::vain`].
const VAIN: u64 = 0xc105_ed00_c105_ed00;
/// Changes the seed for the generator [`Run::losing`].
const LOSING: u64 = 0x1057_57a2_7105_757a;
/// Changes the seed for the generator [`Run::striking`].
const STRIKING: u64 = 0x5721_4e57_5721_4e57;
/// Changes the seed for the generator [`Run::echoing`].
const ECHOING: u64 = 0x0ec4_01ec_0ec4_01ec;
/// Changes the seed for the generator [`Run::remembering`].
const REMEMBERING: u64 = 0x4e4e_0e4b_4e4e_0e4b;
/// Changes the seed for the generator [`Run::overwrites`].
const OVERWRITES: u64 = 0x0f11_0f11_0f11_0f11;
/// End of the superblocks on a backing, in bytes. Writes before it contain no log numbers.
const SUPERBLOCKS_END_BYTES: u64 = 128 << 10;

/// The least number of steps between two branches of a life is drawn below two to this power.
const BRANCH_STEPS_BITS: u64 = 7;

/// Most writes, in one life, to a page that accepts none: one ends the use of its segment, which is then set
/// aside, and one more may be in flight.
const REFUSALS_A_BAD_PAGE_MAX: u64 = 2;

/// A slow host of bytes is polled once in two to this power of its turns.
const SLOWNESS_OF_BYTES: u64 = 5;

/// Most interruptions of separate work in a seed.
const SLICES_MAX: u64 = 12;

/// Orders in which a life's media operations mostly complete.
const ORDERS: [SimOrder; 6] = [
    SimOrder::Random,
    SimOrder::Random,
    SimOrder::Random,
    SimOrder::Newest,
    SimOrder::Oldest,
    SimOrder::Priority,
];

/// Result of the wipe since the drive was last open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wiping {
    /// It completed.
    Done,
    /// The power was cut during the wipe.
    Cut,
    /// It failed because of a read error, and changed nothing.
    Refused,
}

/// Reason why a seed ends early.
enum Stop {
    /// A guarantee was violated.
    Failed(String),
    /// The drive refused to work, with an error, because of the damage done to the backing.
    Refused,
}

impl From<Violation> for Stop {
    fn from(violation: Violation) -> Stop {
        Stop::Failed(violation.0)
    }
}

/// Returns the workload of the clients of a seed.
pub(crate) fn style<S: Subject>(seed: u64) -> Style {
    Config::draw(&mut SimRng::new(seed), S::HAS_SPACE).style
}

/// Runs a seed.
pub(crate) fn run<S: Subject>(seed: u64, bug: Option<Bug>, verbose: bool) -> Report {
    let mut rng = SimRng::new(seed);
    let mut config = Config::draw(&mut rng, S::HAS_SPACE);
    if S::AVOIDS_BAD_PAGES {
        config.draw_bad_copy(seed);
    }
    if S::HAS_SPACE {
        config.draw_trouble_of_large(seed);
    }
    config.draw_scattered(seed);
    config.draw_lessons(seed);
    config.draw_maintainers(seed);
    config.draw_full_on_overwrite(seed);
    config.draw_fading(seed);
    if S::HAS_SPACE {
        config.draw_rot_in_data(seed);
    }
    config.draw_read_cache(seed);
    config.draw_echo(seed);
    config.draw_cuts(seed);
    if S::HAS_SPACE {
        config.draw_bytes(seed);
    }
    config.draw_conflicts(seed);
    if S::HAS_SPACE {
        config.draw_large_segments(seed);
        config.draw_structure(seed);
        config.draw_switches(seed);
        config.draw_far(seed);
        config.draw_parity(seed);
    }
    let config = Arc::new(config);
    if verbose {
        eprintln!("{config:#?}");
    }
    let media = SimMedia::new(config.backing_bytes, rng.fork(), Faults::default());
    let trouble = &config.trouble;
    let media = media
        .vouching_from(SUPERBLOCKS_END_BYTES)
        .reading_log_numbers(read_log_numbers)
        .with_data_classifier(is_host_data)
        .with_ghosts(trouble.ghosts)
        .tearing(trouble.tear_bytes);
    let media = Arc::new(media);
    if S::AVOIDS_BAD_PAGES && !config.is_troubled {
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
        last_opening: None,
        media_counted: MediaCounts::default(),
        before: MediaCounts::default(),
        wiping: None,
        ledger,
        left_open: false,
        is_full: false,
        stays_full,
        slices: SLICES_MAX,
        unreadable: Vec::new(),
        author: None,
        capacity,
        overwrites: Arc::new(Overwrites::new(SimRng::new(seed ^ OVERWRITES))),
        hiding: SimRng::new(seed ^ HIDING),
        looking: SimRng::new(seed ^ LOOKING),
        hanging: SimRng::new(seed ^ HANGING),
        brim: SimRng::new(seed ^ BRIM),
        vain: SimRng::new(seed ^ VAIN),
        echoing: SimRng::new(seed ^ ECHOING),
        losing: SimRng::new(seed ^ LOSING),
        striking: SimRng::new(seed ^ STRIKING),
        lost_blocks: Arc::default(),
        was_killed: false,
        lost_start: None,
        memory: None,
        left_memories: Vec::new(),
        stray: Stray::default(),
        was_open: false,
        is_kept: false,
        moment: Arc::default(),
        remembering: SimRng::new(seed ^ REMEMBERING),
    };
    let lives = match run.config.style {
        Style::Large if run.config.lessons => run.lessons(),
        Style::Large if run.config.scattered => run.scattered_lives(),
        Style::Large if !run.config.is_troubled => run.large_lives(),
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

/// Creates the executor for a drive.
fn executor(config: &Config, mut rng: SimRng) -> Executor {
    let of_switches = config.switches.then(|| rng.fork());
    let executor = Executor::new(rng);
    let executor = match of_switches {
        Some(rng) => executor.with_switches(rng),
        None => executor,
    };
    match config {
        config if config.is_served() => executor.with_clock(),
        // Each block moved requires map nodes that evict each other from memory.
        config if config.scattered || config.is_troubled => executor.with_patience(8),
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
    /// Steps taken by the executors of earlier lives.
    steps: u64,
    bug: Option<Bug>,
    verbose: bool,
    drive: Option<S>,
    /// Counters of the drive when it was opened.
    counted: Vec<(&'static str, u64)>,
    /// Number and id of the last opening for writing since the last wipe: the drive must know it.
    last_opening: Option<(u64, u64)>,
    /// Counts of the backing when it was branched off.
    media_counted: MediaCounts,
    /// Counts of the backing at the beginning of this life.
    before: MediaCounts,
    wiping: Option<Wiping>,
    /// Content of the annex.
    ledger: Ledger,
    /// The life before did not close the drive.
    left_open: bool,
    /// The drive has refused a block, and nothing was discarded since.
    is_full: bool,
    /// The backing is full, and stays so.
    stays_full: bool,
    /// Number of times that separate work may still be interrupted.
    slices: u64,
    /// Pages that cannot be read for now, as byte offsets.
    unreadable: Vec<u64>,
    /// Author of the data on a drive with lessons.
    author: Option<Arc<lessons::Author>>,
    /// Range that hosts may use at least, in bytes.
    capacity: Arc<AtomicU64>,
    /// Refuses writes for lack of space from time to time.
    overwrites: Arc<Overwrites>,
    /// Generator for pages that cannot be read at an opening. It is separate, so that the rest of a seed does
    /// not depend on it.
    hiding: SimRng,
    /// Generator for read-only openings before an opening. It is separate too.
    looking: SimRng,
    /// Generator for backings that hang. It is separate too.
    hanging: SimRng,
    /// Generator for drives filled to the brim. It is separate too.
    brim: SimRng,
    /// Generator for closings whose last sync fails. It is separate too.
    vain: SimRng,
    /// Generator for the host that reads what was written last. It is separate too.
    echoing: SimRng,
    /// Generator for starts of the backing that are lost. It is separate too.
    losing: SimRng,
    /// Generator for pages that are lost while the drive runs. It is separate too.
    striking: SimRng,
    /// The last crash was a kill: what no sync covers is still shown.
    was_killed: bool,
    /// Blocks whose records were lost beyond the cover of parity.
    lost_blocks: Arc<Mutex<BTreeSet<u64>>>,
    /// What was at the start of the backing, if that was lost and no opening has succeeded since.
    lost_start: Option<Vec<u8>>,
    /// Memory of the present run.
    memory: Option<Arena>,
    /// Memories that killed runs left.
    left_memories: Vec<Arena>,
    /// One that an opening has missed.
    stray: Stray,
    /// The drive was open since the last crash.
    was_open: bool,
    /// They hold all that was acknowledged.
    is_kept: bool,
    /// Takes a copy of everything in the middle of a critical section.
    moment: Arc<Moment>,
    /// Generator for kills. It is separate too.
    remembering: SimRng,
}

impl<S: Subject> Run<S> {
    fn lives(&mut self) -> Result<(), Stop> {
        self.create()?;
        if self.config.is_troubled {
            self.fill_before_trouble()?;
        }
        let mut end = LifeEnd::Closed;
        for _ in 0..self.config.lives {
            self.open()?;
            self.read_back(end)?;
            if self.rng.chance(1, 4) {
                // Content that a reader was shown after a restart stays, even if nothing was written since.
                self.crash();
                self.open()?;
                self.read_back(LifeEnd::Crash)?;
            }
            self.must_serve_again()?;
            self.perhaps_hang()?;
            self.perhaps_close_in_vain()?;
            self.probe_space()?;
            end = self.live()?;
            // If the backing does lasting damage, the result of an interrupted wipe would prove nothing.
            if S::CAN_WIPE && !self.config.does_damage() && self.rng.chance(1, 8) {
                self.wipe()?;
            }
        }
        self.open()?;
        self.read_back(end)?;
        self.lift_fullness();
        self.must_serve_again()?;
        self.probe_space()?;
        self.check(true)?;
        if self.config.is_troubled { self.read_whole_annex() } else { Ok(()) }
    }

    fn count(&self, name: &'static str) {
        self.counts.lock().add(name, 1);
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{}", what());
        }
    }

    /// Runs one operation with no clients. If it does not finish, the seed fails.
    fn do_now<T: Send + 'static>(
        &mut self,
        what: &str,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Stop> {
        let ticker = Ticker(self.drive.clone());
        let result = self.executor.block_on(&self.media, &ticker, Cut::Never, future);
        self.must_not_overlap()?;
        if let Some(space) = self.drive.as_ref().and_then(S::space) {
            space.check().map_err(|error| Stop::Failed(error.to_string()))?;
        }
        result.map_err(|end| Stop::Failed(format!("{what} never returns: {end:?}")))
    }

    /// Checks that no two writes to one place were in flight: which of them arrives last would be left to
    /// chance.
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

    /// Runs clients until they are done or the drive crashes.
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
        if self.may_lose_pages() {
            world.strikes = Mutex::new(Strikes::new(self.striking.fork(), &self.config, self.was_killed));
        }
        world.lost_blocks = self.lost_blocks.clone();
        world.annex_bytes = self.ledger.mapped_blocks() * BLOCK_BYTES + self.config.shared_bytes();
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
        if self.config.read_cache.is_some() || self.config.cuts_hot {
            self.count("life: hot blocks are read");
            self.executor.spawn(reader(world.clone(), self.rng.fork()));
        }
        if self.config.echoes {
            self.count("life: what was written last is read");
            self.executor.spawn(echo(world.clone(), self.echoing.fork()));
        }
        if self.config.has_bytes {
            self.count("life: hosts of bytes share blocks");
            let owners = draw_owners(&mut self.rng);
            self.oracle.lock().share_bytes(owners.clone());
            // In half of the lives one of them is slow, and loses against the others.
            let slow = self.rng.index(2 * owners.len());
            for (host, own) in owners.into_iter().enumerate() {
                world.enter();
                let host_of_bytes = byte_host(world.clone(), self.rng.fork(), host, own);
                match host == slow {
                    true => self.executor.spawn_slow(host_of_bytes, SLOWNESS_OF_BYTES),
                    false => self.executor.spawn(host_of_bytes),
                }
            }
        }
        if self.config.is_served() {
            self.count(match self.config.does_damage() {
                true => "life: hosts come over NBD, and the backing fails",
                false => "life: hosts come over NBD",
            });
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

    /// Runs the clients, and tries crashes on copies meanwhile.
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
            self.arm_kill();
            let end = self.executor.run(&self.media, &**world, cut);
            self.trace(|| format!("clients: {end:?}"));
            self.kill_copy()?;
            self.must_not_overlap()?;
            if let Some(failure) = world.failure() {
                return Err(Stop::Failed(failure));
            }
            // The planned panic is for what the clients do.
            let armed = panics::arm(None);
            let overruns = world.subject.hold_overruns();
            panics::arm(armed);
            if overruns > 0 {
                return Err(Stop::Failed(format!(
                    "others changed blocks that a request held: {overruns} times"
                )));
            }
            let refused = self.media.counts().bad_page_errors - refused_before;
            let bad = self.media.bad_pages() as u64;
            if refused > bad * REFUSALS_A_BAD_PAGE_MAX {
                return Err(Stop::Failed(format!(
                    "{refused} writes in one life to {bad} pages that take none: segments that did not take a write \
                     are used again"
                )));
            }
            match end {
                End::Finished => {
                    panics::arm(None);
                    return self.end_quietly(world);
                }
                End::Panicked if self.config.is_served() => {
                    self.count("life: a panic ended the server");
                    self.crash();
                    return Ok(LifeEnd::Crash);
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

    /// Counts what a cut interrupts.
    fn count_cut(&self, cut: Cut) {
        if self.media.is_at_risk_before(SLOTS_END_BYTES) {
            self.count("cut: a checkpoint written, not synced");
        } else if matches!(cut, Cut::AtSlot(..) | Cut::AfterSlot(..)) {
            self.count("cut: just after a checkpoint's last sync");
        }
    }

    /// Draws the moment of a crash while clients work, if there is one.
    fn draw_cut(&mut self) -> Cut {
        let steps = self.config.draw_steps(&mut self.rng);
        if self.rng.chance(3, 20) { Cut::Never } else { self.draw_moment(steps) }
    }

    /// Draws a moment of a crash, after at least `steps` steps.
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

/// A pulse that only ticks the drive.
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
