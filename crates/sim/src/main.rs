//! Runs the simulator: many seeds, or a single one again.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "this is what the program is for")]

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use drive::Planted;
use sim::campaign::{self, POWER_CUT, Plan, Total};
use sim::{Bug, Style, Tested};

/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Longest printed part of the failure that a planted mistake caused.
const WHY_CHARS_MAX: usize = 100;

/// Runs a drive through operations, faults and power cuts, all drawn from seeds.
#[derive(Parser)]
#[command(name = "sim")]
struct Arguments {
    /// Seeds to run.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run this one only.
    #[arg(long, conflicts_with_all = ["seeds", "first", "soak"])]
    seed: Option<u64>,
    /// Print everything that happens. With --seed only.
    #[arg(long, requires = "seed")]
    verbose: bool,
    /// Go on until something fails.
    #[arg(long)]
    soak: bool,
    /// With --soak: stop after so many power cuts.
    #[arg(long, value_name = "COUNT", requires = "soak")]
    cuts: Option<u64>,
    /// Plant a mistake and search the first seed that finds it: a name, or all of them in turn.
    #[arg(long, value_name = "NAME|all", conflicts_with = "soak")]
    bug: Option<String>,
    /// Run only seeds whose clients are of this style.
    #[arg(long, value_name = "NAME", value_parser = style)]
    style: Option<Style>,
    /// Failures after which to stop.
    #[arg(long, default_value_t = 5)]
    failures: usize,
    /// Threads.
    #[arg(long, default_value_t = 2)]
    threads: u32,
    /// Run only the story of two machines that claim one drive.
    #[arg(long, conflicts_with_all = ["toy", "style"])]
    rivals: bool,
    /// Test the simulator's toy drive instead of the real one.
    #[arg(long)]
    toy: bool,
}

impl Arguments {
    fn tested(&self) -> Tested {
        match (self.toy, self.rivals) {
            (true, _) => Tested::Toy,
            (_, true) => Tested::Rivals,
            _ => Tested::Drive,
        }
    }
}

fn style(name: &str) -> Result<Style, String> {
    let of = |style: &Style| format!("{style:?}").to_lowercase();
    let names = || Style::ALL.iter().map(of).collect::<Vec<_>>().join(", ");
    let found = Style::ALL.into_iter().find(|style| of(style) == name);
    found.ok_or_else(|| format!("expected one of {}", names()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let bugs: Vec<Option<Bug>> = match arguments.bug.as_deref() {
        None => vec![None],
        Some("all") => Bug::all().map(Some).collect(),
        Some(name) => match Bug::from_name(name) {
            Some(bug) => vec![Some(bug)],
            None => {
                let names = Bug::all().map(Bug::name).collect::<Vec<_>>().join(", ");
                eprintln!("no bug is called {name}: use all or one of {names}");
                return ExitCode::from(2);
            }
        },
    };
    if !arguments.toy && !Planted::IS_POSSIBLE && arguments.bug.is_some() {
        eprintln!("a released build has no planted bugs: add --features planted-bugs");
        return ExitCode::from(2);
    }
    if run(&arguments, &bugs) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(arguments: &Arguments, bugs: &[Option<Bug>]) -> bool {
    match (arguments.seed, bugs) {
        (Some(seed), [bug]) => replay(arguments, seed, *bug),
        (Some(_), _) => {
            eprintln!("--seed wants one bug, not all");
            false
        }
        (None, [None]) => hunt(arguments),
        (None, bugs) => {
            let known = arguments.tested().bugs();
            let bugs = bugs.iter().flatten().filter(|bug| known.contains(bug));
            let found: Vec<bool> = bugs.map(|&bug| find_bug(arguments, bug)).collect();
            let count = found.iter().filter(|&&is_found| is_found).count();
            println!("{count} of {} planted mistakes found", found.len());
            count == found.len()
        }
    }
}

fn replay(arguments: &Arguments, seed: u64, bug: Option<Bug>) -> bool {
    let report = arguments.tested().run(seed, bug, arguments.verbose);
    print!("{}", report.counts);
    match report.failure {
        None => {
            println!("seed {seed}: fine after {} steps", report.steps);
            true
        }
        Some(why) => {
            println!("seed {seed}: FAILED after {} steps\n{why}", report.steps);
            false
        }
    }
}

fn hunt(arguments: &Arguments) -> bool {
    let started = Instant::now();
    let (reported, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let seeds = if arguments.soak { u64::MAX } else { arguments.seeds };
    let (first, threads) = (arguments.first, arguments.threads);
    let style = arguments.style;
    let failures_max = if arguments.soak { 1 } else { arguments.failures };
    let cuts_max = arguments.cuts.unwrap_or(u64::MAX);
    let tested = arguments.tested();
    let plan = Plan { tested, first, seeds, style, threads, bug: None, failures_max, cuts_max };
    let total = campaign::run(plan, |total| {
        let now = started.elapsed().as_secs() / REPORT_EVERY.as_secs();
        if reported.fetch_max(now, Ordering::Relaxed) < now {
            println!("{}", summary(total, started.elapsed()));
        }
        // Printed at once, because the run may be ended before its end.
        let count = total.failures.len() as u64;
        if failed.fetch_max(count, Ordering::Relaxed) < count
            && let Some((seed, why)) = total.failures.last()
        {
            println!("seed {seed} failed: {}", why.lines().next().unwrap_or_default());
        }
    });
    print!("{}", total.counts);
    println!("{}", summary(&total, started.elapsed()));
    for (seed, why) in &total.failures {
        println!("\nseed {seed}: {why}\nreplay: {}", command(arguments, *seed, None));
    }
    total.failures.is_empty()
}

/// Searches a seed that finds the mistake and does not fail without it. Prints the result in one line.
fn find_bug(arguments: &Arguments, bug: Bug) -> bool {
    let (first, seeds, threads) = (arguments.first, arguments.seeds, arguments.threads);
    let started = Instant::now();
    let tested = arguments.tested();
    let plan =
        Plan { tested, first, seeds, style: arguments.style, threads, bug: Some(bug), ..Plan::default() };
    let found = campaign::first_that_finds(plan);
    let name = bug.name();
    match &found {
        None => println!("{name:<26} NOT FOUND in {seeds} seeds"),
        Some((seed, why)) => {
            let seconds = started.elapsed().as_secs_f64();
            let why: String = why.lines().next().unwrap_or_default().chars().take(WHY_CHARS_MAX).collect();
            println!("{name:<26} found at seed {seed:>4} ({seconds:.0} s): {why}");
        }
    }
    found.is_some()
}

fn command(arguments: &Arguments, seed: u64, bug: Option<Bug>) -> String {
    // With debug assertions if this program has them.
    let (profile, features) = match (cfg!(debug_assertions), bug) {
        (true, _) => ("--profile soak", ""),
        (false, Some(_)) => ("--release", " --features planted-bugs"),
        (false, None) => ("--release", ""),
    };
    let toy = match arguments.tested() {
        Tested::Drive => "",
        Tested::Rivals => " --rivals",
        Tested::Toy => " --toy",
    };
    let bug = bug.map_or(String::new(), |bug| format!(" --bug {}", bug.name()));
    format!("cargo run {profile} -p sim{features} --{toy}{bug} --seed {seed} --verbose")
}

fn summary(total: &Total, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(0.001);
    let counts = &total.counts;
    let operations = counts.sum("op: ");
    format!(
        "{} seeds in {seconds:.1} s ({:.0}/s), {operations} operations ({:.0}/s), {} power cuts ({:.0}/s), {} kills, \
         {} recoveries, {} faults injected, {} failed",
        total.seeds,
        total.seeds as f64 / seconds,
        operations as f64 / seconds,
        counts.get(POWER_CUT),
        counts.get(POWER_CUT) as f64 / seconds,
        counts.get("life: killed"),
        counts.get("restart: opened"),
        counts.sum("fault: "),
        total.failures.len(),
    )
}
