//! Calls of the loop driver that have no binding in a library: `ioctl_loop(2)`, `linux/loop.h`.

use std::ffi::c_void;
use std::os::fd::AsFd;

use rustix::io;
use rustix::ioctl::{Getter, Ioctl, IoctlOutput, NoArg, Opcode, Setter, ioctl};

const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_SET_STATUS64: Opcode = 0x4C04;
const LOOP_GET_STATUS64: Opcode = 0x4C05;
const LOOP_SET_CAPACITY: Opcode = 0x4C07;
const LOOP_CONFIGURE: Opcode = 0x4C0A;
const LOOP_CTL_GET_FREE: Opcode = 0x4C82;

/// `LO_FLAGS_READ_ONLY`: the device refuses writes.
pub(crate) const LOOP_READ_ONLY: u32 = 1;
/// `LO_FLAGS_PARTSCAN`: the kernel looks for partitions, at `BLKRRPART` too, and removes them with the file.
const LOOP_PARTITION_SCAN: u32 = 8;
/// `LO_FLAGS_DIRECT_IO`: the device bypasses the page cache of its file.
pub(crate) const LOOP_DIRECT_IO: u32 = 16;

/// Bytes of `struct loop_config`: descriptor, block size, `loop_info64` of 232 bytes, 64 reserved ones.
pub(crate) const LOOP_CONFIG_BYTES: usize = 304;

/// Bytes of `struct loop_info64`, and where its flags are.
const LOOP_INFO_BYTES: usize = 232;
const LOOP_INFO_FLAGS: usize = 52;

/// An ioctl without argument whose result is a number.
struct Number<const OPCODE: Opcode>;

// SAFETY: the kernel reads and writes no memory of this process for such a call.
unsafe impl<const OPCODE: Opcode> Ioctl for Number<OPCODE> {
    type Output = u32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> Opcode {
        OPCODE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(number: IoctlOutput, _argument: *mut c_void) -> io::Result<u32> {
        u32::try_from(number).map_err(|_| io::Errno::OVERFLOW)
    }
}

/// Returns the number of a loop device without a file, of `/dev/loop-control`. Makes one if there is none.
pub(crate) fn loop_get_free(control: impl AsFd) -> io::Result<u32> {
    // SAFETY: LOOP_CTL_GET_FREE takes no argument.
    unsafe { ioctl(control, Number::<LOOP_CTL_GET_FREE>) }
}

/// Attaches a file to a loop device, with an encoded `struct loop_config`.
pub(crate) fn loop_configure(device: impl AsFd, config: [u8; LOOP_CONFIG_BYTES]) -> io::Result<()> {
    // SAFETY: LOOP_CONFIGURE reads that many bytes, at any alignment.
    unsafe { ioctl(device, Setter::<LOOP_CONFIGURE, _>::new(config)) }
}

/// Lets the kernel look for partitions, now and at `BLKRRPART`, and remove them when the file is taken from
/// the device. Reads the device.
pub(crate) fn loop_scan_partitions(device: impl AsFd) -> io::Result<()> {
    // SAFETY: LOOP_GET_STATUS64 writes that many bytes, any of which are valid.
    let mut info = unsafe { ioctl(&device, Getter::<LOOP_GET_STATUS64, [u8; LOOP_INFO_BYTES]>::new()) }?;
    let mut flags = [0; 4];
    flags.copy_from_slice(&info[LOOP_INFO_FLAGS..LOOP_INFO_FLAGS + 4]);
    let flags = u32::from_ne_bytes(flags) | LOOP_PARTITION_SCAN;
    info[LOOP_INFO_FLAGS..LOOP_INFO_FLAGS + 4].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: LOOP_SET_STATUS64 reads that many bytes, at any alignment.
    unsafe { ioctl(&device, Setter::<LOOP_SET_STATUS64, _>::new(info)) }
}

/// Adopts the size of the file.
pub(crate) fn loop_set_capacity(device: impl AsFd) -> io::Result<()> {
    // SAFETY: LOOP_SET_CAPACITY takes no argument.
    unsafe { ioctl(device, NoArg::<LOOP_SET_CAPACITY>::new()) }
}

/// Detaches the file from a loop device, as soon as nobody has it open.
pub(crate) fn loop_clear(device: impl AsFd) -> io::Result<()> {
    // SAFETY: LOOP_CLR_FD takes no argument.
    unsafe { ioctl(device, NoArg::<LOOP_CLR_FD>::new()) }
}
