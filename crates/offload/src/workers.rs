//! Threads that pass batches to a device.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;

use codec::{CodecId, Decompressor, Policy, UNIT_BYTES, looks_incompressible};

use crate::statistics::{Counters, count};
use crate::{
    Batch, Completer, Device, DeviceError, Done, Executor, Job, Offload, OpenError, Session, Statistics,
    in_software,
};

/// Options to use a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Number of threads, and so of sessions: jobs that the device has at the same time. 1 to 256.
    pub threads: usize,
    /// Batches that may wait for a thread. A further one is done by the CPU at once. 1 or more.
    pub queue_batches: usize,
    /// Level, 1 to 12, of the device and of the CPU in its place.
    pub level: u8,
    /// Decompress the device's results and compare them before they are used. Devices check that themselves
    /// (QAT's "compress and verify"); this is for those that are not trusted yet, and costs most of what an
    /// offload saves.
    pub verify: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options { threads: 4, queue_batches: 64, level: 1, verify: false }
    }
}

/// Reason why no workers were started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The device provided no session.
    #[error("offload: {0}")]
    Open(#[from] OpenError),
    /// The system provided no thread.
    #[error("offload: cannot start a thread: {0}")]
    Thread(#[from] std::io::Error),
}

const THREADS_MAX: usize = 256;
/// Failures in a row after which a session is closed.
const FAILURES_MAX: u32 = 8;
/// Jobs that the CPU does before a session is tried again: a device that is gone costs little, and one that
/// comes back is used soon. Jobs and not seconds, because there is no clock here.
const JOBS_BEFORE_RETRY: u32 = 256;

/// An [`Offload`] made of a device and threads. Dropping it finishes what is queued, closes the sessions and
/// waits for the threads.
pub struct Workers {
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

struct Pool {
    device: Box<dyn Device>,
    options: Options,
    queue: Mutex<Queue>,
    arrived: Condvar,
    counters: Counters,
}

#[derive(Default)]
struct Queue {
    batches: VecDeque<(Arc<[Job]>, Completer)>,
    closed: bool,
    /// Threads that can take batches.
    alive: usize,
}

impl Pool {
    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Policy by which the CPU compresses in place of the device. It has the same format, so that the format
    /// of the data does not depend on load.
    fn software(&self) -> Policy {
        match self.device.codec() {
            CodecId::Lz4 => Policy::Lz4,
            CodecId::Zstd => Policy::Zstd(self.options.level as i8),
            CodecId::Deflate => Policy::Deflate(self.options.level),
            // No device makes the latter.
            CodecId::Raw | CodecId::Structured => Policy::None,
        }
    }
}

impl Workers {
    /// Starts the threads and waits for the first of them to open its session.
    ///
    /// # Errors
    ///
    /// [`StartError`], if that session or a thread is not available. Sessions of further threads may fail:
    /// such a thread works on the CPU, and tries again from time to time.
    pub fn start(device: impl Device, options: Options) -> Result<Workers, StartError> {
        let options = Options {
            threads: options.threads.clamp(1, THREADS_MAX),
            queue_batches: options.queue_batches.max(1),
            level: options.level.clamp(1, 12),
            ..options
        };
        let pool = Arc::new(Pool {
            device: Box::new(device),
            options,
            queue: Mutex::default(),
            arrived: Condvar::new(),
            counters: Counters::default(),
        });
        let mut workers = Workers { pool, threads: Vec::with_capacity(options.threads) };
        for number in 0..options.threads {
            let pool = Arc::clone(&workers.pool);
            pool.queue().alive += 1;
            let alive = Alive(Arc::clone(&pool));
            let (sender, opened) = mpsc::channel();
            let name = format!("{}-{number}", pool.device.name());
            workers.threads.push(std::thread::Builder::new().name(name).spawn(move || {
                let _alive = alive;
                let opened = pool.device.open(pool.options.level);
                // Only the result of the first thread is used.
                let _ = sender.send(opened.as_ref().map(|_| ()).map_err(OpenError::clone));
                Worker { session: opened.ok(), ..Worker::new(&pool) }.run();
            })?);
            if number == 0 {
                // No answer: opening panicked.
                opened.recv().unwrap_or(Err(NO_ANSWER))?;
            }
        }
        Ok(workers)
    }
}

const NO_ANSWER: OpenError =
    OpenError::Device { step: "opening a session", code: 0, meaning: "the thread that did it is gone" };

impl Offload for Workers {
    fn compress(&self, jobs: Vec<Job>) -> Batch {
        let jobs: Arc<[Job]> = jobs.into();
        let software = self.pool.software();
        {
            let mut queue = self.pool.queue();
            if queue.alive > 0 && queue.batches.len() < self.pool.options.queue_batches {
                let (completer, batch) = Batch::channel(Arc::clone(&jobs), software);
                queue.batches.push_back((jobs, completer));
                drop(queue);
                self.pool.arrived.notify_one();
                return batch;
            }
        }
        count(&self.pool.counters.queue_full, 1);
        let done = |job: &Job| {
            let done = in_software(&job.input, software);
            self.pool.counters.job(job.input.len(), &done);
            done
        };
        Batch::done(jobs.iter().map(done).collect())
    }

    fn statistics(&self) -> Statistics {
        self.pool.counters.read()
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.pool.queue().closed = true;
        self.pool.arrived.notify_all();
        for thread in self.threads.drain(..) {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

/// Reports that a thread is gone, for any reason. The last one leaves no batch waiting for ever.
struct Alive(Arc<Pool>);

impl Drop for Alive {
    fn drop(&mut self) {
        let mut queue = self.0.queue();
        queue.alive -= 1;
        if queue.alive == 0 {
            queue.batches.clear();
        }
    }
}

/// State of one thread.
struct Worker<'a> {
    pool: &'a Pool,
    session: Option<Box<dyn Session>>,
    failures: u32,
    /// Jobs for the CPU before the device is tried again.
    skip: u32,
    room: Vec<u8>,
    back: Vec<u8>,
    decompressor: Decompressor,
}

impl<'a> Worker<'a> {
    fn new(pool: &'a Pool) -> Worker<'a> {
        Worker {
            pool,
            session: None,
            failures: 0,
            skip: 0,
            room: Vec::new(),
            back: Vec::new(),
            decompressor: Decompressor::new(),
        }
    }

    fn run(mut self) {
        while let Some((jobs, completer)) = self.next() {
            if completer.is_abandoned() {
                continue;
            }
            let done = jobs.iter().map(|job| self.job(&job.input)).collect();
            completer.complete(done);
        }
    }

    /// Waits for a batch; `None` if there will be no more.
    fn next(&self) -> Option<(Arc<[Job]>, Completer)> {
        let mut queue = self.pool.queue();
        loop {
            if let Some(batch) = queue.batches.pop_front() {
                return Some(batch);
            }
            if queue.closed {
                return None;
            }
            queue = self.pool.arrived.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn job(&mut self, input: &[u8]) -> Done {
        let done = if input.len() <= UNIT_BYTES || looks_incompressible(input) {
            Done { id: CodecId::Raw, payload: Vec::new(), executor: Executor::Skipped }
        } else {
            self.on_device(input).unwrap_or_else(|| in_software(input, self.pool.software()))
        };
        self.pool.counters.job(input.len(), &done);
        done
    }

    /// `None`: the CPU has to do it.
    fn on_device(&mut self, input: &[u8]) -> Option<Done> {
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        if self.session.is_none() {
            match self.pool.device.open(self.pool.options.level) {
                Ok(session) => self.session = Some(session),
                Err(_) => {
                    self.skip = JOBS_BEFORE_RETRY;
                    return None;
                }
            }
        }
        let session = self.session.as_mut()?;
        // Overhead of deflate for incompressible data, and additional room that libraries need.
        self.room.resize(input.len() + input.len() / 8 + 1024, 0);
        let result = session.compress(input, &mut self.room).and_then(|bytes| {
            let payload = self.room.get(..bytes).ok_or(DeviceError::Length(0))?;
            if self.pool.options.verify {
                self.back.resize(input.len(), 0);
                let back = &mut self.back[..input.len()];
                let sound = self.decompressor.decompress(self.pool.device.codec(), payload, None, back);
                if sound.is_err() || back != input {
                    return Err(DeviceError::Failed(0));
                }
            }
            Ok(payload)
        });
        let counters = &self.pool.counters;
        match result {
            Ok(payload) => {
                self.failures = 0;
                let fits = !payload.is_empty() && payload.len() <= input.len() - UNIT_BYTES;
                let (id, payload) = if fits {
                    (self.pool.device.codec(), payload.to_vec())
                } else {
                    (CodecId::Raw, Vec::new())
                };
                Some(Done { id, payload, executor: Executor::Device })
            }
            Err(DeviceError::Busy(_)) => {
                count(&counters.busy, 1);
                None
            }
            Err(DeviceError::Length(_) | DeviceError::Failed(_)) => {
                count(&counters.failed, 1);
                self.failures += 1;
                if self.failures >= FAILURES_MAX {
                    count(&counters.given_up, 1);
                    self.failures = 0;
                    self.session = None;
                    self.skip = JOBS_BEFORE_RETRY;
                }
                None
            }
        }
    }
}
