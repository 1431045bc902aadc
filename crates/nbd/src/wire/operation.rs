//! Requests of the transmission phase as operations on the device: which are legal, and what they need.

use device::Geometry;

use crate::wire::extended::ExtendedRequestHeader;
use crate::wire::protocol::*;
use crate::wire::reply::ReplyStyle;

/// Most extents in one reply to `CMD_BLOCK_STATUS`. Bounds its memory.
pub const MAX_EXTENTS: usize = 4096;
/// Most extents in one such reply with extended headers, whose extents are twice as long.
const EXTENDED_EXTENTS_MAX: usize = MAX_EXTENTS / 2;
/// Longest range whose extents one `CMD_BLOCK_STATUS` looks up, in bytes. That takes time in proportion to
/// the range, also where nothing is written, and a reply may cover less than was asked for.
const EXTENTS_RANGE_BYTES_MAX: u64 = 64 << 30;

/// Result of the negotiation for a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// Form of the replies that was agreed on. With extended ones, requests have extended headers too.
    pub replies: ReplyStyle,
    /// `base:allocation` was chosen.
    pub base_allocation: bool,
    /// The client may not change the device.
    pub read_only: bool,
    /// The client asked for the block sizes when it chose the export, and so has to keep to them. Without
    /// that, any range of bytes is legal.
    pub block_sizes: bool,
    /// The client may not change the device because that is attached: see [`crate::attachment`].
    pub is_attached_elsewhere: bool,
    /// The client is the bridge of an attached device.
    pub is_bridge: bool,
    /// The client sends no flushes: each change is to be durable before its reply.
    pub is_uncached: bool,
}

/// A legal request, in the form passed to the device. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the request")]
pub enum Operation {
    /// `CMD_READ`.
    Read { offset: u64, length: u32 },
    /// `CMD_WRITE`.
    Write { offset: u64, length: u32, fua: bool },
    /// `CMD_FLUSH`.
    Flush,
    /// `CMD_TRIM`: the whole sectors of the range, perhaps none.
    Trim { offset: u64, length: u64, fua: bool },
    /// `CMD_CACHE`: does nothing.
    Cache,
    /// `CMD_WRITE_ZEROES`.
    WriteZeroes { offset: u64, length: u64, no_hole: bool, fua: bool },
    /// `CMD_BLOCK_STATUS`.
    BlockStatus { offset: u64, length: u64, max_extents: usize },
    /// `CMD_DISC`.
    Disc,
}

impl Operation {
    /// Bytes of memory required for the data of the request.
    pub fn buffer_bytes(&self) -> usize {
        match *self {
            Self::Read { length, .. } | Self::Write { length, .. } => length as usize,
            _ => 0,
        }
    }
}

/// Reason why a request is refused before it reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error code for the reply.
    pub errno: Errno,
    /// Message for the reply.
    pub message: &'static str,
}

const fn refuse<T>(errno: Errno, message: &'static str) -> Result<T, Refusal> {
    Err(Refusal { errno, message })
}

/// Checks a request against the device and the session.
///
/// # Errors
/// A [`Refusal`]:
/// - `EINVAL` if the request is unknown, misaligned in a session with block sizes, too large, empty or out of
///   range
/// - `ENOSPC` for a write past the end
/// - `EOVERFLOW` for a `CMD_FLAG_DF` read that is too large for a chunk
/// - `ENOTSUP` for a `CMD_FLAG_FAST_ZERO` write-zeroes that takes as long as a write
/// - `EPERM` for a change of a device that is read-only, for this client or for all
pub fn check(
    header: &ExtendedRequestHeader,
    geometry: &Geometry,
    session: Session,
) -> Result<Operation, Refusal> {
    let ExtendedRequestHeader { flags, command, offset, length, .. } = *header;
    let flag = |bit: u16| flags & bit != 0;
    let fua = flag(CMD_FLAG_FUA) || session.is_uncached;
    let extended = session.replies == ReplyStyle::Extended;
    let known_flags = CMD_FLAG_FUA
        | match command {
            CMD_READ if session.replies != ReplyStyle::Simple => CMD_FLAG_DF,
            CMD_WRITE if extended => CMD_FLAG_PAYLOAD_LEN,
            CMD_WRITE_ZEROES => CMD_FLAG_NO_HOLE | CMD_FLAG_FAST_ZERO,
            CMD_BLOCK_STATUS => CMD_FLAG_REQ_ONE,
            _ => 0,
        };
    // A longer transfer is refused below.
    let transfer = u32::try_from(length).unwrap_or(u32::MAX);
    let operation = match command {
        CMD_READ => Operation::Read { offset, length: transfer },
        CMD_WRITE => Operation::Write { offset, length: transfer, fua },
        // A disconnect request is never refused.
        CMD_DISC => return Ok(Operation::Disc),
        CMD_FLUSH => Operation::Flush,
        CMD_TRIM => Operation::Trim { offset, length, fua },
        CMD_CACHE => Operation::Cache,
        CMD_WRITE_ZEROES => Operation::WriteZeroes { offset, length, no_hole: flag(CMD_FLAG_NO_HOLE), fua },
        CMD_BLOCK_STATUS => {
            let max_extents = match extended {
                _ if flag(CMD_FLAG_REQ_ONE) => 1,
                true => EXTENDED_EXTENTS_MAX,
                false => MAX_EXTENTS,
            };
            Operation::BlockStatus { offset, length: length.min(EXTENTS_RANGE_BYTES_MAX), max_extents }
        }
        _ => return refuse(Errno::Inval, "unknown command"),
    };
    if flags & !known_flags != 0 {
        return refuse(Errno::Inval, "flag not valid for this command");
    }
    if command == CMD_BLOCK_STATUS && !session.base_allocation {
        return refuse(Errno::Inval, "no metadata context was negotiated");
    }
    let writes = matches!(command, CMD_WRITE | CMD_WRITE_ZEROES);
    if (geometry.read_only || session.read_only) && (writes || command == CMD_TRIM) {
        return refuse(
            Errno::Perm,
            match session.is_attached_elsewhere {
                true => {
                    "the drive is attached on the server's machine: other clients may only read (shared-writes)"
                }
                false => "the export is read-only",
            },
        );
    }
    if command == CMD_FLUSH {
        if offset != 0 || length != 0 {
            return refuse(Errno::Inval, "offset and length of a flush must be zero");
        }
        return Ok(operation);
    }
    if length == 0 {
        return refuse(Errno::Inval, "length is zero");
    }
    if matches!(command, CMD_READ | CMD_WRITE) && length > max_payload_bytes(geometry).into() {
        let errno = if flag(CMD_FLAG_DF) { Errno::Overflow } else { Errno::Inval };
        return refuse(errno, "length is more than the maximum block size");
    }
    let sector_mask = u64::from(geometry.sector_bytes).wrapping_sub(1);
    let is_misaligned = (offset | length) & sector_mask != 0;
    if session.block_sizes && is_misaligned {
        return refuse(Errno::Inval, "offset or length is not a multiple of the minimum block size");
    }
    let in_range = offset.checked_add(length).is_some_and(|end| end <= geometry.capacity_bytes);
    if !in_range {
        let errno = if writes { Errno::NoSpc } else { Errno::Inval };
        return refuse(errno, "beyond the end of the export");
    }
    if command == CMD_WRITE_ZEROES && flag(CMD_FLAG_FAST_ZERO) && !covers_a_block(geometry, offset, length) {
        return refuse(Errno::NotSup, "zeroing parts of blocks is no faster than writing them");
    }
    Ok(match operation {
        Operation::Trim { fua, .. } if is_misaligned => whole_sectors(geometry, offset, length, fua),
        operation => operation,
    })
}

/// Returns whether a range within the export covers a block. Blocks that are covered in part are read and
/// written again, whatever they are changed to.
fn covers_a_block(geometry: &Geometry, offset: u64, length: u64) -> bool {
    let block = u64::from(geometry.preferred_bytes.max(1));
    (offset + length) / block > offset.div_ceil(block)
}

/// Returns the trim of the whole sectors of a range within the export. A trim is a hint: the bytes around
/// them would have to be written as zeros, which takes space instead of freeing it.
fn whole_sectors(geometry: &Geometry, offset: u64, length: u64, fua: bool) -> Operation {
    let sector = u64::from(geometry.sector_bytes);
    let end = (offset + length) / sector * sector;
    let offset = offset.next_multiple_of(sector);
    Operation::Trim { offset, length: end.saturating_sub(offset), fua }
}

/// Largest READ or WRITE in bytes.
pub fn max_payload_bytes(geometry: &Geometry) -> u32 {
    geometry.max_transfer_bytes.clamp(geometry.sector_bytes, MAX_PAYLOAD_BYTES)
}

/// Returns the transmission flags of a device.
pub fn transmission_flags(geometry: &Geometry, session: Session) -> u16 {
    let mut flags = FLAG_HAS_FLAGS | FLAG_SEND_FLUSH | FLAG_SEND_FUA | FLAG_CAN_MULTI_CONN | FLAG_SEND_CACHE;
    if geometry.read_only || session.read_only {
        flags |= FLAG_READ_ONLY;
    } else {
        flags |= FLAG_SEND_TRIM | FLAG_SEND_WRITE_ZEROES | FLAG_SEND_FAST_ZERO;
    }
    if session.replies != ReplyStyle::Simple {
        flags |= FLAG_SEND_DF;
    }
    flags
}
