//! Drives of this machine's servers: the one at a path, or all; and changes to one.

use std::path::{Path, PathBuf};
use std::time::Duration;

use host::process::has_open;
use status::{StatusReport, path_text};

use crate::error::AskError;
use crate::exchange::PATIENCE;
use crate::opening::{server_with_open, wait_while_opening};
use crate::protocol::{Answer, Change, Request};
use crate::runtime_dir::runtime_dirs;
use crate::search::DriveSearch;
use crate::servers::{
    ASKED_AT_ONCE_MAX, FoundDrives, SEARCH_PATIENCE, SilentServer, ask, drives_at, odd_answer, sockets_in,
};

/// Time limit of a change: a file system may have to allocate much space.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);

/// Returns the drive at `path` if a server of this machine (as far as this user may ask it) has it open.
/// Other servers are not waited for; one that is opening or closing the drive has five seconds. Removes
/// sockets that servers left behind.
///
/// # Errors
///
/// [`AskError::NoAnswer`] if a server has the file open and does not answer within ten seconds;
/// [`AskError::OtherFile`] if one has another file, which it has opened by this path.
pub fn find_served(path: &Path) -> Result<Option<StatusReport>, AskError> {
    Ok(find_with_socket(path)?.map(|(_, report)| report))
}

fn find_with_socket(path: &Path) -> Result<Option<(PathBuf, StatusReport)>, AskError> {
    let search = DriveSearch::new(path).exactly();
    wait_while_opening(|| match search.find_with_socket() {
        Ok(found) => (Ok(found), None),
        Err(silent) => match search.other_file() {
            Some(other) => (Err(other.into()), None),
            // It would look as if nobody served the drive.
            None => match no_answer(path, silent) {
                Some(error) => (Err(error), None),
                None => (Ok(None), server_with_open(path)),
            },
        },
    })
}

/// The error for a drive whose server is among those that did not answer.
fn no_answer(path: &Path, silent: Vec<SilentServer>) -> Option<AskError> {
    silent.into_iter().find_map(|server| {
        let pid = server.pid.filter(|pid| has_open(*pid, path))?;
        Some(AskError::NoAnswer { path: path.to_path_buf(), pid, what: server.what })
    })
}

/// Returns the drives of the servers of this machine (as far as this user may ask them); with `path`, only
/// the drive there, for which other servers are not waited for, and one that is opening or closing it for
/// five seconds. Waits three seconds, for all together, for servers that do not answer. Removes sockets that
/// servers left behind.
pub fn find_drives(path: Option<&Path>) -> FoundDrives {
    match path {
        Some(path) => find_drive(path, SEARCH_PATIENCE),
        None => drives_at(&sockets_in(&runtime_dirs()), SEARCH_PATIENCE, ASKED_AT_ONCE_MAX),
    }
}

/// As [`find_drives`], for the drive at `path` that is to be changed: waits ten seconds for servers that do
/// not answer.
pub fn find_drive_patiently(path: &Path) -> FoundDrives {
    find_drive(path, PATIENCE)
}

fn find_drive(path: &Path, patience: Duration) -> FoundDrives {
    let search = DriveSearch::new(path).exactly();
    wait_while_opening(|| {
        let found = search.search_within(patience);
        let is_known = !found.drives.is_empty() || found.other_file.is_some();
        let opening = if is_known { None } else { server_with_open(path) };
        // One that does not answer was waited for.
        let opening = opening.filter(|pid| found.silent.iter().all(|silent| silent.pid != Some(*pid)));
        (found, opening)
    })
}

/// Asks the server that has the drive at `path`, if there is one, to change it. Returns the status
/// afterwards.
///
/// # Errors
///
/// [`AskError::Refused`] with the server's message; [`AskError::Socket`] if there is no answer; as for
/// [`find_served`].
pub fn change(path: &Path, change: &Change) -> Result<Option<StatusReport>, AskError> {
    change_found(find_with_socket(path)?, change)
}

/// As [`change`], for the drive with this id only.
///
/// # Errors
///
/// As [`change`]; [`AskError::OtherDrive`].
pub fn change_only(path: &Path, id: &str, change: &Change) -> Result<Option<StatusReport>, AskError> {
    let found = find_with_socket(path)?;
    if found.as_ref().is_some_and(|(_, report)| report.uuid != id) {
        return Err(AskError::OtherDrive { path: path.to_path_buf() });
    }
    change_found(found, change)
}

fn change_found(
    found: Option<(PathBuf, StatusReport)>,
    change: &Change,
) -> Result<Option<StatusReport>, AskError> {
    let Some((socket, report)) = found else { return Ok(None) };
    let (drive, path) = (report.uuid, Some(path_text(&report.path)));
    let request = Request::Change { drive, path, change: change.clone() };
    match ask(&socket, &request, (PATIENCE, CHANGE_TIMEOUT))? {
        Answer::Changed { drive } => Ok(Some(*drive)),
        Answer::Error { error } => Err(AskError::Refused(error)),
        Answer::Status(_) => Err(odd_answer(&socket)),
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_silent_server_is_named_if_it_has_the_drive_open() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("drive");
        let file = std::fs::File::create(&path)?;
        let server = |pid| SilentServer::late(Path::new("/run/a.sock"), pid, Duration::from_secs(10));
        let silent = || vec![server(None), server(Some(std::process::id()))];
        let error = no_answer(&path, silent()).expect("it has it").to_string();
        let says = format!("its server (process {}) did not answer within 10 seconds; ", std::process::id());
        assert!(error.contains(&says), "{error}");
        assert!(no_answer(&folder.path().join("other"), silent()).is_none());
        drop(file);
        assert!(no_answer(&path, silent()).is_none());
        Ok(())
    }
}
