//! `pumice check --files`: the files that lost bytes of a drive belong to.

mod above;
mod overlap;
mod tally;
mod walk;

use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use indicatif::ProgressBar;
use serde_json::{Value, json};
use status::{LOST_RANGES_MAX, ScrubReport, path_text, shown};

use crate::{human, progress, usage};
use above::FileSystem;
pub(in crate::check) use above::find;
use overlap::Lost;
use tally::{Part, Piece, Tally};

/// Update interval of the progress bar.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// The file systems of a drive, and what of its lost bytes is in their files.
pub(super) struct Found {
    file_systems: Vec<FileSystem>,
    tally: Tally,
    /// Lost bytes in these file systems that are in no file that was examined.
    not_in_files: Vec<Range<u64>>,
    /// Lost bytes in none of them.
    outside: Vec<Range<u64>>,
}

/// Looks for the lost bytes of a scrub in all files of the file systems.
pub(super) fn search(file_systems: Vec<FileSystem>, scrub: &ScrubReport) -> Result<Found> {
    let range = |it: &status::LostRange| {
        it.logical_offset_bytes..it.logical_offset_bytes.saturating_add(it.logical_len_bytes)
    };
    let lost = Lost::new(scrub.lost_ranges.iter().map(range));
    if lost.bytes() < scrub.lost_bytes {
        usage::complain(&format!(
            "warning: files are named of the first {LOST_RANGES_MAX} ranges of lost bytes, {} of {}: restore them, \
             and scrub again",
            human::bytes(lost.bytes()),
            human::bytes(scrub.lost_bytes)
        ));
    }
    if scrub.faults_count > 0 && scrub.lost_bytes == 0 {
        bail!("its server does not report which bytes are lost: restart it with this version of pumice");
    }
    let bar = ProgressBar::no_length();
    bar.enable_steady_tick(PROGRESS_INTERVAL);
    progress::set_style(&bar, "{spinner} {pos} files and directories examined, {elapsed}");
    let mut tally = Tally::default();
    for file_system in &file_systems {
        walk::walk(file_system, &lost, &mut tally, &bar)?;
    }
    bar.finish_and_clear();
    let inside = Lost::new(file_systems.iter().map(|it| it.on_drive.clone()));
    let outside = lost.without(inside.ranges());
    let known: Vec<Range<u64>> = tally.covered().iter().chain(&outside).cloned().collect();
    let not_in_files = lost.without(Lost::new(known).ranges());
    Ok(Found { file_systems, tally, not_in_files, outside })
}

impl Found {
    pub(super) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        for FileSystem { kind, point, device, on_drive, .. } in &self.file_systems {
            let (point, device) = (shown(point), device.display());
            writeln!(
                out,
                "searched: {kind} at {point}, on {device} from byte {} of the drive on",
                on_drive.start
            )?;
        }
        let tally = &self.tally;
        writeln!(out, "searched: {} files and directories", tally.examined_count)?;
        for Piece { path, part, on_drive } in tally.pieces() {
            let (path, at) = (shown(path), logical(on_drive));
            match part {
                Part::Bytes(it) => {
                    writeln!(out, "file: {path}, bytes {} to {}, at {at}", it.start, it.end - 1)?
                }
                Part::Unused => {
                    writeln!(out, "file: {path}, allocated and not in use, nothing lost, at {at}")?
                }
                Part::Directory => writeln!(out, "directory: {path}, at {at}")?,
            }
        }
        more(out, "file", tally.pieces_count, tally.pieces().len())?;
        for range in &self.not_in_files {
            writeln!(out, "not in a file: metadata or free space, at {}", logical(range))?;
        }
        for range in &self.outside {
            writeln!(out, "not in a file system that was searched: {}", logical(range))?;
        }
        for (path, why) in tally.unexamined() {
            writeln!(out, "not examined: {}: {why}", shown(path))?;
        }
        more(out, "not examined", tally.unexamined_count, tally.unexamined().len())
    }

    pub(super) fn json(&self) -> Value {
        let file_system = |it: &FileSystem| {
            json!({
                "mount_point": path_text(&it.point),
                "kind": it.kind,
                "device": path_text(&it.device),
                "logical_offset_bytes": it.on_drive.start,
                "logical_len_bytes": it.on_drive.end - it.on_drive.start,
            })
        };
        let ranges = |ranges: &[Range<u64>]| {
            let range = |it: &Range<u64>| {
                let (start, len) = (it.start, it.end - it.start);
                json!({ "logical_offset_bytes": start, "logical_len_bytes": len })
            };
            ranges.iter().map(range).collect::<Vec<_>>()
        };
        let tally = &self.tally;
        let unexamined = |(path, why): &(PathBuf, String)| json!({ "path": path_text(path), "reason": why });
        json!({
            "file_systems": self.file_systems.iter().map(file_system).collect::<Vec<_>>(),
            "examined_count": tally.examined_count,
            "found": tally.pieces().iter().map(piece).collect::<Vec<_>>(),
            "found_count": tally.pieces_count,
            "not_in_files": ranges(&self.not_in_files),
            "outside": ranges(&self.outside),
            "unexamined": tally.unexamined().iter().map(unexamined).collect::<Vec<_>>(),
            "unexamined_count": tally.unexamined_count,
        })
    }
}

fn piece(Piece { path, part, on_drive }: &Piece) -> Value {
    let (what, in_file) = match part {
        Part::Bytes(in_file) => ("bytes", Some(in_file)),
        Part::Unused => ("unused", None),
        Part::Directory => ("directory", None),
    };
    json!({
        "path": path_text(path),
        "part": what,
        "offset_bytes": in_file.map(|it| it.start),
        "len_bytes": in_file.map(|it| it.end - it.start),
        "logical_offset_bytes": on_drive.start,
        "logical_len_bytes": on_drive.end - on_drive.start,
    })
}

fn logical(range: &Range<u64>) -> String {
    format!("logical bytes {} to {}", range.start, range.end - 1)
}

/// Prints how many there are that are not listed.
fn more(out: &mut impl Write, what: &str, count: u64, listed: usize) -> io::Result<()> {
    match count - listed as u64 {
        0 => Ok(()),
        more => writeln!(out, "{what}: {more} more"),
    }
}

/// Returns why a drive that is not served has no files to name.
pub(super) fn not_served(path: &Path) -> String {
    format!(
        "{}: not being served, so no file system on it is mounted: attach and mount it for --files",
        path.display()
    )
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "these are lists of ranges")]
mod tests {
    use host::extents::Holds;
    use overlap::Hit;

    use super::*;

    fn found() -> Found {
        let mut tally = Tally::default();
        tally.examined_count += 3;
        let hit = |start: u64| Hit { in_file: start..start + 10, on_drive: start + 1000..start + 1010 };
        tally.add(Path::new("/mnt/f"), Some(15), Holds::Bytes, hit(10));
        tally.add(Path::new("/mnt/f"), Some(15), Holds::Nothing, hit(40));
        tally.add(Path::new("/mnt/d"), None, Holds::Bytes, hit(60));
        tally.add_unexamined(Path::new("/mnt/x"), "Input/output error".to_string());
        let file_system = FileSystem {
            point: PathBuf::from("/mnt"),
            kind: "ext4".to_string(),
            device: PathBuf::from("/dev/loop0p1"),
            number: 0,
            on_drive: 1000..9000,
        };
        Found { file_systems: vec![file_system], tally, not_in_files: vec![1100..1200], outside: vec![0..10] }
    }

    #[test]
    fn each_part_is_named() {
        let mut out = Vec::new();
        found().print(&mut out).expect("printed");
        let expected = "searched: ext4 at /mnt, on /dev/loop0p1 from byte 1000 of the drive on\n\
            searched: 3 files and directories\n\
            file: /mnt/f, bytes 10 to 14, at logical bytes 1010 to 1019\n\
            file: /mnt/f, allocated and not in use, nothing lost, at logical bytes 1040 to 1049\n\
            directory: /mnt/d, at logical bytes 1060 to 1069\n\
            not in a file: metadata or free space, at logical bytes 1100 to 1199\n\
            not in a file system that was searched: logical bytes 0 to 9\n\
            not examined: /mnt/x: Input/output error\n";
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    /// Other tests compare the rest of the document.
    #[test]
    fn the_schema_describes_each_field() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema/check.json");
        let schema: Value =
            serde_json::from_str(&std::fs::read_to_string(file).expect("a schema")).expect("JSON");
        let of_served = schema["oneOf"].as_array().expect("a list").last().expect("one");
        let files = &of_served["properties"]["files"];
        assert!(jsonschema::validator_for(files).expect("a schema").is_valid(&found().json()));
        let mut left = vec![(files.clone(), found().json())];
        while let Some((schema, value)) = left.pop() {
            match value {
                Value::Object(members) => {
                    let required: Vec<&Value> = schema["required"].as_array().expect("keys").iter().collect();
                    assert_eq!(required, members.keys().collect::<Vec<_>>(), "{schema}");
                    left.extend(
                        members.into_iter().map(|(key, it)| (schema["properties"][&key].clone(), it)),
                    );
                }
                Value::Array(items) => left.extend(items.into_iter().map(|it| (schema["items"].clone(), it))),
                _ => assert!(!schema.is_null(), "{value} is not described"),
            }
        }
    }
}
