//! Requests of the kernel, as the bridge passes them on.

use nbd::protocol as wire;
use rustix::io::Errno;

/// A request for the drive. Offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the NBD request")]
pub enum Operation {
    Read { offset: u64, length: u32 },
    Write { offset: u64, data: Vec<u8>, fua: bool },
    Flush,
    Trim { offset: u64, length: u32, fua: bool },
    WriteZeroes { offset: u64, length: u32, no_hole: bool, fua: bool },
}

/// Result of a request: the data of a read, nothing otherwise.
pub type Outcome = Result<Vec<u8>, Errno>;

/// Called with the result of a request, once. It may run on any thread, and must not wait.
pub type Done = Box<dyn FnOnce(Outcome) + Send>;

/// Request of the NBD protocol without its cookie and data.
pub(crate) struct Header {
    pub(crate) command: u16,
    pub(crate) flags: u16,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

impl Operation {
    /// The range that the request changes, if it changes any.
    pub(crate) fn changes(&self) -> Option<(u64, u64)> {
        let (offset, length) = match self {
            Operation::Read { .. } | Operation::Flush => return None,
            Operation::Write { offset, data, .. } => (*offset, data.len() as u64),
            Operation::Trim { offset, length, .. } | Operation::WriteZeroes { offset, length, .. } => {
                (*offset, u64::from(*length))
            }
        };
        Some((offset, offset.saturating_add(length)))
    }

    /// Whether a change is durable once it is acknowledged.
    pub(crate) fn is_durable(&self) -> bool {
        match self {
            Operation::Read { .. } | Operation::Flush => false,
            Operation::Write { fua, .. }
            | Operation::Trim { fua, .. }
            | Operation::WriteZeroes { fua, .. } => *fua,
        }
    }

    /// The same request, but a change is durable once it is acknowledged.
    pub(crate) fn durable(mut self) -> Operation {
        match &mut self {
            Operation::Read { .. } | Operation::Flush => {}
            Operation::Write { fua, .. }
            | Operation::Trim { fua, .. }
            | Operation::WriteZeroes { fua, .. } => *fua = true,
        }
        self
    }

    /// The same change of a range within its own.
    pub(crate) fn part(&self, start: u64, end: u64) -> Operation {
        let length = (end - start) as u32;
        match *self {
            Operation::Write { offset, ref data, fua } => {
                let within = (start - offset) as usize..(end - offset) as usize;
                Operation::Write { offset: start, data: data[within].to_vec(), fua }
            }
            Operation::Trim { fua, .. } => Operation::Trim { offset: start, length, fua },
            Operation::WriteZeroes { no_hole, fua, .. } => {
                Operation::WriteZeroes { offset: start, length, no_hole, fua }
            }
            Operation::Read { .. } => Operation::Read { offset: start, length },
            Operation::Flush => Operation::Flush,
        }
    }

    /// Data that is sent with the request.
    pub(crate) fn data(&self) -> &[u8] {
        match self {
            Operation::Write { data, .. } => data,
            _ => &[],
        }
    }

    pub(crate) fn header(&self) -> Header {
        let flag = |set: bool, flag: u16| if set { flag } else { 0 };
        match *self {
            Operation::Read { offset, length } => {
                Header { command: wire::CMD_READ, flags: 0, offset, length }
            }
            Operation::Write { offset, ref data, fua } => Header {
                command: wire::CMD_WRITE,
                flags: flag(fua, wire::CMD_FLAG_FUA),
                offset,
                length: data.len() as u32,
            },
            Operation::Flush => Header { command: wire::CMD_FLUSH, flags: 0, offset: 0, length: 0 },
            Operation::Trim { offset, length, fua } => {
                Header { command: wire::CMD_TRIM, flags: flag(fua, wire::CMD_FLAG_FUA), offset, length }
            }
            Operation::WriteZeroes { offset, length, no_hole, fua } => Header {
                command: wire::CMD_WRITE_ZEROES,
                flags: flag(fua, wire::CMD_FLAG_FUA) | flag(no_hole, wire::CMD_FLAG_NO_HOLE),
                offset,
                length,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_durable_where_no_flush_follows() {
        let (offset, length) = (4096, 8192);
        let all = |fua| {
            [
                Operation::Write { offset, data: vec![7; 512], fua },
                Operation::Trim { offset, length, fua },
                Operation::WriteZeroes { offset, length, no_hole: true, fua },
            ]
        };
        for (change, expected) in all(false).into_iter().zip(all(true)) {
            assert_eq!(change.durable(), expected);
        }
        for other in [Operation::Read { offset, length }, Operation::Flush] {
            assert_eq!(other.clone().durable(), other);
        }
    }
}
