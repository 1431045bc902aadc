//! A future that was woken is polled, and observes what was done before.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use loom::future::block_on;
use loom::sync::Arc;
use loom::thread;

use super::code::Slots;
use crate::memory::Memory;

/// Ready at the second poll, since it was woken by then.
struct Request {
    reply: Arc<Memory>,
    /// The model checker does not know this lock. It is used before the threads start.
    waker: std::sync::Arc<Mutex<Option<Waker>>>,
    polled: bool,
}

impl Future for Request {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.polled {
            self.reply.read();
            return Poll::Ready(());
        }
        self.polled = true;
        *self.waker.lock().expect("a model that panics ends") = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Starts a request, which another thread finishes and then wakes `wakes` times.
fn start(slots: &mut Slots<Request>, wakes: usize) -> thread::JoinHandle<()> {
    let reply = Arc::new(Memory::new());
    let waker = std::sync::Arc::new(Mutex::new(None));
    let request = Request { reply: reply.clone(), waker: waker.clone(), polled: false };
    assert!(slots.start(request).is_pending());
    let waker = waker.lock().expect("a model that panics ends").take();
    let waker = waker.expect("the request was polled");
    thread::spawn(move || {
        reply.write();
        (0..wakes).for_each(|_| waker.wake_by_ref());
    })
}

/// Acts like a connection: registers, polls woken futures, sleeps.
fn finish_all(slots: &mut Slots<Request>) {
    block_on(poll_fn(|cx| {
        slots.register(cx.waker());
        slots.poll_woken(|()| ());
        if slots.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }));
}

fn all_are_finished(wakes: &[usize]) {
    let mut slots = Slots::new(4);
    let threads: Vec<_> = wakes.iter().map(|&wakes| start(&mut slots, wakes)).collect();
    finish_all(&mut slots);
    threads.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    // A late wake of a completed request.
    slots.poll_woken(|()| panic!("nothing is in flight"));
}

pub(crate) fn one_is_finished() {
    all_are_finished(&[2]);
}

pub(crate) fn both_are_finished() {
    all_are_finished(&[1, 1]);
}
