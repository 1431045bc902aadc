//! Substitutes of the model checker for the primitives in the crates' `sync` modules.

use std::task::Waker;

pub(crate) use loom::sync::Arc;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Like parking_lot's mutex: without poisoning.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(inside: T) -> Mutex<T> {
        Mutex(loom::sync::Mutex::new(inside))
    }

    pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
        self.0.lock().expect("a model that panics ends")
    }
}

/// Minimal version of the waker of futures: a wake takes the waker registered last. It creates no more
/// ordering than a lock.
pub(crate) struct AtomicWaker(Mutex<Option<Waker>>);

impl AtomicWaker {
    pub(crate) fn new() -> AtomicWaker {
        AtomicWaker(Mutex::new(None))
    }

    pub(crate) fn register(&self, waker: &Waker) {
        let before = self.0.lock().replace(waker.clone());
        drop(before);
    }

    pub(crate) fn wake(&self) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
