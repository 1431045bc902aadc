//! The largest file that this process may write: `RLIMIT_FSIZE` (`getrlimit(2)`), or what the file system can
//! hold.

use std::fmt;

use rustix::process::{Resource, getrlimit};

use crate::exact_size;

/// The limit that a file meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SizeLimit {
    /// Of the process, in bytes.
    Process(u64),
    /// Of the file system.
    FileSystem,
}

impl SizeLimit {
    /// Returns the limit of this process if a file of `size_bytes` is beyond it.
    pub(super) fn below(size_bytes: u64) -> Option<SizeLimit> {
        let limit = getrlimit(Resource::Fsize).current?;
        (limit < size_bytes).then_some(SizeLimit::Process(limit))
    }

    /// Returns the limit that refused a file of `size_bytes` (`EFBIG`).
    pub(super) fn of_refused(size_bytes: u64) -> SizeLimit {
        SizeLimit::below(size_bytes).unwrap_or(SizeLimit::FileSystem)
    }
}

impl fmt::Display for SizeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeLimit::Process(bytes) => {
                let end = exact_size(*bytes);
                write!(f, "files of this process end at {end}; raise that limit (`ulimit -f`, ")?;
                f.write_str("`LimitFSIZE=` of a unit)")
            }
            SizeLimit::FileSystem => f.write_str(
                "the file system holds no file of that size; choose a smaller one, or another file system",
            ),
        }
    }
}
