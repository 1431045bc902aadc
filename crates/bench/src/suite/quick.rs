//! Two minutes of all: zeros, random data and SNIA's job on one drive.

use super::{Conclusions, Plan, Planned, Seen, zeros};
use crate::error::Result;
use crate::finding::Needs;
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::value::shown;

pub(super) const HEADLINE: (&str, &str) = (SNIA, "write");

/// SNIA's data: `buffer_compress_percentage=60`.
const SNIA: &str = "60 %";

pub(super) fn scenes(_: &Plan<'_>) -> Result<Planned> {
    let scene = |name: &str, data, depth| {
        let sequential = |pattern| Job::sequential(pattern, data).depth(depth);
        Scene::new(
            name,
            vec![
                Step::job("write", sequential(Pattern::Write)),
                Step::job("read", sequential(Pattern::Read)),
                Step::job("random read", Job::random(Pattern::RandomRead, data)),
                Step::job("random write", Job::random(Pattern::RandomWrite, data)),
            ],
        )
    };
    Ok(Planned::from(vec![
        scene(SNIA, Data::Compressible(60), 128),
        scene("zeros", Data::Zeros, 16),
        scene("random data", Data::Compressible(0), 16),
    ]))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let ratio = seen.run.ratio(SNIA, "write", seen.drive);
    let waf = |step| seen.run.write_amplification(SNIA, step, seen.drive);
    let (filled, overwritten) = (waf("write"), waf("random write"));
    // A drive spends most of its life full.
    let worst = filled.zip(overwritten).map(|(filled, overwritten)| filled.with(overwritten, f64::max));
    let decayed = seen.run.ratio(SNIA, "random write", seen.drive);
    let mut findings = zeros::zeros_over_random(seen, "zeros", "random data");
    findings.push(seen.judge(
        "snia-ratio",
        ratio,
        Needs::AtLeast(2.0),
        |ratio| {
            let after = decayed
                .map_or(String::new(), |after| format!(", {:.2}:1 after random overwrites", after.median()));
            format!("{ratio:.2}:1{after}")
        },
        "headers and map take their share",
    ));
    findings.push(seen.judge(
        "snia-waf",
        worst,
        Needs::AtMost(1.0 / 1.05),
        |_| {
            let [filled, overwritten] = [filled, overwritten].map(shown);
            format!("{filled:.2} filled, {overwritten:.2} overwritten at random")
        },
        "random writes of 4 KiB take a header each, and cleaning moves what is still used",
    ));
    Conclusions { findings, ..Conclusions::default() }
}
