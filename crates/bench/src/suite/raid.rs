//! Hyperscalers, section 5 and figures 19 and 20: a volume of two attached drives against one of one drive;
//! and Linux Magazine's RAID-0. The same layer on plain files shows what two of them are worth on this
//! machine.

use super::{Conclusions, Plan, Planned, Seen};
use crate::documents::statement;
use crate::error::Result;
use crate::finding::{Finding, Needs};
use crate::fio::{Data, Job, Pattern};
use crate::scene::{Scene, Step};
use crate::store::layer_name;
use crate::value::{over, shown};

pub(super) const TARGETS: [&str; 4] =
    ["one drive=attached", "two drives=raid0", "one file=raw-attached", "two files=raw-raid0"];
/// Names of the targets.
const ONE: &str = "one drive";
pub(super) const TWO: &str = "two drives";
const ONE_FILE: &str = "one file";
const TWO_FILES: &str = "two files";
/// A file on a Gluster volume of drives, if the user names one.
const GLUSTER: &str = "gluster";
/// The document's data is 2:1.
const DATA: Data = Data::Compressible(50);
const PLAIN: &str = "2:1";
const EXPANDED: &str = "2:1, 1.5x";
const FACTOR: f64 = 1.5;
const ZEROS: &str = "zeros";
const RANDOM: &str = "random data";
pub(super) const HEADLINE: (&str, &str) = (PLAIN, "write");
/// Requests in flight, as in figure 14.
const DEPTH: u32 = 128;

pub(super) fn scenes(_: &Plan<'_>) -> Result<Planned> {
    let stream = |pattern, data| Job::sequential(pattern, data).depth(DEPTH);
    let both = |data| {
        vec![Step::job("write", stream(Pattern::Write, data)), Step::job("read", stream(Pattern::Read, data))]
    };
    let written = |name: &str, data| {
        Scene::new(name, vec![Step::job("write", stream(Pattern::Write, data))]).for_drives()
    };
    Ok(Planned::from(vec![
        Scene::new(PLAIN, both(DATA)),
        Scene::new(EXPANDED, both(DATA)).expanded(FACTOR).for_drives(),
        written(ZEROS, Data::Zeros),
        written(RANDOM, Data::Compressible(0)),
    ]))
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    let run = seen.run;
    // What keeps two from being twice as fast as one.
    let limit = |target: &str, scene: &str, step: &str| {
        let files = over(run.speed(PLAIN, step, TWO_FILES), run.speed(PLAIN, step, ONE_FILE));
        let files = files.map_or(String::new(), |files| {
            format!("; two plain files on this disk: {:.2}x of one", files.median())
        });
        let busy = |target: &str| {
            let per_gb = run.cpu_per_gb(scene, step, target)?;
            Some(per_gb.median() * run.speed(scene, step, target)?.median() / 1e3)
        };
        let cpu = busy(ONE).zip(busy(target)).map_or(String::new(), |(one, two)| {
            format!(
                "; for each second, CPU seconds of one drive {one:.1}, of two {two:.1}, with what drives do afterwards \
                 ({} processors)",
                run.machine.cores_count
            )
        });
        // Where the drives of the user's volume are is not known.
        let place = match target {
            GLUSTER => "a Gluster volume on drives of yours".to_string(),
            _ => format!("{}; both drives are on one disk", layer_name()),
        };
        format!("{place}{files}{cpu}")
    };
    let pair = |name: &str, target: &str, scene: &str, step: &str, document: f64| {
        // The document has one figure for a single drive, which is not expanded.
        let (above, below) = (run.speed(scene, step, target), run.speed(PLAIN, step, ONE));
        let ours = |quotient: f64| format!("{:.0} / {:.0} MB/s: {quotient:.2}x", shown(above), shown(below));
        seen.judge(name, over(above, below), Needs::AtLeast(document), ours, &limit(target, scene, step))
    };
    let mut findings = vec![
        pair("hs-lv-read", TWO, PLAIN, "read", 4.2 / 2.9),
        pair("hs-lv-write", TWO, PLAIN, "write", 3.2 / 2.2),
        pair("hs-expanded-read", TWO, EXPANDED, "read", 3.5 / 2.9),
        pair("hs-expanded-write", TWO, EXPANDED, "write", 2.7 / 2.2),
    ];
    let gluster = [("hs-gluster-read", "read", 3.5 / 2.9), ("hs-gluster-write", "write", 2.7 / 2.2)];
    findings.extend(gluster.map(|(name, step, document)| {
        match run.targets.iter().any(|target| target.name == GLUSTER) {
            true => pair(name, GLUSTER, PLAIN, step, document),
            false => Finding::untested(
                statement(name),
                "no target gluster: a file on a volume of deploy/gluster/lab.sh, --target gluster=PATH",
            ),
        }
    }));
    // Unlike above, the single drive is expanded likewise: what is claimed is of two drives instead of one,
    // not of expansion.
    let speed = |step| over(run.speed(EXPANDED, step, TWO), run.speed(EXPANDED, step, ONE));
    let worst = speed("read").zip(speed("write")).map(|(read, write)| read.with(write, f64::min));
    let ours = |worst: f64| {
        let (read, write) = (shown(speed("read")), shown(speed("write")));
        format!(
            "{worst:.2}x of one expanded likewise: {read:.2}x reads, {write:.2}x writes; for the cost: pumice tco"
        )
    };
    findings.push(seen.judge("hs-claim", worst, Needs::AtLeast(2.0), ours, &limit(TWO, EXPANDED, "write")));
    let (zeros, random) = (run.speed(ZEROS, "write", TWO), run.speed(RANDOM, "write", TWO));
    let ours = |quotient: f64| format!("{:.0} / {:.0} MB/s: {quotient:.1}x", shown(zeros), shown(random));
    let why = format!("random data is passed through at the speed of the disk; {}", layer_name());
    findings.push(seen.judge("lm-raid", over(zeros, random), Needs::AtLeast(421.3 / 115.3), ours, &why));
    Conclusions { findings, ..Conclusions::default() }
}
