//! Jobs for an offload, and their results.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use codec::{CodecId, Policy, with_compressor};
use futures::channel::oneshot;

/// A block, or a frame of up to [`codec::FRAME_BYTES_MAX`] bytes, to compress.
#[derive(Clone, Debug)]
pub struct Job {
    /// Bytes to compress; shared, because a device may still read them when the caller is gone.
    pub input: Arc<[u8]>,
}

/// A finished job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// Kind of the payload, as [`codec::Compressor::compress`] returns it: [`CodecId::Raw`] with an empty
    /// payload if the input is better stored uncompressed.
    pub id: CodecId,
    /// The payload.
    pub payload: Vec<u8>,
    /// Executor of the job.
    pub executor: Executor,
}

/// Executor of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Executor {
    /// By the device.
    Device,
    /// By the CPU.
    Software,
    /// Not compressed: it looked incompressible.
    Skipped,
}

/// A batch in progress: a future of the jobs' results, in their order.
#[must_use = "a batch is done when it is awaited"]
pub struct Batch(BatchState);

enum BatchState {
    Done(Vec<Done>),
    Pending { receiver: oneshot::Receiver<Vec<Done>>, jobs: Arc<[Job]>, software: Policy },
    Taken,
}

/// Completes a batch, from any thread. If it is dropped, the CPU does the batch.
pub struct Completer(oneshot::Sender<Vec<Done>>);

impl Batch {
    /// Returns a batch with its results.
    pub fn done(done: Vec<Done>) -> Batch {
        Batch(BatchState::Done(done))
    }

    /// Returns a batch and its completer. If the completer is dropped, the CPU does the jobs under `software`
    /// at the next poll.
    pub fn channel(jobs: Arc<[Job]>, software: Policy) -> (Completer, Batch) {
        let (sender, receiver) = oneshot::channel();
        (Completer(sender), Batch(BatchState::Pending { receiver, jobs, software }))
    }
}

impl Completer {
    /// Passes the results, one for each job, in their order. A different number of them counts as none.
    pub fn complete(self, done: Vec<Done>) {
        // The requester may be gone.
        let _ = self.0.send(done);
    }

    /// Returns true if the batch was dropped, so that its results are not needed.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_canceled()
    }
}

impl Future for Batch {
    type Output = Vec<Done>;

    /// # Panics
    /// If polled after it was ready.
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Vec<Done>> {
        let done = match &mut self.0 {
            BatchState::Done(done) => std::mem::take(done),
            BatchState::Pending { receiver, jobs, software } => match Pin::new(receiver).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(done)) if done.len() == jobs.len() => done,
                Poll::Ready(_) => jobs.iter().map(|job| in_software(&job.input, *software)).collect(),
            },
            BatchState::Taken => panic!("a batch was polled after it was ready"),
        };
        self.0 = BatchState::Taken;
        Poll::Ready(done)
    }
}

/// Does a job on the CPU at once.
pub fn in_software(input: &[u8], policy: Policy) -> Done {
    let mut payload = Vec::new();
    let id = with_compressor(policy, |compressor, _| compressor.compress(input, None, &mut payload));
    let executor = if id == CodecId::Raw && codec::looks_incompressible(input) {
        Executor::Skipped
    } else {
        Executor::Software
    };
    Done { id, payload, executor }
}
