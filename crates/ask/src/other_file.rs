//! Compares the file at a path with the file that a server has open. A path is not an identity: a file may be
//! deleted, renamed or replaced while a server has it open. So a client compares both files before it asks a
//! server about a path.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use status::{BackingPlace, DriveState, FileId, StatusReport, shown};

use crate::identity::{drive_id, file_id, is_at};
use host::file::absolute;
use host::process::mount_namespace;

/// A path that leads to a file other than the one that a server opened by it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherFile {
    /// The path.
    pub path: PathBuf,
    /// File that it leads to; `None`: nothing is there.
    pub found: Option<FileId>,
    /// Id of the drive there, if there is one.
    pub found_drive: Option<String>,
    /// Process id of the server.
    pub pid: u32,
    /// File that the server has open; `None` if it does not report it: an older program.
    pub held: Option<FileId>,
    /// Id of the server's drive.
    pub held_drive: String,
    /// Whether the server knows that its file was deleted.
    pub is_deleted: bool,
}

/// File at a path.
enum FileAt {
    This(FileId),
    Nothing,
    /// Access to the path is denied.
    Unknown,
}

fn file_at(path: &Path) -> FileAt {
    match std::fs::metadata(path) {
        Ok(found) => FileAt::This(file_id(&found)),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            FileAt::Nothing
        }
        // Of a network file system: another client has deleted it.
        Err(error) if error.raw_os_error() == Some(Errno::STALE.raw_os_error()) => FileAt::Nothing,
        Err(_) => FileAt::Unknown,
    }
}

/// Returns whether a process has other mounts than this one. `false` if that cannot be seen, except for
/// process 0: a peer that has no id here is in another container.
fn is_in_other_namespace(pid: u32) -> bool {
    if pid == 0 {
        return true;
    }
    mount_namespace(pid).zip(mount_namespace("self")).is_some_and(|(theirs, ours)| theirs != ours)
}

impl OtherFile {
    /// Returns the report if its drive is the one at `path`, `None` if it is of another path. Reads the
    /// superblock at `path`.
    ///
    /// A file or device is the same whatever path leads to it: links, bind mounts, a new name after it was
    /// renamed. A drive that is down has no file: its path decides. So it does for a server in another mount
    /// namespace that has its file in place, if nothing is at `path` here; if another file is, that is not
    /// its drive.
    ///
    /// # Errors
    ///
    /// If the server has opened the drive by `path`, and something else is there now, or another drive in the
    /// same file.
    pub(crate) fn check(path: &Path, report: StatusReport) -> Result<Option<StatusReport>, Box<OtherFile>> {
        OtherFile::check_among(path, report, is_in_other_namespace)
    }

    /// As [`OtherFile::check`], with a function that recognises processes in another mount namespace.
    fn check_among(
        path: &Path,
        report: StatusReport,
        is_in_other_namespace: impl Fn(u32) -> bool,
    ) -> Result<Option<StatusReport>, Box<OtherFile>> {
        if report.state == DriveState::Down {
            return Ok(is_at(&report, path).then_some(report));
        }
        let held = report.backing.file.clone();
        let there = file_at(path);
        let pid = report.server.as_ref().map(|server| server.pid);
        // Of a server that sees its file at its path, which may lead to something else here.
        let is_elsewhere =
            || report.backing.place == BackingPlace::InPlace && pid.is_some_and(&is_in_other_namespace);
        let other = |found, found_drive| {
            Box::new(OtherFile {
                path: path.to_path_buf(),
                found,
                found_drive,
                pid: pid.unwrap_or_default(),
                held: held.clone(),
                held_drive: report.uuid.clone(),
                is_deleted: report.backing.place == BackingPlace::Deleted,
            })
        };
        let is_its = match (&there, &held) {
            (FileAt::This(found), Some(held)) => found == held,
            // An older program reports only the path of its file.
            (FileAt::This(_), None) => is_at(&report, path) && report.backing.place.advice().is_none(),
            (FileAt::Nothing, _) => report.path == absolute(path) && is_elsewhere(),
            (FileAt::Unknown, _) => report.path == absolute(path),
        };
        let found = match there {
            FileAt::This(found) => Some(found),
            FileAt::Nothing | FileAt::Unknown => None,
        };
        if !is_its {
            return match is_at(&report, path) && !is_elsewhere() {
                true => {
                    let unknown = |_| Some("unknown (it cannot be read now)".to_owned());
                    Err(other(found, drive_id(path).unwrap_or_else(unknown)))
                }
                false => Ok(None),
            };
        }
        // The file may have been overwritten with another drive. An unreadable superblock proves nothing.
        match drive_id(path).unwrap_or_default().filter(|id| *id != report.uuid) {
            Some(id) => Err(other(found, Some(id))),
            None => Ok(Some(report)),
        }
    }

    /// The message without the path.
    pub fn reason(&self) -> String {
        let OtherFile { found, found_drive, pid, held, held_drive, .. } = self;
        let there = match (found, found_drive) {
            (Some(found), Some(drive)) => format!("leads to {found}, drive {drive}"),
            (Some(found), None) => format!("leads to {found}, which is not a drive"),
            (None, _) => "nothing is at this path".to_string(),
        };
        let held = held.as_ref().map_or_else(|| "another file".to_string(), ToString::to_string);
        let advice = match (self.is_deleted, found) {
            (true, _) => {
                "which was deleted: copy it before that server ends, or its data is lost (`pumice list`)"
            }
            (false, None) => "which was deleted or renamed: use its new name (`pumice list` shows its state)",
            (false, Some(_)) => {
                "which it opened earlier: use the present name of that file, or stop that server"
            }
        };
        format!("{there}, but process {pid} serves {held}, drive {held_drive}, {advice}")
    }
}

impl fmt::Display for OtherFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", shown(&self.path), self.reason())
    }
}

impl std::error::Error for OtherFile {}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use status::ServerReport;

    use super::*;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    /// The report of a server that has the file at `path` open.
    fn report(path: &Path) -> std::io::Result<StatusReport> {
        let mut report = StatusReport { path: path.to_path_buf(), ..StatusReport::default() };
        report.backing.file = Some(file_id(&fs::metadata(path)?));
        Ok(report)
    }

    #[test]
    fn a_file_is_the_same_by_whatever_path() -> Outcome {
        let folder = tempfile::tempdir()?;
        let at = |name: &str| folder.path().join(name);
        fs::write(at("drive"), "a drive")?;
        fs::write(at("other"), "another")?;
        let held = report(&at("drive"))?;
        symlink("drive", at("link"))?;
        fs::hard_link(at("drive"), at("second"))?;
        let is_its = |name: &str| OtherFile::check(&at(name), held.clone()).map(|found| found.is_some());
        for name in ["drive", "link", "second"] {
            assert!(is_its(name).expect("no other"), "{name}");
        }
        assert!(!is_its("other").expect("a drive of another path"));
        assert!(!is_its("nothing").expect("a drive of another path"));
        fs::rename(at("drive"), at("renamed"))?;
        assert!(is_its("renamed").expect("its new name"));
        let missing = is_its("drive").expect_err("nothing is there");
        assert_eq!(missing.found, None);
        assert!(missing.reason().contains("nothing is at this path"), "{missing}");
        // A link that leads nowhere.
        assert!(!is_its("link").expect("it leads nowhere, and was not its path"));
        Ok(())
    }

    #[test]
    fn a_server_in_another_mount_namespace_has_paths_of_its_own() -> Outcome {
        let own = std::process::id();
        assert!(!is_in_other_namespace(own));
        assert!(!is_in_other_namespace(u32::MAX), "no such process");
        assert!(is_in_other_namespace(0), "a peer that cannot be seen");
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        fs::write(&path, "a drive")?;
        let mut held = report(&path)?;
        held.backing.place = BackingPlace::InPlace;
        held.server = Some(ServerReport { pid: own, ..ServerReport::default() });
        let found = |path: &Path, held: &StatusReport, is_elsewhere: bool| {
            let found = OtherFile::check_among(path, held.clone(), |pid| pid == own && is_elsewhere);
            found.map(|report| report.is_some())
        };
        // Here the path leads nowhere.
        fs::rename(&path, folder.path().join("renamed"))?;
        assert!(found(&path, &held, true)?);
        assert!(found(&path, &held, false).is_err());
        assert!(OtherFile::check(&path, held.clone()).is_err(), "in our namespace");
        assert!(!found(&folder.path().join("nothing"), &held, true)?, "another path");
        // Here another file is there.
        fs::write(&path, "another")?;
        assert!(!found(&path, &held, true)?);
        assert!(found(&path, &held, false).is_err());
        // It does not see its file either.
        held.backing.place = BackingPlace::Replaced;
        assert!(found(&path, &held, true).is_err());
        Ok(())
    }

    #[test]
    fn another_file_at_the_path_is_named_with_that_of_the_server() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        fs::write(&path, "a drive")?;
        let held = report(&path)?;
        // It stays open, as by its server, or its number would be used again.
        let open = fs::File::open(&path)?;
        fs::remove_file(&path)?;
        fs::write(&path, "another")?;
        let other = OtherFile::check(&path, held.clone()).expect_err("another file");
        let numbers = [&other.found, &other.held].map(|it| it.as_ref().and_then(|it| it.inode));
        assert!(numbers[0].is_some() && numbers[1].is_some() && numbers[0] != numbers[1], "{other}");
        for number in numbers.into_iter().flatten() {
            assert!(other.to_string().contains(&format!("inode {number} of")), "{other}");
        }
        // A server that does not report its file, and has seen it deleted.
        let mut old = held.clone();
        old.backing.file = None;
        assert!(OtherFile::check(&path, old.clone())?.is_some(), "it has seen nothing yet");
        old.backing.place = BackingPlace::Deleted;
        assert!(OtherFile::check(&path, old).is_err());
        // A drive that is down has no file.
        let down = StatusReport { state: DriveState::Down, ..held };
        assert!(OtherFile::check(&path, down)?.is_some());
        drop(open);
        Ok(())
    }
}
