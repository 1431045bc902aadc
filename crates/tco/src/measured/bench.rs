//! Throughput, ratio and CPU time from the output of `pumice bench --json`.

use serde::Deserialize;
use serde_json::Value;

use super::{Measured, MeasuredError, apply, quoted};
use crate::field::{Field, Limit};
use crate::scenario::Scenario;

/// The version of the document whose units and meanings are those of this module.
const VERSION: u32 = 1;
/// Share of the processors that others may use on a quiet machine, as in the reports of `pumice bench`.
const QUIET: f64 = 0.15;
/// The suite whose targets are pools of clusters.
const CLUSTERS: &str = "offload";
/// The step whose figures are used: money is counted for each GB written.
const STEP: &str = ": write, ";

/// A run. Other keys are ignored. Files written by hand need only targets.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Run {
    /// Version of the document.
    version: Option<u32>,
    /// The suite.
    suite: Option<String>,
    /// Time of the measurement, as text.
    date: Option<String>,
    /// The command that measured it.
    command: Option<String>,
    /// False if the run was interrupted, if a scene failed, or if something was left out.
    complete: Option<bool>,
    /// Share of the processors that other programs used meanwhile.
    others_cpu_share: Option<f64>,
    /// Results, one for each target.
    targets: Vec<Target>,
}

/// Results of one target. Values that are missing are not used.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Target {
    /// Name of the column, or one of the column's key `bench`.
    name: String,
    /// Scene, step and job of these figures.
    measured_in: Option<String>,
    /// Throughput of applications in MB/s of 10^6 bytes, under the same load for all targets. The performance
    /// multiplier of a column becomes the highest throughput of all matched columns divided by its own.
    mb_per_s: Option<f64>,
    /// Logical bytes over physical bytes.
    ratio: Option<f64>,
    /// CPU time of all threads of the target, in seconds per GB of 10^9 bytes written. It and the ratio are
    /// of one codec: neither is used without the other.
    cpu_seconds_per_gb: Option<f64>,
    /// CPU time of the program that writes, with what it takes to make the data. Only the difference to
    /// another target of the run is of use.
    client_cpu_seconds_per_gb: Option<f64>,
}

impl Target {
    fn has_figures(&self) -> bool {
        self.mb_per_s.is_some() || self.ratio.is_some() || self.cpu_seconds_per_gb.is_some()
    }
}

impl Run {
    fn parse(file: &str, text: &str) -> Result<Run, MeasuredError> {
        let wrong = |problem: String| MeasuredError::Json { file: file.to_string(), problem };
        let json: Value = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        // A list would be read as the values of the keys, in their order.
        if !json.is_object() {
            return Err(wrong("expected what `pumice bench --json` writes".to_string()));
        }
        // From the text again, for the lines of errors.
        serde_json::from_str(text).map_err(|error| wrong(error.to_string()))
    }

    /// Refuses what cannot be a run of `pumice bench`, or is one of another version.
    fn check(&self, file: &str) -> Result<(), MeasuredError> {
        if let Some(version) = self.version.filter(|version| *version != VERSION) {
            return Err(MeasuredError::key(file, "version", format!("{VERSION}, found {version}")));
        }
        if self.others_cpu_share.is_some_and(|share| !Limit::Fraction.admits(share)) {
            return Err(MeasuredError::key(file, "others_cpu_share", Limit::Fraction.expected()));
        }
        for (at, target) in self.targets.iter().enumerate() {
            if self.targets[..at].iter().any(|other| other.name == target.name) {
                let expected = format!("a name of its own, found a second {:?}", target.name);
                return Err(MeasuredError::key(file, &format!("targets.{at}.name"), expected));
            }
            let values = [
                ("mb_per_s", target.mb_per_s, Limit::Positive),
                ("ratio", target.ratio, Limit::Positive),
                ("cpu_seconds_per_gb", target.cpu_seconds_per_gb, Limit::NotNegative),
                ("client_cpu_seconds_per_gb", target.client_cpu_seconds_per_gb, Limit::NotNegative),
            ];
            for (key, value, limit) in values {
                if value.is_some_and(|value| !limit.admits(value)) {
                    return Err(MeasuredError::key(file, &format!("targets.{at}.{key}"), limit.expected()));
                }
            }
        }
        Ok(())
    }

    /// What of the run as a whole a reader must know.
    fn cautions(&self, file: &str) -> Vec<String> {
        let mut cautions = Vec::new();
        if self.complete == Some(false) {
            cautions.push(format!("{file} is a run that is not complete."));
        }
        if let Some(share) = self.others_cpu_share.filter(|share| *share > QUIET) {
            cautions.push(format!(
                "{file} was measured while {:.0} % of the processors were busy with other work: speeds, and so \
                 performance multipliers, do not hold, and CPU times may be too high.",
                share * 100.0
            ));
        }
        if self.suite.as_deref() == Some(CLUSTERS) {
            cautions.push(format!(
                "{file} is of clusters: its CPU time is that of all processes that were named, the cluster's own work \
                 included, of which columns that were not measured pay nothing; and its GB are the client's, whatever \
                 the copies."
            ));
        }
        cautions
    }

    /// The file with date and command, as a source.
    fn source(&self, file: &str) -> String {
        let parts = [&self.date, &self.command].into_iter().flatten();
        parts.fold(file.to_string(), |source, part| format!("{source}, {part}"))
    }
}

/// A run whose targets were assigned to columns.
struct Matched<'a> {
    file: &'a str,
    run: &'a Run,
    source: String,
    /// Indices of columns, each with its target.
    pairs: Vec<(usize, &'a Target)>,
}

/// A target that the client's CPU time of others is compared with.
#[derive(Clone, Copy)]
struct Plain<'a> {
    target: &'a Target,
    /// Its column, if it has one.
    column: Option<usize>,
    seconds_per_gb: f64,
}

/// Sets the measured values of a benchmark in the columns with matching names: throughput becomes performance
/// multipliers; ratio and CPU time come together or not at all.
///
/// # Errors
///
/// Fails if the text is not valid benchmark JSON or of another version, if a value is out of range, if no
/// target matches a column, if the figures are not of writes or of different steps, if CPU time is given for
/// a column without `cpu.gb_per_s`, or if no value can be used.
pub fn use_bench(scenario: &mut Scenario, file: &str, text: &str) -> Result<Measured, MeasuredError> {
    let run = Run::parse(file, text)?;
    run.check(file)?;
    let target_of = |at: usize| {
        let names = scenario.columns[at].bench_names();
        names.filter_map(|name| run.targets.iter().find(|target| target.name == name)).next()
    };
    let pairs: Vec<(usize, &Target)> =
        (0..scenario.columns.len()).filter_map(|at| Some((at, target_of(at)?))).collect();
    if run.targets.is_empty() {
        return Err(MeasuredError::unused(file, "no target was measured"));
    }
    if pairs.is_empty() {
        let problem = format!(
            "no target ({}) has the name of a column ({}), or one that a column's key `bench` names",
            quoted(run.targets.iter().map(|target| target.name.as_str())),
            scenario.column_names()
        );
        return Err(MeasuredError::unused(file, problem));
    }
    let matched = Matched { file, run: &run, source: run.source(file), pairs };
    matched.check_steps()?;
    let mut measured = Measured { applied: Vec::new(), cautions: run.cautions(file) };
    matched.use_throughput(scenario, &mut measured);
    let halves = matched.use_pairs(scenario, &mut measured)?;
    if measured.applied.is_empty() {
        // A half of a pair alone is a mistake; beside a throughput it is left out.
        let problem = halves.into_iter().next();
        let problem =
            problem.unwrap_or("nothing to use: a throughput alone compares with nothing".to_string());
        return Err(MeasuredError::unused(file, problem));
    }
    measured.cautions.extend(halves.into_iter().map(|half| format!("{file}: {half}. Neither is used.")));
    Ok(measured)
}

impl Matched<'_> {
    /// Refuses figures that are not of writes, or of different work.
    fn check_steps(&self) -> Result<(), MeasuredError> {
        if let Some(suite) =
            self.run.suite.as_ref().filter(|_| !self.pairs.iter().any(|(_, target)| target.has_figures()))
        {
            let names = quoted(self.pairs.iter().map(|(_, target)| target.name.as_str()));
            let problem = format!(
                "the suite {suite:?} has no figures of {names}: expected writes of compressible data to each \
                 target, as in quick or fio-baseline"
            );
            return Err(MeasuredError::unused(self.file, problem));
        }
        let mut steps =
            self.pairs.iter().filter_map(|(_, target)| Some((target, target.measured_in.as_ref()?)));
        let Some((first, step)) = steps.next() else { return Ok(()) };
        if !step.contains(STEP) {
            let problem = format!("target {:?} was measured in {step:?}: expected writes", first.name);
            return Err(MeasuredError::unused(self.file, problem));
        }
        if let Some((other, differs)) = steps.find(|(_, other)| *other != step) {
            let problem = format!(
                "target {:?} was measured in {step:?}, target {:?} in {differs:?}: expected the same work",
                first.name, other.name
            );
            return Err(MeasuredError::unused(self.file, problem));
        }
        Ok(())
    }

    /// Sets performance multipliers from throughputs, if there are two to compare.
    fn use_throughput(&self, scenario: &mut Scenario, measured: &mut Measured) {
        let speeds: Vec<(usize, f64)> =
            self.pairs.iter().filter_map(|(at, target)| Some((*at, target.mb_per_s?))).collect();
        if speeds.len() < 2 {
            return;
        }
        let fastest = speeds.iter().map(|(_, speed)| *speed).fold(0.0, f64::max);
        for (at, speed) in &speeds {
            let detail = format!("{fastest} MB/s over {speed} MB/s, {}", self.source);
            let multiplier = fastest / speed;
            measured.applied.push(apply(scenario, *at, Field::PerformanceMultiplier, multiplier, &detail));
        }
        let others = scenario.columns.iter().enumerate();
        let others = others.filter(|(at, _)| !speeds.iter().any(|(measured, _)| measured == at));
        let others: Vec<&str> = others.map(|(_, column)| column.name.as_str()).collect();
        if !others.is_empty() {
            measured.cautions.push(format!(
                "{} has no throughput of {}: performance multipliers there and of the measured columns are not \
                 relative to the same column.",
                self.file,
                others.join(", ")
            ));
        }
    }

    /// Sets ratios and CPU times where both are given. Returns what is wrong where only one of them is.
    fn use_pairs(
        &self,
        scenario: &mut Scenario,
        measured: &mut Measured,
    ) -> Result<Vec<String>, MeasuredError> {
        let mut halves = Vec::new();
        for (at, target) in &self.pairs {
            let column = &scenario.columns[*at];
            let (ratio, seconds) = (target.ratio, target.cpu_seconds_per_gb);
            let compresses = column.takes(Field::Ratio);
            // Where nobody pays for CPU time, a ratio alone is complete.
            let paired = column.prices_cpu() || seconds.is_some();
            if compresses && paired && ratio.is_some() != seconds.is_some() {
                halves.push(format!(
                    "target {:?}: expected ratio and cpu_seconds_per_gb, both of one codec, found only one of them",
                    target.name
                ));
                continue;
            }
            if let Some(ratio) = ratio.filter(|_| compresses) {
                measured.applied.push(apply(scenario, *at, Field::Ratio, ratio, &self.source));
                // The run does not name its codec.
                scenario.columns[*at].codec = None;
            }
            if let Some(seconds) = seconds {
                self.need_gb_per_s(scenario, *at, "cpu_seconds_per_gb")?;
                measured.applied.push(apply(scenario, *at, Field::CpuSecondsPerGb, seconds, &self.source));
                if scenario.columns[*at].get(Field::CpuShare) > 0.0 {
                    let detail = format!("in cpu.seconds_per_gb, {}", self.source);
                    measured.applied.push(apply(scenario, *at, Field::CpuShare, 0.0, &detail));
                }
            }
            if seconds.is_some() || !compresses {
                self.use_client(scenario, *at, target, measured)?;
            }
        }
        Ok(halves)
    }

    /// Sets the CPU time of the client's side: what it takes more than at the target to compare with.
    fn use_client(
        &self,
        scenario: &mut Scenario,
        at: usize,
        target: &Target,
        measured: &mut Measured,
    ) -> Result<(), MeasuredError> {
        let Some(client) = target.client_cpu_seconds_per_gb else { return Ok(()) };
        let Some(plain) = self.plain(scenario, target) else {
            measured.cautions.push(format!(
                "{}: the client's CPU time of {:?} holds what making the data takes, and no other target tells how \
                 much that is. It is not used.",
                self.file, target.name
            ));
            return Ok(());
        };
        if plain.target.name == target.name {
            return Ok(());
        }
        let of_plain = plain.column.map_or(0.0, |at| scenario.columns[at].get(Field::CpuClientSecondsPerGb));
        let more = (of_plain + client - plain.seconds_per_gb).max(0.0);
        if more > 0.0 {
            self.need_gb_per_s(scenario, at, "client_cpu_seconds_per_gb")?;
        }
        let (less, name, source) = (plain.seconds_per_gb, &plain.target.name, &self.source);
        let detail = format!("{client} s/GB less {less} of {name:?}, at least 0, {source}");
        measured.applied.push(apply(scenario, at, Field::CpuClientSecondsPerGb, more, &detail));
        Ok(())
    }

    /// Returns the target that the client's CPU time of another is compared with: one that does not compress,
    /// else that of the baseline, else the one with the least. `None` if no other target has such a figure.
    fn plain(&self, scenario: &Scenario, of: &Target) -> Option<Plain<'_>> {
        let column =
            |target: &Target| self.pairs.iter().find(|(_, it)| it.name == target.name).map(|(at, _)| *at);
        let all: Vec<Plain<'_>> = self
            .run
            .targets
            .iter()
            .filter_map(|target| {
                let seconds_per_gb = target.client_cpu_seconds_per_gb?;
                Some(Plain { target, column: column(target), seconds_per_gb })
            })
            .collect();
        if all.iter().all(|it| it.target.name == of.name) {
            return None;
        }
        let is_plain = |it: &&Plain<'_>| match it.column {
            Some(at) => !scenario.columns[at].compresses,
            None => it.target.ratio == Some(1.0),
        };
        let least = || all.iter().min_by(|a, b| a.seconds_per_gb.total_cmp(&b.seconds_per_gb));
        let baseline = || all.iter().find(|it| it.column == Some(scenario.baseline));
        all.iter().find(is_plain).or_else(baseline).or_else(least).copied()
    }

    fn need_gb_per_s(&self, scenario: &Scenario, at: usize, key: &str) -> Result<(), MeasuredError> {
        let column = &scenario.columns[at];
        if column.get(Field::CpuGbPerS) > 0.0 {
            return Ok(());
        }
        let problem = format!("{key} needs cpu.gb_per_s above 0 in column {:?} of the scenario", column.name);
        Err(MeasuredError::unused(self.file, problem))
    }
}
