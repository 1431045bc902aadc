//! What goes to an offload and what comes back.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use codec::{CodecId, Policy, with_compressor};
use futures::channel::oneshot;

/// A block, or a frame of up to [`codec::FRAME_BYTES_MAX`] bytes, to compress.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its bytes; shared, because they may be read by a device while the caller is long gone.
    pub input: Arc<[u8]>,
}

/// A job done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// What the payload is, as [`codec::Compressor::compress`] returns it: [`CodecId::Raw`] if the input is
    /// better stored as it came, and the payload is empty then.
    pub id: CodecId,
    /// The payload.
    pub payload: Vec<u8>,
    /// Where it was done.
    pub by: By,
}

/// Where a job was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum By {
    /// By the device.
    Device,
    /// By the CPU.
    Software,
    /// Nowhere: it looked incompressible.
    Nobody,
}

/// A batch under way: a future of the jobs' results, in their order.
#[must_use = "a batch is done when it is awaited"]
pub struct Batch(State);

enum State {
    Done(Vec<Done>),
    Pending { receiver: oneshot::Receiver<Vec<Done>>, jobs: Arc<[Job]>, software: Policy },
    Taken,
}

/// Ends a batch, from any thread. Dropped without a word it leaves the batch to the CPU.
pub struct Completer(oneshot::Sender<Vec<Done>>);

impl Batch {
    /// A batch whose results are there.
    pub fn done(done: Vec<Done>) -> Batch {
        Batch(State::Done(done))
    }

    /// A batch and what ends it. If nobody ends it, its jobs are done by the CPU under `software`, in the poll
    /// that finds out.
    pub fn channel(jobs: Arc<[Job]>, software: Policy) -> (Completer, Batch) {
        let (sender, receiver) = oneshot::channel();
        (Completer(sender), Batch(State::Pending { receiver, jobs, software }))
    }
}

impl Completer {
    /// Hands over the results, one for each job, in their order. Another number of them is taken for none.
    pub fn complete(self, done: Vec<Done>) {
        // Whoever asked may be gone.
        let _ = self.0.send(done);
    }

    /// Whether nobody waits for the batch any more.
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
            State::Done(done) => std::mem::take(done),
            State::Pending { receiver, jobs, software } => match Pin::new(receiver).poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(done)) if done.len() == jobs.len() => done,
                Poll::Ready(_) => jobs.iter().map(|job| in_software(&job.input, *software)).collect(),
            },
            State::Taken => panic!("a batch was polled after it was ready"),
        };
        self.0 = State::Taken;
        Poll::Ready(done)
    }
}

/// Does a job by the CPU, here and now.
pub fn in_software(input: &[u8], policy: Policy) -> Done {
    let mut payload = Vec::new();
    let id = with_compressor(policy, |compressor, _| compressor.compress(input, None, &mut payload));
    let by = if id == CodecId::Raw && codec::looks_incompressible(input) { By::Nobody } else { By::Software };
    Done { id, payload, by }
}
