//! SNIA, figure 3: compression in Ceph against compression in its drives. The clusters are the user's: an
//! image in a pool that compresses (`software`), and one in a pool that does not, on Pumice drives (`drive`).
//! Other targets are further columns: a pool without compression (`none`), as Canonical has it, and pools
//! with other settings of Ceph.

use super::{Conclusions, Plan, Planned, Seen};
use crate::documents::statement;
use crate::error::{BenchError, Result};
use crate::finding::{Finding, Needs};
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::value::{Value, over, shown};

/// Names of the targets that every run has.
const SOFTWARE: &str = "software";
pub(super) const DRIVE: &str = "drive";
const SCENE: &str = "60 %";
/// The paper's jobs ran on 40 images at once.
const MANY: &str = "60 %, many images";
pub(super) const HEADLINE: (&str, &str) = (SCENE, "write");
const DATA: Data = Data::Compressible(60);
const OVERWRITE: &str = "random write, 4K";

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Planned> {
    let targets = &plan.options.targets;
    for name in [SOFTWARE, DRIVE] {
        if !targets.iter().any(|target| target.name == name) {
            let problem = format!("missing: give --target {name}=TARGET, such as {name}=rbd:POOL/IMAGE");
            return Err(BenchError::target(name, problem));
        }
    }
    // The paper's three jobs.
    let paper = |images: u32| {
        let sequential = |pattern| Job::sequential(pattern, DATA).depth(128).images(images);
        let random_read = Job { block_kib: 128, ..Job::random(Pattern::RandomRead, DATA) };
        vec![
            Step::job("write", sequential(Pattern::Write)),
            Step::job("read", sequential(Pattern::Read)),
            Step::job("random read", random_read.depth(128).images(images)),
        ]
    };
    let mut steps = paper(1);
    steps.push(Step::job(OVERWRITE, Job::random(Pattern::RandomWrite, DATA).depth(32)));
    let mut planned = Planned::from(vec![Scene::new(SCENE, steps)]);
    // As many as every target has that has several.
    match targets.iter().map(|target| target.images_count()).filter(|count| *count > 1).min() {
        Some(images) => planned.scenes.push(Scene::new(MANY, paper(images))),
        None => planned.notes.push(
            "the paper's jobs ran on 40 images at once; with several of each target: rbd:POOL/IMAGE,IMAGE"
                .to_string(),
        ),
    }
    Ok(planned)
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    // Statements are tested on many images where both have them, as in the paper.
    let has_many = |target: &str| seen.run.speed(MANY, "write", target).is_some();
    let scene = if has_many(DRIVE) && has_many(SOFTWARE) { MANY } else { SCENE };
    // A quantity of all other targets.
    let columns = |of: &dyn Fn(&str) -> Option<Value>, digits: usize| -> String {
        let names = seen.run.targets.iter().map(|target| target.name.as_str());
        let others = names.filter(|name| ![SOFTWARE, DRIVE].contains(name));
        others.filter_map(|name| Some(format!("; {name} {:.digits$}", of(name)?.median()))).collect()
    };
    let of_scene = if scene == MANY { " on many images" } else { "" };
    let speeds = |step: &str| {
        let speed = |target: &str| seen.run.speed(scene, step, target);
        let (drive, software) = (speed(DRIVE), speed(SOFTWARE));
        let text = format!(
            "{:.0} / {:.0} MB/s{of_scene}: {:.2}x{}",
            shown(drive),
            shown(software),
            shown(over(drive, software)),
            columns(&speed, 0)
        );
        (over(drive, software), text)
    };
    let why = "in one machine the drive's compression runs on the same processors as Ceph";
    let pair = |name, step, document| {
        let (quotient, text) = speeds(step);
        seen.judge(name, quotient, Needs::AtLeast(document), |_| text.clone(), why)
    };
    let random = match speeds("random read") {
        (Some(_), text) => Finding::untested(
            statement("snia-random-read"),
            &format!("the paper names the job and gives no result of it; here {text}"),
        ),
        (None, _) => seen.judge("snia-random-read", None, Needs::AtLeast(1.0), |_| String::new(), ""),
    };
    // CPU seconds for a second of writing: client and servers, with what these do afterwards.
    let busy = |target: &str| {
        let per_gb = seen.run.cpu_per_gb(scene, "write", target)?;
        let gb_per_s = seen.run.speed(scene, "write", target)?.times(1e-3);
        Some(per_gb.with(gb_per_s, |cpu, speed| cpu * speed))
    };
    let per_gb = |target: &str| seen.run.cpu_per_gb(scene, "write", target);
    let cpu = match over(busy(DRIVE), busy(SOFTWARE)) {
        Some(quotient) => seen.judge(
            "snia-cpu",
            Some(quotient),
            Needs::AtMost(66.5 / 93.0),
            |quotient| {
                let [drive, software] = [DRIVE, SOFTWARE].map(|it| shown(busy(it)));
                format!(
                    "{drive:.2} / {software:.2} CPU seconds a second{of_scene}: {:.0} %{}; for each GB {:.2} / {:.2} \
                     s{}",
                    quotient * 100.0,
                    columns(&busy, 2),
                    shown(per_gb(DRIVE)),
                    shown(per_gb(SOFTWARE)),
                    columns(&per_gb, 2)
                )
            },
            "the drive is software: its processor time is counted with Ceph's",
        ),
        None if [DRIVE, SOFTWARE].iter().all(|name| seen.is_named(name, |it| !it.pids.is_empty())) => {
            seen.judge("snia-cpu", None, Needs::AtMost(66.5 / 93.0), |_| String::new(), "")
        }
        None => Finding::untested(statement("snia-cpu"), "no processes were named: --pids NAME=PID,..."),
    };
    let ratio = |target: &str| seen.run.ratio(SCENE, "write", target);
    let space = match ratio(DRIVE) {
        Some(drive) => {
            let decayed = |target: &str| shown(seen.run.ratio(SCENE, OVERWRITE, target));
            let software = match ratio(SOFTWARE) {
                Some(software) => {
                    format!("; software {:.2}:1, overwritten {:.2}:1", software.median(), decayed(SOFTWARE))
                }
                None => String::new(),
            };
            let ours = |drive: f64| {
                let others = columns(&ratio, 2);
                format!("{drive:.2}:1, overwritten at random {:.2}:1{software}{others}", decayed(DRIVE))
            };
            let why = "what Ceph keeps beside the data is in the drives, too";
            seen.judge("snia-ceph-ratio", Some(drive), Needs::AtLeast(2.0), ours, why)
        }
        None if seen.is_named(DRIVE, |it| !it.drives.is_empty()) => {
            seen.judge("snia-ceph-ratio", None, Needs::AtLeast(2.0), |_| String::new(), "")
        }
        None => Finding::untested(
            statement("snia-ceph-ratio"),
            "no drives were named: --drives NAME=HOST:PORT,... with the addresses at which they answer HTTP",
        ),
    };
    let findings = vec![
        pair("snia-write", "write", 8.3 / 6.3),
        pair("snia-read", "read", 22.5 / 21.1),
        random,
        cpu,
        space,
    ];
    Conclusions { findings, ..Conclusions::default() }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Measured, concluded};
    use super::*;
    use crate::finding::Verdict;

    #[test]
    fn other_targets_are_columns() {
        let targets = ["software=/s", "drive=/d", "none=/n", "zlib=/z"];
        let speeds = [("software", 100.0), ("drive", 200.0), ("none", 300.0), ("zlib", 50.0)];
        let of = |scene: &'static str, factor: f64| {
            let each = ["write", "read", "random read"].into_iter().flat_map(move |step| {
                speeds.map(|(target, rate)| Measured {
                    scene,
                    step,
                    target,
                    rate: rate * factor,
                    ratio: Some(2.1),
                })
            });
            each.collect::<Vec<_>>()
        };
        let finding = |measured: &[Measured<'_>], name: &str| {
            let run = concluded("offload", &targets, measured, &[], &[]);
            run.findings.into_iter().find(|it| it.statement == name).expect("a finding")
        };
        let one = of(SCENE, 1.0);
        let write = finding(&one, "snia-write");
        assert_eq!(
            (write.verdict, write.ours.as_str()),
            (Verdict::Holds, "200 / 100 MB/s: 2.00x; none 300; zlib 50")
        );
        let random = finding(&one, "snia-random-read");
        assert_eq!(random.verdict, Verdict::CannotBeTested);
        assert!(random.why.ends_with("here 200 / 100 MB/s: 2.00x; none 300; zlib 50"), "{}", random.why);
        let cpu = finding(&one, "snia-cpu").ours;
        assert!(cpu.contains("none 0.20") && cpu.contains("zlib 4.00"), "{cpu}");
        let space = finding(&one, "snia-ceph-ratio").ours;
        assert!(space.ends_with("; none 2.10; zlib 2.10"), "{space}");
        // With many images, these count.
        let many: Vec<_> = one.into_iter().chain(of(MANY, 0.5)).collect();
        let write = finding(&many, "snia-write");
        assert_eq!(write.ours, "100 / 50 MB/s on many images: 2.00x; none 150; zlib 25");
    }
}
