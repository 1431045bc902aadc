//! The FUSE protocol, as far as a directory with one file needs it (`linux/fuse.h`, version 7). No I/O.

mod answer;
mod parse;

use rustix::io::Errno;

pub use answer::{Reply, answer, data_header, error_answer, forget_attributes, ok_answer, written_answer};
pub use parse::parse;

/// Name of the file.
pub const FILE_NAME: &str = "drive";
/// Largest write and largest read, in bytes. The kernel splits larger ones.
pub const TRANSFER_BYTES_MAX: u32 = 256 << 10;
/// Bytes in front of the data of a write.
pub const WRITE_HEADER_BYTES: usize = 80;
/// Bytes of the header of an answer.
pub const ANSWER_HEADER_BYTES: usize = 16;

/// Number of the directory.
const DIRECTORY: u64 = 1;
/// Number of the file.
const FILE: u64 = 2;

const NO_SPACE: i32 = Errno::NOSPC.raw_os_error();
const INVALID: i32 = Errno::INVAL.raw_os_error();

/// The kernel refuses answers with this error number and higher ones: they are its own.
const ERRNO_END: i32 = 512;

/// Oldest version of the protocol in which INIT is answered as here.
const OLDEST: (u32, u32) = (7, 23);
/// `FUSE_ASYNC_DIO`: many requests of direct I/O are in flight.
const ASYNC_DIRECT_IO: u64 = 1 << 15;

/// Attributes of the file and its file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Size of the file, in bytes. The kernel keeps it until [`crate::Mount::forget_size`].
    pub size_bytes: u64,
    /// Permissions of the file.
    pub mode: u16,
    /// Size of a block, in bytes.
    pub block_bytes: u32,
}

/// Returns an error number that the kernel accepts in an answer: EIO in place of others.
pub(crate) fn sound_errno(errno: i32) -> i32 {
    if (1..ERRNO_END).contains(&errno) { errno } else { Errno::IO.raw_os_error() }
}

/// A message of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// A request for the drive.
    Request {
        /// Number of the request, for its answer.
        unique: u64,
        /// What is to be done.
        operation: Operation,
    },
    /// A question about the file system, to be answered at once: see [`answer`].
    Question {
        /// Number of the request, for its answer.
        unique: u64,
        /// What is asked.
        question: Question,
    },
    /// Nothing is to be done or answered: FORGET, BATCH_FORGET, INTERRUPT, and what has no number.
    NoAnswer,
}

/// A request for the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// READ.
    Read {
        /// First byte.
        offset: u64,
        /// Bytes; [`TRANSFER_BYTES_MAX`] at most.
        length: u32,
    },
    /// WRITE.
    Write {
        /// First byte.
        offset: u64,
        /// Bytes; [`TRANSFER_BYTES_MAX`] at most.
        length: u32,
    },
    /// FSYNC: what was written becomes durable.
    Flush,
    /// FALLOCATE that punches a hole.
    Trim {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
    /// FALLOCATE of a range of zeros, which keep their space.
    Zeroes {
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
    },
}

impl Operation {
    /// Limits an operation to a file of `size_bytes`. A read is shortened, to nothing behind the end.
    ///
    /// # Errors
    ///
    /// The error number for the answer: ENOSPC for a write, EINVAL for other changes that pass the end.
    pub fn within(self, size_bytes: u64) -> Result<Operation, i32> {
        let has = |offset: u64, length: u64| offset.checked_add(length).is_some_and(|end| end <= size_bytes);
        match self {
            Operation::Read { offset, length } => {
                let length = size_bytes.saturating_sub(offset).min(length.into()) as u32;
                Ok(Operation::Read { offset, length })
            }
            Operation::Write { offset, length } if !has(offset, length.into()) => Err(NO_SPACE),
            Operation::Trim { offset, length } | Operation::Zeroes { offset, length }
                if !has(offset, length) =>
            {
                Err(INVALID)
            }
            Operation::Flush
            | Operation::Write { .. }
            | Operation::Trim { .. }
            | Operation::Zeroes { .. } => Ok(self),
        }
    }

    /// Returns whether it changes the drive: its result must be recorded before it is answered
    /// ([`Area::done`](crate::Area::done)).
    pub fn is_change(self) -> bool {
        matches!(self, Operation::Write { .. } | Operation::Trim { .. } | Operation::Zeroes { .. })
    }
}

impl Question {
    /// Name of a capability that INIT asks for in vain: the file system cannot be used.
    pub fn lacks(&self) -> Option<&'static str> {
        match self {
            Question::Init { major, minor, .. } if (*major, *minor) < OLDEST => Some("version 7.23"),
            Question::Init { flags, .. } if flags & ASYNC_DIRECT_IO == 0 => Some("FUSE_ASYNC_DIO"),
            _ => None,
        }
    }
}

/// A question about the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// INIT: what the kernel can do.
    Init {
        /// Version of the protocol.
        major: u32,
        /// Version within that.
        minor: u32,
        /// Flags of `fuse_init_in`; the upper half is `flags2`.
        flags: u64,
    },
    /// LOOKUP of a name.
    Lookup {
        /// It is the file's, in the directory.
        is_file: bool,
    },
    /// GETATTR.
    GetAttributes {
        /// Number of the inode.
        node: u64,
    },
    /// SETATTR. The size cannot be changed from here; all else is ignored.
    SetAttributes {
        /// Number of the inode.
        node: u64,
        /// New size.
        size_bytes: Option<u64>,
    },
    /// OPEN of the file.
    Open,
    /// OPENDIR.
    OpenDirectory,
    /// READDIR.
    ReadDirectory {
        /// Number of entries to skip.
        skip: u64,
        /// Room in the answer, in bytes.
        room: u32,
    },
    /// STATFS.
    StatFs,
    /// Answered with success, and nothing else: RELEASE, ACCESS, DESTROY and others.
    Nothing,
    /// Answered with this error number: unknown, malformed, or not supported.
    Refused(i32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_are_those_that_the_kernel_accepts() {
        assert_eq!([1, 28, 511].map(sound_errno), [1, 28, 511]);
        assert_eq!([0, -5, 512, i32::MIN, i32::MAX].map(sound_errno), [5; 5]);
    }

    #[test]
    fn reads_end_with_the_file_and_changes_stay_within_it() {
        let read = |offset, length| Operation::Read { offset, length }.within(100);
        assert_eq!(read(90, 10), Ok(Operation::Read { offset: 90, length: 10 }));
        assert_eq!(read(90, 11), Ok(Operation::Read { offset: 90, length: 10 }));
        assert_eq!(read(u64::MAX, 11), Ok(Operation::Read { offset: u64::MAX, length: 0 }));
        let write = |offset, length| Operation::Write { offset, length };
        assert_eq!(write(90, 10).within(100), Ok(write(90, 10)));
        assert_eq!(write(90, 11).within(100), Err(28));
        assert_eq!(write(u64::MAX, 11).within(100), Err(28));
        let changes: [fn(u64, u64) -> Operation; 2] = [
            |offset, length| Operation::Trim { offset, length },
            |offset, length| Operation::Zeroes { offset, length },
        ];
        for change in changes {
            assert_eq!(change(0, 100).within(100), Ok(change(0, 100)));
            assert_eq!(change(0, 101).within(100), Err(22));
            assert_eq!(change(2, u64::MAX).within(100), Err(22));
        }
        assert_eq!(Operation::Flush.within(0), Ok(Operation::Flush));
    }
}
