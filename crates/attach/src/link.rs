//! A connection to the drive's server, in transmission: requests are sent, and simple replies read.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use nbd::delivery;
use nbd::protocol as wire;
use nbd::reply::{Delivered, SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::{REQUEST_HEADER_BYTES, RequestHeader};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::operation::{Header, Operation, Outcome};

/// Bytes read at once; longer data is read in place.
const RECEIVE_BYTES: usize = 64 << 10;

/// The sending half.
pub(crate) struct Link {
    stream: UnixStream,
    /// The server delivers the data of reads that have [`delivery::COOKIE_BIT`] in their cookie.
    delivers: bool,
    /// Held while a request is written.
    writing: Mutex<()>,
}

impl Link {
    pub(crate) fn new(stream: UnixStream, delivers: bool) -> Link {
        Link { stream, delivers, writing: Mutex::new(()) }
    }

    /// Returns the receiving half.
    pub(crate) fn replies(&self) -> io::Result<Replies> {
        let stream = BufReader::with_capacity(RECEIVE_BYTES, self.stream.try_clone()?);
        Ok(Replies { stream, delivers: self.delivers })
    }

    /// Sends requests, each with its cookie, by as few system calls as possible. If one was sent only in part, the connection
    /// is ended.
    pub(crate) fn send(&self, requests: &[(u64, &Operation)]) -> io::Result<()> {
        let headers: Vec<_> =
            requests.iter().map(|(cookie, operation)| self.header(*cookie, operation)).collect();
        let pieces =
            headers.iter().zip(requests).flat_map(|(header, (_, operation))| [header, operation.data()]);
        let mut pieces: Vec<_> = pieces.filter(|piece| !piece.is_empty()).map(IoSlice::new).collect();
        let sent = self.write(&mut pieces);
        if sent.is_err() {
            self.shut();
        }
        sent
    }

    fn header(&self, cookie: u64, operation: &Operation) -> [u8; REQUEST_HEADER_BYTES] {
        let Header { command, mut flags, offset, length } = operation.header();
        if self.delivers && cookie & delivery::COOKIE_BIT != 0 {
            flags |= wire::CMD_FLAG_DELIVER;
        }
        RequestHeader { flags, command, cookie, offset, length }.encode()
    }

    fn write(&self, mut left: &mut [IoSlice<'_>]) -> io::Result<()> {
        let _writing = self.writing.lock();
        while !left.is_empty() {
            match (&self.stream).write_vectored(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut left, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Tells the server that no more requests come. It answers nothing.
    pub(crate) fn disconnect(&self) {
        let header = RequestHeader { flags: 0, command: wire::CMD_DISC, cookie: 0, offset: 0, length: 0 };
        // Whoever is sending waits for a server that takes nothing.
        let Some(_writing) = self.writing.try_lock() else { return };
        // A server that is gone need not know.
        let _ = self.stream.set_nonblocking(true);
        let _ = (&self.stream).write(&header.encode());
    }

    /// Ends the connection. Threads that send or receive get an error.
    pub(crate) fn shut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// What the server says of a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Outcome(Outcome),
    /// What was read is where it is awaited.
    Delivered,
}

/// The receiving half.
pub(crate) struct Replies {
    stream: BufReader<UnixStream>,
    /// As of the link.
    delivers: bool,
}

impl Replies {
    /// Waits for a reply. `length` returns the length of the data that the request with a cookie is to read; `None` if there
    /// is no such request.
    pub(crate) fn next(&mut self, length: impl FnOnce(u64) -> Option<u32>) -> io::Result<(u64, Reply)> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut header = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut header)?;
        if let Some(Delivered { cookie }) = Delivered::decode(&header) {
            let is_asked = self.delivers && cookie & delivery::COOKIE_BIT != 0;
            return match length(cookie) {
                Some(1..) if is_asked => Ok((cookie, Reply::Delivered)),
                _ => Err(invalid("the server has delivered what was not asked for")),
            };
        }
        let SimpleReply { error, cookie } = SimpleReply::decode(&header)
            .ok_or_else(|| invalid("the server sends something else than a reply"))?;
        let length = length(cookie).ok_or_else(|| invalid("the server answers what was not asked"))?;
        if error != 0 {
            // Codes of the protocol are those of Linux.
            let code = i32::try_from(error).map_err(|_| invalid("the server reports an unknown error"))?;
            return Ok((cookie, Reply::Outcome(Err(Errno::from_raw_os_error(code)))));
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok((cookie, Reply::Outcome(Ok(data))))
    }
}

/// Sends one request on a connection with nothing in flight, and waits for its reply.
pub(crate) fn call(
    link: &Link,
    replies: &mut Replies,
    cookie: u64,
    operation: &Operation,
) -> io::Result<Outcome> {
    let length = match operation {
        Operation::Read { length, .. } => *length,
        _ => 0,
    };
    link.send(&[(cookie, operation)])?;
    match replies.next(|answered| (answered == cookie).then_some(length))? {
        (_, Reply::Outcome(outcome)) => Ok(outcome),
        (_, Reply::Delivered) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "what was not asked for was delivered"))
        }
    }
}
