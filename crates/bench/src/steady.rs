//! Steady state, after SNIA, *Solid State Storage Performance Test Specification* (PTS), section "Steady
//! State": the last five rounds of a job range by at most 20 % of their mean, and the straight line that fits
//! them best by at most 10 %.

use crate::sample::{Sample, Steady};

/// Rounds of the measurement window.
const WINDOW: usize = 5;
/// Most rounds of a job, as in the specification.
pub(crate) const ROUNDS_MAX: usize = 25;
const RANGE_MAX: f64 = 0.20;
const SLOPE_MAX: f64 = 0.10;

/// Assesses the last five rounds. Returns `None` if there are fewer.
pub(crate) fn assess(rounds: &[Sample]) -> Option<Steady> {
    let window: Vec<f64> = last(rounds)?.iter().map(|sample| sample.requests_per_second).collect();
    let count = window.len() as f64;
    let mean = window.iter().sum::<f64>() / count;
    let most = window.iter().copied().fold(f64::MIN, f64::max);
    let least = window.iter().copied().fold(f64::MAX, f64::min);
    // Least squares, with the rounds at 0, 1, 2, ...
    let middle = (count - 1.0) / 2.0;
    let products = window.iter().enumerate().map(|(at, value)| (at as f64 - middle) * (value - mean));
    let squares = (0..window.len()).map(|at| (at as f64 - middle).powi(2));
    let slope = products.sum::<f64>() / squares.sum::<f64>();
    let (range_share, slope_share) = ((most - least) / mean, (slope * (count - 1.0)).abs() / mean);
    Some(Steady {
        is_steady: range_share <= RANGE_MAX && slope_share <= SLOPE_MAX,
        rounds_count: rounds.len() as u32,
        range_share,
        slope_share,
    })
}

fn last(rounds: &[Sample]) -> Option<&[Sample]> {
    rounds.get(rounds.len().checked_sub(WINDOW)?..)
}

/// The last five rounds as one sample, or all if there are less.
pub(crate) fn merged(rounds: &[Sample]) -> Sample {
    let window = last(rounds).unwrap_or(rounds);
    let count = window.len().max(1) as f64;
    let sum = |of: &dyn Fn(&Sample) -> f64| window.iter().map(of).sum::<f64>();
    let all = |of: &dyn Fn(&Sample) -> Option<f64>| window.iter().map(of).sum::<Option<f64>>();
    let seconds = sum(&|it| it.seconds);
    let end = window.last().copied().unwrap_or_default();
    Sample {
        bytes: window.iter().map(|it| it.bytes).sum(),
        seconds,
        requests_per_second: sum(&|it| it.requests_per_second * it.seconds) / seconds,
        p50_us: all(&|it| it.p50_us).map(|sum| sum / count),
        // Not the mean: one slow round in five is part of the hundredth.
        p99_us: window
            .iter()
            .map(|it| it.p99_us)
            .collect::<Option<Vec<_>>>()
            .map(|all| all.into_iter().fold(0.0, f64::max)),
        client_cpu_seconds: sum(&|it| it.client_cpu_seconds),
        server_cpu_seconds: all(&|it| it.server_cpu_seconds),
        device_cpu_seconds: all(&|it| it.device_cpu_seconds),
        write_amplification: all(&|it| it.write_amplification).map(|sum| sum / count),
        steady: Some(
            assess(rounds).unwrap_or(Steady { rounds_count: rounds.len() as u32, ..Steady::default() }),
        ),
        // What the store holds at the end.
        ..end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(rates: &[f64]) -> Vec<Sample> {
        let sample = |rate: &f64| Sample {
            bytes: 4096,
            seconds: 2.0,
            requests_per_second: *rate,
            client_cpu_seconds: 0.5,
            ..Sample::default()
        };
        rates.iter().map(sample).collect()
    }

    #[test]
    fn five_level_rounds_are_steady() {
        assert_eq!(assess(&rounds(&[100.0; 4])), None);
        let level = assess(&rounds(&[500.0, 100.0, 105.0, 95.0, 100.0, 102.0])).expect("five rounds");
        assert!(level.is_steady && level.rounds_count == 6, "{level:?}");
        assert!((level.range_share - 10.0 / 100.4).abs() < 1e-9, "{level:?}");
        let wide = assess(&rounds(&[100.0, 125.0, 100.0, 100.0, 100.0])).expect("five rounds");
        assert!(!wide.is_steady && wide.range_share > 0.2 && wide.slope_share < 0.1, "{wide:?}");
        // By 4.5 each: 18 % from end to end.
        let falling = assess(&rounds(&[109.0, 104.5, 100.0, 95.5, 91.0])).expect("five rounds");
        assert!(!falling.is_steady && falling.range_share < 0.2, "{falling:?}");
        assert!((falling.slope_share - 0.18).abs() < 1e-9, "{falling:?}");
    }

    #[test]
    fn the_last_five_rounds_are_the_sample() {
        let sample = merged(&rounds(&[900.0, 10.0, 20.0, 30.0, 40.0, 50.0]));
        assert_eq!((sample.bytes, sample.seconds, sample.requests_per_second), (5 * 4096, 10.0, 30.0));
        assert_eq!((sample.client_cpu_seconds, sample.server_cpu_seconds), (2.5, None));
        assert_eq!(sample.steady.map(|it| (it.is_steady, it.rounds_count)), Some((false, 6)));
        let short = merged(&rounds(&[10.0, 20.0]));
        assert_eq!((short.requests_per_second, short.steady.map(|it| it.rounds_count)), (15.0, Some(2)));
    }
}
