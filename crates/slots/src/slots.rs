//! The requests in flight of a task: a pool of pinned slots for their futures. Slots are reused, so a request
//! needs no allocation. Each slot has its own waker, so only futures that were woken are polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::sync::{AtomicU64, AtomicWaker, Ordering};

/// Woken slots, one bit each, and the task that polls them.
struct Woken {
    words: Box<[AtomicU64]>,
    task: AtomicWaker,
}

/// The waker of one slot.
struct SlotWaker {
    woken: Arc<Woken>,
    index: usize,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let bit = 1 << (self.index % 64);
        let before = self.woken.words[self.index / 64].fetch_or(bit, Ordering::AcqRel);
        // If the bit was already set, the task was woken then and has not checked the bit since.
        if before & bit == 0 {
            self.woken.task.wake();
        }
    }
}

struct Slot<F> {
    future: Pin<Box<Option<F>>>,
    waker: Waker,
}

/// Slots for up to `limit` futures, created as needed.
pub struct Slots<F> {
    slots: Vec<Slot<F>>,
    free: Vec<usize>,
    limit: usize,
    woken: Arc<Woken>,
}

impl<F: Future> Slots<F> {
    /// Creates slots for up to `limit` futures.
    pub fn new(limit: usize) -> Self {
        let words = (0..limit.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        let woken = Arc::new(Woken { words, task: AtomicWaker::new() });
        Self { slots: Vec::new(), free: Vec::new(), limit, woken }
    }

    /// Futures in flight.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns whether no future is in flight.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether no more futures may be started.
    pub fn is_full(&self) -> bool {
        self.len() >= self.limit
    }

    /// Sets the task to wake. Call it before polling anything.
    pub fn register(&self, task: &Waker) {
        self.woken.task.register(task);
    }

    /// Polls a new future at once, and keeps it if it is not ready. The caller has checked that a slot is
    /// free.
    pub fn start(&mut self, future: F) -> Poll<F::Output> {
        debug_assert!(!self.is_full(), "the caller has checked the limit");
        let index = self.free.pop().unwrap_or_else(|| {
            let index = self.slots.len();
            let waker = Waker::from(Arc::new(SlotWaker { woken: Arc::clone(&self.woken), index }));
            self.slots.push(Slot { future: Box::pin(None), waker });
            index
        });
        debug_assert!(self.slots[index].future.is_none(), "a free slot has no future");
        self.slots[index].future.as_mut().set(Some(future));
        self.poll_slot(index)
    }

    fn poll_slot(&mut self, index: usize) -> Poll<F::Output> {
        let Slot { future, waker } = &mut self.slots[index];
        // None: a late wake for a request that is already completed.
        let Some(running) = future.as_mut().as_pin_mut() else { return Poll::Pending };
        let polled = running.poll(&mut Context::from_waker(waker));
        if polled.is_ready() {
            future.as_mut().set(None);
            debug_assert!(self.free.len() < self.slots.len(), "this slot was in use");
            self.free.push(index);
        }
        polled
    }

    /// Polls the futures that were woken, and passes each result to `finished`.
    pub fn poll_woken(&mut self, mut finished: impl FnMut(F::Output)) {
        for word in 0..self.slots.len().div_ceil(64) {
            if self.woken.words[word].load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = self.woken.words[word].swap(0, Ordering::AcqRel);
            while bits != 0 {
                let index = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if let Poll::Ready(output) = self.poll_slot(index) {
                    finished(output);
                }
            }
        }
    }
}
