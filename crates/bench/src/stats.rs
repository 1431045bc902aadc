//! Medians and spreads.

use serde::{Deserialize, Serialize};

/// A measured quantity: the median of the rounds, and the lowest and highest of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The median; of an even count the mean of the middle two.
    pub median: f64,
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
    /// How often it was measured.
    pub count: u32,
}

impl Figure {
    /// Summarizes values; `None` if there are none, or one is not finite.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Figure> {
        let mut values: Vec<f64> = values.into_iter().collect();
        if values.is_empty() || values.iter().any(|value| !value.is_finite()) {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let (middle, count) = (values.len() / 2, values.len());
        let median = match count % 2 {
            0 => f64::midpoint(values[middle - 1], values[middle]),
            _ => values[middle],
        };
        Some(Figure { median, low: values[0], high: values[count - 1], count: count as u32 })
    }

    /// Distance from the lowest to the highest as a share of the median.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 { 0.0 } else { (self.high - self.low) / self.median }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads() {
        let figure = Figure::of([3.0, 1.0, 2.0]).expect("values");
        assert_eq!((figure.median, figure.low, figure.high, figure.count), (2.0, 1.0, 3.0, 3));
        assert_eq!(figure.spread(), 1.0);
        assert_eq!(Figure::of([1.0, 2.0]).expect("values").median, 1.5);
        assert_eq!(Figure::of([]), None);
        assert_eq!(Figure::of([f64::NAN]), None);
        assert_eq!(Figure::of([0.0]).expect("a value").spread(), 0.0);
    }
}
