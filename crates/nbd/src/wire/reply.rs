//! The replies of the transmission phase, appended to a byte buffer.
//!
//! ```text
//!  simple      | magic 4 | error 4 | cookie 8 |                                    READ: data follows
//!  structured  | magic 4 | flags 2 | type 2 | cookie 8 | length 4 | `length` bytes
//! ```
//!
//! Extended replies are those of [`crate::extended`].

use device::{Extent, ExtentKind};

use crate::wire::extended::ExtendedChunkHeader;
use crate::wire::fields;
use crate::wire::protocol::*;

/// Bytes of a simple reply.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of the header of a structured reply chunk.
pub const CHUNK_HEADER_BYTES: usize = 20;

/// Longest error message sent, in bytes.
const MAX_MESSAGE_BYTES: usize = 512;

/// A simple reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimpleReply {
    /// 0 or an [`Errno`].
    pub error: u32,
    /// The cookie of the request.
    pub cookie: u64,
}

impl SimpleReply {
    /// Encodes the reply.
    pub fn encode(&self) -> [u8; SIMPLE_REPLY_BYTES] {
        let mut bytes = [0; SIMPLE_REPLY_BYTES];
        bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes[4..8].copy_from_slice(&self.error.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes
    }

    /// Decodes a reply. `None` if the magic is wrong.
    pub fn decode(bytes: &[u8; SIMPLE_REPLY_BYTES]) -> Option<Self> {
        let field = &mut bytes.as_slice();
        let magic = fields::take_u32(field)?;
        let reply = Self { error: fields::take_u32(field)?, cookie: fields::take_u64(field)? };
        (magic == SIMPLE_REPLY_MAGIC).then_some(reply)
    }
}

/// The header of a structured reply chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkHeader {
    /// `REPLY_FLAG_*`.
    pub flags: u16,
    /// `REPLY_TYPE_*`.
    pub kind: u16,
    /// The cookie of the request.
    pub cookie: u64,
    /// Bytes that follow.
    pub length: u32,
}

impl ChunkHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; CHUNK_HEADER_BYTES] {
        let mut bytes = [0; CHUNK_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.kind.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Decodes a header. `None` if the magic is wrong.
    pub fn decode(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Option<Self> {
        let field = &mut bytes.as_slice();
        let magic = fields::take_u32(field)?;
        let header = Self {
            flags: fields::take_u16(field)?,
            kind: fields::take_u16(field)?,
            cookie: fields::take_u64(field)?,
            length: fields::take_u32(field)?,
        };
        (magic == STRUCTURED_REPLY_MAGIC).then_some(header)
    }
}

/// Form of the replies of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReplyStyle {
    /// Simple replies.
    #[default]
    Simple,
    /// Structured replies to READ and BLOCK_STATUS, and to requests that failed; else simple ones.
    Structured,
    /// Extended replies.
    Extended,
}

/// Cookie and offset that a reply repeats, and its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    /// Form of the reply.
    pub style: ReplyStyle,
    /// The cookie of the request.
    pub cookie: u64,
    /// The offset of the request.
    pub offset: u64,
}

/// Appends the header of the only chunk of a reply.
fn last_chunk(out: &mut Vec<u8>, to: ReplyTo, kind: u16, length: usize) {
    let ReplyTo { style, cookie, offset } = to;
    let flags = REPLY_FLAG_DONE;
    if style == ReplyStyle::Extended {
        let header = ExtendedChunkHeader { flags, kind, cookie, offset, length: length as u64 };
        out.extend_from_slice(&header.encode());
    } else {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        out.extend_from_slice(&ChunkHeader { flags, kind, cookie, length }.encode());
    }
}

/// Appends the reply to a request that succeeded and returns no data.
pub fn push_done(out: &mut Vec<u8>, to: ReplyTo) {
    match to.style {
        ReplyStyle::Extended => last_chunk(out, to, REPLY_TYPE_NONE, 0),
        _ => out.extend_from_slice(&SimpleReply { error: 0, cookie: to.cookie }.encode()),
    }
}

/// Appends the header that precedes the `length` data bytes of a READ.
pub fn push_read_header(out: &mut Vec<u8>, to: ReplyTo, length: u32) {
    match to.style {
        ReplyStyle::Simple => push_done(out, to),
        ReplyStyle::Structured | ReplyStyle::Extended => {
            last_chunk(out, to, REPLY_TYPE_OFFSET_DATA, 8 + length as usize);
            out.extend_from_slice(&to.offset.to_be_bytes());
        }
    }
}

/// Appends the reply to a request that failed. Simple replies do not carry the message. It is cut at a
/// character boundary if it is too long.
pub fn push_error(out: &mut Vec<u8>, to: ReplyTo, errno: Errno, message: &str) {
    if to.style == ReplyStyle::Simple {
        out.extend_from_slice(&SimpleReply { error: errno.code(), cookie: to.cookie }.encode());
        return;
    }
    let mut end = message.len().min(MAX_MESSAGE_BYTES);
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let message = &message[..end];
    last_chunk(out, to, REPLY_TYPE_ERROR, 6 + message.len());
    out.extend_from_slice(&errno.code().to_be_bytes());
    out.extend_from_slice(&(message.len() as u16).to_be_bytes());
    out.extend_from_slice(message.as_bytes());
}

/// The `base:allocation` flags of an extent.
pub fn allocation_flags(kind: ExtentKind) -> u32 {
    match kind {
        ExtentKind::Data => 0,
        ExtentKind::Zero => STATE_ZERO,
        ExtentKind::Hole => STATE_HOLE | STATE_ZERO,
    }
}

/// Merges neighbours of the same kind and cuts extents at `length` bytes in total.
fn runs(length: u64, extents: &[Extent]) -> impl Iterator<Item = (u64, u32)> + Clone {
    let mut left = length;
    let mut extents = extents.iter().filter(|extent| extent.len > 0).peekable();
    std::iter::from_fn(move || {
        let first = extents.next().filter(|_| left > 0)?;
        let mut run = first.len;
        while let Some(next) = extents.next_if(|next| next.kind == first.kind) {
            run = run.saturating_add(next.len);
        }
        let run = run.min(left);
        left -= run;
        Some((run, allocation_flags(first.kind)))
    })
}

/// Appends the reply to a BLOCK_STATUS of `length` bytes. Merges neighbours of the same kind and cuts extents
/// at `length`. `extents` must cover at least one byte.
pub fn push_block_status(out: &mut Vec<u8>, to: ReplyTo, length: u64, extents: &[Extent]) {
    let runs = runs(length, extents);
    let count = runs.clone().count();
    let context = CONTEXT_ID_BASE_ALLOCATION.to_be_bytes();
    if to.style == ReplyStyle::Extended {
        last_chunk(out, to, REPLY_TYPE_BLOCK_STATUS_EXT, 8 + 16 * count);
        out.extend_from_slice(&context);
        out.extend_from_slice(&(count as u32).to_be_bytes()); // at most MAX_EXTENTS
        for (run, flags) in runs {
            out.extend_from_slice(&run.to_be_bytes());
            out.extend_from_slice(&u64::from(flags).to_be_bytes());
        }
        return;
    }
    last_chunk(out, to, REPLY_TYPE_BLOCK_STATUS, 4 + 8 * count);
    out.extend_from_slice(&context);
    for (run, flags) in runs {
        out.extend_from_slice(&(run as u32).to_be_bytes()); // at most `length`, which was a u32 in the request
        out.extend_from_slice(&flags.to_be_bytes());
    }
}
