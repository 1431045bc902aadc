//! The thread for work that keeps a processor busy and that no request waits for: training dictionaries,
//! recompression.
//!
//! One for all drives of a server. It runs only on an idle processor (`SCHED_IDLE`) and takes what requests leave.
//! Each drive's share of it is measured, so that whoever gives it work can rest accordingly.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use drive::Compute;
use rustix::time::{ClockId, clock_gettime};
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

/// Runs only if nothing else wants the processor, in this program or others, and yields at once. A low priority
/// (`nice`) would not be enough: it counts within a session only, so clients in another one would wait for a whole
/// time slice.
const IDLE: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);

/// Longest wait for the end of the thread when a server ends.
const END_PATIENCE: Duration = Duration::from_millis(200);

type Work = Box<dyn FnOnce() + Send>;

/// Queue of work for the thread. A drive has one piece of work in it at a time, so it is as long as there are drives.
#[derive(Clone)]
pub(crate) struct ComputeQueue(Sender<Option<Work>>);

/// The thread.
pub(crate) struct ComputeThread {
    queue: ComputeQueue,
    thread: JoinHandle<()>,
}

impl ComputeThread {
    pub(crate) fn start() -> io::Result<ComputeThread> {
        let (queue, work) = channel::<Option<Work>>();
        let thread = Builder::new().name("pumice-compute".into()).spawn(move || {
            if let Err(error) = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, IDLE)
            {
                tracing::debug!(?error, "background work has the priority of requests");
            }
            while let Ok(Some(work)) = work.recv() {
                // The panic was reported. The requester sees that no result comes.
                let _ = catch_unwind(AssertUnwindSafe(work));
            }
        })?;
        Ok(ComputeThread { queue: ComputeQueue(queue), thread })
    }

    pub(crate) fn queue(&self) -> ComputeQueue {
        self.queue.clone()
    }

    /// Ends it after the current work, without waiting long for that: the drives are closed, and an idle priority may
    /// take minutes if the processors are busy.
    pub(crate) fn stop(self) {
        // It may be gone already.
        let _ = self.queue.0.send(None);
        let since = Instant::now();
        while !self.thread.is_finished() {
            if since.elapsed() > END_PATIENCE {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.thread.join().is_err() {
            tracing::error!("the thread for background work panicked");
        }
    }
}

/// A drive's use of the thread.
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
            // Without the thread the work is dropped, and the requester is notified.
            let _ = queue.0.send(Some(metered));
        })
    }

    /// Processor time used so far.
    pub(crate) fn busy(&self) -> Duration {
        Duration::from_nanos(self.busy_nanoseconds.load(Ordering::Relaxed))
    }

    /// Returns whether work waits for the thread or is being done by it.
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
    use thread_priority::thread_schedule_policy;

    use super::*;

    /// Otherwise the test would not end.
    #[test]
    fn nobody_waits_at_the_end_for_what_takes_long() {
        let thread = ComputeThread::start().expect("a thread");
        let (release, released) = channel::<()>();
        let (begin, began) = channel();
        let run = Arc::new(Meter::default()).runner(thread.queue());
        run(Box::new(move || {
            begin.send(()).expect("the test waits");
            let _ = released.recv();
        }));
        began.recv().expect("it begins");
        thread.stop();
        drop(release);
    }

    #[test]
    fn work_is_done_elsewhere_in_order_and_counted() {
        let thread = ComputeThread::start().expect("a thread");
        let meter = Arc::new(Meter::default());
        let run = meter.runner(thread.queue());
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
            assert_eq!((done, name.as_deref(), policy), (number, Some("pumice-compute"), Ok(IDLE)));
        }
        thread.stop();
        assert!(!meter.is_under_way());
        assert!(meter.busy() > Duration::ZERO);
        assert_ne!(thread_schedule_policy(), Ok(IDLE), "this thread keeps its priority");
    }

    #[test]
    fn a_panic_costs_one_piece_of_work_and_a_thread_that_is_gone_none() {
        let thread = ComputeThread::start().expect("a thread");
        let meter = Arc::new(Meter::default());
        let run = meter.runner(thread.queue());
        run(Box::new(|| panic!("on purpose")));
        let (sender, results) = channel();
        run(Box::new(move || assert_eq!(sender.send(7), Ok(()))));
        assert_eq!(results.recv(), Ok(7));
        thread.stop();
        let (sender, results) = channel::<u8>();
        run(Box::new(move || assert_eq!(sender.send(7), Ok(()))));
        assert!(results.recv().is_err(), "it is dropped, not kept");
        assert!(!meter.is_under_way());
    }
}
