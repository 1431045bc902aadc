//! Runs models, each in a separate process. When a model fails, loom panics again during unwinding, which
//! ends the process.

use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, panic, process, thread};

use loom::model::Builder;

/// Most preemptions per run, for models with too many orders to try all. Each planted mistake is found within
/// this bound.
pub(crate) const PREEMPTIONS_MAX: usize = 3;
/// Environment variable that is set for the process that runs the model.
const CHILD: &str = "PUMICE_MODEL";

/// Replaces the bound by `PUMICE_PREEMPTIONS`, if that is set.
fn raised(preemptions_max: usize) -> usize {
    let number = env::var("PUMICE_PREEMPTIONS").ok();
    number.map_or(preemptions_max, |it| it.parse().expect("PUMICE_PREEMPTIONS is a number"))
}

/// Runs the model and ends the process. Never returns.
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

/// Checks that the model holds in every run: one for each order of steps with at most `preemptions_max`
/// preemptions, or without a bound.
pub(crate) fn holds(model: fn(), preemptions_max: Option<usize>) {
    let (held, said) = run_apart(model, preemptions_max);
    assert!(held && said.ends_with(" runs"), "{said}");
}

/// Checks that the model fails with a message that contains `what`.
pub(crate) fn finds(model: fn(), what: &str) {
    let (held, said) = run_apart(model, Some(PREEMPTIONS_MAX));
    assert!(!held, "the mistake was not found in {said}");
    assert!(said.contains(what), "expected {what:?} to be found, and not: {said}");
}
