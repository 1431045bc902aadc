//! Execution of requests on the device.

use std::sync::Arc;

use device::{Device, DeviceError, Extent, Requester, Zeroes};
use tokio::sync::Semaphore;
use tracing::Instrument;

use crate::connection::buffers::Buffer;
use crate::fence::Member;
use crate::limits::helpers::{Assignment, Running};
use crate::wire::operation::Operation;
use crate::wire::protocol::{Errno, MAX_PAYLOAD_BYTES};

/// Most trims and zeroings of more than the longest write that the device works at for a connection. They
/// take up to minutes and hold no memory of the client's.
pub(crate) const LONG_RANGES_MAX: usize = 8;

/// A request that passed the checks.
#[derive(Clone, Copy)]
pub(crate) struct Request {
    pub(crate) cookie: u64,
    /// Offset of its header.
    pub(crate) offset: u64,
    pub(crate) operation: Operation,
}

/// A request that the device has completed.
pub(crate) struct Finished {
    pub(crate) request: Request,
    pub(crate) buffer: Buffer,
    pub(crate) result: Result<Vec<Extent>, DeviceError>,
}

/// Context in which the requests of a connection run.
pub(crate) struct Executor<'a, D> {
    pub(crate) device: &'a Arc<D>,
    /// `None` if the client may only read.
    pub(crate) member: Option<Arc<Member>>,
    /// [`LONG_RANGES_MAX`] permits.
    pub(crate) long_ranges: Semaphore,
    /// The client.
    pub(crate) requester: Requester,
}

/// Runs `request` of a connection, at `place` if there is one. `buffer` holds the data of a WRITE, or
/// receives that of a READ.
pub(crate) async fn execute<D: Device>(
    executor: &Executor<'_, D>,
    assignment: Option<Assignment>,
    request: Request,
    buffer: Buffer,
) -> Finished {
    let Request { cookie, operation, .. } = request;
    let span = tracing::debug_span!("request", cookie, ?operation);
    if span.is_disabled() {
        return perform_in_turn(executor, assignment, request, buffer).await;
    }
    async {
        let finished = perform_in_turn(executor, assignment, request, buffer).await;
        tracing::debug!(error = finished.result.as_ref().err().map(tracing::field::display), "request done");
        finished
    }
    .instrument(span)
    .await
}

/// Returns whether a request may take long whatever the device does.
fn is_long_range(operation: &Operation) -> bool {
    match *operation {
        Operation::Trim { length, .. } | Operation::WriteZeroes { length, .. } => {
            length > MAX_PAYLOAD_BYTES.into()
        }
        _ => false,
    }
}

/// Runs `request` once it may. Other requests of the connection proceed in the meantime.
async fn perform_in_turn<D: Device>(
    executor: &Executor<'_, D>,
    assignment: Option<Assignment>,
    request: Request,
    buffer: Buffer,
) -> Finished {
    let Executor { long_ranges, requester, .. } = executor;
    let _turn = match is_long_range(&request.operation) {
        true => match requester.during(long_ranges.acquire()).await {
            Ok(turn) => turn.ok(),
            Err(left) => return Finished { request, buffer, result: Err(left) },
        },
        false => None,
    };
    perform_assigned(executor, assignment, request, buffer).await
}

/// Runs `request` on the thread of its place.
async fn perform_assigned<D: Device>(
    executor: &Executor<'_, D>,
    assignment: Option<Assignment>,
    request: Request,
    buffer: Buffer,
) -> Finished {
    let Executor { device, member, requester, .. } = executor;
    let Some(handle) = assignment.as_ref().and_then(Assignment::handle) else {
        let finished = perform(&***device, requester, request, buffer).await;
        // A place on this thread counts until the request is done.
        drop(assignment);
        return finished;
    };
    let bytes = buffer.charged_bytes();
    let (device, member) = (Arc::clone(device), member.clone());
    let requester = requester.clone();
    let request_there = async move {
        // A thread that works at the request when the connection is dropped ends it only later.
        let _member = member;
        perform(&*device, &requester, request, buffer).await
    }
    .instrument(tracing::Span::current());
    Running::start(&handle, assignment, request_there).result().await.unwrap_or_else(|| {
        // The buffer is gone with the thread. A buffer of the same size releases the memory that was charged
        // for it.
        let result = Err(DeviceError::Shutdown);
        Finished { request, buffer: Buffer::zeroed(bytes), result }
    })
}

/// Runs `request` on the device.
async fn perform<D: Device>(
    device: &D,
    requester: &Requester,
    request: Request,
    mut buffer: Buffer,
) -> Finished {
    debug_assert_eq!(
        buffer.as_slice().len(),
        request.operation.buffer_bytes(),
        "the device gets the whole range"
    );
    let result = match request.operation {
        Operation::Read { offset, .. } => device.read(offset, buffer.as_mut_slice()).await,
        Operation::Write { offset, fua, .. } => device.write(offset, buffer.as_slice(), fua, requester).await,
        Operation::Flush => device.flush().await,
        Operation::Trim { offset, length, fua } => device.trim(offset, length, fua, requester).await,
        Operation::WriteZeroes { offset, length, no_hole, fua } => {
            device.write_zeroes(offset, length, Zeroes { unmap: !no_hole, fua }, requester).await
        }
        Operation::Cache | Operation::Disc => Ok(()),
        Operation::BlockStatus { offset, length, max_extents } => {
            let extents = device.extents(offset, length, max_extents).await;
            let result = extents.and_then(|mut extents| {
                extents.truncate(max_extents);
                let known = extents.iter().any(|extent| extent.len > 0);
                // A reply without extents would be malformed.
                if known { Ok(extents) } else { Err(DeviceError::Io("no extent is known".to_owned())) }
            });
            return Finished { request, buffer, result };
        }
    };
    Finished { request, buffer, result: result.map(|()| Vec::new()) }
}

/// Returns the error code that reports `error` to a client.
pub(crate) fn errno(error: &DeviceError) -> Errno {
    match error {
        DeviceError::Invalid(_) => Errno::Inval,
        DeviceError::NoSpace => Errno::NoSpc,
        DeviceError::ReadOnly(_) => Errno::Perm,
        DeviceError::Io(_) => Errno::Io,
        DeviceError::Shutdown => Errno::Shutdown,
    }
}
