//! From which speed of the disk on does compression make a volume slower? Disks of limited rate, with and without it.

use super::{Conclusions, Plan, Seen};
use crate::error::Result;
use crate::finding::Needs;
use crate::fio::{Data, Job, Pattern};
use crate::run::Prediction;
use crate::scene::{Scene, Step};
use crate::value::{over, shown};

/// SNIA's data.
const DATA: Data = Data::Compressible(60);
/// Rates of the disks, in MB/s.
const RATES: [u32; 3] = [100, 250, 500];
const UNLIMITED: &str = "as fast as it is";
pub(super) const HEADLINE: (&str, &str) = (UNLIMITED, "write");

fn scene_name(rate: u32) -> String {
    format!("{rate} MB/s")
}

pub(super) fn scenes(_: &Plan<'_>) -> Result<Vec<Scene>> {
    let steps = || {
        vec![
            Step::job("write", Job::sequential(Pattern::Write, DATA)),
            Step::job("read", Job::sequential(Pattern::Read, DATA)),
        ]
    };
    let mut scenes = vec![Scene::new(UNLIMITED, steps())];
    scenes.extend(RATES.map(|rate| Scene::new(&scene_name(rate), steps()).limited(rate)));
    Ok(scenes)
}

/// Where `gains`, pairs of rate and gain in rising order of rates, fall through 1, by straight lines between rates;
/// `None` if they do not.
fn crossover(gains: &[(f64, f64)]) -> Option<f64> {
    let pair = gains.windows(2).find(|pair| pair[0].1 >= 1.0 && pair[1].1 < 1.0)?;
    let [(low, above), (high, below)] = [pair[0], pair[1]];
    Some(low + (high - low) * (above - 1.0) / (above - below))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let mut conclusions = Conclusions::default();
    let Some(raw) = seen.raw else { return conclusions };
    for step in ["write", "read"] {
        let fastest = seen.speed(UNLIMITED, step);
        let plain = seen.run.speed(UNLIMITED, step, raw);
        let gain = |scene: &str| over(seen.speed(scene, step), seen.run.speed(scene, step, raw));
        // A disk is written at ratio times its rate, until the processor is the limit.
        let ratio = seen.run.ratio(UNLIMITED, "write", seen.drive);
        for rate in RATES {
            let (Some(fastest), Some(ratio)) = (fastest, ratio) else { continue };
            conclusions.predictions.push(Prediction {
                subject: format!("{step}s on {rate} MB/s, in MB/s"),
                model: "ratio x rate, at most the unlimited speed".to_string(),
                predicted: (f64::from(rate) * ratio.median()).min(fastest.median()),
                measured: seen.speed(&scene_name(rate), step).map(|speed| speed.median()),
            });
        }
        let mut gains: Vec<(f64, f64)> = RATES
            .iter()
            .filter_map(|rate| Some((f64::from(*rate), gain(&scene_name(*rate))?.median())))
            .collect();
        gains.extend(plain.zip(gain(UNLIMITED)).map(|(plain, gain)| (plain.median(), gain.median())));
        if let Some(predicted) = fastest {
            conclusions.predictions.push(Prediction {
                subject: format!("{step}s: rate in MB/s above which a raw file is faster"),
                model: "the unlimited speed of the drive".to_string(),
                predicted: predicted.median(),
                measured: crossover(&gains),
            });
        }
    }
    let slowest = scene_name(RATES[0]);
    let gain = over(seen.speed(&slowest, "write"), seen.run.speed(&slowest, "write", raw));
    conclusions.findings.push(seen.judge(
        "pu-slow",
        gain,
        Needs::AtLeast(2.4),
        |gain| {
            let raw = shown(seen.run.speed(&slowest, "write", raw));
            format!("{:.0} / {raw:.0} MB/s: {gain:.2}x", shown(seen.speed(&slowest, "write")))
        },
        "the flush at the end, checkpoints and headers are written at the rate of the disk, too",
    ));
    conclusions
}

#[cfg(test)]
mod tests {
    use super::crossover;

    #[test]
    fn gains_cross_one() {
        assert_eq!(crossover(&[(100.0, 2.0), (200.0, 1.5), (300.0, 0.5)]), Some(250.0));
        assert_eq!(crossover(&[(100.0, 2.0), (200.0, 1.5)]), None);
        assert_eq!(crossover(&[(100.0, 0.9), (200.0, 0.5)]), None);
        assert_eq!(crossover(&[]), None);
    }
}
