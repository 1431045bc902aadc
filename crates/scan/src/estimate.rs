//! Error bounds for a mean over random samples.
//!
//! The estimated quantity is always a bounded value of a 4 KiB block (or of a larger unit), such as the bytes
//! it takes when stored. Samples are drawn independently and uniformly over the blocks of all sources, so
//! each source counts in proportion to its size. Where blocks are stored together, the value of a block is
//! its share of what its group takes. The mean over blocks is unchanged by this, and each drawn block is one
//! sample, however many blocks are read for it. Three bounds for the mean of independent samples in
//! `[0, range]` are used:
//!
//! * **Hoeffding** (W. Hoeffding, *Probability Inequalities for Sums of Bounded Random Variables*, JASA 58,
//!   1963, theorem 1): depends on the range only, so it gives a sufficient number of samples in advance. In
//!   the form (2.17) of that paper it holds for all partial sums at once.
//! * **Empirical Bernstein as a confidence sequence** ([`Design::sequence`]): tighter where the samples vary
//!   little, and valid at every look at which sampling may stop.
//! * **Empirical Bernstein for one look** (A. Maurer and M. Pontil, *Empirical Bernstein Bounds and Sample
//!   Variance Penalization*, COLT 2009, theorem 4): for streams, whose samples are drawn without replacement,
//!   and for parts.
//!
//! The allowed error probability is split between Hoeffding's bound and the other bound. The reported
//! interval therefore holds with the stated confidence whenever sampling stopped.

use serde::{Deserialize, Serialize};

/// Number of looks: the moments at which sampling may stop.
pub const LOOKS: u64 = 24;
/// Samples at a look as a multiple of those at the previous look. At most a sixth of the samples is drawn in
/// vain.
const LOOKS_FACTOR: f64 = 1.2;
/// Share of the allowed error probability given to Hoeffding's bound. It determines the largest number of
/// samples: 19 % more than Hoeffding's bound alone would need. The other bound gets the rest, and usually
/// ends sampling much earlier.
const HOEFFDING_SHARE: f64 = 0.5;

/// A mean with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Mean of the samples, or the exact value if everything was read.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Creates an interval for a value that is known exactly.
    pub fn exact(value: f64) -> Interval {
        Interval { estimate: value, low: value, high: value }
    }

    /// The larger of the distances from the estimate to the ends.
    pub fn half_width(&self) -> f64 {
        (self.high - self.estimate).max(self.estimate - self.low)
    }

    /// Multiplies all values by `factor`.
    pub fn scaled(&self, factor: f64) -> Interval {
        Interval { estimate: self.estimate * factor, low: self.low * factor, high: self.high * factor }
    }

    /// Divides `numerator` by each value. The ends change places. A value of 0 gives 0.
    pub fn dividing(&self, numerator: f64) -> Interval {
        let ratio = |value: f64| if value > 0.0 { numerator / value } else { 0.0 };
        Interval { estimate: ratio(self.estimate), low: ratio(self.high), high: ratio(self.low) }
    }
}

/// The bound that an interval is based on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Exact: everything was read.
    Exact,
    /// Hoeffding's inequality.
    Hoeffding,
    /// The empirical Bernstein bound.
    EmpiricalBernstein,
}

/// Sums over samples. They are integers, so the result does not depend on the order in which threads add.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of samples.
    pub count: u64,
    /// Sum of the sample values.
    pub sum: u128,
    squares: u128,
}

impl Tally {
    /// Adds a sample.
    pub fn add(&mut self, value: u64) {
        self.count += 1;
        self.sum += u128::from(value);
        self.squares += u128::from(value) * u128::from(value);
    }

    /// Adds `times` samples of the same value.
    pub fn add_times(&mut self, value: u64, times: u64) {
        self.count += times;
        self.sum += u128::from(value) * u128::from(times);
        self.squares += u128::from(value) * u128::from(value) * u128::from(times);
    }

    /// Adds all samples of another tally.
    pub fn merge(&mut self, other: &Tally) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Returns the samples added since an earlier state of this tally.
    pub(crate) fn since(&self, before: &Tally) -> Tally {
        Tally {
            count: self.count - before.count,
            sum: self.sum - before.sum,
            squares: self.squares - before.squares,
        }
    }

    /// Sum of the squared distances from `center`.
    pub(crate) fn squares_around(&self, center: f64) -> f64 {
        let (count, sum, squares) = (self.count as f64, self.sum as f64, self.squares as f64);
        (squares - 2.0 * center * sum + count * center * center).max(0.0)
    }

    /// Combines two tallies of 0 or 1 over the same samples into the tally of their logical or. A sample must
    /// not be 1 in both.
    pub fn or(&self, other: &Tally) -> Tally {
        debug_assert_eq!(self.count, other.count);
        Tally { count: self.count, sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    /// Mean of the samples; 0 if there are none.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Sample variance (divided by the count minus one); 0 for fewer than two samples.
    pub fn variance(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // Computed as n * squares - sum^2 in integers, which avoids cancellation.
        let spread = u128::from(self.count) * self.squares - self.sum * self.sum;
        spread as f64 / (self.count as f64 * (self.count - 1) as f64)
    }
}

/// Confidence and precision to reach, which determine the largest number of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Probability that an interval contains the true value, in (0, 1).
    pub confidence: f64,
    /// Half-width of the interval to reach, in the unit of the values.
    pub precision: f64,
    /// Upper bound of the values. The lower bound is 0.
    pub range: f64,
}

impl Design {
    pub(crate) fn hoeffding_log(&self) -> f64 {
        (2.0 / ((1.0 - self.confidence) * HOEFFDING_SHARE)).ln()
    }

    /// Logarithm of the error probability for the bound that depends on the variance.
    pub(crate) fn bernstein_log(&self) -> f64 {
        (2.0 / ((1.0 - self.confidence) * (1.0 - HOEFFDING_SHARE))).ln()
    }

    /// Number of samples with which Hoeffding's bound alone gives the precision.
    pub fn samples_max(&self) -> u64 {
        let relative = self.precision / self.range;
        (self.hoeffding_log() / (2.0 * relative * relative)).ceil() as u64
    }

    /// Numbers of samples at which to check whether the precision is reached. The last is
    /// [`Design::samples_max`].
    pub fn looks(&self) -> impl Iterator<Item = u64> + use<> {
        let most = self.samples_max();
        (0..LOOKS).rev().map(move |left| {
            let share = LOOKS_FACTOR.powi(-i32::try_from(left).unwrap_or(i32::MAX));
            if left == 0 { most } else { (most as f64 * share).ceil() as u64 }
        })
    }

    /// Returns the interval for the mean. `exact` means that the samples are the whole data.
    ///
    /// The interval is valid for a single look, at a number of samples that does not depend on their values.
    /// For all looks of this design use [`Design::sequence`].
    pub fn interval(&self, tally: &Tally, exact: bool) -> (Interval, Bound) {
        let estimate = tally.mean();
        if exact {
            return (Interval::exact(estimate), Bound::Exact);
        }
        if tally.count == 0 {
            return (Interval { estimate, low: 0.0, high: self.range }, Bound::Hoeffding);
        }
        let hoeffding = self.range * (self.hoeffding_log() / (2.0 * tally.count as f64)).sqrt();
        let bernstein = self.bernstein(tally);
        let (half, bound) = if bernstein < hoeffding {
            (bernstein, Bound::EmpiricalBernstein)
        } else {
            (hoeffding, Bound::Hoeffding)
        };
        let low = (estimate - half).max(0.0);
        let high = (estimate + half).min(self.range);
        (Interval { estimate, low, high }, bound)
    }

    /// Half-width by Maurer and Pontil, theorem 4, for both sides together.
    fn bernstein(&self, tally: &Tally) -> f64 {
        if tally.count < 2 {
            return f64::INFINITY;
        }
        // The logarithm is ln(2 / d) for one side. The two sides share the error probability.
        let log = self.bernstein_log() + std::f64::consts::LN_2;
        let count = tally.count as f64;
        (2.0 * tally.variance() * log / count).sqrt() + 7.0 * self.range * log / (3.0 * (count - 1.0))
    }

    /// Returns the same design for values of another range, with the number of samples unchanged. Use it for
    /// quantities reported beside the one that sampling was designed for.
    pub fn for_range(&self, range: f64) -> Design {
        Design { range, precision: self.precision * range / self.range, ..*self }
    }
}

/// Returns the interval for a part of the samples, such as those of one file type. The number of samples in
/// the part is random; given that number, they are independent samples of the part. The error probability is
/// split over all looks.
pub fn of_part(design: &Design, tally: &Tally, exact: bool) -> (Interval, Bound) {
    let confidence = 1.0 - (1.0 - design.confidence) / LOOKS as f64;
    Design { confidence, ..*design }.interval(tally, exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn design(precision: f64) -> Design {
        Design { confidence: 0.95, precision, range: 1.0 }
    }

    #[test]
    fn one_point_takes_at_most_86_mib() {
        let samples = design(0.01).samples_max();
        // Hoeffding's bound alone: ln(40) / 0.0002 = 18,445. Stopping early costs 19 % more.
        assert_eq!(samples, 21_911);
        let looks: Vec<u64> = design(0.01).looks().collect();
        assert_eq!((looks.len() as u64, looks.last()), (LOOKS, Some(&samples)));
        assert!(looks.is_sorted() && looks[0] * 50 < samples, "{looks:?}");
    }

    #[test]
    fn a_tally_is_mean_and_variance() {
        let mut tally = Tally::default();
        [2, 4, 4, 4, 5, 5, 7, 9].into_iter().for_each(|value| tally.add(value));
        assert_eq!(tally.mean(), 5.0);
        assert!((tally.variance() - 32.0 / 7.0).abs() < 1e-12);
        let (mut a, mut b) = (Tally::default(), Tally::default());
        [2, 4, 4].into_iter().for_each(|value| a.add(value));
        [4, 5, 5, 7, 9].into_iter().for_each(|value| b.add(value));
        a.merge(&b);
        assert_eq!(a, tally);
    }

    #[test]
    fn constant_data_needs_few_samples() {
        let design = design(0.01);
        let mut tally = Tally::default();
        (0..design.samples_max() / 4).for_each(|_| tally.add(0));
        let (interval, bound) = design.interval(&tally, false);
        assert_eq!(bound, Bound::EmpiricalBernstein);
        assert!(interval.half_width() < 0.01, "{interval:?}");
    }

    #[test]
    fn a_ratio_turns_its_ends_round() {
        let ratio = Interval { estimate: 0.5, low: 0.4, high: 0.8 }.dividing(1.0);
        assert_eq!(ratio, Interval { estimate: 2.0, low: 1.25, high: 2.5 });
    }
}
