//! An estimate of what a dictionary could give to samples, found in a small part of the time that training
//! takes.

use std::collections::HashSet;

use crate::train::{stored_bytes, tables};
use crate::{Dictionary, UNIT_BYTES};

/// Shortest match of zstd at level 1 in data as short as blocks. A dictionary gives no shorter ones.
const MATCH_BYTES: usize = 5;
/// One of so many different strings is looked at.
const SAMPLED: u64 = 8;

/// Estimates how much dictionaries trained on the samples `seen` can [gain](crate::gain) for the samples
/// `held`.
///
/// A dictionary gives two things: strings, and entropy tables. Strings save no more bytes than there are in
/// strings that samples of both have, and mostly far less. What tables give is measured with one of hardly
/// any content. Those of trained dictionaries, and of several, have been seen to give up to four times as
/// much: ask for a third of the least gain that is wanted.
pub fn promise(seen: &[&[u8]], held: &[&[u8]], level: i8) -> f64 {
    let none = stored_bytes(held, level, |_| None);
    let tables = tables(seen, level).ok().and_then(|bytes| Dictionary::new(1, bytes).ok());
    let with = tables.map_or(none, |tables| stored_bytes(held, level, |_| Some(&tables)).min(none));
    // No sample takes less than a unit.
    let left = with.saturating_sub(common_bytes(seen, held)).max(held.len() * UNIT_BYTES);
    if left == 0 { 1.0 } else { (none as f64 / left as f64).max(1.0) }
}

/// Returns about how many bytes of the samples `held` are in strings that are in some of the samples `seen`
/// as well, and not earlier in their own sample.
fn common_bytes(seen: &[&[u8]], held: &[&[u8]]) -> usize {
    let known: HashSet<u64> = seen.iter().flat_map(|sample| strings(sample)).collect();
    let mut own = HashSet::new();
    let mut common = 0;
    for sample in held {
        own.clear();
        common += strings(sample).filter(|string| own.insert(*string) && known.contains(string)).count();
    }
    // Each begins at most so many bytes that none before it has.
    common * SAMPLED as usize * MATCH_BYTES
}

/// Strings of a sample, one of [`SAMPLED`]. Which ones depends on their bytes only, so that equal ones are
/// found. Runs of a byte are left out: they cost next to nothing as it is.
fn strings(sample: &[u8]) -> impl Iterator<Item = u64> {
    sample.windows(MATCH_BYTES).filter_map(|window| {
        if window[0] == window[MATCH_BYTES - 1] && window.iter().all(|byte| *byte == window[0]) {
            return None;
        }
        let string = window.iter().fold(0_u64, |string, &byte| string << 8 | u64::from(byte));
        // Fibonacci hashing (Knuth, TAOCP 6.4): bits above the middle depend on nearly all of the string.
        let hash = string.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (hash >> 32).is_multiple_of(SAMPLED).then_some(string)
    })
}
