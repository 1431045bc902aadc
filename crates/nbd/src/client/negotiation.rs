//! The client's side of the negotiation.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fuse::Share;

use super::protocol;
use crate::connection::front_end;
use crate::connection::ublk_queue::QueueNumber;
use crate::fence::attachment::{FOR_KERNEL, RETURNS, UNCACHED};
use crate::wire::option_reply::{OPTION_REPLY_HEADER_BYTES, OptionReplyHeader};
use crate::wire::protocol as wire;

/// Longest reply to an option that is accepted, in bytes.
const OPTION_REPLY_BYTES_MAX: u32 = 64 << 10;

/// Most replies to an option.
const OPTION_REPLIES_MAX: u32 = 1024;

/// Longest time in which a server is asked again what a keeper has left.
const LEFT_PATIENCE: Duration = Duration::from_secs(10);

/// Interval of these questions.
const LEFT_INTERVAL: Duration = Duration::from_millis(100);

/// Why a server does not take requests of the kernel.
const NOT_FOR_KERNEL: &str =
    "the server takes no requests from the kernel: it is of an older program, or of another user";

/// Result of a negotiation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// Size of the export; 0 if the server did not report it.
    pub size_bytes: u64,
    /// True if replies are structured.
    pub is_structured: bool,
    /// Identifier of `base:allocation`, if the server has it.
    pub allocation: Option<u32>,
}

/// Kinds of replies that a client understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replies {
    /// Simple ones only.
    Simple,
    /// Structured ones, with `base:allocation`, if the server has them.
    Structured,
}

/// Negotiates for the export `name` ("fixed newstyle negotiation"), without TLS.
///
/// # Errors
/// Errors of the stream. `InvalidData` with the reason if the server refuses, or is not an NBD server.
pub fn negotiate(stream: &mut (impl Read + Write), name: &str, replies: Replies) -> io::Result<Negotiated> {
    greet(stream)?;
    choose(stream, name, replies)
}

/// Where the server takes requests from, if not from the stream.
#[derive(Clone, Copy, Debug)]
pub enum Brought<'a> {
    /// A [FUSE device](crate::front_end).
    Fuse(&'a Share),
    /// A [queue of a ublk device](crate::ublk_queue), and the driver's own device.
    Queue(QueueNumber, &'a File),
}

/// Extensions that a bridge requests from the server of a drive.
#[derive(Clone, Copy, Debug)]
pub struct Wishes<'a> {
    /// Where the server takes requests from, if not from the stream.
    pub brings: Option<Brought<'a>>,
    /// The [opening](crate::attachment) of the device that must be behind the name; empty: any.
    pub opening: &'a str,
    /// The device of the drive was there before, and may be in use: see [`crate::attachment`].
    pub returns: bool,
    /// A driver of the kernel takes the stream, after the negotiation.
    pub for_kernel: bool,
    /// No flushes are sent: each change is to be durable before its reply.
    pub uncached: bool,
}

impl Wishes<'_> {
    fn flags(&self) -> u8 {
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        flag(self.returns, RETURNS) | flag(self.for_kernel, FOR_KERNEL) | flag(self.uncached, UNCACHED)
    }
}

/// Extensions that a server agreed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// It knows that the drive is [attached](crate::attachment), and keeps others from undoing that.
    pub attaches: bool,
}

/// As [`negotiate`] with simple replies, as the bridge of an attached drive. A server of an older program
/// agrees to nothing.
///
/// # Errors
/// As [`negotiate`]: the server refuses if other clients have write access. One of an older program refuses
/// to serve the kernel.
pub fn negotiate_attachment(stream: &mut UnixStream, name: &str, wishes: Wishes<'_>) -> io::Result<Agreed> {
    greet(stream)?;
    let mut client = Client { stream, replies: 0 };
    if let Some(brought) = wishes.brings {
        client.bring(brought)?;
    }
    let flags = wishes.flags();
    let data = [&[flags], wishes.opening.as_bytes()].concat();
    // An older program takes the byte alone.
    let attaches = client.option(wire::OPT_ATTACH, &data)?.kind == wire::REP_ACK
        || data.len() > 1 && client.option(wire::OPT_ATTACH, &[flags])?.kind == wire::REP_ACK;
    if wishes.for_kernel && !attaches {
        return Err(protocol(NOT_FOR_KERNEL));
    }
    choose(stream, name, Replies::Simple)?;
    Ok(Agreed { attaches })
}

/// Returns what a keeper that was killed has left of the FUSE file of the export `name`: nothing, if the
/// server is of an older program, or has nothing. `opening`: see [`Wishes`].
///
/// # Errors
/// Errors of the stream. `ResourceBusy` if connections of the device were being handed over, or had a keeper,
/// for ten seconds: it may be tried again. `InvalidData` with the reason if the server refuses, or sends
/// something else.
pub fn take_left(stream: &mut UnixStream, name: &str, opening: &str) -> io::Result<Vec<Share>> {
    take_left_within(LEFT_PATIENCE, stream, name, opening)
}

fn take_left_within(
    patience: Duration,
    stream: &mut UnixStream,
    name: &str,
    opening: &str,
) -> io::Result<Vec<Share>> {
    greet(stream)?;
    let mut client = Client { stream, replies: 0 };
    let data = [&[RETURNS], opening.as_bytes()].concat();
    if client.option(wire::OPT_ATTACH, &data)?.kind != wire::REP_ACK {
        return Ok(Vec::new());
    }
    let since = Instant::now();
    let mut reply = client.option(wire::OPT_LEFT, name.as_bytes())?;
    while reply.kind == wire::REP_ERR_POLICY {
        if since.elapsed() >= patience {
            let said = String::from_utf8_lossy(&reply.data);
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, format!("the server refuses: {said}")));
        }
        sleep(LEFT_INTERVAL);
        reply = client.option(wire::OPT_LEFT, name.as_bytes())?;
    }
    match reply.kind {
        wire::REP_ACK => {
            let count = reply.data.first_chunk().copied().map_or(0, u32::from_be_bytes);
            if count > front_end::SHARES_MAX {
                return Err(protocol("the server has more shares of a FUSE file than a bridge has"));
            }
            (0..count).map(|_| front_end::receive_share(client.stream)).collect()
        }
        wire::REP_ERR_UNSUP => Ok(Vec::new()),
        kind => {
            let said = String::from_utf8_lossy(&reply.data);
            Err(protocol(format!("the server refuses: {said} (error {kind:#x})")))
        }
    }
}

/// Reads the greeting and answers it.
pub(super) fn greet(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let mut client = Client { stream, replies: 0 };
    if u64::from_be_bytes(client.take()?) != wire::INIT_MAGIC
        || u64::from_be_bytes(client.take()?) != wire::OPTS_MAGIC
    {
        return Err(protocol("not an NBD server of the newstyle protocol"));
    }
    if u16::from_be_bytes(client.take()?) & wire::FLAG_FIXED_NEWSTYLE == 0 {
        return Err(protocol("the server does not speak fixed newstyle"));
    }
    client.stream.write_all(&wire::FLAG_C_FIXED_NEWSTYLE.to_be_bytes())
}

/// Asks for TLS. When this returns, the server expects the TLS handshake.
pub(super) fn start_tls(stream: &mut (impl Read + Write)) -> io::Result<()> {
    let reply = Client { stream, replies: 0 }.option(wire::OPT_STARTTLS, &[])?;
    match reply.kind {
        wire::REP_ACK => Ok(()),
        kind => Err(protocol(format!("the server has no TLS (error {kind:#x})"))),
    }
}

/// Negotiates for the export `name` after the greeting, and TLS if there is any.
pub(super) fn choose(
    stream: &mut (impl Read + Write),
    name: &str,
    replies: Replies,
) -> io::Result<Negotiated> {
    let mut client = Client { stream, replies: 0 };
    let mut found = Negotiated::default();
    if replies == Replies::Structured {
        found.is_structured = client.option(wire::OPT_STRUCTURED_REPLY, &[])?.kind == wire::REP_ACK;
    }
    if found.is_structured {
        found.allocation = client.ask_for_allocation(name)?;
    }
    found.size_bytes = client.go(name)?;
    Ok(found)
}

impl Client<'_, UnixStream> {
    /// Hands a device over to the server.
    fn bring(&mut self, brought: Brought<'_>) -> io::Result<()> {
        let (option, data) = match brought {
            Brought::Fuse(_) => (wire::OPT_FUSE, Vec::new()),
            Brought::Queue(queue, _) => (wire::OPT_UBLK, queue.encode().to_vec()),
        };
        let mut reply = self.option(option, &data)?;
        if reply.kind == wire::REP_ACK {
            match brought {
                Brought::Fuse(share) => front_end::send(self.stream, share)?,
                Brought::Queue(_, character) => {
                    front_end::send_descriptors(self.stream, &[character.as_fd()])?;
                }
            }
            reply = self.option_reply(option)?;
        }
        let said = String::from_utf8_lossy(&reply.data);
        match reply.kind {
            wire::REP_ACK => Ok(()),
            wire::REP_ERR_UNSUP => Err(protocol(NOT_FOR_KERNEL)),
            kind => Err(protocol(format!("the server does not take the device: {said} (error {kind:#x})"))),
        }
    }
}

struct Client<'a, S> {
    stream: &'a mut S,
    /// Replies to the last option so far.
    replies: u32,
}

/// A reply to an option.
struct OptionReply {
    kind: u32,
    data: Vec<u8>,
}

impl<S: Read + Write> Client<'_, S> {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        super::take(self.stream)
    }

    /// Sends an option and returns the first reply to it.
    fn option(&mut self, option: u32, data: &[u8]) -> io::Result<OptionReply> {
        let mut message = wire::OPTS_MAGIC.to_be_bytes().to_vec();
        message.extend(option.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        self.stream.write_all(&message)?;
        self.replies = 0;
        self.option_reply(option)
    }

    fn option_reply(&mut self, option: u32) -> io::Result<OptionReply> {
        self.replies += 1;
        if self.replies > OPTION_REPLIES_MAX {
            return Err(protocol("too many replies to an option"));
        }
        let header: [u8; OPTION_REPLY_HEADER_BYTES] = self.take()?;
        let header = OptionReplyHeader::decode(&header)
            .filter(|header| header.option == option && header.length <= OPTION_REPLY_BYTES_MAX)
            .ok_or_else(|| protocol("malformed reply to an option"))?;
        let mut data = vec![0; header.length as usize];
        self.stream.read_exact(&mut data)?;
        Ok(OptionReply { kind: header.reply_type, data })
    }

    fn ask_for_allocation(&mut self, name: &str) -> io::Result<Option<u32>> {
        let context = wire::CONTEXT_BASE_ALLOCATION;
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(1_u32.to_be_bytes());
        data.extend((context.len() as u32).to_be_bytes());
        data.extend(context.as_bytes());
        let mut reply = self.option(wire::OPT_SET_META_CONTEXT, &data)?;
        let mut id = None;
        while reply.kind == wire::REP_META_CONTEXT {
            if reply.data.get(4..) == Some(context.as_bytes()) {
                id = reply.data.first_chunk().copied().map(u32::from_be_bytes);
            }
            reply = self.option_reply(wire::OPT_SET_META_CONTEXT)?;
        }
        Ok(id)
    }

    /// Ends the negotiation. Returns the size of the export.
    fn go(&mut self, name: &str) -> io::Result<u64> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(0_u16.to_be_bytes());
        let mut reply = self.option(wire::OPT_GO, &data)?;
        let mut size_bytes = 0;
        while reply.kind == wire::REP_INFO {
            if let Some((kind, rest)) = reply.data.split_first_chunk::<2>()
                && u16::from_be_bytes(*kind) == wire::INFO_EXPORT
                && let Some(size) = rest.first_chunk()
            {
                size_bytes = u64::from_be_bytes(*size);
            }
            reply = self.option_reply(wire::OPT_GO)?;
        }
        let said = String::from_utf8_lossy(&reply.data).into_owned();
        match reply.kind {
            wire::REP_ACK => Ok(size_bytes),
            wire::REP_ERR_UNKNOWN => Err(protocol(format!("no export named {name:?}"))),
            wire::REP_ERR_TLS_REQD => Err(protocol("the server requires TLS: write nbds:// or nbds+unix://")),
            kind if said.is_empty() => Err(protocol(format!("the server refuses (error {kind:#x})"))),
            _ => Err(protocol(format!("the server refuses: {said}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::wire::option_reply::push_reply;

    /// A server that says `busy` times that areas are being handed over, and then that nothing is left.
    /// Returns how often it was asked.
    fn serve(mut stream: UnixStream, busy: usize) -> io::Result<usize> {
        let greeting = [wire::INIT_MAGIC, wire::OPTS_MAGIC].map(u64::to_be_bytes).concat();
        stream.write_all(&[&greeting[..], &wire::FLAG_FIXED_NEWSTYLE.to_be_bytes()].concat())?;
        stream.read_exact(&mut [0; 4])?;
        let mut asked = 0;
        let mut header = [0; 16];
        while stream.read_exact(&mut header).is_ok() {
            let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|byte| header[at + byte]));
            stream.read_exact(&mut vec![0; word(12) as usize])?;
            asked += usize::from(word(8) == wire::OPT_LEFT);
            let mut reply = Vec::new();
            match word(8) {
                wire::OPT_LEFT if asked <= busy => {
                    push_reply(&mut reply, wire::OPT_LEFT, wire::REP_ERR_POLICY, &[b"busy"]);
                }
                wire::OPT_LEFT => push_reply(&mut reply, wire::OPT_LEFT, wire::REP_ACK, &[&[0; 4]]),
                option => push_reply(&mut reply, option, wire::REP_ACK, &[]),
            }
            stream.write_all(&reply)?;
        }
        Ok(asked)
    }

    #[test]
    fn a_server_that_hands_areas_over_is_asked_again() {
        let ask = |busy, patience| {
            let (mut ours, theirs) = UnixStream::pair().expect("sockets");
            let server = thread::spawn(move || serve(theirs, busy));
            let taken = take_left_within(patience, &mut ours, "", "").map(|shares| shares.len());
            drop(ours);
            (taken, server.join().expect("no panic").expect("a client"))
        };
        let (taken, asked) = ask(2, LEFT_PATIENCE);
        assert_eq!((taken.expect("in time"), asked), (0, 3));
        let (taken, asked) = ask(usize::MAX, Duration::ZERO);
        let error = taken.expect_err("it may be tried again");
        assert_eq!((error.kind(), asked), (io::ErrorKind::ResourceBusy, 1));
        assert!(error.to_string().contains("busy"), "{error}");
    }
}
