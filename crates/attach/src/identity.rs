//! Identity of an attached drive: it detects that something else is served in its place.

use std::path::Path;

use ask::{DriveSearch, leads_to};
use serde::{Deserialize, Serialize};
use status::{FileId, StatusReport};

/// A drive at one point in time. Later states of the same drive follow this one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Id of the drive. Copies of it have the same.
    #[serde(rename = "drive_uuid")]
    pub uuid: String,
    /// The file that its server has open, which distinguishes copies; `None` if the server does not report
    /// it.
    #[serde(rename = "drive_file", default)]
    pub file: Option<FileId>,
    /// Grows with each wipe; `None` if its server does not report it.
    #[serde(default)]
    pub incarnation: Option<u64>,
    /// Number of the newest pack of its log that is durable. It only grows.
    #[serde(default)]
    pub durable_sequence: u64,
    /// Number of its openings for writing.
    #[serde(rename = "drive_opens_count", default)]
    pub opens_count: u64,
    /// Id of the newest one; empty if it is not known.
    #[serde(rename = "drive_opening_id", default)]
    pub opening_id: String,
}

impl Identity {
    /// The drive that a server reports.
    pub(crate) fn of(report: &StatusReport) -> Identity {
        Identity {
            uuid: report.uuid.clone(),
            file: report.backing.file.clone(),
            incarnation: report.incarnation,
            durable_sequence: report.cleaning.durable_sequence,
            opens_count: report.opens_count,
            opening_id: report.opening_ids.first().cloned().unwrap_or_default(),
        }
    }

    /// The drive that a server reports, which is a later state. One of an older program does not report
    /// openings.
    pub(crate) fn followed_by(&self, report: &StatusReport) -> Identity {
        let later = Identity::of(report);
        match later.opening_id.is_empty() {
            true => Identity { opens_count: self.opens_count, opening_id: self.opening_id.clone(), ..later },
            false => later,
        }
    }

    /// A search for the server of the drive, which was attached by `path`.
    pub(crate) fn search(&self, path: &Path) -> DriveSearch {
        DriveSearch::new(path).for_drive(&self.uuid, self.file.as_ref())
    }

    /// Returns whether a server that opened a drive by `path` has a different drive: one that was at the path
    /// earlier, or a copy. `false` for a drive in a different file that is at the path now: it may have been
    /// restored, and [`Identity::check`] decides.
    pub(crate) fn is_elsewhere(&self, report: &StatusReport, path: &Path) -> bool {
        let is_other_file =
            self.file.is_some() && report.backing.file.is_some() && self.file != report.backing.file;
        (is_other_file || self.uuid != report.uuid) && !leads_to(path, report)
    }

    /// Checks that a server reports a later state of the same drive.
    ///
    /// # Errors
    ///
    /// [`DifferentDrive`] says what it is instead.
    pub(crate) fn check(&self, report: &StatusReport) -> Result<(), DifferentDrive> {
        let later = Identity::of(report);
        if self.uuid != later.uuid {
            return Err(DifferentDrive::Other);
        }
        if let (Some(known), Some(found)) = (self.incarnation, later.incarnation)
            && known != found
        {
            return Err(DifferentDrive::Wiped);
        }
        if self.durable_sequence > later.durable_sequence {
            return Err(DifferentDrive::Older {
                ends_at: later.durable_sequence,
                known_durable: self.durable_sequence,
            });
        }
        match self.opening_id.is_empty() || later.opening_id.is_empty() || self.may_be_among(report) {
            true => Ok(()),
            false => Err(DifferentDrive::Parted { opening: self.opens_count }),
        }
    }

    /// Returns whether the newest opening, with all that was acknowledged in it, may be among those that a
    /// server reports. Openings that are not known may be any.
    fn may_be_among(&self, report: &StatusReport) -> bool {
        let since = report.opens_count.checked_sub(self.opens_count);
        let since = since.map(|since| usize::try_from(since).unwrap_or(usize::MAX));
        since.is_some_and(|since| report.opening_ids.get(since).is_none_or(|id| *id == self.opening_id))
    }
}

/// Reason why a drive is not a later state of the attached one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DifferentDrive {
    /// Its id differs.
    #[error("another drive is being served from this path")]
    Other,
    /// Its incarnation differs.
    #[error("the drive was wiped since it was attached")]
    Wiped,
    /// Its log ends before a pack that was durable.
    #[error(
        "an older state of the drive is being served, such as a copy: its log ends at pack {ends_at}, and pack \
         {known_durable} was durable"
    )]
    Older {
        /// Number of the last durable pack of its log.
        ends_at: u64,
        /// Number of the last pack that was known to be durable.
        known_durable: u64,
    },
    /// It has not had the opening to which the device was connected, or not all that was acknowledged in it.
    #[error(
        "another copy of the drive is being served: it lacks opening {opening}, to which the device was connected, or \
         a part of it"
    )]
    Parted {
        /// Number of that opening.
        opening: u64,
    },
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn only_later_states_of_the_same_drive_follow() {
        let of = |uuid: &str, incarnation, durable_sequence| {
            let mut report = StatusReport { uuid: uuid.to_string(), incarnation, ..StatusReport::default() };
            report.cleaning.durable_sequence = durable_sequence;
            report
        };
        let known = Identity::of(&of("a", Some(1), 7));
        for (later, why) in [
            (of("a", Some(1), 7), None),
            (of("a", Some(1), 8), None),
            (of("a", None, 8), None),
            (of("b", Some(1), 8), Some("another drive")),
            (of("a", Some(2), 8), Some("wiped")),
            (of("a", Some(1), 6), Some("older state")),
        ] {
            match (known.check(&later), why) {
                (Ok(()), None) => {}
                (Err(said), Some(why)) => assert!(said.to_string().contains(why), "{said}"),
                (said, why) => panic!("{later:?}: {said:?}, {why:?}"),
            }
        }
        let of_older_program = Identity::of(&of("a", None, 0));
        assert_eq!(of_older_program.check(&of("a", Some(1), 7)), Ok(()));
    }

    fn opened(opens_count: u64, ids: &[&str]) -> StatusReport {
        let opening_ids = ids.iter().map(ToString::to_string).collect();
        StatusReport { opens_count, opening_ids, ..StatusReport::default() }
    }

    #[test]
    fn a_copy_that_went_on_without_the_last_opening_does_not_follow() {
        let known = Identity::of(&opened(7, &["g", "f"]));
        for (later, follows) in [
            (opened(7, &["g", "f"]), true),
            (opened(8, &["h", "g", "f"]), true),
            (opened(10, &["k", "i", "h", "g"]), true),
            (opened(10, &["k", "i"]), true),
            (opened(9, &[]), true),
            (opened(6, &["f"]), false),
            (opened(7, &["x", "f"]), false),
            (opened(8, &["h", "x", "f"]), false),
            (opened(10, &["k", "i", "h", "x", "f"]), false),
        ] {
            let checked = known.check(&later);
            assert_eq!(checked.is_ok(), follows, "{later:?}: {checked:?}");
        }
        let unknown = Identity::of(&opened(9, &[]));
        assert_eq!(unknown.check(&opened(2, &["b"])), Ok(()), "a server that does not tell");
    }

    #[test]
    fn a_server_of_an_older_program_leaves_the_opening_known() {
        let known = Identity::of(&opened(7, &["g", "f"]));
        let since = known.followed_by(&opened(8, &[]));
        assert!(since.check(&opened(8, &["x", "f"])).is_err());
        assert_eq!(since.check(&opened(9, &["i", "h"])), Ok(()), "the ids before it are not known");
        let since = since.followed_by(&opened(9, &["i", "h"]));
        assert_eq!((since.opens_count, since.opening_id.as_str()), (9, "i"));
    }

    #[test]
    fn a_drive_that_was_at_the_path_is_elsewhere() -> std::io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        std::fs::write(&path, "a drive")?;
        let found = std::fs::metadata(&path)?;
        let device = format!("{}:{}", rustix::fs::major(found.dev()), rustix::fs::minor(found.dev()));
        let file = |inode| Some(FileId { device: device.clone(), inode: Some(inode) });
        let report = |uuid: &str, file: &Option<FileId>| {
            let (path, uuid) = (path.clone(), uuid.to_string());
            let mut report = StatusReport { path, uuid, ..StatusReport::default() };
            report.backing.file = file.clone();
            report
        };
        let (there, gone) = (file(found.ino()), file(found.ino() + 1));
        let its = Identity::of(&report("a", &there));
        for (uuid, file, is_elsewhere) in [
            ("a", &there, false),
            ("a", &None, false),
            ("a", &gone, true),
            ("b", &gone, true),
            ("b", &there, false),
        ] {
            let report = report(uuid, file);
            assert_eq!(its.is_elsewhere(&report, &path), is_elsewhere, "{uuid} {file:?}");
        }
        let moved = Identity::of(&report("a", &gone));
        assert!(!moved.is_elsewhere(&report("a", &gone), &path), "its file has moved");
        assert!(!moved.is_elsewhere(&report("a", &there), &path), "it was restored");
        Ok(())
    }
}
