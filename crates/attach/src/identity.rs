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
    /// Its openings for writing.
    #[serde(flatten)]
    pub openings: Openings,
}

/// Openings of a drive for writing. Each copy that was written to has some of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Openings {
    /// Their number.
    #[serde(rename = "drive_opens_count")]
    pub count: u64,
    /// The ids of the newest ones, newest first; empty if its server does not report them.
    #[serde(rename = "drive_opening_ids")]
    pub ids: Vec<String>,
}

impl Openings {
    /// Returns whether `later` may include all of these. Openings that are not known may be any.
    fn are_in(&self, later: &Openings) -> bool {
        let (Some(newest), false) = (self.ids.first(), later.ids.is_empty()) else { return true };
        let since = later.count.checked_sub(self.count).and_then(|since| usize::try_from(since).ok());
        since.is_some_and(|since| later.ids.get(since).is_none_or(|id| id == newest))
    }
}

impl Identity {
    /// The drive that a server reports.
    pub(crate) fn of(report: &StatusReport) -> Identity {
        Identity {
            uuid: report.uuid.clone(),
            file: report.backing.file.clone(),
            incarnation: report.incarnation,
            durable_sequence: report.cleaning.durable_sequence,
            openings: Openings { count: report.opens_count, ids: report.opening_ids.clone() },
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

    /// Checks that `later` is a later state of the same drive.
    ///
    /// # Errors
    ///
    /// [`DifferentDrive`] says what it is instead.
    pub(crate) fn check(&self, later: &Identity) -> Result<(), DifferentDrive> {
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
        if !self.openings.are_in(&later.openings) {
            return Err(DifferentDrive::Parted { opening: self.openings.count });
        }
        Ok(())
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
    /// The opening in which it was attached is not one of its own.
    #[error(
        "another copy of the drive is being served: what was acknowledged in opening {opening} is not on it"
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
        let identity = |uuid: &str, incarnation, durable_sequence| Identity {
            uuid: uuid.to_string(),
            incarnation,
            durable_sequence,
            ..Identity::default()
        };
        let known = identity("a", Some(1), 7);
        for (later, why) in [
            (identity("a", Some(1), 7), None),
            (identity("a", Some(1), 8), None),
            (identity("a", None, 8), None),
            (identity("b", Some(1), 8), Some("another drive")),
            (identity("a", Some(2), 8), Some("wiped")),
            (identity("a", Some(1), 6), Some("older state")),
        ] {
            match (known.check(&later), why) {
                (Ok(()), None) => {}
                (Err(said), Some(why)) => assert!(said.to_string().contains(why), "{said}"),
                (said, why) => panic!("{later:?}: {said:?}, {why:?}"),
            }
        }
        assert_eq!(identity("a", None, 0).check(&known), Ok(()), "a record of an older program");
    }

    #[test]
    fn a_copy_that_went_on_without_the_last_opening_does_not_follow() {
        let of = |count, ids: &[&str]| Identity {
            openings: Openings { count, ids: ids.iter().map(ToString::to_string).collect() },
            ..Identity::default()
        };
        let known = of(7, &["g", "f"]);
        for (later, follows) in [
            (of(7, &["g", "f"]), true),
            (of(8, &["h", "g", "f"]), true),
            (of(10, &["k", "i", "h", "g"]), true),
            (of(10, &["k", "i"]), true),
            (of(9, &[]), true),
            (of(6, &["f"]), false),
            (of(7, &["x", "f"]), false),
            (of(8, &["h", "x", "f"]), false),
            (of(10, &["k", "i", "h", "x", "f"]), false),
        ] {
            let checked = known.check(&later);
            assert_eq!(checked.is_ok(), follows, "{later:?}: {checked:?}");
        }
        assert_eq!(of(9, &[]).check(&of(2, &["b"])), Ok(()), "a server that does not tell");
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
