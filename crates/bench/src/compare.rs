//! Two runs compared: what differs by more than noise.

use std::fmt::Write as _;

use report::Table;
use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::machine::Machine;
use crate::objects;
use crate::run::{Run, RunData, Series};
use crate::stats::Figure;

/// Least difference that counts, as a share: what quiet rounds of the same thing differ by.
const NOISE: f64 = 0.03;

/// Least rounds of each run that can show a difference: by chance, the four rounds of one run lie all above
/// or all below those of the other in 2 of 70 cases.
const ROUNDS_MIN: u32 = 4;

/// Version of the JSON of a comparison. It changes when a reader of an older one would misread it.
const VERSION: u32 = 1;

/// Two runs compared: the document behind `pumice bench compare --json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// Version of this document.
    pub version: u32,
    /// The first run.
    pub before: Compared,
    /// The second run.
    pub after: Compared,
    /// What makes the runs less comparable than their figures look.
    pub caveats: Vec<String>,
    /// Differences that would seem to be beyond noise by chance, of so many quantities.
    pub by_chance_count: f64,
    /// Everything that both runs measured, the largest certain differences first.
    pub differences: Vec<Difference>,
}

/// A run that is compared.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The file.
    pub file: String,
    /// The suite.
    pub suite: String,
    /// When it began, in UTC.
    pub date: String,
    /// The command line.
    pub command: String,
    /// Version of Pumice.
    pub program_version: String,
    /// The machine.
    pub machine: Machine,
    /// Whether nothing was left out or failed.
    pub complete: bool,
    /// Share of the processors that other programs used.
    pub others_cpu_share: Option<f64>,
}

impl Compared {
    fn new(file: &str, run: &Run) -> Compared {
        Compared {
            file: file.to_string(),
            suite: run.suite.clone(),
            date: run.date.clone(),
            command: run.command.clone(),
            program_version: run.program_version.clone(),
            machine: run.machine.clone(),
            complete: run.complete,
            others_cpu_share: run.others_cpu_share,
        }
    }
}

/// A quantity in two runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Scene, step and target.
    pub what: String,
    /// The quantity, with its unit.
    pub quantity: &'static str,
    /// In the first run.
    pub before: Figure,
    /// In the second run.
    pub after: Figure,
    /// Change of the median as a share.
    pub change_share: f64,
    /// Whether the rounds of both overlap, or the medians differ by less than 3 %.
    pub is_noise: bool,
    /// Whether that can be told: both runs have four rounds at least, and if it is a speed or a CPU time,
    /// both machines were quiet.
    pub is_known: bool,
}

impl Difference {
    fn new(what: &str, quantity: &Quantity, before: Figure, after: Figure, is_quiet: bool) -> Difference {
        let overlap = before.low <= after.high && after.low <= before.high;
        let small = (after.median - before.median).abs() <= NOISE * before.median.abs();
        let has_rounds = before.count.min(after.count) >= ROUNDS_MIN;
        Difference {
            what: what.to_string(),
            quantity: quantity.name,
            before,
            after,
            change_share: if before.median == 0.0 { 0.0 } else { after.median / before.median - 1.0 },
            is_noise: overlap || small,
            is_known: has_rounds && (is_quiet || !quantity.is_speed),
        }
    }

    fn is_certain(&self) -> bool {
        self.is_known && !self.is_noise
    }

    /// Probability that rounds of the same thing do not overlap: 2 of all ways to choose which rounds are of
    /// the first run.
    fn chance(&self) -> f64 {
        let (one, other) = (self.before.count, self.after.count);
        let ways: f64 = (1..=one).map(|at| f64::from(other + at) / f64::from(at)).product();
        2.0 / ways
    }
}

/// A quantity of a step.
struct Quantity {
    name: &'static str,
    of: fn(&Series) -> Option<Figure>,
    /// Whether it depends on what else the machine does.
    is_speed: bool,
}

const QUANTITIES: [Quantity; 6] = [
    Quantity { name: "MB/s", of: |it| it.mb_per_s, is_speed: true },
    Quantity { name: "p99 us", of: |it| it.p99_us, is_speed: true },
    Quantity { name: "client CPU s/GB", of: |it| it.client_cpu_seconds_per_gb, is_speed: true },
    Quantity { name: "server CPU s/GB", of: |it| it.server_cpu_seconds_per_gb, is_speed: true },
    Quantity { name: "ratio", of: |it| it.ratio, is_speed: false },
    Quantity { name: "write amplification", of: |it| it.write_amplification, is_speed: false },
];

/// Compares everything that both runs measured, the largest certain changes first.
fn differences(before: &Run, after: &Run) -> Vec<Difference> {
    let is_quiet = [before, after].iter().all(|run| run.busy_share().is_none());
    let mut differences = Vec::new();
    for one in &before.series {
        let other = after.series(&one.scene, &one.step, &one.target);
        let Some(other) = other.filter(|other| other.job == one.job) else { continue };
        let what = format!("{}: {} on {}", one.scene, one.step, one.target);
        for quantity in &QUANTITIES {
            if let (Some(from), Some(to)) = ((quantity.of)(one), (quantity.of)(other)) {
                differences.push(Difference::new(&what, quantity, from, to, is_quiet));
            }
        }
    }
    differences.sort_by(|one, other| {
        let size = |it: &Difference| it.change_share.abs();
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

/// What makes runs less comparable than their figures look.
fn caveats(files: [&str; 2], runs: [&Run; 2]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, run) in files.iter().zip(runs) {
        if !run.complete {
            found.push(format!("{file} is not complete: see what was left out there"));
        }
        if let Some(share) = run.busy_share() {
            found.push(format!(
                "{file}: {:.0} % of the processors were busy with other work, so differences of speeds and CPU \
                 times are not known",
                share * 100.0
            ));
        }
        if run.others_cpu_share.is_none() {
            found.push(format!("{file}: how busy the machine was with something else is not known"));
        }
    }
    let [one, other] = runs;
    if one.machine != other.machine {
        found.push("the runs are of different machines".to_string());
    }
    if one.fio_processors != other.fio_processors {
        let on = [one, other].map(|run| run.fio_processors.as_deref().unwrap_or("all"));
        found.push(format!("fio ran on different processors (--fio-cpus): {} and {}", on[0], on[1]));
    }
    // Runs of other suites have none; those of the suite s3 without its name are of before there was another
    // one.
    let clients = [one, other].map(|run| run.s3_client.as_deref().unwrap_or(objects::OWN));
    if clients[0] != clients[1] {
        found.push(format!("different clients of S3 (--s3-client): {} and {}", clients[0], clients[1]));
    }
    match (one.is_to_steady(), other.is_to_steady()) {
        (Some(true), Some(false)) | (Some(false), Some(true)) => {
            let file = files[usize::from(one.is_to_steady() == Some(false))];
            let why = "its jobs that write for a time were repeated until they were steady";
            found.push(format!("only {file} is with --steady-state: {why}"));
        }
        _ => {}
    }
    for data in &one.data {
        let Some(with) = other.data.iter().find(|with| with.name == data.name) else { continue };
        if data != with {
            let text = |data: &RunData| match data.part() {
                Some(part) => format!("{part} of {}", data.path),
                None => format!("{} bytes of {}", data.all_bytes, data.path),
            };
            found.push(format!(
                "different data under the name {}: {} and {}",
                data.name,
                text(data),
                text(with)
            ));
        }
    }
    let only = |of: &Run, not: &Run| -> Vec<String> {
        let is_missing = |it: &&Series| {
            not.series(&it.scene, &it.step, &it.target).is_none_or(|other| other.job != it.job)
        };
        let name = |it: &Series| format!("{}: {} on {}", it.scene, it.step, it.target);
        of.series.iter().filter(is_missing).map(name).collect()
    };
    for (file, missing) in files.iter().zip([only(one, other), only(other, one)]) {
        if let Some(first) = missing.first() {
            let count = missing.len();
            found.push(format!("{count} steps are only in {file} and not compared, the first: {first}"));
        }
    }
    found
}

/// Compares two runs, of the files named.
///
/// # Errors
/// Fails if the runs are of different suites, sizes, job times or versions of fio.
pub fn comparison(files: [&str; 2], runs: [&Run; 2]) -> Result<Comparison> {
    if let Some(problem) = differs(runs[0], runs[1]) {
        return Err(BenchError::Format { what: files.join(", "), problem });
    }
    let differences = differences(runs[0], runs[1]);
    let known = differences.iter().filter(|it| it.is_known);
    Ok(Comparison {
        version: VERSION,
        before: Compared::new(files[0], runs[0]),
        after: Compared::new(files[1], runs[1]),
        caveats: caveats(files, runs),
        by_chance_count: known.map(Difference::chance).sum(),
        differences,
    })
}

/// Shows a comparison as text.
pub fn comparison_text(comparison: &Comparison) -> String {
    let differences = &comparison.differences;
    let known_count = differences.iter().filter(|it| it.is_known).count();
    let certain: Vec<&Difference> = differences.iter().filter(|it| it.is_certain()).collect();
    let mut out = String::new();
    // Writing to a string cannot fail.
    for run in [&comparison.before, &comparison.after] {
        let _ = writeln!(
            out,
            "{}: {}, {}, pumice {}, {}",
            run.file, run.suite, run.date, run.program_version, run.machine.processor
        );
    }
    if !comparison.caveats.is_empty() {
        let _ = writeln!(out, "\nNot quite comparable:\n  {}", comparison.caveats.join("\n  "));
    }
    if known_count < differences.len() {
        let _ = writeln!(
            out,
            "\nNothing is known of {} of {} quantities: at least {ROUNDS_MIN} rounds in each run are needed \
             (--minutes), for speeds and CPU times also quiet machines.",
            differences.len() - known_count,
            differences.len()
        );
    }
    if certain.is_empty() {
        let _ = writeln!(out, "\nNo difference beyond noise in {known_count} quantities.");
        return out;
    }
    let mut table =
        Table::new(["", "", &comparison.before.file, &comparison.after.file, "change"]).right_from(2);
    for it in &certain {
        table.row([
            it.what.clone(),
            it.quantity.to_string(),
            figure_text(&it.before),
            figure_text(&it.after),
            format!("{:+.0} %", it.change_share * 100.0),
        ]);
    }
    let _ = write!(out, "\n{}", table.to_text());
    let _ = writeln!(
        out,
        "\n{} of {known_count} quantities differ beyond noise: their rounds do not overlap, and their medians differ \
         by more than 3 %.\n\
         Of so many quantities, up to {:.1} would not overlap by chance.",
        certain.len(),
        comparison.by_chance_count
    );
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
    use crate::sample::Sample;

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
        Run { series: vec![series], complete: true, others_cpu_share: Some(0.0), ..Run::default() }
    }

    const FILES: [&str; 2] = ["a.json", "b.json"];

    fn compared(one: &Run, other: &Run) -> Comparison {
        comparison(FILES, [one, other]).expect("comparable")
    }

    #[test]
    fn overlapping_rounds_are_noise() {
        let speed = |one: &[f64], other: &[f64]| {
            let found = compared(&run(one), &run(other));
            found.differences.into_iter().find(|it| it.quantity == "MB/s").expect("a speed")
        };
        let certain = speed(&[100.0, 101.0, 102.0, 101.0], &[110.0, 111.0, 112.0, 111.0]);
        assert!(certain.is_certain());
        assert!((certain.change_share - 10.0 / 101.0).abs() < 1e-9);
        assert!((certain.chance() - 2.0 / 70.0).abs() < 1e-9);
        assert!(!speed(&[100.0, 101.0, 102.0], &[110.0, 111.0, 112.0, 113.0]).is_certain());
        assert!(speed(&[100.0, 101.0, 112.0], &[110.0, 111.0, 112.0]).is_noise);
        assert!(speed(&[100.0], &[102.0]).is_noise);
        assert!(compared(&run(&[1.0]), &Run::default()).differences.is_empty());
    }

    #[test]
    fn comparisons_are_shown() {
        let text = |one: &[f64], other: &[f64]| comparison_text(&compared(&run(one), &run(other)));
        let certain = text(&[100.0, 101.0, 102.0, 103.0], &[50.0, 51.0, 52.0, 53.0]);
        assert!(certain.contains("-49 %") && !certain.contains("Nothing is known"), "{certain}");
        let few = text(&[100.0], &[150.0]);
        assert!(few.contains("Nothing is known of 2 of 2 quantities: at least 4 rounds"), "{few}");
        assert!(few.contains("No difference beyond noise in 0 quantities"), "{few}");
    }

    #[test]
    fn what_is_not_comparable_is_named() {
        let rounds = |speed: f64| -> Run { run(&[speed, speed + 1.0, speed + 2.0, speed + 1.0]) };
        let (one, other) = (rounds(100.0), rounds(50.0));
        assert_eq!(compared(&one, &other).caveats, Vec::<String>::new());
        // Speeds of a busy machine say nothing, however many rounds there are.
        let busy = Run { others_cpu_share: Some(0.31), complete: false, ..other.clone() };
        let found = compared(&one, &busy);
        assert!(found.differences.iter().all(|it| !it.is_known), "{found:?}");
        assert_eq!(found.by_chance_count, 0.0);
        let text = comparison_text(&found);
        assert!(text.contains("b.json is not complete") && text.contains("b.json: 31 % of the"), "{text}");
        assert!(text.contains("No difference beyond noise in 0 quantities"), "{text}");
        let mut ratios = [one.clone(), busy];
        for (run, ratio) in ratios.iter_mut().zip([2.0, 3.0]) {
            run.series[0].samples.iter_mut().for_each(|sample| sample.ratio = Some(ratio));
            run.series[0].summarize();
        }
        let found = compared(&ratios[0], &ratios[1]);
        let known: Vec<_> =
            found.differences.iter().filter(|it| it.is_certain()).map(|it| it.quantity).collect();
        assert_eq!(known, ["ratio"]);
        let mut steady = other.clone();
        steady.series[0].samples[0].steady = Some(crate::Steady::default());
        assert!(compared(&one, &steady).caveats[0].starts_with("only b.json is with --steady-state"));
        assert!(compared(&steady, &one).caveats[0].starts_with("only a.json is with --steady-state"));
        let with = |path: &str, taken_bytes| {
            let (name, path) = ("etc".to_string(), path.to_string());
            let data = RunData { name, path, taken_bytes, all_bytes: 9_000_000 };
            Run { data: vec![data], ..one.clone() }
        };
        assert!(compared(&with("/etc", 9_000_000), &with("/etc", 9_000_000)).caveats.is_empty());
        assert_eq!(
            compared(&with("/etc", 4_000_000), &with("/usr", 9_000_000)).caveats,
            ["different data under the name etc: 4 of 9 MB of /etc and 9000000 bytes of /usr"]
        );
        let confined = Run { fio_processors: Some("0".to_string()), ..other.clone() };
        let caveats = compared(&one, &confined).caveats;
        assert_eq!(caveats, ["fio ran on different processors (--fio-cpus): all and 0"]);
        let by = |client: &str| Run { s3_client: Some(client.to_string()), ..other.clone() };
        assert_eq!(
            compared(&by("own"), &by("warp 1.3.1")).caveats,
            ["different clients of S3 (--s3-client): own and warp 1.3.1"]
        );
        assert!(compared(&one, &by("own")).caveats.is_empty());
        let mut more = other.clone();
        more.series.push(Series { step: "read".to_string(), ..more.series[0].clone() });
        assert_eq!(
            compared(&one, &more).caveats,
            ["1 steps are only in b.json and not compared, the first: a: read on pumice"]
        );
    }

    #[test]
    fn runs_of_different_jobs_are_refused() {
        let (one, other) = (run(&[1.0]), Run { job_seconds: 5, ..run(&[1.0]) });
        let error = comparison(FILES, [&one, &other]).expect_err("refused").to_string();
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
