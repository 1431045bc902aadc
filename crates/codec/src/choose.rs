//! Which of several dictionaries fits some data, found out without compressing it.

use crate::Dictionary;

/// Bytes that are looked for in a dictionary: zstd's fast levels find no shorter match at these sizes.
const GRAM_BYTES: usize = 6;
/// Of all grams, those whose hash begins with this many zero bits are kept and looked for, on both sides the same.
const SELECTED_BITS: u32 = 3;
/// Bits of a filter, as a power of two: 60 KiB have 7700 selected grams, which set one bit in 17.
const FILTER_BITS: u32 = 17;
/// Windows of the data that are looked at, spread evenly, and their length: 512 places of a block, 1024 of a frame.
const WINDOWS: usize = 8;
const WINDOWS_MAX: usize = 16;
const WINDOW_BYTES: usize = 64;
/// What is as long as this is looked at in more places.
const FRAME_BYTES: usize = 8192;
/// Where in its part of the data each window lies, in parts of [`PLACES_OF`]: far from those of its neighbours.
const PLACES: [usize; 8] = [0, 5, 2, 7, 4, 1, 6, 3];
const PLACES_OF: usize = 7;
/// A dictionary fits if it has one in this many of the selected grams; chance gives one in 17.
const FITS_FROM: u32 = 8;

/// The selected grams of a dictionary: a Bloom filter (Bloom, 1970) of one hash.
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

/// Where the selected grams of some bytes lie in a filter.
fn selected(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.windows(8).filter_map(|eight| {
        let gram = u64::from_le_bytes(eight.try_into().ok()?) << (64 - 8 * GRAM_BYTES);
        // The multiplier is 2^64 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
        let hash = (gram.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - FILTER_BITS - SELECTED_BITS)) as usize;
        // A run is in every dictionary, and in every codec's reach without one.
        let run = gram >> (64 - 8 * GRAM_BYTES) == (gram >> 56).wrapping_mul(0x0101_0101_0101);
        (hash >> FILTER_BITS == 0 && !run).then_some(hash & ((1 << FILTER_BITS) - 1))
    })
}

/// The dictionary that has most in common with `input` (a block or a frame), judged by five hundred places in it;
/// `None` if none has enough to be of use. Quick enough for each write (`cargo bench -p codec -- choose`), so that a
/// drive of several kinds of data can choose every time.
pub fn choose<'a>(dictionaries: &'a [Dictionary], input: &[u8]) -> Option<&'a Dictionary> {
    // More than any input has; no allocation.
    let mut grams = [0_u32; WINDOWS_MAX * WINDOW_BYTES];
    let mut count = 0;
    let windows = if input.len() < FRAME_BYTES { WINDOWS } else { WINDOWS_MAX };
    let step = (input.len() / windows).max(WINDOW_BYTES);
    for (number, part) in input.chunks(step).take(windows).enumerate() {
        // Not at the same place of each part: that would be the head of each page of a database.
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
    // The first of equals, so that the choice hangs on nothing but its arguments.
    let mut best: Option<(&Dictionary, u32)> = None;
    for dictionary in dictionaries {
        let found = found(dictionary);
        if best.is_none_or(|(_, most)| found > most) {
            best = Some((dictionary, found));
        }
    }
    best.filter(|(_, found)| found * FITS_FROM > count as u32).map(|(dictionary, _)| dictionary)
}
