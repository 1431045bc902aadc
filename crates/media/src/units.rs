//! Sizes in messages.

/// Formats bytes exactly, in the largest unit of which they are a multiple: `50 MiB`, `4097 bytes`.
#[must_use]
pub fn exact_size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    match bytes.trailing_zeros() as usize / 10 {
        power @ 1..=6 if bytes > 0 => format!("{} {}", bytes >> (10 * power), UNITS[power - 1]),
        _ if bytes == 1 => "1 byte".to_string(),
        _ => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_exact() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (1023, "1023 bytes"),
            (1 << 10, "1 KiB"),
            (50 << 20, "50 MiB"),
            ((1 << 30) + 4096, "1048580 KiB"),
            (u64::MAX, "18446744073709551615 bytes"),
            (1 << 63, "8 EiB"),
        ] {
            assert_eq!(exact_size(bytes), text);
        }
    }
}
