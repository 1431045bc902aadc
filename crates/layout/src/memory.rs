//! The memory of a run: packs that are acknowledged and not written yet, as a process leaves them that is
//! killed. It is no part of a drive, and means nothing after a restart of the machine.
//!
//! ```text
//!   0  8  magic "PUMEMORY"     8  4  version    12  4  CRC32C of bytes 16..72
//!  16 16  boot id             32 16  log id     48  8  entropy of the run
//!  56  4  units               60  4  bytes of a unit      64  8  newest checkpoint when the run began
//! 128  8  entropy of the run that took it over, or 0
//! 136  8  openings that tried to
//! 144  8  newest durable checkpoint
//! 152  8  number of the newest sealed pack
//! 160  8  1: something that was acknowledged is missing here
//! 168  8  entropy of the run that used it on another backing, or 0
//! 176  8  everything up to the pack with this number is durable; 0 of an older program
//! 184  8  1: a sync failed, so what is not durable may be missing on the backing, too
//! then, from 4096 on, 64 bytes for each unit:
//!   0  8  state: sequence number << 2 | kind
//!   8  8  of the host's open pack: bytes used | records << 32
//!  16  8  of the same: segment | generation << 32
//!  24  8  of the same: offset in the segment | form of parity | CRC32C of bytes 16..28 << 32
//! then, from the next whole page on, the units
//! ```
//!
//! Each field from byte 128 on is stored as one word. A unit's kind is 0 for one that is free or belongs to a
//! region before it, 1 for the beginning of the host's open pack, 2 for the beginning of a sealed pack, 3 for
//! that of one in a segment that no other pack names. A sealed pack says itself where it belongs.

use std::ops::Range;

use crate::bytes::{put, u32_at, u64_at};
use crate::limits::SEQUENCE_LIMIT;
use crate::pack::{NextSegment, PACK_HEADER_BYTES, PackHeader};
use crate::{DecodeError, PAGE_BYTES, ParityForm};

const MAGIC: u64 = u64::from_le_bytes(*b"PUMEMORY");
const VERSION: u32 = 1;
const WHAT: &str = "memory of a run";
const HEADER_BYTES: usize = 72;

/// Bytes of a unit's description.
const UNIT_ENTRY_BYTES: usize = 64;

/// Offset of the entropy of the run that took the memory over.
pub const TAKEN_BY_AT: usize = 128;
/// Offset of the count of openings that tried to.
pub const OPENINGS_AT: usize = 136;
/// Offset of the number of the newest durable checkpoint.
pub const CHECKPOINT_AT: usize = 144;
/// Offset of the number of the newest sealed pack.
pub const SEQUENCE_AT: usize = 152;
/// Offset of the word that is 1 while something that was acknowledged is missing in the memory.
pub const LAPSED_AT: usize = 160;

/// Offset of the entropy of the run that used the memory on another backing, or 0.
pub const USED_ELSEWHERE_AT: usize = 168;

/// Offset of the number up to which all packs are durable.
pub const DURABLE_AT: usize = 176;

/// Offset of the word that is 1 once a sync of the backing has failed.
pub const SYNC_FAILED_AT: usize = 184;

/// State of a unit where nothing begins.
pub const FREE: u64 = 0;
/// State of the unit where the host's open pack begins.
pub const OPEN: u64 = 1;
const SEALED: u64 = 2;
const UNANNOUNCED: u64 = 3;

/// What a memory is of. It is written once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryHeader {
    /// The boot of the machine.
    pub boot: [u8; 16],
    /// [`Superblock::log_id`](crate::Superblock::log_id) of the drive.
    pub log_id: [u8; 16],
    /// Entropy of the run.
    pub entropy: u64,
    /// Number of units.
    pub units: u32,
    /// Bytes of a unit.
    pub unit_bytes: u32,
    /// Newest checkpoint when the run began. Before its own first one nothing is acknowledged.
    pub begins_behind: u64,
}

impl MemoryHeader {
    /// Bytes before the first unit.
    pub const fn table_bytes(units: usize) -> usize {
        PAGE_BYTES + (units * UNIT_ENTRY_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// The header as words.
    pub fn words(&self) -> [u64; HEADER_BYTES / 8] {
        let mut b = [0; HEADER_BYTES];
        put(&mut b, 0, &MAGIC.to_le_bytes());
        put(&mut b, 8, &VERSION.to_le_bytes());
        put(&mut b, 16, &self.boot);
        put(&mut b, 32, &self.log_id);
        put(&mut b, 48, &self.entropy.to_le_bytes());
        put(&mut b, 56, &self.units.to_le_bytes());
        put(&mut b, 60, &self.unit_bytes.to_le_bytes());
        put(&mut b, 64, &self.begins_behind.to_le_bytes());
        let crc = crc32c::crc32c(&b[16..]);
        put(&mut b, 12, &crc.to_le_bytes());
        std::array::from_fn(|i| u64_at(&b, i * 8))
    }
}

/// Offset of a unit's state; `used` and records follow it.
pub fn state_at(unit: usize) -> usize {
    PAGE_BYTES + unit * UNIT_ENTRY_BYTES
}

/// State of the unit where a sealed pack begins. `is_announced`: another pack or a checkpoint names its
/// segment.
pub fn sealed_state(sequence: u64, is_announced: bool) -> u64 {
    sequence << 2 | if is_announced { SEALED } else { UNANNOUNCED }
}

/// Fill of an open pack, as one word: what is behind it does not exist.
pub fn fill_word(used: usize, records: u32) -> u64 {
    used as u64 | u64::from(records) << 32
}

/// Place of an open pack, as two words.
pub fn place_words(segment: NextSegment, offset: u32, parity: ParityForm) -> [u64; 2] {
    // Packs begin at pages.
    let offset = offset | parity as u32;
    let mut b = [0; 12];
    put(&mut b, 0, &segment.segment.to_le_bytes());
    put(&mut b, 4, &segment.generation.to_le_bytes());
    put(&mut b, 8, &offset.to_le_bytes());
    let crc = u64::from(crc32c::crc32c(&b));
    [u64_at(&b, 0), u64::from(offset) | crc << 32]
}

/// A memory that a run left.
#[derive(Debug)]
pub struct RunMemory<'a> {
    /// What it is of.
    pub header: MemoryHeader,
    /// Entropy of the run that took it over, or 0.
    pub taken_by: u64,
    /// Openings that tried to.
    pub openings: u64,
    /// Newest durable checkpoint.
    pub checkpoint: u64,
    /// Number of the newest sealed pack.
    pub sequence: u64,
    /// Something that was acknowledged is missing.
    pub has_lapsed: bool,
    /// Entropy of the run that used it on another backing, or 0.
    pub used_elsewhere: u64,
    /// Everything up to the pack with this number is durable. 0 of an older program.
    pub durable: u64,
    /// A sync failed: what is not durable may be missing on the backing, too.
    pub sync_failed: bool,
    /// In the order of their numbers, which are distinct.
    pub sealed: Vec<SealedInMemory<'a>>,
    /// The host's open pack, if it has records.
    pub open: Option<OpenInMemory<'a>>,
}

/// A sealed pack.
#[derive(Debug)]
pub struct SealedInMemory<'a> {
    /// Its header, of which nothing is verified but the number.
    pub header: PackHeader,
    /// Nothing names its segment.
    pub is_unannounced: bool,
    /// The whole pack.
    pub bytes: &'a [u8],
}

/// The host's open pack.
#[derive(Debug)]
pub struct OpenInMemory<'a> {
    /// Its segment.
    pub segment: NextSegment,
    /// Its offset there, in bytes.
    pub offset: u32,
    /// What the filling has set apart for parity.
    pub parity: ParityForm,
    /// Records in it.
    pub records: u32,
    /// Room for a header, then the records.
    pub bytes: &'a [u8],
}

impl<'a> RunMemory<'a> {
    /// Reads a memory. What its packs hold is not verified.
    ///
    /// # Errors
    ///
    /// If it is none, or is not whole.
    pub fn decode(b: &'a [u8]) -> Result<RunMemory<'a>, DecodeError> {
        if b.len() < PAGE_BYTES {
            return Err(DecodeError::Truncated(WHAT));
        }
        if u64_at(b, 0) != MAGIC {
            return Err(DecodeError::Magic(WHAT));
        }
        if u32_at(b, 8) != VERSION {
            return Err(DecodeError::Version { what: WHAT, found: u32_at(b, 8), known: VERSION });
        }
        if crc32c::crc32c(&b[16..HEADER_BYTES]) != u32_at(b, 12) {
            return Err(DecodeError::Checksum(WHAT));
        }
        let id = |at: usize| std::array::from_fn(|i| b[at + i]);
        let header = MemoryHeader {
            boot: id(16),
            log_id: id(32),
            entropy: u64_at(b, 48),
            units: u32_at(b, 56),
            unit_bytes: u32_at(b, 60),
            begins_behind: u64_at(b, 64),
        };
        let mut memory = RunMemory {
            header,
            taken_by: u64_at(b, TAKEN_BY_AT),
            openings: u64_at(b, OPENINGS_AT),
            checkpoint: u64_at(b, CHECKPOINT_AT),
            sequence: u64_at(b, SEQUENCE_AT),
            has_lapsed: u64_at(b, LAPSED_AT) != 0,
            used_elsewhere: u64_at(b, USED_ELSEWHERE_AT),
            durable: u64_at(b, DURABLE_AT),
            sync_failed: u64_at(b, SYNC_FAILED_AT) != 0,
            sealed: Vec::new(),
            open: None,
        };
        let (units, unit_bytes) = (header.units as usize, header.unit_bytes as usize);
        let table = units.checked_mul(UNIT_ENTRY_BYTES).map(|_| MemoryHeader::table_bytes(units));
        let len =
            table.zip(units.checked_mul(unit_bytes)).and_then(|(table, units)| table.checked_add(units));
        if len != Some(b.len()) || unit_bytes == 0 {
            return Err(DecodeError::Field(WHAT, "its length is not that of its units"));
        }
        let mut seen: Vec<Range<usize>> = Vec::new();
        for unit in 0..units {
            let entry = &b[state_at(unit)..][..UNIT_ENTRY_BYTES];
            let region = &b[MemoryHeader::table_bytes(units) + unit * unit_bytes..];
            let bytes = match u64_at(entry, 0) {
                FREE => continue,
                OPEN => memory.take_open(entry, region)?,
                state => memory.take_sealed(state, region)?,
            };
            let range = unit..unit + bytes.div_ceil(unit_bytes);
            if seen.last().is_some_and(|last| last.end > range.start) {
                return Err(DecodeError::Field(WHAT, "two packs share a unit"));
            }
            seen.push(range);
        }
        memory.sealed.sort_by_key(|pack| pack.header.sequence);
        if !memory.sealed.is_sorted_by(|a, b| a.header.sequence < b.header.sequence) {
            return Err(DecodeError::Field(WHAT, "two packs have one number"));
        }
        Ok(memory)
    }

    /// Number of the newest sealed pack: a process may be killed between a pack and the word that counts it.
    pub fn newest(&self) -> u64 {
        self.sealed.last().map_or(self.sequence, |pack| pack.header.sequence.max(self.sequence))
    }

    fn take_open(&mut self, entry: &[u8], region: &'a [u8]) -> Result<usize, DecodeError> {
        let (used, records) = (u32_at(entry, 8) as usize, u32_at(entry, 12));
        if crc32c::crc32c(&entry[16..28]) != u32_at(entry, 28) {
            return Err(DecodeError::Checksum(WHAT));
        }
        if records == 0 {
            return Ok(0);
        }
        let bytes = region.get(..used).filter(|_| used >= PACK_HEADER_BYTES);
        let bytes = bytes.ok_or(DecodeError::Field(WHAT, "an open pack of impossible length"))?;
        let segment = NextSegment { segment: u32_at(entry, 16), generation: u32_at(entry, 20) };
        const FORM: u32 = PAGE_BYTES as u32 - 1;
        let offset = u32_at(entry, 24);
        let parity = u8::try_from(offset & FORM).ok().and_then(ParityForm::of_number);
        let parity = parity.ok_or(DecodeError::Field(WHAT, "an open pack at no page"))?;
        let open = OpenInMemory { segment, offset: offset & !FORM, parity, records, bytes };
        match self.open.replace(open) {
            None => Ok(used),
            Some(_) => Err(DecodeError::Field(WHAT, "two open packs")),
        }
    }

    fn take_sealed(&mut self, state: u64, region: &'a [u8]) -> Result<usize, DecodeError> {
        let header = PackHeader::decode(region)?;
        let bytes = region.get(..header.len as usize).ok_or(DecodeError::Truncated(WHAT))?;
        let sequence = state >> 2;
        if sequence >= SEQUENCE_LIMIT || header.sequence != sequence {
            return Err(DecodeError::Field(WHAT, "a pack with another number"));
        }
        let is_unannounced = match state & 3 {
            SEALED => false,
            UNANNOUNCED => true,
            _ => return Err(DecodeError::Field(WHAT, "a unit in an unknown state")),
        };
        self.sealed.push(SealedInMemory { header, is_unannounced, bytes });
        Ok(bytes.len())
    }
}
