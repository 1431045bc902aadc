//! Measured quantities that statements are judged by.

use crate::stats::Figure;

/// Rounds from which the lowest and the highest say how noisy a speed is.
pub(crate) const ROUNDS_MIN: u32 = 3;
/// Share by which a speed of fewer rounds may be wrong.
const UNKNOWN_NOISE: f64 = 0.3;

/// A measured quantity. Speeds and CPU times depend on what else the machine does; ratios and amplification
/// do not.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub(crate) figure: Figure,
    /// Whether it rises with a speed or a CPU time.
    rises_with_speed: bool,
    /// Whether it falls with one, as the quotient of two speeds does.
    falls_with_speed: bool,
}

impl Value {
    /// A speed or a CPU time.
    pub(crate) fn speed(figure: Figure) -> Value {
        Value { figure, rises_with_speed: true, falls_with_speed: false }
    }

    /// A ratio, or something else that is the same on a busy machine.
    pub(crate) fn space(figure: Figure) -> Value {
        Value { figure, rises_with_speed: false, falls_with_speed: false }
    }

    /// A number without noise.
    pub(crate) fn exact(value: f64) -> Value {
        Value::space(Figure { median: value, low: value, high: value, count: 1 })
    }

    /// Whether it depends on a speed or a CPU time.
    pub(crate) fn is_speed(&self) -> bool {
        self.rises_with_speed || self.falls_with_speed
    }

    /// Whether it is a speed whose rounds are too few to say how noisy it is.
    pub(crate) fn has_few_rounds(&self) -> bool {
        self.is_speed() && self.figure.count < ROUNDS_MIN
    }

    pub(crate) fn median(&self) -> f64 {
        self.figure.median
    }

    /// In another unit.
    pub(crate) fn times(self, factor: f64) -> Value {
        let Figure { median, low, high, count } = self.figure;
        let figure = Figure { median: median * factor, low: low * factor, high: high * factor, count };
        Value { figure, ..self }
    }

    /// Combines the medians, the lows and the highs of two quantities, of which the result rises with both.
    pub(crate) fn with(self, other: Value, combine: impl Fn(f64, f64) -> f64) -> Value {
        let (one, two) = (self.figure, other.figure);
        let figure = Figure {
            median: combine(one.median, two.median),
            low: combine(one.low, two.low),
            high: combine(one.high, two.high),
            count: one.count.min(two.count),
        };
        Value {
            figure,
            rises_with_speed: self.rises_with_speed || other.rises_with_speed,
            falls_with_speed: self.falls_with_speed || other.falls_with_speed,
        }
    }

    /// The range in which it may lie, on a machine of which others used the share `busy`: the lowest and the
    /// highest round, and for each speed what others may have taken away. Of a quotient of two speeds both
    /// may be wrong.
    pub(crate) fn range(&self, busy: f64) -> (f64, f64) {
        let few = if self.figure.count < ROUNDS_MIN { UNKNOWN_NOISE } else { 0.0 };
        let others = busy / (1.0 - busy).max(0.1);
        let noise: f64 = few.max(others);
        let (less, more) = (1.0 - noise.min(1.0), 1.0 + noise);
        let (mut low, mut high) = (self.figure.low, self.figure.high);
        if self.rises_with_speed {
            (low, high) = (low * less, high * more);
        }
        if self.falls_with_speed {
            (low, high) = (low / more, high / less);
        }
        (low, high)
    }
}

/// The quotient of two quantities that are there.
pub(crate) fn over(above: Option<Value>, below: Option<Value>) -> Option<Value> {
    let (above, below) = above.zip(below).filter(|(_, below)| below.figure.low > 0.0)?;
    let (one, two) = (above.figure, below.figure);
    let figure = Figure {
        median: one.median / two.median,
        low: one.low / two.high,
        high: one.high / two.low,
        count: one.count.min(two.count),
    };
    Some(Value {
        figure,
        rises_with_speed: above.rises_with_speed || below.falls_with_speed,
        falls_with_speed: above.falls_with_speed || below.rises_with_speed,
    })
}

/// The median of a quantity, for display; 0 if it is not there.
pub(crate) fn shown(value: Option<Value>) -> f64 {
    value.map_or(0.0, |value| value.median())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speed(values: &[f64]) -> Option<Value> {
        Figure::of(values.iter().copied()).map(Value::speed)
    }

    #[test]
    fn quotients_have_the_range_of_both() {
        let quotient = over(speed(&[9.0, 10.0, 12.0]), speed(&[4.0, 5.0, 5.0])).expect("a quotient");
        assert_eq!((quotient.median(), quotient.range(0.0)), (2.0, (9.0 / 5.0, 3.0)));
        assert_eq!(over(speed(&[3.0]), speed(&[0.0])), None);
        assert_eq!(over(None, speed(&[2.0])), None);
    }

    #[test]
    fn few_rounds_and_busy_machines_are_noisy() {
        let range = |values: &[f64], busy| speed(values).expect("a speed").range(busy);
        assert_eq!(range(&[10.0, 10.0, 10.0], 0.0), (10.0, 10.0));
        assert_eq!(range(&[10.0, 10.0], 0.0), (7.0, 13.0));
        assert_eq!(range(&[10.0, 10.0, 10.0], 0.5), (0.0, 20.0));
        assert_eq!(Value::exact(2.0).range(0.5), (2.0, 2.0));
    }

    #[test]
    fn both_speeds_of_a_quotient_may_be_wrong() {
        let close = |(low, high): (f64, f64), expected: (f64, f64)| {
            assert!((low - expected.0).abs() < 1e-9 && (high - expected.1).abs() < 1e-9, "{low} {high}");
        };
        let quotient =
            |above, below: &[f64], busy| over(above, speed(below)).expect("a quotient").range(busy);
        close(quotient(speed(&[10.0, 10.0]), &[10.0, 10.0], 0.0), (0.7 / 1.3, 1.3 / 0.7));
        // One round of the one is enough to leave both open.
        close(quotient(speed(&[10.0]), &[10.0, 10.0, 10.0], 0.0), (0.7 / 1.3, 1.3 / 0.7));
        close(quotient(speed(&[10.0; 3]), &[10.0; 3], 0.2), (0.75 / 1.25, 1.25 / 0.75));
        assert_eq!(quotient(speed(&[10.0; 3]), &[10.0; 3], 0.5), (0.0, f64::INFINITY));
        // Only the speed below the line.
        close(quotient(Some(Value::exact(10.0)), &[10.0], 0.0), (1.0 / 1.3, 1.0 / 0.7));
        let worst = |one: f64, other: f64| one.min(other);
        let two = over(speed(&[10.0]), speed(&[10.0])).zip(over(speed(&[8.0]), speed(&[10.0])));
        let (one, other) = two.expect("quotients");
        close(one.with(other, worst).range(0.0), (0.8 * 0.7 / 1.3, 0.8 * 1.3 / 0.7));
    }
}
