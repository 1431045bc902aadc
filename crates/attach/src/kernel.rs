//! Interfaces of the kernel that have no safe binding in a library. All `unsafe` of this crate is here.
#![allow(unsafe_code, reason = "ioctl, io_uring, a mapping")]

mod loop_control;
mod ublk_control;
mod ublk_queue;

pub(crate) use loop_control::{
    LOOP_CONFIG_BYTES, LOOP_DIRECT_IO, LOOP_READ_ONLY, loop_clear, loop_configure, loop_get_free,
    loop_set_capacity,
};
pub(crate) use ublk_control::{UblkCommand, UblkControl};
pub(crate) use ublk_queue::{UblkEvent, UblkQueue, UblkRequest};
