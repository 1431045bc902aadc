//! Two runs compared: what differs by more than noise.

use std::fmt::Write as _;

use report::Table;

use crate::error::{BenchError, Result};
use crate::run::{Run, Series};
use crate::stats::Figure;

/// Least difference that counts, as a share: what quiet rounds of the same thing differ by.
const NOISE: f64 = 0.03;

/// Least rounds of each run that can show a difference: by chance, the four rounds of one run lie all above or all below
/// those of the other in 2 of 70 cases.
const ROUNDS_MIN: u32 = 4;

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
    /// Whether both runs have enough rounds to tell: four.
    pub is_known: bool,
}

impl Difference {
    fn new(what: &str, quantity: &'static str, before: Figure, after: Figure) -> Difference {
        let overlap = before.low <= after.high && after.low <= before.high;
        let small = (after.median - before.median).abs() <= NOISE * before.median.abs();
        let is_known = before.count.min(after.count) >= ROUNDS_MIN;
        Difference { what: what.to_string(), quantity, before, after, is_noise: overlap || small, is_known }
    }

    fn is_certain(&self) -> bool {
        self.is_known && !self.is_noise
    }

    /// Probability that rounds of the same thing do not overlap: 2 of all ways to choose which rounds are of the first
    /// run.
    fn chance(&self) -> f64 {
        let (one, other) = (self.before.count, self.after.count);
        let ways: f64 = (1..=one).map(|at| f64::from(other + at) / f64::from(at)).product();
        2.0 / ways
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
        let other = after.series(&one.scene, &one.step, &one.target);
        let Some(other) = other.filter(|other| other.job == one.job) else { continue };
        let what = format!("{}: {} on {}", one.scene, one.step, one.target);
        for (quantity, figure) in QUANTITIES {
            if let (Some(from), Some(to)) = (figure(one), figure(other)) {
                differences.push(Difference::new(&what, quantity, from, to));
            }
        }
    }
    differences.sort_by(|one, other| {
        let size = |it: &Difference| it.change().abs();
        other.is_certain().cmp(&one.is_certain()).then(size(other).total_cmp(&size(one)))
    });
    differences
}

/// Why two runs cannot be compared; `None` if they can.
fn differs(one: &Run, other: &Run) -> Option<String> {
    let pairs = [
        ("suites", one.suite.clone(), other.suite.clone()),
        ("sizes of stores in bytes (--size)", one.size_bytes.to_string(), other.size_bytes.to_string()),
        ("seconds of jobs (--minutes)", one.job_seconds.to_string(), other.job_seconds.to_string()),
        ("versions of fio", one.fio_version.clone(), other.fio_version.clone()),
    ];
    let (what, one, other) = pairs.into_iter().find(|(_, one, other)| one != other)?;
    Some(format!("different {what}, {one} and {other}: what is measured depends on it"))
}

/// Shows a comparison as text.
///
/// # Errors
/// Fails if the runs are of different suites, sizes, job times or versions of fio.
pub fn comparison_text(names: [&str; 2], runs: [&Run; 2]) -> Result<String> {
    if let Some(problem) = differs(runs[0], runs[1]) {
        return Err(BenchError::Format { what: names.join(", "), problem });
    }
    let differences = compare(runs[0], runs[1]);
    let known: Vec<&Difference> = differences.iter().filter(|difference| difference.is_known).collect();
    let certain: Vec<&Difference> = known.iter().copied().filter(|it| it.is_certain()).collect();
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
    if known.len() < differences.len() {
        let _ = writeln!(
            out,
            "\n{} of {} quantities have not enough rounds: at least {ROUNDS_MIN} in each run are needed (--minutes).",
            differences.len() - known.len(),
            differences.len()
        );
    }
    if certain.is_empty() {
        let _ = writeln!(out, "\nNo difference beyond noise in {} quantities.", known.len());
        return Ok(out);
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
        "\n{} of {} quantities differ beyond noise: their rounds do not overlap, and their medians differ by more than 3 %.\n\
         Of so many quantities, up to {:.1} would not overlap by chance.",
        certain.len(),
        known.len(),
        known.iter().map(|it| it.chance()).sum::<f64>()
    );
    Ok(out)
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
        let certain = speed(&[100.0, 101.0, 102.0, 101.0], &[110.0, 111.0, 112.0, 111.0]);
        assert!(certain.is_certain());
        assert!((certain.change() - 10.0 / 101.0).abs() < 1e-9);
        assert!((certain.chance() - 2.0 / 70.0).abs() < 1e-9);
        assert!(!speed(&[100.0, 101.0, 102.0], &[110.0, 111.0, 112.0, 113.0]).is_certain());
        assert!(speed(&[100.0, 101.0, 112.0], &[110.0, 111.0, 112.0]).is_noise);
        assert!(speed(&[100.0], &[102.0]).is_noise);
        assert!(compare(&run(&[1.0]), &Run::default()).is_empty());
    }

    #[test]
    fn comparisons_are_shown() {
        let names = ["a.json", "b.json"];
        let text = |one: &[f64], other: &[f64]| {
            comparison_text(names, [&run(one), &run(other)]).expect("comparable")
        };
        let certain = text(&[100.0, 101.0, 102.0, 103.0], &[50.0, 51.0, 52.0, 53.0]);
        assert!(certain.contains("-49 %") && !certain.contains("not enough rounds"), "{certain}");
        let few = text(&[100.0], &[150.0]);
        assert!(few.contains("2 of 2 quantities have not enough rounds"), "{few}");
        assert!(few.contains("No difference beyond noise in 0 quantities"), "{few}");
    }

    #[test]
    fn runs_of_different_jobs_are_refused() {
        let (one, other) = (run(&[1.0]), Run { job_seconds: 5, ..run(&[1.0]) });
        let error = comparison_text(["a", "b"], [&one, &other]).expect_err("refused").to_string();
        assert!(error.contains("different seconds of jobs (--minutes), 0 and 5"), "{error}");
    }

    #[test]
    fn numbers_have_three_digits() {
        assert_eq!(
            [0.123, 1.5, 12.34, 123.4, 12_345.6].map(number_text),
            ["0.12", "1.50", "12.3", "123", "12346"]
        );
    }
}
