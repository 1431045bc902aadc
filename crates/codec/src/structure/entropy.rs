//! Estimate of what entropy coding makes of bytes, without coding them.

/// Counts of byte values.
pub(super) struct Counts([u16; 256]);

/// Most bytes that a [`Counts`] can count.
pub(super) const COUNTED_MAX: usize = 2048;

/// Fractional bits of [`TIMES_LOG`].
const POINT: u32 = 8;

/// `n * log2(n)`, in units of 1/256.
static TIMES_LOG: [u32; COUNTED_MAX + 1] = times_log();

const fn times_log() -> [u32; COUNTED_MAX + 1] {
    let mut table = [0; COUNTED_MAX + 1];
    let mut number = 1;
    while number <= COUNTED_MAX {
        // Integer part, then one bit of the fraction at a time, by squaring the mantissa in [1, 2).
        let whole = (number as u32).ilog2();
        let mut mantissa = ((number as u64) << 31) >> whole;
        let (mut fraction, mut bit) = (0_u64, POINT + 4);
        while bit > 0 {
            bit -= 1;
            mantissa = (mantissa * mantissa) >> 31;
            if mantissa >> 32 != 0 {
                mantissa >>= 1;
                fraction |= 1 << bit;
            }
        }
        let log = ((whole as u64) << (POINT + 4)) | fraction;
        table[number] = ((number as u64 * log) >> 4) as u32;
        number += 1;
    }
    table
}

impl Counts {
    pub(super) fn new() -> Counts {
        Counts([0; 256])
    }

    /// Counts a byte. Returns how often it was counted before.
    #[inline]
    pub(super) fn add(&mut self, byte: u8) -> u16 {
        let count = &mut self.0[usize::from(byte)];
        let before = *count;
        *count = before.wrapping_add(1);
        before
    }

    pub(super) fn merge(&mut self, other: &Counts) {
        self.0.iter_mut().zip(&other.0).for_each(|(count, more)| *count = count.wrapping_add(*more));
    }

    /// Returns the number of bits that an entropy coder needs for the counted bytes: their entropy (Shannon,
    /// 1948), with the correction for small samples of Miller and Madow (1955).
    pub(super) fn bits(&self) -> u32 {
        self.measured().0
    }

    /// Returns [`Counts::bits`] and the number of bytes counted.
    pub(super) fn measured(&self) -> (u32, u32) {
        let (mut total, mut sum, mut distinct) = (0_usize, 0_u32, 0_u32);
        for count in &self.0 {
            let count = usize::from(*count);
            total = total.wrapping_add(count);
            sum = sum.wrapping_add(TIMES_LOG[count.min(COUNTED_MAX)]);
            distinct = distinct.wrapping_add(u32::from(count > 0));
        }
        let bits = TIMES_LOG[total.min(COUNTED_MAX)].saturating_sub(sum) >> POINT;
        // Half a nat for each value but one.
        (bits + distinct.saturating_sub(1) * 3 / 4, total as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdata;

    fn bits(bytes: &[u8]) -> u32 {
        let mut counts = Counts::new();
        for byte in bytes {
            counts.add(*byte);
        }
        counts.bits()
    }

    #[test]
    fn entropies_of_known_distributions() {
        assert_eq!(bits(&[]), 0);
        assert_eq!(bits(&[7; 2048]), 0);
        // Two values, equally frequent: a bit for each byte.
        assert_eq!(bits(&[3, 9].repeat(1024)), 2048);
        // Random bytes have eight.
        let random = bits(&testdata::random(1, 2048));
        assert!((8 * 2048 - 250..8 * 2048 + 250).contains(&random), "{random}");
        let half = testdata::random(2, 2048).into_iter().map(|byte| byte & 15).collect::<Vec<u8>>();
        assert!((4 * 2048 - 100..4 * 2048 + 50).contains(&bits(&half)), "{}", bits(&half));
    }

    #[test]
    fn the_table_is_a_logarithm() {
        for (number, entry) in TIMES_LOG.iter().enumerate().skip(1) {
            let exact = number as f64 * (number as f64).log2() * 256.0;
            assert!((f64::from(*entry) - exact).abs() <= 1.0 + number as f64 / 16.0, "{number}");
        }
    }
}
