//! Two runs compared: what differs by more than noise.

use std::fmt::Write as _;

use report::Table;

use crate::run::{Run, Series};
use crate::stats::Figure;

/// Least difference that counts, as a share: what quiet rounds of the same thing differ by.
const NOISE: f64 = 0.03;

/// A quantity in two runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// Scene, step and target.
    pub what: String,
    /// The quantity, with its unit.
    pub quantity: &'static str,
    /// In the first run.
    pub before: Figure,
    /// In the second run.
    pub after: Figure,
    /// Whether the rounds of both overlap, or the medians differ by less than 3 %.
    pub is_noise: bool,
}

impl Difference {
    fn new(what: &str, quantity: &'static str, before: Figure, after: Figure) -> Difference {
        let overlap = before.low <= after.high && after.low <= before.high;
        let small = (after.median - before.median).abs() <= NOISE * before.median.abs();
        Difference { what: what.to_string(), quantity, before, after, is_noise: overlap || small }
    }

    /// Change of the median as a share.
    pub fn change(&self) -> f64 {
        if self.before.median == 0.0 { 0.0 } else { self.after.median / self.before.median - 1.0 }
    }
}

type Quantity = (&'static str, fn(&Series) -> Option<Figure>);

const QUANTITIES: [Quantity; 6] = [
    ("MB/s", |it| it.mb_per_s),
    ("p99 us", |it| it.p99_us),
    ("client CPU s/GB", |it| it.client_cpu_seconds_per_gb),
    ("server CPU s/GB", |it| it.server_cpu_seconds_per_gb),
    ("ratio", |it| it.ratio),
    ("write amplification", |it| it.write_amplification),
];

/// Compares everything that both runs measured, the largest certain changes first.
pub fn compare(before: &Run, after: &Run) -> Vec<Difference> {
    let mut differences = Vec::new();
    for one in &before.series {
        let Some(other) = after.series(&one.scene, &one.step, &one.target) else { continue };
        let what = format!("{}: {} on {}", one.scene, one.step, one.target);
        for (quantity, figure) in QUANTITIES {
            if let (Some(from), Some(to)) = (figure(one), figure(other)) {
                differences.push(Difference::new(&what, quantity, from, to));
            }
        }
    }
    differences.sort_by(|one, other| {
        let size = |it: &Difference| it.change().abs();
        one.is_noise.cmp(&other.is_noise).then(size(other).total_cmp(&size(one)))
    });
    differences
}

/// Shows a comparison as text.
pub fn comparison_text(names: [&str; 2], runs: [&Run; 2]) -> String {
    let differences = compare(runs[0], runs[1]);
    let (noise, certain): (Vec<&Difference>, Vec<&Difference>) =
        differences.iter().partition(|difference| difference.is_noise);
    let mut out = String::new();
    // Writing to a string cannot fail.
    for (name, run) in names.iter().zip(runs) {
        let _ = writeln!(
            out,
            "{name}: {}, {}, pumice {}, {}",
            run.suite, run.date, run.program_version, run.machine.processor
        );
    }
    if runs[0].machine != runs[1].machine {
        out.push_str("These runs are of different machines.\n");
    }
    if certain.is_empty() {
        let _ = writeln!(out, "\nNo difference beyond noise in {} quantities.", noise.len());
        return out;
    }
    let mut table = Table::new(["", "", names[0], names[1], "change"]).right_from(2);
    for it in &certain {
        table.row([
            it.what.clone(),
            it.quantity.to_string(),
            figure_text(&it.before),
            figure_text(&it.after),
            format!("{:+.0} %", it.change() * 100.0),
        ]);
    }
    let _ = write!(out, "\n{}", table.to_text());
    let _ = writeln!(
        out,
        "\n{} of {} quantities differ beyond noise: their rounds do not overlap, and their medians differ by more than 3 %.",
        certain.len(),
        differences.len()
    );
    if differences.iter().any(|it| it.before.count < 3 || it.after.count < 3) {
        out.push_str("Some have fewer than three rounds: give them more time (--minutes) to be sure.\n");
    }
    out
}

/// Shows a figure with the digits that it deserves, and its spread.
pub(crate) fn figure_text(figure: &Figure) -> String {
    let number = number_text(figure.median);
    match figure.count {
        1 => number,
        _ => format!("{number} ±{:.0}%", figure.spread() * 50.0),
    }
}

/// Shows a number with three digits or so.
pub(crate) fn number_text(value: f64) -> String {
    match value.abs() {
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Sample;

    fn run(speeds: &[f64]) -> Run {
        let samples = speeds.iter().map(|speed| Sample {
            bytes: 1_000_000_000,
            seconds: 1e3 / speed,
            ..Sample::default()
        });
        let name = |text: &str| text.to_string();
        let mut series = Series {
            scene: name("a"),
            step: name("write"),
            target: name("pumice"),
            samples: samples.collect(),
            ..Series::default()
        };
        series.summarize();
        Run { series: vec![series], ..Run::default() }
    }

    #[test]
    fn overlapping_rounds_are_noise() {
        let speed = |one: &[f64], other: &[f64]| {
            let found = compare(&run(one), &run(other));
            found.into_iter().find(|it| it.quantity == "MB/s").expect("a speed")
        };
        let certain = speed(&[100.0, 101.0, 102.0], &[110.0, 111.0, 112.0]);
        assert!(!certain.is_noise);
        assert!((certain.change() - 10.0 / 101.0).abs() < 1e-9);
        assert!(speed(&[100.0, 101.0, 112.0], &[110.0, 111.0, 112.0]).is_noise);
        assert!(speed(&[100.0], &[102.0]).is_noise);
        assert!(compare(&run(&[1.0]), &Run::default()).is_empty());
    }

    #[test]
    fn comparisons_are_shown() {
        let text =
            |one: &[f64], other: &[f64]| comparison_text(["a.json", "b.json"], [&run(one), &run(other)]);
        let certain = text(&[100.0, 101.0, 102.0], &[50.0, 51.0, 52.0]);
        assert!(certain.contains("-50 %") && !certain.contains("fewer than three"), "{certain}");
        assert!(text(&[100.0], &[101.0]).contains("No difference beyond noise in 2 quantities"));
        assert!(text(&[100.0], &[150.0]).contains("fewer than three rounds"));
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.123, 1.5, 12.34, 123.4, 12_345.6].map(number_text),
            ["0.12", "1.50", "12.3", "123", "12346"]
        );
    }
}
