//! Requests that their client gives up at an await.

use std::pin::Pin;
use std::task::{Context, Poll};

use media::SimRng;

/// A request is polled without result fewer times than two to this power before it is given up.
const WAITS_BITS: u64 = 5;

/// A future that is dropped after being pending a number of times, or just before it would continue.
pub(crate) struct Impatient<F> {
    request: Option<Pin<Box<F>>>,
    waits: u64,
    /// True if it is given up when it is woken, rather than when it begins to wait.
    is_late: bool,
    is_doomed: bool,
}

impl<F: Future> Impatient<F> {
    pub(crate) fn new(request: F, rng: &mut SimRng) -> Impatient<F> {
        let (waits, is_late) = (rng.skewed(WAITS_BITS), rng.chance(1, 2));
        Impatient { request: Some(Box::pin(request)), waits, is_late, is_doomed: false }
    }
}

impl<F: Future> Future for Impatient<F> {
    /// `None` if it was given up.
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.is_doomed {
            self.request = None;
        }
        let Some(request) = &mut self.request else { return Poll::Ready(None) };
        if let Poll::Ready(answer) = request.as_mut().poll(context) {
            return Poll::Ready(Some(answer));
        }
        if self.waits > 0 {
            self.waits -= 1;
            return Poll::Pending;
        }
        if self.is_late {
            self.is_doomed = true;
            return Poll::Pending;
        }
        self.request = None;
        Poll::Ready(None)
    }
}
