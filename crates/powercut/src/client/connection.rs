//! The client's side of the NBD protocol, with simple replies only.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nbd::client::{Replies, negotiate};
use nbd::reply::{SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::RequestHeader;

/// Time without a reply after which the server counts as hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// One end of a connection in transmission. A clone refers to the same connection.
pub(super) struct Connection {
    stream: UnixStream,
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server sent a malformed {what}"))
}

impl Connection {
    /// Connects to the only export of a socket.
    pub(super) fn open(socket: &Path) -> io::Result<Connection> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let mut connection = Connection { stream };
        negotiate(&mut connection.stream, "", Replies::Simple)?;
        Ok(connection)
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Returns the same connection, for another thread.
    pub(super) fn share(&self) -> io::Result<Connection> {
        Ok(Connection { stream: self.stream.try_clone()? })
    }

    /// Ends the connection for all that share it.
    pub(super) fn hang_up(&self) {
        // It may already be closed.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    /// Sends a request.
    pub(super) fn send(&mut self, header: &RequestHeader, data: &[u8]) -> io::Result<()> {
        self.stream.write_all(&header.encode())?;
        self.stream.write_all(data)
    }

    /// Receives the header of the next reply: the cookie and the error, if any.
    pub(super) fn receive(&mut self) -> io::Result<SimpleReply> {
        let header: [u8; SIMPLE_REPLY_BYTES] = self.take()?;
        SimpleReply::decode(&header).ok_or_else(|| malformed("reply"))
    }

    /// Receives the data that follows the reply to a read.
    pub(super) fn receive_data(&mut self, data: &mut [u8]) -> io::Result<()> {
        self.stream.read_exact(data)
    }
}
