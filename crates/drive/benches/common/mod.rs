//! Running a drive on memory media, where nothing has to be waited for.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use drive::Spawner;

/// Polls until it is done.
pub(crate) fn poll_in_place<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
        std::hint::spin_loop();
    }
}

/// Runs background work at once.
pub(crate) fn spawner() -> Spawner {
    Arc::new(poll_in_place)
}
