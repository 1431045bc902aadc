//! Records: one compressed block (or another thing the log tells), with its header, in steps of 16 bytes.

use crate::bytes::{put, u16_at, u32_at, u40_at, u64_at};
use crate::entry::{FRAME_BLOCKS_MAX, FRAME_STEP_BYTES};
use crate::{DecodeError, Entry, UNIT_BYTES};

/// Bytes of a record's header.
pub const RECORD_HEADER_BYTES: usize = 16;
/// Payload bytes of a range record.
pub const RANGE_PAYLOAD_BYTES: usize = 16;
/// Data records: bits of the codec byte that name the codec.
const CODEC_MASK: u8 = 0x0f;
/// Data records: from this bit of the codec byte on, in three bits, stands the binary logarithm of the number
/// of blocks.
const BLOCKS_SHIFT: u32 = 4;
/// Number of the codec of uncompressed blocks.
const RAW: u8 = 0;
/// Data records: set in the codec byte of what is settled, or uncompressed and put off.
const SETTLED: u8 = 0x80;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RecordKind {
    /// A block's contents, or those of a frame of adjacent blocks, compressed as the codec byte says.
    Data = 1,
    /// From `block` on, so many blocks have this entry (unmapped or a fill): TRIM, write-zeroes, fills.
    Range = 2,
    /// A map node: `block` is its index, the extra field its level.
    Node = 3,
    /// Changes to a leaf that was not in memory when a checkpoint was taken: (slot, entry) pairs. `block` is
    /// the leaf's index; extra bit 0: everything the leaf held before is gone.
    Overlay = 4,
}

/// A record's header.
///
/// ```text
///   0  4  CRC32C of bytes 4 to the end of the payload, XORed with the mask of its place (see [`place_mask`])
///   4  5  block (or index)   9  1  blocks left out   10  2  payload length in bytes
///  12  1  kind                        13  1  codec (or node coding)        14  2  extra
///  16     payload, padded with zeros to 16 bytes, that of a frame to 32
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Checksum, without or with its place's mask, as the caller handles it.
    pub crc: u32,
    /// Block number, node index or leaf index: 40 bits.
    pub block: u64,
    /// Blocks of a frame to which this record does not apply, because they were dead (overwritten or trimmed)
    /// when cleaning moved it: bit n for block `block + n`. Zero in all other records.
    pub left_out: u8,
    /// Bytes of payload.
    pub payload_len: u16,
    /// Kind.
    pub kind: RecordKind,
    /// Coding of the payload. In data records the lower four bits name the codec, the three above the number
    /// of blocks (see [`RecordHeader::blocks`]), and the highest says whether it is settled, or put off if it
    /// is uncompressed.
    pub codec: u8,
    /// Level of a node, flags of an overlay, dictionary of data (0: none); zero in ranges.
    pub extra: u16,
}

const WHAT: &str = "record";

impl RecordHeader {
    /// Bytes of the whole record, padding in.
    pub fn record_len(&self) -> usize {
        let step = if self.blocks() > 1 { FRAME_STEP_BYTES } else { UNIT_BYTES };
        (RECORD_HEADER_BYTES + usize::from(self.payload_len)).next_multiple_of(step)
    }

    /// Blocks in a data record: 1, or of a frame 2, 4 or 8. 1 for all other kinds.
    pub fn blocks(&self) -> u64 {
        if self.kind == RecordKind::Data { 1 << (self.codec >> BLOCKS_SHIFT & 7) } else { 1 }
    }

    /// Returns whether a data record takes effect for `block`: it is one of the record's
    /// [`blocks`](Self::blocks), and not left out.
    pub fn applies_to(&self, block: u64) -> bool {
        block.checked_sub(self.block).is_some_and(|n| n < self.blocks() && self.left_out >> n & 1 == 0)
    }

    /// The number of a data record's codec, without the number of blocks.
    pub fn codec_number(&self) -> u8 {
        self.codec & CODEC_MASK
    }

    /// Returns whether a data record is said to be compressed as well as the drive can.
    pub fn is_settled(&self) -> bool {
        self.has_mark() && self.codec_number() != RAW
    }

    fn has_mark(&self) -> bool {
        self.kind == RecordKind::Data && self.codec & SETTLED != 0
    }

    /// The codec byte of a data record. With codec 0, `settled` means that compressing was put off. `blocks`
    /// must be 1, 2, 4 or 8, `codec_number` below 16.
    pub fn data_codec(codec_number: u8, blocks: u64, settled: bool) -> u8 {
        assert!(codec_number <= CODEC_MASK && blocks.is_power_of_two() && blocks <= FRAME_BLOCKS_MAX);
        let settled = if settled { SETTLED } else { 0 };
        codec_number | (blocks.trailing_zeros() as u8) << BLOCKS_SHIFT | settled
    }

    /// The entry of a record with this header at a position.
    pub fn entry_at(&self, position_bytes: u64) -> Entry {
        let entry = Entry::of_blocks(position_bytes, self.record_len(), self.blocks());
        if self.has_mark() { entry.settled() } else { entry }
    }

    /// Writes the header to the first 16 bytes of `out`. The block is below 2^40.
    pub fn encode(&self, out: &mut [u8]) {
        assert!(self.block < 1 << 40, "a block number has 40 bits");
        put(out, 0, &self.crc.to_le_bytes());
        put(out, 4, &self.block.to_le_bytes()[..5]);
        out[9] = self.left_out;
        put(out, 10, &self.payload_len.to_le_bytes());
        out[12] = self.kind as u8;
        out[13] = self.codec;
        put(out, 14, &self.extra.to_le_bytes());
    }

    /// Reads a header; the checksum is not looked at.
    pub fn decode(b: &[u8]) -> Result<RecordHeader, DecodeError> {
        if b.len() < RECORD_HEADER_BYTES {
            return Err(DecodeError::Truncated(WHAT));
        }
        let kind = match b[12] {
            1 => RecordKind::Data,
            2 => RecordKind::Range,
            3 => RecordKind::Node,
            4 => RecordKind::Overlay,
            _ => return Err(DecodeError::Field(WHAT, "unknown kind")),
        };
        let header = RecordHeader {
            crc: u32_at(b, 0),
            block: u40_at(b, 4),
            left_out: b[9],
            payload_len: u16_at(b, 10),
            kind,
            codec: b[13],
            extra: u16_at(b, 14),
        };
        let blocks = header.blocks();
        if blocks > FRAME_BLOCKS_MAX {
            return Err(DecodeError::Field(WHAT, "impossible number of blocks"));
        }
        if !header.block.is_multiple_of(blocks) {
            return Err(DecodeError::Field(WHAT, "frame that does not begin at a multiple of its blocks"));
        }
        // A bit for each block of a frame. A record that applies to none of its blocks is never written.
        let all = if blocks > 1 { u8::MAX >> (8 - blocks) } else { 0 };
        if header.left_out & !all != 0 {
            return Err(DecodeError::Field(WHAT, "leaves out blocks that it does not have"));
        }
        if all != 0 && header.left_out == all {
            return Err(DecodeError::Field(WHAT, "leaves out all of its blocks"));
        }
        // The length goes into a map entry, where it has 12 bits, in steps of two units 10.
        let most = if blocks > 1 { Entry::FRAME_MAX_LEN_BYTES } else { Entry::MAX_LEN_BYTES };
        if header.record_len() > most {
            return Err(DecodeError::Field(WHAT, "impossible length"));
        }
        Ok(header)
    }
}

/// A record at a known place, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// Its header.
    pub header: RecordHeader,
    /// Its payload.
    pub payload: &'a [u8],
}

/// Checksum of a record's bytes (header with or without a checksum in it, payload), without any mask.
pub fn record_crc(record: &[u8], header: &RecordHeader) -> u32 {
    crc32c::crc32c(&record[4..RECORD_HEADER_BYTES + usize::from(header.payload_len)])
}

/// Decodes and verifies the record that begins at `bytes[0]`, whose place has the mask `mask`.
pub fn decode_record(bytes: &[u8], mask: u32) -> Result<Record<'_>, DecodeError> {
    let header = RecordHeader::decode(bytes)?;
    let start = RECORD_HEADER_BYTES;
    let end = start + usize::from(header.payload_len);
    if end > bytes.len() {
        return Err(DecodeError::Truncated(WHAT));
    }
    if record_crc(bytes, &header) ^ mask != header.crc {
        return Err(DecodeError::Checksum(WHAT));
    }
    Ok(Record { header, payload: &bytes[start..end] })
}

/// The payload of a range record: how many blocks, and what entry they get.
pub fn encode_range(blocks: u64, entry: Entry) -> [u8; RANGE_PAYLOAD_BYTES] {
    let mut payload = [0; RANGE_PAYLOAD_BYTES];
    put(&mut payload, 0, &blocks.to_le_bytes());
    put(&mut payload, 8, &entry.0.to_le_bytes());
    payload
}

/// Reads a range record's payload.
pub fn decode_range(payload: &[u8]) -> Result<(u64, Entry), DecodeError> {
    if payload.len() != RANGE_PAYLOAD_BYTES {
        return Err(DecodeError::Truncated("range record"));
    }
    let (blocks, entry) = (u64_at(payload, 0), Entry(u64_at(payload, 8)));
    if blocks == 0 {
        return Err(DecodeError::Field("range record", "covers no block"));
    }
    if !entry.is_valid() || entry.is_record() {
        return Err(DecodeError::Field("range record", "entry is neither unmapped nor a fill"));
    }
    Ok((blocks, entry))
}

/// Mask with which a record's checksum is XORed at its place: a record left over from an earlier filling of
/// the segment, or written to a wrong place, fails its check although it is whole.
///
/// The constants are odd 64-bit multipliers of the kind used by multiplicative hashing (Knuth, TAOCP 3, 6.4).
#[inline]
pub fn place_mask(drive_tag: u32, segment: u32, generation: u32, offset_in_segment: u32) -> u32 {
    let place = u64::from(segment) << 32 | u64::from(offset_in_segment);
    let filling = u64::from(generation) << 32 | u64::from(drive_tag);
    let mixed = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ filling.wrapping_mul(0xc2b2_ae3d_27d4_eb4f);
    let mixed = (mixed ^ mixed >> 29).wrapping_mul(0x1656_67b1_9e37_79f9);
    (mixed >> 32) as u32
}
