//! Compressibility of the sectors of a write.

use media::SimRng;

use super::SECTOR_BYTES;

/// Shortest and longest period of [`Filler::Periodic`], as binary logarithms of bytes.
const PERIOD_LOGS: (u8, u8) = (5, 14);
/// Longest distance of stamped sectors in [`Filler::Dotted`], as a binary logarithm of sectors: one in two
/// frames.
const DOTS_LOG_MAX: u8 = 7;
/// Number of 8-byte words of a sector after its stamp.
const NOISE_WORDS_MAX: u16 = (SECTOR_BYTES / 8 - 3) as u16;

/// Kind of content in the sectors of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// All zeros, like the result of trim and write-zeroes.
    Zero,
    /// One byte, repeated.
    Byte,
    /// One 8-byte word, repeated, which differs from those of all other writes. It gives the shortest frames.
    Word,
    /// Stamped; the rest compresses well.
    Text,
    /// Stamped; the rest compresses to about a half.
    Mixed,
    /// Stamped; the rest does not compress.
    Random,
    /// Repeats every `1 << log` bytes, over the whole write: a stamp, then `noise` random words per sector
    /// (or per period, if that is shorter), then words that compress well. With a period of a block or more,
    /// the blocks of a frame are alike and hardly compress alone. Some of the blocks of such a frame then
    /// take more space than the whole frame.
    Periodic {
        /// Binary logarithm of the period in bytes, 5 to 14.
        log: u8,
        /// Number of random words of 8 bytes, 0 to 61.
        noise: u16,
    },
    /// Like [`Filler::Word`], but one sector in `1 << log` is like [`Filler::Text`].
    Dotted {
        /// Binary logarithm of sectors, 3 (one a block) to 7.
        log: u8,
    },
    /// Stamped; the rest is machine code: calls of a few functions.
    Code,
    /// Stamped; the rest is rows of numbers.
    Columns,
}

impl Filler {
    /// One of each kind, but for those that the drive compresses by their structure.
    pub const ALL: [Filler; 8] = [
        Filler::Zero,
        Filler::Byte,
        Filler::Word,
        Filler::Text,
        Filler::Mixed,
        Filler::Random,
        Filler::Periodic { log: 12, noise: NOISE_WORDS_MAX },
        Filler::Dotted { log: 3 },
    ];

    /// Draws a filler for whole frames, of any compressed length from the shortest to nearly incompressible.
    pub fn draw_for_frames(rng: &mut SimRng) -> Filler {
        let (shortest, longest) = PERIOD_LOGS;
        match rng.below(10) {
            0 | 1 => Filler::Word,
            2 => Filler::Dotted { log: 3 + rng.below(u64::from(DOTS_LOG_MAX) - 2) as u8 },
            3 => Filler::Text,
            4 => Filler::Mixed,
            // A few bytes, repeated.
            5 | 6 => Filler::Periodic { log: shortest + rng.below(5) as u8, noise: rng.skewed(6) as u16 },
            7 => Filler::Periodic {
                log: shortest + rng.below(u64::from(longest - shortest) + 1) as u8,
                noise: rng.below(u64::from(NOISE_WORDS_MAX) + 1) as u16,
            },
            _ => Filler::draw_alike(rng),
        }
        .sane()
    }

    /// Draws a filler that gives the shortest frames.
    pub fn draw_short(rng: &mut SimRng) -> Filler {
        match rng.below(3) {
            0 => Filler::Periodic { log: PERIOD_LOGS.0 + rng.below(2) as u8, noise: rng.skewed(3) as u16 },
            _ => Filler::Word,
        }
    }

    /// Draws a filler whose blocks hardly compress alone, and very well together.
    pub fn draw_alike(rng: &mut SimRng) -> Filler {
        Filler::Periodic { log: 12 + rng.below(2) as u8, noise: NOISE_WORDS_MAX - rng.skewed(5) as u16 }
    }

    /// Returns whether it does not compress, however the write is divided.
    pub fn is_incompressible(self) -> bool {
        self == Filler::Random
    }

    fn sane(self) -> Filler {
        match self {
            Filler::Periodic { log, noise } => Filler::Periodic { log, noise: noise.min(NOISE_WORDS_MAX) },
            other => other,
        }
    }

    /// Name for the coverage report.
    pub fn kind(self) -> &'static str {
        match self {
            Filler::Zero | Filler::Byte => "data: fill",
            Filler::Word => "data: one word of eight bytes",
            Filler::Text | Filler::Mixed => "data: compressible",
            Filler::Random => "data: incompressible",
            Filler::Periodic { log: 12.., noise: 30.. } => "data: blocks alike, incompressible alone",
            Filler::Periodic { .. } => "data: periodic",
            Filler::Dotted { .. } => "data: one stamp in many sectors",
            Filler::Code | Filler::Columns => "data: with a structure",
        }
    }

    /// Number in its stamps; the inverse of [`Filler::from_code`].
    pub(super) fn code(self) -> u32 {
        match self {
            Filler::Zero => 0,
            Filler::Byte => 1,
            Filler::Word => 2,
            Filler::Text => 3,
            Filler::Mixed => 4,
            Filler::Random => 5,
            Filler::Periodic { log, noise } => 6 | u32::from(log) << 8 | u32::from(noise) << 16,
            Filler::Dotted { log } => 7 | u32::from(log) << 8,
            Filler::Code => 8,
            Filler::Columns => 9,
        }
    }

    /// Returns the filler with this number.
    pub(super) fn from_code(code: u32) -> Option<Filler> {
        let (log, noise) = ((code >> 8) as u8, (code >> 16) as u16);
        let filler = match code & 0xff {
            0 => Filler::Zero,
            1 => Filler::Byte,
            2 => Filler::Word,
            3 => Filler::Text,
            4 => Filler::Mixed,
            5 => Filler::Random,
            6 if (PERIOD_LOGS.0..=PERIOD_LOGS.1).contains(&log) && noise <= NOISE_WORDS_MAX => {
                Filler::Periodic { log, noise }
            }
            7 if log <= DOTS_LOG_MAX => Filler::Dotted { log },
            8 => Filler::Code,
            9 => Filler::Columns,
            _ => return None,
        };
        (filler.code() == code).then_some(filler)
    }
}
