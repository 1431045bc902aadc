//! Suites: experiments of documents, as scenes and as a function that says what they show.

mod against;
mod baseline;
mod datasets;
mod expansion;
mod offload;
mod quick;
mod raid;
mod s3;
mod slow_disk;
mod zeros;

use crate::documents::STATEMENTS;
use crate::error::{BenchError, Result, TOO_FEW};
use crate::finding::{Finding, Needs};
use crate::options::{NO_TIME, Options};
use crate::plan::Plan;
use crate::run::{Prediction, Run, RunData};
use crate::scene::Scene;
use crate::target::{Kind, Target};
use crate::value::Value;

/// What a suite makes of a run.
#[derive(Default)]
pub(crate) struct Conclusions {
    pub(crate) findings: Vec<Finding>,
    pub(crate) predictions: Vec<Prediction>,
    /// What is to be known of the figures.
    pub(crate) notes: Vec<String>,
}

/// What a conclusion is drawn from.
pub(crate) struct Seen<'a> {
    pub(crate) run: &'a Run,
    pub(crate) options: &'a Options,
    pub(crate) scenes: &'a [Scene],
    /// The Pumice drive that statements are tested on: the first one.
    pub(crate) drive: &'a str,
    /// The first target without compression, if there is one.
    pub(crate) raw: Option<&'a str>,
}

/// The scenes of a run.
#[derive(Default)]
pub(crate) struct Planned {
    pub(crate) scenes: Vec<Scene>,
    /// What a report must say of them.
    pub(crate) notes: Vec<String>,
    /// What there was no time to prepare.
    pub(crate) no_time: Vec<String>,
    /// Data sets that are written.
    pub(crate) data: Vec<RunData>,
    /// The client of objects.
    pub(crate) s3_client: Option<String>,
}

impl From<Vec<Scene>> for Planned {
    fn from(scenes: Vec<Scene>) -> Planned {
        Planned { scenes, ..Planned::default() }
    }
}

impl Planned {
    /// Notes in a run what is to be known of its scenes, and those that are missing.
    pub(crate) fn note(&self, run: &mut Run) {
        self.notes.iter().for_each(|note| run.note(note.clone()));
        run.data.extend(self.data.iter().cloned());
        run.s3_client.clone_from(&self.s3_client);
        run.complete &= self.no_time.is_empty();
        run.left_out.extend(self.no_time.iter().map(|name| format!("{name}: {NO_TIME}")));
    }
}

type Scenes = fn(&Plan<'_>) -> Result<Planned>;

/// A suite.
pub struct Suite {
    /// Name on the command line.
    pub name: &'static str,
    /// Summary in one line.
    pub summary: &'static str,
    /// Targets if the user names none.
    targets: &'static [&'static str],
    /// Size of stores that are made.
    pub(crate) size_bytes: u64,
    /// Time for a run in minutes, if the user gives none.
    pub minutes: f64,
    /// Scene and step of the headline figures.
    pub(crate) headline: Option<(&'static str, &'static str)>,
    /// The target that statements are tested on; `None`: the first Pumice drive.
    drive: Option<&'static str>,
    scenes: Scenes,
    conclude: fn(&Seen<'_>) -> Conclusions,
}

const MIB: u64 = 1 << 20;
/// Time for a run of most suites.
const MINUTES: f64 = 10.0;

/// All suites.
pub const SUITES: &[Suite] = &[
    Suite {
        name: "quick",
        summary: "Two minutes: zeros, random data, and SNIA's data of 60 %",
        targets: &["pumice", "raw"],
        size_bytes: 512 * MIB,
        minutes: 2.0,
        headline: Some(quick::HEADLINE),
        drive: None,
        scenes: quick::scenes,
        conclude: quick::conclude,
    },
    Suite {
        name: "zeros-vs-random",
        summary: "Linux Magazine: zeros against random data; full and fragmented, then trimmed",
        targets: &["pumice", "raw"],
        size_bytes: 512 * MIB,
        minutes: MINUTES,
        headline: None,
        drive: None,
        scenes: zeros::scenes,
        conclude: zeros::conclude,
    },
    Suite {
        name: "fio-baseline",
        summary: "Hyperscalers, figure 14: patterns, depths and jobs at the edges of the bands of compressibility",
        targets: &["pumice", "raw"],
        size_bytes: 256 * MIB,
        minutes: MINUTES,
        headline: Some(baseline::HEADLINE),
        drive: None,
        scenes: baseline::scenes,
        conclude: baseline::conclude,
    },
    Suite {
        name: "expansion",
        summary: "Hyperscalers, figure 21: 1.0, 1.5 and 2.0 times the physical size, against what `plan` predicts",
        targets: &["pumice"],
        size_bytes: 256 * MIB,
        minutes: MINUTES,
        headline: None,
        drive: None,
        scenes: expansion::scenes,
        conclude: expansion::conclude,
    },
    Suite {
        name: "slow-disk",
        summary: "Disks of 100, 250 and 500 MB/s: from which speed on compression makes a volume slower",
        targets: &["pumice", "raw"],
        size_bytes: 512 * MIB,
        minutes: MINUTES,
        headline: Some(slow_disk::HEADLINE),
        drive: None,
        scenes: slow_disk::scenes,
        conclude: slow_disk::conclude,
    },
    Suite {
        name: "datasets",
        summary: "Canonical's table: the ratio that `scan` predicts for data, and that of the data once written",
        targets: &["pumice"],
        size_bytes: 256 * MIB,
        minutes: MINUTES,
        headline: None,
        drive: None,
        scenes: datasets::scenes,
        conclude: datasets::conclude,
    },
    Suite {
        name: "against",
        summary: "Hyperscalers, figure 22: data of 3:1 on Pumice, a raw file, qcow2 and btrfs",
        targets: &["pumice", "raw", "qcow2", "btrfs"],
        size_bytes: 512 * MIB,
        minutes: MINUTES,
        headline: Some(against::HEADLINE),
        drive: None,
        scenes: against::scenes,
        conclude: against::conclude,
    },
    Suite {
        name: "offload",
        summary: "SNIA, figure 3: compression in Ceph (target software) against compression in its drives (target \
            drive), and others that you name",
        targets: &[],
        size_bytes: 512 * MIB,
        minutes: MINUTES,
        headline: Some(offload::HEADLINE),
        drive: Some(offload::DRIVE),
        scenes: offload::scenes,
        conclude: offload::conclude,
    },
    Suite {
        name: "raid",
        summary: "Hyperscalers, section 5: a volume of two attached drives (RAID-0) against one of one drive",
        targets: &raid::TARGETS,
        size_bytes: 256 * MIB,
        minutes: MINUTES,
        headline: Some(raid::HEADLINE),
        drive: Some(raid::TWO),
        scenes: raid::scenes,
        conclude: raid::conclude,
    },
    Suite {
        name: "s3",
        summary: "Canonical: PUT and GET through S3 gateways on plain disks (targets none, zlib) and on Pumice drives \
            (drive)",
        targets: &[],
        size_bytes: 512 * MIB,
        minutes: MINUTES,
        headline: Some(s3::HEADLINE),
        drive: Some(s3::DRIVE),
        scenes: s3::scenes,
        conclude: s3::conclude,
    },
];

/// Returns a suite by its name.
pub fn suite(name: &str) -> Option<&'static Suite> {
    SUITES.iter().find(|suite| suite.name == name)
}

impl Suite {
    pub(crate) fn targets(&self) -> Vec<Target> {
        self.targets.iter().filter_map(|target| target.parse().ok()).collect()
    }

    pub(crate) fn scenes(&self, plan: &Plan<'_>) -> Result<Planned> {
        (self.scenes)(plan)
    }

    /// Adds findings and predictions to a run.
    pub(crate) fn conclude(&self, run: &mut Run, scenes: &[Scene], options: &Options, targets: &[Target]) {
        let drive = targets.iter().find(|target| target.is_drive());
        let raw = targets.iter().find(|target| target.kind == Kind::Raw).map(|target| target.name.as_str());
        let drive = self.drive.or(drive.map(|drive| drive.name.as_str()));
        let Some(drive) = drive else {
            let tested = STATEMENTS.iter().filter(|statement| statement.tested_by == Ok(self.name));
            run.findings =
                tested.map(|it| Finding::untested(it, "no Pumice drive among the targets")).collect();
            return;
        };
        let seen = Seen { run, options, scenes, drive, raw };
        let Conclusions { findings, predictions, notes } = (self.conclude)(&seen);
        run.findings = findings;
        run.predictions = predictions;
        notes.into_iter().for_each(|note| run.note(note));
        let of_drive = run.failed.iter().find(|failed| failed.target == drive);
        // Quotients also lack their figure if what the drive is compared with has failed.
        if let Some(failed) = of_drive.or(run.failed.first()) {
            let interrupted = BenchError::Interrupted.to_string();
            let other =
                |line: &String| line.ends_with(NO_TIME) || line.contains(TOO_FEW) || *line == interrupted;
            let is_certain = !run.left_out.iter().any(other);
            run.findings.iter_mut().for_each(|finding| finding.blame(failed, is_certain));
        }
    }
}

impl Seen<'_> {
    /// Returns the speed of a step on the drive, in MB/s.
    fn speed(&self, scene: &str, step: &str) -> Option<Value> {
        self.run.speed(scene, step, self.drive)
    }

    /// Returns the requests per second of a step on the drive.
    fn requests(&self, scene: &str, step: &str) -> Option<Value> {
        self.run.requests(scene, step, self.drive)
    }

    /// Compares a quantity of this run with what a statement needs.
    fn judge(
        &self,
        name: &str,
        value: Option<Value>,
        needs: Needs,
        ours: impl Fn(f64) -> String,
        why: &str,
    ) -> Finding {
        Finding::judge(name, value, self.run.busy_share().unwrap_or(0.0), needs, ours, why)
    }

    /// Whether the user named the processes of a target, or the drives below it.
    fn is_named(&self, target: &str, has: impl Fn(&Target) -> bool) -> bool {
        self.options.targets.iter().any(|it| it.name == target && has(it))
    }

    /// Describes the speed of a step on the raw file, for the reason of a finding.
    fn raw_speed(&self, scene: &str, step: &str) -> String {
        let speed = self.raw.and_then(|raw| self.run.speed(scene, step, raw));
        speed.map_or(String::new(), |speed| format!("; a raw file here: {:.0} MB/s", speed.median()))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use super::*;
    use crate::budget::Budget;
    use crate::failed_scene::FailedScene;
    use crate::process::Stop;
    use crate::run::{RunTarget, Series};
    use crate::sample::Sample;

    /// What a run measured: three rounds of 1 second with `rate` MB, and as many requests.
    pub(crate) struct Measured<'a> {
        pub(crate) scene: &'a str,
        pub(crate) step: &'a str,
        pub(crate) target: &'a str,
        pub(crate) rate: f64,
        pub(crate) ratio: Option<f64>,
    }

    /// Concludes from a run of `targets`, some of which failed.
    pub(crate) fn concluded(
        suite: &str,
        targets: &[&str],
        measured: &[Measured<'_>],
        left_out: &[&str],
        failed_targets: &[&str],
    ) -> Run {
        let name = |text: &str| text.to_string();
        let series = measured.iter().map(|it| {
            let sample = Sample {
                bytes: (it.rate * 1e6) as u64,
                seconds: 1.0,
                requests_per_second: it.rate,
                client_cpu_seconds: 0.1,
                server_cpu_seconds: Some(0.1),
                ratio: it.ratio,
                ..Sample::default()
            };
            let (scene, step, target) = (name(it.scene), name(it.step), name(it.target));
            let mut series = Series { scene, step, target, samples: vec![sample; 3], ..Series::default() };
            series.summarize();
            series
        });
        let parsed: Vec<Target> = targets.iter().map(|it| it.parse().expect("a target")).collect();
        let failed = |target: &&str| {
            let scene = left_out.iter().find_map(|line| line.split_once(&format!(" on {target}: ")));
            let scene = scene.map_or("", |(scene, _)| scene);
            FailedScene { scene: name(scene), target: name(target), error: name("broken") }
        };
        let mut run = Run {
            size_bytes: 256 << 20,
            targets: parsed
                .iter()
                .map(|it| RunTarget { name: it.name.clone(), ..RunTarget::default() })
                .collect(),
            series: series.collect(),
            left_out: left_out.iter().map(|line| name(line)).collect(),
            failed: failed_targets.iter().map(failed).collect(),
            ..Run::default()
        };
        let options = options(parsed.clone(), Duration::ZERO);
        super::suite(suite).expect("a suite").conclude(&mut run, &[], &options, &parsed);
        run
    }

    /// Options of a run that nobody starts.
    pub(crate) fn options(targets: Vec<Target>, limit: Duration) -> Options {
        Options {
            targets,
            limit,
            size_bytes: None,
            folder: PathBuf::new(),
            program: PathBuf::new(),
            fio: crate::fio::Fio::none(),
            to_steady: false,
            data: Vec::new(),
            s3_client: crate::objects::S3Client::Own,
            command: String::new(),
        }
    }

    /// The scenes of a suite that is given some time.
    pub(crate) fn planned(suite: &str, limit: Duration) -> Planned {
        let (budget, options) = (Budget::new(limit), options(Vec::new(), limit));
        let stop = Stop::default();
        let plan =
            Plan { options: &options, folder: Path::new(""), size_bytes: MIB, budget: &budget, stop: &stop };
        super::suite(suite).expect("a suite").scenes(&plan).expect("scenes")
    }

    #[test]
    fn suites_have_targets_and_unique_steps() {
        for suite in SUITES {
            assert_eq!(suite.targets().len(), suite.targets.len(), "{}", suite.name);
        }
    }
}
