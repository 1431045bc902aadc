//! Data that drives compress in different ways.
#![allow(dead_code, unreachable_pub)]

use codec::testdata::random;

const BLOCK: usize = 4096;

/// A block of six-bit symbols. It does not look random. LZ4 gains nothing on one block, and very much on
/// repetitions of it.
pub fn symbols(seed: u64) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    random(seed, BLOCK).iter().map(|byte| ALPHABET[usize::from(byte & 63)]).collect()
}

/// Eight equal blocks of symbols: a frame little larger than one of them.
pub fn alike(seed: u64) -> Vec<u8> {
    symbols(seed).repeat(8)
}
