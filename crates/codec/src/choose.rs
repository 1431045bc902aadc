//! Choice among several dictionaries for given data, without compressing it.

use crate::Dictionary;
use crate::filter::selected;

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
