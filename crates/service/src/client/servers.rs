//! The servers of this machine, asked through their admin sockets: which drives they have, and changes of these.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use status::{DriveState, StatusAnswer, StatusReport, path_text, shown};

use crate::client::exchange::{PATIENCE, Part, ask_all, ask_line, ask_line_on};
use crate::client::protocol::{Answer, Change, Request};
use crate::client::runtime_dir::{runtime_dirs, trusted};
use crate::client::search::DriveSearch;
use crate::error::ServiceError;
use crate::paths::{absolute, same_file};

/// Time limit for each server in a look at all of them: it waits for one that hangs, and shows what the others have.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);
/// Time limit of a change: a file system may have to allocate much space.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(600);
/// Most sockets that are asked for drives.
const SOCKETS_MAX: usize = 1024;
/// Most bytes of answers, of all sockets together, that become reports.
const ANSWERS_MAX_BYTES: usize = 64 << 20;
/// Most drives in an answer. Limits memory, because a report takes more than the shortest text of one.
const DRIVES_MAX: usize = 4096;

/// Asks the server at an admin socket for the status of its drives.
///
/// # Errors
///
/// [`ServiceError::Admin`] if there is no answer in time, or a wrong one.
pub fn ask_status(socket: &Path) -> Result<StatusAnswer, ServiceError> {
    ask_status_within(socket, PATIENCE, &AtomicUsize::new(0))
}

/// Adds the bytes of the answer to those of other answers, `answered_bytes`. They have a limit together.
fn ask_status_within(
    socket: &Path,
    patience: Duration,
    answered_bytes: &AtomicUsize,
) -> Result<StatusAnswer, ServiceError> {
    status_in(socket, ask(socket, &Request::Status, (patience, patience), answered_bytes)?)
}

/// Asks a server that is connected for its status; for [`parse_status`].
pub(super) fn receive_status(stream: UnixStream, part: &mut Part<'_>) -> io::Result<Vec<u8>> {
    ask_line_on(stream, &line_of(&Request::Status)?, PATIENCE, PATIENCE, part)
}

/// Returns `None` if it is no status.
pub(super) fn parse_status(answer: &[u8]) -> Option<StatusAnswer> {
    match parse(answer, ANSWERS_MAX_BYTES) {
        Ok(Answer::Status(answer)) => Some(answer),
        Ok(Answer::Changed { .. } | Answer::Error { .. }) | Err(_) => None,
    }
}

fn line_of(request: &Request) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    Ok(line)
}

fn status_in(socket: &Path, answer: Answer) -> Result<StatusAnswer, ServiceError> {
    match answer {
        Answer::Status(answer) => Ok(answer),
        Answer::Changed { .. } | Answer::Error { .. } => Err(odd_answer(socket)),
    }
}

/// Asks the server that has the drive at `path`, if there is one, to change it. Returns the status afterwards.
///
/// # Errors
///
/// [`ServiceError::Refused`] with the server's message; [`ServiceError::Admin`] if there is no answer.
pub fn change(path: &Path, change: &Change) -> Result<Option<StatusReport>, ServiceError> {
    let Some((socket, report)) = DriveSearch::new(path).find_with_socket() else { return Ok(None) };
    let (drive, path) = (report.uuid, Some(path_text(&report.path)));
    let request = Request::Change { drive, path, change: change.clone() };
    match ask(&socket, &request, (PATIENCE, CHANGE_TIMEOUT), &AtomicUsize::new(0))? {
        Answer::Changed { drive } => Ok(Some(*drive)),
        Answer::Error { error } => Err(ServiceError::Refused(error)),
        Answer::Status(_) => Err(odd_answer(&socket)),
    }
}

fn odd_answer(socket: &Path) -> ServiceError {
    let source = io::Error::new(io::ErrorKind::InvalidData, "the answer does not match the request");
    ServiceError::Admin { path: socket.to_path_buf(), action: "ask", source }
}

/// Asks within time limits for connecting and for the answer.
fn ask(
    socket: &Path,
    request: &Request,
    (connecting, answering): (Duration, Duration),
    answered_bytes: &AtomicUsize,
) -> Result<Answer, ServiceError> {
    let ask = || -> io::Result<Answer> {
        let answer = ask_line(socket, &line_of(request)?, connecting, answering)?;
        let before = answered_bytes.fetch_add(answer.len(), Ordering::Relaxed);
        parse(&answer, ANSWERS_MAX_BYTES.saturating_sub(before))
            .map_err(|message| io::Error::new(io::ErrorKind::InvalidData, message))
    };
    ask().map_err(|source| ServiceError::Admin { path: socket.to_path_buf(), action: "ask", source })
}

/// Parses an answer of at most `bytes_max`.
fn parse(answer: &[u8], bytes_max: usize) -> Result<Answer, String> {
    /// Counts the drives of an answer without taking memory for them.
    #[derive(Deserialize)]
    struct Count {
        #[serde(default)]
        drives: Vec<IgnoredAny>,
    }
    if answer.len() > bytes_max {
        return Err(format!("the answers of all servers are longer than {} MiB", ANSWERS_MAX_BYTES >> 20));
    }
    let odd = |error| format!("the answer is not that of a Pumice server: {error}");
    if serde_json::from_slice::<Count>(answer).map_err(odd)?.drives.len() > DRIVES_MAX {
        return Err(format!("the answer has more than {DRIVES_MAX} drives"));
    }
    serde_json::from_slice(answer).map_err(odd)
}

/// Returns the drives that the servers of this machine (as far as this user may ask them) have open; with `path`,
/// only the drive there, for which other servers are not waited for. Removes sockets that servers left behind.
pub fn find_served(path: Option<&Path>) -> Vec<StatusReport> {
    if let Some(path) = path {
        return DriveSearch::new(path).find_patiently().into_iter().collect();
    }
    find_drives(None).drives.into_iter().filter(|report| report.state != DriveState::Down).collect()
}

/// The drives of this machine's servers, as far as these answer.
#[derive(Debug, Default)]
pub struct FoundDrives {
    /// Those that are open, then those that a server is configured to serve and could not open.
    pub drives: Vec<StatusReport>,
    /// Servers whose drives are not known.
    pub silent: Vec<SilentServer>,
}

/// A server that accepted a connection, or might have, and did not answer in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentServer {
    /// Its admin socket.
    pub socket: PathBuf,
    /// Its process id, if it can be connected.
    pub pid: Option<u32>,
}

impl SilentServer {
    pub(super) fn at(socket: PathBuf) -> SilentServer {
        // The process that listens, whether or not it accepts.
        let stream = socket_file::connect(&socket, Duration::ZERO).ok();
        let peer = stream.and_then(|stream| rustix::net::sockopt::socket_peercred(stream).ok());
        let pid = peer.and_then(|peer| u32::try_from(peer.pid.as_raw_pid()).ok());
        SilentServer { socket, pid }
    }
}

impl fmt::Display for SilentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        let seconds = LOOK_PATIENCE.as_secs();
        write!(f, "the server at {}{process} did not answer within {seconds} seconds", shown(&self.socket))
    }
}

/// Returns the drives of the servers of this machine (as far as this user may ask them); with `path`, only the drive there, for which
/// other servers are not waited for. Waits three seconds for servers that do not answer. Removes sockets that servers left behind.
pub fn find_drives(path: Option<&Path>) -> FoundDrives {
    match path {
        Some(path) => DriveSearch::new(path).look(LOOK_PATIENCE),
        None => drives_at(&sockets_in(&runtime_dirs())),
    }
}

fn drives_at(sockets: &[PathBuf]) -> FoundDrives {
    let answered_bytes = AtomicUsize::new(0);
    let ask = |socket: &Path, patience| ask_status_within(socket, patience, &answered_bytes);
    let answers = ask_all(sockets, LOOK_PATIENCE, ask);
    let mut found = FoundDrives::default();
    for (socket, answer) in sockets.iter().zip(answers) {
        match answer {
            Ok(answer) => found.drives.extend(answer.drives),
            Err(error) if is_silence(&error) => found.silent.push(SilentServer::at(socket.clone())),
            Err(_) => socket_file::remove_if_dead(socket),
        }
    }
    // The sort is stable, so that the order of the sockets stays otherwise.
    found.drives.sort_by_key(|report| report.state == DriveState::Down);
    found
}

fn is_silence(error: &ServiceError) -> bool {
    let ServiceError::Admin { source, .. } = error else { return false };
    matches!(source.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock)
}

/// Returns whether a report is that of the drive at `path`.
pub(super) fn is_at(report: &StatusReport, path: &Path) -> bool {
    // A drive that is down may have no file.
    report.path == absolute(path) || same_file(&report.path, path)
}

/// Returns the sockets in those of the directories that can be trusted, at most [`SOCKETS_MAX`].
pub(super) fn sockets_in(dirs: &[PathBuf]) -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = Vec::new();
    for dir in dirs.iter().filter(|dir| trusted(dir)) {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        let names = entries.flatten().map(|entry| entry.path());
        let of_sockets = names.filter(|path| path.extension().is_some_and(|extension| extension == "sock"));
        let before = sockets.len();
        sockets.extend(of_sockets.take(SOCKETS_MAX - before));
        sockets[before..].sort();
    }
    assert!(sockets.len() <= SOCKETS_MAX, "the number of sockets is bounded");
    sockets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_limits() {
        let drives = |count: usize| format!("{{\"drives\":[{}]}}", vec!["{}"; count].join(","));
        let answer = drives(DRIVES_MAX);
        let Ok(Answer::Status(parsed)) = parse(answer.as_bytes(), answer.len()) else { panic!("an answer") };
        assert_eq!(parsed.drives.len(), DRIVES_MAX);
        let refused = |answer: &str, bytes_max| parse(answer.as_bytes(), bytes_max).err().expect("refused");
        assert_eq!(refused(&answer, answer.len() - 1), "the answers of all servers are longer than 64 MiB");
        assert_eq!(refused(&drives(DRIVES_MAX + 1), usize::MAX), "the answer has more than 4096 drives");
        assert!(
            refused("HTTP/1.1 400", usize::MAX).starts_with("the answer is not that of a Pumice server: ")
        );
        let error = parse(b"{\"error\":\"no\"}", usize::MAX);
        assert!(matches!(error, Ok(Answer::Error { error }) if error == "no"));
    }

    #[test]
    fn sockets_are_limited_and_in_order() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        for (dir, count) in dirs.iter().zip([2, SOCKETS_MAX, 1]) {
            for number in 0..count {
                std::fs::write(dir.path().join(format!("{number}.sock")), "").expect("a file");
            }
            std::fs::write(dir.path().join("other"), "").expect("a file");
        }
        let paths: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_path_buf()).collect();
        let sockets = sockets_in(&paths);
        assert_eq!(sockets.len(), SOCKETS_MAX);
        assert_eq!(sockets[..2], [paths[0].join("0.sock"), paths[0].join("1.sock")]);
        assert!(sockets[2..].iter().all(|socket| socket.starts_with(&paths[1])));
    }
}
