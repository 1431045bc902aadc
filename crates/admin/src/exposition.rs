//! The text format of Prometheus (*Exposition formats*, version 0.0.4).
//!
//! Our metrics are not counted here but read from reports at each scrape, with labels that come and go with
//! the drives, and `promtool check metrics` reads this format. The maintained client libraries either count
//! for themselves or write OpenMetrics only, so the few lines of the format are written here.

use std::fmt::Write;

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Counter,
    Gauge,
    Histogram,
}

/// A label and its value.
pub(crate) type Label<'a> = (&'a str, &'a str);

/// Metrics being written, one family at a time.
#[derive(Default)]
pub(crate) struct Exposition {
    text: String,
    /// Name of the current family.
    name: String,
}

impl Exposition {
    /// Begins a family. All its samples follow, and none comes later.
    pub(crate) fn family(&mut self, name: &str, kind: Type, help: &str) {
        let kind = match kind {
            Type::Counter => {
                debug_assert!(name.ends_with("_total"), "names of counters end in _total: {name}");
                "counter"
            }
            Type::Gauge => "gauge",
            Type::Histogram => "histogram",
        };
        debug_assert!(
            !self.text.contains(&format!("# TYPE {name} ")),
            "the samples of {name} are together in one family"
        );
        name.clone_into(&mut self.name);
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "# HELP {name} {}", escape(help, false));
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
    }

    /// Writes a sample of the family.
    pub(crate) fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        self.suffixed("", labels, value);
    }

    /// Writes a sample with a suffix to its name, as those of a histogram have.
    pub(crate) fn suffixed(&mut self, suffix: &str, labels: &[Label<'_>], value: f64) {
        debug_assert!(!self.name.is_empty(), "a sample belongs to a family");
        let _ = write!(self.text, "{}{suffix}", self.name);
        for (i, (name, value)) in labels.iter().enumerate() {
            let _ = write!(self.text, "{}{name}=\"{}\"", if i == 0 { '{' } else { ',' }, escape(value, true));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {}", number(value));
    }

    /// Returns everything written.
    pub(crate) fn into_text(self) -> String {
        self.text
    }
}

/// Formats a value.
fn number(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_string(),
        f64::INFINITY => "+Inf".to_string(),
        f64::NEG_INFINITY => "-Inf".to_string(),
        value => value.to_string(),
    }
}

fn escape(text: &str, quotes: bool) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if quotes => escaped.push_str("\\\""),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_samples() {
        let mut exposition = Exposition::default();
        exposition.family("a_total", Type::Counter, "Counts a\\b.");
        exposition.sample(&[], 3.0);
        exposition.sample(&[("drive", "/srv/d"), ("kind", "x")], 0.00002);
        assert_eq!(
            exposition.into_text(),
            "# HELP a_total Counts a\\\\b.\n# TYPE a_total counter\na_total 3\na_total{drive=\"/srv/d\",kind=\"x\"} \
             0.00002\n"
        );
    }

    #[test]
    fn hostile_names_stay_inside_their_quotes() {
        let mut exposition = Exposition::default();
        exposition.family("a", Type::Gauge, "x");
        exposition.sample(&[("drive", "/srv/\"} 1\nforged{x=\"\\")], 1.0);
        let text = exposition.into_text();
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.ends_with("a{drive=\"/srv/\\\"} 1\\nforged{x=\\\"\\\\\"} 1\n"), "{text}");
    }

    #[test]
    fn numbers() {
        let numbers = [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 0.0, 1e15, 5e-6].map(number);
        assert_eq!(numbers.join(" "), "+Inf -Inf NaN 0 1000000000000000 0.000005");
    }
}
