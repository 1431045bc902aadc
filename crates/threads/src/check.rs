//! Runs models, each in a process of its own: where one fails, loom panics again while the first panic unwinds, and the
//! process with it.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, panic, process, thread};

use loom::model::Builder;

/// How often threads are interrupted in a run where they need not be, at most, of models with too many orders to try all.
/// Each planted mistake shows within this bound.
pub(crate) const PREEMPTIONS_MAX: usize = 3;
/// Set for the process that runs the model.
const CHILD: &str = "PUMICE_MODEL";

/// `PUMICE_PREEMPTIONS` sets another bound than this one.
fn raised(preemptions_max: usize) -> usize {
    let number = env::var("PUMICE_PREEMPTIONS").ok();
    number.map_or(preemptions_max, |it| it.parse().expect("PUMICE_PREEMPTIONS is a number"))
}

/// Never returns: the process ends with the model.
fn run(model: fn(), preemptions_max: Option<usize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    let (counted, failed) = (runs.clone(), runs.clone());
    panic::set_hook(Box::new(move |why| {
        eprintln!("run {}: {why}", failed.load(Ordering::Relaxed));
        process::exit(1);
    }));
    let mut builder = Builder::new();
    builder.preemption_bound = preemptions_max.map(raised);
    builder.check(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        model();
    });
    eprintln!("{} runs", runs.load(Ordering::Relaxed));
    process::exit(0);
}

/// Runs this test again, in a process that runs the model.
fn run_apart(model: fn(), preemptions_max: Option<usize>) -> (bool, String) {
    if env::var_os(CHILD).is_some() {
        run(model, preemptions_max);
    }
    let this = thread::current();
    let name = this.name().expect("a test's thread has its name");
    let mut child = Command::new(env::current_exe().expect("the program knows where it is"));
    child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").env("RUST_BACKTRACE", "0");
    let Output { status, stderr, .. } = child.output().expect("the program can be run again");
    let said = String::from_utf8_lossy(&stderr).trim().to_string();
    eprintln!("{name}: {said}");
    (status.success(), said)
}

/// The model holds in every run: one for each order of steps with so many preemptions at most, or for each that there is.
pub(crate) fn holds(model: fn(), preemptions_max: Option<usize>) {
    let (held, said) = run_apart(model, preemptions_max);
    assert!(held && said.ends_with(" runs"), "{said}");
}

/// The model fails, and says so.
pub(crate) fn finds(model: fn(), what: &str) {
    let (held, said) = run_apart(model, Some(PREEMPTIONS_MAX));
    assert!(!held, "the mistake was not found in {said}");
    assert!(said.contains(what), "expected {what:?} to be found, and not: {said}");
}
