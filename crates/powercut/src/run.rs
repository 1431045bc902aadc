//! Runs of many stories.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use media::SimRng;
use parking_lot::Mutex;

use crate::counts::Counts;
use crate::disk::{Disk, Pace, Stale};
use crate::error::Error;
use crate::fio;
use crate::mode::Mode;
use crate::mount::{Cache, Mounted};
use crate::story::{self, Setting};

/// Parameters of a run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program under test.
    pub program: PathBuf,
    /// Seed of the first story. Each further story has the next one.
    pub seed: u64,
    /// Power cuts to make, and kills after which a memory is there.
    pub cuts: u64,
    /// Most stories to run.
    pub stories: u64,
    /// Modes of the stories, in turn.
    pub modes: Vec<Mode>,
    /// Number of stories that run concurrently.
    pub jobs: usize,
    /// Failures after which to stop.
    pub failures_max: u64,
    /// I/O back end of the servers, `uring` or `plain`, if not as drawn.
    pub io: Option<String>,
    /// True if fio is used too.
    pub fio: bool,
    /// The disk loses all data: all stories must fail.
    pub lies: bool,
    /// Mistake that a debug build of the program is to make, `done-late` or `done-early`: stories of drives
    /// below a device must fail.
    pub planted: Option<String>,
    /// Excuse nothing, not even mistakes of the program that are known.
    pub strict: bool,
    /// Print all events.
    pub verbose: bool,
    /// Folder for all files. Stories that fail leave theirs there.
    pub folder: PathBuf,
}

/// A story with a violation.
#[derive(Debug)]
pub struct Failure {
    /// Seed of the story.
    pub seed: u64,
    /// Mode of the story.
    pub mode: Mode,
    /// Reason of the failure.
    pub why: Error,
    /// Folder with logs and images.
    pub kept: PathBuf,
}

/// Result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// Counts of events.
    pub counts: Counts,
    /// Failed stories.
    pub failures: Vec<Failure>,
}

/// Reason why stories cannot be run here, if any: no FUSE, or no fio although it is required.
pub fn why_not(folder: &Path, fio: bool) -> Option<String> {
    let missing = if fio { fio::check_installed().err().map(|missing| missing.to_string()) } else { None };
    missing.or_else(|| {
        let disk = Arc::new(Disk::new(1 << 20, Pace::default(), Stale::Hidden, SimRng::new(0)));
        let point = folder.join("probe");
        let probe = std::fs::create_dir_all(&point)
            .and_then(|()| Mounted::new(disk, Cache::WriteBack, &point))
            .and_then(|mounted| std::fs::read(mounted.file()).map(|_| mounted))
            .and_then(Mounted::unmount);
        // A leftover does no harm.
        let _ = std::fs::remove_dir(&point);
        probe.err().map(|error| format!("cannot mount a FUSE file system: {error}"))
    })
}

/// State that several threads share.
struct Run<'a> {
    options: &'a Options,
    next: Mutex<u64>,
    report: Mutex<Report>,
}

/// Runs stories until there were enough power cuts. `progress` receives the counts after each story.
///
/// # Errors
/// If the environment lacks something.
pub fn run(options: &Options, progress: impl Fn(&Counts) + Sync) -> io::Result<Report> {
    let run = Run { options, next: Mutex::new(0), report: Mutex::new(Report::default()) };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..options.jobs.max(1)).map(|_| scope.spawn(|| run.stories(&progress))).collect();
        threads.into_iter().try_for_each(|thread| match thread.join() {
            Ok(result) => result,
            Err(_) => Err(io::Error::other("a story panicked")),
        })
    })?;
    Ok(run.report.into_inner())
}

impl Run<'_> {
    /// Returns the number of the next story, and how many power cuts it may have.
    fn draw(&self) -> Option<(u64, u64)> {
        let report = self.report.lock();
        let left = self.options.cuts.saturating_sub(report.counts.cuts + report.counts.kills_kept);
        let mut next = self.next.lock();
        let is_over = left == 0
            || *next >= self.options.stories
            || report.failures.len() as u64 >= self.options.failures_max;
        if is_over {
            return None;
        }
        *next += 1;
        Some((*next - 1, left))
    }

    fn stories(&self, progress: &impl Fn(&Counts)) -> io::Result<()> {
        while let Some((number, cuts_max)) = self.draw() {
            let seed = self.options.seed + number;
            let mode = self.options.modes[number as usize % self.options.modes.len()];
            let folder = self.options.folder.join(format!("seed-{seed}-{mode}"));
            std::fs::create_dir_all(&folder)?;
            let setting = Setting {
                program: self.options.program.clone(),
                mode,
                seed,
                cuts_max,
                io: self.options.io.clone(),
                fio: self.options.fio,
                lies: self.options.lies,
                planted: self.options.planted.clone(),
                strict: self.options.strict,
                verbose: self.options.verbose,
            };
            let ending = story::run(&setting, &folder)?;
            let mut report = self.report.lock();
            report.counts.add(&ending.counts);
            match ending.failure {
                Some(why) => report.failures.push(Failure { seed, mode, why, kept: folder }),
                None => std::fs::remove_dir_all(&folder)?,
            }
            progress(&report.counts);
        }
        Ok(())
    }
}
