//! From which speed of the disk on does compression make a volume slower? Disks of limited rate, with and
//! without it.

use super::{Conclusions, Plan, Planned, Seen};
use crate::documents::statement;
use crate::error::Result;
use crate::finding::{Finding, Needs};
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

pub(super) fn scenes(_: &Plan<'_>) -> Result<Planned> {
    let steps = || {
        vec![
            Step::job("write", Job::sequential(Pattern::Write, DATA)),
            Step::job("read", Job::sequential(Pattern::Read, DATA)),
        ]
    };
    let mut scenes = vec![Scene::new(UNLIMITED, steps())];
    scenes.extend(RATES.map(|rate| Scene::new(&scene_name(rate), steps()).limited(rate)));
    Ok(Planned::from(scenes))
}

/// Where `gains`, pairs of rate and gain, fall through 1 with rising rate, by straight lines between rates;
/// `None` if they do not.
fn crossover(gains: &[(f64, f64)]) -> Option<f64> {
    let mut gains = gains.to_vec();
    gains.sort_by(|one, other| one.0.total_cmp(&other.0));
    let pair = gains.windows(2).find(|pair| pair[0].1 >= 1.0 && pair[1].1 < 1.0)?;
    let [(low, above), (high, below)] = [pair[0], pair[1]];
    Some(low + (high - low) * (above - 1.0) / (above - below))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let mut conclusions = Conclusions::default();
    let raw_speed = |scene: &str, step: &str| seen.run.speed(scene, step, seen.raw?);
    let gain = |scene: &str, step: &str| over(seen.speed(scene, step), raw_speed(scene, step));
    for step in ["write", "read"] {
        let fastest = seen.speed(UNLIMITED, step);
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
        // A disk is as fast as a raw file on it, which is not just the rate of its name. The fastest may be
        // slower than that.
        let scenes = RATES.map(scene_name).into_iter().chain([UNLIMITED.to_string()]);
        let gains: Vec<(f64, f64)> = scenes
            .filter_map(|scene| Some((raw_speed(&scene, step)?.median(), gain(&scene, step)?.median())))
            .collect();
        if let Some(predicted) = fastest.filter(|_| seen.raw.is_some()) {
            conclusions.predictions.push(Prediction {
                subject: format!("{step}s: rate in MB/s above which a raw file is faster"),
                model: "the unlimited speed of the drive".to_string(),
                predicted: predicted.median(),
                measured: crossover(&gains),
            });
        }
    }
    const NAME: &str = "pu-slow";
    if seen.raw.is_none() {
        let why = "no target without compression to compare with: --target raw";
        conclusions.findings.push(Finding::untested(statement(NAME), why));
        return conclusions;
    }
    let slowest = scene_name(RATES[0]);
    conclusions.findings.push(seen.judge(
        NAME,
        gain(&slowest, "write"),
        Needs::AtLeast(2.4),
        |gain| {
            let raw = shown(raw_speed(&slowest, "write"));
            format!("{:.0} / {raw:.0} MB/s: {gain:.2}x", shown(seen.speed(&slowest, "write")))
        },
        "the flush at the end, checkpoints and headers are written at the rate of the disk, too",
    ));
    conclusions
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Measured, concluded};
    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn gains_cross_one() {
        assert_eq!(crossover(&[(100.0, 2.0), (200.0, 1.5), (300.0, 0.5)]), Some(250.0));
        // The fastest disk was measured slower than one that is limited.
        assert_eq!(crossover(&[(100.0, 2.0), (300.0, 0.5), (200.0, 1.5)]), Some(250.0));
        assert_eq!(crossover(&[(100.0, 2.0), (200.0, 1.5)]), None);
        assert_eq!(crossover(&[(100.0, 0.9), (200.0, 0.5)]), None);
        assert_eq!(crossover(&[]), None);
    }

    #[test]
    fn disks_are_as_fast_as_a_raw_file_on_them() {
        let speeds = [("100 MB/s", 90.0, 180.0), ("250 MB/s", 200.0, 300.0), ("500 MB/s", 400.0, 200.0)];
        let measured: Vec<Measured<'_>> = speeds
            .into_iter()
            .chain([(UNLIMITED, 300.0, 300.0)])
            .flat_map(|(scene, raw, drive)| [(scene, "raw", raw), (scene, "pumice", drive)])
            .map(|(scene, target, rate)| Measured { scene, step: "write", target, rate, ratio: Some(2.4) })
            .collect();
        let run = concluded("slow-disk", &["pumice", "raw"], &measured, &[], &[]);
        let crossing = run.predictions.iter().find(|it| it.subject.starts_with("writes: rate"));
        // 1.0 at 300 MB/s, and 0.5 at 400.
        assert_eq!(crossing.and_then(|it| it.measured), Some(300.0), "{:?}", run.predictions);
        let alone = concluded("slow-disk", &["pumice"], &measured[..2], &[], &[]);
        let [finding] = alone.findings.as_slice() else { panic!("{:?}", alone.findings) };
        assert_eq!((finding.statement.as_str(), finding.verdict), ("pu-slow", Verdict::CannotBeTested));
        assert!(finding.why.contains("--target raw"), "{}", finding.why);
    }
}
