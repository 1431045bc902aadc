//! All files of a file system, and where they are on the drive.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use anyhow::{Result, bail};
use host::extents::each_extent;
use indicatif::ProgressBar;
use status::shown;
use walkdir::WalkDir;

use super::above::FileSystem;
use super::overlap::{Lost, hits};
use super::tally::Tally;

/// Examines all files and directories of a file system. Does not enter others that are mounted below it.
pub(super) fn walk(
    file_system: &FileSystem,
    lost: &Lost,
    tally: &mut Tally,
    bar: &ProgressBar,
) -> Result<()> {
    let entries = WalkDir::new(&file_system.point).follow_links(false).same_file_system(true);
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                let why = error.io_error().map_or_else(|| error.to_string(), ToString::to_string);
                tally.add_unexamined(error.path().unwrap_or(&file_system.point), why);
                continue;
            }
        };
        let kind = entry.file_type();
        if !kind.is_file() && !kind.is_dir() {
            continue;
        }
        match examine(entry.path(), file_system, lost, tally) {
            Ok(()) => {}
            // XFS does not tell it of directories: those count as metadata.
            Err(error) if error.kind() == ErrorKind::Unsupported && kind.is_dir() => {}
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                let (kind, point) = (&file_system.kind, shown(&file_system.point));
                bail!("{point}: {kind} does not report where its files are (FIEMAP)");
            }
            // Deleted meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => tally.add_unexamined(entry.path(), error.to_string()),
        }
        tally.examined_count += 1;
        bar.set_position(tally.examined_count);
    }
    Ok(())
}

fn examine(path: &Path, file_system: &FileSystem, lost: &Lost, tally: &mut Tally) -> io::Result<()> {
    let Some((file, metadata)) = open(path, file_system.number)? else { return Ok(()) };
    let file_bytes = metadata.is_file().then_some(metadata.len());
    each_extent(&file, |extent| {
        for hit in hits(lost, &file_system.on_drive, &extent) {
            tally.add(path, file_bytes, extent.holds, hit);
        }
    })
}

/// Opens a file or directory of the file system with a device number. `None` if it is something else by now,
/// or of another file system, which is mounted over it. Reads nothing, and waits for nothing.
fn open(path: &Path, number: u64) -> io::Result<Option<(File, Metadata)>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let metadata = file.metadata()?;
    let is_its = metadata.dev() == number && (metadata.is_file() || metadata.is_dir());
    Ok(is_its.then_some((file, metadata)))
}
