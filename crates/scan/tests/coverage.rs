//! Confidence intervals hold with the stated probability on distributions of known mean, with early stopping.
//! Intervals that are too narrow are detected.

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use scan::estimate::{Design, Interval, Tally, of_part};

/// Upper bound of the values: about the bytes of a block's record.
const RANGE: u64 = 4112;
const TRIALS: u32 = 2000;

/// A distribution over 0..=RANGE and its mean.
struct Distribution {
    name: &'static str,
    mean: f64,
    draw: fn(&mut StdRng) -> u64,
}

fn distributions() -> Vec<Distribution> {
    vec![
        Distribution {
            name: "half zeros, half raw",
            mean: 2056.0,
            draw: |rng| u64::from(rng.random_bool(0.5)) * RANGE,
        },
        Distribution {
            name: "one block in a hundred raw",
            mean: 41.12,
            draw: |rng| u64::from(rng.random_bool(0.01)) * RANGE,
        },
        Distribution { name: "uniform", mean: 2056.0, draw: |rng| rng.random_range(0..=RANGE) },
        Distribution { name: "always the same", mean: 1300.0, draw: |_| 1300 },
        Distribution {
            name: "a file system: zeros, text, media",
            mean: 0.2 * 0.0 + 0.5 * 1500.0 + 0.3 * 4112.0,
            draw: |rng| match rng.random_range(0..10) {
                0..2 => 0,
                2..7 => rng.random_range(1000..=2000),
                _ => RANGE,
            },
        },
        Distribution {
            name: "a rare kind that compresses well",
            mean: 0.999 * 4112.0 + 0.001 * 32.0,
            draw: |rng| if rng.random_bool(0.001) { 32 } else { RANGE },
        },
    ]
}

/// Draws samples as a scan does, up to the first look at which the precision is reached.
fn scan(
    design: &Design,
    draw: fn(&mut StdRng) -> u64,
    rng: &mut StdRng,
    interval: fn(&Design, &[Tally]) -> Interval,
) -> (Interval, u64) {
    let mut tally = Tally::default();
    let mut looks = Vec::new();
    let mut last = interval(design, &looks);
    for look in design.looks() {
        while tally.count < look {
            tally.add(draw(rng));
        }
        looks.push(tally);
        last = interval(design, &looks);
        if last.half_width() <= design.precision {
            break;
        }
    }
    (last, tally.count)
}

/// Largest number of misses of a correct interval in `TRIALS` trials: 3.5 standard deviations above the
/// expected number.
fn misses_allowed(confidence: f64) -> f64 {
    let expected = f64::from(TRIALS) * (1.0 - confidence);
    expected + 3.5 * (expected * confidence).sqrt()
}

fn misses(
    design: &Design,
    distribution: &Distribution,
    seed: u64,
    interval: fn(&Design, &[Tally]) -> Interval,
) -> (u32, u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut missed, mut samples) = (0, 0);
    for _ in 0..TRIALS {
        let (told, count) = scan(design, distribution.draw, &mut rng, interval);
        missed += u32::from(!(told.low..=told.high).contains(&distribution.mean));
        samples += count;
    }
    (missed, samples / u64::from(TRIALS))
}

fn told(design: &Design, looks: &[Tally]) -> Interval {
    design.sequence(looks).0
}

#[test]
fn the_interval_holds_as_often_as_promised() {
    for (confidence, points) in [(0.95, 5.0), (0.8, 8.0), (0.5, 5.0)] {
        let design = Design { confidence, precision: points / 100.0 * RANGE as f64, range: RANGE as f64 };
        for (seed, distribution) in distributions().iter().enumerate() {
            let (missed, samples) = misses(&design, distribution, seed as u64, told);
            eprintln!(
                "{}: {missed} of {TRIALS} missed, {samples} samples of {}",
                distribution.name,
                design.samples_max()
            );
            assert!(
                f64::from(missed) <= misses_allowed(confidence),
                "{}: {missed} missed at {confidence}",
                distribution.name
            );
        }
    }
}

#[test]
fn the_precision_is_reached_whatever_the_data() {
    let design = Design { confidence: 0.95, precision: 0.05 * RANGE as f64, range: RANGE as f64 };
    let mut rng = StdRng::seed_from_u64(3);
    for distribution in distributions() {
        let (interval, count) = scan(&design, distribution.draw, &mut rng, told);
        assert!(interval.half_width() <= design.precision * 1.000_001, "{}: {interval:?}", distribution.name);
        assert!(count <= design.samples_max());
    }
}

#[test]
fn data_that_varies_little_takes_fewer_samples() {
    let design = Design { confidence: 0.95, precision: 0.01 * RANGE as f64, range: RANGE as f64 };
    let mut rng = StdRng::seed_from_u64(4);
    let (_, count) = scan(&design, |rng| rng.random_range(1200..=1400), &mut rng, told);
    assert!(count * 4 < design.samples_max(), "{count}");
}

/// An interval of one standard error to each side. It is reported as 95 % but holds in two of three cases.
fn too_narrow(_: &Design, looks: &[Tally]) -> Interval {
    let tally = looks.last().copied().unwrap_or_default();
    let error = (tally.variance() / tally.count.max(1) as f64).sqrt();
    let mean = tally.mean();
    Interval { estimate: mean, low: mean - error, high: mean + error }
}

/// The textbook interval, checked repeatedly until it is narrow enough. It is wrong where rare values matter.
fn normal_approximation(_: &Design, looks: &[Tally]) -> Interval {
    let tally = looks.last().copied().unwrap_or_default();
    let error = 1.96 * (tally.variance() / tally.count.max(1) as f64).sqrt();
    let mean = tally.mean();
    Interval { estimate: mean, low: mean - error, high: mean + error }
}

#[test]
fn a_wrong_interval_is_noticed() {
    let design = Design { confidence: 0.95, precision: 0.05 * RANGE as f64, range: RANGE as f64 };
    let all = distributions();
    let (missed, _) = misses(&design, &all[0], 5, too_narrow);
    assert!(f64::from(missed) > misses_allowed(0.95), "{missed} missed");
    let (missed, _) = misses(&design, &all[1], 6, normal_approximation);
    assert!(f64::from(missed) > misses_allowed(0.95), "{missed} missed");
}

#[test]
fn parts_of_the_samples_hold_too() {
    // One sample in ten belongs to the part, whose mean is 500. Sampling stops when the precision for the
    // whole is reached.
    let design = Design { confidence: 0.9, precision: 0.08 * RANGE as f64, range: RANGE as f64 };
    let mut rng = StdRng::seed_from_u64(7);
    let mut missed = 0;
    for _ in 0..TRIALS {
        let (mut all, mut part) = (Tally::default(), Tally::default());
        let mut looks = Vec::new();
        for look in design.looks() {
            while all.count < look {
                let value = if rng.random_bool(0.1) {
                    let value = rng.random_range(0..=1000);
                    part.add(value);
                    value
                } else {
                    RANGE
                };
                all.add(value);
            }
            looks.push(all);
            if told(&design, &looks).half_width() <= design.precision {
                break;
            }
        }
        let (interval, _) = of_part(&design, &part, false);
        missed += u32::from(!(interval.low..=interval.high).contains(&500.0));
    }
    assert!(f64::from(missed) <= misses_allowed(0.9), "{missed} missed");
}
