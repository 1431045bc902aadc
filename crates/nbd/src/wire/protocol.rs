//! Constants of the NBD protocol, under the names of its specification (`doc/proto.md` of the NBD project)
//! without the `NBD_` prefix.

/// `NBDMAGIC`: first eight bytes a server sends.
pub const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// `IHAVEOPT`: announces newstyle negotiation, and begins every option that a client sends.
pub const OPTS_MAGIC: u64 = 0x4948_4156_454f_5054;
/// Begins every option reply.
pub const REP_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// `NBD_REQUEST_MAGIC`.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// `NBD_SIMPLE_REPLY_MAGIC`.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// `NBD_STRUCTURED_REPLY_MAGIC`.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;
/// `NBD_EXTENDED_REQUEST_MAGIC`, of the extension `EXTENDED_HEADERS`.
pub const EXTENDED_REQUEST_MAGIC: u32 = 0x21e4_1c71;
/// `NBD_EXTENDED_REPLY_MAGIC`, of the same extension.
pub const EXTENDED_REPLY_MAGIC: u32 = 0x6e8a_278c;

/// Handshake flag: the server speaks fixed newstyle.
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag: the 124 zero bytes after `OPT_EXPORT_NAME` can be left out.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;
/// Client flag: the client speaks fixed newstyle.
pub const FLAG_C_FIXED_NEWSTYLE: u32 = 1 << 0;
/// Client flag: the server must omit the 124 zero bytes.
pub const FLAG_C_NO_ZEROES: u32 = 1 << 1;

/// Transmission flag that is always set.
pub const FLAG_HAS_FLAGS: u16 = 1 << 0;
/// The export refuses writes.
pub const FLAG_READ_ONLY: u16 = 1 << 1;
/// `CMD_FLUSH` is supported.
pub const FLAG_SEND_FLUSH: u16 = 1 << 2;
/// `CMD_FLAG_FUA` is supported.
pub const FLAG_SEND_FUA: u16 = 1 << 3;
/// `CMD_TRIM` is supported.
pub const FLAG_SEND_TRIM: u16 = 1 << 5;
/// `CMD_WRITE_ZEROES` is supported.
pub const FLAG_SEND_WRITE_ZEROES: u16 = 1 << 6;
/// `CMD_FLAG_DF` is supported (only with structured replies).
pub const FLAG_SEND_DF: u16 = 1 << 7;
/// A flush on one connection covers completed writes of all connections.
pub const FLAG_CAN_MULTI_CONN: u16 = 1 << 8;
/// `CMD_CACHE` is supported.
pub const FLAG_SEND_CACHE: u16 = 1 << 10;
/// `CMD_FLAG_FAST_ZERO` is supported.
pub const FLAG_SEND_FAST_ZERO: u16 = 1 << 11;

/// Choose an export and start transmission. The only way to report a failure is to close the connection.
pub const OPT_EXPORT_NAME: u32 = 1;
/// End the negotiation.
pub const OPT_ABORT: u32 = 2;
/// List the exports.
pub const OPT_LIST: u32 = 3;
/// Continue inside TLS.
pub const OPT_STARTTLS: u32 = 5;
/// Ask for information about an export.
pub const OPT_INFO: u32 = 6;
/// Choose an export and start transmission.
pub const OPT_GO: u32 = 7;
/// Use structured replies.
pub const OPT_STRUCTURED_REPLY: u32 = 8;
/// List metadata contexts.
pub const OPT_LIST_META_CONTEXT: u32 = 9;
/// Choose metadata contexts for `CMD_BLOCK_STATUS`.
pub const OPT_SET_META_CONTEXT: u32 = 10;
/// Use extended headers (64-bit lengths).
pub const OPT_EXTENDED_HEADERS: u32 = 11;
/// Take requests from the FUSE device of the client, whose descriptors follow. Not of the specification: see
/// [`crate::front_end`].
pub const OPT_FUSE: u32 = 0x5055_4d4b;

/// Take requests from a queue of the client's ublk device, whose descriptor follows. Not of the
/// specification: see [`crate::ublk_queue`].
pub const OPT_UBLK: u32 = 0x5055_4d4c;

/// Send what a keeper that was killed has left of the FUSE file of an export. Not of the specification: see
/// [`crate::front_end`].
pub const OPT_LEFT: u32 = 0x5055_4d4d;

/// Tell the server that the client is the bridge of an attached drive. Not of the specification: see
/// [`crate::attachment`].
pub const OPT_ATTACH: u32 = 0x5055_4d4a;

/// The option is done.
pub const REP_ACK: u32 = 1;
/// One export of `OPT_LIST`.
pub const REP_SERVER: u32 = 2;
/// One piece of information of `OPT_INFO` or `OPT_GO`.
pub const REP_INFO: u32 = 3;
/// One metadata context.
pub const REP_META_CONTEXT: u32 = 4;
const REP_FLAG_ERROR: u32 = 1 << 31;
/// The option is unknown or not supported.
pub const REP_ERR_UNSUP: u32 = REP_FLAG_ERROR | 1;
/// The option is forbidden by configuration.
pub const REP_ERR_POLICY: u32 = REP_FLAG_ERROR | 2;
/// The option's data is malformed, or the option is not allowed now.
pub const REP_ERR_INVALID: u32 = REP_FLAG_ERROR | 3;
/// The server requires `OPT_STARTTLS` first.
pub const REP_ERR_TLS_REQD: u32 = REP_FLAG_ERROR | 5;
/// No export has that name.
pub const REP_ERR_UNKNOWN: u32 = REP_FLAG_ERROR | 6;
/// The server is shutting down.
pub const REP_ERR_SHUTDOWN: u32 = REP_FLAG_ERROR | 7;
/// The option's data is too long.
pub const REP_ERR_TOO_BIG: u32 = REP_FLAG_ERROR | 9;
/// Extended headers are agreed on, and exclude what was asked for.
pub const REP_ERR_EXT_HEADER_REQD: u32 = REP_FLAG_ERROR | 10;

/// Size and transmission flags of an export.
pub const INFO_EXPORT: u16 = 0;
/// Canonical name of an export.
pub const INFO_NAME: u16 = 1;
/// Description of an export.
pub const INFO_DESCRIPTION: u16 = 2;
/// Minimum, preferred and maximum block size.
pub const INFO_BLOCK_SIZE: u16 = 3;

/// Read `length` bytes.
pub const CMD_READ: u16 = 0;
/// Write the `length` bytes that follow the request.
pub const CMD_WRITE: u16 = 1;
/// End the connection; there is no reply.
pub const CMD_DISC: u16 = 2;
/// Make completed writes durable.
pub const CMD_FLUSH: u16 = 3;
/// Discard a range.
pub const CMD_TRIM: u16 = 4;
/// Hint that a range will be read.
pub const CMD_CACHE: u16 = 5;
/// Make a range read as zeros.
pub const CMD_WRITE_ZEROES: u16 = 6;
/// Ask for the allocation status of a range.
pub const CMD_BLOCK_STATUS: u16 = 7;
/// Of bridges of version 0.3; does nothing, and has no reply. Not of the specification: see
/// [`crate::attachment`].
pub const CMD_READY: u16 = 0x8000;
/// As [`CMD_READY`].
pub const CMD_HEARD: u16 = 0x8001;

/// The request must be durable before the reply. Accepted on every command, as the specification requires.
pub const CMD_FLAG_FUA: u16 = 1 << 0;
/// `CMD_WRITE_ZEROES` keeps the range allocated.
pub const CMD_FLAG_NO_HOLE: u16 = 1 << 1;
/// The reply to `CMD_READ` must be one chunk.
pub const CMD_FLAG_DF: u16 = 1 << 2;
/// The reply to `CMD_BLOCK_STATUS` must be one extent.
pub const CMD_FLAG_REQ_ONE: u16 = 1 << 3;
/// `CMD_WRITE_ZEROES` must fail rather than be as slow as a write.
pub const CMD_FLAG_FAST_ZERO: u16 = 1 << 4;
/// The length of the request is that of a payload that follows (only with extended headers, where `CMD_WRITE`
/// must have it).
pub const CMD_FLAG_PAYLOAD_LEN: u16 = 1 << 5;

/// Last chunk of a structured reply.
pub const REPLY_FLAG_DONE: u16 = 1 << 0;
/// Chunk without content.
pub const REPLY_TYPE_NONE: u16 = 0;
/// Chunk of read data.
pub const REPLY_TYPE_OFFSET_DATA: u16 = 1;
/// Chunk for a read range that is all zeros.
pub const REPLY_TYPE_OFFSET_HOLE: u16 = 2;
/// Chunk of extents.
pub const REPLY_TYPE_BLOCK_STATUS: u16 = 5;
/// Chunk of extents with lengths of 64 bits, in place of the other with extended headers.
pub const REPLY_TYPE_BLOCK_STATUS_EXT: u16 = 6;
/// Chunk that reports failure of the request.
pub const REPLY_TYPE_ERROR: u16 = (1 << 15) + 1;

/// `base:allocation`: the extent is not allocated.
pub const STATE_HOLE: u32 = 1 << 0;
/// `base:allocation`: the extent reads as zeros.
pub const STATE_ZERO: u32 = 1 << 1;
/// The metadata context that reports allocation.
pub const CONTEXT_BASE_ALLOCATION: &str = "base:allocation";
/// Identifier that this server assigns to `base:allocation` (any number is valid).
pub const CONTEXT_ID_BASE_ALLOCATION: u32 = 1;

/// Longest string (export name, context name, error message) in bytes.
pub const MAX_STRING_BYTES: usize = 4096;
/// Largest payload, in bytes, that a client may send or request without negotiating a limit.
pub const MAX_PAYLOAD_BYTES: u32 = 32 << 20;

/// An error code on the wire (`NBD_E*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Errno {
    /// Operation not permitted: the export is read-only.
    Perm = 1,
    /// Input/output error.
    Io = 5,
    /// Invalid argument.
    Inval = 22,
    /// No space left, or a write beyond the end of the export.
    NoSpc = 28,
    /// A read with `CMD_FLAG_DF` that is too large for one chunk.
    Overflow = 75,
    /// A write-zeroes with `CMD_FLAG_FAST_ZERO` that is no faster than a write.
    NotSup = 95,
    /// The server is shutting down.
    Shutdown = 108,
}

impl Errno {
    /// Number used on the wire.
    pub const fn code(self) -> u32 {
        self as u32
    }
}
