//! The plain back end: blocking system calls, for threads without a ring.

use std::io;

use tokio::runtime::Handle;

use super::backing::{Order, Outcome, Request};
use crate::IoBuf;

/// Performs a request: on tokio's blocking pool inside a runtime, otherwise on this thread.
pub(super) async fn perform(order: Order) -> Outcome {
    let Ok(runtime) = Handle::try_current() else { return order.perform() };
    let stand_in = stand_in(&order.request);
    match runtime.spawn_blocking(move || order.perform()).await {
        Ok(outcome) => outcome,
        // The runtime shut down and dropped the request with its buffer. The caller still gets a buffer back.
        Err(lost) => (stand_in(), Some(Err(io::Error::other(lost)))),
    }
}

/// Returns a request of the same shape as `request`, to replace one that is lost.
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
