//! Length of the rows of pictures: what changes from byte to byte changes in the row above, too.

/// Shortest row that is looked for, and the one before which the search ends.
const ROW_BYTES_MIN: usize = 48;
const ROW_BYTES_END: usize = 8192 + ROW_BYTES_MIN;
/// A window of this length near the end of the data is compared with what is before it.
const WINDOW_BYTES: usize = 256;
/// Windows of which the one that changes most is taken.
const WINDOWS: usize = 4;
/// First bytes of the window, by which a few distances are chosen.
const HASTY_BYTES: usize = 32;
/// Of so many neighbouring distances one is chosen: in a hurry, and when there is time.
pub(super) const QUICK: usize = 256;
pub(super) const THOROUGH: usize = 16;
/// A part of a row's length is taken for it if its differences are larger by at most one in so many.
const SEVERAL_TO: u32 = 8;

/// Returns the distance at which the changes of a window near the end of the data are most like those before
/// it. `None`: they are not much more alike than at other distances. One of `neighbours` distances is looked
/// at closely.
pub(super) fn find(data: &[u8], neighbours: usize) -> Option<u16> {
    const KEPT: usize = ROW_BYTES_END + WINDOWS * WINDOW_BYTES;
    let data = &data[data.len().saturating_sub(KEPT + 1)..];
    let count = data.len().checked_sub(1)?;
    // Zero is in the middle, so that the distance of two changes is that of two bytes.
    let mut changes = [0_u8; KEPT];
    let changes = &mut changes[..count];
    for (change, (before, byte)) in changes.iter_mut().zip(data.iter().zip(&data[1..])) {
        *change = byte.wrapping_sub(*before).wrapping_add(128);
    }
    let starts = (1..=WINDOWS).filter_map(|number| count.checked_sub(number * WINDOW_BYTES));
    let start = starts.max_by_key(|&start| differences(&changes[start..], &[128; WINDOW_BYTES]))?;
    let window = changes[start..].first_chunk::<WINDOW_BYTES>()?;
    let hasty = window.first_chunk::<HASTY_BYTES>()?;
    let at = |row: usize| differences(&changes[start - row..], window);
    let (mut best, mut sum, mut tried) = ((u32::MAX, 0), 0, 0);
    for from in (ROW_BYTES_MIN..ROW_BYTES_END.min(start + 1)).step_by(neighbours) {
        let rows = neighbours.min(start + 1 - from);
        let there = &changes[start - from + 1 - rows..start - from + HASTY_BYTES];
        let mut least = (u32::MAX, 0);
        for (row, there) in (0..rows).zip(there.windows(HASTY_BYTES).rev()) {
            let differences = differences(there, hasty);
            if differences < least.0 {
                least = (differences, row);
            }
        }
        let row = from + least.1;
        best = best.min((at(row), row));
        // Not chosen by what it is like.
        sum += at(from);
        tried += 1;
    }
    // At three quarters of the mean, chance is unlikely, and a gain likely.
    if u64::from(best.0) * tried * 4 >= u64::from(sum) * 3 {
        return None;
    }
    // Several rows are nearly as good as one.
    let mut parts = (2..=best.1 / ROW_BYTES_MIN).rev().filter(|rows| best.1.is_multiple_of(*rows));
    let rows = parts.find(|rows| at(best.1 / rows) <= best.0 + best.0 / SEVERAL_TO).unwrap_or(1);
    Some((best.1 / rows) as u16)
}

/// Returns the sum of the differences of two windows' bytes.
#[inline(always)]
fn differences<const BYTES: usize>(one: &[u8], two: &[u8; BYTES]) -> u32 {
    let Some(one) = one.first_chunk::<BYTES>() else { return u32::MAX };
    let bytes = one.iter().zip(two).map(|(one, two)| u32::from(one.abs_diff(*two)));
    bytes.fold(0, u32::wrapping_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn rows_are_found() {
        for row in [333, 1024, 5000] {
            // One of them, or a few.
            let is_found = |found: Option<u16>| found.is_some_and(|it| usize::from(it).is_multiple_of(row));
            assert!(is_found(find(&testdata::picture(row as u64, row, 16_384), THOROUGH)), "{row}");
            assert!(is_found(find(&testdata::picture(1, row, 32_768), QUICK)), "{row}");
        }
    }

    #[test]
    fn what_has_no_rows_has_none() {
        for seed in 0..8 {
            for make in [testdata::random, testdata::smooth, testdata::bfloat16] {
                assert_eq!(find(&make(seed, 16_384), THOROUGH), None);
            }
        }
        for len in [0, 1, 2, 63, 64, 65, 256, 300, 1024, 9000] {
            assert_eq!(find(&vec![7; len], THOROUGH), None);
            find(&testdata::random(1, len), QUICK);
        }
    }
}
