//! Threads for work that keeps a processor busy and that no request waits for: training dictionaries,
//! recompression.
//!
//! Two for all drives of a server. One runs only on an idle processor (`SCHED_IDLE`) and takes what requests
//! leave. Where that is next to nothing for long, the other does the work at a low ordinary priority, at one
//! percent of a processor, so that settling never stands still. Each drive's use of both is measured, so that
//! its background tasks can rest accordingly.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use drive::Compute;
use parking_lot::{Condvar, Mutex};
use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadPriorityValue, ThreadSchedulePolicy,
    set_thread_priority_and_policy, thread_native_id,
};

use crate::workers::pause::rest_after;

/// Runs only if nothing else wants the processor, in this program or others, and yields at once. A low
/// priority (`nice`) would not be enough: it counts within a session only, so clients in another one would
/// wait for a whole time slice.
const IDLE: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
const ORDINARY: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Other);

/// Priority of the other thread, of 0 to 99: a nice value of 9. Of a processor that two programs want, the
/// lowest one, 19, gets less than one percent.
const LOW: u8 = 24;

/// Share of a processor that work gets however busy the machine is. The thread that ensures it rests a little
/// less, because the other one tries first from time to time.
const FLOOR: f64 = 0.01;
const FLOOR_THREAD: f64 = 0.011;
/// Work that took at least this long, with less than [`FLOOR`] of a processor, shows that there is no idle
/// one.
const STARVED_FROM: Duration = Duration::from_millis(500);
/// For this long, the other thread does what comes then.
const STARVED_FOR: Duration = Duration::from_secs(120);
/// Longest wait for the end of a thread when a server ends.
const END_PATIENCE: Duration = Duration::from_millis(200);

type Work = Box<dyn FnOnce() + Send>;

/// Which of the threads does what comes next.
#[derive(Clone, Copy, PartialEq)]
enum Turn {
    Idle,
    Floor,
}

#[derive(Default)]
struct Backlog {
    work: VecDeque<Work>,
    /// There is no idle processor until then.
    starved_until: Option<Instant>,
    ended: bool,
}

impl Backlog {
    fn turn(&self, now: Instant) -> Turn {
        if self.starved_until.is_some_and(|until| now < until) { Turn::Floor } else { Turn::Idle }
    }
}

#[derive(Default)]
struct WorkQueue {
    backlog: Mutex<Backlog>,
    changed: Condvar,
}

/// Queue of work for the threads. A drive has one piece of work in it at a time, so it is as long as there
/// are drives.
#[derive(Clone)]
pub(crate) struct ComputeQueue(Arc<WorkQueue>);

impl ComputeQueue {
    /// After the end it is dropped, and the requester is notified.
    fn send(&self, work: Work) {
        let mut backlog = self.0.backlog.lock();
        if !backlog.ended {
            backlog.work.push_back(work);
            self.0.changed.notify_all();
        }
    }
}

/// The threads.
pub(crate) struct ComputeThreads {
    queue: Arc<WorkQueue>,
    threads: Vec<JoinHandle<()>>,
}

impl ComputeThreads {
    pub(crate) fn start() -> io::Result<ComputeThreads> {
        let mut threads = ComputeThreads { queue: Arc::default(), threads: Vec::new() };
        let low =
            ThreadPriorityValue::try_from(LOW).map_or(ThreadPriority::Min, ThreadPriority::Crossplatform);
        for (name, turn, priority, policy) in [
            ("pumice-compute", Turn::Idle, ThreadPriority::Min, IDLE),
            ("pumice-floor", Turn::Floor, low, ORDINARY),
        ] {
            let queue = threads.queue.clone();
            let body = move || {
                let set = set_thread_priority_and_policy(thread_native_id(), priority, policy);
                if let Err(error) = set {
                    tracing::debug!(?error, "background work runs at the priority of requests");
                }
                queue.run(turn);
            };
            match Builder::new().name(name.into()).spawn(body) {
                Ok(thread) => threads.threads.push(thread),
                Err(error) => {
                    threads.stop();
                    return Err(error);
                }
            }
        }
        Ok(threads)
    }

    pub(crate) fn queue(&self) -> ComputeQueue {
        ComputeQueue(self.queue.clone())
    }

    /// Ends them after the current work, without waiting long for that: the drives are closed, and an idle
    /// priority may take minutes if the processors are busy.
    pub(crate) fn stop(self) {
        {
            let mut backlog = self.queue.backlog.lock();
            backlog.ended = true;
            backlog.work.clear();
        }
        self.queue.changed.notify_all();
        let since = Instant::now();
        for thread in self.threads {
            while !thread.is_finished() {
                if since.elapsed() > END_PATIENCE {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.join().is_err() {
                tracing::error!("a thread for background work panicked");
            }
        }
    }
}

impl WorkQueue {
    /// Does work when it is this thread's turn, until the end.
    fn run(&self, turn: Turn) {
        while let Some(work) = self.next(turn) {
            let (began, cpu) = (Instant::now(), thread_time());
            // The panic was reported. The requester sees that no result comes.
            let _ = catch_unwind(AssertUnwindSafe(work));
            let (took, used) = (began.elapsed(), thread_time().saturating_sub(cpu));
            match turn {
                Turn::Idle if took >= STARVED_FROM && used < took.mul_f64(FLOOR) => self.starve(STARVED_FOR),
                Turn::Idle => {}
                // Waiting for the processor was rest, too.
                Turn::Floor => self.rest((used + rest_after(used, FLOOR_THREAD)).saturating_sub(took)),
            }
        }
    }

    fn next(&self, turn: Turn) -> Option<Work> {
        let mut backlog = self.backlog.lock();
        loop {
            if backlog.ended {
                return None;
            }
            let now = Instant::now();
            if backlog.turn(now) == turn
                && let Some(work) = backlog.work.pop_front()
            {
                return Some(work);
            }
            match backlog.starved_until.filter(|until| *until > now) {
                Some(until) => drop(self.changed.wait_until(&mut backlog, until)),
                None => self.changed.wait(&mut backlog),
            }
        }
    }

    /// There is no idle processor for some time.
    fn starve(&self, time: Duration) {
        self.backlog.lock().starved_until = Some(Instant::now() + time);
        self.changed.notify_all();
    }

    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        let mut backlog = self.backlog.lock();
        while !backlog.ended && !self.changed.wait_until(&mut backlog, until).timed_out() {}
    }
}

/// A drive's use of the threads.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    busy_nanoseconds: AtomicU64,
    under_way: AtomicUsize,
}

impl Meter {
    /// Returns the runner for a drive.
    pub(crate) fn runner(self: &Arc<Self>, queue: ComputeQueue) -> Compute {
        let meter = self.clone();
        Arc::new(move |work| {
            let under_way = UnderWay::begin(&meter);
            let metered: Work = Box::new(move || {
                let before = thread_time();
                work();
                let took = thread_time().saturating_sub(before);
                under_way.0.busy_nanoseconds.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
            });
            queue.send(metered);
        })
    }

    /// Processor time used so far.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanoseconds.load(Ordering::Relaxed))
    }

    /// Returns whether work waits for the threads or is being done by one.
    pub(crate) fn is_under_way(&self) -> bool {
        self.under_way.load(Ordering::Acquire) > 0
    }
}

struct UnderWay(Arc<Meter>);

impl UnderWay {
    fn begin(meter: &Arc<Meter>) -> UnderWay {
        meter.under_way.fetch_add(1, Ordering::AcqRel);
        UnderWay(meter.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let before = self.0.under_way.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "work that was counted ends once");
    }
}

/// Processor time of this thread since it began.
pub(crate) fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use thread_priority::thread_schedule_policy;

    use super::*;

    /// Otherwise the test would not end.
    #[test]
    fn nobody_waits_at_the_end_for_what_takes_long() {
        let threads = ComputeThreads::start().expect("threads");
        let (release, released) = channel::<()>();
        let (begin, began) = channel();
        let run = Arc::new(Meter::default()).runner(threads.queue());
        run(Box::new(move || {
            begin.send(()).expect("the test waits");
            let _ = released.recv();
        }));
        began.recv().expect("it begins");
        threads.stop();
        drop(release);
    }

    #[test]
    fn work_is_done_elsewhere_in_order_and_counted() {
        let threads = ComputeThreads::start().expect("threads");
        let meter = Arc::new(Meter::default());
        let run = meter.runner(threads.queue());
        let (sender, results) = channel();
        for number in 0..3 {
            let sender = sender.clone();
            run(Box::new(move || {
                let name = std::thread::current().name().map(str::to_string);
                let policy = thread_schedule_policy();
                // Something to count.
                let sum: u64 = (0..200_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
                drop(sender.send((number, name, policy, sum)));
            }));
        }
        for number in 0..3 {
            let (done, name, policy, _) = results.recv().expect("an answer");
            assert_eq!(done, number);
            // The other thread helps where no processor is idle.
            match name.as_deref() {
                Some("pumice-compute") => assert_eq!(policy, Ok(IDLE)),
                name => assert_eq!((name, policy == Ok(IDLE)), (Some("pumice-floor"), false)),
            }
        }
        threads.stop();
        assert!(!meter.is_under_way());
        assert!(meter.busy() > Duration::ZERO);
        assert_ne!(thread_schedule_policy(), Ok(IDLE), "this thread keeps its priority");
    }

    /// As if each piece of work had been waiting for an idle processor.
    #[test]
    fn without_an_idle_processor_work_is_done_slowly_at_an_ordinary_priority() {
        let threads = ComputeThreads::start().expect("threads");
        threads.queue.starve(Duration::from_secs(1000));
        let run = Arc::new(Meter::default()).runner(threads.queue());
        let (sender, results) = channel();
        let place = move || {
            let name = std::thread::current().name().map(str::to_string);
            (name, thread_schedule_policy())
        };
        for _ in 0..2 {
            let sender = sender.clone();
            run(Box::new(move || drop(sender.send(place()))));
            let (name, policy) = results.recv().expect("an answer");
            assert_eq!((name.as_deref(), policy), (Some("pumice-floor"), Ok(ORDINARY)));
        }
        threads.queue.starve(Duration::ZERO);
        run(Box::new(move || drop(sender.send(place()))));
        let (name, policy) = results.recv().expect("an answer");
        assert_eq!((name.as_deref(), policy), (Some("pumice-compute"), Ok(IDLE)));
        threads.stop();
    }

    #[test]
    fn a_panic_costs_one_piece_of_work_and_a_thread_that_is_gone_none() {
        let threads = ComputeThreads::start().expect("threads");
        let meter = Arc::new(Meter::default());
        let run = meter.runner(threads.queue());
        run(Box::new(|| panic!("on purpose")));
        let (sender, results) = channel();
        run(Box::new(move || assert_eq!(sender.send(7), Ok(()))));
        assert_eq!(results.recv(), Ok(7));
        threads.stop();
        let (sender, results) = channel::<u8>();
        run(Box::new(move || assert_eq!(sender.send(7), Ok(()))));
        assert!(results.recv().is_err(), "it is dropped, not kept");
        assert!(!meter.is_under_way());
    }
}
