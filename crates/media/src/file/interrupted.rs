//! System calls that signals interrupt.

use rustix::io::Errno;

/// Repeats a system call as long as a signal interrupts it.
pub(super) fn retry_interrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}
