//! Status of an open loop device, from the kernel.

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::Errno;

use super::Span;

/// `struct loop_info64` of `linux/loop.h`. Adjacent fields that are not used are merged.
#[repr(C)]
pub(super) struct LoopStatus {
    pub(super) device: u64,
    pub(super) inode: u64,
    of_block_device: u64,
    offset: u64,
    size_limit: u64,
    numbers_and_flags: [u32; 4],
    file_name: [u8; 64],
    encryption: [u8; 112],
}

const _: () = assert!(size_of::<LoopStatus>() == 232, "the size of struct loop_info64");

impl LoopStatus {
    pub(super) fn span(&self) -> Span {
        Span { start: self.offset, len: (self.size_limit > 0).then_some(self.size_limit) }
    }

    /// The name that the device was set up with, if it is complete.
    pub(super) fn file_name(&self) -> Option<PathBuf> {
        let end = self.file_name.iter().position(|byte| *byte == 0)?;
        let name = &self.file_name[..end];
        // The last byte is always zero, so a name that fills the rest may have been cut.
        (name.starts_with(b"/") && end < self.file_name.len() - 1)
            .then(|| PathBuf::from(OsStr::from_bytes(name)))
    }
}

/// `LOOP_GET_STATUS64` of `linux/loop.h`: the backing file of a loop device. It also works on a partition of
/// one.
pub(super) fn loop_status(device: impl AsFd) -> Result<LoopStatus, Errno> {
    const LOOP_GET_STATUS64: rustix::ioctl::Opcode = 0x4C05;
    // SAFETY: for a loop device the call fills in one `struct loop_info64`. `LoopStatus` has its layout and
    // size.
    unsafe { rustix::ioctl::ioctl(device, rustix::ioctl::Getter::<LOOP_GET_STATUS64, LoopStatus>::new()) }
}
