//! Hyperscalers, figure 22: data of 3:1 on Pumice and on what else there is.

use super::{Conclusions, Plan, Planned, Seen};
use crate::error::Result;
use crate::finding::{Needs, Verdict};
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::value::{Value, over, shown};

/// The document's percentage for 3:1 (`comp_ratio=80`).
const DATA: Data = Data::Compressible(80);
const SCENE: &str = "3:1";
/// Targets of `scripts/bench.sh kernel against`, which need a kernel of its own.
const LAB_RIVALS: [&str; 2] = ["vdo", "zvol"];
pub(super) const HEADLINE: (&str, &str) = (SCENE, "write");
const RANDOM: [(&str, Pattern); 3] = [
    ("random read", Pattern::RandomRead),
    ("random write", Pattern::RandomWrite),
    ("random 70/30", Pattern::Mixed),
];

pub(super) fn scenes(_: &Plan<'_>) -> Result<Planned> {
    let mut steps = vec![
        Step::job("write", Job::sequential(Pattern::Write, DATA)),
        Step::job("read", Job::sequential(Pattern::Read, DATA)),
    ];
    steps.extend(RANDOM.map(|(name, pattern)| Step::job(name, Job::random(pattern, DATA).depth(64))));
    Ok(Planned::from(vec![Scene::new(SCENE, steps)]))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    // The sum over three patterns: "combined IOPS".
    let combined = |target: &str| {
        let each = RANDOM.iter().map(|(name, _)| seen.run.requests(SCENE, name, target));
        let each: Vec<Value> = each.collect::<Option<_>>()?;
        each.into_iter().reduce(|one, other| one.with(other, |one, other| one + other))
    };
    let others =
        seen.run.targets.iter().map(|target| target.name.as_str()).filter(|name| *name != seen.drive);
    let (found, missing): (Vec<_>, Vec<_>) =
        others.map(|name| (name, combined(name))).partition(|(_, rate)| rate.is_some());
    let found: Vec<(&str, Value)> =
        found.into_iter().filter_map(|(name, rate)| Some((name, rate?))).collect();
    let best =
        found.iter().map(|(_, rate)| *rate).max_by(|one, other| one.median().total_cmp(&other.median()));
    // Of those that this machine cannot have, which the run does not name among its targets.
    let absent = seen.run.left_out.iter().filter_map(|line| line.strip_prefix("target ")?.split_once(": "));
    let absent: Vec<&str> = absent.map(|(name, _)| name).collect();
    let ours = |quotient: f64| {
        let all: Vec<String> =
            found.iter().map(|(name, rate)| format!("{name} {:.1}k", rate.median() / 1e3)).collect();
        let drive = shown(combined(seen.drive)) / 1e3;
        let absent = match absent.as_slice() {
            [] => String::new(),
            names => format!("; not on this machine: {}", names.join(", ")),
        };
        format!("{drive:.1}k against {}: {quotient:.2}x of the best{absent}", all.join(", "))
    };
    let quotient = over(combined(seen.drive), best);
    let mut why =
        "random requests of 4 KiB cost Pumice more of the processor than a store that does not compress, or \
                   that answers from the page cache"
            .to_string();
    let lab = LAB_RIVALS.iter().filter(|name| !found.iter().any(|(rival, _)| rival == *name));
    let lab: Vec<&str> = lab.copied().collect();
    if !lab.is_empty() {
        why += &format!("; {} in the lab kernel: lab/kernel.md", lab.join(" and "));
    }
    let finding = seen.judge("hs22", quotient, Needs::AtLeast(1.0), ours, &why);
    // Nothing holds against all if one of them has no figures.
    let failed = missing.iter().find_map(|(name, _)| seen.run.failed.iter().find(|it| it.target == *name));
    let finding = match (finding.verdict, failed, missing.first()) {
        (Verdict::CannotBeTested, ..) | (_, None, None) => finding,
        (_, Some(failed), _) => finding.fails_by(failed),
        (_, None, Some((name, _))) => {
            finding.open_without(&format!("{name} was not measured: see what was left out"))
        }
    };
    Conclusions { findings: vec![finding], ..Conclusions::default() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Measured, concluded};
    use super::*;

    #[test]
    fn rivals_without_figures_are_not_beaten() {
        fn all<'a>(rivals: &[(&'a str, f64)]) -> Vec<Measured<'a>> {
            let targets = [("pumice", 30.0)].into_iter().chain(rivals.iter().copied());
            let of = |target, step, rate| Measured { scene: SCENE, step, target, rate, ratio: None };
            targets.flat_map(|(name, rate)| RANDOM.map(|(step, _)| of(name, step, rate))).collect()
        }
        let verdict = |rivals: &[(&str, f64)], left_out: &[&str], failed: &[&str]| {
            let run = concluded("against", &["pumice", "raw", "btrfs"], &all(rivals), left_out, failed);
            let found = run.findings.into_iter().find(|it| it.statement == "hs22").expect("a finding");
            (found.verdict, found.ours, found.why)
        };
        let both = [("raw", 20.0), ("btrfs", 10.0)];
        assert_eq!(verdict(&both, &[], &[]).0, Verdict::Holds);
        let (is, ours, why) = verdict(&both[..1], &["3:1 on btrfs: broken"], &["btrfs"]);
        assert_eq!((is, why.as_str()), (Verdict::DoesNot, "3:1 on btrfs failed: broken"));
        assert!(ours.contains("raw 0.1k: 1.50x"), "{ours}");
        let (is, _, why) = verdict(&both[..1], &["3:1 on btrfs: no time left"], &[]);
        assert_eq!((is, why.starts_with("btrfs was not measured")), (Verdict::CannotBeTested, true));
        // One that wins already is enough.
        let (is, ..) = verdict(&[("raw", 99.0)], &["3:1 on btrfs: no time left"], &[]);
        assert_eq!(is, Verdict::DoesNot);
        let (_, ours, _) = verdict(&both, &["target qcow2: qemu-nbd is not installed"], &[]);
        assert!(ours.ends_with("of the best; not on this machine: qcow2"), "{ours}");
        // Where the rivals of the lab's kernel are.
        let (_, _, why) = verdict(&[("raw", 99.0)], &[], &[]);
        assert!(why.ends_with("; vdo and zvol in the lab kernel: lab/kernel.md"), "{why}");
        let lab = concluded(
            "against",
            &["pumice", "vdo=/dev/vdo", "zvol=/dev/zvol"],
            &all(&[("vdo", 99.0), ("zvol", 1.0)]),
            &[],
            &[],
        );
        let why = &lab.findings[0].why;
        assert!(!why.contains("lab kernel") && lab.findings[0].ours.contains("vdo"), "{why}");
        // Nothing at all.
        assert_eq!(
            verdict(&[], &["3:1 on raw: broken", "3:1 on btrfs: broken"], &["raw"]).0,
            Verdict::DoesNot
        );
    }
}
