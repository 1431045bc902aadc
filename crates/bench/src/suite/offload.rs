//! SNIA, figure 3: compression in Ceph against compression in its drives. The cluster is the user's: two images, one in a
//! pool that compresses (`software`), one in a pool that does not, on Pumice drives (`drive`).

use std::path::Path;

use super::{Conclusions, Seen, over};
use crate::documents::statement;
use crate::error::{BenchError, Result};
use crate::finding::{Finding, Needs};
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::session::Options;

/// Names of the targets.
const SOFTWARE: &str = "software";
const DRIVE: &str = "drive";
const SCENE: &str = "60 %";
pub(super) const HEADLINE: (&str, &str) = (SCENE, "write");

pub(super) fn scenes(options: &Options, _: &Path, _: u64) -> Result<Vec<Scene>> {
    for name in [SOFTWARE, DRIVE] {
        if !options.targets.iter().any(|target| target.name == name) {
            let problem = format!("missing: give --target {name}=TARGET, such as {name}=rbd:POOL/IMAGE");
            return Err(BenchError::target(name, problem));
        }
    }
    let data = Data::Compressible(60);
    let sequential = |pattern| Job::sequential(pattern, data).depth(128);
    let random_read = Job { block_kib: 128, ..Job::random(Pattern::RandomRead, data) };
    Ok(vec![Scene::new(
        SCENE,
        vec![
            Step::job("write", sequential(Pattern::Write)),
            Step::job("read", sequential(Pattern::Read)),
            // The paper's third job.
            Step::job("random read", random_read.depth(128)),
            Step::job("random write, 4K", Job::random(Pattern::RandomWrite, data).depth(32)),
        ],
    )])
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let pair = |name, step, document| {
        let (drive, software) = (seen.run.speed(SCENE, step, DRIVE), seen.run.speed(SCENE, step, SOFTWARE));
        let ours = |quotient: f64| {
            format!("{:.0} / {:.0} MB/s: {quotient:.2}x", drive.unwrap_or(0.0), software.unwrap_or(0.0))
        };
        let why = "in one machine the drive's compression runs on the same processors as Ceph";
        Finding::judge(name, over(drive, software), Needs::AtLeast(document), ours, why)
    };
    // Processors busy while writing: client and servers.
    let busy = |target| {
        let series = seen.run.series(SCENE, "write", target)?;
        let per_gb = series.client_cpu_seconds_per_gb?.median + series.server_cpu_seconds_per_gb?.median;
        Some(per_gb * series.mb_per_s?.median / 1e3)
    };
    let cpu = match over(busy(DRIVE), busy(SOFTWARE)) {
        Some(quotient) => Finding::judge(
            "snia-cpu",
            Some(quotient),
            Needs::AtMost(66.5 / 93.0),
            |quotient| {
                let [drive, software] = [DRIVE, SOFTWARE].map(|it| busy(it).unwrap_or(0.0));
                format!("{drive:.2} / {software:.2} processors: {:.0} %", quotient * 100.0)
            },
            "the drive is software: its processor time is counted with Ceph's",
        ),
        None => Finding::untested(statement("snia-cpu"), "no processes were named: --pids NAME=PID,..."),
    };
    let findings = vec![pair("snia-write", "write", 8.3 / 6.3), pair("snia-read", "read", 22.5 / 21.1), cpu];
    Conclusions { findings, ..Conclusions::default() }
}
