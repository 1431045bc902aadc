//! A connection to the drive's server in the transmission phase: it sends requests and reads simple replies.

use std::io::{self, BufReader, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;

use nbd::client::Agreed;
use nbd::delivery;
use nbd::protocol as wire;
use nbd::reply::{CHANGED_BYTES, Changed, Closing, Delivered, SIMPLE_REPLY_BYTES, SimpleReply};
use nbd::request::{REQUEST_HEADER_BYTES, RequestHeader};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::operation::{Header, Operation, Outcome};

/// Bytes read at once; longer data is read in place.
const RECEIVE_BYTES: usize = 64 << 10;

/// The sending half.
pub(crate) struct Link {
    stream: UnixStream,
    /// If the server delivers, the data of reads that have [`delivery::COOKIE_BIT`] in their cookie.
    agreed: Agreed,
    /// Held while a request is written.
    writing: Mutex<()>,
}

impl Link {
    pub(crate) fn new(stream: UnixStream, agreed: Agreed) -> Link {
        Link { stream, agreed, writing: Mutex::new(()) }
    }

    /// Returns the receiving half.
    pub(crate) fn replies(&self) -> io::Result<Replies> {
        let stream = BufReader::with_capacity(RECEIVE_BYTES, self.stream.try_clone()?);
        Ok(Replies { stream, agreed: self.agreed })
    }

    /// Sends requests, each with its cookie, by as few system calls as possible. If one was sent only in
    /// part, the connection is ended.
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

    /// Tells the server that all changes were replayed, if it knows that the drive is attached.
    pub(crate) fn ready(&self) -> io::Result<()> {
        self.tell(wire::CMD_READY, 0)
    }

    /// Tells the server that the notice of a change was taken care of.
    pub(crate) fn acknowledge(&self, number: u64) -> io::Result<()> {
        self.tell(wire::CMD_HEARD, number)
    }

    fn tell(&self, command: u16, cookie: u64) -> io::Result<()> {
        if !self.agreed.attaches {
            return Ok(());
        }
        let header = RequestHeader { flags: 0, command, cookie, offset: 0, length: 0 }.encode();
        self.write(&mut [IoSlice::new(&header)]).inspect_err(|_| self.shut())
    }

    fn header(&self, cookie: u64, operation: &Operation) -> [u8; REQUEST_HEADER_BYTES] {
        let Header { command, mut flags, offset, length } = operation.header();
        if self.agreed.delivers && cookie & delivery::COOKIE_BIT != 0 {
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
        // Another thread is sending, and waits for a server that receives nothing.
        let Some(_writing) = self.writing.try_lock() else { return };
        // The server may be gone.
        let _ = self.stream.set_nonblocking(true);
        let _ = (&self.stream).write(&header.encode());
    }

    /// Ends the connection. Threads that send or receive get an error.
    pub(crate) fn shut(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// Reply of the server to a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Outcome(Outcome),
    /// The data was delivered to the FUSE device.
    Delivered,
}

/// Message of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message {
    /// A reply to the request with this cookie.
    Reply(u64, Reply),
    /// Another client changed a range.
    Changed(Changed),
    /// The server is about to close the drive.
    Closing,
}

/// The receiving half.
pub(crate) struct Replies {
    stream: BufReader<UnixStream>,
    /// As of the link.
    agreed: Agreed,
}

impl Replies {
    /// Waits for a message. `length` returns the length of the data that the request with a cookie is to
    /// read; `None` if there is no such request.
    pub(crate) fn next(&mut self, length: impl FnOnce(u64) -> Option<u32>) -> io::Result<Message> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut header = [0; SIMPLE_REPLY_BYTES];
        self.stream.read_exact(&mut header)?;
        if self.agreed.attaches && Closing::decode(&header).is_some() {
            return Ok(Message::Closing);
        }
        if self.agreed.attaches && Changed::begins(&header) {
            let mut notice = [0; CHANGED_BYTES];
            let (begin, rest) = notice.split_at_mut(SIMPLE_REPLY_BYTES);
            begin.copy_from_slice(&header);
            self.stream.read_exact(rest)?;
            let notice =
                Changed::decode(&notice).ok_or_else(|| invalid("the server sent an invalid notice"))?;
            return Ok(Message::Changed(notice));
        }
        if let Some(Delivered { cookie }) = Delivered::decode(&header) {
            let is_asked = self.agreed.delivers && cookie & delivery::COOKIE_BIT != 0;
            return match length(cookie) {
                Some(1..) if is_asked => Ok(Message::Reply(cookie, Reply::Delivered)),
                _ => Err(invalid("the server delivered data that was not requested")),
            };
        }
        let SimpleReply { error, cookie } = SimpleReply::decode(&header)
            .ok_or_else(|| invalid("the server sent something other than a reply"))?;
        let length =
            length(cookie).ok_or_else(|| invalid("the server answered a request that was not sent"))?;
        if error != 0 {
            // Codes of the protocol are those of Linux.
            let code = i32::try_from(error).map_err(|_| invalid("the server reported an unknown error"))?;
            return Ok(Message::Reply(cookie, Reply::Outcome(Err(Errno::from_raw_os_error(code)))));
        }
        let mut data = vec![0; length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(Message::Reply(cookie, Reply::Outcome(Ok(data))))
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
        Message::Reply(_, Reply::Outcome(outcome)) => Ok(outcome),
        Message::Closing => Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the server is closing")),
        Message::Reply(_, Reply::Delivered) | Message::Changed(_) => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "the server sent a reply that was not requested"))
        }
    }
}
