//! Linux Magazine: zeros against random data, and what its readers objected: full, fragmented and untrimmed,
//! then trimmed. A full drive of compressible data is overwritten before and after it was settled, as drives
//! are that were ever idle.

use super::{Conclusions, Plan, Planned, Seen};
use crate::error::Result;
use crate::finding::{Finding, Needs};
use crate::fio::{Amount, Data, Job, Pattern};
use crate::scene::{Action, Scene, Step};
use crate::value::{over, shown};

const RANDOM: Data = Data::Compressible(0);
/// Data that a full drive is overwritten with, and its capacity over its physical size.
const HALF: Data = Data::Compressible(50);
const HALF_EXPANSION: f64 = 1.6;
const UNSETTLED: &str = "full, overwritten";
const SETTLED: &str = "settled, full, overwritten";
const OVERWRITE: &str = "overwrite 16K at random";
/// Least speed of the settled drive, over that of the other.
const SETTLED_GOAL: f64 = 0.8;

pub(super) fn scenes(_: &Plan<'_>) -> Result<Planned> {
    let stream = |data| {
        vec![
            Step::job("write", Job::sequential(Pattern::Write, data)),
            Step::job("read", Job::sequential(Pattern::Read, data)),
        ]
    };
    // Zeros leave nothing behind to be collected.
    let objection = vec![
        Step::job("write new", Job::sequential(Pattern::Write, RANDOM)),
        // As much as the capacity, however long the run is.
        Step::job(
            "overwrite at random",
            Job { amount: Amount::Once, ..Job::random(Pattern::RandomWrite, RANDOM) },
        ),
        Step::job("write full", Job::sequential(Pattern::Write, RANDOM)),
        Step::prepare("trim", Job { block_kib: 1024, ..Job::sequential(Pattern::Trim, RANDOM) }),
        Step::job("write trimmed", Job::sequential(Pattern::Write, RANDOM)),
    ];
    let overwritten = |name, is_settled| {
        let mut steps = vec![Step::prepare("fill", Job::sequential(Pattern::Write, HALF))];
        if is_settled {
            steps.push(Step { name: "settle".to_string(), action: Action::Settle, is_shown: false });
        }
        steps.push(Step::job(OVERWRITE, Job { block_kib: 16, ..Job::random(Pattern::RandomWrite, HALF) }));
        Scene::new(name, steps).expanded(HALF_EXPANSION).for_drives()
    };
    Ok(Planned::from(vec![
        Scene::new("zeros", stream(Data::Zeros)),
        Scene::new("random data", stream(RANDOM)),
        Scene::new("full, then trimmed", objection).for_drives(),
        overwritten(UNSETTLED, false),
        overwritten(SETTLED, true),
    ]))
}

/// Findings about zeros against random data, from steps of any suite.
pub(super) fn zeros_over_random(seen: &Seen<'_>, zeros: &str, random: &str) -> Vec<Finding> {
    let pair = |name: &str, step: &str, document: f64, why: &str| {
        let (above, below) = (seen.speed(zeros, step), seen.speed(random, step));
        let ours = |ratio: f64| format!("{:.0} / {:.0} MB/s: {ratio:.1}x", shown(above), shown(below));
        let why = format!("{why}{}", seen.raw_speed(random, step));
        seen.judge(name, over(above, below), Needs::AtLeast(document), ours, &why)
    };
    vec![
        pair(
            "lm-write",
            "write",
            260.0 / 65.0,
            "random data is passed through at the speed of the disk, which is not the bottleneck",
        ),
        pair(
            "lm-read",
            "read",
            260.0 / 200.0,
            "zeros are made in the server, but still copied to the client",
        ),
    ]
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let scene = "full, then trimmed";
    let new = seen.speed(scene, "write new");
    let share = |name, step, needs, why| {
        let speed = seen.speed(scene, step);
        let ours =
            |share: f64| format!("{:.0} of {:.0} MB/s: {:.0} %", shown(speed), shown(new), share * 100.0);
        seen.judge(name, over(speed, new), needs, ours, why)
    };
    let mut findings = zeros_over_random(seen, "zeros", "random data");
    findings.push(share(
        "lm-full",
        "write full",
        Needs::AtLeast(0.5),
        "cleaning moves what random overwrites left in use, and takes its share of the disk and the processor",
    ));
    findings.push(share(
        "lm-trim",
        "write trimmed",
        Needs::AtLeast(1.0),
        "TRIM gives all space back, but segments are cleaned and discarded while the next writes run",
    ));
    let [settled, unsettled] = [SETTLED, UNSETTLED].map(|scene| seen.speed(scene, OVERWRITE));
    let notes = over(settled, unsettled).map(|share| {
        let (settled, unsettled, share, goal) =
            (shown(settled), shown(unsettled), share.median() * 100.0, SETTLED_GOAL * 100.0);
        format!(
            "{SETTLED}: {settled:.0} MB/s, {share:.0} % of the {unsettled:.0} MB/s of the same drive unsettled (goal: \
             at least {goal:.0} %)"
        )
    });
    Conclusions { findings, notes: notes.into_iter().collect(), ..Conclusions::default() }
}
