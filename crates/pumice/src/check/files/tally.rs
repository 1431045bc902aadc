//! What a search has found.

use std::ops::Range;
use std::path::{Path, PathBuf};

use host::extents::Holds;

use super::overlap::{Hit, Lost};

/// Most parts of files listed. All are counted.
const PIECES_MAX: usize = 100_000;
/// Most files listed that could not be examined. All are counted.
const UNEXAMINED_MAX: usize = 100;
/// Number of places of files kept before those that touch are joined.
const COVERED_MAX: usize = 1 << 16;

/// The part of a file that is on lost bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Bytes of the file.
    Bytes(Range<u64>),
    /// Space of the file without bytes of it: not written yet, or behind its end.
    Unused,
    /// Names of a directory.
    Directory,
}

/// A part of a file or directory that is on lost bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) path: PathBuf,
    pub(super) part: Part,
    /// Bytes of the drive.
    pub(super) on_drive: Range<u64>,
}

/// What a search has found so far.
#[derive(Default)]
pub(super) struct Tally {
    /// Number of files and directories examined.
    pub(super) examined_count: u64,
    /// Number of all pieces.
    pub(super) pieces_count: u64,
    pieces: Vec<Piece>,
    covered: Vec<Range<u64>>,
    /// Number of all files and directories that could not be examined.
    pub(super) unexamined_count: u64,
    unexamined: Vec<(PathBuf, String)>,
}

impl Tally {
    /// The pieces listed.
    pub(super) fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// Some of the files that could not be examined, each with the reason.
    pub(super) fn unexamined(&self) -> &[(PathBuf, String)] {
        &self.unexamined
    }

    /// Lost bytes that are in files.
    pub(super) fn covered(&self) -> &[Range<u64>] {
        &self.covered
    }

    pub(super) fn add_unexamined(&mut self, path: &Path, why: String) {
        self.unexamined_count += 1;
        if self.unexamined.len() < UNEXAMINED_MAX {
            self.unexamined.push((path.to_path_buf(), why));
        }
    }

    /// Adds a lost part of an extent. `file_bytes`: length of the file; `None` for a directory.
    pub(super) fn add(&mut self, path: &Path, file_bytes: Option<u64>, holds: Holds, hit: Hit) {
        let Hit { in_file, on_drive } = hit;
        self.covered.push(on_drive.clone());
        if self.covered.len() >= COVERED_MAX.max(2 * self.pieces.len()) {
            self.covered = Lost::new(std::mem::take(&mut self.covered)).ranges().to_vec();
        }
        let part = match (file_bytes, holds) {
            (None, _) => Part::Directory,
            (Some(_), Holds::Nothing) => Part::Unused,
            (Some(len), _) if in_file.start >= len => Part::Unused,
            (Some(len), _) => Part::Bytes(in_file.start..in_file.end.min(len)),
        };
        if let Some(last) = self.pieces.last_mut()
            && last.path == path
            && let Some(joined) = joined(&last.part, &part)
            && last.on_drive.end == on_drive.start
        {
            last.part = joined;
            last.on_drive.end = on_drive.end;
            return;
        }
        self.pieces_count += 1;
        if self.pieces.len() < PIECES_MAX {
            self.pieces.push(Piece { path: path.to_path_buf(), part, on_drive });
        }
    }
}

/// Returns two parts of one file as one, if they are adjacent.
fn joined(one: &Part, next: &Part) -> Option<Part> {
    match (one, next) {
        (Part::Bytes(one), Part::Bytes(next)) => {
            (one.end == next.start).then_some(Part::Bytes(one.start..next.end))
        }
        (Part::Unused, Part::Unused) | (Part::Directory, Part::Directory) => Some(one.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(in_file: Range<u64>, on_drive: Range<u64>) -> Hit {
        Hit { in_file, on_drive }
    }

    fn found(tally: &Tally) -> Vec<(Part, Range<u64>)> {
        tally.pieces().iter().map(|it| (it.part.clone(), it.on_drive.clone())).collect()
    }

    #[test]
    fn bytes_end_with_the_file() {
        let mut tally = Tally::default();
        let mut add = |holds, it| tally.add(Path::new("/f"), Some(100), holds, it);
        add(Holds::Bytes, hit(0..50, 1000..1050));
        add(Holds::Bytes, hit(64..128, 2000..2064));
        add(Holds::Bytes, hit(128..192, 3000..3064));
        add(Holds::Nothing, hit(0..50, 4000..4050));
        let unused = |range| (Part::Unused, range);
        assert_eq!(
            found(&tally),
            [
                (Part::Bytes(0..50), 1000..1050),
                (Part::Bytes(64..100), 2000..2064),
                unused(3000..3064),
                unused(4000..4050)
            ]
        );
        assert_eq!(Lost::new(tally.covered().to_vec()).bytes(), 50 + 64 + 64 + 50);
    }

    #[test]
    fn adjacent_parts_of_one_file_are_one() {
        let mut tally = Tally::default();
        tally.add(Path::new("/f"), Some(900), Holds::Bytes, hit(0..50, 1000..1050));
        tally.add(Path::new("/f"), Some(900), Holds::Bytes, hit(50..60, 1050..1060));
        // Adjacent in the file, not on the drive; then the other way round.
        tally.add(Path::new("/f"), Some(900), Holds::Bytes, hit(60..70, 2000..2010));
        tally.add(Path::new("/f"), Some(900), Holds::Bytes, hit(80..90, 2010..2020));
        tally.add(Path::new("/g"), Some(900), Holds::Bytes, hit(90..99, 2020..2029));
        tally.add(Path::new("/d"), None, Holds::Bytes, hit(0..5, 2029..2034));
        assert_eq!(
            found(&tally),
            [
                (Part::Bytes(0..60), 1000..1060),
                (Part::Bytes(60..70), 2000..2010),
                (Part::Bytes(80..90), 2010..2020),
                (Part::Bytes(90..99), 2020..2029),
                (Part::Directory, 2029..2034)
            ]
        );
        assert_eq!(tally.pieces_count, 5);
    }
}
