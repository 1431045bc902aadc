//! Places on the axis of a bar chart.

/// Extent of an axis.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
}

/// A part of an axis, in percent of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    pub(crate) left: f64,
    pub(crate) width: f64,
}

impl Scale {
    /// An axis that shows all finite values and `origin`, the place where bars begin.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>, origin: f64) -> Scale {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let (low, high) =
            finite.fold((origin, origin), |(low, high), value| (value.min(low), value.max(high)));
        Scale { low, high }
    }

    /// The place of a value, in percent of the axis; within 0 and 100 for every value.
    pub(crate) fn place(&self, value: f64) -> f64 {
        // Halves, because the difference of two finite numbers may not be finite.
        let share = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        if share.is_finite() { (share * 100.0).clamp(0.0, 100.0) } else { 0.0 }
    }

    /// The part of the axis between two values.
    pub(crate) fn span(&self, one: f64, other: f64) -> Span {
        let [left, right] = [one.min(other), one.max(other)].map(|value| self.place(value));
        Span { left, width: right - left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_on_the_axis() {
        let scale = Scale::of([4.0, f64::NAN, -1.0], 0.0);
        assert_eq!((scale.place(-1.0), scale.place(0.0), scale.place(4.0)), (0.0, 20.0, 100.0));
        assert_eq!(scale.span(4.0, 0.0), Span { left: 20.0, width: 80.0 });
        assert_eq!(Scale::of([], 0.0).place(1.0), 0.0);
        let wide = Scale::of([f64::MAX, f64::MIN], 0.0);
        assert_eq!((wide.place(0.0), wide.place(f64::MAX), wide.place(f64::INFINITY)), (50.0, 100.0, 0.0));
    }
}
