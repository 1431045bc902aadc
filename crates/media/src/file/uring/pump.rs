//! The task that drives a ring.

use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Pump task. Runs on the ring's runtime until the ring is removed.
pub(super) struct Pump {
    id: u64,
    descriptor: AsyncFd<OwnedFd>,
}

impl Pump {
    /// Creates a pump for ring `id`, whose `descriptor` signals completions. It need not be read before the
    /// next wait: tokio waits for edges, and every completion causes one.
    pub(super) fn new(id: u64, descriptor: OwnedFd) -> io::Result<Pump> {
        // SAFETY: an OwnedFd is open, and the same descriptor, for as long as it lives, and the AsyncFd owns
        // it.
        let descriptor = unsafe { AsyncFd::register_with_interest(descriptor, Interest::READABLE) }?;
        Ok(Pump { id, descriptor })
    }
}

impl Future for Pump {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match super::step(self.id, cx.waker()) {
                None => return Poll::Ready(()),
                Some(true) => {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Some(false) => {}
            }
            match self.descriptor.poll_read_ready(cx) {
                // Readiness is cleared before completions are collected. A completion in between makes it
                // ready again.
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                Poll::Ready(Err(_shutdown)) => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        // A ring without a pump would never complete its requests.
        super::uninstall(self.id);
    }
}
