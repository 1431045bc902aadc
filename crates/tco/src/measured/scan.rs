//! Ratios from the output of `pumice scan --json`.

use serde::Deserialize;
use serde_json::Value;

use super::path::at_path;
use super::{Measured, MeasuredError, apply};
use crate::field::Field;
use crate::scenario::{Column, Scenario};
use crate::show::Show;

/// Path of the compression ratio of a Pumice drive in the output of `pumice scan --json`:
/// `{"estimate": 2.4, "low": 2.3, "high": 2.5}`. The ratio is logical bytes over physical bytes, including
/// headers, map and reserve. `low` and `high` are the ends of its confidence interval.
pub const SCAN_RATIO_PATH: &str = "predicted_drive.ratio";

/// Compression ratio read from a scan at [`SCAN_RATIO_PATH`], or at the path that a column specifies. Other
/// keys are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct ScanRatio {
    /// The most likely value.
    estimate: f64,
    /// Lower end of the interval. This is the value that the model uses.
    low: f64,
    /// Upper end of the interval.
    high: f64,
}

impl ScanRatio {
    fn is_interval(&self) -> bool {
        self.low > 0.0
            && self.low <= self.estimate
            && self.estimate <= self.high
            && Field::Ratio.info().limit.admits(self.high.max(1.0))
    }
}

/// Sets the ratio of every column that compresses to the lower end of the interval found by a scan. A ratio
/// below 1 is used unchanged: there, headers cost more than compression saves. Where CPU time is charged, it
/// is that of the same codec; if that is another codec than the scenario's, a caution says so.
///
/// # Errors
///
/// Fails if the text is not JSON, if the scan found no data, if it has no valid interval at the path that a
/// column requires, if the scenario has no CPU time of that codec for a column that pays for CPU time, or if
/// no column compresses.
pub fn use_scan(scenario: &mut Scenario, file: &str, text: &str) -> Result<Measured, MeasuredError> {
    let json: Value = serde_json::from_str(text).map_err(|error| MeasuredError::Json {
        file: file.to_string(),
        problem: format!("not JSON: {error}"),
    })?;
    if json.get("predicted_drive").is_some_and(Value::is_null) {
        return Err(MeasuredError::unused(
            file,
            "the scan found no data of which a ratio could be predicted",
        ));
    }
    let mut measured = Measured::default();
    measured.cautions.extend(zeros(&json, file));
    for at in 0..scenario.columns.len() {
        let column = &scenario.columns[at];
        if !column.takes(Field::Ratio) {
            continue;
        }
        let path = column.scan.clone().unwrap_or_else(|| SCAN_RATIO_PATH.to_string());
        let place = if column.scan.is_some() { " (the column's key `scan` names this place)" } else { "" };
        let expected = format!("{{\"estimate\": R, \"low\": L, \"high\": H}}, with 0 < L <= R <= H{place}");
        let found = at_path(&json, &path);
        let Some(ratio) = found.filter(|it| it.is_object()).and_then(|it| ScanRatio::deserialize(it).ok())
        else {
            return Err(MeasuredError::key(file, &path, expected));
        };
        if !ratio.is_interval() {
            let found = format!("found {} <= {} <= {}", ratio.low, ratio.estimate, ratio.high);
            return Err(MeasuredError::key(file, &path, format!("{expected}, {found}")));
        }
        measured.cautions.extend(pair(&mut scenario.columns[at], codec_at(&json, &path), file, &path)?);
        let detail = format!(
            "low end of {:.3}..{:.3}, estimate {:.3}, {file}, {path}",
            ratio.low, ratio.high, ratio.estimate
        );
        measured.applied.push(apply(scenario, at, Field::Ratio, ratio.low, &detail));
    }
    if measured.applied.is_empty() {
        return Err(MeasuredError::unused(file, "no column compresses: a ratio is of no use"));
    }
    Ok(measured)
}

/// Says that fills are a large part of what was scanned: they raise all ratios, and other data has lower
/// ones.
fn zeros(json: &Value, file: &str) -> Option<String> {
    const LARGE: f64 = 0.1;
    let number = |path: &str| at_path(json, path).and_then(Value::as_f64);
    let all = number("predicted_drive.logical_used_bytes").filter(|bytes| *bytes > 0.0)?;
    let share = number("predicted_drive.logical_fill_bytes.estimate")? / all;
    let rest = number("predicted_drive.ratio_without_fills.estimate");
    let rest = rest.map_or(String::new(), |ratio| format!(", the rest has {ratio:.2}:1"));
    (share > LARGE).then(|| {
        format!(
            "{:.0} % of the data of {file} are zeros and other fills, which the ratios include{rest}.",
            share * 100.0
        )
    })
}

/// Returns the codec of the ratio at a path: the key `codec` beside it.
fn codec_at<'a>(json: &'a Value, path: &str) -> Option<&'a str> {
    let (parent, _) = path.rsplit_once('.')?;
    at_path(json, parent)?.get("codec")?.as_str()
}

/// Gives a column the CPU time of the codec whose ratio it gets. Returns a caution if that is another codec
/// than before.
fn pair(
    column: &mut Column,
    codec: Option<&str>,
    file: &str,
    path: &str,
) -> Result<Option<String>, MeasuredError> {
    let before = column.clone();
    let is_listed = codec.is_some_and(|codec| column.use_codec(codec));
    if is_listed && column.codec != before.codec {
        return Ok(Some(switched(&before, column, file)));
    }
    if is_listed || codec.is_some_and(|codec| column.is_of_codec(codec)) || !column.prices_cpu() {
        return Ok(None);
    }
    let name = |codec: Option<&str>| {
        codec.map_or("a codec without a name".to_string(), |codec| format!("{codec:?}"))
    };
    let problem = format!(
        "{path} is the ratio of {}, and the CPU time of column {:?} is of {}: expected both of one codec; give the \
         column [column.codecs.NAME] of that codec, or its key `codec`",
        name(codec),
        column.name,
        name(column.codec.as_deref())
    );
    Err(MeasuredError::unused(file, problem))
}

/// Says that a scan was of another codec than the scenario, and what that changes.
fn switched(before: &Column, column: &Column, file: &str) -> String {
    let codec = |column: &Column| column.codec.clone().unwrap_or_default();
    let seconds = |column: &Column| {
        let seconds = column.get(Field::CpuSecondsPerGb) + column.get(Field::CpuClientSecondsPerGb);
        Show::NumberInput(0).text(seconds)
    };
    format!(
        "{} is priced with codec {:?}, of which {file} has the ratio, instead of {:?}: {} s/GB of CPU time instead of \
         {}.",
        column.name,
        codec(column),
        codec(before),
        seconds(column),
        seconds(before)
    )
}
