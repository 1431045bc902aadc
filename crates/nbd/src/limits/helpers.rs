//! Threads that help connections with large requests, so that one stream uses all cores that nobody else
//! uses.
//!
//! A connection lives on one worker thread. Compressing 128 KiB takes ten times as long as receiving them, so
//! the requests of a stream are dealt out among its own thread and helpers. Small requests, and large ones
//! that are alone, stay where they are: waking another thread would take longer than it saves.
//!
//! For each other worker that has work of its own, one helper is left out. A database on another connection
//! then finds its core as free as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::ThreadId;

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

/// Smallest READ or WRITE that is worth another thread. Compressing it takes some 70 us.
pub(crate) const HELPED_BYTES_MIN: usize = 32 << 10;
/// Requests that a helper has more than this thread before this thread carries one out itself: one that it
/// works at, and one that is next while this thread receives nothing.
const LEAD: usize = 1;
/// Share of a processor, in thousandths, from which a worker occupies a core alone.
const OCCUPIED_FROM: u32 = 50;

/// A worker thread of a server.
pub struct Worker {
    /// The thread.
    thread: ThreadId,
    /// Its use of a processor in the last second, in thousandths.
    share: Arc<AtomicU32>,
    /// Large requests of streams that it carries out.
    taken: AtomicUsize,
}

impl Worker {
    /// Creates the record of a worker. `share` is its use of a processor in the last second, in thousandths.
    pub fn new(thread: ThreadId, share: Arc<AtomicU32>) -> Worker {
        Worker { thread, share, taken: AtomicUsize::new(0) }
    }
}

struct Helper {
    handle: Handle,
    /// Large requests that it carries out.
    taken: AtomicUsize,
}

/// The threads among which the large requests of connections are dealt out.
pub struct Helpers {
    workers: Vec<Worker>,
    helpers: Vec<Helper>,
}

/// Number of a thread among which requests are dealt out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Worker(usize),
    Helper(usize),
}

impl Helpers {
    /// Creates the set of these threads: the workers, on which connections live, and the runtimes of the
    /// helpers. They must outlive all connections.
    pub fn new(
        workers: impl IntoIterator<Item = Worker>,
        helpers: impl IntoIterator<Item = Handle>,
    ) -> Helpers {
        let helper = |handle| Helper { handle, taken: AtomicUsize::new(0) };
        Helpers { workers: workers.into_iter().collect(), helpers: helpers.into_iter().map(helper).collect() }
    }

    /// Takes a place for a large request of a connection of this thread: at the helper with the fewest, or
    /// here if that has enough, or if there is none.
    pub(crate) fn assign(self: &Arc<Self>) -> Option<Assignment> {
        let here = std::thread::current().id();
        let is_occupied =
            |worker: &&Worker| worker.thread != here && worker.share.load(Ordering::Relaxed) >= OCCUPIED_FROM;
        let left_out = self.workers.iter().filter(is_occupied).count();
        let free = self.helpers.len().saturating_sub(left_out);
        let load = |at| self.taken(at).load(Ordering::Relaxed);
        let helper = (0..free).map(At::Helper).min_by_key(|at| load(*at));
        let own = self.workers.iter().position(|worker| worker.thread == here).map(At::Worker);
        // Two connections may choose the same one at a time. That makes its queue longer, nothing else.
        let at = match (helper, own) {
            (Some(helper), Some(own)) if load(own) + LEAD >= load(helper) => helper,
            (helper, own) => own.or(helper)?,
        };
        self.taken(at).fetch_add(1, Ordering::Relaxed);
        Some(Assignment { helpers: Arc::clone(self), at })
    }

    fn taken(&self, at: At) -> &AtomicUsize {
        match at {
            At::Worker(index) => &self.workers[index].taken,
            At::Helper(index) => &self.helpers[index].taken,
        }
    }
}

/// A place for one request. It is given back when it is dropped.
pub(crate) struct Assignment {
    helpers: Arc<Helpers>,
    at: At,
}

impl Assignment {
    /// Returns the runtime of the helper that the place is at, or `None` if it is on the thread of the
    /// connection.
    pub(crate) fn handle(&self) -> Option<Handle> {
        match self.at {
            At::Worker(_) => None,
            At::Helper(index) => Some(self.helpers.helpers[index].handle.clone()),
        }
    }
}

impl Drop for Assignment {
    fn drop(&mut self) {
        let before = self.helpers.taken(self.at).fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a place that was taken is given back once");
    }
}

/// A request on another thread.
pub(crate) struct Running<T>(JoinHandle<T>);

impl<T: Send + 'static> Running<T> {
    /// Runs a request of a helper, whose place it takes along. One that is dropped here is dropped there,
    /// too.
    pub(crate) fn start(
        handle: &Handle,
        assignment: Option<Assignment>,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Running<T> {
        Running(handle.spawn(async move {
            let _assignment = assignment;
            request.await
        }))
    }

    /// Waits for the result. `None`: the thread has ended before the connection.
    pub(crate) async fn result(mut self) -> Option<T> {
        match (&mut self.0).await {
            Ok(output) => Some(output),
            // As if it had been carried out here.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }
}

impl<T> Drop for Running<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other_thread() -> ThreadId {
        std::thread::spawn(|| std::thread::current().id()).join().expect("no panic")
    }

    /// This thread and another worker, and two helpers.
    fn helpers() -> (Arc<Helpers>, Arc<AtomicU32>) {
        let share = Arc::new(AtomicU32::new(0));
        let here = Worker::new(std::thread::current().id(), Arc::new(AtomicU32::new(1000)));
        let other = Worker::new(other_thread(), share.clone());
        (Arc::new(Helpers::new([here, other], [Handle::current(), Handle::current()])), share)
    }

    #[tokio::test]
    async fn places_are_dealt_out_evenly_and_given_back() {
        let (helpers, _) = helpers();
        let assignments: Vec<Assignment> = (0..7).map_while(|_| helpers.assign()).collect();
        let at = |assignments: &[Assignment]| assignments.iter().map(|it| it.at).collect::<Vec<_>>();
        let (own, one, two) = (At::Worker(0), At::Helper(0), At::Helper(1));
        assert_eq!(at(&assignments), [one, two, one, two, own, one, two]);
        drop(assignments);
        let again: Vec<Assignment> = (0..3).map_while(|_| helpers.assign()).collect();
        assert_eq!(at(&again), [one, two, one]);
        assert!(Arc::new(Helpers::new([], [])).assign().is_none());
    }

    #[tokio::test]
    async fn a_worker_with_work_keeps_a_core() {
        let (helpers, share) = helpers();
        let used = |thousandths| {
            share.store(thousandths, Ordering::Relaxed);
            let assignments: Vec<Assignment> = (0..30).map_while(|_| helpers.assign()).collect();
            assignments.iter().filter(|it| it.at == At::Helper(1)).count()
        };
        assert_eq!((used(0), used(300), used(10)), (10, 0, 10));
        let others = (0..2).map(|_| Worker::new(other_thread(), Arc::new(900.into())));
        let here = Worker::new(std::thread::current().id(), Arc::default());
        let workers: Vec<Worker> = others.chain([here]).collect();
        let used = Arc::new(Helpers::new(workers, [Handle::current()]));
        assert_eq!(used.assign().map(|it| it.at), Some(At::Worker(2)), "no core is free");
    }

    #[tokio::test]
    async fn a_request_that_nobody_waits_for_is_dropped() {
        let (helpers, _) = helpers();
        let assignment = helpers.assign().expect("a place");
        let held = Arc::new(());
        let (alive, hold) = (Arc::downgrade(&held), held);
        let running = Running::start(&Handle::current(), Some(assignment), async move {
            let _hold = hold;
            std::future::pending::<()>().await;
        });
        tokio::task::yield_now().await;
        assert!(alive.upgrade().is_some());
        drop(running);
        tokio::task::yield_now().await;
        assert!(alive.upgrade().is_none());
        assert_eq!(helpers.taken(At::Helper(0)).load(Ordering::Relaxed), 0);
    }
}
