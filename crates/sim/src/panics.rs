//! Planned panics inside the engine's critical section: at an entry, or between two records of a batch.
//!
//! The engine reads its clock as soon as it is inside, and again at the end. If armed, this clock panics
//! instead, once, at the chosen entry. So does the function that it calls between two records, which counts
//! as an entry. No panic hook runs and nothing is printed. A drive whose lock was held during a panic must
//! refuse all changes, and must not have lost anything when it is opened again.

use std::cell::Cell;
use std::panic::resume_unwind;

thread_local! {
    /// Entries and records until the panic. `None`: never. Seeds do not share threads.
    static ARMED: Cell<Option<u64>> = const { Cell::new(None) };
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// True from the panic until the next call of [`arm`].
    static HAS_STRUCK: Cell<bool> = const { Cell::new(false) };
}

/// Payload of a planned panic.
pub struct Planned;

/// Arms a panic after this many entries. `None` disarms. Returns the previous value.
pub fn arm(entries: Option<u64>) -> Option<u64> {
    HAS_STRUCK.set(false);
    ARMED.replace(entries)
}

/// Returns whether the armed panic has struck. A task that was inside another one's poll when it panicked
/// leaves the other a drive that refuses changes.
pub fn has_struck() -> bool {
    HAS_STRUCK.get()
}

/// Clock for [`drive::OpenOptions::clock`].
pub fn clock() -> u64 {
    let enters = !IS_INSIDE.get();
    IS_INSIDE.set(enters);
    if !enters || std::thread::panicking() {
        return 0;
    }
    if is_due() {
        // The end of this entry does not read the clock.
        IS_INSIDE.set(false);
        strike();
    }
    0
}

/// For [`drive::OpenOptions::between_records`].
pub fn between_records() {
    if is_due() {
        strike();
    }
}

fn is_due() -> bool {
    let left = ARMED.get();
    ARMED.set(left.and_then(|left| left.checked_sub(1)));
    left == Some(0)
}

fn strike() -> ! {
    HAS_STRUCK.set(true);
    resume_unwind(Box::new(Planned))
}
