//! Choice among several dictionaries for given data, without compressing it.

use crate::Dictionary;

/// Length of the substrings (grams) that are looked up in a dictionary. zstd's fast levels find no shorter
/// match at these sizes.
const GRAM_BYTES: usize = 6;
/// Only grams whose hash begins with this many zero bits are kept and looked up, in dictionaries and in data
/// alike.
const SELECTED_BITS: u32 = 3;
/// Binary logarithm of the bits of a filter. A dictionary of 60 KiB has 7700 selected grams, which set one
/// bit in 17.
const FILTER_BITS: u32 = 17;
/// Number of windows of the data that are examined, spread evenly, and their length: 512 places of a block,
/// 1024 of a frame.
const WINDOWS: usize = 8;
const WINDOWS_MAX: usize = 16;
const WINDOW_BYTES: usize = 64;
/// Data of at least this length is examined in `WINDOWS_MAX` windows.
const FRAME_BYTES: usize = 8192;
/// Position of each window within its part of the data, in units of 1/[`PLACES_OF`] of the part. The
/// positions in neighbouring parts are far from each other.
const PLACES: [usize; 8] = [0, 5, 2, 7, 4, 1, 6, 3];
const PLACES_OF: usize = 7;
/// A dictionary fits if it has more than one in this many of the selected grams. By chance it would have one
/// in 17.
const FITS_FROM: u32 = 8;

/// The selected grams of a dictionary: a Bloom filter (Bloom, 1970) with one hash.
pub(crate) struct Filter(Box<[u64]>);

impl Filter {
    pub(crate) fn new(bytes: &[u8]) -> Filter {
        let mut bits = vec![0; (1 << FILTER_BITS) / 64].into_boxed_slice();
        for at in selected(bytes) {
            bits[at / 64] |= 1 << (at % 64);
        }
        Filter(bits)
    }

    fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Positions in a filter of the selected grams of some bytes.
fn selected(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(8).filter_map(|eight| {
        let gram = u64::from_le_bytes(eight.try_into().ok()?) << (64 - 8 * GRAM_BYTES);
        // The multiplier is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
        let hash = (gram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS - SELECTED_BITS)) as usize;
        // Runs of one byte are excluded: every dictionary has them, and every codec compresses them without
        // one.
        let run = gram >> (64 - 8 * GRAM_BYTES) == (gram >> 56).wrapping_mul(0x0101_0101_0101);
        (hash >> FILTER_BITS == 0 && !run).then_some(hash & ((1 << FILTER_BITS) - 1))
    })
}

/// Returns the dictionary that has most in common with `input` (a block or a frame), judged by at most 1024
/// places in it. `None` if none has enough in common to be useful. Fast enough for each write
/// (`cargo bench -p codec -- choose`), so that a drive with several kinds of data can choose every time.
pub fn choose<'a>(dictionaries: &'a [Dictionary], input: &[u8]) -> Option<&'a Dictionary> {
    // Enough for any input, without an allocation.
    let mut grams = [0_u32; WINDOWS_MAX * WINDOW_BYTES];
    let mut count = 0;
    let windows = if input.len() < FRAME_BYTES { WINDOWS } else { WINDOWS_MAX };
    let step = (input.len() / windows).max(WINDOW_BYTES);
    for (number, part) in input.chunks(step).take(windows).enumerate() {
        // Not at the same place in each part: that could be the page header of every database page.
        let room = part.len().saturating_sub(WINDOW_BYTES);
        let window = &part[room * PLACES[number % PLACES.len()] / PLACES_OF..];
        for at in selected(&window[..window.len().min(WINDOW_BYTES)]) {
            grams[count] = at as u32;
            count += 1;
        }
    }
    let grams = &grams[..count];
    let found = |dictionary: &Dictionary| {
        let filter = dictionary.filter();
        grams.iter().map(|&at| u32::from(filter.has(at as usize))).sum::<u32>()
    };
    // The first of equals, so that the choice depends only on the arguments.
    let mut best: Option<(&Dictionary, u32)> = None;
    for dictionary in dictionaries {
        let found = found(dictionary);
        if best.is_none_or(|(_, most)| found > most) {
            best = Some((dictionary, found));
        }
    }
    best.filter(|(_, found)| found * FITS_FROM > count as u32).map(|(dictionary, _)| dictionary)
}
