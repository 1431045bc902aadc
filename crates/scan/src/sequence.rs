//! A confidence sequence for a mean: an interval that holds at all looks at once. Sampling may stop at any
//! look, and further looks do not widen the interval.
//!
//! This is the predictable plug-in empirical Bernstein confidence sequence (I. Waudby-Smith and A. Ramdas,
//! *Estimating means of bounded random variables by betting*, Journal of the Royal Statistical Society B 86,
//! 2024, theorem 2). For values x from 0 to 1, with weights l in (0, 1) and guesses m of the mean that depend
//! on earlier samples only, the mean is within
//!
//! ```text
//! (sum of l x) / (sum of l)  +-  (ln(2 / d) + sum of (x - m)^2 (-ln(1 - l) - l)) / (sum of l)
//! ```
//!
//! at all moments with probability 1 - d. Here weight and guess change only between looks, so the sums of the
//! samples between two looks are sufficient, in whatever order threads added them.

use crate::estimate::{Bound, Design, Interval, Tally};

/// Largest weight. Near 1, the penalty of a value far from the guess grows without limit. The number is from
/// the paper.
const WEIGHT_MAX: f64 = 0.5;

impl Design {
    /// Returns the interval for the mean of samples drawn with replacement. `looks` are the tallies of all
    /// looks so far; each includes the samples of the earlier looks. The interval holds at all looks at once.
    pub fn sequence(&self, looks: &[Tally]) -> (Interval, Bound) {
        let Some(last) = looks.last().filter(|last| last.count > 0) else {
            return (Interval { estimate: 0.0, low: 0.0, high: self.range }, Bound::Hoeffding);
        };
        let estimate = last.mean();
        // Hoeffding (2.17): P(max over k <= n of |S_k - k mu| >= t) <= 2 exp(-2 t^2 / (n range^2)), where n
        // is the largest possible number of samples.
        let most = self.samples_max().max(last.count) as f64;
        let hoeffding = self.range * (most * self.hoeffding_log() / 2.0).sqrt() / last.count as f64;
        let (center, bernstein) = self.bernstein_sequence(looks);
        let (center, half, bound) = match bernstein < hoeffding {
            true => (center, bernstein, Bound::EmpiricalBernstein),
            false => (estimate, hoeffding, Bound::Hoeffding),
        };
        // The center is a weighted mean and may differ from the plain mean. If the plain mean is outside the
        // interval, the end is moved to it.
        let low = (center - half).clamp(0.0, estimate);
        let high = (center + half).min(self.range).max(estimate);
        (Interval { estimate, low, high }, bound)
    }

    /// Center and half-width of the interval, in the unit of the values.
    fn bernstein_sequence(&self, looks: &[Tally]) -> (f64, f64) {
        let log = self.bernstein_log();
        let (mut weights, mut weighted, mut penalty) = (0.0, 0.0, log);
        let mut before = Tally::default();
        for look in looks {
            let new = look.since(&before);
            // Guesses from the earlier looks, as if a first sample of 1/2 with a variance of 1/4 had preceded
            // them.
            let count = before.count as f64 + 1.0;
            let guess = (0.5 + before.mean() / self.range * before.count as f64) / count;
            let spread =
                before.variance() / (self.range * self.range) * before.count.saturating_sub(1) as f64;
            let variance = (0.25 + spread) / count;
            // The best weight for reaching the precision, or, once more samples than that are drawn, the best
            // weight for their number.
            let for_precision = self.precision / self.range / variance;
            let for_count = (2.0 * log / (variance * look.count.max(1) as f64)).sqrt();
            let weight = for_precision.min(for_count).min(WEIGHT_MAX);
            weights += weight * new.count as f64;
            weighted += weight * new.sum as f64 / self.range;
            penalty += new.squares_around(guess * self.range) / (self.range * self.range)
                * (-(1.0 - weight).ln() - weight);
            before = *look;
        }
        if weights == 0.0 {
            return (0.0, f64::INFINITY);
        }
        (weighted / weights * self.range, penalty / weights * self.range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tallies at the looks of a design, with sample values given by a function.
    fn looks(design: &Design, value: impl Fn(u64) -> u64) -> Vec<Tally> {
        let mut tally = Tally::default();
        let at = |look| {
            (tally.count..look).for_each(|sample| tally.add(value(sample)));
            tally
        };
        design.looks().map(at).collect()
    }

    #[test]
    fn samples_follow_from_the_variance() {
        let design = Design { confidence: 0.95, precision: 0.01, range: 1.0 };
        let needed = |value: fn(u64) -> u64| {
            let looks = looks(&Design { range: 1.0, ..design }, value);
            let reached = |at: &usize| design.sequence(&looks[..*at]).0.half_width() <= design.precision;
            (1..=looks.len()).find(reached).map(|at| looks[at - 1].count)
        };
        // ln(2 / d) / (precision * weight) for values without variance.
        assert!(needed(|_| 1).is_some_and(|count| count < 1500), "{:?}", needed(|_| 1));
        // About 2 variance ln(2 / d) / precision^2.
        let rare = needed(|sample| u64::from(sample % 16 == 0));
        assert!(rare.is_some_and(|count| count < 8000), "{rare:?}");
        let worst = needed(|sample| sample % 2);
        assert_eq!(worst, Some(design.samples_max()));
    }

    #[test]
    fn nothing_drawn_says_nothing() {
        let design = Design { confidence: 0.95, precision: 0.01, range: 4112.0 };
        for looks in [&[][..], &[Tally::default()]] {
            assert_eq!(design.sequence(looks).0, Interval { estimate: 0.0, low: 0.0, high: 4112.0 });
        }
    }
}
