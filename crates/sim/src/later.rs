//! Long work of a processor or a device: it ends some steps later, or never.

use std::sync::Arc;
use std::task::Poll;

use codec::{CodecId, Policy};
use drive::{Compute, Spawner};
use media::SimRng;
use offload::{Batch, Done, Executor, Job, Offload, Statistics, in_software};
use parking_lot::Mutex;

/// One opening in this many has such a device.
const ONE_IN: u64 = 8;
/// Block size in bytes.
const BLOCK_BYTES: usize = 4096;
/// Most steps that a batch takes: two to this power.
const STEPS_BITS_MAX: u64 = 7;
const SOFTWARE: Policy = Policy::Deflate(1);

/// An offload whose batches are tasks of the executor, which decides in which order they end.
pub(crate) struct Later {
    rng: Mutex<SimRng>,
    spawner: Spawner,
}

/// Result of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// Done at once by the CPU, because the queue is full.
    Now,
    Well,
    /// Given up by the device, and left to the CPU.
    Lost,
    /// Frames are incompressible.
    NoFrames,
    /// All jobs are incompressible.
    Raw,
}

impl Later {
    /// Returns an offload for some openings, or for all, and `None` for the others.
    pub(crate) fn sometimes(entropy: u64, spawner: &Spawner, always: bool) -> Option<Arc<Later>> {
        let rng = Mutex::new(SimRng::new(entropy));
        let has_one = always || (entropy >> 8).is_multiple_of(ONE_IN);
        has_one.then(|| Arc::new(Later { rng, spawner: spawner.clone() }))
    }
}

impl Offload for Later {
    fn compress(&self, jobs: Vec<Job>) -> Batch {
        let (how, steps) = {
            let mut rng = self.rng.lock();
            let how = [How::Now, How::Well, How::Well, How::Well, How::Lost, How::NoFrames, How::Raw];
            (how[rng.index(how.len())], rng.skewed(STEPS_BITS_MAX))
        };
        let done = move |job: &Job| match how {
            How::Raw => raw(),
            How::NoFrames if job.input.len() > BLOCK_BYTES => raw(),
            _ => in_software(&job.input, SOFTWARE),
        };
        if how == How::Now {
            return Batch::done(jobs.iter().map(done).collect());
        }
        let jobs: Arc<[Job]> = jobs.into();
        let (completer, batch) = Batch::channel(jobs.clone(), SOFTWARE);
        (self.spawner)(Box::pin(async move {
            wait(steps).await;
            if how != How::Lost {
                completer.complete(jobs.iter().map(done).collect());
            }
        }));
        batch
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

fn raw() -> Done {
    Done { id: CodecId::Raw, payload: Vec::new(), executor: Executor::Device }
}

/// Runs CPU-intensive work as a task of the executor. Other tasks run meanwhile.
pub(crate) fn compute(entropy: u64, spawner: &Spawner) -> Compute {
    let (rng, spawner) = (Mutex::new(SimRng::new(entropy ^ 1)), spawner.clone());
    Arc::new(move |work| {
        let steps = rng.lock().skewed(STEPS_BITS_MAX);
        spawner(Box::pin(async move {
            wait(steps).await;
            work();
        }));
    })
}

/// Waits for this many turns of the task.
pub(crate) async fn wait(mut steps: u64) {
    std::future::poll_fn(|context| {
        if steps == 0 {
            return Poll::Ready(());
        }
        steps -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
