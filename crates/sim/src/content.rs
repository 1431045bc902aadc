//! Content that the simulator writes. Each sector identifies its write and, as far as the filler allows, its
//! place.
//!
//! ```text
//! stamped sector  0 magic | 8 place | 16 number of the write | 20 filler | 24 noise | then words that compress well
//! ```
//!
//! The place is the sector's number, masked in some random data. With a periodic filler it is the sector's
//! number within the period, and a period shorter than a sector consists of repeated stamps. Sectors without
//! a stamp repeat one word of 8 bytes: zeros, a byte, or a word that holds the number of the write.

mod filler;

pub use filler::Filler;

/// Unit of the oracle, in bytes: the smallest unit that a host can write, whatever the drive's sector size.
pub const SECTOR_BYTES: usize = 512;

const MAGIC: u64 = u64::from_le_bytes(*b"simulate");
const STAMP_BYTES: usize = 24;
/// One write in so many has masked places if its data is random.
const MASKED: u32 = 3;
/// Base of the word that identifies a write. The number of the write begins at bit 16.
const WORD: u64 = 0x5e00_0000_0000_00a1;
const WORD_MASK: u64 = 0xffff_0000_0000_ffff;

/// Content of a sector, as far as the oracle distinguishes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Value {
    /// This 8-byte word, repeated. It may come from many writes, for example zeros.
    Fill(u64),
    /// A whole sector of this write, at its place as far as the content shows.
    Stamp(u32),
    /// A sector of this write that belongs to another place, which is the second field.
    Misplaced(u32, u64),
    /// Content that was never written.
    Garbage,
}

impl Value {
    /// Content of a sector that was never written.
    pub const ZERO: Value = Value::Fill(0);

    /// Content of the sectors of a write.
    pub fn of(write: u32, filler: Filler) -> Value {
        match filler {
            Filler::Zero => Value::ZERO,
            Filler::Byte => Value::Fill(byte_word(write)),
            _ => Value::Stamp(write),
        }
    }

    /// Identifies the content of this sector.
    pub fn identify(sector: u64, bytes: &[u8]) -> Value {
        let word = word_at(bytes, 0);
        if bytes.chunks_exact(8).all(|chunk| word.to_le_bytes() == *chunk) {
            let write = (word >> 16) as u32;
            return if word & WORD_MASK == WORD { Value::Stamp(write) } else { Value::Fill(word) };
        }
        let stamp = word_at(bytes, 16);
        let (write, filler) = (stamp as u32, Filler::from_code((stamp >> 32) as u32));
        let (MAGIC, Some(filler)) = (word, filler) else { return Value::Garbage };
        let place = word_at(bytes, 8) ^ mask_of_place(filler, write);
        let mut wanted = [0; SECTOR_BYTES];
        stamp_sector(&mut wanted, place, write, filler);
        match (bytes == wanted, place == place_of(sector, filler)) {
            (false, _) => Value::Garbage,
            (true, true) => Value::Stamp(write),
            (true, false) => Value::Misplaced(write, place),
        }
    }
}

/// Fills `out` with the content of a write of whole sectors.
pub fn fill(out: &mut [u8], first_sector: u64, write: u32, filler: Filler) {
    for (sector, bytes) in (first_sector..).zip(out.chunks_exact_mut(SECTOR_BYTES)) {
        let word = match filler {
            Filler::Zero => Some(0),
            Filler::Byte => Some(byte_word(write)),
            Filler::Word => Some(WORD | u64::from(write) << 16),
            Filler::Dotted { log } if sector % (1 << log) != 0 => Some(WORD | u64::from(write) << 16),
            _ => None,
        };
        match word {
            Some(word) => {
                bytes.chunks_exact_mut(8).for_each(|chunk| chunk.copy_from_slice(&word.to_le_bytes()))
            }
            None => stamp_sector(bytes, place_of(sector, filler), write, filler),
        }
    }
}

fn byte_word(write: u32) -> u64 {
    (1 + u64::from(write) % 255) * 0x0101_0101_0101_0101
}

/// Place that the stamp of a sector records.
fn place_of(sector: u64, filler: Filler) -> u64 {
    match filler {
        Filler::Periodic { log, .. } => sector % ((1_u64 << log) / SECTOR_BYTES as u64).max(1),
        _ => sector,
    }
}

/// Mask of the place in a stamp. Without it, the zeros of places make random data compress by more than the
/// drive calls little. One write in three has it.
fn mask_of_place(filler: Filler, write: u32) -> u64 {
    match filler {
        Filler::Random if write.is_multiple_of(MASKED) => 0xb5ad_4ece_da1c_e2a9,
        _ => 0,
    }
}

fn stamp_sector(out: &mut [u8], place: u64, write: u32, filler: Filler) {
    let (period, noise_bytes) = match filler {
        Filler::Periodic { log, noise } => (SECTOR_BYTES.min(1 << log), usize::from(noise) * 8),
        Filler::Random => (SECTOR_BYTES, SECTOR_BYTES),
        Filler::Mixed => (SECTOR_BYTES, SECTOR_BYTES / 2 - STAMP_BYTES),
        _ => (SECTOR_BYTES, 0),
    };
    let mut noise = (place << 32) ^ u64::from(write) ^ MAGIC;
    for (at, chunk) in out[..period].chunks_exact_mut(8).enumerate() {
        let word = match at * 8 {
            0 => MAGIC,
            8 => place ^ mask_of_place(filler, write),
            16 => u64::from(write) | u64::from(filler.code()) << 32,
            at if filler == Filler::Code => call(place, at, write),
            at if filler == Filler::Columns => number(place, at, write),
            at if at < STAMP_BYTES + noise_bytes => {
                noise = noise.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mixed = (noise ^ (noise >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
                mixed ^ (mixed >> 32)
            }
            at => u64::from_le_bytes(*b"the rock") ^ (at as u64 & 56) ^ u64::from(write & 7),
        };
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    for at in period..SECTOR_BYTES {
        out[at] = out[at - period];
    }
}

/// A call of one of a few functions, and a move of its result, as x86-64 has them. The same call at another
/// place is another word.
fn call(place: u64, at: usize, write: u32) -> u64 {
    const MOVE: u64 = 0xc7_8948;
    let here = (place & 0x7f) * SECTOR_BYTES as u64 + at as u64 + 5;
    let function = (place ^ (at as u64 / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61;
    let target = 0x2_0000 + function * 0x140 + u64::from(write & 15) * 0x10;
    0xe8 | (target.wrapping_sub(here) & 0xffff_ffff) << 8 | MOVE << 40
}

/// Rows of two words: a time that runs evenly, and a value that changes a little.
fn number(place: u64, at: usize, write: u32) -> u64 {
    let row = place * (SECTOR_BYTES as u64 / 16) + at as u64 / 16;
    let mixed = (row ^ u64::from(write)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match at % 16 {
        0 => 0x0192_7c00_0000_0000 + row * 1000 + (mixed >> 60),
        _ => 0x4000_0000 + (row & 0xfff) * 3 + (mixed >> 58),
    }
}

fn word_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use codec::{CodecId, Compressor, Kind, Policy};
    use media::SimRng;

    use super::*;

    const BLOCK: usize = 4096;

    #[test]
    fn fillers_are_distinct() {
        let mut rng = SimRng::new(1);
        let drawn: Vec<Filler> = (0..200).map(|_| Filler::draw_for_frames(&mut rng)).collect();
        let structured = [Filler::Code, Filler::Columns];
        for (write, filler) in (7..).zip(Filler::ALL.into_iter().chain(structured).chain(drawn)) {
            let mut bytes = vec![0; 64 * SECTOR_BYTES];
            fill(&mut bytes, 100, write, filler);
            for (sector, bytes) in (100..).zip(bytes.chunks_exact(SECTOR_BYTES)) {
                assert_eq!(Value::identify(sector, bytes), Value::of(write, filler), "{filler:?}");
            }
        }
    }

    #[test]
    fn a_changed_or_misplaced_sector_is_noticed() {
        let mut bytes = vec![0; SECTOR_BYTES];
        fill(&mut bytes, 100, 1, Filler::Random);
        assert_eq!(Value::identify(101, &bytes), Value::Misplaced(1, 100));
        bytes[300] ^= 1;
        assert_eq!(Value::identify(100, &bytes), Value::Garbage);
        let periodic = Filler::Periodic { log: 12, noise: 61 };
        fill(&mut bytes, 100, 1, periodic);
        assert_eq!(Value::identify(108, &bytes), Value::Stamp(1), "the same place in another period");
        assert_eq!(Value::identify(101, &bytes), Value::Misplaced(1, 4));
    }

    /// Returns the units of 16 bytes of a frame of eight blocks, and the sum over each block alone.
    fn units(filler: Filler, policy: Policy) -> (usize, usize) {
        let mut bytes = vec![0; 8 * BLOCK];
        fill(&mut bytes, 64, 9, filler);
        let mut compressor = Compressor::new(policy);
        let mut units = |data: &[u8]| {
            let mut out = Vec::new();
            let bytes = match compressor.compress(data, None, &mut out) {
                CodecId::Raw => data.len(),
                _ => out.len(),
            };
            1 + bytes.div_ceil(16)
        };
        let alone = bytes.chunks_exact(BLOCK).map(&mut units).sum();
        (units(&bytes), alone)
    }

    /// The drive stores it uncompressed at first, and smaller when it is settled.
    #[test]
    fn some_random_sectors_gain_little() {
        let mut bytes = vec![0; 8 * BLOCK];
        for write in (0..150).step_by(MASKED as usize) {
            fill(&mut bytes, 64 * u64::from(write), write, Filler::Random);
            let doubtful = |block| Kind::of(block) == Kind::Doubtful;
            assert!(bytes.chunks_exact(BLOCK).filter(|block| doubtful(block)).count() > 4, "{write}");
            assert!(Compressor::new(Policy::Auto).gains_little(&bytes, None), "{write}");
        }
        let (frame, _) = units(Filler::Random, Policy::Auto);
        assert!(frame < 8 * BLOCK / 16, "{frame}");
    }

    #[test]
    fn short_frames_have_all_lengths() {
        let mut rng = SimRng::new(2);
        let of = |_| units(Filler::draw_for_frames(&mut rng), Policy::Auto).0;
        let lengths: BTreeSet<usize> = (0..2000).map(of).collect();
        assert!((3..32).all(|units| lengths.contains(&units)), "{lengths:?}");
        assert!(lengths.range(32..1024).count() > 80, "{lengths:?}");
    }

    #[test]
    fn blocks_that_are_alike_cost_as_much_alone_as_all_together() {
        let mut rng = SimRng::new(3);
        for _ in 0..20 {
            let filler = Filler::draw_alike(&mut rng);
            for policy in [Policy::Auto, Policy::Lz4] {
                let (whole, alone) = units(filler, policy);
                assert!(alone > 3 * whole, "{filler:?} by {policy}: {whole} units, alone {alone}");
            }
        }
    }
}
