//! Partitions of a block device, as `partx(8)` removes them: `linux/blkpg.h`.

use std::ffi::c_void;
use std::os::fd::AsFd;
use std::ptr;

use rustix::io;
use rustix::ioctl::{Opcode, Setter, ioctl};

const BLKPG: Opcode = 0x1269;
const BLKPG_DEL_PARTITION: i32 = 2;

/// `struct blkpg_ioctl_arg`.
#[repr(C)]
struct Argument {
    operation: i32,
    flags: i32,
    length: i32,
    data: *mut c_void,
}

/// `struct blkpg_partition`. Only the number is read here.
#[repr(C)]
struct Partition {
    start: i64,
    length: i64,
    number: i32,
    device_name: [u8; 64],
    volume_name: [u8; 64],
}

/// Removes the partition with a number from a device. Nothing on the disk changes.
///
/// # Errors
///
/// `EBUSY` while it is open, `ENXIO` if there is none.
pub(crate) fn remove_partition(device: impl AsFd, number: i32) -> io::Result<()> {
    let mut partition = Partition { start: 0, length: 0, number, device_name: [0; 64], volume_name: [0; 64] };
    let argument = Argument {
        operation: BLKPG_DEL_PARTITION,
        flags: 0,
        length: size_of::<Partition>() as i32,
        data: ptr::from_mut(&mut partition).cast(),
    };
    // SAFETY: BLKPG reads the argument, and a partition where that points; both live until it returns.
    unsafe { ioctl(device, Setter::<BLKPG, _>::new(argument)) }
}
