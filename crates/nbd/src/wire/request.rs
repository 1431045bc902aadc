//! The requests of the transmission phase: their 28-byte header.
//!
//! ```text
//!  0      4       6      8        16       24      28
//!  +------+-------+------+--------+--------+-------+
//!  | magic| flags | type | cookie | offset | length|   WRITE: followed by `length` bytes
//!  +------+-------+------+--------+--------+-------+
//! ```

use crate::wire::fields;
use crate::wire::protocol::*;

/// Bytes of a request header.
pub const REQUEST_HEADER_BYTES: usize = 28;

/// A request header, not yet checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// `CMD_FLAG_*`.
    pub flags: u16,
    /// `CMD_*`.
    pub command: u16,
    /// Chosen by the client, returned in the reply.
    pub cookie: u64,
    /// First byte of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u32,
}

/// The header does not begin with `REQUEST_MAGIC`. The stream is out of step and unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("request with magic {0:#010x}")]
pub struct BadMagic(pub u32);

impl RequestHeader {
    /// Decodes a header.
    ///
    /// # Errors
    /// [`BadMagic`] if the magic is wrong.
    pub fn decode(bytes: &[u8; REQUEST_HEADER_BYTES]) -> Result<Self, BadMagic> {
        let field = &mut bytes.as_slice();
        let header = (|| {
            let magic = fields::take_u32(field)?;
            let header = Self {
                flags: fields::take_u16(field)?,
                command: fields::take_u16(field)?,
                cookie: fields::take_u64(field)?,
                offset: fields::take_u64(field)?,
                length: fields::take_u32(field)?,
            };
            Some((magic, header))
        })();
        match header {
            Some((REQUEST_MAGIC, header)) => Ok(header),
            Some((magic, _)) => Err(BadMagic(magic)),
            None => Err(BadMagic(0)), // the array is long enough for all fields
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; REQUEST_HEADER_BYTES] {
        let mut bytes = [0; REQUEST_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Bytes of payload after the header on the wire, whether or not the request is legal.
    pub fn payload_bytes(&self) -> u32 {
        if self.command == CMD_WRITE { self.length } else { 0 }
    }
}
