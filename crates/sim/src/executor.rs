//! An executor that runs futures on one thread, in an order that depends only on the seed.
//!
//! Each step either completes one media operation or polls one ready task. The choice is random, or by
//! priorities, or some tasks are starved: see [`Policy`]. Time does not pass by itself. Work that a server
//! does "every few milliseconds" happens at [`Pulse::beat`], which is called at random steps and whenever
//! nothing else can happen. A [`Clock`], if there is one, advances then too.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use drive::Spawner;
use media::{SimMedia, SimRng};
use parking_lot::Mutex;

use crate::clock::Clock;
use crate::panics::Planned;
use crate::switch::{Came, Companion};

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Number of beats without progress, while nothing else can happen, after which the run is considered stuck.
const IDLE_BEATS_MAX: u32 = 16;

/// The same with a clock, since tasks may wait for time to pass.
const IDLE_BEATS_ON_TIME_MAX: u32 = 1 << 14;

/// Time that passes at a beat: mostly a tick, otherwise as long as a server waits for something, or until a
/// drive counts as idle.
const TICK: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(1);
const LONGER: Duration = Duration::from_secs(35);

/// Number of steps without progress after which the run is considered stuck, usually.
const STEPS_WITHOUT_PROGRESS_MAX: u64 = 600_000;

/// One step in this many is a beat.
const STEPS_PER_BEAT: u64 = 24;

/// End of the superblocks and checkpoints of a small drive, in bytes of the backing. Segments begin here.
pub const SLOTS_END_BYTES: u64 = 1 << 20;

/// Reason why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every foreground task has finished.
    Finished,
    /// The time of the cut was reached.
    Cut,
    /// A task panicked as planned and is gone.
    Panicked,
    /// Foreground tasks wait, and nothing can wake them.
    Deadlock,
    /// Tasks keep running without progress.
    Livelock,
}

/// Moment at which to stop before all tasks have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Never.
    Never,
    /// After this many steps.
    After(u64),
    /// After this many steps, as soon as some write is not durable.
    AtRisk(u64),
    /// `.1` steps after a sync is found in flight, searching from step `.0` on.
    InSync(u64, u64),
    /// The same, for a sync while maintenance is in progress.
    InMaintenance(u64, u64),
    /// `.1` steps after a write below [`SLOTS_END_BYTES`] is found not to be durable, searching from step
    /// `.0` on. Mostly it is still not durable then.
    AtSlot(u64, u64),
    /// `.1` steps after all writes below [`SLOTS_END_BYTES`] have become durable, searching from step `.0`
    /// on.
    AfterSlot(u64, u64),
}

/// Choice among the ready tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Any of them, with equal probability.
    Uniform,
    /// Mostly the one with the highest rank. Each task gets a rank when it is added.
    Ranks,
    /// Tasks whose rank is a multiple of four are slowed by two to this power.
    Starving(u64),
}

impl Policy {
    fn draw(rng: &mut SimRng) -> Policy {
        match rng.below(4) {
            0 | 1 => Policy::Uniform,
            2 => Policy::Ranks,
            _ => Policy::Starving(2 + rng.below(7)),
        }
    }
}

/// Environment of the tasks.
pub trait Pulse {
    /// Called at random steps, and whenever only the passing of time can wake a task (`idle`).
    fn beat(&self, idle: bool);
    /// A number that increases whenever something useful was done.
    fn progress(&self) -> u64;
    /// Returns whether background work is in progress.
    fn in_maintenance(&self) -> bool {
        false
    }
}

/// An environment that does nothing.
pub struct NoPulse;

impl Pulse for NoPulse {
    fn beat(&self, _idle: bool) {}
    fn progress(&self) -> u64 {
        0
    }
}

#[derive(Default)]
struct Queue {
    /// In the order of their numbers: tasks woken by one step are treated as woken in any order, because the
    /// order of tokio's channels is random.
    ready: Vec<usize>,
    arrived: Vec<BoxFuture>,
}

impl Queue {
    fn wake(&mut self, task: usize) {
        let at = self.ready.partition_point(|&other| other < task);
        self.ready.insert(at, task);
    }
}

struct TaskWaker {
    task: usize,
    queued: AtomicBool,
    queue: Arc<Mutex<Queue>>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.queue.lock().wake(self.task);
        }
    }
}

struct Task {
    future: BoxFuture,
    waker: Arc<TaskWaker>,
    is_foreground: bool,
    rank: u64,
    /// The task is polled only once in two to this power of its turns, while anything else can be done.
    slowness: u64,
}

/// A [`Task`] that comes along with another, without its future.
struct Other {
    number: usize,
    waker: Arc<TaskWaker>,
    is_foreground: bool,
    rank: u64,
    slowness: u64,
}

/// The executor. Dropping it drops its tasks wherever they are, like a crash.
pub struct Executor {
    queue: Arc<Mutex<Queue>>,
    tasks: Vec<Option<Task>>,
    foreground: usize,
    steps: u64,
    /// Number of steps in 8 that go to the media, if both a task and the media could be chosen.
    media_share: u64,
    policy: Policy,
    /// For tasks that use the time of a tokio runtime.
    clock: Option<Clock>,
    /// Number of steps without progress after which the run is considered stuck.
    patience: u64,
    /// For tasks that come along with others, if they do.
    switches: Option<Switches>,
    rng: SimRng,
}

/// Draws tasks that come along with others ([`switch`](crate::switch)). Its generator is separate.
struct Switches {
    rng: SimRng,
    /// One task in this many is accompanied by another.
    one_in: u64,
    count: u64,
}

/// A task comes along for entries below two to this power.
const ENTRIES_BITS: u64 = 4;

impl Executor {
    /// Creates an executor without tasks.
    pub fn new(mut rng: SimRng) -> Executor {
        let media_share = [1, 3, 4, 6, 7][rng.index(5)];
        let policy = Policy::draw(&mut rng);
        let queue = Arc::new(Mutex::new(Queue::default()));
        Executor {
            queue,
            tasks: Vec::new(),
            foreground: 0,
            steps: 0,
            media_share,
            policy,
            clock: None,
            patience: STEPS_WITHOUT_PROGRESS_MAX,
            switches: None,
            rng,
        }
    }

    /// Lets tasks interrupt others at entries of the engine's critical section, as on several threads.
    pub fn with_switches(self, mut rng: SimRng) -> Executor {
        let one_in = [2, 4, 16][rng.index(3)];
        Executor { switches: Some(Switches { rng, one_in, count: 0 }), ..self }
    }

    /// Number of times that a task has interrupted another.
    pub fn switched(&self) -> u64 {
        self.switches.as_ref().map_or(0, |switches| switches.count)
    }

    /// Adds a clock for its tasks.
    pub fn with_clock(self) -> Executor {
        Executor { clock: Some(Clock::new()), ..self }
    }

    /// Multiplies the number of steps without progress that are allowed.
    pub fn with_patience(self, times: u64) -> Executor {
        Executor { patience: STEPS_WITHOUT_PROGRESS_MAX * times, ..self }
    }

    /// Advances the clock: mostly by a tick of the drive, sometimes by more.
    fn pass_time(&mut self) {
        let Some(clock) = &self.clock else { return };
        clock.pass(match self.rng.below(16) {
            0 => LONG,
            1 => LONGER,
            _ => TICK,
        });
    }

    /// Returns a spawner that gives background work to this executor.
    pub fn spawner(&self) -> Spawner {
        let queue = Arc::downgrade(&self.queue);
        Arc::new(move |future| {
            if let Some(queue) = queue.upgrade() {
                queue.lock().arrived.push(future);
            }
        })
    }

    /// Adds a task that [`Executor::run`] waits for.
    pub fn spawn(&mut self, future: impl Future<Output = ()> + Send + 'static) {
        self.add(Box::pin(future), true, 0);
    }

    /// The same, but the task is polled only once in two to the power of `slowness` of its turns, while
    /// anything else can be done.
    pub fn spawn_slow(&mut self, future: impl Future<Output = ()> + Send + 'static, slowness: u64) {
        self.add(Box::pin(future), true, slowness);
    }

    /// Number of steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs until every foreground task has finished, the time of the cut is reached, or nothing makes
    /// progress.
    pub fn run(&mut self, media: &SimMedia, pulse: &dyn Pulse, cut: Cut) -> End {
        let start = self.steps;
        let mut cut = cut;
        let mut slot_at_risk = false;
        let mut idle_beats = 0;
        let mut progress = (self.steps, pulse.progress());
        loop {
            self.adopt();
            if self.foreground == 0 {
                return End::Finished;
            }
            let is_time = match cut {
                Cut::Never => false,
                Cut::After(steps) => self.steps - start >= steps,
                Cut::AtRisk(steps) => self.steps - start >= steps && media.at_risk() > 0,
                Cut::InSync(steps, more) | Cut::InMaintenance(steps, more) => {
                    let now = matches!(cut, Cut::InSync(..)) || pulse.in_maintenance();
                    if self.steps - start >= steps && now && media.syncs_in_flight() > 0 {
                        cut = Cut::After(self.steps - start + more);
                    }
                    false
                }
                Cut::AtSlot(steps, more) | Cut::AfterSlot(steps, more) => {
                    let was_at_risk = slot_at_risk;
                    slot_at_risk = media.is_at_risk_before(SLOTS_END_BYTES);
                    let now = match cut {
                        Cut::AtSlot(..) => slot_at_risk,
                        _ => was_at_risk && !slot_at_risk,
                    };
                    if self.steps - start >= steps && now {
                        cut = Cut::After(self.steps - start + more);
                    }
                    false
                }
            };
            if is_time {
                return End::Cut;
            }
            self.steps += 1;
            if pulse.progress() != progress.1 {
                progress = (self.steps, pulse.progress());
                idle_beats = 0;
            } else if self.steps - progress.0 > self.patience {
                return End::Livelock;
            }
            let ready = self.queue.lock().ready.len();
            let in_flight = media.in_flight();
            let idle = ready == 0 && in_flight == 0;
            if idle {
                idle_beats += 1;
                let most = if self.clock.is_some() { IDLE_BEATS_ON_TIME_MAX } else { IDLE_BEATS_MAX };
                if idle_beats > most {
                    return End::Deadlock;
                }
            }
            if idle || self.rng.chance(1, STEPS_PER_BEAT) {
                self.pass_time();
                // The engine runs there too, so it may panic as planned.
                match catch_unwind(AssertUnwindSafe(|| pulse.beat(idle))) {
                    Ok(()) => {}
                    Err(panic) if panic.is::<Planned>() => return End::Panicked,
                    Err(panic) => resume_unwind(panic),
                }
            } else if ready == 0 || (in_flight > 0 && self.rng.chance(self.media_share, 8)) {
                media.step();
            } else if let Some(pick) = self.pick(in_flight > 0) {
                if self.poll_one(pick) {
                    return End::Panicked;
                }
            } else {
                media.step();
            }
        }
    }

    /// Runs one future to its end, along with all other tasks.
    pub fn block_on<T: Send + 'static>(
        &mut self,
        media: &SimMedia,
        pulse: &dyn Pulse,
        cut: Cut,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, End> {
        let slot = Arc::new(Mutex::new(None));
        let result = slot.clone();
        self.spawn(async move {
            let value = future.await;
            *result.lock() = Some(value);
        });
        let end = self.run(media, pulse, cut);
        let value = slot.lock().take();
        value.ok_or(end)
    }

    fn adopt(&mut self) {
        let arrived = std::mem::take(&mut self.queue.lock().arrived);
        for future in arrived {
            self.add(future, false, 0);
        }
    }

    fn add(&mut self, future: BoxFuture, is_foreground: bool, slowness: u64) {
        let task = self.tasks.len();
        let queue = self.queue.clone();
        let waker = Arc::new(TaskWaker { task, queued: AtomicBool::new(true), queue });
        self.queue.lock().wake(task);
        self.foreground += usize::from(is_foreground);
        let rank = self.rng.below(1 << 16);
        let slowness = match self.policy {
            Policy::Starving(power) if rank.is_multiple_of(4) => slowness.max(power),
            _ => slowness,
        };
        self.tasks.push(Some(Task { future, waker, is_foreground, rank, slowness }));
    }

    /// Chooses one of the ready tasks, of which there must be at least one. Returns `None` if a slow task is
    /// chosen, its turn is skipped, and something else can be done.
    fn pick(&mut self, may_wait: bool) -> Option<usize> {
        let queue = self.queue.lock();
        let ready = &queue.ready;
        let any = self.rng.index(ready.len());
        let rank = |at: &usize| self.tasks[ready[*at]].as_ref().map_or(0, |task| task.rank);
        let pick = match self.policy {
            Policy::Ranks if !self.rng.chance(1, 8) => (0..ready.len()).max_by_key(rank)?,
            _ => any,
        };
        let slowness = |at: usize| self.tasks[ready[at]].as_ref().map_or(0, |task| task.slowness);
        if self.rng.chance(1, 1 << slowness(pick)) {
            return Some(pick);
        }
        let other = (0..ready.len()).map(|at| (at + any) % ready.len()).find(|&at| slowness(at) == 0);
        other.or((!may_wait).then_some(pick))
    }

    /// Polls a task, and perhaps another one in the middle. Returns whether one of them panicked as planned.
    fn poll_one(&mut self, pick: usize) -> bool {
        let number = self.queue.lock().ready.remove(pick);
        let Some(mut task) = self.tasks[number].take() else { return false };
        let companion = self.draw_companion();
        task.waker.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(task.waker.clone());
        let clock = self.clock.as_ref().map(Clock::enter);
        let mut poll =
            || catch_unwind(AssertUnwindSafe(|| task.future.as_mut().poll(&mut Context::from_waker(&waker))));
        let (polled, came) = match companion {
            None => (poll(), None),
            Some((other, companion)) => {
                let (polled, came) = companion.come_along(poll);
                (polled, Some((other, came)))
            }
        };
        drop(clock);
        let interrupter = came.is_some_and(|(other, came)| self.has_come(other, came));
        let panicked = match polled {
            Ok(Poll::Pending) => {
                self.tasks[number] = Some(task);
                return interrupter;
            }
            Ok(Poll::Ready(())) => false,
            Err(panic) if panic.is::<Planned>() => true,
            Err(panic) => resume_unwind(panic),
        };
        self.foreground -= usize::from(task.is_foreground);
        panicked || interrupter
    }

    /// Draws a ready task that comes along with another, in some cases.
    fn draw_companion(&mut self) -> Option<(Other, Companion)> {
        let switches = self.switches.as_mut()?;
        if !switches.rng.chance(1, switches.one_in) {
            return None;
        }
        let mut queue = self.queue.lock();
        if queue.ready.is_empty() {
            return None;
        }
        let pick = switches.rng.index(queue.ready.len());
        let number = queue.ready[pick];
        // A slow one stays slow.
        let Task { future, waker, is_foreground, rank, slowness } =
            self.tasks[number].take_if(|task| task.slowness == 0)?;
        queue.ready.remove(pick);
        let (entries, polled_by) = (switches.rng.skewed(ENTRIES_BITS), Waker::from(waker.clone()));
        let flag = waker.clone();
        let begin = move || flag.queued.store(false, Ordering::Relaxed);
        let companion = Companion::new(entries, future, polled_by, begin);
        Some((Other { number, waker, is_foreground, rank, slowness }, companion))
    }

    /// Puts a task back that came along with another. Returns whether it has panicked as planned.
    fn has_come(&mut self, other: Other, came: Came) -> bool {
        let Other { number, waker, is_foreground, rank, slowness } = other;
        self.count_switch(&came);
        match came {
            Came::Along(future) => {
                self.tasks[number] = Some(Task { future, waker, is_foreground, rank, slowness });
                self.queue.lock().wake(number);
                return false;
            }
            Came::Waits(future) => {
                self.tasks[number] = Some(Task { future, waker, is_foreground, rank, slowness });
                return false;
            }
            Came::Ended => {}
            Came::Panicked(panic) if panic.is::<Planned>() => {
                self.foreground -= usize::from(is_foreground);
                return true;
            }
            Came::Panicked(panic) => resume_unwind(panic),
        }
        self.foreground -= usize::from(is_foreground);
        false
    }

    fn count_switch(&mut self, came: &Came) {
        if let Some(switches) = &mut self.switches {
            switches.count += u64::from(!matches!(came, Came::Along(_)));
        }
    }

    /// Drops the tasks that [`Executor::run`] waits for.
    pub fn give_up(&mut self) {
        let is_foreground = |task: &&mut Option<Task>| task.as_ref().is_some_and(|task| task.is_foreground);
        self.tasks.iter_mut().filter(is_foreground).for_each(|task| *task = None);
        self.foreground = 0;
    }
}

/// Yields, so that other tasks may run first.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[cfg(test)]
mod tests {
    use media::{Faults, IoBuf, Media};

    use super::*;

    fn media() -> Arc<SimMedia> {
        Arc::new(SimMedia::new(1 << 20, SimRng::new(1), Faults::default()))
    }

    #[test]
    fn order_depends_on_the_seed_alone() {
        let order = |seed| {
            let mut executor = Executor::new(SimRng::new(seed));
            let log = Arc::new(Mutex::new(Vec::new()));
            for task in 0..10 {
                let log = log.clone();
                executor.spawn(async move {
                    for _ in 0..3 {
                        log.lock().push(task);
                        yield_now().await;
                    }
                });
            }
            assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Finished);
            drop(executor);
            Arc::into_inner(log).map(Mutex::into_inner)
        };
        assert_eq!(order(1), order(1));
        assert_ne!(order(1), order(2));
    }

    #[test]
    fn who_is_woken_at_once_goes_on_in_an_order_of_the_seed_alone() {
        let order = || {
            let mut executor = Executor::new(SimRng::new(1));
            let log = Arc::new(Mutex::new(Vec::new()));
            let (sender, receiver) = tokio::sync::watch::channel(false);
            for task in 0..10 {
                let (log, mut receiver) = (log.clone(), receiver.clone());
                executor.spawn(async move {
                    let woken = receiver.wait_for(|sent| *sent).await.is_ok();
                    log.lock().push((task, woken));
                });
            }
            executor.spawn_slow(async move { _ = sender.send(true) }, 10);
            assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Finished);
            drop(executor);
            Arc::into_inner(log).map(Mutex::into_inner)
        };
        let first = order();
        assert!((0..20).all(|_| order() == first));
    }

    #[test]
    fn a_task_that_waits_for_nothing_is_a_deadlock() {
        let mut executor = Executor::new(SimRng::new(1));
        executor.spawn(std::future::pending());
        assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Deadlock);
    }

    #[test]
    fn a_task_that_gets_nowhere_is_a_livelock() {
        let mut executor = Executor::new(SimRng::new(1));
        executor.spawn(async {
            loop {
                yield_now().await;
            }
        });
        assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Livelock);
    }

    #[test]
    fn background_tasks_run_but_are_not_waited_for() {
        let mut executor = Executor::new(SimRng::new(1));
        let spawner = executor.spawner();
        let media = media();
        let theirs = media.clone();
        let wrote = executor.block_on(&media, &NoPulse, Cut::Never, async move {
            spawner(Box::pin(std::future::pending()));
            theirs.write(4096, Arc::new(IoBuf::zeroed(4096))).await.is_ok()
        });
        assert_eq!(wrote, Ok(true));
    }

    #[test]
    fn a_slow_task_is_starved_while_others_can_go_on_and_not_longer() {
        let mut executor = Executor::new(SimRng::new(1));
        let turns = Arc::new(Mutex::new((0, 0)));
        let (quick, slow) = (turns.clone(), turns.clone());
        executor.spawn(async move {
            for _ in 0..1000 {
                quick.lock().0 += 1;
                yield_now().await;
            }
        });
        executor.spawn_slow(
            async move {
                for _ in 0..100 {
                    slow.lock().1 += 1;
                    yield_now().await;
                }
            },
            8,
        );
        assert_eq!(executor.run(&media(), &NoPulse, Cut::After(800)), End::Cut);
        let (quick, slow) = *turns.lock();
        assert!(quick > 500 && slow < 20, "{quick} turns of one, {slow} of the other");
        assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Finished);
    }

    #[test]
    fn a_planned_panic_ends_the_run_and_its_task_alone() {
        let mut executor = Executor::new(SimRng::new(1));
        executor.spawn(async { resume_unwind(Box::new(Planned)) });
        executor.spawn(yield_now());
        assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Panicked);
        assert_eq!(executor.run(&media(), &NoPulse, Cut::Never), End::Finished);
    }

    #[test]
    fn a_cut_drops_what_is_under_way() {
        let held = Arc::new(());
        let mut executor = Executor::new(SimRng::new(1));
        let theirs = held.clone();
        executor.spawn(async move {
            loop {
                yield_now().await;
                assert_eq!(Arc::strong_count(&theirs), 2);
            }
        });
        assert_eq!(executor.run(&media(), &NoPulse, Cut::After(10)), End::Cut);
        drop(executor);
        assert_eq!(Arc::strong_count(&held), 1);
    }
}
