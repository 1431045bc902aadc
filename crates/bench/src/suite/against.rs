//! Hyperscalers, figure 22: data of 3:1 on Pumice and on what else there is.

use super::{Conclusions, Plan, Seen};
use crate::error::Result;
use crate::finding::Needs;
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::value::{Value, over, shown};

/// The document's percentage for 3:1 (`comp_ratio=80`).
const DATA: Data = Data::Compressible(80);
const SCENE: &str = "3:1";
pub(super) const HEADLINE: (&str, &str) = (SCENE, "write");
const RANDOM: [(&str, Pattern); 3] = [
    ("random read", Pattern::RandomRead),
    ("random write", Pattern::RandomWrite),
    ("random 70/30", Pattern::Mixed),
];

pub(super) fn scenes(_: &Plan<'_>) -> Result<Vec<Scene>> {
    let mut steps = vec![
        Step::job("write", Job::sequential(Pattern::Write, DATA)),
        Step::job("read", Job::sequential(Pattern::Read, DATA)),
    ];
    steps.extend(RANDOM.map(|(name, pattern)| Step::job(name, Job::random(pattern, DATA).depth(64))));
    Ok(vec![Scene::new(SCENE, steps)])
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    // The sum over three patterns: "combined IOPS".
    let combined = |target: &str| {
        let each = RANDOM.iter().map(|(name, _)| seen.run.requests(SCENE, name, target));
        let each: Vec<Value> = each.collect::<Option<_>>()?;
        each.into_iter().reduce(|one, other| one.with(other, |one, other| one + other))
    };
    let others = seen.run.targets.iter().filter(|target| target.name != seen.drive);
    let found: Vec<(&str, Value)> =
        others.filter_map(|target| Some((target.name.as_str(), combined(&target.name)?))).collect();
    let best =
        found.iter().map(|(_, rate)| *rate).max_by(|one, other| one.median().total_cmp(&other.median()));
    let ours = |quotient: f64| {
        let all: Vec<String> =
            found.iter().map(|(name, rate)| format!("{name} {:.1}k", rate.median() / 1e3)).collect();
        let drive = shown(combined(seen.drive)) / 1e3;
        format!("{drive:.1}k against {}: {quotient:.2}x of the best", all.join(", "))
    };
    let quotient = over(combined(seen.drive), best);
    let why = "random requests of 4 KiB cost Pumice more of the processor than a store that does not compress, or \
               that answers from the page cache; dm-vdo and zvol need a kernel that has them (docs/lab)";
    let findings = vec![seen.judge("hs22", quotient, Needs::AtLeast(1.0), ours, why)];
    Conclusions { findings, ..Conclusions::default() }
}
