//! Execution of requests on the device.

use std::any::Any;
use std::sync::Arc;

use device::{Device, DeviceError, Requester, Zeroes};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::buffers::Buffer;
use crate::data::Data;
use crate::request::Operation;

/// Most trims and zeroings of more than [`LONG_BYTES`] that the device works at for a queue. They take up to
/// minutes.
const LONG_RANGES_MAX: usize = 8;
const LONG_BYTES: u64 = 32 << 20;

/// Where a large request is executed.
pub struct Assignment {
    /// Runtime of another thread, or `None`: on the thread of the queue.
    pub runtime: Option<Handle>,
    /// Dropped when the request is done.
    pub held: Box<dyn Any + Send>,
}

/// Assigns a large request to a thread. `None`: it is executed on the thread of the queue.
pub type Assign = Arc<dyn Fn() -> Option<Assignment> + Send + Sync>;

/// A request that was fetched, with the data of a write.
pub(crate) struct Job {
    pub(crate) tag: u16,
    pub(crate) operation: Operation,
    pub(crate) buffer: Buffer,
}

/// A request that the device has completed, with the data of a read.
pub(crate) struct Finished {
    pub(crate) tag: u16,
    pub(crate) operation: Operation,
    pub(crate) buffer: Buffer,
    pub(crate) result: Result<(), DeviceError>,
}

/// Context in which the requests of a queue run.
pub(crate) struct Executor<D> {
    device: Arc<D>,
    data: Data,
    requester: Requester,
    /// [`LONG_RANGES_MAX`] permits.
    long_ranges: Semaphore,
}

impl<D: Device> Executor<D> {
    pub(crate) fn new(device: Arc<D>, data: Data, requester: Requester) -> Executor<D> {
        Executor { device, data, requester, long_ranges: Semaphore::new(LONG_RANGES_MAX) }
    }

    /// Runs a request once it may, where it was assigned to.
    pub(crate) async fn execute(&self, assignment: Option<Assignment>, job: Job) -> Finished {
        let Job { tag, operation, .. } = job;
        let _turn = match is_long(&operation) {
            true => match self.requester.during(self.long_ranges.acquire()).await {
                Ok(turn) => turn.ok(),
                Err(left) => return Finished { tag, operation, buffer: job.buffer, result: Err(left) },
            },
            false => None,
        };
        let Some(assignment) = assignment else {
            return perform(&*self.device, &self.requester, job).await;
        };
        let Some(runtime) = assignment.runtime else {
            let finished = perform(&*self.device, &self.requester, job).await;
            drop(assignment.held);
            return finished;
        };
        let (device, requester, data) = (self.device.clone(), self.requester.clone(), self.data.clone());
        let held = assignment.held;
        let there = runtime.spawn(async move {
            // A thread that works at the request when the queue is dropped ends it only later. Until then the
            // driver issues nothing to another server.
            let (_held, _data) = (held, data);
            perform(&*device, &requester, job).await
        });
        match Running(there).result().await {
            Some(finished) => finished,
            // That thread has ended: the server is ending.
            None => {
                Finished { tag, operation, buffer: Buffer::default(), result: Err(DeviceError::Shutdown) }
            }
        }
    }
}

/// Returns whether a request may take long whatever the device does.
fn is_long(operation: &Operation) -> bool {
    match *operation {
        Operation::Trim { length, .. } | Operation::WriteZeroes { length, .. } => length > LONG_BYTES,
        Operation::Read { .. } | Operation::Write { .. } | Operation::Flush => false,
    }
}

/// Runs a request on the device.
async fn perform<D: Device>(device: &D, requester: &Requester, job: Job) -> Finished {
    let Job { tag, operation, mut buffer } = job;
    debug_assert_eq!(buffer.as_slice().len(), operation.data_bytes(), "the device gets the whole range");
    let result = match operation {
        Operation::Read { offset, .. } => device.read(offset, buffer.as_mut_slice()).await,
        Operation::Write { offset, fua, .. } => device.write(offset, buffer.as_slice(), fua, requester).await,
        Operation::Flush => device.flush().await,
        Operation::Trim { offset, length, fua } => device.trim(offset, length, fua, requester).await,
        Operation::WriteZeroes { offset, length, unmap, fua } => {
            device.write_zeroes(offset, length, Zeroes { unmap, fua }, requester).await
        }
    };
    Finished { tag, operation, buffer, result }
}

/// A request on another thread.
struct Running(JoinHandle<Finished>);

impl Running {
    /// Waits for the result. `None`: the thread has ended before the queue.
    async fn result(mut self) -> Option<Finished> {
        match (&mut self.0).await {
            Ok(finished) => Some(finished),
            // As if it had been executed here.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(_) => None,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.abort();
    }
}
