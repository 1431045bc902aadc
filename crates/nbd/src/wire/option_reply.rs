//! The replies to options of the handshake phase.
//!
//! ```text
//!  | magic 8 | option 4 | reply type 4 | length 4 | `length` bytes |
//! ```

use device::Geometry;

use crate::wire::fields;
use crate::wire::operation::{self, Session};
use crate::wire::protocol::*;

/// Bytes of an option reply header.
pub const OPTION_REPLY_HEADER_BYTES: usize = 20;

/// The header of an option reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionReplyHeader {
    /// The option that the reply is for.
    pub option: u32,
    /// `REP_*`.
    pub reply_type: u32,
    /// Bytes of data that follow.
    pub length: u32,
}

impl OptionReplyHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; OPTION_REPLY_HEADER_BYTES] {
        let mut bytes = [0; OPTION_REPLY_HEADER_BYTES];
        bytes[0..8].copy_from_slice(&REP_MAGIC.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.option.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.reply_type.to_be_bytes());
        bytes[16..20].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Decodes a header. `None` if the magic is wrong.
    pub fn decode(bytes: &[u8; OPTION_REPLY_HEADER_BYTES]) -> Option<Self> {
        let field = &mut bytes.as_slice();
        let magic = fields::take_u64(field)?;
        let header = Self {
            option: fields::take_u32(field)?,
            reply_type: fields::take_u32(field)?,
            length: fields::take_u32(field)?,
        };
        (magic == REP_MAGIC).then_some(header)
    }
}

/// Appends an option reply whose data is the concatenation of `parts`.
pub fn push_reply(out: &mut Vec<u8>, option: u32, reply_type: u32, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len() as u32).sum();
    out.extend_from_slice(&OptionReplyHeader { option, reply_type, length }.encode());
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// Appends one export of a list.
pub fn push_server(out: &mut Vec<u8>, name: &str, description: &str) {
    let len = (name.len() as u32).to_be_bytes();
    push_reply(out, OPT_LIST, REP_SERVER, &[&len, name.as_bytes(), description.as_bytes()]);
}

/// Appends `INFO_EXPORT`.
pub fn push_info_export(out: &mut Vec<u8>, option: u32, geometry: &Geometry, session: Session) {
    let size = geometry.capacity_bytes.to_be_bytes();
    let flags = operation::transmission_flags(geometry, session).to_be_bytes();
    push_reply(out, option, REP_INFO, &[&INFO_EXPORT.to_be_bytes(), &size, &flags]);
}

/// Appends `INFO_BLOCK_SIZE` within the rules of the specification: powers of two, the preferred size at
/// least 512, the maximum at least the preferred size.
pub fn push_info_block_size(out: &mut Vec<u8>, option: u32, geometry: &Geometry) {
    let minimum = geometry.sector_bytes;
    let maximum = operation::max_payload_bytes(geometry);
    let floor = minimum.max(512);
    let preferred = geometry.preferred_bytes.clamp(floor, MAX_PAYLOAD_BYTES).next_power_of_two();
    let preferred = if preferred > maximum { floor } else { preferred };
    push_reply(
        out,
        option,
        REP_INFO,
        &[
            &INFO_BLOCK_SIZE.to_be_bytes(),
            &minimum.to_be_bytes(),
            &preferred.to_be_bytes(),
            &maximum.to_be_bytes(),
        ],
    );
}

/// Appends `INFO_NAME` or `INFO_DESCRIPTION`.
pub fn push_info_text(out: &mut Vec<u8>, option: u32, info: u16, text: &str) {
    push_reply(out, option, REP_INFO, &[&info.to_be_bytes(), text.as_bytes()]);
}

/// Appends one metadata context.
pub fn push_meta_context(out: &mut Vec<u8>, option: u32, id: u32, name: &str) {
    push_reply(out, option, REP_META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()]);
}

/// Returns the reply to `OPT_EXPORT_NAME`: size and flags, then 124 zeros unless the client negotiated
/// `FLAG_C_NO_ZEROES`.
pub fn export_name_answer(geometry: &Geometry, session: Session, zeroes: bool) -> Vec<u8> {
    let mut out = geometry.capacity_bytes.to_be_bytes().to_vec();
    out.extend_from_slice(&operation::transmission_flags(geometry, session).to_be_bytes());
    if zeroes {
        out.extend_from_slice(&[0; 124]);
    }
    out
}
