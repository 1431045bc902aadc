//! The grams of a dictionary, by which data finds the dictionary that fits it.

/// Length of the substrings (grams) that are looked up in a dictionary. zstd's fast levels find no shorter
/// match at these sizes.
const GRAM_BYTES: usize = 6;
/// Only grams whose hash begins with this many zero bits are kept and looked up, in dictionaries and in data
/// alike.
const SELECTED_BITS: u32 = 3;
/// Binary logarithm of the bits of a filter. A dictionary of 60 KiB has 7700 selected grams, which set one
/// bit in 17.
const FILTER_BITS: u32 = 17;

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

    /// Returns whether the dictionary has the gram at this position.
    pub(crate) fn has(&self, at: usize) -> bool {
        self.0[at / 64] >> (at % 64) & 1 != 0
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

/// Positions in a filter of the selected grams of some bytes.
pub(crate) fn selected(bytes: &[u8]) -> impl Iterator<Item = usize> {
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
