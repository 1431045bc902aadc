//! Cheap looks at data, by samples.

use super::{arm64, x86};

/// Data of at least this length is sampled at twice as many places.
const FRAME_BYTES: usize = 8192;
/// Windows of the test for text in a frame, spread evenly, and their length.
const WINDOWS: usize = 16;
const WINDOW_BYTES: usize = 16;
/// Data is text if at most one sampled byte in this many does not occur in text.
const TEXT_TO: usize = 24;

/// Least mean difference between a byte of text and the next.
const TEXT_STEP: usize = 4;

/// Returns whether data is text in which no numbers, records or code can be: ASCII or UTF-8, and zeros behind
/// it. Runs of one byte count for nothing.
pub(super) fn is_text(data: &[u8]) -> bool {
    let windows = if data.len() < FRAME_BYTES { WINDOWS / 2 } else { WINDOWS };
    let step = data.len() / windows;
    let (mut other, mut steps, mut examined) = (0_usize, 0_usize, 0_usize);
    for number in 0..windows {
        // Not at the same place in each sector or page.
        let start = number * step + number * 48 % step.saturating_sub(WINDOW_BYTES).max(1);
        let Some(window) = data.get(start..).and_then(|data| data.first_chunk::<WINDOW_BYTES>()) else {
            break;
        };
        if *window != [window[0]; WINDOW_BYTES] {
            other += binary(window);
            let pairs = window.iter().zip(&window[1..]);
            let sum = pairs.map(|(byte, next)| u16::from(byte.abs_diff(*next))).fold(0, u16::wrapping_add);
            steps += usize::from(sum);
            examined += WINDOW_BYTES;
        }
    }
    // Brightness of dark pictures is ASCII, too, but changes less from byte to byte.
    other * TEXT_TO <= examined && steps >= TEXT_STEP * examined
}

/// Counts the bytes of a window, but for the last, that no text has in this place.
fn binary(window: &[u8; WINDOW_BYTES]) -> usize {
    let (mut wrong, mut firsts, mut further) = (0_u8, 0_u8, 0_u8);
    for (&byte, &next) in window.iter().zip(&window[1..]) {
        let control = (byte != 0) & (byte < 9);
        // A run of zeros counts once, where it ends: behind text no other byte follows.
        let zeros = (byte == 0) & (next != 0);
        // In UTF-8, after a first byte of several comes a further one, with 10 in its high bits, and those
        // come after others with a high bit only.
        let alone = (byte >= 0xc0) & (next & 0xc0 != 0x80);
        let astray = (byte < 0x80) & (next & 0xc0 == 0x80);
        wrong = wrong.wrapping_add(u8::from(control | zeros | alone | astray));
        firsts = firsts.wrapping_add(u8::from(byte >= 0xc0));
        further = further.wrapping_add(u8::from(byte & 0xc0 == 0x80));
    }
    // A first byte has at most three further ones. The first of the first three may be before the window.
    usize::from(wrong) + usize::from(further).saturating_sub(3 * usize::from(firsts) + 3)
}

/// A kind of machine code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    X86,
    Arm64,
}

/// Bytes examined for code.
const CODE_BYTES: usize = 2048;

/// Returns the machine code that data looks like: one branch with a short distance in so many bytes.
pub(super) fn code(data: &[u8], one_in: usize) -> Option<Code> {
    let half = data.len() / 2;
    let parts = [&data[..half], &data[half..]]
        .map(|part| &part[..part.len().min((data.len() / 16).clamp(128, CODE_BYTES / 2))]);
    let examined: usize = parts.iter().map(|part| part.len()).sum();
    if parts.iter().map(|part| x86::plausible(part)).sum::<usize>() * one_in >= examined {
        return Some(Code::X86);
    }
    // A word has four bytes, and random words are plausible more often.
    (parts.iter().map(|part| arm64::plausible(part)).sum::<usize>() * one_in >= examined)
        .then_some(Code::Arm64)
}

/// Bytes whose steps are compared with their spread.
const SMOOTH_BYTES: usize = 1024;

/// Returns whether neighbouring bytes, or those of neighbouring numbers of two bytes, differ by less than
/// half of what distant ones do.
pub(super) fn is_smooth(data: &[u8]) -> bool {
    /// Farther than a number or a short word.
    const FAR: usize = 48;
    let data = &data[data.len() / 3..];
    let data = &data[..data.len().min(SMOOTH_BYTES)];
    let Some(last) = data.len().checked_sub(FAR) else { return false };
    let sum = |distance: usize| -> u32 {
        let pairs = data[distance..distance + last].iter().zip(&data[..last]);
        pairs.map(|(one, two)| u32::from(one.abs_diff(*two))).fold(0, u32::wrapping_add)
    };
    2 * sum(1).min(sum(2)) < sum(FAR)
}

/// Slots of the table of grams, and bytes examined for matches.
const SLOTS: usize = 512;
const MATCHED_BYTES: usize = 1024;

/// Returns the number of places in 1024 at which data repeats at least four bytes within 1 KiB.
pub(super) fn repeats(data: &[u8]) -> usize {
    let bytes = if data.len() < FRAME_BYTES { MATCHED_BYTES * 3 / 8 } else { MATCHED_BYTES };
    let data = &data[data.len() / 3..];
    let data = &data[..data.len().min(bytes)];
    let mut seen = [0_u32; SLOTS];
    let (mut found, mut places) = (0_usize, 0_usize);
    for gram in data.windows(4) {
        let gram = u32::from_le_bytes([gram[0], gram[1], gram[2], gram[3]]);
        // The multiplier is 2^32 divided by the golden ratio (Knuth, TAOCP 3, 6.4).
        let slot = &mut seen[(gram.wrapping_mul(0x9e37_79b9) >> 23) as usize];
        found += usize::from(*slot == gram);
        *slot = gram;
        places += 1;
    }
    found * 1024 / places.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    #[test]
    fn text_is_text_in_every_language() {
        let lines = "the quick brown fox jumps over the lazy dog, 1234 times\n".repeat(200);
        let russian = "съешь же ещё этих мягких французских булок, да выпей чаю\n".repeat(200);
        let chinese = "天地玄黄，宇宙洪荒。日月盈昃，辰宿列张。\n".repeat(200);
        for text in [lines, russian, chinese] {
            for len in [4096, 8192] {
                let mut block = text.as_bytes()[..len].to_vec();
                assert!(is_text(&block), "{text:.20}");
                block[len / 3..].fill(0);
                assert!(is_text(&block), "{text:.20} and zeros");
            }
        }
        assert!(is_text(&[0; 4096]) && is_text(&[]) && is_text(&[1]), "nothing to gain");
    }

    #[test]
    fn numbers_records_and_code_are_no_text() {
        for make in [
            testdata::bfloat16,
            testdata::samples16,
            testdata::smooth,
            testdata::records,
            testdata::x86_code,
            testdata::random,
        ] {
            for len in [4096, 32_768] {
                assert!((0..20).all(|seed| !is_text(&make(seed, len))));
            }
        }
        let numbers: Vec<u8> = (0..4096_u32).flat_map(|number| (number % 97).to_le_bytes()).collect();
        assert!(!is_text(&numbers));
    }

    #[test]
    fn code_is_recognised_and_other_data_is_not() {
        for seed in 0..20 {
            assert_eq!(code(&testdata::x86_code(seed, 32_768), 80), Some(Code::X86));
            for make in [testdata::bfloat16, testdata::samples16, testdata::records, testdata::random] {
                assert_eq!(code(&make(seed, 32_768), 80), None);
            }
        }
        // adrp x0, +4 pages; add; bl; ldr; mov; cmp; b.ne; ret
        let arm: [u32; 8] = [
            0x9000_0020,
            0x9100_0000,
            0x9400_0412,
            0xf940_0000,
            0xaa00_03e1,
            0xeb01_001f,
            0x5400_0041,
            0xd65f_03c0,
        ];
        let arm: Vec<u8> = arm.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(code(&arm.repeat(128), 80), Some(Code::Arm64));
    }
}
