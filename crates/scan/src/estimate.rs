//! How far a mean over random samples can be from the truth.
//!
//! What is estimated is always a bounded quantity of a 4 KiB block (or of a larger unit), such as the bytes it would be
//! stored in. Samples are drawn independently and uniformly over the blocks of all sources, so that large sources count
//! as much as they weigh. Where blocks are stored together, the value of a block is its part of what its group takes: the
//! mean over blocks is the same, and each drawn block is one sample, however many blocks are read for it. Three bounds for
//! the mean of independent samples in `[0, range]` are used:
//!
//! * **Hoeffding** (W. Hoeffding, *Probability Inequalities for Sums of Bounded Random Variables*, JASA 58, 1963,
//!   theorem 1): knows the range only, so it says beforehand how many samples are enough. In the form of (2.17) of that
//!   paper it holds for all partial sums at once.
//! * **Empirical Bernstein as a confidence sequence** ([`Design::sequence`]): tighter where the samples vary little, and holds
//!   at all moments at which sampling may stop.
//! * **Empirical Bernstein for one moment** (A. Maurer and M. Pontil, *Empirical Bernstein Bounds and Sample Variance
//!   Penalization*, COLT 2009, theorem 4): for streams, whose samples are drawn without replacement, and for parts.
//!
//! The promised confidence is split between Hoeffding's bound and the other one. So the interval told at the end holds with
//! the promised probability whenever that end came.

use serde::{Deserialize, Serialize};

/// Moments at which sampling may stop.
pub const LOOKS: u64 = 24;
/// Samples at a look, as a multiple of those at the look before: at most a sixth is drawn in vain.
const LOOKS_FACTOR: f64 = 1.2;
/// Share of the allowed error probability that Hoeffding's bound gets, and so the most samples there may be: 19 % more than
/// by Hoeffding's bound alone. The other bound gets the rest, and mostly ends the sampling long before.
const HOEFFDING_SHARE: f64 = 0.5;

/// What a mean is said to lie between.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The mean of the samples (or the truth, where everything was read).
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// A value that is known.
    pub fn exact(value: f64) -> Interval {
        Interval { estimate: value, low: value, high: value }
    }

    /// The larger of the distances from the estimate to the ends.
    pub fn half_width(&self) -> f64 {
        (self.high - self.estimate).max(self.estimate - self.low)
    }

    /// Each value multiplied.
    pub fn scaled(&self, factor: f64) -> Interval {
        Interval { estimate: self.estimate * factor, low: self.low * factor, high: self.high * factor }
    }

    /// `numerator` divided by each value; the ends change places.
    pub fn dividing(&self, numerator: f64) -> Interval {
        let ratio = |value: f64| if value > 0.0 { numerator / value } else { 0.0 };
        Interval { estimate: ratio(self.estimate), low: ratio(self.high), high: ratio(self.low) }
    }
}

/// Which bound an interval rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Everything was read: there is nothing to estimate.
    Exact,
    /// Hoeffding's inequality.
    Hoeffding,
    /// The empirical Bernstein bound.
    EmpiricalBernstein,
}

/// Sums over samples. Integers, so that the order in which threads add to it does not matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Samples.
    pub count: u64,
    /// Sum of their values.
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

    /// Adds a sample so many times.
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

    /// The samples added since an earlier state of this tally.
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

    /// Of two tallies of 0 and 1 over the same samples, never both 1: 1 where either is.
    pub fn or(&self, other: &Tally) -> Tally {
        debug_assert_eq!(self.count, other.count);
        Tally { count: self.count, sum: self.sum + other.sum, squares: self.squares + other.squares }
    }

    /// Mean of the samples; 0 without any.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }

    /// Sample variance (divided by the count less one); 0 for fewer than two samples.
    pub fn variance(&self) -> f64 {
        if self.count < 2 {
            return 0.0;
        }
        // n * squares - sum^2 in integers: no cancellation.
        let spread = u128::from(self.count) * self.squares - self.sum * self.sum;
        spread as f64 / (self.count as f64 * (self.count - 1) as f64)
    }
}

/// What is promised, and so how many samples it takes at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Design {
    /// Probability that an interval holds the truth, in (0, 1).
    pub confidence: f64,
    /// Half-width of the interval to be reached, in the unit of the values.
    pub precision: f64,
    /// Values lie between 0 and this.
    pub range: f64,
}

impl Design {
    pub(crate) fn hoeffding_log(&self) -> f64 {
        (2.0 / ((1.0 - self.confidence) * HOEFFDING_SHARE)).ln()
    }

    /// Of the bound that depends on the variance.
    pub(crate) fn bernstein_log(&self) -> f64 {
        (2.0 / ((1.0 - self.confidence) * (1.0 - HOEFFDING_SHARE))).ln()
    }

    /// Samples after which Hoeffding's bound alone gives the precision.
    pub fn samples_max(&self) -> u64 {
        let relative = self.precision / self.range;
        (self.hoeffding_log() / (2.0 * relative * relative)).ceil() as u64
    }

    /// Numbers of samples at which to look whether the precision is reached; the last is [`Design::samples_max`].
    pub fn looks(&self) -> impl Iterator<Item = u64> + use<> {
        let most = self.samples_max();
        (0..LOOKS).rev().map(move |left| {
            let share = LOOKS_FACTOR.powi(-i32::try_from(left).unwrap_or(i32::MAX));
            if left == 0 { most } else { (most as f64 * share).ceil() as u64 }
        })
    }

    /// The interval for the mean; `exact` if the samples are all there is.
    ///
    /// Correct once, for a number of samples that does not depend on their values. For the looks of this design:
    /// [`Design::sequence`].
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
        // ln(2 / d) for one side; two sides share the error.
        let log = self.bernstein_log() + std::f64::consts::LN_2;
        let count = tally.count as f64;
        (2.0 * tally.variance() * log / count).sqrt() + 7.0 * self.range * log / (3.0 * (count - 1.0))
    }

    /// The same promise for values of another range, with the number of samples left as it is: for quantities that are
    /// told beside the one that sampling was designed for.
    pub fn for_range(&self, range: f64) -> Design {
        Design { range, precision: self.precision * range / self.range, ..*self }
    }
}

/// Interval of a part of the samples (those of one file type, say), whose number is itself random: independent
/// samples of the part once that number is given. The error is split over all looks.
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
        // Hoeffding alone: ln(40) / 0.0002 = 18,445; 19 % more for the right to stop early.
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
