//! Numbers for people.

/// Bytes as `1.50 GiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would round to 1024.00 belongs to the next unit.
    while value >= 1023.995 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.2} {}", UNITS[unit])
}

/// Seconds as `2 d 3 h`, the two largest units.
pub(crate) fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    let parts =
        [(whole / 86_400, "d"), (whole / 3600 % 24, "h"), (whole / 60 % 60, "min"), (whole % 60, "s")];
    let first = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let told: Vec<String> = parts[first..]
        .iter()
        .take(2)
        .filter(|(count, _)| *count > 0)
        .map(|(c, u)| format!("{c} {u}"))
        .collect();
    if told.is_empty() { "0 s".to_string() } else { told.join(" ") }
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
    fn durations_in_units() {
        assert_eq!(duration(0.4), "0 s");
        assert_eq!(duration(59.9), "59 s");
        assert_eq!(duration(3600.0), "1 h");
        assert_eq!(duration(90_061.0), "1 d 1 h");
    }
}
