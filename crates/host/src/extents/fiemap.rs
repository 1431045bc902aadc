//! `FS_IOC_FIEMAP` of `linux/fiemap.h`.

use std::fs::File;
use std::io;
use std::ops::BitOr;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

/// Most extents that one call returns: 14 KiB of them. Most files have fewer.
pub(super) const BATCH_MAX: usize = 256;

/// Flags of an extent, `FIEMAP_EXTENT_*`.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(u32);

impl Flags {
    /// The last extent of the file.
    pub(super) const LAST: Flags = Flags(0x1);
    /// Its place is not known.
    pub(super) const UNKNOWN: Flags = Flags(0x2);
    /// Not written yet, and without a place.
    pub(super) const DELAYED: Flags = Flags(0x4);
    /// In another form.
    pub(super) const ENCODED: Flags = Flags(0x8);
    /// Encrypted; always with `ENCODED`.
    pub(super) const ENCRYPTED: Flags = Flags(0x80);
    /// Begins within a block. Also of inline data and of tails that share a block.
    pub(super) const NOT_ALIGNED: Flags = Flags(0x100);
    /// Within a structure of the file system; always with `NOT_ALIGNED`.
    #[cfg(test)]
    pub(super) const INLINE: Flags = Flags(0x200);
    /// Allocated, and not written.
    pub(super) const UNWRITTEN: Flags = Flags(0x800);

    pub(super) fn contains(self, all: Flags) -> bool {
        self.0 & all.0 == all.0
    }

    pub(super) fn intersects(self, any: Flags) -> bool {
        self.0 & any.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawExtent {
    pub(super) in_file_bytes: u64,
    pub(super) position_bytes: u64,
    pub(super) len_bytes: u64,
    reserved: [u64; 2],
    pub(super) flags: Flags,
    reserved_too: [u32; 3],
}

const _: () = assert!(size_of::<RawExtent>() == 56, "the size of struct fiemap_extent");

/// `struct fiemap` without its extents.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Header {
    start_bytes: u64,
    len_bytes: u64,
    flags: u32,
    mapped_count: u32,
    extents_count: u32,
    reserved: u32,
}

const _: () = assert!(size_of::<Header>() == 32, "the size of struct fiemap");

/// `struct fiemap` with room for extents.
#[repr(C)]
pub(super) struct Batch {
    header: Header,
    extents: [RawExtent; BATCH_MAX],
}

impl Batch {
    /// Returns the extents of an open file from a byte of it on, as many as fit.
    pub(super) fn from(file: &File, start_bytes: u64) -> io::Result<Box<Batch>> {
        // The number has the size of the structure without extents.
        const FS_IOC_FIEMAP: Opcode = opcode::read_write::<Header>(b'f', 11);
        let header = Header {
            start_bytes,
            len_bytes: u64::MAX - start_bytes,
            // Without `FIEMAP_FLAG_SYNC`: nothing is written.
            flags: 0,
            mapped_count: 0,
            extents_count: BATCH_MAX as u32,
            reserved: 0,
        };
        let mut batch = Box::new(Batch { header, extents: [RawExtent::default(); BATCH_MAX] });
        // SAFETY: the call reads and writes one `struct fiemap` with as many extents as its `extents_count`
        // says. `Batch` has its layout, and that many of them; all bit patterns are valid for its integers.
        unsafe { ioctl(file, Updater::<FS_IOC_FIEMAP, Batch>::new(&mut batch)) }.map_err(
            |error| match error {
                // Of a file system without it, and of a kind of file that has none.
                Errno::NOTTY | Errno::OPNOTSUPP => io::Error::from(io::ErrorKind::Unsupported),
                error => error.into(),
            },
        )?;
        Ok(batch)
    }

    pub(super) fn extents(&self) -> &[RawExtent] {
        &self.extents[..BATCH_MAX.min(self.header.mapped_count as usize)]
    }
}
