//! Interfaces of the kernel that have no safe binding in a library. All `unsafe` of this crate is here.
#![allow(unsafe_code, reason = "ioctl, io_uring, standard error")]

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};

mod loop_control;
mod partition_control;
mod ublk_control;

pub(crate) use loop_control::{
    LOOP_CONFIG_BYTES, LOOP_DIRECT_IO, LOOP_READ_ONLY, loop_clear, loop_configure, loop_get_free,
    loop_scan_partitions, loop_set_capacity,
};
pub(crate) use partition_control::remove_partition;
pub(crate) use ublk_control::{UblkCommand, UblkControl};

/// Number of standard error.
const STDERR: i32 = 2;

/// Redirects the standard error of this process to a file.
pub(crate) fn stderr_to(file: &File) -> io::Result<()> {
    // SAFETY: it is not closed here, only what is behind it is replaced, as others that use it by its number
    // expect.
    let mut stderr = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(STDERR) });
    Ok(rustix::io::dup2(file, &mut stderr)?)
}
