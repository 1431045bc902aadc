//! Runs futures on one thread, in an order that only the seed decides.
//!
//! Each step either completes one media operation or polls one ready task. Which one is picked at random, or by priorities, or some
//! tasks are starved: see [`Policy`]. No time passes by itself: what a server does "every few milliseconds" happens at
//! [`Pulse::beat`], now and then and whenever nothing else can happen; and then a [`Clock`] goes on, if there is one.

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

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Beats without progress while nothing else can happen, after which nothing ever will.
const IDLE_BEATS_MAX: u32 = 16;

/// The same where time passes: somebody may wait for it.
const IDLE_BEATS_ON_TIME_MAX: u32 = 1 << 14;

/// How much time passes at a beat: mostly a tick, or as long as a server waits for something, or until a drive counts as idle.
const TICK: Duration = Duration::from_millis(10);
const LONG: Duration = Duration::from_secs(1);
const LONGER: Duration = Duration::from_secs(35);

/// Steps without progress after which there will be none, usually.
const STEPS_WITHOUT_PROGRESS_MAX: u64 = 600_000;

/// One step in so many beats.
const STEPS_PER_BEAT: u64 = 24;

/// What lies before this on a backing is superblocks and checkpoints, if the drive is small: segments begin here.
pub const SLOTS_END_BYTES: u64 = 1 << 20;

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Every foreground task is done.
    Finished,
    /// It was time for the cut.
    Cut,
    /// A task panicked, as it was to, and is no more.
    Panicked,
    /// Foreground tasks wait, and nothing will ever wake them.
    Deadlock,
    /// Tasks run and run, and nothing gets done.
    Livelock,
}

/// When to stop short of the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Never.
    Never,
    /// After so many more steps.
    After(u64),
    /// After so many more steps, as soon as some write is not durable.
    AtRisk(u64),
    /// After so many more steps, so long after a sync began then.
    InSync(u64, u64),
    /// The same, but a sync while maintenance is under way.
    InMaintenance(u64, u64),
    /// After so many more steps, so long after a write to [`SLOTS_END_BYTES`] was issued: mostly while it is not durable.
    AtSlot(u64, u64),
    /// After so many more steps, so long after writes there have become durable.
    AfterSlot(u64, u64),
}

/// Which of the tasks that are ready is polled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// Any of them.
    Uniform,
    /// Mostly the one with the highest rank, which each task is given when it comes.
    Ranks,
    /// Tasks of a rank that is a multiple of four are slow, by this power of 2.
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

/// The world around the tasks.
pub trait Pulse {
    /// Now and then, and whenever only time can move things (`idle`).
    fn beat(&self, idle: bool);
    /// A number that grows whenever something useful was done.
    fn progress(&self) -> u64;
    /// Whether background work is under way.
    fn in_maintenance(&self) -> bool {
        false
    }
}

/// No world.
pub struct NoPulse;

impl Pulse for NoPulse {
    fn beat(&self, _idle: bool) {}
    fn progress(&self) -> u64 {
        0
    }
}

#[derive(Default)]
struct Queue {
    /// In the order of their numbers: who is woken by one step is woken in any order, as tokio's channels have random ones.
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
    /// Polled only once in 2 to the power of this many times that it might be, while anything else can be done.
    slowness: u64,
}

/// The executor. Dropping it drops its tasks where they stand, as a crash does.
pub struct Executor {
    queue: Arc<Mutex<Queue>>,
    tasks: Vec<Option<Task>>,
    foreground: usize,
    steps: u64,
    /// Of 8 steps that could go either way, how many go to the media.
    media_share: u64,
    policy: Policy,
    /// For what goes by the time of a tokio runtime.
    clock: Option<Clock>,
    /// Steps without progress after which there will be none.
    patience: u64,
    rng: SimRng,
}

impl Executor {
    /// An executor without tasks.
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
            rng,
        }
    }

    /// The same, with a clock that its tasks go by.
    pub fn with_clock(self) -> Executor {
        Executor { clock: Some(Clock::new()), ..self }
    }

    /// The same, for what takes so many times as many steps as usual.
    pub fn with_patience(self, times: u64) -> Executor {
        Executor { patience: STEPS_WITHOUT_PROGRESS_MAX * times, ..self }
    }

    /// Time passes: mostly a tick of the drive's, now and then more.
    fn pass_time(&mut self) {
        let Some(clock) = &self.clock else { return };
        clock.pass(match self.rng.below(16) {
            0 => LONG,
            1 => LONGER,
            _ => TICK,
        });
    }

    /// Hands background work to this executor.
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

    /// The same, but the task is polled only once in 2 to the power of `slowness` times while anything else can be done.
    pub fn spawn_slow(&mut self, future: impl Future<Output = ()> + Send + 'static, slowness: u64) {
        self.add(Box::pin(future), true, slowness);
    }

    /// Steps taken so far.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Runs until every foreground task is done, or it is time for the cut, or nothing moves.
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
                // The engine is entered there too.
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

    /// Runs one future to its end; what else is there runs along.
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

    /// Which of the ready tasks is polled, of which there is one at least; none if it is a slow one's turn and something else can
    /// be done.
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

    /// Answers whether the task panicked as it was to.
    fn poll_one(&mut self, pick: usize) -> bool {
        let number = self.queue.lock().ready.remove(pick);
        let Some(task) = &mut self.tasks[number] else { return false };
        task.waker.queued.store(false, Ordering::Relaxed);
        let waker = Waker::from(task.waker.clone());
        let _clock = self.clock.as_ref().map(Clock::enter);
        let poll = || task.future.as_mut().poll(&mut Context::from_waker(&waker));
        let polled = catch_unwind(AssertUnwindSafe(poll));
        if matches!(polled, Ok(Poll::Pending)) {
            return false;
        }
        self.foreground -= usize::from(task.is_foreground);
        self.tasks[number] = None;
        match polled {
            Ok(_) => false,
            Err(panic) if panic.is::<Planned>() => true,
            Err(panic) => resume_unwind(panic),
        }
    }

    /// Drops the tasks that [`Executor::run`] waits for.
    pub fn give_up(&mut self) {
        let is_foreground = |task: &&mut Option<Task>| task.as_ref().is_some_and(|task| task.is_foreground);
        self.tasks.iter_mut().filter(is_foreground).for_each(|task| *task = None);
        self.foreground = 0;
    }
}

/// Lets the other tasks run first, if the dice say so.
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
                    let told = receiver.wait_for(|told| *told).await.is_ok();
                    log.lock().push((task, told));
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
