//! The plain back end: blocking system calls, for threads without a ring.

use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;

use super::backing::{Backing, Outcome, Request};
use crate::IoBuf;

/// Performs `request`: on tokio's blocking pool inside a runtime, else on this thread.
pub(super) async fn perform(backing: &Arc<Backing>, mut request: Request) -> Outcome {
    let Ok(runtime) = Handle::try_current() else {
        let result = backing.perform(&mut request);
        return (request, result);
    };
    let stand_in = stand_in(&request);
    let backing = Arc::clone(backing);
    let task = runtime.spawn_blocking(move || {
        let result = backing.perform(&mut request);
        (request, result)
    });
    match task.await {
        Ok(outcome) => outcome,
        // The runtime shuts down and dropped the request with its buffer: the caller still gets one back.
        Err(lost) => (stand_in(), Err(io::Error::other(lost))),
    }
}

/// Makes a request of the same shape as `request`, for when that one is lost.
fn stand_in(request: &Request) -> impl FnOnce() -> Request + Send + use<> {
    let read = match request {
        Request::Read { offset, buf } => Some((*offset, buf.len())),
        _ => None,
    };
    move || match read {
        Some((offset, len)) => Request::Read { offset, buf: IoBuf::zeroed(len) },
        None => Request::Sync,
    }
}
