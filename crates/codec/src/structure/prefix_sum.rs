//! Running sums of bytes, eight at a time within one word.

const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
const ONES_OF_PAIRS: u64 = 0x0001_0001_0001_0001;
const ONES: u64 = 0x0101_0101_0101_0101;

/// Replaces each byte by the sum, modulo 256, of all bytes up to and including it.
pub(super) fn add(data: &mut [u8]) {
    let mut before = 0_u8;
    let (words, rest) = data.as_chunks_mut::<8>();
    for word in words {
        let bytes = u64::from_le_bytes(*word);
        // The multiplication adds to each of four lanes those below it. The sum of eight bytes and the one
        // before fits a lane.
        let even = (bytes & EVEN).wrapping_mul(ONES_OF_PAIRS);
        let odd = (bytes >> 8 & EVEN).wrapping_mul(ONES_OF_PAIRS);
        let start = even.wrapping_add(u64::from(before).wrapping_mul(ONES_OF_PAIRS));
        let sums = (start.wrapping_add(odd << 16) & EVEN) | (start.wrapping_add(odd) & EVEN) << 8;
        *word = sums.to_le_bytes();
        // Not from the word just made: this is all that the next one waits for.
        before = before.wrapping_add((even.wrapping_add(odd) >> 48) as u8);
    }
    for byte in rest {
        before = before.wrapping_add(*byte);
        *byte = before;
    }
}

/// Replaces each byte by the exclusive or of all bytes up to and including it.
pub(super) fn xor(data: &mut [u8]) {
    let mut before = 0_u8;
    let (words, rest) = data.as_chunks_mut::<8>();
    for word in words {
        let mut bytes = u64::from_le_bytes(*word);
        bytes ^= bytes << 8;
        bytes ^= bytes << 16;
        bytes ^= bytes << 32;
        *word = (bytes ^ u64::from(before).wrapping_mul(ONES)).to_le_bytes();
        before ^= (bytes >> 56) as u8;
    }
    for byte in rest {
        before ^= *byte;
        *byte = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn sums_are_those_of_single_bytes() {
        for len in 0..100 {
            let data = testdata::random(len as u64, len);
            let (mut sum, mut exclusive) = (0_u8, 0_u8);
            let sums: Vec<u8> = data
                .iter()
                .map(|byte| {
                    sum = sum.wrapping_add(*byte);
                    sum
                })
                .collect();
            let xors: Vec<u8> = data
                .iter()
                .map(|byte| {
                    exclusive ^= byte;
                    exclusive
                })
                .collect();
            let (mut added, mut xored) = (data.clone(), data);
            add(&mut added);
            xor(&mut xored);
            assert_eq!((added, xored), (sums, xors), "{len} bytes");
        }
    }
}
