//! Detection of the length of records: bytes often equal those of the record before.

use super::columns;

/// Most bytes compared at a distance. Counts of equal bytes in a lane stay below 256.
const COMPARED_MAX: usize = 4064;
const LANES: usize = 16;

/// A distance at which many bytes are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stride {
    pub(super) bytes: usize,
    /// Share of equal bytes, in 65536ths.
    pub(super) share: u32,
}

/// Returns the distance with the most equal bytes, the next best that is not its multiple, and the mean share
/// over all distances, which must be in ascending order.
pub(super) fn find(data: &[u8], distances: impl Iterator<Item = usize>) -> (Stride, Stride, u32) {
    let data = &data[..data.len().min(COMPARED_MAX + columns::STRIDE_MAX)];
    let (mut first, mut second) = (Stride::default(), Stride::default());
    let (mut sum, mut count) = (0, 0);
    for bytes in distances.take_while(|distance| distance * 2 <= data.len()) {
        let compared = (data.len() - bytes).min(COMPARED_MAX);
        let equal = equal(&data[bytes..bytes + compared], &data[..compared]);
        let stride = Stride { bytes, share: (equal << 16) / compared as u32 };
        (sum, count) = (sum + stride.share, count + 1);
        // A multiple of a record is as good as the record, but for chance.
        let margin = |best: Stride| best.share + best.share / 32;
        if stride.share > margin(first) {
            if first.bytes == 0 || bytes % first.bytes != 0 {
                second = first;
            }
            first = stride;
        } else if stride.share > margin(second) && bytes % first.bytes.max(1) != 0 {
            second = stride;
        }
    }
    (first, second, sum / u32::max(count, 1))
}

/// Returns the share of equal bytes at a distance, in 65536ths.
pub(super) fn share(data: &[u8], distance: usize) -> u32 {
    let compared = data.len().saturating_sub(distance).min(COMPARED_MAX) / LANES * LANES;
    if compared == 0 {
        return 0;
    }
    (equal(&data[distance..distance + compared], &data[..compared]) << 16) / compared as u32
}

/// Distances at which records are looked for thoroughly.
pub(super) fn all() -> impl Iterator<Item = usize> {
    (5..64).chain((64..=columns::STRIDE_MAX).step_by(4))
}

/// Distances at which records are looked for in a hurry. Of longer records zstd finds enough by itself.
pub(super) fn usual() -> impl Iterator<Item = usize> {
    (8..=128).step_by(4)
}

/// Counts the bytes that are equal in both.
fn equal(one: &[u8], two: &[u8]) -> u32 {
    let mut lanes = [0_u8; LANES];
    for (one, two) in one.as_chunks::<LANES>().0.iter().zip(two.as_chunks::<LANES>().0) {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane].wrapping_add(u8::from(one[lane] == two[lane]));
        }
    }
    lanes.iter().map(|lane| u32::from(*lane)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn the_length_of_records_is_found() {
        for seed in 0..8 {
            let data = testdata::records(seed, 16_384);
            let (first, _, mean) = find(&data, all());
            assert_eq!(first.bytes, 24);
            assert!(first.share > 2 * mean, "{} of {mean}", first.share);
            assert_eq!(find(&data[..2048], usual()).0.bytes, 24);
            let here = share(&data, 24);
            assert!(here.abs_diff(first.share) < 1 << 12, "{here} and {}", first.share);
            // In random bytes one in 256 is equal.
            let random = find(&testdata::random(seed, 16_384), all());
            assert!(random.0.share < 1 << 10, "{}", random.0.share);
        }
    }

    #[test]
    fn equal_bytes_are_counted() {
        assert_eq!(share(&[7; 100], 1), 65_536);
        assert_eq!(share(&[1, 2].repeat(100), 1), 0);
        assert_eq!(share(&[1, 2].repeat(100), 2), 65_536);
        assert_eq!((share(&[], 3), share(&[1; 3], 3)), (0, 0));
        assert_eq!(find(&[], all()), (Stride::default(), Stride::default(), 0));
    }
}
