//! A run: scenes in rounds, targets taking turns, until the time is up.

mod turns;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::budget::{self, Budget, ROUNDS_MAX};
use crate::error::{BenchError, Result};
use crate::fio::{Amount, Fio, Place};
use crate::load::Load;
use crate::machine::Machine;
use crate::process::{self, Stop};
use crate::run::{Run, RunTarget, Sample, Series, VERSION};
use crate::scene::{Action, Scene, Step};
use crate::store::{self, Store, Workshop};
use crate::suite::{DataSet, Suite};
use crate::target::Target;
use turns::{Turn, fail, reversed_targets, turns};

/// Longest time of a job that runs once over a store, in seconds.
const ONCE_SECONDS_MAX: u32 = 120;

/// Why a scene was left out.
pub(crate) const NO_TIME: &str = "no time left";
/// Least ratio of a file system that compresses, with data that is zeros to 80 %.
const RATIO_MIN: f64 = 1.2;

/// What a run needs to know.
#[derive(Clone, Debug)]
pub struct Options {
    /// What is measured. Empty: the targets of the suite.
    pub targets: Vec<Target>,
    /// Time for the run. Scenes that were begun are finished.
    pub limit: Duration,
    /// Physical size of stores that are made; `None`: that of the suite.
    pub size_bytes: Option<u64>,
    /// Folder for everything temporary, on the disk to measure. It must exist, and stays.
    pub folder: PathBuf,
    /// The program `pumice`.
    pub program: PathBuf,
    /// The fio to use.
    pub fio: Fio,
    /// Data sets for the suite `datasets`.
    pub data: Vec<DataSet>,
    /// The command line, for the report.
    pub command: String,
}

/// What a run does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Round, from 1.
    pub round: u32,
    /// Scenes done in this round, of `total_count`.
    pub done_count: usize,
    /// Scenes in a round, on all targets.
    pub total_count: usize,
    /// Scene and target that begin.
    pub what: String,
    /// Time until the end of the run, as far as it can be said.
    pub left: Duration,
}

/// Looks whether a target may be written to, before each scene; says why not. Its second argument is true if nothing
/// was written to the target yet.
pub type Check<'a> = dyn Fn(&Target, bool) -> Result<(), String> + 'a;

/// A run of a suite.
pub struct Session<'a> {
    suite: &'a Suite,
    options: &'a Options,
    stop: &'a Stop,
    watch: &'a dyn Fn(&Progress),
    check: &'a Check<'a>,
}

impl<'a> Session<'a> {
    /// Prepares a run. `watch` is told of each scene that begins.
    pub fn new(
        suite: &'a Suite,
        options: &'a Options,
        stop: &'a Stop,
        watch: &'a dyn Fn(&Progress),
    ) -> Session<'a> {
        Session { suite, options, stop, watch, check: &|_, _| Ok(()) }
    }

    /// Asks `check` before each scene.
    #[must_use]
    pub fn checked(self, check: &'a Check<'a>) -> Session<'a> {
        Session { check, ..self }
    }

    /// Runs the suite until the time is up or it is stopped. A run that is stopped is returned with what was measured.
    ///
    /// # Errors
    /// Fails if a target cannot take part, or if nothing at all was measured.
    pub fn run(&self) -> Result<Run> {
        let options = self.options;
        let folder = tempfile::Builder::new()
            .prefix("pumice-bench-")
            .tempdir_in(&options.folder)
            .map_err(BenchError::io(&options.folder))?;
        let size_bytes = options.size_bytes.unwrap_or(self.suite.size_bytes);
        let mut run = self.begin(size_bytes);
        run.program_version = self.program_version(folder.path());
        let budget = Budget::new(options.limit);
        let targets = self.targets(&mut run)?;
        let load = Load::now(targets.iter().flat_map(|target| target.pids.iter().copied()).collect());
        let workshop = Workshop {
            program: &options.program,
            folder: folder.path(),
            size_bytes,
            stop: self.stop,
            drives: targets
                .iter()
                .filter_map(|target| target.drive_path().filter(|it| it.exists()))
                .collect(),
        };
        run.targets =
            targets.iter().map(|it| RunTarget { name: it.name.clone(), ..RunTarget::default() }).collect();
        let scenes = self.suite.scenes(options, folder.path(), size_bytes)?;
        let mut turns = turns(&scenes, &targets, &mut run);
        let each = turns.iter().map(|turn| &scenes[turn.scene]);
        run.job_seconds = budget::job_seconds(each, size_bytes, options.limit);
        for turn in &mut turns {
            turn.took_seconds = budget::scene_seconds(&scenes[turn.scene], size_bytes, run.job_seconds);
        }
        let mut first_error = None;
        let ended =
            self.rounds(&mut run, &workshop, &budget, &scenes, &targets, &mut turns, &mut first_error);
        if let Err(why) = ended {
            run.complete = false;
            run.left_out.push(why.to_string());
        }
        if run.series.is_empty() {
            return Err(first_error.unwrap_or(BenchError::Interrupted));
        }
        run.seconds = budget.used().as_secs_f64();
        run.others_cpu_share = load.others_since();
        run.series.iter_mut().for_each(Series::summarize);
        if let Some((scene, step)) = self.suite.headline {
            run.set_headlines(scene, step);
        }
        self.suite.conclude(&mut run, options, &targets);
        Ok(run)
    }

    fn begin(&self, size_bytes: u64) -> Run {
        let options = self.options;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run {
            version: VERSION,
            suite: self.suite.name.to_string(),
            date: utc(now.as_secs()),
            command: options.command.clone(),
            fio_version: options.fio.version().to_string(),
            machine: Machine::this(),
            size_bytes,
            budget_seconds: options.limit.as_secs_f64(),
            complete: true,
            ..Run::default()
        }
    }

    /// Returns what the program calls itself; empty if it does not run, which matters to drives only.
    fn program_version(&self, folder: &Path) -> String {
        const ASK: Duration = Duration::from_secs(20);
        let asked = process::run(&self.options.program, &["--version"], folder, ASK, self.stop);
        let said = asked.map(|ended| ended.output).unwrap_or_default();
        said.trim().trim_start_matches("pumice ").to_string()
    }

    /// Returns the targets that can take part. Those that the user named must.
    fn targets(&self, run: &mut Run) -> Result<Vec<Target>> {
        let named = &self.options.targets;
        let targets = if named.is_empty() { self.suite.targets() } else { named.clone() };
        let mut able = Vec::new();
        for target in targets {
            if able.iter().any(|other: &Target| other.name == target.name) {
                return Err(BenchError::target(&target.name, "given twice: name one, as NAME=TARGET"));
            }
            if let Some(pid) = target.pids.iter().find(|pid| !process::exists(**pid)) {
                return Err(BenchError::target(&target.name, format!("--pids: no process {pid}")));
            }
            match store::lacks(&target) {
                None => able.push(target),
                Some(why) if named.is_empty() => run.left_out.push(format!("target {}: {why}", target.name)),
                Some(why) => return Err(BenchError::target(&target.name, why)),
            }
        }
        Ok(able)
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one run")]
    fn rounds(
        &self,
        run: &mut Run,
        workshop: &Workshop<'_>,
        budget: &Budget,
        scenes: &[Scene],
        targets: &[Target],
        turns: &mut [Turn],
        first_error: &mut Option<BenchError>,
    ) -> Result<()> {
        let mut touched = vec![false; targets.len()];
        for round in 1..=ROUNDS_MAX {
            // Targets take turns in another order each round: none is always the first after a pause.
            let order: Vec<usize> = match round % 2 {
                1 => (0..turns.len()).collect(),
                _ => reversed_targets(turns),
            };
            for (done, at) in order.into_iter().enumerate() {
                let (scene, target) = (&scenes[turns[at].scene], &targets[turns[at].target]);
                if turns[at].has_failed {
                    continue;
                }
                // Something is measured, however little time there is.
                if !run.series.is_empty() && !budget.fits(turns[at].took_seconds) {
                    if round == 1 {
                        run.complete = false;
                        run.left_out.push(format!("{} on {}: {NO_TIME}", scene.name, target.name));
                        continue;
                    }
                    return Ok(());
                }
                run.rounds_count = round;
                let round_seconds: f64 = turns.iter().map(|turn| turn.took_seconds).sum();
                (self.watch)(&Progress {
                    round,
                    done_count: done,
                    total_count: turns.len(),
                    what: format!("{} on {}", scene.name, target.name),
                    // Rounds go on while they fit.
                    left: budget.left().max(Duration::from_secs_f64(match round {
                        1 => round_seconds * (turns.len() - done) as f64 / turns.len() as f64,
                        _ => 0.0,
                    })),
                });
                let since = Instant::now();
                let touched = &mut touched[turns[at].target];
                let checked = (self.check)(target, !*touched);
                // A target that was refused is still one that nothing was written to.
                *touched |= checked.is_ok();
                let checked = checked.map_err(|why| BenchError::target(&target.name, why));
                match checked.and_then(|()| self.scene(run, workshop, scene, target)) {
                    Ok(()) => {}
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    Err(error) => {
                        turns[at].has_failed = true;
                        fail(run, scene, target, &error);
                        first_error.get_or_insert(error);
                    }
                }
                turns[at].took_seconds = since.elapsed().as_secs_f64();
            }
            if turns.iter().all(|turn| turn.has_failed) {
                break;
            }
        }
        Ok(())
    }

    fn scene(&self, run: &mut Run, workshop: &Workshop<'_>, scene: &Scene, target: &Target) -> Result<()> {
        let store = workshop.open(target, scene)?;
        for step in &scene.steps {
            self.stop.check()?;
            let sample = self.step(step, store.as_ref(), workshop.folder, run.job_seconds)?;
            if !step.is_shown {
                continue;
            }
            let at = run
                .series
                .iter()
                .position(|it| it.scene == scene.name && it.step == step.name && it.target == target.name);
            let at = at.unwrap_or_else(|| {
                run.series.push(Series {
                    scene: scene.name.clone(),
                    step: step.name.clone(),
                    job: match &step.action {
                        Action::Fio(job) => job.text(),
                        Action::Copy(_) => "copy".to_string(),
                        Action::Settle => "settle".to_string(),
                    },
                    target: target.name.clone(),
                    ..Series::default()
                });
                run.series.len() - 1
            });
            run.series[at].samples.push(sample);
        }
        Ok(())
    }

    fn step(&self, step: &Step, store: &dyn Store, folder: &Path, job_seconds: u32) -> Result<Sample> {
        let before = store.space()?;
        let cpu =
            |pids: Vec<u32>| -> f64 { pids.into_iter().map(|pid| process::cpu_seconds(pid, false)).sum() };
        let server =
            || if store.is_in_kernel() { process::kernel_cpu_seconds() } else { cpu(store.servers()) };
        let (server_before, device_before) = (server(), cpu(store.devices()));
        let mut sample = match &step.action {
            Action::Fio(job) => {
                let seconds = if job.amount == Amount::Timed { job_seconds } else { ONCE_SECONDS_MAX };
                let fio = &self.options.fio;
                let measured =
                    fio.run(job, store.place(), store.capacity_bytes(), seconds, folder, self.stop)?;
                Sample {
                    bytes: measured.bytes(),
                    seconds: measured.seconds,
                    requests_per_second: measured.requests as f64 / measured.seconds,
                    p50_us: measured.p50_us,
                    p99_us: measured.p99_us,
                    client_cpu_seconds: measured.cpu_seconds,
                    ..Sample::default()
                }
            }
            Action::Copy(image) => self.copy(image, store.place(), folder)?,
            Action::Settle => {
                let since = Instant::now();
                store.settle()?;
                Sample { seconds: since.elapsed().as_secs_f64(), ..Sample::default() }
            }
        };
        let (server_after, device_after) = (server(), cpu(store.devices()));
        let has_server = store.is_in_kernel() || !store.servers().is_empty();
        sample.server_cpu_seconds = has_server.then_some(server_after - server_before);
        sample.device_cpu_seconds = (!store.devices().is_empty()).then_some(device_after - device_before);
        if let Some(after) = store.space()? {
            sample.ratio = Some(after.ratio).filter(|ratio| *ratio > 0.0);
            sample.physical_used_bytes = Some(after.physical_used_bytes);
            let counted = |space: Option<store::Space>| {
                space.and_then(|it| it.host_written_bytes.zip(it.physical_written_bytes))
            };
            sample.write_amplification = counted(before).zip(counted(Some(after))).and_then(|(from, to)| {
                let host = to.0.saturating_sub(from.0);
                (host > 0).then(|| to.1.saturating_sub(from.1) as f64 / host as f64)
            });
        }
        let is_compressible = matches!(&step.action, Action::Fio(job) if job.is_compressible());
        if let Some(ratio) =
            sample.ratio.filter(|it| is_compressible && store.is_in_kernel() && *it < RATIO_MIN)
        {
            let problem = format!("a ratio of {ratio:.2}:1 of data of 80 % zeros: it does not compress");
            return Err(BenchError::program("btrfs", problem));
        }
        Ok(sample)
    }

    /// Copies an image to an export with `nbdcopy`, zeros included.
    fn copy(&self, image: &Path, place: &Place, folder: &Path) -> Result<Sample> {
        const COPY: Duration = Duration::from_secs(600);
        let Place::Nbd(uri) = place else {
            return Err(BenchError::program("nbdcopy", "data sets are copied to exports of NBD"));
        };
        let bytes = image.metadata().map_err(BenchError::io(image))?.len();
        let program = process::need("nbdcopy", "libnbd-bin")?;
        let image = image.display().to_string();
        let arguments = ["--flush", "--allocated", "--sparse=0", "--request-size=131072", &image, uri];
        let since = Instant::now();
        let ended = process::run(&program, &arguments, folder, COPY, self.stop)?;
        Ok(Sample {
            bytes,
            seconds: since.elapsed().as_secs_f64(),
            client_cpu_seconds: ended.cpu_seconds,
            ..Sample::default()
        })
    }
}

/// Formats a time in UTC as `2026-11-25 18:40:00 UTC`. The date from a number of days: H. Hinnant,
/// *chrono-Compatible Low-Level Date Algorithms*.
fn utc(unix_seconds: u64) -> String {
    let (days, seconds) = (unix_seconds / 86_400 + 719_468, unix_seconds % 86_400);
    let era = days / 146_097;
    let day_of_era = days % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (day, month) = (day_of_year - (153 * shifted + 2) / 5 + 1, (shifted + 2) % 12 + 1);
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests;
