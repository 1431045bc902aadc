//! Hyperscalers, figure 14 and the results beside it: fio-baseline at the edges of the bands of
//! compressibility.

use std::time::Duration;

use super::{Conclusions, Plan, Planned, Seen};
use crate::error::Result;
use crate::finding::{Finding, Needs};
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::value::{over, shown};

/// Percentage that the document's rows of 2:1 begin with, and those of 1:1.
const TWO: u8 = 40;
const ONE: u8 = 0;

pub(super) const HEADLINE: (&str, &str) = ("40 %", "write");

/// The document's bands: first percentage, last percentage, ratio, statement.
const BANDS: [(u8, u8, f64, &str); 6] = [
    (0, 39, 1.0, "hs-band-0"),
    (40, 69, 2.0, "hs-band-40"),
    (70, 89, 3.0, "hs-band-70"),
    (90, 94, 5.0, "hs-band-90"),
    (95, 99, 8.0, "hs-band-95"),
    (ZEROS, ZEROS, 28.0, "hs-band-100"),
];

/// Percentage at which fio writes zeros.
const ZEROS: u8 = 100;

/// Requests in flight of each job, as the document's.
const DEPTH: u32 = 128;

/// Time in which speeds are measured at two edges, and time for each further one.
const USUAL: Duration = Duration::from_secs(10 * 60);
const WHOLE: Duration = Duration::from_secs(5 * 60);

fn scene_name(percent: u8) -> String {
    format!("{percent} %")
}

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Planned> {
    let whole = |percent: u8| {
        let data = Data::Compressible(percent);
        let random = |pattern| Job::random(pattern, data).depth(DEPTH);
        let sequential = |pattern| Job::sequential(pattern, data).depth(DEPTH);
        let steps = vec![
            Step::job("write", sequential(Pattern::Write)),
            Step::job("read", sequential(Pattern::Read)),
            Step::job("random read, 8 jobs", random(Pattern::RandomRead).jobs(8)),
            Step::job("random write, 8 jobs", random(Pattern::RandomWrite).jobs(8)),
            Step::job("random 70/30, 8 jobs", random(Pattern::Mixed).jobs(8)),
            Step::job("random read, 1 job", random(Pattern::RandomRead)),
            Step::job("random write, 1 job", random(Pattern::RandomWrite)),
            Step::job("random 70/30, 1 job", random(Pattern::Mixed)),
            Step::job("write, 8 jobs", sequential(Pattern::Write).jobs(8).timed()),
            Step::job("read, 8 jobs", sequential(Pattern::Read).jobs(8).timed()),
        ];
        Scene::new(&scene_name(percent), steps)
    };
    // Other edges: the ratio, which a busy machine does not change.
    let filled = |percent: u8| {
        let job = Job::sequential(Pattern::Write, Data::Compressible(percent)).depth(DEPTH);
        Scene::new(&scene_name(percent), vec![Step::job("write", job)]).for_drives()
    };
    let edges = BANDS.iter().flat_map(|(first, last, ..)| [*first, *last]);
    let mut others: Vec<u8> = edges.filter(|edge| ![ONE, TWO].contains(edge)).collect();
    others.dedup();
    // Lower edges first: these are what the document's ratios are claimed of.
    others.sort_by_key(|edge| !BANDS.iter().any(|(first, ..)| first == edge));
    let more = plan.options.limit.saturating_sub(USUAL).as_secs() / WHOLE.as_secs();
    let (fast, filled_only) = others.split_at(others.len().min(more as usize));
    // In the order of what is lost if the time is short.
    let mut scenes = vec![whole(TWO), whole(ONE)];
    scenes.extend(filled_only.iter().chain(fast).copied().map(|edge| match fast.contains(&edge) {
        true => whole(edge),
        false => filled(edge),
    }));
    Ok(Planned::from(scenes))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let mut findings: Vec<Finding> = BANDS
        .iter()
        .map(|(first, last, document, name)| {
            let ratio = |percent: u8| {
                let scene = scene_name(percent);
                match percent {
                    ZEROS => seen.run.written_over_used(&scene, "write", seen.drive),
                    _ => seen.run.ratio(&scene, "write", seen.drive),
                }
            };
            let (low, high) = (ratio(*first), ratio(*last));
            let high = high.map(|high| high.median());
            let ours = |low: f64| match high {
                Some(high) if first != last => format!("{low:.2}:1 to {high:.2}:1"),
                _ if *first == ZEROS => format!("{low:.0}:1, written bytes by used ones"),
                _ => format!("{low:.2}:1"),
            };
            // 4 KiB of data take a header each; an upper edge reaches what the lower one does not.
            let why = match high {
                Some(high) if high >= *document => {
                    "true of the upper edge only: fio's data of this percentage has 1 / (1 - p)".to_string()
                }
                _ => "record headers and map are counted".to_string(),
            };
            seen.judge(name, low, Needs::AtLeast(*document), ours, &why)
        })
        .collect();
    let (two, one) = (scene_name(TWO), scene_name(ONE));
    let quotients = [
        ("hs14-write", "write", 2.2 / 2.3),
        ("hs14-read", "read", 1.0),
        ("hs14-randread", "random read, 8 jobs", 730.0 / 750.0),
        ("hs14-randwrite", "random write, 8 jobs", 525.0 / 190.0),
        ("hs14-mixed", "random 70/30, 8 jobs", 675.0 / 420.0),
    ];
    for (name, step, document) in quotients {
        let (above, below) = (seen.speed(&two, step), seen.speed(&one, step));
        let ours = |quotient: f64| format!("{:.0} / {:.0} MB/s: {quotient:.2}x", shown(above), shown(below));
        let why = "the processor is the limit here, not the medium: what compresses costs more of it";
        findings.push(seen.judge(name, over(above, below), Needs::AtLeast(document), ours, why));
    }
    let why = |step: &str| format!("a drive of PCIe 3 x4 against this machine{}", seen.raw_speed(&two, step));
    const MIB: f64 = 1.048_576;
    for (name, step, mib) in [("hs15", "read", 2928.0), ("hs16", "write", 2251.0)] {
        let speed = seen.speed(&two, step).map(|speed| speed.times(1.0 / MIB));
        let ours = |speed: f64| format!("{speed:.0} MiB/s");
        findings.push(seen.judge(name, speed, Needs::AtLeast(mib), ours, &why(step)));
    }
    for (name, step, kilo) in
        [("hs17", "random read, 8 jobs", 654.0), ("hs18", "random write, 8 jobs", 433.0)]
    {
        let rate = seen.requests(&two, step).map(|rate| rate.times(1e-3));
        let ours = |rate: f64| format!("{rate:.1} kIOPS");
        findings.push(seen.judge(name, rate, Needs::AtLeast(kilo), ours, &why(step)));
    }
    Conclusions { findings, ..Conclusions::default() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::planned;
    use super::*;

    #[test]
    fn more_time_shows_speeds_at_more_edges() {
        let edges = |minutes: u64| -> (Vec<String>, usize) {
            let scenes = planned("fio-baseline", Duration::from_secs(60 * minutes)).scenes;
            let whole = scenes.iter().filter(|scene| scene.steps.len() > 1);
            (whole.map(|scene| scene.name.clone()).collect(), scenes.len())
        };
        assert_eq!(edges(10), (vec!["40 %".to_string(), "0 %".to_string()], 11));
        assert_eq!(edges(14).0.len(), 2);
        assert_eq!(edges(20), (["40 %", "0 %", "70 %", "90 %"].map(str::to_string).to_vec(), 11));
        assert_eq!((edges(55).0.len(), edges(600).0.len()), (11, 11));
    }
}
