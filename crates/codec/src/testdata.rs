//! Deterministic data for tests and benchmarks: the same seed gives the same bytes on every machine.

mod structured;

use std::io::Write;

pub use structured::{bfloat16, float32, picture, records, samples16, smooth, x86_code};

/// SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
struct SplitMix64(u64);

impl SplitMix64 {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform enough for all bounds used here.
    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn fill(&mut self, out: &mut [u8]) {
        for eight in out.chunks_mut(8) {
            eight.copy_from_slice(&self.next().to_le_bytes()[..eight.len()]);
        }
    }
}

/// Returns `len` random bytes, like encrypted or already compressed data.
pub fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    SplitMix64(seed).fill(&mut out);
    out
}

/// Returns data as fio writes it with `buffer_compress_percentage=percent`, `buffer_compress_chunk=4096`,
/// `refill_buffers=1`: each 4096 bytes begin with `100 - percent` per cent of random bytes, and the rest is
/// zeros. Any codec comes near a ratio of `100 / (100 - percent)`.
pub fn fio_like(seed: u64, len: usize, percent: u32) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    let mut out = vec![0; len];
    for chunk in out.chunks_mut(4096) {
        let random_bytes = chunk.len() * (100 - percent.min(100)) as usize / 100;
        random.fill(&mut chunk[..random_bytes]);
    }
    out
}

/// The artificial language of [`text_like`] has `2^OCTAVES - 1` words, ordered by rank.
const OCTAVES: u64 = 12;

/// Returns a mix of log lines, prose, CSV rows and binary table rows, in runs of 512 bytes to 6 KiB. It
/// compresses about 2.3:1 with zstd level 1 and 1.6:1 with lz4 on 4 KiB blocks. Words and phrases follow a
/// Zipf-like distribution, times increase, and numbers and identifiers have real entropy.
pub fn text_like(seed: u64, len: usize) -> Vec<u8> {
    let mut writer =
        Writer { random: SplitMix64(seed), out: Vec::with_capacity(len + 256), clock: 1_760_000_000_000 };
    while writer.out.len() < len {
        let run_end = writer.out.len() + 512 + writer.random.below(6144) as usize;
        let kind = writer.random.below(4);
        while writer.out.len() < run_end.min(len) {
            match kind {
                0 => writer.log_line(),
                1 => writer.prose(),
                2 => writer.csv_row(),
                _ => writer.table_row(),
            }
        }
    }
    writer.out.truncate(len);
    writer.out
}

struct Writer {
    random: SplitMix64,
    out: Vec<u8>,
    clock: u64,
}

impl Writer {
    fn text(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a Vec does not fail.
        let _ = self.out.write_fmt(text);
    }

    /// Returns a rank from 1 to `2^octaves - 1`. All octaves are equally likely, so rank r is drawn about in
    /// proportion to 1/r (Zipf), without floating-point functions, which differ from machine to machine.
    fn rank(&mut self, octaves: u64) -> u64 {
        let octave = self.random.below(octaves);
        (1 << octave) + self.random.below(1 << octave)
    }

    fn word(&mut self) {
        let rank = self.rank(OCTAVES);
        self.spell(rank);
    }

    /// Writes the word of a rank. Its spelling depends only on the rank, so all seeds share one language.
    /// Frequent words are short.
    fn spell(&mut self, rank: u64) {
        let mut spelling = SplitMix64(rank ^ 0x70_75_6d_69_63_65);
        let syllables = 1 + u64::from(rank > 30) + spelling.below(2) + u64::from(rank > 1000);
        for _ in 0..syllables {
            self.out.push(b"tnsrhldcmpfgwbvk"[(spelling.below(16) * spelling.below(16) / 16) as usize]);
            self.out.push(b"eaoiuy"[(spelling.below(6) * spelling.below(6) / 6) as usize]);
            if spelling.below(3) == 0 {
                self.out.push(b"nrstl"[spelling.below(5) as usize]);
            }
        }
    }

    /// Writes a phrase of 2 to 5 words. As with words, some phrases are far more frequent than others.
    fn phrase(&mut self, octaves: u64) {
        let mut words = SplitMix64(self.rank(octaves) ^ 0x72_6f_63_6b);
        for at in 0..2 + words.below(4) {
            if at > 0 {
                self.out.push(b' ');
            }
            self.spell(1 + words.below(1 << (OCTAVES - 3)));
        }
    }

    fn log_line(&mut self) {
        self.clock += self.random.below(900);
        let (clock, level) =
            (self.clock, ["INFO", "INFO", "INFO", "DEBUG", "WARN"][self.random.below(5) as usize]);
        let (thread, id, micros) =
            (self.random.below(24), self.random.next() as u32, self.random.below(40_000));
        let host = self.random.below(256);
        self.text(format_args!("{clock} {level} [worker-{thread}] "));
        self.phrase(8);
        self.text(format_args!(": request {id:08x} from 10.3.0.{host} took {micros} us\n"));
    }

    fn prose(&mut self) {
        for _ in 0..1 + self.random.below(4) {
            self.phrase(13);
            self.out.push(b' ');
            self.word();
            self.out.extend_from_slice(if self.random.below(4) == 0 { b", " } else { b" " });
        }
        self.word();
        self.out.extend_from_slice(b". ");
    }

    fn csv_row(&mut self) {
        let (key, quantity) = (self.random.below(1 << 20), 1 + self.random.below(12));
        let (cents, day) = (self.random.below(100_000), self.random.below(28));
        self.text(format_args!("{key},"));
        self.phrase(10);
        self.text(format_args!(",{quantity},{}.{:02},2026-10-{:02},", cents / 100, cents % 100, 1 + day));
        let state = ["shipped", "shipped", "delivered", "returned", "pending"][self.random.below(5) as usize];
        self.text(format_args!("{state}\n"));
    }

    /// Writes fixed fields as in a database page: an increasing key, flags, a float, a short string.
    fn table_row(&mut self) {
        self.clock += self.random.below(40);
        let value = (self.random.below(2_000_000) as f64 / 1000.0).to_le_bytes();
        let (flags, reference) = (self.random.below(8) as u32, self.random.below(1 << 20) as u32);
        self.out.extend_from_slice(&self.clock.to_le_bytes());
        self.out.extend_from_slice(&flags.to_le_bytes());
        self.out.extend_from_slice(&reference.to_le_bytes());
        self.out.extend_from_slice(&value);
        let start = self.out.len();
        self.phrase(10);
        let padded = (self.out.len() - start).next_multiple_of(8);
        self.out.resize(start + padded, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CodecId, Compressor, Policy};

    fn ratio(policy: Policy, data: &[u8]) -> f64 {
        let mut compressor = Compressor::new(policy);
        let stored: usize = data
            .chunks(4096)
            .map(|block| {
                let mut payload = Vec::new();
                match compressor.compress(block, None, &mut payload) {
                    CodecId::Raw => block.len(),
                    _ => payload.len(),
                }
            })
            .sum();
        data.len() as f64 / stored as f64
    }

    #[test]
    fn ratios_are_what_the_docs_say() {
        for seed in 0..4 {
            let text = text_like(seed, 4 << 20);
            let [zstd, lz4] = [Policy::Zstd(1), Policy::Lz4].map(|policy| ratio(policy, &text));
            assert!((2.2..2.4).contains(&zstd) && (1.55..1.7).contains(&lz4), "{zstd} {lz4}");
            let fio = ratio(Policy::Zstd(1), &fio_like(seed, 1 << 20, 60));
            assert!((2.4..2.6).contains(&fio), "{fio}");
            assert_eq!(ratio(Policy::Zstd(1), &random(seed, 1 << 20)), 1.0);
        }
    }

    #[test]
    fn seeds_matter_and_repeat() {
        for make in [random, text_like, |seed, len| fio_like(seed, len, 60)] {
            assert_eq!(make(7, 10_001), make(7, 10_001));
            assert_ne!(make(7, 10_001), make(8, 10_001));
            assert_eq!(make(7, 10_001).len(), 10_001);
            assert_eq!(make(7, 0).len(), 0);
        }
    }
}
