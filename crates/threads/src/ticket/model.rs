//! An outcome reaches the task that polls, and its buffer is dropped once, after the completion.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::code::{Slot, Ticket, pair};
use crate::backing::Request;
use crate::memory::Memory;
use crate::sync::{AtomicUsize, Ordering};

struct Operation {
    request: Request,
    slot: Arc<Slot>,
}

impl Operation {
    fn new() -> (Operation, Ticket, Arc<AtomicUsize>) {
        let (slot, ticket) = pair();
        let dropped = Arc::new(AtomicUsize::new(0));
        let request = Request { buffer: Memory::new(), dropped: dropped.clone() };
        (Operation { request, slot }, ticket, dropped)
    }

    /// Simulates the kernel, which fills the buffer, and the ring, which stores the outcome.
    fn run(self) {
        self.request.buffer.write();
        self.slot.complete((self.request, Ok(())));
    }
}

fn poll(ticket: &mut Ticket, waker: &Waker) -> Option<Request> {
    match Pin::new(ticket).poll(&mut Context::from_waker(waker)) {
        Poll::Ready((request, _)) => Some(request),
        Poll::Pending => None,
    }
}

fn take(request: Request, dropped: &AtomicUsize) {
    request.buffer.read();
    assert_eq!(dropped.load(Ordering::Relaxed), 0, "the buffer was given back before it was taken");
    drop(request);
}

fn join(thread: thread::JoinHandle<()>, dropped: &AtomicUsize) {
    thread.join().expect("no thread panics");
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "the buffer was not given back once");
}

pub(crate) fn an_outcome_arrives() {
    let (operation, ticket, dropped) = Operation::new();
    let ring = thread::spawn(move || operation.run());
    let (request, result) = block_on(ticket);
    assert!(result.is_ok());
    take(request, &dropped);
    join(ring, &dropped);
}

/// The task moves to another thread, and is woken where it was polled last.
pub(crate) fn the_last_waker_counts() {
    let (operation, mut ticket, dropped) = Operation::new();
    let ring = thread::spawn(move || operation.run());
    let at_once = poll(&mut ticket, Waker::noop());
    let counted = dropped.clone();
    let elsewhere = thread::spawn(move || {
        let request = at_once.unwrap_or_else(|| block_on(ticket).0);
        take(request, &counted);
    });
    ring.join().expect("no thread panics");
    join(elsewhere, &dropped);
}

/// The ticket is dropped while the operation runs.
pub(crate) fn a_dropped_ticket_leaves_the_buffer_to_the_ring() {
    let (operation, mut ticket, dropped) = Operation::new();
    let ring = thread::spawn(move || operation.run());
    if let Some(request) = poll(&mut ticket, Waker::noop()) {
        take(request, &dropped);
    }
    drop(ticket);
    join(ring, &dropped);
}
