//! Copies of a drive that are served at the same time. A copied backing has the id of the original, so
//! programs that go by the id cannot distinguish the two.
//!
//! They are found by their admin sockets, which have the id in their names: those of this server, and those
//! of other servers that this one may ask.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ask::runtime_dir::{runtime_dirs, trusted};
use ask::{AskError, ask_all, ask_status};
use host::file::same_file;
use status::{CopyReport, DriveState, StatusAnswer, shown};

/// Most sockets asked at a time.
const SOCKETS_MAX: usize = 64;
/// Most servers asked at a time. Bounds the memory for answers.
const ASKED_MAX: usize = 16;
/// Time after which no further socket is asked at a time. Those already asked have time limits of their own.
const REFRESH_TIME: Duration = Duration::from_secs(30);

/// Looks for copies of a drive periodically.
pub(crate) struct Copies {
    path: PathBuf,
    id: String,
    /// Sockets at the last refresh, if all of them answered.
    sockets: Vec<PathBuf>,
    found: Vec<CopyReport>,
    /// Set once the log has reported that there are more sockets than are asked.
    told_of_more: bool,
}

impl Copies {
    pub(crate) fn new(path: PathBuf, id: String) -> Copies {
        Copies { path, id, sockets: Vec::new(), found: Vec::new(), told_of_more: false }
    }

    /// Returns the copies that are being served, and logs those that appeared and disappeared. Asks servers,
    /// which may take seconds: not for threads that carry requests.
    pub(crate) fn refresh(&mut self) -> Vec<CopyReport> {
        let sockets = self.sockets();
        // No new socket: there is no server to ask.
        if sockets == self.sockets && self.found.is_empty() {
            return Vec::new();
        }
        let since = Instant::now();
        let answers = ask_all(&sockets, ASKED_MAX, |socket| {
            let in_time = since.elapsed() < REFRESH_TIME;
            in_time.then(|| ask_status(socket).map(|answer| self.copies_in(answer)))
        });
        let (found, all_answered) = known_after(&self.found, answers);
        for copy in found.iter().filter(|copy| !self.found.contains(copy)) {
            tracing::warn!(
                drive = %shown(&self.path),
                copy = %shown(&copy.path),
                pid = copy.pid,
                id = self.id,
                "a copy of this drive (same id) is served, too; serve only one of them"
            );
        }
        for copy in self.found.iter().filter(|copy| !found.contains(copy)) {
            tracing::info!(
                drive = %shown(&self.path),
                copy = %shown(&copy.path),
                "the copy of this drive is no longer served"
            );
        }
        // A server that did not answer may do so the next time.
        self.sockets = if all_answered { sockets } else { Vec::new() };
        self.found.clone_from(&found);
        found
    }

    /// Returns the copies among the drives of a server.
    fn copies_in(&self, answer: StatusAnswer) -> Vec<CopyReport> {
        let drives = answer.drives.into_iter();
        let copies = drives.filter(|drive| {
            drive.uuid == self.id
                && drive.state != DriveState::Down
                && drive.path != self.path
                // Without an answer there is no warning.
                && !same_file(&self.path, &drive.path).unwrap_or(true)
        });
        copies
            .map(|drive| CopyReport { path: drive.path, pid: drive.server.map_or(0, |server| server.pid) })
            .collect()
    }

    /// Returns the sockets of servers that have a drive with this id, up to [`SOCKETS_MAX`].
    fn sockets(&mut self) -> Vec<PathBuf> {
        let ours = |socket: &Path| {
            let name = socket.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(&self.id) && name.ends_with(".sock")
        };
        let mut sockets: Vec<PathBuf> = runtime_dirs()
            .iter()
            .filter(|dir| trusted(dir))
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
            .filter(|socket| ours(socket))
            .collect();
        sockets.sort();
        if sockets.len() > SOCKETS_MAX && !self.told_of_more {
            self.told_of_more = true;
            tracing::warn!(
                drive = %shown(&self.path),
                sockets = sockets.len(),
                "very many admin sockets have the id of this drive: only the first {SOCKETS_MAX} are asked for copies"
            );
        }
        sockets.truncate(SOCKETS_MAX);
        sockets
    }
}

/// Returns the copies known after a refresh, and whether all servers answered. `before`: the copies known
/// before. `answers`: those of all sockets; `None` for a socket that was not asked, for lack of time.
fn known_after(
    before: &[CopyReport],
    answers: Vec<Option<Result<Vec<CopyReport>, AskError>>>,
) -> (Vec<CopyReport>, bool) {
    // Copies of a server that this one may not ask, or had no time to ask, stay as they are.
    let was_not_asked = answers.iter().any(|answer| match answer {
        Some(answer) => answer.as_ref().is_err_and(AskError::is_denied),
        None => true,
    });
    let all_answered = answers.iter().all(|answer| matches!(answer, Some(Ok(_))));
    let mut found: Vec<CopyReport> = Vec::new();
    let kept = before.iter().filter(|_| was_not_asked).cloned();
    for copy in answers.into_iter().flatten().flatten().flatten().chain(kept) {
        if !found.contains(&copy) {
            found.push(copy);
        }
    }
    (found, all_answered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_of_servers_that_were_not_asked_stay() {
        let copy = |pid| CopyReport { path: PathBuf::from("/srv/copy"), pid };
        let before = [copy(1), copy(2)];
        // There was time for the first server only.
        assert_eq!(known_after(&before, vec![Some(Ok(vec![copy(1)])), None]), (before.to_vec(), false));
        assert_eq!(known_after(&before, vec![None, Some(Ok(vec![copy(3)]))]).0, [copy(3), copy(1), copy(2)]);
        let answered = vec![Some(Ok(vec![copy(1)])), Some(Ok(Vec::new()))];
        assert_eq!(known_after(&before, answered), (vec![copy(1)], true));
        let source = std::io::ErrorKind::ConnectionRefused.into();
        let gone = Err(AskError::Socket { socket: "/run/x.sock".into(), source });
        assert_eq!(known_after(&before, vec![Some(Ok(vec![copy(1)])), Some(gone)]), (vec![copy(1)], false));
    }
}
