//! Branch conversion for ARM64: targets of `bl` and pages of `adrp`, made absolute. Instructions are
//! little-endian words.

/// Replaces relative operands by absolute ones, with position 0 at the beginning of `data`.
pub(super) fn to_absolute(data: &mut [u8]) {
    convert(data, u32::wrapping_add);
}

/// The inverse of [`to_absolute`].
pub(super) fn to_relative(data: &mut [u8]) {
    convert(data, u32::wrapping_sub);
}

/// Returns whether a word is `bl` (Arm ARM, C6.2: bits 31 to 26 are 100101).
pub(super) fn is_call(word: u32) -> bool {
    word & 0xfc00_0000 == 0x9400_0000
}

/// Returns whether a word is `adrp` (bit 31 and bits 28 to 24 are 1 and 10000).
pub(super) fn is_page(word: u32) -> bool {
    word & 0x9f00_0000 == 0x9000_0000
}

fn convert(data: &mut [u8], change: impl Fn(u32, u32) -> u32) {
    for (number, bytes) in (0_u32..).zip(data.as_chunks_mut::<4>().0) {
        let word = u32::from_le_bytes(*bytes);
        if is_call(word) {
            // Counted in words, 26 bits.
            let target = change(word, number) & 0x03ff_ffff;
            *bytes = (0x9400_0000 | target).to_le_bytes();
        } else if is_page(word) {
            // Counted in pages of 4096 bytes, 21 bits: two low ones at bit 29, the others from bit 5 on.
            let page = (word >> 29 & 3) | (word >> 3 & 0x001f_fffc);
            let page = change(page, number >> 10);
            let target = (page & 3) << 29 | (page & 0x001f_fffc) << 3;
            *bytes = (word & 0x9f00_001f | target).to_le_bytes();
        }
    }
}

/// Counts the words in data that [`to_absolute`] would convert, and whose operand is less than 8 MiB away.
/// Code has words of both kinds, so the count is 0 if there are few of one.
pub(super) fn plausible(data: &[u8]) -> usize {
    /// Fewest of each kind.
    const EACH_MIN: usize = 2;
    let near = |distance: u32, bits: u32| matches!(distance >> (bits - 6), 0 | 0x3f);
    let (mut calls, mut pages) = (0_usize, 0_usize);
    for bytes in data.as_chunks::<4>().0 {
        let word = u32::from_le_bytes(*bytes);
        calls += usize::from(is_call(word) & near(word & 0x03ff_ffff, 26) & (word & 0xffff != 0));
        pages += usize::from(is_page(word) & near(word >> 3 & 0x001f_fffc, 21));
    }
    if calls.min(pages) < EACH_MIN { 0 } else { calls + pages }
}
