//! Parity inside a segment: places of its pages, the index of checksums, and the mask of a parity page.
//!
//! ```text
//!  0                              end            R        R+I              S-I        S
//!  | pack | pack | ... | last pack | never written | index A | parity G pages | index B |
//! ```
//!
//! S pages are a segment. Page p is a member of group p mod G. Parity page j is the XOR of all pages of
//! group j before `end`. What is behind `end` is of earlier fillings, and no member. A group without members
//! has no parity page.
//!
//! G is odd: strides of a power of two, such as chunks of a RAID or erase blocks, do not hit a group twice.
//! Neighbours are in different groups, so that up to G lost pages in a row are one in each.

use std::fmt;
use std::iter::StepBy;
use std::ops::Range;
use std::str::FromStr;

use crate::bytes::{put, u32_at, u64_at};
use crate::limits::SEQUENCE_LIMIT;
use crate::record::place_mask;
use crate::{DecodeError, PAGE_BYTES};

/// Bytes of an index before its list of checksums.
const INDEX_HEADER_BYTES: usize = 128;
/// Bytes of a checksum in the list.
const SUM_BYTES: usize = 4;
const MAGIC: [u8; 8] = *b"PUPARITY";
const VERSION: u32 = 1;
const CRC_AT: usize = 12;
const WHAT: &str = "parity index";

/// How much of a segment is set apart for parity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ParityForm {
    /// Nothing.
    #[default]
    None = 0,
    /// One page for 31 others.
    Part32 = 1,
    /// One page for 63 others.
    Part64 = 2,
    /// One page for 15 others.
    Part16 = 3,
}

impl ParityForm {
    /// What a new drive has unless another form is asked for.
    pub const OF_NEW_DRIVES: ParityForm = ParityForm::Part32;

    /// All forms, in the order of their numbers.
    pub const ALL: [ParityForm; 4] =
        [ParityForm::None, ParityForm::Part32, ParityForm::Part64, ParityForm::Part16];

    /// The form with this number.
    pub fn of_number(number: u8) -> Option<ParityForm> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// Pages of a segment for each one of parity, that one included; `None`: there is none.
    pub fn part(self) -> Option<u32> {
        match self {
            ParityForm::None => None,
            ParityForm::Part32 => Some(32),
            ParityForm::Part64 => Some(64),
            ParityForm::Part16 => Some(16),
        }
    }

    /// Bytes of a segment that packs may fill.
    pub fn room_bytes(self, segment_bytes: u32) -> u32 {
        ParityShape::new(segment_bytes, self).map_or(segment_bytes, |shape| shape.room_bytes())
    }
}

impl fmt::Display for ParityForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            ParityForm::None => "none",
            ParityForm::Part32 => "1/32",
            ParityForm::Part64 => "1/64",
            ParityForm::Part16 => "1/16",
        })
    }
}

/// A text that names no form of parity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected 1/64, 1/32, 1/16 or none")]
pub struct ParseParityError;

impl FromStr for ParityForm {
    type Err = ParseParityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|form| form.to_string() == text).ok_or(ParseParityError)
    }
}

/// Places of parity in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParityShape {
    pages: u32,
    groups: u32,
    form: ParityForm,
}

impl ParityShape {
    /// The places in a segment of this size; `None` if the form has no parity.
    pub fn new(segment_bytes: u32, form: ParityForm) -> Option<ParityShape> {
        let pages = segment_bytes / PAGE_BYTES as u32;
        form.part().map(|part| ParityShape { pages, groups: pages / part - 1, form })
    }

    /// Its form.
    pub fn form(&self) -> ParityForm {
        self.form
    }

    /// Number of groups, which is the most parity pages, and the longest run of lost pages that can be made
    /// again.
    pub fn groups(&self) -> u32 {
        self.groups
    }

    /// Pages of one copy of the index. They depend on the size of the segment alone, so that the last copy is
    /// found without the form.
    fn index_pages(&self) -> u32 {
        (INDEX_HEADER_BYTES + SUM_BYTES * self.pages as usize).div_ceil(PAGE_BYTES) as u32
    }

    /// Bytes of one copy of the index.
    pub fn index_bytes(&self) -> usize {
        self.index_pages() as usize * PAGE_BYTES
    }

    /// Pages that packs may fill.
    pub fn room_pages(&self) -> u32 {
        self.pages - self.groups - 2 * self.index_pages()
    }

    /// Bytes that packs may fill.
    pub fn room_bytes(&self) -> u32 {
        self.room_pages() * PAGE_BYTES as u32
    }

    /// Offsets of the copies of the index in the segment, in bytes.
    pub fn index_offsets(&self) -> [u32; 2] {
        [self.room_pages(), self.pages - self.index_pages()].map(|page| page * PAGE_BYTES as u32)
    }

    /// Offset of a group's parity page in the segment, in bytes.
    pub fn parity_offset(&self, group: u32) -> u32 {
        assert!(group < self.groups, "group {group} of {}", self.groups);
        (self.room_pages() + self.index_pages() + group) * PAGE_BYTES as u32
    }

    /// The group of a page.
    pub fn group_of(&self, page: u32) -> u32 {
        page % self.groups
    }

    /// Members of a group in a filling with `end` pages.
    pub fn members(&self, group: u32, end: u32) -> StepBy<Range<u32>> {
        (group..end.max(group)).step_by(self.groups as usize)
    }

    /// Number of groups with members in a filling with `end` pages.
    pub fn groups_used(&self, end: u32) -> u32 {
        end.min(self.groups)
    }
}

/// What is XORed with the first four bytes of a stored parity page. Without it, the XOR of an odd number of
/// packs of one page would be a pack with a right checksum, perhaps at its own place: CRC32C is linear. It is
/// never 0.
pub fn parity_mask(tag: u32, segment: u32, generation: u32, offset: u32) -> u32 {
    place_mask(tag, segment, generation, offset) | 1
}

/// Checksums of all pages of a filling: they name a page that is wrong, stale or another one. Stored twice.
///
/// ```text
///   0  8  magic "PUPARITY"     8  4  version
///  12  4  CRC32C of bytes 16..128, then of the list
///  16 16  log id              32  4  segment        36  4  generation
///  40  1  form                41  3  zero           44  4  end: pages of the filling
///  48  8  sequence number of the last pack in it    56 72  zero
/// 128  .  CRC32C of each page before `end`, then of each parity page as stored
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParityIndex {
    /// [`Superblock::log_id`](crate::Superblock::log_id) of the drive.
    pub log_id: [u8; 16],
    /// Its segment.
    pub segment: u32,
    /// Number of the filling.
    pub generation: u32,
    /// Sequence number of the last pack in it.
    pub last_sequence: u64,
    /// Checksums of its pages, in order.
    pub pages: Vec<u32>,
    /// Checksums of its parity pages, as stored, in order: of all groups with members.
    pub parity: Vec<u32>,
}

impl ParityIndex {
    /// Pages of the filling.
    pub fn end(&self) -> u32 {
        self.pages.len() as u32
    }

    /// Writes the index to `out`, [`ParityShape::index_bytes`] long.
    pub fn encode(&self, shape: &ParityShape, out: &mut [u8]) {
        assert_eq!(out.len(), shape.index_bytes(), "one copy of the index");
        assert!(self.end() <= shape.room_pages(), "pages of packs are in their room");
        assert_eq!(self.parity.len() as u32, shape.groups_used(self.end()), "a parity page for each group");
        assert!(self.last_sequence < SEQUENCE_LIMIT);
        out.fill(0);
        put(out, 0, &MAGIC);
        put(out, 8, &VERSION.to_le_bytes());
        put(out, 16, &self.log_id);
        put(out, 32, &self.segment.to_le_bytes());
        put(out, 36, &self.generation.to_le_bytes());
        put(out, 40, &[shape.form as u8]);
        put(out, 44, &self.end().to_le_bytes());
        put(out, 48, &self.last_sequence.to_le_bytes());
        let list = out[INDEX_HEADER_BYTES..].chunks_exact_mut(SUM_BYTES);
        for (to, sum) in list.zip(self.pages.iter().chain(&self.parity)) {
            to.copy_from_slice(&sum.to_le_bytes());
        }
        let crc = Self::crc(out, self.pages.len() + self.parity.len());
        put(out, CRC_AT, &crc.to_le_bytes());
    }

    fn crc(bytes: &[u8], sums: usize) -> u32 {
        let list = &bytes[INDEX_HEADER_BYTES..INDEX_HEADER_BYTES + SUM_BYTES * sums];
        crc32c::crc32c_append(crc32c::crc32c(&bytes[16..INDEX_HEADER_BYTES]), list)
    }

    /// Reads a copy of the index of a segment of `segment_bytes`, and the form that it names. Whether it
    /// belongs to the filling that was asked for is for the caller to verify.
    ///
    /// # Errors
    ///
    /// If it is none, or is not whole.
    pub fn decode(b: &[u8], segment_bytes: u32) -> Result<(ParityIndex, ParityShape), DecodeError> {
        if b.len() < INDEX_HEADER_BYTES {
            return Err(DecodeError::Truncated(WHAT));
        }
        if b[..8] != MAGIC {
            return Err(DecodeError::Magic(WHAT));
        }
        if u32_at(b, 8) != VERSION {
            return Err(DecodeError::Version { what: WHAT, found: u32_at(b, 8), known: VERSION });
        }
        let shape = ParityForm::of_number(b[40]).and_then(|form| ParityShape::new(segment_bytes, form));
        let shape = shape.ok_or(DecodeError::Field(WHAT, "unknown form"))?;
        let end = u32_at(b, 44);
        if end > shape.room_pages() {
            return Err(DecodeError::Field(WHAT, "more pages than a segment has room for"));
        }
        let (pages, parity) = (end as usize, shape.groups_used(end) as usize);
        if b.len() < INDEX_HEADER_BYTES + SUM_BYTES * (pages + parity) {
            return Err(DecodeError::Truncated(WHAT));
        }
        if Self::crc(b, pages + parity) != u32_at(b, CRC_AT) {
            return Err(DecodeError::Checksum(WHAT));
        }
        let last_sequence = u64_at(b, 48);
        if last_sequence >= SEQUENCE_LIMIT {
            return Err(DecodeError::Field(WHAT, "impossible sequence number"));
        }
        let mut list =
            b[INDEX_HEADER_BYTES..].chunks_exact(SUM_BYTES).map(|sum| u32_at(sum, 0)).take(pages + parity);
        let index = ParityIndex {
            log_id: std::array::from_fn(|i| b[16 + i]),
            segment: u32_at(b, 32),
            generation: u32_at(b, 36),
            last_sequence,
            pages: list.by_ref().take(pages).collect(),
            parity: list.collect(),
        };
        Ok((index, shape))
    }
}
