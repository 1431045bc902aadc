//! Control socket of a bridge: each client sends one request and receives one answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::Sender;
use std::time::Duration;

use socket_file::SocketFile;

use super::Event;
use crate::error::AttachError;
use crate::place;
use crate::protocol::{Answer, Request, Status};

/// Clients that wait to be accepted.
const BACKLOG: i32 = 16;
/// Time for a client to send its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(1);
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4096;

/// Opens the control socket of an attachment.
pub(super) fn listen(folder: &Path) -> Result<(UnixListener, SocketFile), AttachError> {
    let control = place::control_socket(folder);
    let (listener, socket) = socket_file::listen(&control, BACKLOG)
        .map_err(|error| AttachError::Refused(format!("{}: {error}", control.display())))?;
    listener.set_nonblocking(false).map_err(|source| AttachError::system(control.display(), source))?;
    Ok((listener, socket))
}

/// Answers status requests, also while the bridge is busy. Passes other requests on.
pub(super) fn receive(
    listener: UnixListener,
    events: Sender<Event>,
    status: impl Fn() -> Status + Send + 'static,
) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            match read_request(&stream) {
                Ok(Request::Status) => answer(&stream, &Answer::Status(status())),
                Ok(Request::Detach { force }) => {
                    if events.send(Event::Detach(stream, force)).is_err() {
                        return;
                    }
                }
                Ok(Request::AwaitDetach) => {
                    tracing::info!("another process waits until the drive is detached");
                    if events.send(Event::AwaitDetach(stream)).is_err() {
                        return;
                    }
                }
                Err(_) => {}
            }
        }
    });
}

fn read_request(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).take(REQUEST_BYTES_MAX).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// Answers a client.
pub(super) fn answer(mut stream: &UnixStream, answer: &Answer) {
    let mut line = serde_json::to_string(answer).unwrap_or_default();
    line.push('\n');
    // The client may be gone.
    let _ = stream.write_all(line.as_bytes());
}
