//! Requests to bridges at their control sockets.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::place;
use crate::protocol::{Answer, AttachmentState, Request};

/// Time for a bridge to accept a request.
const CONNECTING: Duration = Duration::from_secs(5);
/// Least time limit: zero would be none.
const TIME_MIN: Duration = Duration::from_millis(1);
/// Time for a bridge that may be ending.
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);

/// Reason why a bridge has not answered.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// Nobody listens: not yet, or no longer.
    #[error("it is starting or ending")]
    Absent,
    /// The connection was closed.
    #[error("it ended meanwhile")]
    Ended,
    /// It took longer than this.
    #[error("nothing within {:.0} seconds", .0.as_secs_f64().ceil())]
    Late(Duration),
    /// This program does not know the answer.
    #[error("unknown answer; it may run another version of this program")]
    Unknown,
    /// The socket does not work.
    #[error("{0}")]
    Socket(io::Error),
}

impl Unanswered {
    fn of(error: io::Error, patience: Duration) -> Unanswered {
        use io::ErrorKind::*;
        match error.kind() {
            NotFound | ConnectionRefused => Unanswered::Absent,
            UnexpectedEof | ConnectionReset | BrokenPipe => Unanswered::Ended,
            // Of a socket with a time limit.
            WouldBlock | TimedOut => Unanswered::Late(patience),
            _ => Unanswered::Socket(error),
        }
    }

    /// Returns whether the bridge starts or ends.
    pub(crate) fn is_passing(&self) -> bool {
        matches!(self, Unanswered::Absent | Unanswered::Ended)
    }
}

/// Returns the state that a bridge reports.
pub(crate) fn state(folder: &Path) -> Result<AttachmentState, Unanswered> {
    match ask(folder, &Request::Status, ANSWER_PATIENCE)? {
        Answer::Status(status) => Ok(status.state),
        _ => Err(Unanswered::Unknown),
    }
}

/// Asks a bridge. `patience`: time for its answer.
pub(crate) fn ask(folder: &Path, request: &Request, patience: Duration) -> Result<Answer, Unanswered> {
    let stream = socket_file::connect(&place::control_socket(folder), CONNECTING);
    ask_on(stream.map_err(|error| Unanswered::of(error, CONNECTING))?, request, patience)
}

/// As [`ask`], with one limit for connecting and the answer.
pub(crate) fn ask_within(folder: &Path, request: &Request, patience: Duration) -> Result<Answer, Unanswered> {
    let since = Instant::now();
    let stream = socket_file::connect(&place::control_socket(folder), patience);
    let stream = stream.map_err(|error| Unanswered::of(error, patience))?;
    let left = patience.saturating_sub(since.elapsed());
    ask_on(stream, request, left.max(TIME_MIN))
}

fn ask_on(mut stream: UnixStream, request: &Request, patience: Duration) -> Result<Answer, Unanswered> {
    let failed = |error| Unanswered::of(error, patience);
    stream.set_read_timeout(Some(patience)).map_err(failed)?;
    let request = serde_json::to_string(request).map_err(|error| failed(error.into()))?;
    writeln!(stream, "{request}").map_err(failed)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).map_err(failed)?;
    if !line.ends_with('\n') {
        return Err(Unanswered::Ended);
    }
    serde_json::from_str(&line).map_err(|_| Unanswered::Unknown)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_question_without_an_answer_has_a_reason_for_people() {
        let folder = tempfile::tempdir().expect("a directory");
        let ask = || ask(folder.path(), &Request::Status, Duration::from_millis(50)).expect_err("no answer");
        assert!(matches!(ask(), Unanswered::Absent), "no socket");
        let listener = UnixListener::bind(place::control_socket(folder.path())).expect("bound");
        assert!(matches!(ask(), Unanswered::Late(_)));
        let answers = ["", "{\"status\":", "{\"news\":{}}\n"];
        thread::scope(|scope| {
            scope.spawn(|| {
                // The first one is that of the question that nobody has answered.
                let streams = listener.incoming().flatten().skip(1);
                for (answer, stream) in answers.into_iter().zip(streams) {
                    let _ = BufReader::new(&stream).read_line(&mut String::new());
                    let _ = (&stream).write_all(answer.as_bytes());
                }
            });
            let ask = || {
                super::ask(folder.path(), &Request::Status, Duration::from_secs(60)).expect_err("no answer")
            };
            assert!(matches!(ask(), Unanswered::Ended), "the connection was closed");
            assert!(matches!(ask(), Unanswered::Ended), "in the middle of an answer");
            assert!(matches!(ask(), Unanswered::Unknown));
        });
        drop(listener);
        assert!(matches!(ask(), Unanswered::Absent), "a socket to which nobody listens");
        for unanswered in [Unanswered::Absent, Unanswered::Ended, Unanswered::Unknown] {
            let text = unanswered.to_string();
            assert!(!text.contains("os error") && !text.contains("line 1"), "{text}");
        }
    }
}
