//! What storage costs over its life, for each TB that users can store: the SNIA storage TCO model, and beyond it cloud
//! volumes, the CPU that compression takes, discounting, racks for a wanted capacity, and greenhouse gases.
//!
//! A [`Scenario`] is read from TOML ([`parse`]), perhaps with measured values put in ([`use_scan`], [`use_bench`]); each of its
//! columns is computed ([`evaluate`]) and compared ([`compare`], [`sweep`], [`tornado`]). Nothing here reads files or prints.
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
    BREAK_EVEN_RATIO_MAX, BreakEven, Comparison, Influence, SWEEP_POINTS_DEFAULT, SWEEP_POINTS_MAX, Sweep,
    SweepError, SweepRange, compare, sweep, tornado,
};
pub use field::{Field, FieldInfo, Kind, Limit, VALUE_MAX};
pub use measured::{
    Applied, Bench, BenchTarget, MeasuredError, SCAN_RATIO_PATH, ScanRatio, use_bench, use_scan,
};
pub use metric::{Metric, MetricInfo, Results};
pub use model::evaluate;
pub use parse::{SCENARIO_MAX_BYTES, ScenarioError, parse};
pub use presets::{PRESETS, Preset, preset};
pub use rows::{Cell, Row, Section, fields_markdown, table};
pub use scenario::{COLUMNS_MAX, Column, Input, Origin, Scenario, SetError};
pub use show::Show;
