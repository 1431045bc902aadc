//! Plain memory whose readers and writers must be ordered, such as a segment or a buffer.

use std::sync::Mutex;

use loom::cell::UnsafeCell;

/// Each access panics ("Causality violation") unless all conflicting accesses happened before it. The lock
/// only makes the type shareable. The model checker does not know the lock, so it creates no ordering.
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
