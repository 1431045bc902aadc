/// Bytes compared before the result is checked: a whole number of vectors, small enough to stop early.
const STRIDE_BYTES: usize = 64;

/// Returns the word if the block is one 32-bit little-endian word repeated. A zero block gives `Some(0)`.
///
/// `None` for a block that is empty or not a whole number of words. Of most blocks that are not a fill, it
/// reads only 8 bytes.
#[inline]
pub fn fill_word(block: &[u8]) -> Option<u32> {
    let (first, _) = block.split_first_chunk::<4>()?;
    let (_, last) = block.split_last_chunk::<4>()?;
    // The last word is compared first: data often begins with a run (headers, padding), and seldom ends with
    // the same one.
    if last != first || !block.len().is_multiple_of(4) {
        return None;
    }
    let word = u32::from_le_bytes(*first);
    let wide = u64::from(word) << 32 | u64::from(word);
    let mut strides = block.chunks_exact(STRIDE_BYTES);
    for stride in strides.by_ref() {
        let mut difference = 0;
        for eight in stride.as_chunks::<8>().0 {
            difference |= u64::from_le_bytes(*eight) ^ wide;
        }
        if difference != 0 {
            return None;
        }
    }
    strides.remainder().chunks_exact(4).all(|four| four == first).then_some(word)
}

/// Fills `out` with a repeated little-endian word; the inverse of [`fill_word`]. A rest under 4 bytes gets
/// the beginning of the word.
#[inline]
pub fn fill(out: &mut [u8], word: u32) {
    let bytes = word.to_le_bytes();
    if bytes == [bytes[0]; 4] {
        // Compiles to memset. This is the case of zero blocks.
        out.fill(bytes[0]);
        return;
    }
    let (words, rest) = out.as_chunks_mut::<4>();
    words.fill(bytes);
    rest.copy_from_slice(&bytes[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_fill_is_found(word: u32, words in 1_usize..2048) {
            let mut block = vec![0xa5; words * 4];
            fill(&mut block, word);
            prop_assert_eq!(fill_word(&block), Some(word));
        }

        #[test]
        fn any_changed_bit_is_seen(word: u32, words in 2_usize..2048, at: prop::sample::Index, bit in 0_u32..8) {
            let mut block = vec![0; words * 4];
            fill(&mut block, word);
            let at = at.index(block.len());
            block[at] ^= 1 << bit;
            prop_assert_eq!(fill_word(&block), None);
        }

        #[test]
        fn agrees_with_the_plain_definition(block in prop::collection::vec(0_u8..2, 0..24)) {
            let plain = !block.is_empty() && block.len() % 4 == 0 && block.chunks(4).all(|four| four == &block[..4]);
            prop_assert_eq!(fill_word(&block).is_some(), plain);
        }
    }

    #[test]
    fn the_word_is_little_endian() {
        assert_eq!(fill_word(&[1, 2, 3, 4, 1, 2, 3, 4]), Some(0x0403_0201));
        assert_eq!(fill_word(&[0; 4096]), Some(0));
        assert_eq!(fill_word(&[]), None);
        assert_eq!(fill_word(&[0; 5]), None);
        let mut out = [0; 7];
        fill(&mut out, 0x0403_0201);
        assert_eq!(out, [1, 2, 3, 4, 1, 2, 3]);
    }
}
