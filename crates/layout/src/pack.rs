//! Packs: the unit of writing. A header, records, padding to 4 KiB.

use crate::bytes::{put, u32_at, u64_at};
use crate::geometry::MAX_SEGMENT_BYTES;
use crate::limits::SEQUENCE_LIMIT;
use crate::record::{RECORD_HEADER_BYTES, Record, RecordHeader, decode_record, place_mask};
use crate::{DecodeError, PAGE_BYTES, ParityForm};

/// Bytes of a pack's header.
pub const PACK_HEADER_BYTES: usize = 112;
const MAGIC: u32 = u32::from_le_bytes(*b"PACK");
const VERSION: u8 = 2;
const CRC_AT: usize = 108;
const WHAT: &str = "pack";

/// Which of the open ends of the log a pack was appended to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Head {
    /// Host writes, TRIM, zeroes.
    Host = 0,
    /// Records moved by cleaning.
    Cleaning = 1,
    /// Map nodes and overlays.
    Map = 2,
}

/// Number of heads.
pub const HEADS: usize = 3;

impl Head {
    /// All heads, in the order of their numbers.
    pub const ALL: [Head; HEADS] = [Head::Host, Head::Cleaning, Head::Map];
}

/// A segment promised to a head, with the generation it will have. [`NextSegment::NONE`] if none is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextSegment {
    /// The segment.
    pub segment: u32,
    /// Its generation: a number unique to each filling of a segment.
    pub generation: u32,
}

impl NextSegment {
    /// No segment.
    pub const NONE: NextSegment = NextSegment { segment: u32::MAX, generation: 0 };

    /// Returns whether a segment is promised.
    pub fn is_some(self) -> bool {
        self.segment != u32::MAX
    }
}

/// A pack's header.
///
/// ```text
///   0  4  magic "PACK"    4  1  version   5  1  head
///   6  1  form of parity of the filling           7  1  zero
///   8 16  drive id (UUID)
///  24  4  segment        28  4  generation             32  4  offset in the segment, bytes
///  36  4  length of the pack with padding, bytes        40  4  bytes used by header and records
///  44  4  number of records
///  48  8  sequence number: one order over all heads
///  56  8  newest sequence number known durable when this pack was sealed
///  64  8  number of the newest checkpoint known durable
///  72 24  for each head: next segment and its generation (0xffffffff: none promised)
///  96  4  continued: number of records at its end that take effect only if the pack with the next sequence number is
///         whole. That pack holds the rest of their write. Zero unless the head is host
/// 100  8  zero
/// 108  4  CRC32C of the headers of all records, in order, then of bytes 0..108
/// ```
///
/// The checksum covers each record's header, which holds the checksum of that record's payload: together they
/// cover every byte that means anything, and a payload is summed only once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackHeader {
    /// Head it belongs to.
    pub head: Head,
    /// Drive it belongs to.
    pub uuid: [u8; 16],
    /// Its segment.
    pub segment: u32,
    /// The segment's generation.
    pub generation: u32,
    /// Offset in the segment, in bytes.
    pub offset: u32,
    /// Bytes with padding.
    pub len: u32,
    /// Bytes without padding.
    pub used: u32,
    /// Records in it.
    pub records: u32,
    /// Sequence number.
    pub sequence: u64,
    /// Newest sequence number known durable.
    pub durable: u64,
    /// Newest checkpoint known durable.
    pub checkpoint: u64,
    /// Segments promised to the heads.
    pub next: [NextSegment; HEADS],
    /// Number of records at its end that belong to a write whose rest is in the pack with the next sequence
    /// number. They take effect only if that pack is whole. Zero unless the head is [`Head::Host`].
    pub continued: u32,
    /// What the filling has set apart for parity.
    pub parity: ParityForm,
}

impl PackHeader {
    /// Writes the header to the first [`PACK_HEADER_BYTES`] of `out`; `records_crc` is the running CRC32C
    /// over the headers of the pack's records in order (0 for none).
    pub fn encode(&self, records_crc: u32, out: &mut [u8]) {
        debug_assert_eq!(
            self.used.next_multiple_of(PAGE_BYTES as u32),
            self.len,
            "a pack is padded to pages"
        );
        debug_assert!(self.continued <= self.records && (self.continued == 0 || self.head == Head::Host));
        debug_assert!(self.sequence < SEQUENCE_LIMIT && self.durable < SEQUENCE_LIMIT);
        let b = &mut out[..PACK_HEADER_BYTES];
        b.fill(0);
        put(b, 0, &MAGIC.to_le_bytes());
        b[4] = VERSION;
        b[5] = self.head as u8;
        b[6] = self.parity as u8;
        put(b, 8, &self.uuid);
        put(b, 24, &self.segment.to_le_bytes());
        put(b, 28, &self.generation.to_le_bytes());
        put(b, 32, &self.offset.to_le_bytes());
        put(b, 36, &self.len.to_le_bytes());
        put(b, 40, &self.used.to_le_bytes());
        put(b, 44, &self.records.to_le_bytes());
        put(b, 48, &self.sequence.to_le_bytes());
        put(b, 56, &self.durable.to_le_bytes());
        put(b, 64, &self.checkpoint.to_le_bytes());
        for (i, next) in self.next.iter().enumerate() {
            put(b, 72 + i * 8, &next.segment.to_le_bytes());
            put(b, 76 + i * 8, &next.generation.to_le_bytes());
        }
        put(b, 96, &self.continued.to_le_bytes());
        let crc = crc32c::crc32c_append(records_crc, &b[..CRC_AT]);
        put(b, CRC_AT, &crc.to_le_bytes());
    }

    /// Reads a header's fields. The checksum covers the records too: see [`decode_pack`].
    pub fn decode(b: &[u8]) -> Result<PackHeader, DecodeError> {
        if b.len() < PACK_HEADER_BYTES {
            return Err(DecodeError::Truncated(WHAT));
        }
        if u32_at(b, 0) != MAGIC {
            return Err(DecodeError::Magic(WHAT));
        }
        if b[4] != VERSION {
            return Err(DecodeError::Version { what: WHAT, found: b[4].into(), known: VERSION.into() });
        }
        let head = match b[5] {
            0 => Head::Host,
            1 => Head::Cleaning,
            2 => Head::Map,
            _ => return Err(DecodeError::Field(WHAT, "unknown head")),
        };
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[8..24]);
        let mut next = [NextSegment::NONE; HEADS];
        for (i, n) in next.iter_mut().enumerate() {
            *n = NextSegment { segment: u32_at(b, 72 + i * 8), generation: u32_at(b, 76 + i * 8) };
        }
        let header = PackHeader {
            head,
            uuid,
            segment: u32_at(b, 24),
            generation: u32_at(b, 28),
            offset: u32_at(b, 32),
            len: u32_at(b, 36),
            used: u32_at(b, 40),
            records: u32_at(b, 44),
            sequence: u64_at(b, 48),
            durable: u64_at(b, 56),
            checkpoint: u64_at(b, 64),
            next,
            continued: u32_at(b, 96),
            parity: ParityForm::of_number(b[6]).unwrap_or_default(),
        };
        // `used` is bounded first: rounding it up cannot overflow then.
        if (header.used as usize) < PACK_HEADER_BYTES
            || header.used > MAX_SEGMENT_BYTES
            || header.used.next_multiple_of(PAGE_BYTES as u32) != header.len
        {
            return Err(DecodeError::Field(WHAT, "impossible length"));
        }
        if !header.offset.is_multiple_of(PAGE_BYTES as u32) || header.offset > MAX_SEGMENT_BYTES - header.len
        {
            return Err(DecodeError::Field(WHAT, "impossible offset"));
        }
        if header.sequence >= SEQUENCE_LIMIT || header.durable >= SEQUENCE_LIMIT {
            return Err(DecodeError::Field(WHAT, "impossible sequence number"));
        }
        if header.continued > header.records {
            return Err(DecodeError::Field(WHAT, "continues more records than it has"));
        }
        if header.continued > 0 && header.head != Head::Host {
            return Err(DecodeError::Field(WHAT, "continues a write although it is not of the host head"));
        }
        Ok(header)
    }
}

/// Expected place of a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackAddress<'a> {
    /// The drive.
    pub uuid: &'a [u8; 16],
    /// Segment.
    pub segment: u32,
    /// Generation of the segment.
    pub generation: u32,
    /// Offset in the segment, in bytes.
    pub offset: u32,
}

/// The 32 bits of the drive id that enter every place mask.
pub fn drive_tag(uuid: &[u8; 16]) -> u32 {
    crc32c::crc32c(uuid)
}

/// Decodes and verifies a pack with all its records. `bytes` begins at the pack and may go on behind it.
/// `each` is called for every record with its offset in the pack, only after the whole pack was found good.
pub fn decode_pack(
    bytes: &[u8],
    place: PackAddress<'_>,
    mut each: impl FnMut(u32, Record<'_>),
) -> Result<PackHeader, DecodeError> {
    let header = decode_headers(bytes, place)?;
    let used = &bytes[..header.used as usize];
    let mask = masks(place);
    walk_records(used, header.records, |at, raw| decode_record(raw, mask(at)).map(drop))?;
    walk_records(used, header.records, |at, raw| {
        // Verified just now: decode again without paying for the checksum.
        let record_header = RecordHeader::decode(raw)?;
        let end = RECORD_HEADER_BYTES + usize::from(record_header.payload_len);
        each(at, Record { header: record_header, payload: &raw[RECORD_HEADER_BYTES..end] });
        Ok(())
    })?;
    Ok(header)
}

/// Decodes a pack whose own header and records' headers are right, while some payloads may not be: what was
/// written where is known. `each` is called for every record with its offset in the pack, its header, and its
/// payload if that is right.
///
/// A power cut leaves such packs too. Who takes one must know that it was durable.
pub fn decode_damaged_pack(
    bytes: &[u8],
    place: PackAddress<'_>,
    mut each: impl FnMut(u32, RecordHeader, Option<&[u8]>),
) -> Result<PackHeader, DecodeError> {
    let header = decode_headers(bytes, place)?;
    let mask = masks(place);
    walk_records(&bytes[..header.used as usize], header.records, |at, raw| {
        let payload = decode_record(raw, mask(at)).ok().map(|record| record.payload);
        each(at, RecordHeader::decode(raw)?, payload);
        Ok(())
    })?;
    Ok(header)
}

/// Verifies a pack's header and those of its records, which its checksum covers.
fn decode_headers(bytes: &[u8], place: PackAddress<'_>) -> Result<PackHeader, DecodeError> {
    let header = PackHeader::decode(bytes)?;
    if header.uuid != *place.uuid
        || header.segment != place.segment
        || header.generation != place.generation
        || header.offset != place.offset
    {
        return Err(DecodeError::Field(WHAT, "belongs to another place or time"));
    }
    if header.len as usize > bytes.len() {
        return Err(DecodeError::Truncated(WHAT));
    }
    let mut crc = 0;
    walk_records(&bytes[..header.used as usize], header.records, |_, raw| {
        crc = crc32c::crc32c_append(crc, &raw[..RECORD_HEADER_BYTES]);
        Ok(())
    })?;
    if crc32c::crc32c_append(crc, &bytes[..CRC_AT]) != u32_at(bytes, CRC_AT) {
        return Err(DecodeError::Checksum(WHAT));
    }
    Ok(header)
}

/// The masks of a pack's records by their offsets in it.
pub(crate) fn masks(place: PackAddress<'_>) -> impl Fn(u32) -> u32 {
    let tag = drive_tag(place.uuid);
    move |at| place_mask(tag, place.segment, place.generation, place.offset + at)
}

/// Steps over the records behind a pack's header: calls `each` with a record's offset and its bytes.
pub fn walk_records(
    used: &[u8],
    records: u32,
    mut each: impl FnMut(u32, &[u8]) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut at = PACK_HEADER_BYTES;
    for _ in 0..records {
        let rest = used.get(at..).ok_or(DecodeError::Truncated(WHAT))?;
        let len = RecordHeader::decode(rest)?.record_len();
        let raw = rest.get(..len).ok_or(DecodeError::Truncated(WHAT))?;
        each(at as u32, raw)?;
        at += len;
    }
    if at == used.len() { Ok(()) } else { Err(DecodeError::Field(WHAT, "records do not fill it")) }
}
