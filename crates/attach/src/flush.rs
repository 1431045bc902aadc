//! A flush over a connection to the drive's server that carries nothing else.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nbd::protocol::CMD_FLUSH;
use nbd::reply::{SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::RequestHeader;
use rustix::io::Errno;

/// Flushes, and waits for the reply.
///
/// # Errors
/// That of the server; `TIMEDOUT` if it does not answer within `patience`. The connection is of no use then.
pub(crate) fn flush_within(mut stream: UnixStream, patience: Duration) -> Result<(), Errno> {
    let limit = patience.max(Duration::from_millis(1));
    let answered = stream.set_read_timeout(Some(limit)).and_then(|()| call(&mut stream));
    match answered {
        Ok(0) => Ok(()),
        // Codes of the protocol are those of Linux.
        Ok(code) => Err(Errno::from_raw_os_error(code)),
        Err(error) => {
            // A late reply would be taken for that to the next one.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            Err(match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Errno::TIMEDOUT,
                _ => Errno::from_io_error(&error).unwrap_or(Errno::IO),
            })
        }
    }
}

/// Returns the error code of the reply.
fn call(stream: &mut UnixStream) -> io::Result<i32> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let request = RequestHeader { flags: 0, command: CMD_FLUSH, cookie: 0, offset: 0, length: 0 };
    stream.write_all(&request.encode())?;
    let mut reply = [0; SIMPLE_REPLY_BYTES];
    stream.read_exact(&mut reply)?;
    let SimpleReply { error, .. } = SimpleReply::decode(&reply).ok_or_else(invalid)?;
    i32::try_from(error).map_err(|_| invalid())
}
