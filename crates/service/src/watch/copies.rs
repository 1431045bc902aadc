//! Copies of a drive that are served at the same time. A copied backing has the id of the original, so programs that
//! go by the id cannot distinguish the two.
//!
//! They are found by their admin sockets, which have the id in their names: those of this server, and those of other
//! servers that this one may ask.

use std::path::{Path, PathBuf};

use status::{CopyReport, DriveState, shown};

use crate::client::runtime_dir::{runtime_dirs, trusted};
use crate::client::servers::ask_status;
use crate::error::ServiceError;
use crate::paths::same_file;

/// Looks for copies of a drive periodically.
pub(crate) struct Copies {
    path: PathBuf,
    id: String,
    /// Sockets at the last look, if all of them answered.
    sockets: Vec<PathBuf>,
    found: Vec<CopyReport>,
}

impl Copies {
    pub(crate) fn new(path: PathBuf, id: String) -> Copies {
        Copies { path, id, sockets: Vec::new(), found: Vec::new() }
    }

    /// Returns the copies that are being served, and logs those that appeared and disappeared. Asks servers, which
    /// may take seconds: not for threads that carry requests.
    pub(crate) fn look(&mut self) -> Vec<CopyReport> {
        let sockets = self.sockets();
        // No new socket: there is no server to ask.
        if sockets == self.sockets && self.found.is_empty() {
            return Vec::new();
        }
        let mut found: Vec<CopyReport> = Vec::new();
        let answers: Vec<_> = sockets.iter().map(|socket| ask_status(socket)).collect();
        // Those of a server that this one may not ask (any more) stay as they are.
        let may_not_ask =
            answers.iter().filter_map(|answer| answer.as_ref().err()).any(ServiceError::is_denied);
        let answers: Vec<_> = answers.into_iter().flatten().collect();
        let all_answered = answers.len() == sockets.len();
        for drive in answers.into_iter().flat_map(|answer| answer.drives) {
            let other = drive.uuid == self.id
                && drive.state != DriveState::Down
                && drive.path != self.path
                && !same_file(&drive.path, &self.path);
            let copy = CopyReport { path: drive.path, pid: drive.server.map_or(0, |server| server.pid) };
            if other && !found.contains(&copy) {
                found.push(copy);
            }
        }
        if may_not_ask {
            found.extend(self.found.iter().filter(|copy| !found.contains(copy)).cloned().collect::<Vec<_>>());
        }
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
                "the copy of this drive is not served any more"
            );
        }
        // A server that did not answer may do so the next time.
        self.sockets = if all_answered { sockets } else { Vec::new() };
        self.found.clone_from(&found);
        found
    }

    /// Returns the sockets of servers that have a drive with this id.
    fn sockets(&self) -> Vec<PathBuf> {
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
        sockets
    }
}
