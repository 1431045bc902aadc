//! Pages that begin with a magic number and carry a checksum of themselves: superblock, checkpoint header,
//! catalog.

use crate::bytes::{put, u32_at};
use crate::{DecodeError, PAGE_BYTES};

/// Bytes of a magic number.
const MAGIC_BYTES: usize = 8;
/// Bytes of a checksum.
const CRC_BYTES: usize = 4;

/// Signature of one kind of page.
pub(crate) struct PageKind {
    /// For errors.
    pub(crate) what: &'static str,
    pub(crate) magic: [u8; MAGIC_BYTES],
    /// Offset of the CRC32C, which covers the whole page with zeros in its place.
    pub(crate) crc_at: usize,
}

impl PageKind {
    /// Completes a page: magic number and checksum.
    pub(crate) fn seal(&self, page: &mut [u8]) {
        assert_eq!(page.len(), PAGE_BYTES);
        put(page, 0, &self.magic);
        let crc = self.crc(page);
        put(page, self.crc_at, &crc.to_le_bytes());
    }

    /// The page at the beginning of `bytes`, once magic number and checksum hold.
    pub(crate) fn verify<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8; PAGE_BYTES], DecodeError> {
        let Some(page) = bytes.first_chunk::<PAGE_BYTES>() else {
            return Err(DecodeError::Truncated(self.what));
        };
        if page[..MAGIC_BYTES] != self.magic {
            return Err(DecodeError::Magic(self.what));
        }
        match self.crc(page) == u32_at(page, self.crc_at) {
            true => Ok(page),
            false => Err(DecodeError::Checksum(self.what)),
        }
    }

    fn crc(&self, page: &[u8]) -> u32 {
        let (before, rest) = page.split_at(self.crc_at);
        let crc = crc32c::crc32c_append(crc32c::crc32c(before), &[0; CRC_BYTES]);
        crc32c::crc32c_append(crc, &rest[CRC_BYTES..])
    }
}
