//! Comparison of columns with the baseline, sweeps over one input, and sensitivity to each input.

use std::str::FromStr;

use crate::field::{Field, Limit};
use crate::model::evaluate;
use crate::scenario::{Column, Scenario};
use crate::show::found;

/// The compression ratio at which a column costs as much per effective TB as the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BreakEven {
    /// As cheap as the baseline at this ratio, cheaper above it.
    At(f64),
    /// Cheaper than the baseline, or as cheap, even at a ratio of 1.
    Always,
    /// More expensive than the baseline even at [`BREAK_EVEN_RATIO_MAX`].
    Never,
    /// Not applicable: the column does not compress, or it is the baseline.
    None,
}

/// The largest ratio considered in the search for a break-even.
pub const BREAK_EVEN_RATIO_MAX: f64 = 1000.0;

/// Factors by which a performance multiplier is varied: how many times the hardware is needed is the least
/// certain input.
pub const MULTIPLIER_FACTORS: [f64; 3] = [1.1, 1.25, 1.5];
/// The largest performance multiplier considered in the search for a break-even.
const BREAK_EVEN_MULTIPLIER_MAX: f64 = 1000.0;

/// Comparison of a column with the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Saving in TCO per TBe as a share of the baseline's; negative if the column costs more.
    pub saving: f64,
    /// Saving in TCO per TBe with a performance multiplier of 1 in both columns, so that performance is
    /// ignored.
    pub saving_without_performance: f64,
    /// Saving with the column's performance multiplier times each of [`MULTIPLIER_FACTORS`]. `None` for the
    /// baseline, whose multiplier stays.
    pub saving_at_multipliers: Option<[f64; MULTIPLIER_FACTORS.len()]>,
    /// Performance multiplier at which the column costs as much as the baseline. `None` for the baseline, and
    /// if there is none from 0.001 to 1000.
    pub break_even_multiplier: Option<f64>,
    /// Ratio that the column must reach to cost as much as the baseline.
    pub break_even: BreakEven,
    /// TCO per TBe in US$ at the scenario's `equal_ratio`, if set.
    pub at_equal_ratio: Option<f64>,
}

/// Compares every column with the baseline. Results are in column order. Savings are no numbers if the
/// baseline costs nothing.
pub fn compare(scenario: &Scenario) -> Vec<Comparison> {
    let base = scenario.baseline();
    let base_tco = tco(base);
    let alike = |column: &Column| tco(&column.with(Field::PerformanceMultiplier, 1.0));
    scenario
        .columns
        .iter()
        .enumerate()
        .map(|(at, column)| Comparison {
            saving: 1.0 - tco(column) / base_tco,
            saving_without_performance: 1.0 - alike(column) / alike(base),
            saving_at_multipliers: (at != scenario.baseline).then(|| {
                MULTIPLIER_FACTORS.map(|factor| {
                    let multiplier = column.get(Field::PerformanceMultiplier) * factor;
                    1.0 - tco(&column.with(Field::PerformanceMultiplier, multiplier)) / base_tco
                })
            }),
            break_even_multiplier: match at == scenario.baseline {
                true => None,
                false => break_even_multiplier(column, base_tco),
            },
            break_even: if at == scenario.baseline { BreakEven::None } else { break_even(column, base_tco) },
            at_equal_ratio: scenario.equal_ratio.map(|ratio| tco(&column.with(Field::Ratio, ratio))),
        })
        .collect()
}

fn tco(column: &Column) -> f64 {
    evaluate(column).tco_per_tbe()
}

/// Finds the break-even ratio by bisection. The cost falls as the ratio rises: in inverse proportion for a
/// rack, in part for a cloud.
fn break_even(column: &Column, base_tco: f64) -> BreakEven {
    if !column.takes(Field::Ratio) {
        return BreakEven::None;
    }
    let dearer = |ratio: f64| tco(&column.with(Field::Ratio, ratio)) > base_tco;
    if !dearer(1.0) {
        return BreakEven::Always;
    }
    let (mut low, mut high) = (1.0, BREAK_EVEN_RATIO_MAX);
    if dearer(high) {
        return BreakEven::Never;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if dearer(middle) { low = middle } else { high = middle }
    }
    BreakEven::At(high)
}

/// Finds the break-even multiplier by bisection. The cost rises with the multiplier.
fn break_even_multiplier(column: &Column, base_tco: f64) -> Option<f64> {
    let dearer = |multiplier: f64| tco(&column.with(Field::PerformanceMultiplier, multiplier)) > base_tco;
    let (mut low, mut high) = (BREAK_EVEN_MULTIPLIER_MAX.recip(), BREAK_EVEN_MULTIPLIER_MAX);
    if dearer(low) || !dearer(high) {
        return None;
    }
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if dearer(middle) { high = middle } else { low = middle }
    }
    Some(low)
}

/// A range of values for one input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SweepRange {
    /// The input.
    pub field: Field,
    /// First value.
    pub low: f64,
    /// Last value.
    pub high: f64,
    /// Number of values, at least 2.
    pub points: usize,
}

/// Number of values in a sweep if none is given.
pub const SWEEP_POINTS_DEFAULT: usize = 13;
/// Largest number of values in a sweep.
pub const SWEEP_POINTS_MAX: usize = 1000;

/// Error for a text that is not a valid sweep.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid sweep {text:?}: {problem}")]
pub struct SweepError {
    text: String,
    problem: String,
}

impl FromStr for SweepRange {
    type Err = SweepError;

    /// Parses `FIELD=LOW..HIGH` or `FIELD=LOW..HIGH:POINTS`. The key without the section (`ratio`) is enough
    /// where it is unique.
    fn from_str(text: &str) -> Result<SweepRange, SweepError> {
        let error = |problem: String| SweepError { text: text.to_string(), problem };
        let form = || error("write FIELD=LOW..HIGH, such as ratio=1.0..4.0".to_string());
        let (name, range) = text.split_once('=').ok_or_else(form)?;
        let (low, high) = range.split_once("..").ok_or_else(form)?;
        let (high, points) = match high.split_once(':') {
            Some((high, points)) => (high, points.parse().map_err(|_| form())?),
            None => (high, SWEEP_POINTS_DEFAULT),
        };
        let field = Field::resolve(name.trim()).ok_or_else(|| {
            error(format!("there is no field {:?}; `pumice tco --fields` lists them", name.trim()))
        })?;
        let end = |text: &str| text.trim().parse::<f64>().map_err(|_| form());
        let (low, high) = (end(low)?, end(high)?);
        for value in [low, high] {
            if !field.info().limit.admits(value) {
                return Err(error(format!(
                    "{}: expected {}, found {}",
                    field.info().name,
                    field.expected(),
                    found(value)
                )));
            }
        }
        if low >= high || !(2..=SWEEP_POINTS_MAX).contains(&points) {
            return Err(error(format!("expected LOW under HIGH, and 2 to {SWEEP_POINTS_MAX} points")));
        }
        Ok(SweepRange { field, low, high, points })
    }
}

impl SweepRange {
    /// Returns the values from low to high, rounded to whole numbers for fields that require them, without
    /// duplicates.
    pub fn values(&self) -> Vec<f64> {
        let step = (self.high - self.low) / (self.points - 1) as f64;
        // Rounds to 9 decimals, so that floating-point errors do not show in round values.
        let value = |at: usize| ((self.low + step * at as f64) * 1e9).round() / 1e9;
        let mut values: Vec<f64> = (0..self.points)
            .map(|at| if at + 1 == self.points { self.high } else { value(at) })
            .map(|value| if self.field.info().limit == Limit::Count { value.round() } else { value })
            .collect();
        values.dedup();
        values
    }
}

/// Results of a sweep: TCO per TBe in US$ of every column at every value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sweep {
    /// The input that varies.
    pub field: Field,
    /// Values of that input.
    pub values: Vec<f64>,
    /// TCO per TBe for each column (in column order) at each value. It is constant for columns without the
    /// input.
    pub tco_per_tbe: Vec<Vec<f64>>,
}

/// Computes all columns with one input varied over a range.
pub fn sweep(scenario: &Scenario, range: &SweepRange) -> Sweep {
    let values = range.values();
    let line = |column: &Column| values.iter().map(|value| tco(&column.with(range.field, *value))).collect();
    let tco_per_tbe = scenario.columns.iter().map(line).collect();
    Sweep { field: range.field, values, tco_per_tbe }
}

/// Change of the result when one input changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Influence {
    /// The input.
    pub field: Field,
    /// Low value of the input.
    pub low: f64,
    /// High value of the input.
    pub high: f64,
    /// TCO per TBe in US$ at the low value.
    pub tco_at_low: f64,
    /// TCO per TBe in US$ at the high value.
    pub tco_at_high: f64,
}

impl Influence {
    /// Absolute difference between the two results.
    pub fn swing(&self) -> f64 {
        (self.tco_at_high - self.tco_at_low).abs()
    }
}

/// Changes each input of a column separately, down and up by `share` of its value. Values stay within the
/// field's limit, and whole numbers change by at least 1. Returns the inputs that change the result, the
/// largest change first.
pub fn tornado(column: &Column, share: f64) -> Vec<Influence> {
    let mut all: Vec<Influence> = Field::ALL
        .iter()
        .copied()
        .filter(|field| column.takes(*field) && column.input(*field).is_some_and(|input| input.value != 0.0))
        .map(|field| {
            let value = column.get(field);
            let (low, high) = (value * (1.0 - share), value * (1.0 + share));
            let limit = field.info().limit;
            let (low, high) = if limit == Limit::Count {
                (low.round().min(value - 1.0).max(1.0), high.round().max(value + 1.0))
            } else {
                (low, high)
            };
            let (low, high) = (limit.clamp(low), limit.clamp(high));
            let at = |value| tco(&column.with(field, value));
            Influence { field, low, high, tco_at_low: at(low), tco_at_high: at(high) }
        })
        // Ignores changes that come from rounding only.
        .filter(|influence| influence.swing() > 1e-9 * influence.tco_at_low)
        .collect();
    all.sort_by(|a, b| b.swing().total_cmp(&a.swing()));
    all
}
