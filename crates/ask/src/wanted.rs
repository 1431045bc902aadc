//! The drive that a search is for, by its id and its file. Several servers may have opened a drive by one
//! path: one before its file was deleted or moved, another one what is there now. Copies of a drive have the
//! same id.

use std::path::Path;

use status::{FileId, StatusReport};

use crate::other_file::OtherFile;

/// A drive in a file or device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Id of the drive.
    uuid: String,
    /// File that it is in; `None` if that is unknown: a server of an older program.
    file: Option<FileId>,
}

/// How well a report fits the drive that a search is for. The best one is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fit {
    /// Another drive, or one whose file is no longer at the path.
    Other,
    /// A copy of the drive in another file that was at the path earlier.
    Copy,
    /// The drive in another file, to which the path leads now: it may have been restored.
    Restored,
    /// The drive itself. No other report is waited for.
    Its,
}

impl Wanted {
    pub(crate) fn new(uuid: &str, file: Option<&FileId>) -> Wanted {
        Wanted { uuid: uuid.to_string(), file: file.cloned() }
    }

    pub(crate) fn of(report: &StatusReport) -> Wanted {
        Wanted::new(&report.uuid, report.backing.file.as_ref())
    }

    /// Returns whether a report is that of the very drive in the very file, whatever the path.
    pub(crate) fn is_in(&self, report: &StatusReport) -> bool {
        self.file.is_some() && self.uuid == report.uuid && self.file == report.backing.file
    }

    /// Returns how well a report fits that a server gives for `path`.
    fn fit(&self, report: &StatusReport, path: &Path) -> Fit {
        if self.uuid != report.uuid {
            return Fit::Other;
        }
        match (&self.file, &report.backing.file) {
            (Some(wanted), Some(found)) if wanted != found => match leads_to(path, report) {
                true => Fit::Restored,
                false => Fit::Copy,
            },
            _ => Fit::Its,
        }
    }
}

impl Fit {
    /// Returns how well a report fits that a server gives for `path`. If it is not known which drive is
    /// `wanted`, one whose file is in its place.
    pub(crate) fn of(report: &StatusReport, path: &Path, wanted: Option<&Wanted>) -> Fit {
        match wanted {
            Some(wanted) => wanted.fit(report, path),
            None if report.backing.place.advice().is_some() => Fit::Other,
            None => Fit::Its,
        }
    }
}

/// Returns whether `path` leads to the file or device that a server reports, and the drive is in it. Reads
/// the superblock there.
pub fn leads_to(path: &Path, report: &StatusReport) -> bool {
    matches!(OtherFile::check(path, report.clone()), Ok(Some(_)))
}
