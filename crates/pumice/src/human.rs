//! Formats of numbers for people.

/// Formats bytes as `1.50 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // A value that would be rounded to 1024.00 uses the next unit.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// Formats two sizes that differ so that they look different.
pub(crate) fn distinct(one: u64, other: u64) -> (String, String) {
    match (bytes(one), bytes(other)) {
        (a, b) if a == b && one != other => (format!("{one} bytes"), format!("{other} bytes")),
        different => different,
    }
}

/// Formats a latency as `85 us`, `1.3 ms` or `2.1 s`.
pub(crate) fn latency(seconds: f64) -> String {
    let micros = seconds * 1e6;
    match micros {
        micros if micros < 9.95 => format!("{micros:.1} us"),
        micros if micros < 999.5 => format!("{micros:.0} us"),
        micros if micros < 9950.0 => format!("{:.1} ms", micros / 1e3),
        micros if micros < 999_500.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{seconds:.1} s"),
    }
}

/// Formats seconds as `2 d 3 h`, with the two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    let parts =
        [(whole / 86_400, "d"), (whole / 3600 % 24, "h"), (whole / 60 % 60, "min"), (whole % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let shown: Vec<String> = parts[first..]
        .iter()
        .take(2)
        .filter(|(count, _)| *count > 0)
        .map(|(c, u)| format!("{c} {u}"))
        .collect();
    if shown.is_empty() { "0 s".to_string() } else { shown.join(" ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_in_units() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes((1 << 30) - 1), "1.00 GiB");
        assert_eq!(bytes(u64::MAX), "16.00 EiB");
    }

    #[test]
    fn different_sizes_look_different() {
        let text = |one: &str, other: &str| (one.to_string(), other.to_string());
        assert_eq!(distinct(10 << 20, 25 << 20), text("10.00 MiB", "25.00 MiB"));
        assert_eq!(distinct(1 << 20, (1 << 20) + 1), text("1048576 bytes", "1048577 bytes"));
        assert_eq!(distinct(1 << 20, 1 << 20), text("1.00 MiB", "1.00 MiB"));
    }

    #[test]
    fn latencies_in_units() {
        for (seconds, text) in [
            (2.5e-6, "2.5 us"),
            (85e-6, "85 us"),
            (999.4e-6, "999 us"),
            (1.31e-3, "1.3 ms"),
            (0.25, "250 ms"),
            (2.11, "2.1 s"),
        ] {
            assert_eq!(latency(seconds), text);
        }
    }

    #[test]
    fn durations_in_units() {
        assert_eq!(duration(0.4), "0 s");
        assert_eq!(duration(59.9), "59 s");
        assert_eq!(duration(3600.0), "1 h");
        assert_eq!(duration(90_061.0), "1 d 1 h");
    }
}
