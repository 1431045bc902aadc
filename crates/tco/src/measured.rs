//! Measured values in place of assumed ones: what is read of the JSON of `pumice scan` and `pumice bench`.

use serde::Deserialize;
use serde_json::Value;

use crate::field::{Field, Limit};
use crate::scenario::{Input, Origin, Scenario};

/// Where `pumice scan --json` puts the ratio of a Pumice drive: `{"estimate": 2.4, "low": 2.3, "high": 2.5}`, logical bytes over
/// physical bytes, headers, map and reserve counted, with the ends of its confidence interval.
pub const SCAN_RATIO_PATH: &str = "predicted_drive.ratio";

/// What is read of a scan at [`SCAN_RATIO_PATH`], or at the path that a column names. Other keys beside these are fine.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct ScanRatio {
    /// The likeliest value.
    pub estimate: f64,
    /// Lower end of the interval: the value that is used.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// What is read of `bench.json`. Other keys beside these are fine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Bench {
    /// When it was measured, as text.
    pub date: Option<String>,
    /// The command that measured it.
    pub command: Option<String>,
    /// What was measured, a target each.
    pub targets: Vec<BenchTarget>,
}

/// What was measured of one target: only what is there is used.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BenchTarget {
    /// The column's name, or what its key `bench` says.
    pub name: String,
    /// Throughput of applications in MB/s of 10^6 bytes, under the same load for all targets. The performance multiplier of a
    /// column becomes the highest of all throughputs over its own.
    pub mb_per_s: Option<f64>,
    /// Logical bytes over physical bytes.
    pub ratio: Option<f64>,
    /// CPU time of the target, of all its threads, in seconds for each GB of 10^9 bytes written.
    pub cpu_seconds_per_gb: Option<f64>,
}

/// A measured value that took the place of an assumed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The column.
    pub column: String,
    /// The field.
    pub field: Field,
    /// What was assumed.
    pub before: f64,
    /// What is used now.
    pub value: f64,
    /// In words: of what, by what.
    pub detail: String,
}

/// Why a measurement could not be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MeasuredError {
    /// Not the JSON that was expected.
    #[error("{file}: {problem}")]
    Json {
        /// The file.
        file: String,
        /// What is wrong, with the line.
        problem: String,
    },
    /// A key is missing or holds something else.
    #[error("{file}: {path}: expected {expected}")]
    Key {
        /// The file.
        file: String,
        /// The key, with dots.
        path: String,
        /// What should be there.
        expected: String,
    },
    /// Nothing in the file concerns any column.
    #[error("{file}: {problem}")]
    Unused {
        /// The file.
        file: String,
        /// What there is on both sides.
        problem: String,
    },
}

fn key_error<T>(file: &str, path: &str, expected: impl Into<String>) -> Result<T, MeasuredError> {
    Err(MeasuredError::Key { file: file.to_string(), path: path.to_string(), expected: expected.into() })
}

/// The value at a path of keys with dots between them. `list[key=value,other=value]` is the item of a list whose keys have
/// these values, `list[3]` the fourth.
fn at_path<'a>(json: &'a Value, path: &str) -> Option<&'a Value> {
    let mut inside = false;
    let steps = path.split(|c| {
        inside = (inside || c == '[') && c != ']';
        c == '.' && !inside
    });
    steps.into_iter().try_fold(json, |value, step| {
        match step.strip_suffix(']').and_then(|step| step.split_once('[')) {
            Some((key, which)) => pick(value.get(key)?.as_array()?, which),
            None => value.get(step),
        }
    })
}

/// The item of a list at an index, or with certain values.
fn pick<'a>(items: &'a [Value], which: &str) -> Option<&'a Value> {
    if let Ok(index) = which.parse::<usize>() {
        return items.get(index);
    }
    let wanted: Vec<(&str, &str)> =
        which.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>()?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let has =
        |item: &Value, key: &str, wanted: &str| item.get(key).is_some_and(|value| text(value) == wanted);
    items.iter().find(|item| wanted.iter().all(|(key, value)| has(item, key, value)))
}

/// Puts a measured value into a column.
fn apply(scenario: &mut Scenario, at: usize, field: Field, value: f64, detail: &str) -> Applied {
    let column = &mut scenario.columns[at];
    let before = column.get(field);
    column.inputs.insert(field, Input { value, origin: Origin::Measured(detail.to_string()) });
    Applied { column: column.name.clone(), field, before, value, detail: detail.to_string() }
}

/// Puts the ratio that a scan found into every column that compresses: the lower end of its interval. A ratio under 1 is used
/// as it is: headers cost more than compression saves there.
///
/// # Errors
///
/// If the text is not JSON, or has no interval at the path that a column wants.
pub fn use_scan(scenario: &mut Scenario, file: &str, text: &str) -> Result<Vec<Applied>, MeasuredError> {
    let json: Value = serde_json::from_str(text).map_err(|error| MeasuredError::Json {
        file: file.to_string(),
        problem: format!("not JSON: {error}"),
    })?;
    let mut applied = Vec::new();
    for at in 0..scenario.columns.len() {
        let column = &scenario.columns[at];
        if !column.takes(Field::Ratio) {
            continue;
        }
        let path = column.scan.clone().unwrap_or_else(|| SCAN_RATIO_PATH.to_string());
        let place = if column.scan.is_some() { " (the column's key `scan` names this place)" } else { "" };
        let expected = format!("{{\"estimate\": R, \"low\": L, \"high\": H}}, with 0 < L <= R <= H{place}");
        let found = at_path(&json, &path);
        let Some(ratio) = found.and_then(|found| ScanRatio::deserialize(found).ok()) else {
            return key_error(file, &path, expected);
        };
        if !(ratio.low > 0.0
            && ratio.low <= ratio.estimate
            && ratio.estimate <= ratio.high
            && ratio.high.is_finite())
        {
            return key_error(
                file,
                &path,
                format!("{expected}, found {} <= {} <= {}", ratio.low, ratio.estimate, ratio.high),
            );
        }
        let detail = format!(
            "low end of {:.3}..{:.3}, estimate {:.3}, {file}, {path}",
            ratio.low, ratio.high, ratio.estimate
        );
        applied.push(apply(scenario, at, Field::Ratio, ratio.low, &detail));
    }
    if applied.is_empty() {
        let problem = "no column compresses: a ratio is of no use".to_string();
        return Err(MeasuredError::Unused { file: file.to_string(), problem });
    }
    Ok(applied)
}

/// Puts what a benchmark measured into the columns of the same names.
///
/// # Errors
///
/// If the text is not such JSON, holds impossible values, or has no target of any column's name.
pub fn use_bench(scenario: &mut Scenario, file: &str, text: &str) -> Result<Vec<Applied>, MeasuredError> {
    let bench: Bench = serde_json::from_str(text)
        .map_err(|error| MeasuredError::Json { file: file.to_string(), problem: error.to_string() })?;
    for (at, target) in bench.targets.iter().enumerate() {
        let values = [
            ("mb_per_s", target.mb_per_s),
            ("ratio", target.ratio),
            ("cpu_seconds_per_gb", target.cpu_seconds_per_gb),
        ];
        for (key, value) in values {
            let limit = if key == "cpu_seconds_per_gb" { Limit::NotNegative } else { Limit::Positive };
            if value.is_some_and(|value| !limit.admits(value)) {
                return key_error(file, &format!("targets.{at}.{key}"), limit.expected());
            }
        }
    }
    let mut source = file.to_string();
    for part in [&bench.date, &bench.command].into_iter().flatten() {
        source = format!("{source}, {part}");
    }
    let matched: Vec<(usize, &BenchTarget)> = (0..scenario.columns.len())
        .filter_map(|at| {
            Some((at, bench.targets.iter().find(|t| t.name == scenario.columns[at].bench_name())?))
        })
        .collect();
    if matched.is_empty() {
        let targets: Vec<_> = bench.targets.iter().map(|target| format!("{:?}", target.name)).collect();
        let problem = format!(
            "no target ({}) has the name of a column ({})",
            targets.join(", "),
            scenario.column_names()
        );
        return Err(MeasuredError::Unused { file: file.to_string(), problem });
    }
    let speeds: Vec<f64> = matched.iter().filter_map(|(_, target)| target.mb_per_s).collect();
    let fastest = speeds.iter().copied().fold(0.0, f64::max);
    let mut applied = Vec::new();
    for (at, target) in matched {
        // One throughput alone compares with nothing.
        if let Some(mb_per_s) = target.mb_per_s.filter(|_| speeds.len() > 1) {
            let detail = format!("{fastest} MB/s over {mb_per_s} MB/s, {source}");
            applied.push(apply(scenario, at, Field::PerformanceMultiplier, fastest / mb_per_s, &detail));
        }
        if let Some(ratio) = target.ratio.filter(|_| scenario.columns[at].takes(Field::Ratio)) {
            applied.push(apply(scenario, at, Field::Ratio, ratio, &source));
        }
        if let Some(seconds) = target.cpu_seconds_per_gb {
            if scenario.columns[at].get(Field::CpuGbPerS) <= 0.0 {
                let name = &scenario.columns[at].name;
                let problem = format!(
                    "cpu_seconds_per_gb needs cpu.gb_per_s above 0 in column {name:?} of the scenario"
                );
                return Err(MeasuredError::Unused { file: file.to_string(), problem });
            }
            applied.push(apply(scenario, at, Field::CpuSecondsPerGb, seconds, &source));
            if scenario.columns[at].get(Field::CpuShare) > 0.0 {
                applied.push(apply(
                    scenario,
                    at,
                    Field::CpuShare,
                    0.0,
                    &format!("in cpu.seconds_per_gb, {source}"),
                ));
            }
        }
    }
    if applied.is_empty() {
        let problem = "nothing to use: a throughput alone compares with nothing".to_string();
        return Err(MeasuredError::Unused { file: file.to_string(), problem });
    }
    Ok(applied)
}
