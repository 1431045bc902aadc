//! Extended headers (`OPT_EXTENDED_HEADERS`): requests and replies with lengths of 64 bits. A flag of a
//! request announces a payload, and every reply consists of chunks.
//!
//! ```text
//!  request  0      4       6      8        16       24       32
//!           +------+-------+------+--------+--------+--------+
//!           | magic| flags | type | cookie | offset | length |   with CMD_FLAG_PAYLOAD_LEN: `length` bytes
//!           +------+-------+------+--------+--------+--------+
//!  chunk    | magic| flags | type | cookie | offset | length |   `length` bytes; offset of the request
//!           +------+-------+------+--------+--------+--------+
//! ```

use crate::wire::fields;
use crate::wire::protocol::*;
use crate::wire::request::{BadMagic, RequestHeader};

/// Bytes of an extended header, of a request or of a chunk.
pub const EXTENDED_HEADER_BYTES: usize = 32;

/// The fields of both extended headers after their magic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fields {
    flags: u16,
    kind: u16,
    cookie: u64,
    offset: u64,
    length: u64,
}

impl Fields {
    fn encode(&self, magic: u32) -> [u8; EXTENDED_HEADER_BYTES] {
        let mut bytes = [0; EXTENDED_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&magic.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..32].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Decodes the magic and the fields.
    fn decode(bytes: &[u8; EXTENDED_HEADER_BYTES]) -> Option<(u32, Self)> {
        let field = &mut bytes.as_slice();
        let magic = fields::take_u32(field)?;
        let fields = Self {
            flags: fields::take_u16(field)?,
            kind: fields::take_u16(field)?,
            cookie: fields::take_u64(field)?,
            offset: fields::take_u64(field)?,
            length: fields::take_u64(field)?,
        };
        Some((magic, fields))
    }
}

/// An extended request header, not yet checked. Also the form in which a compact one is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedRequestHeader {
    /// `CMD_FLAG_*`.
    pub flags: u16,
    /// `CMD_*`.
    pub command: u16,
    /// Chosen by the client, returned in the reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range or of the payload in bytes.
    pub length: u64,
}

impl ExtendedRequestHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`BadMagic`] if the magic is wrong.
    pub fn decode(bytes: &[u8; EXTENDED_HEADER_BYTES]) -> Result<Self, BadMagic> {
        match Fields::decode(bytes) {
            Some((EXTENDED_REQUEST_MAGIC, Fields { flags, kind, cookie, offset, length })) => {
                Ok(Self { flags, command: kind, cookie, offset, length })
            }
            other => Err(BadMagic(other.map_or(0, |(magic, _)| magic))),
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; EXTENDED_HEADER_BYTES] {
        let Self { flags, command, cookie, offset, length } = *self;
        Fields { flags, kind: command, cookie, offset, length }.encode(EXTENDED_REQUEST_MAGIC)
    }

    /// Bytes of payload after the header on the wire, whether or not the request is legal.
    pub fn payload_bytes(&self) -> u64 {
        if self.flags & CMD_FLAG_PAYLOAD_LEN != 0 { self.length } else { 0 }
    }
}

impl From<RequestHeader> for ExtendedRequestHeader {
    fn from(header: RequestHeader) -> Self {
        let RequestHeader { flags, command, cookie, offset, length } = header;
        Self { flags, command, cookie, offset, length: length.into() }
    }
}

/// The extended header of a reply chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedChunkHeader {
    /// `REPLY_FLAG_*`.
    pub flags: u16,
    /// `REPLY_TYPE_*`.
    pub kind: u16,
    /// The cookie of the request.
    pub cookie: u64,
    /// The offset of the request.
    pub offset: u64,
    /// Bytes that follow.
    pub length: u64,
}

impl ExtendedChunkHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; EXTENDED_HEADER_BYTES] {
        let Self { flags, kind, cookie, offset, length } = *self;
        Fields { flags, kind, cookie, offset, length }.encode(EXTENDED_REPLY_MAGIC)
    }

    /// Decodes a header. `None` if the magic is wrong.
    pub fn decode(bytes: &[u8; EXTENDED_HEADER_BYTES]) -> Option<Self> {
        let (magic, Fields { flags, kind, cookie, offset, length }) = Fields::decode(bytes)?;
        (magic == EXTENDED_REPLY_MAGIC).then_some(Self { flags, kind, cookie, offset, length })
    }
}
