//! A block device under test, by direct I/O, and what its errors mean.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, OFlags, fallocate};
use rustix::io::{ReadWriteFlags, pwritev2};

use super::verifier::Verifier;
use crate::error::Error;

/// Alignment of memory for direct I/O, in bytes.
const ALIGN_BYTES: usize = 4096;

/// An open block device. It stays open while servers come and go.
pub(super) struct Device {
    file: File,
}

impl Device {
    pub(super) fn open(node: &Path) -> io::Result<Device> {
        let flags = OFlags::DIRECT.bits() as i32;
        Ok(Device { file: File::options().read(true).write(true).custom_flags(flags).open(node)? })
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(data, offset)
    }

    /// Writes data, and makes it durable if asked to.
    pub(super) fn write(&self, mut offset: u64, mut data: &[u8], is_durable: bool) -> io::Result<()> {
        let flags = if is_durable { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
        while !data.is_empty() {
            match pwritev2(&self.file, &[IoSlice::new(data)], offset, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => (offset, data) = (offset + count as u64, &data[count..]),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Turns a range into zeros that take no space, or some.
    pub(super) fn zero(&self, offset: u64, length: u64, gives_space: bool) -> io::Result<()> {
        let how = if gives_space { FallocateFlags::PUNCH_HOLE } else { FallocateFlags::ZERO_RANGE };
        Ok(fallocate(&self.file, how | FallocateFlags::KEEP_SIZE, offset, length)?)
    }

    pub(super) fn flush(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

/// Makes durable what a block device has acknowledged.
///
/// # Errors
/// Errors of the device.
pub fn flush(node: &Path) -> io::Result<()> {
    Device::open(node)?.flush()
}

/// Memory for direct I/O.
pub(super) struct Buffer {
    memory: Vec<u8>,
}

impl Buffer {
    pub(super) fn new() -> Buffer {
        Buffer { memory: Vec::new() }
    }

    /// The first `len` bytes, which hold anything.
    pub(super) fn bytes(&mut self, len: usize) -> &mut [u8] {
        if self.memory.len() < len + ALIGN_BYTES {
            self.memory = vec![0; len + ALIGN_BYTES];
        }
        let start = self.memory.as_ptr().align_offset(ALIGN_BYTES);
        &mut self.memory[start..start + len]
    }
}

/// Counts an error of the device. It is a failure unless something more than a server has ended.
pub(super) fn judge(verifier: &Verifier, what: &str, error: &io::Error) {
    verifier.count(|counts| counts.errors += 1);
    if !verifier.is_excused() {
        verifier.fail(Error::Violation(format!("{what} failed, and nothing excuses it: {error}")));
    }
}
