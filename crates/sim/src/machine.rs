//! Machines and processes that can be stopped and killed, and the time that passes for them.

use std::collections::BTreeSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use drive::{Claim, Fate, Pace, Planted, Sleep, Spawner, Surroundings};
use media::{SimMedia, SimRng};
use parking_lot::Mutex;

use crate::executor::Pulse;

const MILLISECOND: u64 = 1_000_000;
/// Longest time that passes while nothing else can happen.
const LEAP_MILLISECONDS: u64 = 400;

/// The time, in nanoseconds.
pub(crate) struct Time {
    now: AtomicU64,
    rng: Mutex<SimRng>,
    media: Arc<SimMedia>,
    sleepers: Mutex<Vec<(u64, Waker)>>,
    /// Numbers of the processes that have not ended.
    running: Mutex<BTreeSet<u64>>,
}

impl Time {
    pub(crate) fn new(rng: SimRng, media: Arc<SimMedia>) -> Time {
        Time {
            now: AtomicU64::new(MILLISECOND),
            rng: Mutex::new(rng),
            media,
            sleepers: Mutex::default(),
            running: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }

    /// Returns whether a process has not ended, or the kernel has something to do for it.
    fn runs(&self, process: u64) -> bool {
        self.running.lock().contains(&process)
    }

    async fn until(&self, time: u64) {
        std::future::poll_fn(|context| {
            if self.now() >= time {
                return Poll::Ready(());
            }
            self.sleepers.lock().push((time, context.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

impl Pulse for Time {
    fn beat(&self, idle: bool) {
        // Much time passes only while nothing is under way on the medium: it stalls for no longer than a
        // lease.
        let step = match idle || self.media.in_flight() == 0 {
            true => 1 + self.rng.lock().below(LEAP_MILLISECONDS),
            false => 1,
        };
        let now = self.now.fetch_add(step * MILLISECOND, Ordering::Relaxed) + step * MILLISECOND;
        let mut sleepers = self.sleepers.lock();
        let (due, rest): (Vec<_>, Vec<_>) = sleepers.drain(..).partition(|(time, _)| *time <= now);
        *sleepers = rest;
        drop(sleepers);
        due.into_iter().for_each(|(_, waker)| waker.wake());
    }

    /// Time always passes, and no story is endless.
    fn progress(&self) -> u64 {
        self.now()
    }

    fn in_maintenance(&self) -> bool {
        false
    }
}

/// What processes on two machines see of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinship {
    /// Nothing: an administrator says that the drive is to be taken over.
    Strangers,
    /// They are on one machine, in two containers.
    Unseen,
    /// They are on one machine.
    Seen,
}

/// A machine, which runs one process at a time.
pub(crate) struct Machine {
    number: u64,
    kinship: Kinship,
    time: Arc<Time>,
    spawner: Spawner,
    /// Speed of its clock, in thousandths.
    speed: u64,
    offset: u64,
    started: AtomicU64,
}

impl Machine {
    pub(crate) fn new(
        number: u64,
        kinship: Kinship,
        time: &Arc<Time>,
        spawner: Spawner,
        mut rng: SimRng,
    ) -> Arc<Machine> {
        Arc::new(Machine {
            number,
            kinship,
            time: time.clone(),
            spawner,
            speed: 950 + rng.below(101),
            offset: rng.below(1 << 40),
            started: AtomicU64::new(0),
        })
    }

    pub(crate) fn time(&self) -> &Time {
        &self.time
    }

    /// Lets time pass, whatever is stopped.
    pub(crate) async fn rest(&self, nanoseconds: u64) {
        self.time.until(self.time.now() + nanoseconds).await;
    }

    fn clock(&self) -> u64 {
        self.offset + (u128::from(self.time.now()) * u128::from(self.speed) / 1000) as u64
    }

    /// Starts a process.
    pub(crate) fn start(self: &Arc<Self>) -> Arc<Process> {
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let number = self.number * 1000 + number;
        self.time.running.lock().insert(number);
        Arc::new(Process {
            machine: self.clone(),
            number,
            stopped: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            closes: AtomicBool::new(false),
            stops_after: AtomicU64::new(0),
            in_flight: AtomicU64::new(0),
            wakers: Mutex::default(),
        })
    }
}

/// A process.
pub(crate) struct Process {
    machine: Arc<Machine>,
    number: u64,
    stopped: AtomicBool,
    ended: AtomicBool,
    closes: AtomicBool,
    /// Changes of the backing to be queued until it stops; 0: it does not.
    stops_after: AtomicU64,
    /// Operations that it has given to the kernel.
    in_flight: AtomicU64,
    /// Of its tasks, to be woken when it goes on or ends.
    wakers: Mutex<Vec<Waker>>,
}

impl Process {
    pub(crate) fn machine(&self) -> &Machine {
        &self.machine
    }

    pub(crate) fn name(&self) -> String {
        format!("process {}", self.number)
    }

    /// Stops it, or lets it go on.
    pub(crate) fn stop(&self, stopped: bool) {
        self.stopped.store(stopped, Ordering::Relaxed);
        self.wake();
    }

    /// Stops it when it has queued so many more changes of the backing, before it gives the last one to its
    /// kernel. Returns once it is stopped, or has ended, or after a while.
    pub(crate) async fn stop_in_queue(&self, changes: u64) {
        const WAIT_MILLISECONDS: u64 = 2000;
        self.stops_after.store(changes, Ordering::Relaxed);
        let until = self.machine.time.now() + WAIT_MILLISECONDS * MILLISECOND;
        while self.machine.time.now() < until && !self.stopped.load(Ordering::Relaxed) && !self.has_ended() {
            self.machine.rest(1).await;
        }
        self.stops_after.store(0, Ordering::Relaxed);
    }

    /// A change of the backing is queued.
    pub(crate) async fn queue(&self) {
        match self.stops_after.load(Ordering::Relaxed) {
            0 => return,
            1 => self.stop(true),
            _ => {}
        }
        self.stops_after.fetch_sub(1, Ordering::Relaxed);
        // If it was stopped, it returns here later.
        self.pause(1).await;
    }

    /// Ends it, wherever it is. What it has given to the kernel goes on.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
        self.wake();
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Lets it close its drive, and end.
    pub(crate) fn close(&self) {
        self.closes.store(true, Ordering::Relaxed);
    }

    pub(crate) fn closes(&self) -> bool {
        self.closes.load(Ordering::Relaxed)
    }

    /// Returns, once it was ended, whether the kernel has done all that it was given. Others see that it is
    /// gone then.
    pub(crate) fn is_gone(&self) -> bool {
        let is_quiet = self.in_flight.load(Ordering::Relaxed) == 0;
        if is_quiet {
            self.machine.time.running.lock().remove(&self.number);
        }
        is_quiet
    }

    fn wake(&self) {
        std::mem::take(&mut *self.wakers.lock()).into_iter().for_each(Waker::wake);
    }

    /// Waits, by the clock of its machine.
    pub(crate) async fn pause(&self, nanoseconds: u64) {
        let nanoseconds = u128::from(nanoseconds) * 1000 / u128::from(self.machine.speed);
        self.machine.rest(nanoseconds as u64).await;
    }

    /// The spawner for its background work.
    pub(crate) fn spawner(self: &Arc<Self>) -> Spawner {
        let process = self.clone();
        Arc::new(move |future| (process.machine.spawner)(Box::pin(Frozen::new(process.clone(), future))))
    }

    /// Gives an operation to the kernel, which carries it out whatever becomes of the process.
    pub(crate) async fn carry<T: Send + 'static>(
        self: &Arc<Self>,
        operation: impl Future<Output = T> + Send + 'static,
    ) -> T {
        let (result, done) = futures::channel::oneshot::channel();
        let process = self.clone();
        process.in_flight.fetch_add(1, Ordering::Relaxed);
        (self.machine.spawner)(Box::pin(async move {
            let value = operation.await;
            process.in_flight.fetch_sub(1, Ordering::Relaxed);
            // The process may have ended.
            let _ = result.send(value);
        }));
        match done.await {
            Ok(value) => value,
            // The simulation ends.
            Err(_) => std::future::pending().await,
        }
    }

    pub(crate) fn claim(self: &Arc<Self>, rng: &mut SimRng, planted: Planted) -> Claim {
        let mut run = [0; 16];
        run[..8].copy_from_slice(&rng.next_u64().to_le_bytes());
        let machine = self.machine.clone();
        Claim {
            run,
            process: layout::owner::Process {
                pid: self.number as u32,
                host: format!("machine-{}", self.machine.number),
                ..layout::owner::Process::default()
            },
            clock: Arc::new(move || machine.clock()),
            take_over: self.machine.kinship == Kinship::Strangers,
            pace: Pace::default(),
            planted,
        }
    }
}

impl Surroundings for Process {
    fn sleep(&self, nanoseconds: u64) -> Sleep<'_> {
        Box::pin(self.pause(nanoseconds))
    }

    fn fate(&self, other: &layout::owner::Process) -> Fate {
        match self.machine.kinship {
            Kinship::Strangers => Fate::Elsewhere,
            Kinship::Unseen => Fate::Unseen,
            Kinship::Seen if self.machine.time.runs(u64::from(other.pid)) => Fate::Runs,
            Kinship::Seen => Fate::Gone,
        }
    }

    fn unix_seconds(&self) -> u64 {
        0
    }
}

/// A task of a process.
pub(crate) struct Frozen<F> {
    process: Arc<Process>,
    future: Option<Pin<Box<F>>>,
}

impl<F> Frozen<F> {
    pub(crate) fn new(process: Arc<Process>, future: F) -> Frozen<F> {
        Frozen { process, future: Some(Box::pin(future)) }
    }
}

impl<F: Future<Output = ()>> Future for Frozen<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.process.ended.load(Ordering::Relaxed) {
            self.future = None;
            return Poll::Ready(());
        }
        {
            let mut wakers = self.process.wakers.lock();
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
        }
        if self.process.stopped.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        match &mut self.future {
            Some(future) => future.as_mut().poll(context),
            None => Poll::Ready(()),
        }
    }
}
