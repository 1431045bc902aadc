//! Scenarios: columns to compare, each with its inputs and where they come from.

use std::collections::BTreeMap;

use crate::field::{Field, Kind};

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The column's own part of the scenario.
    Column,
    /// The part of the scenario that all columns share.
    Common,
    /// The model's default: the scenario says nothing.
    Default,
    /// The command line.
    Set,
    /// A measurement, in words: of what, by what.
    Measured(String),
}

impl Origin {
    /// One word for it.
    pub fn name(&self) -> &'static str {
        match self {
            Origin::Column => "column",
            Origin::Common => "common",
            Origin::Default => "default",
            Origin::Set => "set",
            Origin::Measured(_) => "measured",
        }
    }
}

/// An input and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The value, in the field's unit.
    pub value: f64,
    /// Where it comes from.
    pub origin: Origin,
}

/// A column: one way to store data, with all inputs of the model that apply to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name, unique in the scenario.
    pub name: String,
    /// Rack or cloud.
    pub kind: Kind,
    /// What a reader should know about it.
    pub note: Option<String>,
    /// False for storage that does not compress: its ratio is 1 whatever is measured, set or swept.
    pub compresses: bool,
    /// Path of the ratio in the JSON of `pumice scan`, if not that of the predicted drive.
    pub scan: Option<String>,
    /// Its name in the JSON of `pumice bench`, if not its own.
    pub bench: Option<String>,
    /// Sources of values, by field.
    pub sources: BTreeMap<Field, String>,
    pub(crate) inputs: BTreeMap<Field, Input>,
}

impl Column {
    /// An input with its origin, if the column has it.
    pub fn input(&self, field: Field) -> Option<&Input> {
        self.inputs.get(&field)
    }

    /// The value of an input; 0 for one that the column does not have.
    pub fn get(&self, field: Field) -> f64 {
        self.inputs.get(&field).map_or(0.0, |input| input.value)
    }

    /// Whether a change of this field changes anything here.
    pub fn takes(&self, field: Field) -> bool {
        field.applies_to(self.kind) && (field != Field::Ratio || self.compresses)
    }

    /// The same column with another value, for sweeps and the like. The value is moved to the nearest that is allowed.
    pub fn with(&self, field: Field, value: f64) -> Column {
        let mut column = self.clone();
        if column.takes(field) {
            let value = field.info().limit.clamp(value);
            column.inputs.insert(field, Input { value, origin: Origin::Set });
        }
        column
    }

    /// The name that a measurement knows it by.
    pub fn bench_name(&self) -> &str {
        self.bench.as_deref().unwrap_or(&self.name)
    }

    /// Every inconsistency between fields: what no field alone can show.
    pub(crate) fn contradiction(&self) -> Option<(Field, &'static str)> {
        let has = |field| self.get(field) > 0.0;
        if self.kind == Kind::Rack && crate::model::drives(self) == 0.0 {
            return Some((
                Field::DrivesPerServer,
                "drives in the rack: servers x drives per server, or JBODs x drives per JBOD, above 0",
            ));
        }
        if has(Field::CpuShare) && !has(Field::CpuCores) {
            return Some((Field::CpuCores, "a number above 0, since cpu.share is given"));
        }
        if has(Field::CpuSecondsPerGb) && !has(Field::CpuGbPerS) {
            return Some((Field::CpuGbPerS, "a number above 0, since cpu.seconds_per_gb is given"));
        }
        None
    }
}

/// Columns to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name of the file or preset.
    pub file: String,
    /// What it is about.
    pub title: String,
    /// At least one, at most [`COLUMNS_MAX`].
    pub columns: Vec<Column>,
    /// Index of the column that others are compared with.
    pub baseline: usize,
    /// A ratio at which all columns are compared too, to tell the effect of the data from that of the method.
    pub equal_ratio: Option<f64>,
}

/// Most columns of a scenario: more fit no page.
pub const COLUMNS_MAX: usize = 16;

/// A value that may not be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SetError {
    /// No such column.
    #[error("no column is named {name:?}; there are {known}")]
    Column {
        /// The name given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// Not an allowed value.
    #[error("{field}: expected {expected}, found {found}")]
    Value {
        /// The field.
        field: &'static str,
        /// What is allowed.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The column has no such field.
    #[error("{field} has no effect on {column}: {why}")]
    Useless {
        /// The field.
        field: &'static str,
        /// The column, or that it is none of them.
        column: String,
        /// Why.
        why: &'static str,
    },
}

impl Scenario {
    /// Sets a field of one column, or of all that have it.
    ///
    /// # Errors
    ///
    /// If the value is not allowed, the column does not exist, or nothing would change.
    pub fn set(&mut self, column: Option<&str>, field: Field, value: f64) -> Result<(), SetError> {
        let name = field.info().name;
        if !field.info().limit.admits(value) {
            return Err(SetError::Value {
                field: name,
                expected: field.expected(),
                found: value.to_string(),
            });
        }
        if let Some(wanted) = column.filter(|wanted| !self.columns.iter().any(|c| c.name == *wanted)) {
            return Err(SetError::Column { name: wanted.to_string(), known: self.column_names() });
        }
        let mut changed = false;
        for found in self.columns.iter_mut().filter(|c| column.is_none_or(|wanted| c.name == wanted)) {
            if found.takes(field) {
                found.inputs.insert(field, Input { value, origin: Origin::Set });
                changed = true;
            }
        }
        if !changed {
            let why = if field == Field::Ratio { "it does not compress" } else { "it is not of that kind" };
            let column = column.unwrap_or("any column").to_string();
            return Err(SetError::Useless { field: name, column, why });
        }
        if let Some((column, (field, expected))) =
            self.columns.iter().find_map(|c| Some((c, c.contradiction()?)))
        {
            let found = format!("{} in {}", column.get(field), column.name);
            return Err(SetError::Value { field: field.info().name, expected: expected.to_string(), found });
        }
        Ok(())
    }

    /// The names of the columns, quoted, for messages.
    pub fn column_names(&self) -> String {
        self.columns.iter().map(|c| format!("{:?}", c.name)).collect::<Vec<_>>().join(", ")
    }

    /// The column that others are compared with.
    pub fn baseline(&self) -> &Column {
        &self.columns[self.baseline]
    }
}
