//! Damage, as a fuzzer without feedback does it.

use rand::Rng;
use rand::rngs::StdRng;

/// Numbers that arithmetic stumbles over, as little-endian fields of 1, 2, 4 or 8 bytes.
const HOSTILE: [u64; 14] = [
    0,
    1,
    15,
    16,
    111,
    112,
    4095,
    4096,
    0x7fff_ffff,
    0xffff_f000,
    u32::MAX as u64,
    1 << 62,
    u64::MAX - 4095,
    u64::MAX,
];

/// A damaged copy of one of the seeds, or bytes at random.
pub(crate) fn mutate(seeds: &[Vec<u8>], rng: &mut StdRng) -> Vec<u8> {
    if rng.random_ratio(1, 16) {
        let mut bytes = vec![0; rng.random_range(0..6000)];
        rng.fill(&mut bytes[..]);
        return bytes;
    }
    let mut bytes = seeds[rng.random_range(0..seeds.len())].clone();
    for _ in 0..rng.random_range(1..8_u32) {
        if bytes.is_empty() {
            break;
        }
        // Headers are where the fields are.
        let limit = if rng.random() { bytes.len().min(160) } else { bytes.len() };
        let at = rng.random_range(0..limit);
        match rng.random_range(0..8) {
            0 | 1 => bytes[at] ^= 1 << rng.random_range(0..8),
            2 => bytes[at] = rng.random(),
            3 | 4 => {
                let value = HOSTILE[rng.random_range(0..HOSTILE.len())].to_le_bytes();
                let width = 1 << rng.random_range(0..4);
                // Fields lie at multiples of their size, nearly all of them.
                let at = at / width * width;
                let end = (at + width).min(bytes.len());
                bytes[at..end].copy_from_slice(&value[..end - at]);
            }
            5 => bytes.truncate(at),
            6 => {
                let from = rng.random_range(0..bytes.len());
                let len = rng.random_range(0..=bytes.len() - from.max(at));
                bytes.copy_within(from..from + len, at);
            }
            _ => {
                let other = &seeds[rng.random_range(0..seeds.len())];
                let len = rng.random_range(0..=other.len().min(64));
                bytes.splice(at..at, other[..len].iter().copied());
            }
        }
    }
    bytes
}
