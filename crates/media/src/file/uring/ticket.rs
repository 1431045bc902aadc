//! The caller's side of a request in the ring.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::super::backing::Outcome;
use crate::sync::{Arc, Mutex};

/// Shared state of a completion and its caller.
#[derive(Debug)]
pub(super) struct Slot(Mutex<State>);

#[derive(Debug)]
enum State {
    Waiting(Option<Waker>),
    Done(Outcome),
    Taken,
}

/// A request in progress; resolves to its outcome. May be polled on any thread. Dropping it discards the
/// outcome and does not cancel the request.
#[derive(Debug)]
pub(crate) struct Ticket(Arc<Slot>);

/// Creates a slot and its ticket.
pub(super) fn pair() -> (Arc<Slot>, Ticket) {
    let slot = Arc::new(Slot(Mutex::new(State::Waiting(None))));
    (Arc::clone(&slot), Ticket(slot))
}

impl Slot {
    /// Stores the outcome and wakes the task that polls the ticket.
    pub(super) fn complete(&self, outcome: Outcome) {
        let before = std::mem::replace(&mut *self.0.lock(), State::Done(outcome));
        if let State::Waiting(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl Future for Ticket {
    type Output = Outcome;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.0.lock();
        match &mut *state {
            State::Waiting(Some(waker)) => waker.clone_from(cx.waker()),
            State::Waiting(none) => *none = Some(cx.waker().clone()),
            State::Done(_) => {
                if let State::Done(outcome) = std::mem::replace(&mut *state, State::Taken) {
                    return Poll::Ready(outcome);
                }
            }
            State::Taken => panic!("polled after it was ready"),
        }
        Poll::Pending
    }
}
