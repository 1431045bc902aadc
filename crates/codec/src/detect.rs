use std::hint::black_box;

/// Bytes tested together: one block.
const PIECE_BYTES: usize = 4096;
/// Number of samples of a piece, spread evenly over it, and their length.
const SAMPLES: usize = 32;
const SAMPLE_BYTES: usize = 16;

/// Number of pairs of equal bytes among the 512 sampled bytes from which a block is worth compressing.
///
/// The sum of squared byte counts is 512 + 2 * pairs, so this is a sum of 1732. Random bytes have 511 pairs
/// on average, with a standard deviation of 22.6. The limit is 4.4 deviations away, so one random block in 15
/// 000 is compressed in vain.
const PAIRS_MIN: u32 = (1732 - 512) / 2;
/// The number from which entropy coding, or what repeats, is certain to save more than little: 3.5 times what
/// random bytes have. fio's buffers, of which 5 to 10 % can be saved, have up to 1,750, programs and
/// databases 3,000 and more.
const PAIRS_CERTAIN: u32 = 1800;
/// Number of pairs within a sample of one repeated byte.
const PAIRS_OF_SAMPLE: u32 = (SAMPLE_BYTES * (SAMPLE_BYTES - 1) / 2) as u32;

/// Quick test whether a block is not worth compressing, because its byte values are distributed as evenly as
/// random ones.
///
/// It takes about 160 ns for 4 KiB of random data in the cache (zstd level 1 takes 2400 ns to find out), and
/// less for other data. It is false for data that entropy coding shrinks by 2.5 % or more, or with 8 % or
/// more in runs (floats, weights, camera noise, tables of hashes with keys). It does not detect random data
/// that repeats at a distance (a random 2 KiB twice). Such a block is stored raw, which only costs space. A
/// frame is called incompressible only if every block in it is, and a block under 512 bytes never.
pub fn looks_incompressible(block: &[u8]) -> bool {
    if block.len() < SAMPLES * SAMPLE_BYTES {
        return false;
    }
    block.chunks(PIECE_BYTES).all(|piece| piece.len() < SAMPLES * SAMPLE_BYTES || is_even(piece))
}

/// Returns whether the byte values of a block are distributed nearly as evenly as random ones, so that little
/// may be gained. True for all that [`looks_incompressible`], false for blocks under 512 bytes.
pub(crate) fn looks_doubtful(block: &[u8]) -> bool {
    block.len() >= SAMPLES * SAMPLE_BYTES && has_fewer_pairs(block, PAIRS_CERTAIN)
}

fn is_even(piece: &[u8]) -> bool {
    has_fewer_pairs(piece, PAIRS_MIN)
}

/// Windows of data of which is judged what is left of it without runs, spread evenly: of blocks and of
/// frames.
const REST_WINDOWS: (usize, usize) = (64, 128);
/// Windows after which it is looked whether enough is known.
const REST_LOOK: usize = 8;
/// Least number of bytes that are judged. Of less, little can be said, and coding it takes little time.
const REST_MIN: u32 = 256;
/// Equal bytes at an end of a window that show a run: not one in a million of random windows has them.
const RUN_BYTES: usize = 4;

/// Returns whether what is left of data without its runs of one byte has byte values as evenly distributed as
/// random ones, so that entropy coding of them gains nothing. False if there is little of it.
///
/// Bytes with up to an eighth more pairs than random ones count as even, and with up to a quarter more where
/// few were sampled: entropy coding of those would save 1 or 2 %, and zstd does not code for less than 1.6.
/// (In fio's buffers, each eighth byte has only 32 values.)
pub(crate) fn rest_is_even(data: &[u8]) -> bool {
    let windows = if data.len() < 2 * PIECE_BYTES { REST_WINDOWS.0 } else { REST_WINDOWS.1 };
    let step = data.len() / windows;
    if step < SAMPLE_BYTES {
        return false;
    }
    let mut counts = [0_u16; 256];
    let (mut pairs, mut sampled) = (0_u32, 0_u32);
    // Random bytes have n * n / 512 pairs with a standard deviation of n / 22.6.
    let usual = |sampled: u32| sampled * sampled / 512;
    for number in 0..windows {
        // As above: not in order, and each once. Nor at the same place in each sector.
        let place = number * 13 % windows;
        let start = place * step + place * 48 % (step - SAMPLE_BYTES + 1);
        let Some(window) = data[start..].first_chunk::<SAMPLE_BYTES>() else { return false };
        let (first, last) = (&window[..RUN_BYTES], &window[SAMPLE_BYTES - RUN_BYTES..]);
        if first != [first[0]; RUN_BYTES] && last != [last[0]; RUN_BYTES] {
            for &byte in window {
                let count = &mut counts[usize::from(byte)];
                pairs += u32::from(*count);
                *count += 1;
            }
            sampled += SAMPLE_BYTES as u32;
        }
        // Of most data, that is known soon.
        if number % REST_LOOK == REST_LOOK - 1 && pairs > usual(sampled) / 2 * 3 + sampled / 4 {
            return false;
        }
    }
    sampled >= REST_MIN && pairs <= usual(sampled) + usual(sampled) / 8 + sampled / 14
}

#[inline]
fn has_fewer_pairs(piece: &[u8], limit: u32) -> bool {
    // One table of bytes, and pairs counted as they occur: this avoids a pass over the table at the end, and
    // most compressible data is recognised after a few samples. It is faster than interleaved tables on all
    // but random data, and as fast there. A count stays far below 256: 61 of one byte are 1830 pairs, and a
    // sample adds at most 16 before the limit is checked.
    let mut counts = [0_u8; 256];
    let mut pairs = 0;
    let step = piece.len() / SAMPLES;
    // All samples are requested at once. If the block is in no cache, waiting for one after the other takes
    // longer than the rest of this function. Compressing or copying the block then finds it in the cache.
    black_box((0..SAMPLES).fold(0, |all, number| all | piece[number * step]));
    for number in 0..SAMPLES {
        // The samples are not taken in order: data is often compressible only at one end, or in a part of
        // each sector, and is then recognised sooner. 13 and 32 have no common divisor, so each sample is
        // taken once.
        let start = number * 13 % SAMPLES * step;
        let Some(sample) = piece[start..].first_chunk::<SAMPLE_BYTES>() else {
            unreachable!("a whole sample")
        };
        if *sample == [sample[0]; SAMPLE_BYTES] {
            // Has the effect of the loop below. Counting the same byte repeatedly is slow.
            let count = &mut counts[usize::from(sample[0])];
            pairs += u32::from(*count) * SAMPLE_BYTES as u32 + PAIRS_OF_SAMPLE;
            *count += SAMPLE_BYTES as u8;
        } else {
            for &byte in sample {
                let count = &mut counts[usize::from(byte)];
                // Neither can wrap, as said above. Testing that takes a third of the time of this function.
                pairs = pairs.wrapping_add(u32::from(*count));
                *count = count.wrapping_add(1);
            }
        }
        if pairs >= limit {
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    /// Reference implementation: counts all pairs of equal bytes.
    fn plainly(piece: &[u8]) -> bool {
        let step = piece.len() / SAMPLES;
        let sampled: Vec<u8> =
            (0..SAMPLES).flat_map(|n| piece[n * step..][..SAMPLE_BYTES].to_vec()).collect();
        let count = |value: u8| sampled.iter().filter(|&&byte| byte == value).count() as u32;
        (0..=u8::MAX).map(count).map(|count| count * count.saturating_sub(1) / 2).sum::<u32>() < PAIRS_MIN
    }

    #[test]
    fn the_order_of_samples_changes_nothing() {
        let mut even = 0;
        for seed in 0..400 {
            // Runs in random bytes, as many as bring the count near the limit.
            let mut piece = testdata::random(seed, PIECE_BYTES - seed as usize % 3 * 512);
            let runs = seed as usize % 12;
            for run in 0..runs {
                let start = (run * 937 + seed as usize * 61) % (piece.len() - 64);
                piece[start..start + 16 + run].fill(seed as u8);
            }
            assert_eq!(is_even(&piece), plainly(&piece), "seed {seed}");
            even += u32::from(plainly(&piece));
        }
        assert!((50..350).contains(&even), "{even} of 400");
        assert!(!is_even(&[0; PIECE_BYTES]));
    }

    #[test]
    fn random_bytes_and_runs_leave_nothing_to_code() {
        for len in [4096, 16_384, 32_768, 65_536] {
            for percent in [0, 10, 40, 50, 60] {
                let found = (0..200).filter(|seed| rest_is_even(&testdata::fio_like(*seed, len, percent)));
                assert!(found.count() > 190, "{percent} % of {len}");
            }
            let mut some = testdata::fio_like(1, len, 60);
            for part in some.chunks_mut(4096) {
                let text = part.len() / 10;
                part[100..100 + text].copy_from_slice(&testdata::text_like(1, text));
            }
            assert!(!rest_is_even(&some), "a quarter of the rest of {len} is text");
            for make in [testdata::text_like, testdata::records, testdata::x86_code, testdata::bfloat16] {
                assert!((0..50).all(|seed| !rest_is_even(&make(seed, len))));
            }
        }
        assert!(!rest_is_even(&[]) && !rest_is_even(&[7; 4096]) && !rest_is_even(&testdata::random(1, 600)));
    }
}
