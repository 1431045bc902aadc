//! A small NBD client: reads an export and asks where it holds data. It sends nothing that could write.
//!
//! Fixed newstyle negotiation with structured replies and `base:allocation` where the server has them, simple replies
//! where not; no TLS. Numbers in the comments name sections of the protocol's `doc/proto.md`.

use std::io::{self, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use layout::BLOCK_BYTES;
use nbd::protocol as wire;

use super::file::Stamp;
use super::population::{Item, Place, Population};
use super::{ReadAt, SourceError};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Most bytes asked for at once: servers take 32 MiB, some less.
const READ_BYTES_MAX: usize = 2 << 20;
/// Longest span asked about at once; replies may cover less.
const STATUS_BYTES_MAX: u64 = 1 << 30;
/// Longest reply to an option that is believed.
const OPTION_REPLY_BYTES_MAX: u32 = 64 << 10;
/// Extents of one reply that are believed.
const EXTENTS_BYTES_MAX: u32 = 16 << 20;
/// A server that says nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(60);

/// An export that a URI names.
#[derive(Clone, Debug)]
pub struct Export {
    /// The URI as the user gave it.
    pub uri: String,
    address: Address,
    name: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    Tcp(String),
    Unix(PathBuf),
}

impl Export {
    /// Reads `nbd://HOST[:PORT][/EXPORT]` and `nbd+unix:///[EXPORT]?socket=PATH`.
    ///
    /// # Errors
    /// For anything else, TLS (`nbds`) in it.
    pub fn parse(uri: &str) -> Result<Export, SourceError> {
        let error = |why: &str| SourceError::new(uri, why);
        let (scheme, rest) = uri.split_once("://").ok_or_else(|| error("no URI"))?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (host, name) = rest.split_once('/').unwrap_or((rest, ""));
        let name = unescape(name).ok_or_else(|| error("the export's name is not UTF-8"))?;
        let address = match scheme {
            "nbd" if host.is_empty() => Address::Tcp(format!("localhost:{}", nbd::DEFAULT_PORT)),
            "nbd" => {
                let after_address = host.rsplit(']').next().unwrap_or(host);
                let port = if after_address.contains(':') {
                    String::new()
                } else {
                    format!(":{}", nbd::DEFAULT_PORT)
                };
                Address::Tcp(format!("{host}{port}"))
            }
            "nbd+unix" => {
                let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
                let socket = socket.and_then(unescape).filter(|path| !path.is_empty());
                Address::Unix(
                    socket.ok_or_else(|| error("no socket; write nbd+unix:///?socket=PATH"))?.into(),
                )
            }
            "nbds" | "nbds+unix" => {
                return Err(error("TLS is not supported here; scan the drive's host instead"));
            }
            _ => {
                return Err(error(
                    "not a URI of NBD; write nbd://HOST/EXPORT or nbd+unix:///EXPORT?socket=PATH",
                ));
            }
        };
        Ok(Export { uri: uri.to_string(), address, name })
    }

    /// A connection with the export chosen.
    pub(crate) fn connect(&self) -> io::Result<Connection> {
        let (reader, writer): (Box<dyn Read + Send>, Box<dyn Write + Send>) = match &self.address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                (Box::new(stream.try_clone()?), Box::new(stream))
            }
        };
        let mut connection = Connection {
            reader: BufReader::new(reader),
            writer,
            bytes: 0,
            structured: false,
            allocation: None,
            cookie: 0,
            broken: false,
        };
        connection.negotiate(&self.name)?;
        Ok(connection)
    }
}

impl Population {
    /// Adds an NBD export. Where the server tells allocation, holes are left out.
    ///
    /// # Errors
    /// If the URI is none, or the server does not answer or has no such export.
    pub fn add_nbd(&mut self, uri: &str) -> Result<(), SourceError> {
        let export = Export::parse(uri)?;
        let mut connection = export.connect().map_err(|error| SourceError::new(uri, error))?;
        let bytes = connection.bytes;
        let data = connection.data_extents().map_err(|error| SourceError::new(uri, error))?;
        let group = self.group(uri.to_string());
        let place = Place::Nbd(self.exports.len() as u32);
        self.exports.push(export);
        self.push(Item { place, bytes, group, alone: true, stamp: Stamp::default() }, &data);
        Ok(())
    }
}

/// Percent-decoding (RFC 3986, 2.1).
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
        } else {
            byte
        });
    }
    String::from_utf8(bytes).ok()
}

fn protocol(why: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why.into())
}

/// A connection in transmission.
pub(crate) struct Connection {
    reader: BufReader<Box<dyn Read + Send>>,
    writer: Box<dyn Write + Send>,
    bytes: u64,
    structured: bool,
    /// Identifier of `base:allocation`.
    allocation: Option<u32>,
    cookie: u64,
    /// A reply did not come to its end: what comes next cannot be told apart from it.
    broken: bool,
}

/// A reply to an option.
struct OptionReply {
    kind: u32,
    data: Vec<u8>,
}

/// A chunk of a structured reply, without its content.
struct Chunk {
    done: bool,
    kind: u16,
    length: u32,
}

impl Connection {
    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.reader.read_exact(&mut bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => protocol("the server closed the connection"),
            io::ErrorKind::WouldBlock => {
                io::Error::new(io::ErrorKind::TimedOut, "the server does not answer")
            }
            _ => error,
        })?;
        Ok(bytes)
    }

    fn take_u16(&mut self) -> io::Result<u16> {
        self.take().map(u16::from_be_bytes)
    }

    fn take_u32(&mut self) -> io::Result<u32> {
        self.take().map(u32::from_be_bytes)
    }

    fn take_u64(&mut self) -> io::Result<u64> {
        self.take().map(u64::from_be_bytes)
    }

    fn take_vec(&mut self, len: u32) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; len as usize];
        self.reader.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// "Newstyle negotiation", "fixed newstyle".
    fn negotiate(&mut self, name: &str) -> io::Result<()> {
        if self.take_u64()? != wire::INIT_MAGIC || self.take_u64()? != wire::OPTS_MAGIC {
            return Err(protocol("not an NBD server of the newstyle protocol"));
        }
        if self.take_u16()? & wire::FLAG_FIXED_NEWSTYLE == 0 {
            return Err(protocol("the server does not speak fixed newstyle"));
        }
        self.writer.write_all(&wire::FLAG_C_FIXED_NEWSTYLE.to_be_bytes())?;
        self.structured = self.option(wire::OPT_STRUCTURED_REPLY, &[])?.kind == wire::REP_ACK;
        if self.structured {
            self.ask_for_allocation(name)?;
        }
        self.go(name)
    }

    /// Sends an option and takes the first reply to it.
    fn option(&mut self, option: u32, data: &[u8]) -> io::Result<OptionReply> {
        let mut message = wire::OPTS_MAGIC.to_be_bytes().to_vec();
        message.extend(option.to_be_bytes());
        message.extend((data.len() as u32).to_be_bytes());
        message.extend(data);
        self.writer.write_all(&message)?;
        self.option_reply(option)
    }

    fn option_reply(&mut self, option: u32) -> io::Result<OptionReply> {
        let (magic, to) = (self.take_u64()?, self.take_u32()?);
        let (kind, length) = (self.take_u32()?, self.take_u32()?);
        if magic != wire::REP_MAGIC || to != option || length > OPTION_REPLY_BYTES_MAX {
            return Err(protocol("malformed reply to an option"));
        }
        let data = self.take_vec(length)?;
        Ok(OptionReply { kind, data })
    }

    fn ask_for_allocation(&mut self, name: &str) -> io::Result<()> {
        let context = wire::CONTEXT_BASE_ALLOCATION;
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(1_u32.to_be_bytes());
        data.extend((context.len() as u32).to_be_bytes());
        data.extend(context.as_bytes());
        let mut reply = self.option(wire::OPT_SET_META_CONTEXT, &data)?;
        while reply.kind == wire::REP_META_CONTEXT {
            if reply.data.get(4..) == Some(context.as_bytes()) {
                let id = reply.data.first_chunk().copied().map(u32::from_be_bytes);
                self.allocation = id;
            }
            reply = self.option_reply(wire::OPT_SET_META_CONTEXT)?;
        }
        Ok(())
    }

    fn go(&mut self, name: &str) -> io::Result<()> {
        let mut data = (name.len() as u32).to_be_bytes().to_vec();
        data.extend(name.as_bytes());
        data.extend(0_u16.to_be_bytes());
        let mut reply = self.option(wire::OPT_GO, &data)?;
        while reply.kind == wire::REP_INFO {
            if let Some((kind, rest)) = reply.data.split_first_chunk::<2>()
                && u16::from_be_bytes(*kind) == wire::INFO_EXPORT
                && let Some(size) = rest.first_chunk()
            {
                self.bytes = u64::from_be_bytes(*size);
            }
            reply = self.option_reply(wire::OPT_GO)?;
        }
        let said = String::from_utf8_lossy(&reply.data).into_owned();
        match reply.kind {
            wire::REP_ACK => Ok(()),
            wire::REP_ERR_UNKNOWN => Err(protocol(format!("no export named {name:?}"))),
            wire::REP_ERR_TLS_REQD => Err(protocol("the server requires TLS, which is not supported")),
            kind if said.is_empty() => Err(protocol(format!("the server refuses (error {kind:#x})"))),
            _ => Err(protocol(format!("the server refuses: {said}"))),
        }
    }

    fn request(&mut self, flags: u16, command: u16, offset: u64, length: u32) -> io::Result<()> {
        self.cookie += 1;
        let mut message = wire::REQUEST_MAGIC.to_be_bytes().to_vec();
        message.extend(flags.to_be_bytes());
        message.extend(command.to_be_bytes());
        message.extend(self.cookie.to_be_bytes());
        message.extend(offset.to_be_bytes());
        message.extend(length.to_be_bytes());
        self.writer.write_all(&message)
    }

    /// The header of a simple reply; its error, if any.
    fn simple_reply(&mut self) -> io::Result<Option<u32>> {
        let (magic, error, cookie) = (self.take_u32()?, self.take_u32()?, self.take_u64()?);
        if magic != wire::SIMPLE_REPLY_MAGIC || cookie != self.cookie {
            return Err(protocol("malformed simple reply"));
        }
        Ok((error != 0).then_some(error))
    }

    fn chunk(&mut self) -> io::Result<Chunk> {
        let (magic, flags, kind) = (self.take_u32()?, self.take_u16()?, self.take_u16()?);
        let (cookie, length) = (self.take_u64()?, self.take_u32()?);
        if magic != wire::STRUCTURED_REPLY_MAGIC || cookie != self.cookie {
            return Err(protocol("malformed structured reply"));
        }
        Ok(Chunk { done: flags & wire::REPLY_FLAG_DONE != 0, kind, length })
    }

    /// Takes a chunk that says the request failed; it does not end the reply.
    fn error_chunk(&mut self, chunk: &Chunk) -> io::Result<io::Error> {
        if chunk.length < 4 || chunk.length > OPTION_REPLY_BYTES_MAX {
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

    /// Reads; answers the error that the server reported, if it did.
    fn read_reply(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<Option<io::Error>> {
        self.request(0, wire::CMD_READ, offset, buf.len() as u32)?;
        if !self.structured {
            return match self.simple_reply()? {
                Some(code) => Ok(Some(refused(code))),
                None => self.reader.read_exact(buf).map(|()| None),
            };
        }
        // "Structured reply chunk message": content and holes in any order, and perhaps an error.
        let mut failed = None;
        loop {
            let chunk = self.chunk()?;
            let within = |at: u64, len: u64| {
                let most = (buf.len() as u64).checked_sub(len);
                let from = at.checked_sub(offset).filter(|from| most.is_some_and(|most| *from <= most));
                from.map(|from| from as usize)
                    .ok_or_else(|| protocol("a chunk outside of what was asked for"))
            };
            match chunk.kind {
                wire::REPLY_TYPE_NONE if chunk.length == 0 => {}
                wire::REPLY_TYPE_OFFSET_DATA if chunk.length > 8 => {
                    let len = chunk.length - 8;
                    let at = self.take_u64()?;
                    let from = within(at, len.into())?;
                    self.reader.read_exact(&mut buf[from..from + len as usize])?;
                }
                wire::REPLY_TYPE_OFFSET_HOLE if chunk.length == 12 => {
                    let (at, len) = (self.take_u64()?, self.take_u32()?);
                    let from = within(at, len.into())?;
                    buf[from..from + len as usize].fill(0);
                }
                kind if kind & 1 << 15 != 0 => failed = Some(self.error_chunk(&chunk)?),
                _ => return Err(protocol("a chunk of a kind that was not asked for")),
            }
            if chunk.done {
                return Ok(failed);
            }
        }
    }

    /// Where the export holds data, as (first block, blocks): all of it, if the server does not tell.
    fn data_extents(&mut self) -> io::Result<Vec<(u64, u64)>> {
        let all = vec![(0, self.bytes.div_ceil(BLOCK))];
        let Some(id) = self.allocation else { return Ok(all) };
        let mut extents: Vec<(u64, u64)> = Vec::new();
        let mut at = 0;
        while at < self.bytes {
            let length = STATUS_BYTES_MAX.min(self.bytes - at) as u32;
            let Some(told) = self.status(id, at, length)? else { return Ok(all) };
            let from = at;
            for (bytes, flags) in told {
                let end = (at + u64::from(bytes)).min(self.bytes);
                if flags & wire::STATE_HOLE == 0 && end > at {
                    let (first, last) = (at / BLOCK, end.div_ceil(BLOCK));
                    match extents.last_mut() {
                        Some((start, blocks)) if *start + *blocks >= first => *blocks = last - *start,
                        _ => extents.push((first, last - first)),
                    }
                }
                at = end;
            }
            if at == from {
                return Err(protocol("a reply to a block status request without an extent"));
            }
        }
        Ok(extents)
    }

    /// One block status request: lengths and flags. `None`: the server refuses to tell.
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
                _ => return Err(protocol("a chunk of a kind that was not asked for")),
            }
            if chunk.done {
                return Ok((!refused).then_some(extents));
            }
        }
    }
}

fn refused(code: u32) -> io::Error {
    io::Error::from_raw_os_error(code as i32)
}

impl ReadAt for Connection {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let len = (buf.len() as u64).min(self.bytes.saturating_sub(offset)) as usize;
        for (i, piece) in buf[..len].chunks_mut(READ_BYTES_MAX).enumerate() {
            self.read_piece(offset + (i * READ_BYTES_MAX) as u64, piece)?;
        }
        Ok(len)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A polite goodbye; a server that is gone needs none.
        let _ = self.request(0, wire::CMD_DISC, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris() {
        let of = |uri: &str| {
            Export::parse(uri).map(|export| (export.address, export.name)).map_err(|e| e.to_string())
        };
        let tcp = |address: &str, name: &str| Ok((Address::Tcp(address.into()), name.to_string()));
        assert_eq!(of("nbd://host"), tcp("host:10809", ""));
        assert_eq!(of("nbd://host:99/disk"), tcp("host:99", "disk"));
        assert_eq!(of("nbd://[::1]/a%20b"), tcp("[::1]:10809", "a b"));
        assert_eq!(of("nbd://[::1]:7"), tcp("[::1]:7", ""));
        let unix = Ok((Address::Unix("/run/x y".into()), "disk".to_string()));
        assert_eq!(of("nbd+unix:///disk?socket=/run/x%20y"), unix);
        for bad in
            ["nbd+unix:///", "nbds://host", "http://host", "nbd", "nbd+unix:///?socket=", "nbd://h/%ff"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }
}
