//! The superblock: what the drive is. Two copies, rewritten one after the other.

use crate::bytes::{put, u32_at, u64_at};

use crate::geometry::{Geometry, validate_capacity};
use crate::limits::COUNT_MAX;
pub use crate::limits::SUPERBLOCK_COPIES;
use crate::page::PageKind;
use crate::{DecodeError, FORMAT_VERSION, PAGE_BYTES, ParityForm};

/// First bytes of a superblock.
pub const MAGIC: [u8; 8] = *b"PUMICE\x0d\x0a";
const PAGE: PageKind = PageKind { what: WHAT, magic: MAGIC, crc_at: 12 };

/// Identity, geometry and settings of a drive.
///
/// ```text
///   0  8  magic "PUMICE\r\n"          8  4  format version    12  4  CRC32C of the page, this field as zero
///  16 16  drive id (UUID)            32  8  update: the copy with the higher number counts
///  40  8  physical size, bytes       48  8  logical capacity, bytes
///  56  4  segment size, bytes        60  4  most segments (room of the checkpoint table)
///  64  4  sector size, bytes         68  1  codec policy      69  1  codec level (signed)
///  72  8  incompatible features: a reader that does not know a bit refuses to open the drive
///  80  8  creation time, seconds since 1970, 0 if unknown
///  88  8  endurance of the backing: bytes that may be written to it over its life, 0 if unknown
///  96  8  incarnation: how often the drive was wiped
/// 104  8  bytes written to the backing before the last wipe
/// 112  8  read-only-compatible features: a reader that does not know a bit opens the drive read-only at most
/// 120  8  compatible features: a reader ignores bits that it does not know, and keeps them when it writes the superblock
/// 128  4  codecs in use: bit n for codec number n; a reader that does not know a bit refuses to open the drive
/// 132  1  with the feature of parity: the form of new fillings, see [`ParityForm`]
/// 136  8  with the feature of far copies: where they begin, in bytes
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// The drive's identity.
    pub uuid: [u8; 16],
    /// Counts changes of the superblock.
    pub update: u64,
    /// Sizes.
    pub geometry: Geometry,
    /// Size that the host sees, in bytes.
    pub logical_capacity_bytes: u64,
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Codec policy (numbers of the codec crate).
    pub codec_policy: u8,
    /// Codec level.
    pub codec_level: i8,
    /// Seconds since 1970.
    pub created_unix_seconds: u64,
    /// Bytes that may be written to the backing over its life (its maker's TBW); 0 if unknown.
    pub endurance_bytes: u64,
    /// Number of times the drive was wiped. Goes into [`Superblock::log_id`].
    pub incarnation: u64,
    /// Bytes written to the backing in earlier incarnations: wear that a wipe does not undo.
    pub worn_bytes: u64,
    /// Additions to the format that the drive uses.
    pub features: Features,
    /// Codecs that records of the drive may use: bit n for codec number n.
    pub codecs: u32,
}

/// Additions to the format that a drive uses, a bit each, in three groups: what may a program do that does
/// not know the bit?
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// A program that does not know the bit must not open the drive.
    pub incompatible: u64,
    /// A program that does not know the bit may read the drive, not write to it.
    pub read_only_compatible: u64,
    /// A program that does not know the bit may read and write the drive, and must keep the bit.
    pub compatible: u64,
}

impl Features {
    /// A compatible feature: freed space stays allocated in the backing.
    pub const KEEP_ALLOCATED: u64 = 1;
    /// A read-only-compatible feature: there are [far copies](crate::far). A program that does not know of
    /// them must not leave them behind.
    pub const FAR_COPIES: u64 = 1;
    /// A read-only-compatible feature: segments have parity, or had. A program that does not know of it would
    /// write packs to the place of parity.
    pub const PARITY: u64 = 2;
    /// Incompatible features that this release supports.
    const KNOWN_INCOMPATIBLE: u64 = 0;
    /// Read-only-compatible features that this release supports.
    const KNOWN_READ_ONLY_COMPATIBLE: u64 = Features::FAR_COPIES | Features::PARITY;

    /// Returns whether this release may write to a drive that uses these features. If not, open it read-only.
    pub fn allow_writing(&self) -> bool {
        self.read_only_compatible & !Self::KNOWN_READ_ONLY_COMPATIBLE == 0
    }
}

/// Codecs that this release supports, by number: 0 raw, 1 LZ4, 2 Zstandard, 3 DEFLATE, 4 structured.
pub const KNOWN_CODECS: u32 = 0b1_1111;

const WHAT: &str = "superblock";
const PARITY_AT: usize = 132;
const FAR_AT: usize = 136;

impl Superblock {
    /// The id that packs and checkpoints carry: the drive's own, and another after each wipe, so that
    /// whatever lay on the backing before is no part of the drive any more. The first eight bytes are XORed
    /// with the incarnation, mixed by splitmix64's finaliser (Steele et al. 2014), which maps 0 to 0.
    pub fn log_id(&self) -> [u8; 16] {
        self.log_id_of(self.incarnation)
    }

    /// After how many more wipes the id is this one; `None` if not after the next thousand.
    pub fn wipes_until(&self, id: &[u8; 16]) -> Option<u64> {
        const WIPES_MAX: u64 = 1000;
        (1..=WIPES_MAX).find(|wipes| self.log_id_of(self.incarnation.wrapping_add(*wipes)) == *id)
    }

    /// Returns whether this is the id of any incarnation of the drive.
    pub fn has_log(&self, id: &[u8; 16]) -> bool {
        // The number of wipes changes the first half only.
        id[8..] == self.uuid[8..]
    }

    /// Returns whether what rows and packs say of parity counts.
    pub fn uses_parity(&self) -> bool {
        self.geometry.parity != ParityForm::None || self.features.read_only_compatible & Features::PARITY != 0
    }

    fn log_id_of(&self, incarnation: u64) -> [u8; 16] {
        let mut z = incarnation;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        let mut id = self.uuid;
        id.iter_mut().zip(z.to_le_bytes()).for_each(|(byte, mixed)| *byte ^= mixed);
        id
    }

    /// One page.
    pub fn encode(&self) -> [u8; PAGE_BYTES] {
        let mut b = [0; PAGE_BYTES];
        put(&mut b, 8, &FORMAT_VERSION.to_le_bytes());
        put(&mut b, 16, &self.uuid);
        put(&mut b, 32, &self.update.to_le_bytes());
        put(&mut b, 40, &self.geometry.physical_size_bytes.to_le_bytes());
        put(&mut b, 48, &self.logical_capacity_bytes.to_le_bytes());
        put(&mut b, 56, &self.geometry.segment_bytes.to_le_bytes());
        put(&mut b, 60, &self.geometry.max_segments.to_le_bytes());
        put(&mut b, 64, &self.sector_bytes.to_le_bytes());
        b[68] = self.codec_policy;
        b[69] = self.codec_level as u8;
        put(&mut b, 72, &self.features.incompatible.to_le_bytes());
        put(&mut b, 80, &self.created_unix_seconds.to_le_bytes());
        put(&mut b, 88, &self.endurance_bytes.to_le_bytes());
        put(&mut b, 96, &self.incarnation.to_le_bytes());
        put(&mut b, 104, &self.worn_bytes.to_le_bytes());
        let far_bit = if self.geometry.far.is_some() { Features::FAR_COPIES } else { 0 };
        let parity_bit = if self.geometry.parity == ParityForm::None { 0 } else { Features::PARITY };
        let read_only_compatible =
            self.features.read_only_compatible & !Features::FAR_COPIES | far_bit | parity_bit;
        put(&mut b, 112, &read_only_compatible.to_le_bytes());
        put(&mut b, 120, &self.features.compatible.to_le_bytes());
        put(&mut b, 128, &self.codecs.to_le_bytes());
        b[PARITY_AT] = self.geometry.parity as u8;
        put(&mut b, FAR_AT, &self.geometry.far.unwrap_or(0).to_le_bytes());
        PAGE.seal(&mut b);
        b
    }

    /// Reads the far superblock of copies that begin at `far`: one that says that it belongs there, and not
    /// that of a drive elsewhere.
    pub fn decode_far(page: &[u8], far: u64) -> Result<Superblock, DecodeError> {
        let found = Superblock::decode(page)?;
        match found.geometry.far == Some(far) {
            true => Ok(found),
            false => Err(DecodeError::Field(WHAT, "it belongs elsewhere")),
        }
    }

    /// Returns whether a page is a far superblock of copies that begin at `far`, perhaps of a later release.
    pub fn is_far(page: &[u8], far: u64) -> bool {
        let found = Superblock::decode_far(page, far);
        matches!(found, Ok(_) | Err(DecodeError::Version { .. } | DecodeError::Unsupported { .. }))
    }

    /// Reads a page written by [`Superblock::encode`].
    pub fn decode(page: &[u8]) -> Result<Superblock, DecodeError> {
        let b = PAGE.verify(page)?;
        let found = u32_at(b, 8);
        if found != FORMAT_VERSION {
            return Err(DecodeError::Version { what: WHAT, found, known: FORMAT_VERSION });
        }
        let features = Features {
            incompatible: u64_at(b, 72),
            read_only_compatible: u64_at(b, 112),
            compatible: u64_at(b, 120),
        };
        let codecs = u32_at(b, 128);
        let unsupported = |uses, bits| Err(DecodeError::Unsupported { what: WHAT, uses, bits });
        let unknown_features = features.incompatible & !Features::KNOWN_INCOMPATIBLE;
        if unknown_features != 0 {
            return unsupported("feature bits", unknown_features);
        }
        let unknown_codecs = codecs & !KNOWN_CODECS;
        if unknown_codecs != 0 {
            return unsupported("codec bits", unknown_codecs.into());
        }
        let parity = match features.read_only_compatible & Features::PARITY {
            0 => ParityForm::None,
            _ => match ParityForm::of_number(b[PARITY_AT]) {
                Some(form) => form,
                None => return unsupported("form of parity", b[PARITY_AT].into()),
            },
        };
        let mut uuid = [0; 16];
        uuid.copy_from_slice(&b[16..32]);
        let superblock = Superblock {
            uuid,
            update: u64_at(b, 32),
            geometry: Geometry {
                physical_size_bytes: u64_at(b, 40),
                segment_bytes: u32_at(b, 56),
                max_segments: u32_at(b, 60),
                far: (features.read_only_compatible & Features::FAR_COPIES != 0).then(|| u64_at(b, FAR_AT)),
                parity,
            },
            logical_capacity_bytes: u64_at(b, 48),
            sector_bytes: u32_at(b, 64),
            codec_policy: b[68],
            codec_level: b[69] as i8,
            created_unix_seconds: u64_at(b, 80),
            endurance_bytes: u64_at(b, 88),
            incarnation: u64_at(b, 96),
            worn_bytes: u64_at(b, 104),
            features,
            codecs,
        };
        superblock.geometry.validate()?;
        validate_capacity(superblock.logical_capacity_bytes)?;
        if superblock.sector_bytes != 512 && superblock.sector_bytes != 4096 {
            return Err(DecodeError::Field(WHAT, "sector size is neither 512 nor 4096"));
        }
        // Not as far as they can be counted: whoever counts on need not look.
        if [superblock.update, superblock.incarnation].iter().any(|n| *n > COUNT_MAX) {
            return Err(DecodeError::Field(WHAT, "a count that no drive comes to"));
        }
        Ok(superblock)
    }
}
