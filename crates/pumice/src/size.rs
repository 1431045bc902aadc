//! Sizes on the command line.

use std::fmt;
use std::str::FromStr;

/// A size in bytes. Its text form is a number, optionally with a fraction, and a unit. `K M G T P` (also
/// `KiB` ...) are powers of 1024, `KB MB GB TB PB` are powers of 1000, no unit or `B` is bytes. Case does not
/// matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Size(pub(crate) u64);

/// Error for a text that is not a size. It names what was expected; the caller names the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SizeError {
    NotASize,
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SizeError::NotASize => {
                "expected a size: a number with K, M, G or T (1024) or KB, MB, GB or TB (1000)"
            }
            SizeError::TooLarge => "too large: expected a size below 16 EiB",
        })
    }
}

impl std::error::Error for SizeError {}

/// Returns the bytes of a unit.
fn unit_bytes(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_uppercase();
    if unit.is_empty() || unit == "B" {
        return Some(1);
    }
    let power = "KMGTP".find(unit.chars().next()?)? as u32 + 1;
    match &unit[1..] {
        "" | "IB" => Some(1024_u64.pow(power)),
        "B" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

impl FromStr for Size {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Size, SizeError> {
        let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits_end);
        let unit = u128::from(unit_bytes(unit.trim_start()).ok_or(SizeError::NotASize)?);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        // A limit of 12 decimals keeps the arithmetic exact.
        if whole.is_empty()
            || fraction.len() > 12
            || fraction.contains('.')
            || (number.contains('.') && fraction.is_empty())
        {
            return Err(SizeError::NotASize);
        }
        // Digits alone: too many of them is the only error left.
        let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| SizeError::TooLarge)?;
        let scaled =
            digits.checked_mul(unit).ok_or(SizeError::TooLarge)? / 10_u128.pow(fraction.len() as u32);
        Ok(Size(u64::try_from(scaled).map_err(|_| SizeError::TooLarge)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> u64 {
        text.parse::<Size>().expect(text).0
    }

    #[test]
    fn powers_of_1024() {
        assert_eq!(size("10G"), 10 << 30);
        assert_eq!(size("1k"), 1024);
        assert_eq!(size("3MiB"), 3 << 20);
        assert_eq!(size("2 TiB"), 2 << 40);
        assert_eq!(size("1P"), 1 << 50);
    }

    #[test]
    fn powers_of_1000() {
        assert_eq!(size("10GB"), 10_000_000_000);
        assert_eq!(size("1kb"), 1000);
        assert_eq!(size("7TB"), 7_000_000_000_000);
    }

    #[test]
    fn bytes_and_fractions() {
        assert_eq!(size("0"), 0);
        assert_eq!(size("4096"), 4096);
        assert_eq!(size("4096B"), 4096);
        assert_eq!(size("1.5G"), 3 << 29);
        assert_eq!(size("0.1K"), 102);
        assert_eq!(size("18446744073709551615"), u64::MAX);
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "", "G", "-1", "1.G", ".5G", "1..2", "1.2.3", "1X", "1GBB", "1 000", "0x10", "1e9", "G1", "１",
            "1é",
        ] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::NotASize), "{text}");
        }
        for text in [
            "18446744073709551616",
            "17179869184G",
            "999999999999T",
            "99999999999999999999999999999999999999999999T",
        ] {
            assert_eq!(text.parse::<Size>(), Err(SizeError::TooLarge), "{text}");
        }
    }
}
