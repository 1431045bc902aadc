//! Worker threads: one per core, each with its own runtime and its own io_uring.
//!
//! A connection stays on one worker from beginning to end. Background work of its requests (writing packs,
//! syncs) runs on the same worker, so a small request never crosses threads on its way to the medium and
//! back. Large requests of a stream are dealt out among its worker and helpers, threads that are there for
//! nothing else.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};

use drive::{ReadCache, Spawner};
use media::{UringGuard, UringReactor};
use offload::Offload;
use status::IoBackend;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::admission::held::HeldBytes;
use crate::error::ServiceError;
use crate::workers::busy::{Share, measure};
use crate::workers::compute::{ComputeQueue, ComputeThreads};
use crate::workers::openings::Openings;

/// Most requests in flight in a worker's ring. More wait their turn.
const RING_ENTRIES: u32 = 256;

/// I/O method for the backing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoChoice {
    /// io_uring if the kernel allows it.
    #[default]
    Auto,
    /// io_uring only.
    Uring,
    /// System calls on helper threads.
    Plain,
}

thread_local! {
    /// Runtime of the worker that this thread is.
    static HERE: RefCell<Option<Handle>> = const { RefCell::new(None) };
}

struct Worker {
    handle: Handle,
    /// Number of its connections.
    connections: Arc<AtomicUsize>,
    /// Load of the worker.
    share: Share,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// The worker threads of a server.
pub struct Workers {
    workers: Vec<Worker>,
    helpers: Vec<Worker>,
    backend: IoBackend,
    compute: ComputeThreads,
    offload: Option<(String, Arc<dyn Offload>)>,
    read_cache: Option<Arc<ReadCache>>,
    held_bytes: Arc<HeldBytes>,
    openings: Openings,
}

impl Workers {
    /// Starts `count` threads, or one per core.
    ///
    /// # Errors
    ///
    /// [`ServiceError::Worker`], and [`ServiceError::NoUring`] for [`IoChoice::Uring`] if it is not
    /// available.
    pub fn start(count: Option<usize>, io: IoChoice) -> Result<Workers, ServiceError> {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let count = count.unwrap_or_else(cores).max(1);
        let compute =
            ComputeThreads::start().map_err(|source| ServiceError::Worker { index: count, source })?;
        let mut workers = Workers {
            workers: Vec::with_capacity(count),
            helpers: Vec::new(),
            backend: IoBackend::Plain,
            compute,
            offload: None,
            read_cache: None,
            held_bytes: Arc::default(),
            openings: Openings::default(),
        };
        let mut choice = io;
        for index in 0..count {
            let (worker, backend) = start_worker(&format!("pumice-{index}"), index, choice)?;
            // One line in the log for all of them.
            if backend == IoBackend::Plain {
                choice = IoChoice::Plain;
            }
            workers.backend = backend;
            workers.workers.push(worker);
        }
        // With its worker, a stream then uses as many threads as there are workers.
        for index in 1..count {
            match start_worker(&format!("pumice-help-{index}"), index, choice) {
                Ok((helper, backend)) if backend == workers.backend => workers.helpers.push(helper),
                // Memory that may be locked or descriptors are short. The helpers started so far suffice.
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "large requests have fewer threads than there are workers");
                    break;
                }
            }
        }
        assert!(workers.count() == count && count > 0, "there is at least one worker");
        Ok(workers)
    }

    /// Sets a compression device for all drives opened from now on. `name` is its name in the status.
    pub fn set_offload(&mut self, name: String, offload: Arc<dyn Offload>) {
        self.offload = Some((name, offload));
    }

    /// Returns the compression device.
    pub(crate) fn offload(&self) -> Option<Arc<dyn Offload>> {
        self.offload.as_ref().map(|(_, offload)| offload.clone())
    }

    /// Returns the compression device with its name in the status.
    pub(crate) fn offload_named(&self) -> Option<(String, Arc<dyn Offload>)> {
        self.offload.clone()
    }

    /// Sets the cache of decompressed blocks of all drives opened from now on.
    pub fn set_read_cache(&mut self, cache: Option<Arc<ReadCache>>) {
        self.read_cache = cache;
    }

    /// Returns the cache of decompressed blocks, if there is one.
    pub(crate) fn read_cache(&self) -> Option<Arc<ReadCache>> {
        self.read_cache.clone()
    }

    /// Returns the account of the memory of held writes of all drives.
    pub(crate) fn held_bytes(&self) -> Arc<HeldBytes> {
        self.held_bytes.clone()
    }

    /// Returns the drives that are being opened.
    pub(crate) fn openings(&self) -> &Openings {
        &self.openings
    }

    /// Waits until no drive is being opened. A drive without a waiting caller is closed by then. An opening
    /// takes as long as the recovery of the drive, and five seconds longer if another process may have it.
    pub async fn openings_ended(&self) {
        self.openings.ended().await;
    }

    /// Number of threads.
    pub fn count(&self) -> usize {
        self.workers.len()
    }

    /// I/O method in use.
    pub fn backend(&self) -> IoBackend {
        self.backend
    }

    /// Runs a connection on the worker with the fewest.
    pub fn run_connection<F: Future<Output = ()> + Send + 'static>(&self, connection: F) -> JoinHandle<()> {
        let load = |worker: &&Worker| worker.connections.load(Ordering::Relaxed);
        let Some(worker) = self.workers.iter().min_by_key(load) else { unreachable!("at least one worker") };
        let load = Load(worker.connections.clone());
        worker.connections.fetch_add(1, Ordering::Relaxed);
        worker.handle.spawn(async move {
            let _load = load;
            connection.await;
        })
    }

    /// Returns the threads, each with its use of a processor in the last second, in thousandths.
    pub fn threads(&self) -> impl Iterator<Item = (ThreadId, Arc<AtomicU32>)> {
        self.workers.iter().map(|worker| (worker.thread.thread().id(), worker.share.clone()))
    }

    /// Returns the runtimes of the threads that help connections with large requests: one fewer than there
    /// are workers.
    pub fn helpers(&self) -> impl Iterator<Item = Handle> {
        self.helpers.iter().map(|helper| helper.handle.clone())
    }

    /// Runs a future on worker `index` (modulo their number).
    pub fn spawn_on<F>(&self, index: usize, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.workers[index % self.workers.len()].handle.spawn(future)
    }

    /// Load of each worker and helper.
    pub(crate) fn shares(&self) -> Vec<Share> {
        self.workers.iter().chain(&self.helpers).map(|worker| worker.share.clone()).collect()
    }

    /// Returns the background runner for a drive: the calling worker, else the first one.
    pub fn spawner(&self) -> Spawner {
        let first = self.workers[0].handle.clone();
        Arc::new(move |future| {
            let here = HERE.with_borrow(Clone::clone);
            here.as_ref().unwrap_or(&first).spawn(future);
        })
    }

    /// Returns the queue for work that keeps a processor busy.
    pub(crate) fn compute(&self) -> ComputeQueue {
        self.compute.queue()
    }

    /// Ends the threads. Tasks that still run on them are dropped where they wait.
    pub fn stop(self) {
        stop(self.workers);
        // Connections may have waited for them.
        stop(self.helpers);
        self.compute.stop();
    }
}

fn stop(workers: Vec<Worker>) {
    let threads: Vec<_> = workers
        .into_iter()
        .map(|worker| {
            // The worker may be gone already.
            let _ = worker.stop.send(());
            worker.thread
        })
        .collect();
    for thread in threads {
        if thread.join().is_err() {
            tracing::error!("a worker thread panicked");
        }
    }
}

/// Counts a connection as long as it exists.
struct Load(Arc<AtomicUsize>);

impl Drop for Load {
    fn drop(&mut self) {
        let before = self.0.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a connection that was counted ends once");
    }
}

fn start_worker(name: &str, index: usize, io: IoChoice) -> Result<(Worker, IoBackend), ServiceError> {
    let failed = |source| ServiceError::Worker { index, source };
    let (ready_sender, ready) = std::sync::mpsc::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = thread::Builder::new()
        .name(name.to_string())
        .spawn(move || {
            let started = start_runtime(io);
            match started {
                Ok((runtime, ring, backend)) => {
                    HERE.set(Some(runtime.handle().clone()));
                    if ready_sender.send(Ok((runtime.handle().clone(), backend))).is_ok() {
                        // Ends on request, or when the sender is gone.
                        let _ = runtime.block_on(stopped);
                    }
                    HERE.set(None);
                    drop(ring);
                }
                // The receiver is gone: the server is ending.
                Err(error) => drop(ready_sender.send(Err(error))),
            }
        })
        .map_err(failed)?;
    match ready.recv() {
        Ok(Ok((handle, backend))) => {
            let share = Share::default();
            handle.spawn(measure(share.clone()));
            Ok((Worker { handle, connections: Arc::default(), share, stop, thread }, backend))
        }
        Ok(Err(StartError::Runtime(error))) => Err(failed(error)),
        Ok(Err(StartError::Uring(error))) => Err(ServiceError::NoUring(error)),
        Err(_) => Err(ServiceError::WorkerGone),
    }
}

enum StartError {
    Runtime(io::Error),
    Uring(io::Error),
}

/// Creates a runtime with its ring on this thread.
fn start_runtime(io: IoChoice) -> Result<(Runtime, Option<UringGuard>, IoBackend), StartError> {
    let runtime = Builder::new_current_thread().enable_all().build().map_err(StartError::Runtime)?;
    if io == IoChoice::Plain {
        return Ok((runtime, None, IoBackend::Plain));
    }
    let installed = {
        let _inside = runtime.enter();
        UringReactor::install(RING_ENTRIES)
    };
    match installed {
        Ok(ring) => Ok((runtime, Some(ring), IoBackend::Uring)),
        Err(error) if io == IoChoice::Uring => Err(StartError::Uring(error)),
        Err(error) => {
            tracing::warn!(%error, "io_uring is not available, using plain system calls");
            Ok((runtime, None, IoBackend::Plain))
        }
    }
}

/// Makes a runtime for this thread, for one task that has requests of a drive, with a ring unless `io` says
/// otherwise. The ring is returned with it, and dropped before it, on this thread.
///
/// # Errors
/// If it cannot be made.
pub fn runtime_here(io: IoChoice) -> io::Result<(Runtime, Box<dyn Any>)> {
    match start_runtime(io) {
        Ok((runtime, ring, _)) => Ok((runtime, Box::new(ring))),
        Err(StartError::Runtime(error) | StartError::Uring(error)) => Err(error),
    }
}

/// Runs one future on this thread, with a runtime and a ring of its own, for tools that inspect an idle
/// drive. The future gets the runner for a drive's background work.
///
/// # Errors
///
/// As for [`Workers::start`].
pub fn run_here<F: Future>(io: IoChoice, make: impl FnOnce(Spawner) -> F) -> Result<F::Output, ServiceError> {
    let (runtime, ring, _) = start_runtime(io).map_err(|error| match error {
        StartError::Runtime(source) => ServiceError::Worker { index: 0, source },
        StartError::Uring(error) => ServiceError::NoUring(error),
    })?;
    let handle = runtime.handle().clone();
    let output = runtime.block_on(make(Arc::new(move |future| drop(handle.spawn(future)))));
    drop(ring);
    Ok(output)
}
