//! Replacement of assumed values by measured ones from the JSON output of `pumice scan` and `pumice bench`.

mod bench;
mod path;
mod scan;

use crate::field::Field;
use crate::scenario::{Input, Origin, Scenario};

pub use bench::use_bench;
pub use scan::{SCAN_RATIO_PATH, use_scan};

/// What a measurement changed in a scenario.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// The values that were replaced.
    pub applied: Vec<Applied>,
    /// What a reader must know before using the results, in sentences: what was not measured beside them, and
    /// why values may not hold.
    pub cautions: Vec<String>,
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

impl MeasuredError {
    fn key(file: &str, path: &str, expected: impl Into<String>) -> MeasuredError {
        MeasuredError::Key { file: file.to_string(), path: path.to_string(), expected: expected.into() }
    }

    fn unused(file: &str, problem: impl Into<String>) -> MeasuredError {
        MeasuredError::Unused { file: file.to_string(), problem: problem.into() }
    }
}

/// Stores a measured value in a column.
fn apply(scenario: &mut Scenario, at: usize, field: Field, value: f64, detail: &str) -> Applied {
    let column = &mut scenario.columns[at];
    let before = column.get(field);
    column.inputs.insert(field, Input { value, origin: Origin::Measured(detail.to_string()) });
    Applied { column: column.name.clone(), field, before, value, detail: detail.to_string() }
}

/// Returns names as `"a", "b"`.
fn quoted<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ")
}
