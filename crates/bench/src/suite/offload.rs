//! SNIA, figure 3: compression in Ceph against compression in its drives. The clusters are the user's: an image in a pool
//! that compresses (`software`), and one in a pool that does not, on Pumice drives (`drive`).

use super::{Conclusions, Plan, Planned, Seen};
use crate::documents::statement;
use crate::error::{BenchError, Result};
use crate::finding::{Finding, Needs};
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::value::{over, shown};

/// Names of the targets.
const SOFTWARE: &str = "software";
pub(super) const DRIVE: &str = "drive";
const SCENE: &str = "60 %";
pub(super) const HEADLINE: (&str, &str) = (SCENE, "write");

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Planned> {
    for name in [SOFTWARE, DRIVE] {
        if !plan.options.targets.iter().any(|target| target.name == name) {
            let problem = format!("missing: give --target {name}=TARGET, such as {name}=rbd:POOL/IMAGE");
            return Err(BenchError::target(name, problem));
        }
    }
    let data = Data::Compressible(60);
    let sequential = |pattern| Job::sequential(pattern, data).depth(128);
    let random_read = Job { block_kib: 128, ..Job::random(Pattern::RandomRead, data) };
    Ok(Planned::from(vec![Scene::new(
        SCENE,
        vec![
            Step::job("write", sequential(Pattern::Write)),
            Step::job("read", sequential(Pattern::Read)),
            // The paper's third job.
            Step::job("random read", random_read.depth(128)),
            Step::job("random write, 4K", Job::random(Pattern::RandomWrite, data).depth(32)),
        ],
    )]))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let pair = |name, step, document| {
        let (drive, software) = (seen.run.speed(SCENE, step, DRIVE), seen.run.speed(SCENE, step, SOFTWARE));
        let ours =
            |quotient: f64| format!("{:.0} / {:.0} MB/s: {quotient:.2}x", shown(drive), shown(software));
        let why = "in one machine the drive's compression runs on the same processors as Ceph";
        seen.judge(name, over(drive, software), Needs::AtLeast(document), ours, why)
    };
    // CPU seconds for a second of writing: client and servers, with what these do afterwards.
    let busy = |target: &str| {
        let per_gb = seen.run.cpu_per_gb(SCENE, "write", target)?;
        let gb_per_s = seen.run.speed(SCENE, "write", target)?.times(1e-3);
        Some(per_gb.with(gb_per_s, |cpu, speed| cpu * speed))
    };
    let cpu = match over(busy(DRIVE), busy(SOFTWARE)) {
        Some(quotient) => seen.judge(
            "snia-cpu",
            Some(quotient),
            Needs::AtMost(66.5 / 93.0),
            |quotient| {
                let [drive, software] = [DRIVE, SOFTWARE].map(|it| shown(busy(it)));
                format!("{drive:.2} / {software:.2} CPU seconds a second: {:.0} %", quotient * 100.0)
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
            let decayed = |target: &str| shown(seen.run.ratio(SCENE, "random write, 4K", target));
            let software = match ratio(SOFTWARE) {
                Some(software) => {
                    format!("; software {:.2}:1, overwritten {:.2}:1", software.median(), decayed(SOFTWARE))
                }
                None => String::new(),
            };
            let ours =
                |drive: f64| format!("{drive:.2}:1, overwritten at random {:.2}:1{software}", decayed(DRIVE));
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
    let findings =
        vec![pair("snia-write", "write", 8.3 / 6.3), pair("snia-read", "read", 22.5 / 21.1), cpu, space];
    Conclusions { findings, ..Conclusions::default() }
}
