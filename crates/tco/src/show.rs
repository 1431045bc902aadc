//! Number formats of the tables.

/// Format of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// A result in dollars with this number of decimals: `$1,075.20`.
    Usd(usize),
    /// An input in dollars: at least this number of decimals, more if the value has more.
    UsdInput(usize),
    /// A result with this number of decimals: `1,105.92`.
    Number(usize),
    /// An input: at least this number of decimals, more if the value has more.
    NumberInput(usize),
    /// A fraction as a percentage with this number of decimals: `45%`.
    Percent(usize),
    /// An input that is a fraction, as a percentage with only the decimals that it needs.
    PercentInput,
    /// A compression ratio with two or three decimals: `2.20:1`.
    Ratio,
}

/// Largest number of additional decimals of an input.
const MORE_DECIMALS_MAX: usize = 4;

impl Show {
    /// Formats a number.
    pub fn text(self, value: f64) -> String {
        match self {
            Show::Usd(decimals) => usd(&grouped(value, decimals)),
            Show::UsdInput(least) => usd(&at_least(value, least, MORE_DECIMALS_MAX)),
            Show::Number(decimals) => grouped(value, decimals),
            Show::NumberInput(least) => at_least(value, least, MORE_DECIMALS_MAX),
            Show::Percent(decimals) => format!("{}%", grouped(value * 100.0, decimals)),
            Show::PercentInput => format!("{}%", at_least(value * 100.0, 0, MORE_DECIMALS_MAX)),
            Show::Ratio => format!("{}:1", at_least(value, 2, 1)),
        }
    }
}

/// Formats a value that was found, for messages: very large and very small ones with an exponent.
pub(crate) fn found(value: f64) -> String {
    let size = value.abs();
    let plain = size == 0.0 || !size.is_finite() || (1e-6..1e15).contains(&size);
    if plain { value.to_string() } else { format!("{value:e}") }
}

fn usd(number: &str) -> String {
    number.strip_prefix('-').map_or_else(|| format!("${number}"), |positive| format!("-${positive}"))
}

/// Formats with a fixed number of decimals and a comma every three digits. Never returns `-0`.
fn grouped(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, digits) = text.strip_prefix('-').map_or(("", text.as_str()), |digits| ("-", digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut out = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
    let is_zero = digits.chars().all(|c| matches!(c, '0' | '.'));
    if is_zero { out } else { format!("{sign}{out}") }
}

/// Formats with at least `least` decimals, and at most `more` additional ones unless they are trailing zeros.
fn at_least(value: f64, least: usize, more: usize) -> String {
    let text = grouped(value, least + more);
    let keep = text.find('.').map_or(text.len(), |point| if least == 0 { point } else { point + 1 + least });
    let trimmed = text.trim_end_matches('0').trim_end_matches('.').len();
    text[..trimmed.max(keep)].to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dollars_and_numbers() {
        assert_eq!(Show::Usd(0).text(94708.0), "$94,708");
        assert_eq!(Show::Usd(2).text(1075.2), "$1,075.20");
        assert_eq!(Show::Usd(2).text(-0.001), "$0.00");
        assert_eq!(Show::Usd(0).text(-1234567.0), "-$1,234,567");
        assert_eq!(Show::Number(2).text(276.48), "276.48");
        assert_eq!(Show::Number(0).text(999.6), "1,000");
    }

    #[test]
    fn found_values_are_short() {
        let shown = [0.0, -1.5, 90.0, 1e13, f64::NAN, f64::INFINITY, 1e-300, -1e300].map(found);
        assert_eq!(shown, ["0", "-1.5", "90", "10000000000000", "NaN", "inf", "1e-300", "-1e300"]);
    }

    #[test]
    fn inputs_show_what_they_have() {
        assert_eq!(Show::UsdInput(3).text(0.07), "$0.070");
        assert_eq!(Show::UsdInput(2).text(0.1455), "$0.1455");
        assert_eq!(Show::UsdInput(0).text(11651.0), "$11,651");
        assert_eq!(Show::UsdInput(0).text(100.5), "$100.5");
        assert_eq!(Show::NumberInput(0).text(3.5), "3.5");
        assert_eq!(Show::NumberInput(0).text(100.0), "100");
        assert_eq!(Show::NumberInput(0).text(0.0), "0");
        assert_eq!(Show::PercentInput.text(0.0044), "0.44%");
        assert_eq!(Show::PercentInput.text(0.9), "90%");
        assert_eq!(Show::Percent(0).text(1.0 / 2.2), "45%");
        assert_eq!(Show::Ratio.text(2.2), "2.20:1");
        assert_eq!(Show::Ratio.text(2.285), "2.285:1");
        assert_eq!(Show::Ratio.text(1.637262), "1.637:1");
    }
}
