//! Extents of files: where on its device a file system keeps them (`Documentation/filesystems/fiemap.rst` of
//! Linux).

#[allow(unsafe_code)]
mod fiemap;

use std::fs::File;
use std::io;
use std::ops::Range;

use fiemap::{Batch, Flags};

/// An extent of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Bytes of the file.
    pub in_file: Range<u64>,
    /// First byte on the device.
    pub position_bytes: u64,
    /// What it holds.
    pub holds: Holds,
}

/// Contents of an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The bytes of the file, one for one.
    Bytes,
    /// The bytes in another form (compressed), which may be shorter.
    Encoded,
    /// Nothing: it is allocated, and reads as zeros until it is written.
    Nothing,
}

/// Calls `each` with the extents of an open file or directory, in the order of the file. Extents without a
/// place on the device are left out: data that is not written yet, and data within the file system's own
/// structures whose place it does not tell. Writes nothing, not even what waits to be written.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] if the file system does not tell, and any error of reading its structures.
pub fn each_extent(file: &File, mut each: impl FnMut(Extent)) -> io::Result<()> {
    let mut start = 0;
    loop {
        let batch = Batch::from(file, start)?;
        for raw in batch.extents() {
            let end = raw.in_file_bytes.saturating_add(raw.len_bytes);
            if let Some(holds) = holds(raw.flags, raw.position_bytes) {
                each(Extent { in_file: raw.in_file_bytes..end, position_bytes: raw.position_bytes, holds });
            }
            if raw.flags.contains(Flags::LAST) {
                return Ok(());
            }
            // No end without progress, whatever the file system answers.
            if end <= start {
                return Err(io::Error::other("its extents are not in order"));
            }
            start = end;
        }
        if batch.extents().is_empty() {
            return Ok(());
        }
    }
}

/// Returns what an extent holds; `None` if its place is not known.
fn holds(flags: Flags, position: u64) -> Option<Holds> {
    // Of inline data only some file systems tell the place. The first bytes of a device belong to no file.
    let is_nowhere = flags.intersects(Flags::NOT_ALIGNED) && position == 0;
    if flags.intersects(Flags::UNKNOWN | Flags::DELAYED) || is_nowhere {
        return None;
    }
    Some(if flags.contains(Flags::UNWRITTEN) {
        Holds::Nothing
    } else if flags.contains(Flags::ENCODED) && !flags.contains(Flags::ENCRYPTED) {
        Holds::Encoded
    } else {
        // Encrypted data is as long as the plain data.
        Holds::Bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_tell_what_an_extent_holds() {
        let at = |flags, position| holds(flags, position);
        assert_eq!(at(Flags::LAST, 4096), Some(Holds::Bytes));
        assert_eq!(at(Flags::UNKNOWN | Flags::DELAYED, 0), None);
        assert_eq!(at(Flags::UNKNOWN, 4096), None);
        assert_eq!(at(Flags::UNWRITTEN, 4096), Some(Holds::Nothing));
        assert_eq!(at(Flags::ENCODED, 4096), Some(Holds::Encoded));
        assert_eq!(at(Flags::ENCODED | Flags::ENCRYPTED, 4096), Some(Holds::Bytes));
        let inline = Flags::NOT_ALIGNED | Flags::INLINE;
        assert_eq!((at(inline, 0), at(inline, 70_000)), (None, Some(Holds::Bytes)));
    }

    #[test]
    fn a_file_system_that_does_not_tell_is_an_error() {
        let file = File::open("/proc/self/status").expect("open");
        let error = each_extent(&file, |_| ()).expect_err("refused");
        assert_eq!(error.kind(), io::ErrorKind::Unsupported, "{error:?}");
    }

    /// More extents than one call returns, where the file system tells them.
    #[test]
    fn extents_and_holes_of_a_file() -> io::Result<()> {
        use std::os::unix::fs::FileExt;
        const STEP: u64 = 1 << 20;
        let count = fiemap::BATCH_MAX as u64 + 10;
        let file = tempfile::tempfile_in(".")?;
        for at in 0..count {
            file.write_all_at(&[1; 4096], at * STEP)?;
        }
        file.sync_all()?;
        let mut found = Vec::new();
        match each_extent(&file, |extent| found.push(extent)) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                eprintln!("skipped: the file system here tells no places of files");
                return Ok(());
            }
            other => other?,
        }
        let starts: Vec<u64> = found.iter().map(|it| it.in_file.start).collect();
        assert_eq!(starts, (0..count).map(|at| at * STEP).collect::<Vec<_>>(), "{found:?}");
        Ok(())
    }
}
