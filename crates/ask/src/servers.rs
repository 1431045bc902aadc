//! The servers of this machine, asked through their admin sockets: which drives they have.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde::de::IgnoredAny;
use status::{DriveState, StatusAnswer, StatusReport, shown};

use crate::error::AskError;
use crate::exchange::{PATIENCE, Part, Together, ask_all, ask_line, ask_line_on};
use crate::names;
use crate::other_file::OtherFile;
use crate::protocol::{Answer, Request};
use crate::runtime_dir::trusted;

/// Time limit of a query of all servers: it waits for those that hang, and returns the drives of the others.
pub(crate) const SEARCH_PATIENCE: Duration = Duration::from_secs(3);
/// Most sockets that a query asks at a time. A server has one for each drive: one that hangs must not keep
/// others from being asked. Less than the descriptors that a process commonly may have, 1024.
pub(crate) const ASKED_AT_ONCE_MAX: usize = 512;
/// Least time limit: zero would be none.
const TIME_MIN: Duration = Duration::from_millis(1);
/// Most sockets that are asked for drives.
const SOCKETS_MAX: usize = 1024;
/// Most bytes of answers, of all sockets together, that become reports.
pub(crate) const ANSWERS_MAX_BYTES: usize = 64 << 20;
/// Most drives in an answer. Limits memory, because a report takes more than the shortest text of one.
const DRIVES_MAX: usize = 4096;

/// Asks the server at an admin socket for the status of its drives.
///
/// # Errors
///
/// [`AskError::Socket`] if there is no answer in time, or a wrong one.
pub fn ask_status(socket: &Path) -> Result<StatusAnswer, AskError> {
    match ask(socket, &Request::Status, (PATIENCE, PATIENCE))? {
        Answer::Status(answer) => Ok(answer),
        Answer::Changed { .. } | Answer::Error { .. } => Err(odd_answer(socket)),
    }
}

/// Asks a server that is connected for its status, within a time limit; for [`parse_status`].
pub(crate) fn receive_status(
    stream: UnixStream,
    patience: Duration,
    part: &mut Part<'_>,
) -> io::Result<Vec<u8>> {
    let patience = patience.max(TIME_MIN);
    ask_line_on(stream, &line_of(&Request::Status)?, patience, patience, part)
}

/// Returns `None` if what answers is something else than an admin socket: the directory may have sockets for
/// NBD and HTTP too.
///
/// # Errors
///
/// If it is no status, or longer than `bytes_max`.
pub(crate) fn parse_status(answer: &[u8], bytes_max: usize) -> io::Result<Option<StatusAnswer>> {
    if answer.trim_ascii_start().first().is_some_and(|first| *first != b'{') {
        return Ok(None);
    }
    match parse(answer, bytes_max)? {
        Answer::Status(answer) => Ok(Some(answer)),
        Answer::Error { error } => Err(AnswerError::Refusal(error).into()),
        Answer::Changed { .. } => Err(AnswerError::Odd.into()),
    }
}

fn line_of(request: &Request) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    Ok(line)
}

pub(crate) fn odd_answer(socket: &Path) -> AskError {
    AskError::Socket { socket: socket.to_path_buf(), source: AnswerError::Odd.into() }
}

/// Asks within time limits for connecting and for the answer.
pub(crate) fn ask(
    socket: &Path,
    request: &Request,
    (connecting, answering): (Duration, Duration),
) -> Result<Answer, AskError> {
    let ask = || -> io::Result<Answer> {
        let answer = ask_line(socket, &line_of(request)?, connecting, answering)?;
        Ok(parse(&answer, ANSWERS_MAX_BYTES)?)
    };
    ask().map_err(|source| AskError::Socket { socket: socket.to_path_buf(), source })
}

/// Reason why an answer cannot be used.
#[derive(Debug, thiserror::Error)]
enum AnswerError {
    /// The answers of all servers together are too long.
    #[error("the answers of all servers are longer than {} MiB", ANSWERS_MAX_BYTES >> 20)]
    TooLong,
    /// It has too many drives.
    #[error("the answer has more than {DRIVES_MAX} drives")]
    TooManyDrives,
    /// It is of no form that a server sends.
    #[error("the answer is not that of a Pumice server: {0}")]
    Foreign(#[from] serde_json::Error),
    /// It is the answer to another request.
    #[error("the answer does not match the request")]
    Odd,
    /// It is an error, where the request cannot fail; with the message of the server.
    #[error("it answers: {0}")]
    Refusal(String),
}

impl From<AnswerError> for io::Error {
    fn from(error: AnswerError) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, error)
    }
}

/// Parses an answer of at most `bytes_max`.
fn parse(answer: &[u8], bytes_max: usize) -> Result<Answer, AnswerError> {
    /// Counts the drives of an answer without taking memory for them.
    #[derive(Deserialize)]
    struct Count {
        #[serde(default)]
        drives: Vec<IgnoredAny>,
    }
    if answer.len() > bytes_max {
        return Err(AnswerError::TooLong);
    }
    if serde_json::from_slice::<Count>(answer)?.drives.len() > DRIVES_MAX {
        return Err(AnswerError::TooManyDrives);
    }
    Ok(serde_json::from_slice(answer)?)
}

/// The drives of this machine's servers, as far as these answer.
#[derive(Debug, Default)]
pub struct FoundDrives {
    /// Those that are open, then those that a server is configured to serve and could not open.
    pub drives: Vec<StatusReport>,
    /// Servers whose drives are not known, in the order of their sockets.
    pub silent: Vec<SilentServer>,
    /// Of a search for the drive at a path: the file of a server that has opened it by this path, which leads
    /// elsewhere.
    pub other_file: Option<OtherFile>,
}

/// A server whose drives are not known: it did not answer in time, or not properly, or it was not asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentServer {
    /// Its admin socket.
    pub socket: PathBuf,
    /// Its process id, if it could be connected.
    pub pid: Option<u32>,
    /// Its behaviour, to follow its name: `did not answer within 3 seconds`.
    pub what: String,
}

impl fmt::Display for SilentServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let process = self.pid.map(|pid| format!(" (process {pid})")).unwrap_or_default();
        write!(f, "the server at {}{process} {}", shown(&self.socket), self.what)
    }
}

impl SilentServer {
    /// A server that has not answered in this time.
    pub(crate) fn late(socket: &Path, pid: Option<u32>, waited: Duration) -> SilentServer {
        let seconds = waited.as_secs_f64();
        // A server that is asked slightly later than the others gets the same text.
        let seconds = if seconds < 1.0 { format!("{seconds:.1}") } else { format!("{seconds:.0}") };
        let what = format!("did not answer within {seconds} seconds");
        SilentServer { socket: socket.to_path_buf(), pid, what }
    }

    /// A server that was not asked because so many others were waited for.
    pub(crate) fn not_asked(socket: &Path, others: usize) -> SilentServer {
        let what = format!("was not asked, because {others} others did not answer");
        SilentServer { socket: socket.to_path_buf(), pid: None, what }
    }

    /// A server that did not give a status, with the reason. Returns `None` if there is no server, or none
    /// that this user may ask, and removes what one left behind.
    pub(crate) fn failed(
        socket: &Path,
        pid: Option<u32>,
        waited: Duration,
        error: &io::Error,
    ) -> Option<SilentServer> {
        match error.kind() {
            ErrorKind::TimedOut | ErrorKind::WouldBlock => {
                return Some(SilentServer::late(socket, pid, waited));
            }
            ErrorKind::PermissionDenied => return None,
            _ => {}
        }
        // It may have ended meanwhile.
        let listens = match socket_file::connect(socket, Duration::ZERO) {
            Ok(_) => true,
            Err(again) if again.kind() == ErrorKind::ConnectionRefused => {
                socket_file::remove_if_dead(socket);
                false
            }
            Err(again) => !matches!(again.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied),
        };
        let what = format!("gives no status: {error}");
        listens.then(|| SilentServer { socket: socket.to_path_buf(), pid, what })
    }
}

/// Returns the process that listens at the other end, whether or not it accepts.
pub(crate) fn peer(stream: &UnixStream) -> Option<u32> {
    let peer = rustix::net::sockopt::socket_peercred(stream).ok()?;
    u32::try_from(peer.pid.as_raw_pid()).ok()
}

/// Answer at a socket, and the memory for it.
struct Asked<'a> {
    pid: Option<u32>,
    since: Instant,
    /// `None` if there was no time to ask.
    answer: Option<io::Result<Vec<u8>>>,
    _part: Part<'a>,
}

/// Asks all within `patience`, up to `together_max` at a time.
pub(crate) fn drives_at(sockets: &[PathBuf], patience: Duration, together_max: usize) -> FoundDrives {
    let (together, begin) = (Together::default(), Instant::now());
    let ask = |socket: &Path| {
        let (since, mut part, mut pid) = (Instant::now(), together.part(), None);
        let left = || patience.saturating_sub(begin.elapsed());
        let exchange = || -> io::Result<Vec<u8>> {
            let stream = socket_file::connect(socket, left())?;
            pid = peer(&stream);
            receive_status(stream, left(), &mut part)
        };
        let answer = (!left().is_zero()).then(exchange);
        Asked { pid, since, answer, _part: part }
    };
    let all = ask_all(sockets, together_max, ask);
    let mut found = FoundDrives::default();
    let mut bytes_left = ANSWERS_MAX_BYTES;
    // One after the other: reports may take much more than their text.
    for (socket, asked) in sockets.iter().zip(all) {
        let status = match asked.answer {
            None => {
                found.silent.push(SilentServer::not_asked(socket, together_max));
                continue;
            }
            Some(Ok(answer)) => {
                let status = parse_status(&answer, bytes_left);
                bytes_left = bytes_left.saturating_sub(answer.len());
                status
            }
            Some(Err(error)) => Err(error),
        };
        match status {
            Ok(status) => found.drives.extend(status.into_iter().flat_map(|status| status.drives)),
            Err(error) => {
                let waited = patience.saturating_sub(asked.since.duration_since(begin));
                found.silent.extend(SilentServer::failed(socket, asked.pid, waited, &error));
            }
        }
    }
    // The sort is stable, so that the order of the sockets stays otherwise.
    found.drives.sort_by_key(|report| report.state == DriveState::Down);
    found
}

/// Returns the admin sockets in those of the directories that can be trusted, at most [`SOCKETS_MAX`].
pub(crate) fn sockets_in(dirs: &[PathBuf]) -> Vec<PathBuf> {
    let mut sockets: Vec<PathBuf> = Vec::new();
    for dir in dirs.iter().filter(|dir| trusted(dir)) {
        let Ok(entries) = std::fs::read_dir(dir) else { continue };
        let paths = entries.flatten().map(|entry| entry.path());
        // Others are those of NBD or HTTP servers, which would take a question for a client that they have to
        // refuse.
        let of_sockets =
            paths.filter(|path| path.file_name().and_then(OsStr::to_str).is_some_and(names::is_admin));
        let before = sockets.len();
        sockets.extend(of_sockets.take(SOCKETS_MAX - before));
        sockets[before..].sort();
    }
    assert!(sockets.len() <= SOCKETS_MAX, "the number of sockets is bounded");
    sockets
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn answers_have_limits() {
        let drives = |count: usize| format!("{{\"drives\":[{}]}}", vec!["{}"; count].join(","));
        let answer = drives(DRIVES_MAX);
        let Ok(Answer::Status(parsed)) = parse(answer.as_bytes(), answer.len()) else { panic!("an answer") };
        assert_eq!(parsed.drives.len(), DRIVES_MAX);
        let refused =
            |answer: &str, bytes_max| parse(answer.as_bytes(), bytes_max).err().expect("refused").to_string();
        assert_eq!(refused(&answer, answer.len() - 1), "the answers of all servers are longer than 64 MiB");
        assert_eq!(refused(&drives(DRIVES_MAX + 1), usize::MAX), "the answer has more than 4096 drives");
        assert!(
            refused("HTTP/1.1 400", usize::MAX).starts_with("the answer is not that of a Pumice server: ")
        );
        let error = parse(b"{\"error\":\"no\"}", usize::MAX);
        assert!(matches!(error, Ok(Answer::Error { error }) if error == "no"));
    }

    /// Listens and does what it is given with each client.
    fn server(dir: &Path, name: &str, answer: impl Fn(UnixStream) + Send + 'static) -> PathBuf {
        let path = dir.join(name);
        let listener = UnixListener::bind(&path).expect("bound");
        thread::spawn(move || listener.incoming().flatten().for_each(answer));
        path
    }

    fn silence(socket: &Path, what: &str) -> SilentServer {
        SilentServer { socket: socket.to_path_buf(), pid: Some(std::process::id()), what: what.to_string() }
    }

    #[test]
    fn a_look_has_one_time_limit_however_many_hang() {
        let dir = tempfile::tempdir().expect("a directory");
        let hung: Vec<PathBuf> =
            (0..60).map(|number| dir.path().join(format!("a{number:02}.sock"))).collect();
        let _listeners: Vec<_> = hung.iter().map(|it| UnixListener::bind(it).expect("bound")).collect();
        let answer = r#"{"drives":[{"path":"/down","state":"down"},{"path":"/drive","state":"online"}]}"#;
        let healthy = server(dir.path(), "z.sock", move |mut stream| {
            let _ = BufReader::new(&stream).read_line(&mut String::new());
            let _ = writeln!(stream, "{answer}");
        });
        let sockets: Vec<PathBuf> = hung.iter().cloned().chain([healthy]).collect();
        let (patience, since) = (Duration::from_secs(5), Instant::now());
        let found = drives_at(&sockets, patience, ASKED_AT_ONCE_MAX);
        assert!(since.elapsed() < patience * 2, "{:?}", since.elapsed());
        let paths: Vec<_> = found.drives.iter().map(|drive| drive.path.as_path()).collect();
        assert_eq!(paths, [Path::new("/drive"), Path::new("/down")]);
        assert_eq!(found.silent.len(), hung.len());
        for (silent, socket) in found.silent.iter().zip(&hung) {
            assert_eq!((&silent.socket, silent.pid), (socket, Some(std::process::id())));
            assert!(silent.what.starts_with("did not answer within "), "{silent}");
        }
        // Servers that were not asked for lack of time are named too.
        let found = drives_at(&hung[..3], Duration::from_millis(500), 2);
        assert_eq!(found.silent.len(), 3);
        assert_eq!(found.silent[2].what, "was not asked, because 2 others did not answer");
    }

    #[test]
    fn a_server_that_gives_no_status_is_named_with_the_reason() {
        let dir = tempfile::tempdir().expect("a directory");
        let said = |name, text: &'static str| {
            server(dir.path(), name, move |stream| {
                let _ = BufReader::new(&stream).read_line(&mut String::new());
                let _ = (&stream).write_all(text.as_bytes());
            })
        };
        let sockets = [
            said("closes.sock", ""),
            said("error.sock", "{\"error\":\"too old\"}\n"),
            said("half.sock", "{\"drives\":[{"),
            said("http.sock", "HTTP/1.1 400 Bad Request\r\n"),
            server(dir.path(), "long.sock", |mut stream| {
                let chunk = vec![b' '; 1 << 20];
                while stream.write_all(&chunk).is_ok() {}
            }),
            said("nbd.sock", "NBDMAGICIHAVEOPT"),
            dir.path().join("none.sock"),
            dir.path().join("dead.sock"),
        ];
        drop(UnixListener::bind(&sockets[7]).expect("bound"));
        let found = drives_at(&sockets, Duration::from_secs(60), ASKED_AT_ONCE_MAX);
        assert!(found.drives.is_empty());
        let half = found.silent.iter().position(|silent| silent.socket == sockets[2]).expect("named");
        assert!(
            found.silent[half].what.contains("not that of a Pumice server: EOF"),
            "{}",
            found.silent[half]
        );
        assert_eq!(found.silent[0], silence(&sockets[0], "gives no status: disconnected without an answer"));
        assert_eq!(found.silent[1], silence(&sockets[1], "gives no status: it answers: too old"));
        assert_eq!(
            found.silent[3],
            silence(&sockets[4], "gives no status: the answer is longer than 16 MiB")
        );
        assert_eq!(
            found.silent.len(),
            4,
            "sockets for others, and those without a server: {:?}",
            found.silent
        );
    }

    #[test]
    fn sockets_are_limited_and_in_order() {
        let dirs = [(); 3].map(|()| tempfile::tempdir().expect("a directory"));
        for (dir, count) in dirs.iter().zip([2, SOCKETS_MAX, 1]) {
            for number in 0..count {
                std::fs::write(dir.path().join(format!("down-{number}.sock")), "").expect("a file");
            }
            for name in ["other", "nbd.sock"] {
                std::fs::write(dir.path().join(name), "").expect("a file");
            }
        }
        let paths: Vec<PathBuf> = dirs.iter().map(|dir| dir.path().to_path_buf()).collect();
        let sockets = sockets_in(&paths);
        assert_eq!(sockets.len(), SOCKETS_MAX);
        assert_eq!(sockets[..2], [paths[0].join("down-0.sock"), paths[0].join("down-1.sock")]);
        assert!(sockets[2..].iter().all(|socket| socket.starts_with(&paths[1])));
    }
}
