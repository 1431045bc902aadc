//! Further descriptors of a FUSE connection: `FUSE_DEV_IOC_CLONE` of `linux/fuse.h`.
#![allow(unsafe_code, reason = "an ioctl without a binding")]

use std::os::fd::{AsFd, AsRawFd};

use rustix::io;
use rustix::ioctl::{Opcode, Setter, ioctl, opcode};

const CLONE: Opcode = opcode::read::<u32>(229, 0);

/// Makes `device`, which was just opened, one more of the connection of `connected`.
pub(super) fn clone_into(device: impl AsFd, connected: impl AsFd) -> io::Result<()> {
    let connected = connected.as_fd().as_raw_fd() as u32;
    // SAFETY: the kernel reads a number of this size.
    unsafe { ioctl(device, Setter::<CLONE, u32>::new(connected)) }
}
