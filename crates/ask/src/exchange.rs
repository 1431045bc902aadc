//! Requests to admin sockets. The server may be busy, silent, or send without end, so there are limits on
//! time, bytes and the number of sockets.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest answer. The report of a drive takes some 10 KiB. A power of two, as memory for answers is taken.
const ANSWER_MAX_BYTES: usize = 16 << 20;
/// Most bytes of memory for answers that are being received together, beyond [`SHORT_BYTES`] of each.
const TOGETHER_MAX_BYTES: usize = 64 << 20;
/// Bytes of each answer that do not count: no server keeps others from a short answer.
const SHORT_BYTES: usize = 256 << 10;
/// Bytes received at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Default time limit for connecting and sending the request, and for receiving the whole answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Memory for answers that are being received together, in bytes.
#[derive(Default)]
pub(crate) struct Together {
    bytes: AtomicUsize,
}

/// Memory that one answer takes of the limit, until it is dropped.
pub(crate) struct Part<'a> {
    together: &'a Together,
    bytes: usize,
}

impl Together {
    pub(crate) fn part(&self) -> Part<'_> {
        Part { together: self, bytes: 0 }
    }
}

impl Part<'_> {
    /// Returns false if there is no room for an answer that takes this much memory by now.
    fn grow(&mut self, bytes: usize) -> bool {
        let more = bytes.saturating_sub(SHORT_BYTES).saturating_sub(self.bytes);
        let before = self.together.bytes.fetch_add(more, Ordering::Relaxed);
        self.bytes += more;
        more == 0 || before + more <= TOGETHER_MAX_BYTES
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.together.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Sends a line to the server at `socket`. Returns the line that it answers.
///
/// # Errors
///
/// If the connection is not accepted within `connecting`, the answer is not complete within `answering`, or
/// the answer is empty or longer than 16 MiB.
pub(crate) fn ask_line(
    socket: &Path,
    line: &[u8],
    connecting: Duration,
    answering: Duration,
) -> io::Result<Vec<u8>> {
    let together = Together::default();
    ask_line_on(socket_file::connect(socket, connecting)?, line, connecting, answering, &mut together.part())
}

/// As [`ask_line`], for a server that is connected. The line is sent within `sending`; both limits are
/// greater than zero. Fails also if there is no room for the answer beside others.
pub(crate) fn ask_line_on(
    mut stream: UnixStream,
    line: &[u8],
    sending: Duration,
    answering: Duration,
    part: &mut Part<'_>,
) -> io::Result<Vec<u8>> {
    stream.set_write_timeout(Some(sending))?;
    match stream.write_all(line) {
        // It has already closed the connection, and may have sent something before.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        written => written?,
    }
    read_line(&mut stream, answering, part)
}

fn read_line(stream: &mut UnixStream, answering: Duration, part: &mut Part<'_>) -> io::Result<Vec<u8>> {
    let wrong = |kind, message: String| Err(io::Error::new(kind, message));
    let since = Instant::now();
    let mut answer = Vec::new();
    let mut received = vec![0; RECEIVE_BYTES];
    loop {
        let left = answering.saturating_sub(since.elapsed());
        if left.is_zero() {
            let seconds = answering.as_secs_f32();
            return wrong(ErrorKind::TimedOut, format!("no complete answer within {seconds} seconds"));
        }
        stream.set_read_timeout(Some(left))?;
        let count = match stream.read(&mut received) {
            Ok(count) => count,
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => continue,
            // It has closed the connection without reading the question: its answer ends here.
            Err(error) if error.kind() == ErrorKind::ConnectionReset && !answer.is_empty() => 0,
            Err(error) => return Err(error),
        };
        let received = &received[..count];
        let end = received.iter().position(|byte| *byte == b'\n');
        let more = &received[..end.unwrap_or(count)];
        let length = answer.len() + more.len();
        if length > ANSWER_MAX_BYTES {
            let limit = ANSWER_MAX_BYTES >> 20;
            return wrong(ErrorKind::InvalidData, format!("the answer is longer than {limit} MiB"));
        }
        if length > answer.capacity() {
            let capacity = length.next_power_of_two();
            if !part.grow(capacity) {
                let limit = TOGETHER_MAX_BYTES >> 20;
                return wrong(
                    ErrorKind::InvalidData,
                    format!("the answers of all servers are longer than {limit} MiB"),
                );
            }
            answer.reserve_exact(capacity - answer.len());
        }
        answer.extend_from_slice(more);
        match count {
            0 if answer.is_empty() => {
                return wrong(ErrorKind::UnexpectedEof, "disconnected without an answer".to_string());
            }
            _ if count == 0 || end.is_some() => return Ok(answer),
            _ => {}
        }
    }
}

/// Calls `ask` for each socket, for up to `together_max` of them at a time. The results are in the order of
/// the sockets.
pub fn ask_all<T: Send>(sockets: &[PathBuf], together_max: usize, ask: impl Fn(&Path) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::with_capacity(sockets.len()));
    let work = || {
        while let Some((index, socket)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            sockets.get(index).map(|socket| (index, socket))
        } {
            let result = ask(socket);
            results.lock().push((index, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..sockets.len().min(together_max) {
            // With fewer threads it only takes longer.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let mut results = results.into_inner();
    assert_eq!(results.len(), sockets.len(), "each socket has a result");
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::os::unix::net::UnixListener;
    use std::sync::{Arc, Barrier};

    use super::*;

    /// Far more than any of these tests needs.
    const LONG: Duration = Duration::from_secs(60);

    /// Listens in a directory, reads the question of one client, and answers.
    fn server(
        dir: &tempfile::TempDir,
        name: &str,
        answer: impl FnOnce(UnixStream) -> io::Result<()> + Send + 'static,
    ) -> PathBuf {
        let path = dir.path().join(name);
        let listener = UnixListener::bind(&path).expect("bound");
        thread::spawn(move || {
            let (stream, _) = listener.accept()?;
            BufReader::new(&stream).read_line(&mut String::new())?;
            answer(stream)
        });
        path
    }

    fn dir() -> tempfile::TempDir {
        tempfile::tempdir().expect("a directory")
    }

    #[test]
    fn an_answer_is_one_line() {
        let dir = dir();
        let ask = |name, text: &'static str| {
            let socket = server(&dir, name, move |mut stream| stream.write_all(text.as_bytes()));
            ask_line(&socket, b"question\n", LONG, LONG)
        };
        assert_eq!(ask("a", "answer\n").expect("an answer"), b"answer");
        assert_eq!(ask("b", "answer\nmore\n").expect("an answer"), b"answer");
        assert_eq!(ask("c", "answer").expect("to the end"), b"answer");
        assert_eq!(ask("d", "").expect_err("no answer").kind(), ErrorKind::UnexpectedEof);
    }

    #[test]
    fn an_answer_that_drips_has_a_time_limit() {
        let dir = dir();
        // A byte comes in time, the whole answer does not.
        let socket = server(&dir, "drips", |mut stream| {
            for _ in 0..400 {
                stream.write_all(b" ")?;
                thread::sleep(Duration::from_millis(10));
            }
            stream.write_all(b"late\n")
        });
        let error = ask_line(&socket, b"question\n", LONG, Duration::from_millis(500)).expect_err("late");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "no complete answer within 0.5 seconds");
    }

    #[test]
    fn an_answer_without_end_has_a_limit() {
        let dir = dir();
        let sent = |name, bytes: usize| {
            let socket = server(&dir, name, move |mut stream| {
                let chunk = vec![b' '; 1 << 20];
                for _ in 0..bytes >> 20 {
                    stream.write_all(&chunk)?;
                }
                stream.write_all(b"\n")
            });
            ask_line(&socket, b"question\n", LONG, LONG)
        };
        assert_eq!(sent("long", ANSWER_MAX_BYTES).expect("the longest").len(), ANSWER_MAX_BYTES);
        let error = sent("longer", ANSWER_MAX_BYTES * 2).expect_err("too long");
        assert_eq!(error.to_string(), "the answer is longer than 16 MiB");
    }

    #[test]
    fn servers_are_asked_side_by_side_and_answers_are_in_order() {
        let dir = dir();
        // None answers before all are asked.
        let count = 20;
        let all_asked = Arc::new(Barrier::new(count));
        let sockets: Vec<PathBuf> = (0..count)
            .map(|number| {
                let all_asked = Arc::clone(&all_asked);
                server(&dir, &number.to_string(), move |mut stream| {
                    all_asked.wait();
                    writeln!(stream, "{number}")
                })
            })
            .collect();
        let answers = ask_all(&sockets, count, |socket| {
            let answer = ask_line(socket, b"question\n", LONG, LONG).ok()?;
            String::from_utf8(answer).ok()?.parse::<usize>().ok()
        });
        assert_eq!(answers, (0..count).map(Some).collect::<Vec<_>>());
        assert!(ask_all(&[], count, |_| ()).is_empty());
    }

    #[test]
    fn no_more_than_the_limit_are_asked_at_a_time() {
        let sockets = vec![PathBuf::new(); 40];
        let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        ask_all(&sockets, 4, |_| {
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            thread::sleep(Duration::from_millis(2));
            now.fetch_sub(1, Ordering::Relaxed);
        });
        assert!((1..=4).contains(&most.into_inner()));
    }

    #[test]
    fn a_greeting_before_the_question_is_an_answer() {
        let dir = dir();
        let path = dir.path().join("other");
        let listener = UnixListener::bind(&path).expect("bound");
        // As an NBD server does, which closes the connection with the rest of the question unread.
        thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.write_all(b"NBDMAGIC")?;
            stream.read_exact(&mut [0; 4])
        });
        assert_eq!(ask_line(&path, b"question\n", LONG, LONG).expect("an answer"), b"NBDMAGIC");
    }

    #[test]
    fn answers_have_a_limit_together_until_they_are_dropped() {
        let dir = dir();
        let together = Together::default();
        let mut count = 0;
        let mut ask = |bytes: usize, part: &mut Part<'_>| {
            count += 1;
            let socket = server(&dir, &count.to_string(), move |mut stream| {
                stream.write_all(&vec![b' '; bytes])?;
                stream.write_all(b"\n")
            });
            let stream = socket_file::connect(&socket, LONG)?;
            ask_line_on(stream, b"question\n", LONG, LONG, part).map(|answer| answer.len())
        };
        // The memory for it is what counts.
        let long = ANSWER_MAX_BYTES - SHORT_BYTES;
        assert_eq!(long.next_power_of_two() * 4, TOGETHER_MAX_BYTES);
        let mut parts: Vec<Part<'_>> = (0..5).map(|_| together.part()).collect();
        for part in &mut parts[..4] {
            assert_eq!(ask(long, part).expect("an answer"), long);
        }
        let error = ask(long, &mut parts[4]).expect_err("too much");
        assert_eq!(error.to_string(), "the answers of all servers are longer than 64 MiB");
        // A refused answer takes no room once it is dropped, and short ones need none.
        assert_eq!(ask(SHORT_BYTES, &mut together.part()).expect("short"), SHORT_BYTES);
        parts.clear();
        assert_eq!(ask(long, &mut together.part()).expect("an answer"), long);
        assert_eq!(together.bytes.load(Ordering::Relaxed), 0);
    }
}
