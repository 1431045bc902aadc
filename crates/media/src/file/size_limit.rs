//! The largest file that this process may write: `RLIMIT_FSIZE` (`getrlimit(2)`), or what the file system can
//! hold.

use std::fmt;

use rustix::process::{Resource, getrlimit};

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
                write!(
                    f,
                    "files of this process end at {}; raise that limit (`ulimit -f`, ",
                    in_units(*bytes)
                )?;
                f.write_str("`LimitFSIZE=` of a unit)")
            }
            SizeLimit::FileSystem => f.write_str(
                "the file system holds no file of that size; choose a smaller one, or another file system",
            ),
        }
    }
}

/// Formats bytes exactly, in the largest unit of which they are a multiple: `50 MiB`, `4097 bytes`.
pub(super) fn in_units(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    match bytes.trailing_zeros() as usize / 10 {
        power @ 1..=6 if bytes > 0 => format!("{} {}", bytes >> (10 * power), UNITS[power - 1]),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1 << 10, "1 KiB"),
            (50 << 20, "50 MiB"),
            ((1 << 30) + 4096, "1048580 KiB"),
            (u64::MAX, "18446744073709551615 bytes"),
            (1 << 63, "8 EiB"),
        ] {
            assert_eq!(in_units(bytes), text);
        }
    }
}
