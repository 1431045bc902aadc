//! Total cost of ownership (TCO) of storage per TB that users can store. Implements the SNIA storage TCO
//! model and extends it with cloud volumes, CPU cost of compression, discounting, number of racks for a
//! required capacity, and greenhouse gases.
//!
//! [`parse`] reads a [`Scenario`] from TOML. [`use_scan`] and [`use_bench`] replace assumed values by
//! measured ones. [`evaluate`] computes a column. [`compare`], [`sweep`] and [`tornado`] compare columns and
//! inputs. This crate reads no files and prints nothing.
//!
//! ```
//! let preset = tco::preset("snia-2023").expect("it exists");
//! let scenario = tco::parse(preset.name, preset.text).expect("it is valid");
//! let results = tco::evaluate(&scenario.columns[0]);
//! assert_eq!(format!("{:.2}", results.tco_per_tbe()), "565.09");
//! ```

#![forbid(unsafe_code)]

mod compare;
mod field;
mod measured;
mod metric;
mod model;
mod parse;
mod presets;
mod rows;
mod scenario;
mod show;

pub use compare::{
    BREAK_EVEN_RATIO_MAX, BreakEven, Comparison, Influence, MULTIPLIER_FACTORS, SWEEP_POINTS_DEFAULT,
    SWEEP_POINTS_MAX, Sweep, SweepError, SweepRange, compare, sweep, tornado,
};
pub use field::{Field, FieldInfo, Kind, Limit, VALUE_MAX, VALUE_MIN};
pub use measured::{Applied, Measured, MeasuredError, SCAN_RATIO_PATH, use_bench, use_scan};
pub use metric::{Metric, MetricInfo, Results};
pub use model::evaluate;
pub use parse::{SCENARIO_MAX_BYTES, ScenarioError, parse};
pub use presets::{PRESETS, Preset, preset};
pub use rows::{Cell, Row, Section, fields_markdown, table};
pub use scenario::{COLUMNS_MAX, CodecFigures, Column, Input, Origin, Scenario, SetError};
pub use show::Show;
