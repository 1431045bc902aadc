//! Scenarios: the columns to compare, each with its inputs and their origins.

use std::collections::BTreeMap;

use crate::field::{Field, Kind};
use crate::show::found;

/// Origin of a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// The column itself.
    Column,
    /// The `common` part of the scenario, shared by all columns.
    Common,
    /// The model's default. The scenario has no value.
    Default,
    /// The command line.
    Set,
    /// A measurement, with a description of its subject and source.
    Measured(String),
}

impl Origin {
    /// Returns the origin as one word.
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

/// An input value and its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The value, in the field's unit.
    pub value: f64,
    /// Origin of the value.
    pub origin: Origin,
}

/// What a codec makes of data, and what that takes: figures that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct CodecFigures {
    /// Values of [`CODEC_FIELDS`].
    pub(crate) values: BTreeMap<Field, f64>,
    /// Source of all of them.
    pub(crate) source: Option<String>,
}

/// The fields that a codec determines.
pub(crate) const CODEC_FIELDS: [Field; 3] =
    [Field::Ratio, Field::CpuSecondsPerGb, Field::CpuClientSecondsPerGb];

/// Beginning of the source of a value that nobody has measured or quoted.
const ASSUMED: &str = "assumed";

/// A column: one way to store data, with all inputs of the model that apply to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Name, unique in the scenario.
    pub name: String,
    /// Rack or cloud.
    pub kind: Kind,
    /// Remark for the reader.
    pub note: Option<String>,
    /// False for storage that does not compress. Its ratio is 1 and cannot be measured, set or swept.
    pub compresses: bool,
    /// Codec that the ratio and the CPU time are of, such as `auto` or `zstd:3`. A name without a level
    /// stands for every level.
    pub codec: Option<String>,
    /// Ratio and CPU time of further codecs, of which the scenario chose [`Column::codec`].
    pub codecs: BTreeMap<String, CodecFigures>,
    /// Path of the ratio in the output of `pumice scan --json`, if not
    /// [`SCAN_RATIO_PATH`](crate::SCAN_RATIO_PATH).
    pub scan: Option<String>,
    /// Names in the output of `pumice bench`, besides the column's name.
    pub bench: Vec<String>,
    /// Sources of the values, by field.
    pub sources: BTreeMap<Field, String>,
    pub(crate) inputs: BTreeMap<Field, Input>,
}

impl Column {
    /// Returns an input with its origin, if the column has it.
    pub fn input(&self, field: Field) -> Option<&Input> {
        self.inputs.get(&field)
    }

    /// Returns the value of an input; 0 if the column does not have it.
    pub fn get(&self, field: Field) -> f64 {
        self.inputs.get(&field).map_or(0.0, |input| input.value)
    }

    /// Returns whether this field has an effect on the column.
    pub fn takes(&self, field: Field) -> bool {
        field.applies_to(self.kind) && (field != Field::Ratio || self.compresses)
    }

    /// Returns whether a value is an assumption: its source says so, or it decides about the result and has
    /// no source.
    pub fn is_assumed(&self, field: Field) -> bool {
        if !self.takes(field) {
            return false;
        }
        match self.input(field).map(|input| &input.origin) {
            Some(Origin::Column | Origin::Common) => {
                let decides = field.section() == "cpu"
                    || matches!(
                        field,
                        Field::Ratio
                            | Field::PerformanceMultiplier
                            | Field::CloudTraffic
                            | Field::CloudIoPerIo
                    );
                self.sources.get(&field).map_or(decides, |it| it.starts_with(ASSUMED))
            }
            Some(Origin::Default) => self.is_assumed_by_default(field),
            _ => false,
        }
    }

    /// Returns whether the default of a field is an assumption: that the column is as fast as those with a
    /// multiplier of 1, or that cores cost nothing although they are used.
    fn is_assumed_by_default(&self, field: Field) -> bool {
        match field {
            Field::PerformanceMultiplier => true,
            Field::CpuPricePerCore | Field::CpuPowerPerCore | Field::CpuRentPerCore => self.prices_cpu(),
            _ => false,
        }
    }

    /// Returns whether CPU time is charged.
    pub(crate) fn prices_cpu(&self) -> bool {
        [Field::CpuSecondsPerGb, Field::CpuClientSecondsPerGb, Field::CpuShare]
            .iter()
            .any(|it| self.get(*it) > 0.0)
    }

    /// Returns whether the column's figures are of this codec.
    pub(crate) fn is_of_codec(&self, codec: &str) -> bool {
        self.codec.as_ref().is_some_and(|own| {
            codec.strip_prefix(own.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        })
    }

    /// Takes the CPU time of another codec that the scenario has figures of. Returns false if it has none.
    pub(crate) fn use_codec(&mut self, codec: &str) -> bool {
        let Some(figures) = self.codecs.get(codec).cloned() else { return false };
        self.codec = Some(codec.to_string());
        for (field, value) in figures.values {
            self.inputs.insert(field, Input { value, origin: Origin::Column });
            match &figures.source {
                Some(source) => drop(self.sources.insert(field, source.clone())),
                None => drop(self.sources.remove(&field)),
            }
        }
        true
    }

    /// Returns a copy of the column with another value for one input. The value is clamped to the bounds of
    /// the field's limit. The copy is unchanged if the field has no effect on the column.
    pub fn with(&self, field: Field, value: f64) -> Column {
        let mut column = self.clone();
        if column.takes(field) {
            let value = field.info().limit.clamp(value);
            column.inputs.insert(field, Input { value, origin: Origin::Set });
        }
        column
    }

    /// Names of the column in measurements, the most precise first.
    pub(crate) fn bench_names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.name).chain(&self.bench).map(String::as_str)
    }

    /// Number of drives in a rack.
    pub(crate) fn drives_per_rack(&self) -> f64 {
        self.get(Field::Servers) * self.get(Field::DrivesPerServer)
            + self.get(Field::Jbods) * self.get(Field::DrivesPerJbod)
    }

    /// Returns the first inconsistency between fields, which the limit of a single field cannot detect, with
    /// the expected value.
    pub(crate) fn contradiction(&self) -> Option<(Field, &'static str)> {
        let has = |field| self.get(field) > 0.0;
        if self.kind == Kind::Rack && self.drives_per_rack() == 0.0 {
            return Some((
                Field::DrivesPerServer,
                "drives in the rack: servers x drives per server, or JBODs x drives per JBOD, above 0",
            ));
        }
        if has(Field::CpuShare) && !has(Field::CpuCores) {
            return Some((Field::CpuCores, "a number above 0, since cpu.share is given"));
        }
        if (has(Field::CpuSecondsPerGb) || has(Field::CpuClientSecondsPerGb)) && !has(Field::CpuGbPerS) {
            return Some((Field::CpuGbPerS, "a number above 0, since CPU seconds for each GB are given"));
        }
        None
    }
}

/// A set of columns to compare.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Name of the file or preset.
    pub file: String,
    /// Title of the scenario.
    pub title: String,
    /// Columns, at least 1 and at most [`COLUMNS_MAX`].
    pub columns: Vec<Column>,
    /// Index of the column that the others are compared with.
    pub baseline: usize,
    /// A ratio at which all columns are compared additionally. It separates the effect of the data from the
    /// effect of the method.
    pub equal_ratio: Option<f64>,
}

/// Largest number of columns in a scenario. More do not fit on a page.
pub const COLUMNS_MAX: usize = 16;

/// Error for a value that cannot be set.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// No such column.
    #[error("no column is named {name:?}; there are {known}")]
    Column {
        /// The name given.
        name: String,
        /// The names that exist.
        known: String,
    },
    /// The value is not allowed.
    #[error("{field}: expected {expected}, found {found}")]
    Value {
        /// The field.
        field: &'static str,
        /// Description of the allowed values.
        expected: String,
        /// The given value.
        found: String,
    },
    /// The field has no effect on the selected columns.
    #[error("{field} has no effect on {column}: {why}")]
    Useless {
        /// The field.
        field: &'static str,
        /// Name of the column, or "any column".
        column: String,
        /// Reason.
        why: &'static str,
    },
}

impl Scenario {
    /// Sets a field of one column, or of all columns on which it has an effect.
    ///
    /// # Errors
    ///
    /// Fails if the value is not allowed, if the column does not exist, if the field has no effect on any
    /// selected column, or if the new value contradicts another field.
    pub fn set(&mut self, column: Option<&str>, field: Field, value: f64) -> Result<(), SetError> {
        let name = field.info().name;
        if !field.info().limit.admits(value) {
            return Err(SetError::Value { field: name, expected: field.expected(), found: found(value) });
        }
        if let Some(wanted) = column.filter(|wanted| !self.columns.iter().any(|c| c.name == *wanted)) {
            return Err(SetError::Column { name: wanted.to_string(), known: self.column_names() });
        }
        let (mut columns, mut changed) = (self.columns.clone(), false);
        for chosen in columns.iter_mut().filter(|c| column.is_none_or(|wanted| c.name == wanted)) {
            if chosen.takes(field) {
                chosen.inputs.insert(field, Input { value, origin: Origin::Set });
                changed = true;
            }
        }
        if !changed {
            let why = if field == Field::Ratio { "it does not compress" } else { "it is not of that kind" };
            let column = column.unwrap_or("any column").to_string();
            return Err(SetError::Useless { field: name, column, why });
        }
        if let Some((column, (field, expected))) = columns.iter().find_map(|c| Some((c, c.contradiction()?)))
        {
            let found = format!("{} in {}", found(column.get(field)), column.name);
            return Err(SetError::Value { field: field.info().name, expected: expected.to_string(), found });
        }
        self.columns = columns;
        Ok(())
    }

    /// Returns the quoted names of the columns, for messages.
    pub fn column_names(&self) -> String {
        self.columns.iter().map(|c| format!("{:?}", c.name)).collect::<Vec<_>>().join(", ")
    }

    /// The column that others are compared with.
    pub fn baseline(&self) -> &Column {
        &self.columns[self.baseline]
    }
}
