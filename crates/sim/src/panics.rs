//! A panic at an entry of the engine's critical section, on purpose.
//!
//! The engine asks its clock as soon as it is inside, and at the end again. Here a clock that is armed panics instead, once, at
//! the so manieth time that somebody came in. No hook runs and nothing is printed. A drive whose lock was held by a panic must not
//! take anything any more, and must not have lost anything when it is opened again.

use std::cell::Cell;
use std::panic::resume_unwind;

thread_local! {
    /// Entries until the panic; none: never. Seeds do not share threads.
    static ARMED: Cell<Option<u64>> = const { Cell::new(None) };
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What such a panic carries.
pub struct Planned;

/// A panic comes at that entry from now; `None`: none does. Answers what was left of the one before.
pub fn arm(entries: Option<u64>) -> Option<u64> {
    ARMED.replace(entries)
}

/// For [`drive::OpenOptions::clock`].
pub fn clock() -> u64 {
    let enters = !IS_INSIDE.get();
    IS_INSIDE.set(enters);
    if !enters || std::thread::panicking() {
        return 0;
    }
    match ARMED.get() {
        Some(0) => {
            ARMED.set(None);
            IS_INSIDE.set(false);
            resume_unwind(Box::new(Planned))
        }
        Some(left) => ARMED.set(Some(left - 1)),
        None => {}
    }
    0
}
