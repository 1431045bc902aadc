//! Interfaces of the kernel that have no safe binding in a library. All `unsafe` of this crate is here.
#![allow(unsafe_code, reason = "ioctl, io_uring, a mapping, standard error")]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;

mod loop_control;
mod partition_control;
mod ublk_control;
mod ublk_queue;

pub(crate) use loop_control::{
    LOOP_CONFIG_BYTES, LOOP_DIRECT_IO, LOOP_READ_ONLY, loop_clear, loop_configure, loop_get_free,
    loop_scan_partitions, loop_set_capacity,
};
pub(crate) use partition_control::remove_partition;
pub(crate) use ublk_control::{UblkCommand, UblkControl};
pub(crate) use ublk_queue::{UblkEvent, UblkQueue, UblkRequest, UblkRing};

/// Interval between attempts of a call that the kernel refused temporarily.
const AGAIN: Duration = Duration::from_millis(1);

/// Returns whether to retry a failed submission to io_uring: a signal came, memory is short, or completions
/// have to be reaped first.
fn passes(error: &io::Error) -> bool {
    let error = Errno::from_io_error(error);
    [Errno::INTR, Errno::AGAIN, Errno::BUSY].iter().any(|passing| error == Some(*passing))
}

/// Number of standard error.
const STDERR: i32 = 2;

/// Redirects the standard error of this process to a file.
pub(crate) fn stderr_to(file: &File) -> io::Result<()> {
    // SAFETY: it is not closed here, only what is behind it is replaced, as others that use it by its number
    // expect.
    let mut stderr = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(STDERR) });
    Ok(rustix::io::dup2(file, &mut stderr)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_passes_is_tried_again() {
        for (error, expected) in
            [(Errno::INTR, true), (Errno::AGAIN, true), (Errno::BUSY, true), (Errno::BADF, false)]
        {
            assert_eq!(passes(&error.into()), expected, "{error}");
        }
        assert!(!passes(&io::ErrorKind::InvalidData.into()));
    }
}
