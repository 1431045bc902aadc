//! Plain memory whose readers and writers must be in order: a segment, a buffer.

use std::sync::Mutex;

use loom::cell::UnsafeCell;

/// Each access panics ("Causality violation") unless all that it conflicts with happened before it. The lock makes it shareable;
/// the model checker does not know it, so it brings nothing into order.
#[derive(Debug)]
pub(crate) struct Memory(Mutex<UnsafeCell<()>>);

impl Memory {
    pub(crate) fn new() -> Memory {
        Memory(Mutex::new(UnsafeCell::new(())))
    }

    pub(crate) fn read(&self) {
        self.0.lock().expect("a model that panics ends").with(|_| ());
    }

    pub(crate) fn write(&self) {
        self.0.lock().expect("a model that panics ends").with_mut(|_| ());
    }
}
