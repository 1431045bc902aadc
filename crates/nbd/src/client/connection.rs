//! A connection that reads an export and asks which parts hold data. It sends no request that writes.
//!
//! It uses structured replies and `base:allocation` if the server has them, otherwise simple replies.
//! Headings quoted in the comments are those of the protocol's `doc/proto.md`.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::duplex::Duplex;
use super::negotiation::{Negotiated, Replies, choose, greet, start_tls};
use super::tls::ClientTls;
use super::uri::{ExportUri, UriAddress};
use super::{protocol, take};
use crate::wire::protocol as wire;
use crate::wire::request::RequestHeader;

/// Most bytes per request. Servers accept up to 32 MiB, some less.
const READ_BYTES_MAX: usize = 2 << 20;
/// Longest range per block status request. Replies may cover less.
const STATUS_BYTES_MAX: u64 = 1 << 30;
/// Longest error chunk accepted, in bytes.
const ERROR_BYTES_MAX: u32 = 64 << 10;
/// Longest block status chunk accepted, in bytes.
const EXTENTS_BYTES_MAX: u32 = 16 << 20;
/// Most chunks of a reply.
const CHUNKS_MAX: u32 = 1 << 16;
/// Most extents of a reply to a block status request.
const REPLY_EXTENTS_MAX: usize = 4 << 20;
/// Most ranges of data that are listed. Everything after them counts as data.
const RANGES_MAX: usize = 4 << 20;
/// Most block status requests. A server may answer each for a sector only.
const REQUESTS_MAX: usize = 4 << 20;
/// Largest export that is asked which parts hold data: a million requests, and 1 PiB.
const SURVEYED_BYTES_MAX: u64 = 1 << 50;
/// Time after which a silent server is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A stream with buffered reads.
struct Stream(BufReader<Box<dyn Duplex>>);

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.get_mut().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.get_mut().flush()
    }
}

/// A connection in transmission.
pub struct Connection {
    stream: Stream,
    negotiated: Negotiated,
    cookie: u64,
    /// A reply was not read to its end, so that the next bytes cannot be interpreted.
    broken: bool,
    /// Chunks of the present reply so far.
    chunks: u32,
}

/// A chunk of a structured reply, without its content.
struct Chunk {
    done: bool,
    kind: u16,
    length: u32,
}

impl Connection {
    /// Connects to an export. `tls` is needed for URIs that ask for TLS ([`ExportUri::has_tls`]); other ones
    /// do without.
    ///
    /// # Errors
    /// As [`negotiate`](super::negotiate), or if the server cannot be reached, does not respond for a minute,
    /// or cannot prove that it is the one that the URI names.
    pub fn open(export: &ExportUri, tls: Option<&ClientTls>) -> io::Result<Connection> {
        let mut stream: Box<dyn Duplex> = match &export.address {
            UriAddress::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
            UriAddress::Unix(path) => {
                socket_file::check_path(path)?;
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                Box::new(stream)
            }
        };
        let Some(name) = &export.tls_name else { return Connection::over(stream, &export.name) };
        let tls = tls.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no TLS configuration"))?;
        // Not buffered: nothing that was sent in plain text may count as sent within TLS.
        greet(&mut stream)?;
        start_tls(&mut stream)?;
        Connection::after_greeting(tls.connect(name.clone(), stream)?, &export.name)
    }

    /// Negotiates for the export `name` over a stream.
    ///
    /// # Errors
    /// As [`negotiate`](super::negotiate).
    pub(crate) fn over(mut stream: Box<dyn Duplex>, name: &str) -> io::Result<Connection> {
        greet(&mut stream)?;
        Connection::after_greeting(stream, name)
    }

    fn after_greeting(stream: Box<dyn Duplex>, name: &str) -> io::Result<Connection> {
        let mut stream = Stream(BufReader::new(stream));
        let negotiated = choose(&mut stream, name, Replies::Structured)?;
        Ok(Connection { stream, negotiated, cookie: 0, broken: false, chunks: 0 })
    }

    /// Size of the export in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.negotiated.size_bytes
    }

    fn take_u16(&mut self) -> io::Result<u16> {
        take(&mut self.stream).map(u16::from_be_bytes)
    }

    fn take_u32(&mut self) -> io::Result<u32> {
        take(&mut self.stream).map(u32::from_be_bytes)
    }

    fn take_u64(&mut self) -> io::Result<u64> {
        take(&mut self.stream).map(u64::from_be_bytes)
    }

    fn take_vec(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.stream.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn request(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> io::Result<()> {
        self.cookie += 1;
        self.chunks = 0;
        let cookie = self.cookie;
        self.stream.write_all(&RequestHeader { flags, command, cookie, offset, length }.encode())?;
        self.stream.flush()
    }

    /// Reads the header of a simple reply. Returns its error code, if any.
    fn simple_reply(&mut self) -> io::Result<Option<u32>> {
        let (magic, error, cookie) = (self.take_u32()?, self.take_u32()?, self.take_u64()?);
        if magic != wire::SIMPLE_REPLY_MAGIC || cookie != self.cookie {
            return Err(protocol("malformed simple reply"));
        }
        Ok((error != 0).then_some(error))
    }

    fn chunk(&mut self) -> io::Result<Chunk> {
        self.chunks += 1;
        if self.chunks > CHUNKS_MAX {
            return Err(protocol("too many chunks in a reply"));
        }
        let (magic, flags, kind) = (self.take_u32()?, self.take_u16()?, self.take_u16()?);
        let (cookie, length) = (self.take_u64()?, self.take_u32()?);
        if magic != wire::STRUCTURED_REPLY_MAGIC || cookie != self.cookie {
            return Err(protocol("malformed structured reply"));
        }
        Ok(Chunk { done: flags & wire::REPLY_FLAG_DONE != 0, kind, length })
    }

    /// Reads the content of an error chunk. Such a chunk does not end the reply.
    fn error_chunk(&mut self, chunk: &Chunk) -> io::Result<io::Error> {
        if chunk.length < 4 || chunk.length > ERROR_BYTES_MAX {
            return Err(protocol("malformed error chunk"));
        }
        let data = self.take_vec(chunk.length)?;
        let code = data.first_chunk().copied().map_or(0, u32::from_be_bytes);
        Ok(refused(code))
    }

    fn read_piece(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.broken {
            return Err(protocol("the connection broke before"));
        }
        self.broken = true;
        let refusal = self.read_reply(offset, buf)?;
        self.broken = false;
        refusal.map_or(Ok(()), Err)
    }

    /// Reads data. Returns the error that the server reported, if any.
    fn read_reply(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<Option<io::Error>> {
        self.request(0, wire::CMD_READ, offset, buf.len() as u32)?;
        if !self.negotiated.is_structured {
            return match self.simple_reply()? {
                Some(code) => Ok(Some(refused(code))),
                None => self.stream.read_exact(buf).map(|()| None),
            };
        }
        // "Structured reply chunk message": content and holes in any order, and possibly an error.
        let (mut failed, mut covered) = (None, Vec::new());
        loop {
            let chunk = self.chunk()?;
            let within = |at: u64, len: u64| {
                let most = (buf.len() as u64).checked_sub(len);
                let from = at.checked_sub(offset).filter(|from| most.is_some_and(|most| *from <= most));
                from.map(|from| from as usize).ok_or_else(|| protocol("a chunk outside the requested range"))
            };
            match chunk.kind {
                wire::REPLY_TYPE_NONE if chunk.length == 0 => {}
                wire::REPLY_TYPE_OFFSET_DATA if chunk.length > 8 => {
                    let len = chunk.length - 8;
                    // Before its offset, which may never come.
                    within(offset, len.into())?;
                    let at = self.take_u64()?;
                    let from = within(at, len.into())?;
                    self.stream.read_exact(&mut buf[from..from + len as usize])?;
                    covered.push(from..from + len as usize);
                }
                wire::REPLY_TYPE_OFFSET_HOLE if chunk.length == 12 => {
                    let (at, len) = (self.take_u64()?, self.take_u32()?);
                    let from = within(at, len.into())?;
                    buf[from..from + len as usize].fill(0);
                    covered.push(from..from + len as usize);
                }
                kind if kind & 1 << 15 != 0 => failed = Some(self.error_chunk(&chunk)?),
                _ => return Err(protocol("a chunk of a kind that was not requested")),
            }
            if chunk.done {
                return match failed.is_some() || covers(covered, buf.len()) {
                    true => Ok(failed),
                    false => Err(protocol("a reply whose chunks do not cover the request, or overlap")),
                };
            }
        }
    }

    /// Returns the ranges of the export that hold data, in bytes. The whole export if the server does not
    /// report them, or the export is larger than 1 PiB. Everything after four million ranges or requests
    /// counts as data.
    ///
    /// # Errors
    /// Errors of the connection.
    pub fn data_ranges(&mut self) -> io::Result<Vec<Range<u64>>> {
        let size = self.size_bytes();
        let all = std::iter::once(0..size).collect();
        let id = self.negotiated.allocation.filter(|_| size <= SURVEYED_BYTES_MAX);
        let Some(id) = id else { return Ok(all) };
        let mut ranges: Vec<Range<u64>> = Vec::new();
        let (mut at, mut requests) = (0, 0);
        while at < size {
            requests += 1;
            let length = STATUS_BYTES_MAX.min(size - at) as u32;
            let Some(extents) = self.status(id, at, length)? else { return Ok(all) };
            let from = at;
            for (bytes, flags) in extents {
                let end = (at + u64::from(bytes)).min(size);
                if flags & wire::STATE_HOLE == 0 && end > at {
                    match ranges.last_mut() {
                        Some(last) if last.end == at => last.end = end,
                        _ => ranges.push(at..end),
                    }
                }
                at = end;
            }
            if ranges.len() > RANGES_MAX || requests > REQUESTS_MAX {
                ranges.push(at..size);
                return Ok(ranges);
            }
            if at == from {
                return Err(protocol("a reply to a block status request without an extent"));
            }
        }
        Ok(ranges)
    }

    /// Sends one block status request. Returns lengths and flags, or `None` if the server refuses.
    fn status(&mut self, id: u32, offset: u64, length: u32) -> io::Result<Option<Vec<(u32, u32)>>> {
        self.request(0, wire::CMD_BLOCK_STATUS, offset, length)?;
        let (mut extents, mut refused) = (Vec::new(), false);
        loop {
            let chunk = self.chunk()?;
            match chunk.kind {
                wire::REPLY_TYPE_NONE if chunk.length == 0 => {}
                wire::REPLY_TYPE_BLOCK_STATUS
                    if chunk.length >= 4 && chunk.length % 8 == 4 && chunk.length <= EXTENTS_BYTES_MAX =>
                {
                    let context = self.take_u32()?;
                    let data = self.take_vec(chunk.length - 4)?;
                    if extents.len() > REPLY_EXTENTS_MAX {
                        return Err(protocol("too many extents in a reply"));
                    }
                    if context == id {
                        let (pairs, _) = data.as_chunks::<8>();
                        extents.extend(pairs.iter().map(|pair| {
                            let number = u64::from_be_bytes(*pair);
                            ((number >> 32) as u32, number as u32)
                        }));
                    }
                }
                kind if kind & 1 << 15 != 0 => {
                    self.error_chunk(&chunk)?;
                    refused = true;
                }
                _ => return Err(protocol("a chunk of a kind that was not requested")),
            }
            if chunk.done {
                return Ok((!refused).then_some(extents));
            }
        }
    }

    /// Reads at `offset`. Returns the number of bytes read, which is less than requested at the end of the
    /// export.
    ///
    /// # Errors
    /// Errors of the server or the connection.
    pub fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let len = (buf.len() as u64).min(self.size_bytes().saturating_sub(offset)) as usize;
        for (i, piece) in buf[..len].chunks_mut(READ_BYTES_MAX).enumerate() {
            self.read_piece(offset + (i * READ_BYTES_MAX) as u64, piece)?;
        }
        Ok(len)
    }
}

/// Returns whether ranges make up all of `len` bytes, each byte once.
fn covers(mut ranges: Vec<Range<usize>>, len: usize) -> bool {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut end = 0;
    ranges.iter().all(|range| range.start == std::mem::replace(&mut end, range.end)) && end == len
}

fn refused(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Sent as a courtesy; a server that is gone does not need it.
        let _ = self.request(0, wire::CMD_DISC, 0, 0);
        self.stream.0.get_mut().close();
    }
}
