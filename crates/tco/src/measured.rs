//! Replacement of assumed values by measured ones from the JSON output of `pumice scan` and `pumice bench`.

use serde::Deserialize;
use serde_json::Value;

use crate::field::{Field, Limit};
use crate::scenario::{Column, Input, Origin, Scenario};

/// Path of the compression ratio of a Pumice drive in the output of `pumice scan --json`: `{"estimate": 2.4, "low":
/// 2.3, "high": 2.5}`. The ratio is logical bytes over physical bytes, including headers, map and reserve. `low` and
/// `high` are the ends of its confidence interval.
pub const SCAN_RATIO_PATH: &str = "predicted_drive.ratio";

/// Compression ratio read from a scan at [`SCAN_RATIO_PATH`], or at the path that a column specifies. Other keys are
/// ignored.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
pub struct ScanRatio {
    /// The most likely value.
    pub estimate: f64,
    /// Lower end of the interval. This is the value that the model uses.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

/// Contents of `bench.json`. Other keys are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Bench {
    /// Time of the measurement, as text.
    pub date: Option<String>,
    /// The command that measured it.
    pub command: Option<String>,
    /// Results, one per target.
    pub targets: Vec<BenchTarget>,
}

/// Results of one target. Missing values are ignored.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct BenchTarget {
    /// Name of the column, or the value of the column's key `bench`.
    pub name: String,
    /// Throughput of applications in MB/s of 10^6 bytes, under the same load for all targets. The performance
    /// multiplier of a column becomes the highest throughput of all matched columns divided by its own.
    pub mb_per_s: Option<f64>,
    /// Logical bytes over physical bytes.
    pub ratio: Option<f64>,
    /// CPU time of all threads of the target, in seconds per GB of 10^9 bytes written. It and the ratio are of one codec:
    /// where CPU time is priced, neither is used without the other.
    pub cpu_seconds_per_gb: Option<f64>,
    /// The same of the client's side.
    pub client_cpu_seconds_per_gb: Option<f64>,
}

/// A measured value that replaced an assumed one.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// The column.
    pub column: String,
    /// The field.
    pub field: Field,
    /// The replaced value.
    pub before: f64,
    /// The measured value.
    pub value: f64,
    /// Description of the measurement: subject and source.
    pub detail: String,
}

/// Reason why a measurement cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MeasuredError {
    /// The file is not the expected JSON.
    #[error("{file}: {problem}")]
    Json {
        /// The file.
        file: String,
        /// Description of the error, with the line.
        problem: String,
    },
    /// A key is missing or has an invalid value.
    #[error("{file}: {path}: expected {expected}")]
    Key {
        /// The file.
        file: String,
        /// Path of the key, separated by dots.
        path: String,
        /// The expected value.
        expected: String,
    },
    /// No measurement in the file applies to a column.
    #[error("{file}: {problem}")]
    Unused {
        /// The file.
        file: String,
        /// Description of the problem.
        problem: String,
    },
}

fn key_error<T>(file: &str, path: &str, expected: impl Into<String>) -> Result<T, MeasuredError> {
    Err(MeasuredError::Key { file: file.to_string(), path: path.to_string(), expected: expected.into() })
}

/// Returns the value at a path of keys separated by dots. `list[key=value,other=value]` selects the item of a list
/// whose keys have these values; `list[3]` selects the fourth item.
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

/// Returns the item of a list at an index, or the first item whose keys have the given values.
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

/// Returns the codec of the ratio at a path: the key `codec` beside it.
fn codec_at<'a>(json: &'a Value, path: &str) -> Option<&'a str> {
    let (parent, _) = path.rsplit_once('.')?;
    at_path(json, parent)?.get("codec")?.as_str()
}

/// Gives a column the CPU time of the codec whose ratio it gets.
fn pair(column: &mut Column, codec: Option<&str>, file: &str, path: &str) -> Result<(), MeasuredError> {
    let is_paired = codec.is_some_and(|codec| column.use_codec(codec) || column.is_of_codec(codec));
    if is_paired || !column.prices_cpu() {
        return Ok(());
    }
    let name = |codec: Option<&str>| {
        codec.map_or("a codec without a name".to_string(), |codec| format!("{codec:?}"))
    };
    let problem = format!(
        "{path} is the ratio of {}, and the CPU time of column {:?} is of {}: expected both of one codec; give the column \
         [column.codecs.NAME] of that codec, or its key `codec`",
        name(codec),
        column.name,
        name(column.codec.as_deref())
    );
    Err(MeasuredError::Unused { file: file.to_string(), problem })
}

/// Stores a measured value in a column.
fn apply(scenario: &mut Scenario, at: usize, field: Field, value: f64, detail: &str) -> Applied {
    let column = &mut scenario.columns[at];
    let before = column.get(field);
    column.inputs.insert(field, Input { value, origin: Origin::Measured(detail.to_string()) });
    Applied { column: column.name.clone(), field, before, value, detail: detail.to_string() }
}

/// Sets the ratio of every column that compresses to the lower end of the interval found by a scan. A ratio below 1 is
/// used unchanged: there, headers cost more than compression saves. Where CPU time is priced, it is that of the same
/// codec.
///
/// # Errors
///
/// Fails if the text is not JSON, if it has no valid interval at the path that a column requires, if the scenario has no
/// CPU time of that codec for a column that prices CPU time, or if no column compresses.
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
        pair(&mut scenario.columns[at], codec_at(&json, &path), file, &path)?;
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

/// Sets the measured values of a benchmark in the columns with matching names.
///
/// # Errors
///
/// Fails if the text is not valid benchmark JSON, if a value is out of range, if no target matches a column, if
/// `cpu_seconds_per_gb` is given for a column without `cpu.gb_per_s`, if a ratio or a CPU time comes without the other, or
/// if no value can be used.
pub fn use_bench(scenario: &mut Scenario, file: &str, text: &str) -> Result<Vec<Applied>, MeasuredError> {
    let bench: Bench = serde_json::from_str(text)
        .map_err(|error| MeasuredError::Json { file: file.to_string(), problem: error.to_string() })?;
    for (at, target) in bench.targets.iter().enumerate() {
        let values = [
            ("mb_per_s", target.mb_per_s),
            ("ratio", target.ratio),
            ("cpu_seconds_per_gb", target.cpu_seconds_per_gb),
            ("client_cpu_seconds_per_gb", target.client_cpu_seconds_per_gb),
        ];
        for (key, value) in values {
            let limit = if key.contains("cpu") { Limit::NotNegative } else { Limit::Positive };
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
        // A single throughput has nothing to compare with.
        if let Some(mb_per_s) = target.mb_per_s.filter(|_| speeds.len() > 1) {
            let detail = format!("{fastest} MB/s over {mb_per_s} MB/s, {source}");
            applied.push(apply(scenario, at, Field::PerformanceMultiplier, fastest / mb_per_s, &detail));
        }
        let column = &scenario.columns[at];
        let has_cpu = target.cpu_seconds_per_gb.is_some();
        if column.takes(Field::Ratio) && (column.prices_cpu() || has_cpu) && target.ratio.is_some() != has_cpu
        {
            let problem = format!(
                "target {:?}: expected ratio and cpu_seconds_per_gb, both of one codec, found only one of them",
                target.name
            );
            return Err(MeasuredError::Unused { file: file.to_string(), problem });
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
            if let Some(seconds) = target.client_cpu_seconds_per_gb {
                applied.push(apply(scenario, at, Field::CpuClientSecondsPerGb, seconds, &source));
            }
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
