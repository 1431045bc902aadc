//! Requests of the driver: `struct ublksrv_io_desc`.

use crate::structures::SECTOR_SHIFT;

/// Bytes of `struct ublksrv_io_desc`.
pub(crate) const REQUEST_BYTES: usize = 24;
/// `UBLK_IO_F_FUA`, `UBLK_IO_F_NOUNMAP` without their shift by 8: durable before it is answered; keep it
/// allocated.
const FUA: u32 = 1 << 5;
const NO_UNMAP: u32 = 1 << 7;

/// A request as the driver describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// `UBLK_IO_OP_*`.
    pub operation: u8,
    /// `UBLK_IO_F_*`, shifted by 8.
    pub flags: u32,
    /// Length, in units of 512 bytes.
    pub sectors: u32,
    /// Offset, in units of 512 bytes.
    pub start_sector: u64,
}

/// What a request asks for. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the methods of `device::Device`")]
pub enum Operation {
    Read { offset: u64, length: u32 },
    Write { offset: u64, length: u32, fua: bool },
    Flush,
    Trim { offset: u64, length: u64, fua: bool },
    WriteZeroes { offset: u64, length: u64, unmap: bool, fua: bool },
}

/// A request of a kind that the driver is not asked for: of zones, or newer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown;

impl Request {
    pub(crate) fn decode(bytes: &[u8; REQUEST_BYTES]) -> Request {
        let (words, _) = bytes.as_chunks::<4>();
        let word = |at: usize| u32::from_ne_bytes(words[at]);
        let (pairs, _) = bytes.as_chunks::<8>();
        Request {
            operation: word(0) as u8,
            flags: word(0) >> 8,
            sectors: word(1),
            start_sector: u64::from_ne_bytes(pairs[1]),
        }
    }

    /// Returns what the request asks for.
    ///
    /// # Errors
    /// [`Unknown`] for other kinds of requests, and for more data than fits in 32 bits.
    pub fn operation(&self) -> Result<Operation, Unknown> {
        let (offset, length) = (self.start_sector << SECTOR_SHIFT, u64::from(self.sectors) << SECTOR_SHIFT);
        let data_bytes = || u32::try_from(length).map_err(|_| Unknown);
        let fua = self.flags & FUA != 0;
        // `UBLK_IO_OP_*`.
        Ok(match self.operation {
            0 => Operation::Read { offset, length: data_bytes()? },
            1 => Operation::Write { offset, length: data_bytes()?, fua },
            2 => Operation::Flush,
            3 => Operation::Trim { offset, length, fua },
            5 => Operation::WriteZeroes { offset, length, unmap: self.flags & NO_UNMAP == 0, fua },
            _ => return Err(Unknown),
        })
    }
}

impl Operation {
    /// Bytes of data that are copied from or to the driver.
    pub fn data_bytes(&self) -> usize {
        match *self {
            Operation::Read { length, .. } | Operation::Write { length, .. } => length as usize,
            Operation::Flush | Operation::Trim { .. } | Operation::WriteZeroes { .. } => 0,
        }
    }

    /// Result that reports success to the driver: the bytes that are done. It looks at those of reads and
    /// writes only.
    pub fn done(&self) -> i32 {
        i32::try_from(self.data_bytes()).unwrap_or(i32::MAX)
    }

    /// The same, but a change is durable once it is acknowledged: for a device without a write cache, to
    /// which the kernel sends no flushes.
    #[must_use]
    pub fn durable(mut self) -> Operation {
        match &mut self {
            Operation::Read { .. } | Operation::Flush => {}
            Operation::Write { fua, .. }
            | Operation::Trim { fua, .. }
            | Operation::WriteZeroes { fua, .. } => *fua = true,
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(operation: u8, flags: u32) -> Result<Operation, Unknown> {
        Request { operation, flags, sectors: 8, start_sector: 1 << 33 }.operation()
    }

    #[test]
    fn requests_are_translated() {
        let (offset, length) = (1 << 42, 4096);
        for (flags, fua) in [(0, false), (FUA, true)] {
            let write = Operation::Write { offset, length, fua };
            let trim = Operation::Trim { offset, length: 4096, fua };
            let zeroes = Operation::WriteZeroes { offset, length: 4096, unmap: true, fua };
            for (operation, expected) in [(1, write), (3, trim), (5, zeroes)] {
                assert_eq!(translated(operation, flags), Ok(expected));
                assert_eq!(translated(operation, 0).map(Operation::durable), translated(operation, FUA));
            }
            assert_eq!((write.data_bytes(), write.done(), trim.data_bytes()), (4096, 4096, 0));
        }
        assert_eq!(translated(0, 0), Ok(Operation::Read { offset, length }));
        assert_eq!(translated(2, 0), Ok(Operation::Flush));
        let kept = Operation::WriteZeroes { offset, length: 4096, unmap: false, fua: false };
        assert_eq!(translated(5, NO_UNMAP), Ok(kept));
    }

    #[test]
    fn requests_that_are_not_known_are_refused() {
        // Of zones.
        assert_eq!(translated(10, 0), Err(Unknown));
        let huge = Request { operation: 1, flags: 0, sectors: u32::MAX, start_sector: 0 };
        assert_eq!(huge.operation(), Err(Unknown));
        let long = Request { operation: 3, flags: 0, sectors: u32::MAX, start_sector: 0 };
        let length = 512 * u64::from(u32::MAX);
        assert_eq!(long.operation(), Ok(Operation::Trim { offset: 0, length, fua: false }), "no data");
    }

    #[test]
    fn requests_have_the_bytes_of_the_driver() {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[0..4].copy_from_slice(&(FUA << 8 | 1).to_ne_bytes());
        bytes[4..8].copy_from_slice(&8_u32.to_ne_bytes());
        bytes[8..16].copy_from_slice(&(1_u64 << 33).to_ne_bytes());
        let write = Operation::Write { offset: 1 << 42, length: 4096, fua: true };
        assert_eq!(Request::decode(&bytes).operation(), Ok(write));
    }
}
