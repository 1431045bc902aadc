//! Canonical's warp run: objects put to and got from S3 gateways. The gateways are the user's: one on plain
//! disks (`none`), one whose storage class compresses by zlib (`zlib`), and one on Pumice drives (`drive`).

use super::{Conclusions, Plan, Planned, Seen};
use crate::documents::statement;
use crate::error::{BenchError, Result};
use crate::finding::{Finding, Needs};
use crate::objects::{self, ObjectJob};
use crate::options::Options;
use crate::scene::{Scene, Step};
use crate::value::{over, shown};

/// Names of the targets.
const NONE: &str = "none";
const ZLIB: &str = "zlib";
pub(super) const DRIVE: &str = "drive";
/// The document's data: "a compression ratio of 4:3".
const SCENE: &str = "4:3";
/// Data of a warp that has no other.
const RANDOM: &str = "random";
const ZEROS_PERCENT: u8 = 25;
pub(super) const HEADLINE: (&str, &str) = (SCENE, "PUT");
/// RGW keeps an object of up to 4 MiB in one piece, which goes away with it; the rest of larger ones stays
/// until garbage is collected, hours later.
const OBJECT_KIB: u32 = 4096;
/// The document does not say how many; warp's default is 20.
const CLIENTS: u32 = 20;

pub(super) fn scenes(plan: &Plan<'_>) -> Result<Planned> {
    for name in [NONE, DRIVE] {
        if !plan.options.targets.iter().any(|target| target.name == name) {
            let problem = format!("missing: give --target {name}=s3+http://HOST:PORT/BUCKET");
            return Err(BenchError::target(name, problem));
        }
    }
    let Options { s3_client, targets, .. } = plan.options;
    let chosen = objects::choose(*s3_client, targets, plan.folder, plan.stop)?;
    let warp = chosen.warp;
    let job = |is_put| ObjectJob {
        is_put,
        object_kib: OBJECT_KIB,
        clients: CLIENTS,
        zeros_percent: ZEROS_PERCENT,
        warp: warp.clone(),
    };
    let steps = vec![Step::objects("PUT", job(true)), Step::objects("GET", job(false))];
    let is_random = warp.as_ref().is_some_and(|warp| !warp.makes_csv());
    Ok(Planned {
        scenes: vec![Scene::new(if is_random { RANDOM } else { SCENE }, steps)],
        notes: chosen.note.into_iter().collect(),
        s3_client: Some(warp.map_or(objects::OWN.to_string(), |warp| warp.text())),
        ..Planned::default()
    })
}

/// What is said of the document where the data was random: its statements are of data that compresses.
fn of_random_data(seen: &Seen<'_>) -> Vec<Finding> {
    let names = ["can-put", "can-put-zlib", "can-get", "can-get-zlib", "can-cpu", "can-space"];
    let finding = |name: &&str| {
        let step = if name.contains("get") { "GET" } else { "PUT" };
        let speed =
            |target: &str| Some(format!("{target} {:.0}", seen.run.speed(RANDOM, step, target)?.median()));
        let speeds: Vec<String> = [NONE, ZLIB, DRIVE].into_iter().filter_map(speed).collect();
        let why = "warp's data was random, which does not compress: --s3-client own has data of 4:3";
        let mut finding = Finding::untested(statement(name), why);
        if !speeds.is_empty() && (name.contains("put") || name.contains("get")) {
            finding.ours = format!("{step} of random data, MB/s: {}", speeds.join(", "));
        }
        finding
    };
    names.iter().map(finding).collect()
}

pub(super) fn conclude(seen: &Seen<'_>) -> Conclusions {
    if seen.scenes.iter().any(|scene| scene.name == RANDOM) {
        return Conclusions { findings: of_random_data(seen), ..Conclusions::default() };
    }
    let has_zlib = seen.run.targets.iter().any(|target| target.name == ZLIB);
    let pair = |name: &str, step: &str, target: &str, needs, why: &str| {
        if target == ZLIB && !has_zlib {
            return Finding::untested(
                statement(name),
                "no target zlib: a storage class with --compression zlib",
            );
        }
        let (above, below) = (seen.run.speed(SCENE, step, target), seen.run.speed(SCENE, step, NONE));
        let ours = |quotient: f64| format!("{:.0} / {:.0} MB/s: {quotient:.2}x", shown(above), shown(below));
        seen.judge(name, over(above, below), needs, ours, why)
    };
    let shared = "drives, gateway, Ceph and client share the processors of one machine";
    let fast = "RGW's zlib costs less here than there";
    let cpu = |target: &str| seen.run.cpu_per_gb(SCENE, "GET", target);
    let costs = match over(cpu(ZLIB), cpu(NONE)) {
        Some(quotient) => {
            let drive = over(cpu(DRIVE), cpu(NONE));
            let drive = drive.map_or(String::new(), |drive| format!("; drives {:.1}x", drive.median()));
            let ours = |quotient: f64| {
                format!("{:.2} / {:.2} s/GB: {quotient:.1}x{drive}", shown(cpu(ZLIB)), shown(cpu(NONE)))
            };
            seen.judge("can-cpu", Some(quotient), Needs::AtLeast(2.5), ours, fast)
        }
        None if [ZLIB, NONE].iter().all(|name| seen.is_named(name, |it| !it.pids.is_empty())) => {
            seen.judge("can-cpu", None, Needs::AtLeast(2.5), |_| String::new(), "")
        }
        None => Finding::untested(
            statement("can-cpu"),
            "no target zlib, or no processes were named: --pids NAME=PID,...",
        ),
    };
    let ratio = |target: &str| seen.run.ratio(SCENE, "PUT", target);
    let space = match ratio(DRIVE) {
        Some(drive) => {
            let other = |name: &str| {
                ratio(name).map_or(String::new(), |ratio| format!("; {name} {:.2}:1", ratio.median()))
            };
            let ours = |drive: f64| {
                let saved = (1.0 - 1.0 / drive) * 100.0;
                format!("drives {drive:.2}:1, {saved:.0} %{}{}", other(ZLIB), other(NONE))
            };
            let why = "headers, map, and what Ceph keeps beside the data are in the drives, too";
            seen.judge("can-space", Some(drive), Needs::AtLeast(4.0 / 3.0), ours, why)
        }
        None if seen.is_named(DRIVE, |it| !it.drives.is_empty()) => {
            seen.judge("can-space", None, Needs::AtLeast(4.0 / 3.0), |_| String::new(), "")
        }
        None => Finding::untested(
            statement("can-space"),
            "no drives were named: --drives drive=HOST:PORT,... with the addresses at which they answer HTTP",
        ),
    };
    let findings = vec![
        pair("can-put", "PUT", DRIVE, Needs::AtLeast(5.05 / 4.66), shared),
        pair("can-put-zlib", "PUT", ZLIB, Needs::AtMost(0.5), fast),
        pair("can-get", "GET", DRIVE, Needs::AtLeast(20.88 / 21.86), shared),
        pair("can-get-zlib", "GET", ZLIB, Needs::AtMost(11.28 / 21.86), fast),
        costs,
        space,
    ];
    Conclusions { findings, ..Conclusions::default() }
}
