//! Numbers in charts.

/// Formats a number with about three digits: `0.06`, `2.13`, `38.9`, `639`.
pub(crate) fn rounded(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if !(0.005..1e7).contains(&size) => format!("{value:.2e}"),
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a place on an axis, with the decimals that it needs: `100`, `1.5`, `0.0025`.
pub(crate) fn tick(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_string(),
        size if !(1e-4..1e7).contains(&size) => format!("{value:.0e}"),
        // Without what the arithmetic of an axis adds to a round number.
        _ => ((value * 1e6).round() / 1e6).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{rounded, tick};

    #[test]
    fn ticks_are_as_short_as_they_can_be() {
        assert_eq!([100.0, 1.5, 0.1 + 0.2, 0.0, -2e9].map(tick), ["100", "1.5", "0.3", "0", "-2e9"]);
    }

    #[test]
    fn three_digits() {
        let shown = [0.0, 0.0612, 2.0, 9.999, 38.94, 99.97, 389.19, -1234.5, 1e300, 1e-9].map(rounded);
        assert_eq!(
            shown,
            ["0", "0.06", "2.00", "10.0", "38.9", "100", "389", "-1234", "1.00e300", "1.00e-9"]
        );
    }
}
