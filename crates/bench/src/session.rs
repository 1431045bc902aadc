//! A run: scenes in rounds, targets taking turns, until the time is up.

mod turns;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::FallocateFlags;

use crate::budget::{self, Budget, Pace, ROUNDS_MAX};
use crate::error::{BenchError, Refusal, Result};
use crate::fio::{Data, IoTarget, Job, Pattern};
use crate::load::Load;
use crate::machine::Machine;
use crate::objects;
use crate::options::{NO_TIME, Options};
use crate::plan::Plan;
use crate::process::{self, Stop};
use crate::processors;
use crate::run::{Run, RunTarget, Series, VERSION};
use crate::sample::Sample;
use crate::scene::{Action, Scene, Step};
use crate::steady;
use crate::store::{self, Discards, Store, Workshop};
use crate::suite::Suite;
use crate::target::{self, Target};
use turns::{Turn, fail, reversed_targets, turns};

/// Time that a job that runs once over a store may take in any case, in seconds; more if the run has more
/// time left.
const ONCE_SECONDS: u32 = 120;
/// Longest time of such a job.
const ONCE_SECONDS_MAX: u32 = 3600;
/// Longest wait for servers to come to rest after a step, and what counts as rest: so much of a processor,
/// during so long, twice.
const REST_MAX: Duration = Duration::from_secs(5);
const REST_SHARE: f64 = 0.08;
const REST_LOOK: Duration = Duration::from_millis(200);

/// Least ratio of a file system that compresses, with data that is zeros to 80 %.
const RATIO_MIN: f64 = 1.2;

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

/// Looks whether a target may be written to, before each scene; says why not. Its second argument is true if
/// nothing was written to the target yet. A request to stop should end it.
pub type Check<'a> = dyn Fn(&Target, bool) -> Result<(), Refusal> + 'a;

/// A run of a suite.
pub struct Session<'a> {
    suite: &'a Suite,
    options: &'a Options,
    stop: &'a Stop,
    watch: &'a dyn Fn(&Progress),
    check: &'a Check<'a>,
    /// CPU time of servers that were started for the run by others than this process.
    strangers_seconds: Cell<f64>,
    /// What could not be removed from where targets are.
    stays: RefCell<Vec<String>>,
    /// Names of targets where something may appear late.
    late: RefCell<BTreeSet<String>>,
}

impl<'a> Session<'a> {
    /// Prepares a run. `watch` is told of each scene that begins.
    pub fn new(
        suite: &'a Suite,
        options: &'a Options,
        stop: &'a Stop,
        watch: &'a dyn Fn(&Progress),
    ) -> Session<'a> {
        Session {
            suite,
            options,
            stop,
            watch,
            check: &|_, _| Ok(()),
            strangers_seconds: Cell::new(0.0),
            stays: RefCell::default(),
            late: RefCell::default(),
        }
    }

    /// Asks `check` before each scene.
    #[must_use]
    pub fn checked(self, check: &'a Check<'a>) -> Session<'a> {
        Session { check, ..self }
    }

    /// Runs the suite until the time is up or it is stopped. A run that is stopped is returned with what was
    /// measured.
    ///
    /// # Errors
    /// Fails if a target cannot take part, or if nothing at all was measured.
    pub fn run(&self) -> Result<Run> {
        let options = self.options;
        // The kernel and other programs name files by their resolved paths.
        let base = options.folder.canonicalize().map_err(BenchError::io(&options.folder))?;
        let folder = tempfile::Builder::new()
            .prefix("pumice-bench-")
            .tempdir_in(&base)
            .map_err(BenchError::io(&options.folder))?;
        let run = self.run_in(folder.path());
        let mut left = store::left_behind(folder.path());
        if !left.is_empty() {
            // What is attached can be detached only with its files and its record.
            let _ = folder.keep();
        }
        match run {
            Ok(mut run) => {
                run.complete &= left.is_empty();
                run.left_out.extend(left);
                Ok(run)
            }
            Err(error) => {
                // With results it stands among the notes.
                left.extend(self.stays.take());
                Err(match left.is_empty() {
                    true => error,
                    false => BenchError::LeftBehind { source: Box::new(error), left: left.join("; ") },
                })
            }
        }
    }

    fn run_in(&self, folder: &Path) -> Result<Run> {
        let options = self.options;
        let size_bytes = options.size_bytes.unwrap_or(self.suite.size_bytes);
        let mut run = self.begin(size_bytes);
        run.program_version = self.program_version(folder);
        let budget = Budget::new(options.limit);
        let targets = self.targets(&mut run)?;
        targets.iter().try_for_each(|target| must_fit(target, folder, size_bytes))?;
        for target in &targets {
            let note = processors::note(&target.pids, options.fio.processors());
            note.into_iter().for_each(|note| run.note(format!("{}: {note}", target.name)));
        }
        let load = Load::now(targets.iter().flat_map(|target| target.pids.iter().copied()).collect());
        let workshop = Workshop {
            program: &options.program,
            folder,
            size_bytes,
            stop: self.stop,
            drives: targets
                .iter()
                .filter_map(|target| target.drive_path().filter(|it| it.exists()))
                .collect(),
        };
        run.targets =
            targets.iter().map(|it| RunTarget { name: it.name.clone(), ..RunTarget::default() }).collect();
        let plan = Plan { options, folder, size_bytes, budget: &budget, stop: self.stop };
        let planned = self.suite.scenes(&plan)?;
        planned.note(&mut run);
        let scenes = planned.scenes;
        // Images of data sets have taken some of it.
        targets.iter().try_for_each(|target| must_fit(target, folder, size_bytes))?;
        let mut turns = turns(&scenes, &targets, &mut run);
        let each = turns.iter().map(|turn| (&scenes[turn.scene], Pace::of(&targets[turn.target])));
        run.job_seconds = budget::job_seconds(each, size_bytes, budget.left(), options.to_steady);
        for turn in &mut turns {
            let pace = Pace::of(&targets[turn.target]);
            turn.took_seconds = budget::scene_seconds(&scenes[turn.scene], pace, size_bytes, run.job_seconds);
        }
        let mut first_error = None;
        let ended =
            self.rounds(&mut run, &workshop, &budget, &scenes, &targets, &mut turns, &mut first_error);
        self.remove_late(&mut run, &workshop, &targets);
        if let Err(why) = ended {
            run.complete = false;
            run.left_out.push(why.to_string());
        }
        if run.series.is_empty() {
            if let Some(error) = first_error {
                return Err(error);
            }
            self.stop.check()?;
            let why = match run.left_out.is_empty() {
                true => "no scene is for these targets".to_string(),
                false => run.left_out.join("; "),
            };
            return Err(BenchError::Nothing { suite: self.suite.name, why });
        }
        run.seconds = budget.used().as_secs_f64();
        run.others_cpu_share = load.others_since(self.strangers_seconds.get());
        run.series.iter_mut().for_each(Series::summarize);
        if let Some((scene, step)) = self.suite.headline {
            run.set_headlines(scene, step);
        }
        self.suite.conclude(&mut run, &scenes, options, &targets);
        Ok(run)
    }

    fn begin(&self, size_bytes: u64) -> Run {
        let options = self.options;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Run {
            version: VERSION,
            suite: self.suite.name.to_string(),
            date: report::utc(now.as_secs()),
            command: options.command.clone(),
            fio_version: options.fio.version().to_string(),
            fio_processors: options.fio.processors().map(str::to_string),
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
        target::distinct(&targets)?;
        let mut able = Vec::new();
        for target in targets {
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
                // Which ends it.
                self.stop.check()?;
                // A target that was refused is still one that nothing was written to.
                *touched |= checked.is_ok();
                let checked = checked.map_err(|why| BenchError::target(&target.name, why));
                match checked.and_then(|()| self.scene(run, workshop, budget, scene, target)) {
                    Ok(()) => {}
                    Err(BenchError::LeftBehind { source, left }) if source.is_interrupted() => {
                        self.stays(run, target, &left);
                        return Err(BenchError::Interrupted);
                    }
                    Err(BenchError::Interrupted) => return Err(BenchError::Interrupted),
                    // In the next round there would be no more of them.
                    Err(error @ BenchError::TooFew { .. }) => {
                        turns[at].has_failed = true;
                        run.complete = false;
                        run.left_out.push(format!("{} on {}: {error}", scene.name, target.name));
                        first_error.get_or_insert(error);
                    }
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

    fn scene(
        &self,
        run: &mut Run,
        workshop: &Workshop<'_>,
        budget: &Budget,
        scene: &Scene,
        target: &Target,
    ) -> Result<()> {
        let store = workshop.open(target, scene)?;
        let done = self.steps(run, workshop, budget, scene, target, store.as_ref());
        let strangers = store.strangers().into_iter().map(|pid| process::cpu_seconds(pid, false));
        self.strangers_seconds.set(self.strangers_seconds.get() + strangers.sum::<f64>());
        match store.remove() {
            Some(stays) => self.stays(run, target, &stays),
            None if store.may_be_late() => drop(self.late.borrow_mut().insert(target.name.clone())),
            None => {}
        }
        done
    }

    /// Notes what could not be removed from where a target is.
    fn stays(&self, run: &mut Run, target: &Target, what: &str) {
        let line = format!("{}: {what}", target.name);
        self.stays.borrow_mut().push(line.clone());
        run.note(line);
    }

    /// Removes what has appeared where targets are after their stores were removed.
    fn remove_late(&self, run: &mut Run, workshop: &Workshop<'_>, targets: &[Target]) {
        let late = self.late.take();
        if late.is_empty() {
            return;
        }
        std::thread::sleep(objects::LATE);
        for target in targets.iter().filter(|target| late.contains(&target.name)) {
            if let Some(stays) = workshop.remove_late(target) {
                self.stays(run, target, &stays);
            }
        }
    }

    fn steps(
        &self,
        run: &mut Run,
        workshop: &Workshop<'_>,
        budget: &Budget,
        scene: &Scene,
        target: &Target,
        store: &dyn Store,
    ) -> Result<()> {
        if let Some(note) = store.note() {
            run.note(format!("{}: {note}", target.name));
        }
        if let Err(error) = self.discard(store, workshop.folder) {
            self.stop.check()?;
            let why = "scenes begin on what those before them wrote";
            run.note(format!("{}: cannot be discarded, so {why}: {error}", target.name));
        }
        for (number, step) in scene.steps.iter().enumerate() {
            self.stop.check()?;
            let steps = Steps { session: self, store, folder: workshop.folder, budget };
            let (sample, cut) = match self.options.to_steady && step.may_be_unsteady() {
                true => (steps.until_steady(step, run.job_seconds)?, None),
                false => steps.run(step, run.job_seconds)?,
            };
            let what = format!("{}: {} on {}", scene.name, step.name, target.name);
            if sample.came_to_rest == Some(false) {
                let seconds = REST_MAX.as_secs();
                run.note(format!(
                    "{what}: its servers were still busy {seconds} s after it: what they did later is not \
                    counted"
                ));
            }
            if step.is_shown {
                keep(run, scene, step, target, sample);
            }
            let Some(cut) = cut else { continue };
            run.complete = false;
            if step.writes() && number + 1 < scene.steps.len() {
                run.left_out.push(format!("{what}: {cut}; the steps after it need what it did not write"));
                break;
            }
            run.left_out.push(format!("{what}: {cut}"));
        }
        Ok(())
    }

    /// Discards what earlier scenes wrote to a store that is not new.
    fn discard(&self, store: &dyn Store, folder: &Path) -> Result<()> {
        /// Longest time for it, in seconds.
        const LIMIT: u32 = 120;
        match store.discards() {
            Discards::New => Ok(()),
            Discards::Holes(path) => {
                let file = std::fs::File::options().write(true).open(path).map_err(BenchError::io(path))?;
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&file, how, 0, store.capacity_bytes())
                    .map_err(|error| BenchError::io(path)(error.into()))
            }
            Discards::ByRequests => {
                // Each of several images to the size of one, which jobs on one alone fill.
                let images = store.io_target().images_count();
                let job = Job { block_kib: 1024, images, ..Job::sequential(Pattern::Trim, Data::Zeros) };
                let (fio, capacity) = (&self.options.fio, store.capacity_bytes() * u64::from(images));
                fio.run(&job, store.io_target(), capacity, LIMIT, folder, self.stop).map(drop)
            }
        }
    }
}

/// Adds a sample to its series.
fn keep(run: &mut Run, scene: &Scene, step: &Step, target: &Target, sample: Sample) {
    let at = run
        .series
        .iter()
        .position(|it| it.scene == scene.name && it.step == step.name && it.target == target.name);
    let at = at.unwrap_or_else(|| {
        run.series.push(Series {
            scene: scene.name.clone(),
            step: step.name.clone(),
            job: step.job_text(),
            target: target.name.clone(),
            ..Series::default()
        });
        run.series.len() - 1
    });
    run.series[at].samples.push(sample);
}

/// What steps of a scene run with.
struct Steps<'a> {
    session: &'a Session<'a>,
    store: &'a dyn Store,
    folder: &'a Path,
    budget: &'a Budget,
}

impl Steps<'_> {
    /// Repeats a step until it is steady, the time is up, or it was repeated often enough.
    fn until_steady(&self, step: &Step, job_seconds: u32) -> Result<Sample> {
        let mut rounds = Vec::new();
        loop {
            // Without a pause between the rounds: background work is part of what becomes steady.
            rounds.push(self.once(step, job_seconds, false)?.0);
            let is_steady = steady::assess(&rounds).is_some_and(|it| it.is_steady);
            let is_over = rounds.len() >= steady::ROUNDS_MAX || !self.budget.fits(f64::from(job_seconds));
            if is_steady || is_over {
                return Ok(steady::merged(&rounds));
            }
        }
    }

    /// Runs a step. Returns also how it was cut short, if it was.
    fn run(&self, step: &Step, job_seconds: u32) -> Result<(Sample, Option<String>)> {
        self.once(step, job_seconds, true)
    }

    fn once(&self, step: &Step, job_seconds: u32, rests: bool) -> Result<(Sample, Option<String>)> {
        let store = self.store;
        let before = if store.counts_writes() { store.space()? } else { None };
        if step.reads() {
            store.drop_caches();
        }
        let cpu =
            |pids: Vec<u32>| -> f64 { pids.into_iter().map(|pid| process::cpu_seconds(pid, false)).sum() };
        let in_kernel = || if store.is_in_kernel() { process::kernel_cpu_seconds() } else { 0.0 };
        let server = || cpu(store.servers()) + in_kernel();
        let (server_before, device_before) = (server(), cpu(store.devices()));
        let (mut sample, cut) = self.act(step, job_seconds)?;
        if store.is_in_kernel() {
            store.io_target().sync()?;
        }
        if rests && !store.servers().is_empty() {
            sample.came_to_rest = Some(self.come_to_rest(&|| cpu(store.servers()))?);
        }
        let (server_after, device_after) = (server(), cpu(store.devices()));
        let has_server = store.is_in_kernel() || !store.servers().is_empty();
        sample.server_cpu_seconds = has_server.then_some(server_after - server_before);
        sample.device_cpu_seconds = (!store.devices().is_empty()).then_some(device_after - device_before);
        // Reads change nothing, and to ask may take seconds.
        let asks = store.counts_writes() || step.writes();
        if let Some(after) = if asks { store.space()? } else { None } {
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
            sample.ratio.filter(|it| is_compressible && store.must_compress() && *it < RATIO_MIN)
        {
            let problem = format!("a ratio of {ratio:.2}:1 of data of 80 % zeros: it does not compress");
            return Err(BenchError::program("btrfs", problem));
        }
        Ok((sample, cut))
    }

    /// Waits until servers do nothing any more, for a while. Returns whether they do.
    fn come_to_rest(&self, cpu: &dyn Fn() -> f64) -> Result<bool> {
        let since = Instant::now();
        let (mut last, mut quiet) = (cpu(), 0);
        while since.elapsed() < REST_MAX {
            self.session.stop.check()?;
            std::thread::sleep(REST_LOOK);
            let now = cpu();
            quiet = if now - last < REST_SHARE * REST_LOOK.as_secs_f64() { quiet + 1 } else { 0 };
            if quiet == 2 {
                return Ok(true);
            }
            last = now;
        }
        Ok(false)
    }

    /// Does what a step does. Returns also how it was cut short, if it was.
    fn act(&self, step: &Step, job_seconds: u32) -> Result<(Sample, Option<String>)> {
        let (store, session) = (self.store, self.session);
        let left = self.budget.left().as_secs_f64() as u32;
        let seconds = match step.is_timed() {
            true => job_seconds,
            false => left.clamp(ONCE_SECONDS, ONCE_SECONDS_MAX),
        };
        let (measured, expected) = match &step.action {
            Action::Fio(job) => {
                let (fio, capacity) = (&session.options.fio, store.capacity_bytes());
                let measured =
                    fio.run(job, store.io_target(), capacity, seconds, self.folder, session.stop)?;
                (measured, job.once_bytes(capacity))
            }
            Action::Objects(job) => {
                let access = store.objects().ok_or_else(|| BenchError::program("objects", "no gateway"))?;
                let capacity = store.capacity_bytes();
                let measured = match &job.warp {
                    Some(warp) => warp.run(job, access, seconds, self.folder, session.stop)?,
                    None => objects::run(job, access, capacity, seconds, session.stop)?,
                };
                let expected = (job.count(capacity) * u64::from(job.object_kib)) << 10;
                (measured, (!job.is_timed()).then_some(expected))
            }
            Action::Copy(image) => return Ok((session.copy(image, store.io_target(), self.folder)?, None)),
            Action::Settle => {
                let since = Instant::now();
                store.settle()?;
                return Ok((Sample { seconds: since.elapsed().as_secs_f64(), ..Sample::default() }, None));
            }
        };
        let cut = expected.filter(|expected| measured.bytes() < *expected).map(|expected| {
            let (done, all) = (measured.bytes() >> 20, expected >> 20);
            format!("cut after {seconds} s, at {done} of {all} MiB")
        });
        let sample = Sample {
            bytes: measured.bytes(),
            seconds: measured.seconds,
            requests_per_second: measured.requests as f64 / measured.seconds,
            p50_us: measured.p50_us,
            p99_us: measured.p99_us,
            client_cpu_seconds: measured.cpu_seconds,
            ..Sample::default()
        };
        Ok((sample, cut))
    }
}

impl Session<'_> {
    /// Copies an image to an export with `nbdcopy`, zeros included.
    fn copy(&self, image: &Path, io_target: &IoTarget, folder: &Path) -> Result<Sample> {
        const COPY: Duration = Duration::from_secs(600);
        let IoTarget::Nbd(uri) = io_target else {
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

/// Refuses a target for which more would be written than is free where it is made.
fn must_fit(target: &Target, folder: &Path, size_bytes: u64) -> Result<()> {
    let Some(made_in) = target.made_in(folder).filter(|it| !it.as_os_str().is_empty()) else { return Ok(()) };
    // Who makes the file says why that is not possible.
    let Ok(found) = rustix::fs::statvfs(made_in) else { return Ok(()) };
    let free_bytes = found.f_bavail.saturating_mul(found.f_frsize);
    let needed_bytes = store::most_bytes(target, size_bytes);
    if free_bytes >= needed_bytes {
        return Ok(());
    }
    // That of the run is removed with it.
    let shown = if made_in == folder { folder.parent().unwrap_or(folder) } else { made_in };
    Err(BenchError::NoRoom {
        target: target.name.clone(),
        folder: shown.to_path_buf(),
        needed_mib: needed_bytes >> 20,
        free_mib: free_bytes >> 20,
    })
}

#[cfg(test)]
mod tests;
