//! Planned panics at an entry of the engine's critical section.
//!
//! The engine reads its clock as soon as it is inside, and again at the end. If armed, this clock panics
//! instead, once, at the chosen entry. No panic hook runs and nothing is printed. A drive whose lock was held
//! during a panic must refuse all changes, and must not have lost anything when it is opened again.

use std::cell::Cell;
use std::panic::resume_unwind;

thread_local! {
    /// Entries until the panic. `None`: never. Seeds do not share threads.
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
    match ARMED.get() {
        Some(0) => {
            ARMED.set(None);
            IS_INSIDE.set(false);
            HAS_STRUCK.set(true);
            resume_unwind(Box::new(Planned))
        }
        Some(left) => ARMED.set(Some(left - 1)),
        None => {}
    }
    0
}
