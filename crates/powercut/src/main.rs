//! `power-cuts`: cuts the power under `pumice serve`, hundreds of times.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Parser;
use parking_lot::Mutex;
use powercut::{Counts, Failure, Mode, Options, attachment, run, why_not};

/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Cuts the power under `pumice serve` and verifies what it promised.
#[derive(Parser)]
#[command(name = "power-cuts")]
struct Arguments {
    /// Power cuts to make.
    #[arg(long, default_value_t = 500)]
    cuts: u64,
    /// Seed of the first drive; the next drive has the next [default: drawn from the clock].
    #[arg(long)]
    seed: Option<u64>,
    /// Drives at most; each is cut some dozen times.
    #[arg(long, default_value_t = u64::MAX, hide_default_value = true)]
    stories: u64,
    /// Modes of the drives, in turn: direct, cache, fsyncgate, stale-disk, kills, attached, parity.
    #[arg(long, value_delimiter = ',', default_value = "direct,cache,fsyncgate,stale-disk")]
    modes: Vec<Mode>,
    /// The program to test.
    #[arg(long, default_value = "target/release/pumice")]
    program: PathBuf,
    /// Drives at a time.
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Failures after which to stop.
    #[arg(long, default_value_t = 5)]
    failures: u64,
    /// Folder for logs and images of drives that fail.
    #[arg(long)]
    folder: PathBuf,
    /// I/O engine of the program: uring or plain [default: as drawn, through the page cache plain].
    #[arg(long, value_parser = ["uring", "plain"])]
    io: Option<String>,
    /// Without fio.
    #[arg(long)]
    no_fio: bool,
    /// Syncs of the disk keep nothing: shows that a broken promise is noticed.
    #[arg(long)]
    lying_disk: bool,
    /// A mistake that the program is to make below a device, if it has debug assertions: shows that it is
    /// noticed.
    #[arg(long, value_parser = ["done-late", "done-early"])]
    planted: Option<String>,
    /// Excuse nothing, not even mistakes of the program that are known.
    #[arg(long)]
    strict: bool,
    /// Print everything that happens.
    #[arg(long)]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(why) = why_not(&arguments.folder, !arguments.no_fio) {
        println!("skipped: {why}");
        return ExitCode::SUCCESS;
    }
    let program = match arguments.program.canonicalize() {
        Ok(program) => program,
        Err(error) => {
            eprintln!(
                "{}: {error}; build it first: cargo build --release -p pumice",
                arguments.program.display()
            );
            return ExitCode::from(2);
        }
    };
    let mut modes = arguments.modes;
    if modes.contains(&Mode::Attached)
        && let Some(why) = attachment::why_not()
    {
        println!("skipped: mode attached: {why}");
        modes.retain(|mode| *mode != Mode::Attached);
        if modes.is_empty() {
            return ExitCode::SUCCESS;
        }
    }
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let options = Options {
        program,
        seed: arguments.seed.unwrap_or(clock),
        cuts: arguments.cuts,
        stories: arguments.stories,
        modes,
        jobs: arguments.jobs,
        failures_max: arguments.failures,
        io: arguments.io,
        fio: !arguments.no_fio,
        lies: arguments.lying_disk,
        planted: arguments.planted,
        strict: arguments.strict,
        verbose: arguments.verbose,
        folder: arguments.folder,
    };
    println!("seed {}", options.seed);
    let started = Instant::now();
    let last = Mutex::new(started);
    let report = run(&options, |counts: &Counts| {
        let mut last = last.lock();
        if last.elapsed() > REPORT_EVERY {
            *last = Instant::now();
            let seconds = started.elapsed().as_secs();
            println!(
                "{} power cuts, {} pages lost, {} repaired in {seconds} s, {} failures",
                counts.cuts,
                counts.losses.pages(),
                counts.repaired_pages,
                counts.failures
            );
        }
    });
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            eprintln!("stopped: {error}");
            return ExitCode::from(2);
        }
    };
    for failure in &report.failures {
        print_failure(failure);
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("{}", report.counts);
    println!("time:         {seconds:.0} s, {:.1} cuts/s", report.counts.cuts as f64 / seconds);
    if report.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn print_failure(failure: &Failure) {
    let Failure { seed, mode, why, kept } = failure;
    println!("\nFAILED: seed {seed}, mode {mode}: {why}");
    println!("kept: {} (server.log, image.cut: after the last power cut, image.now)", kept.display());
    println!("again: scripts/power-cuts.sh --seed {seed} --modes {mode} --stories 1\n");
}
