//! Many seeds, on several threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::seed::{self, Report};
use crate::{Bug, Counts, Style, Subject};

/// What counts power cuts.
pub const POWER_CUT: &str = "life: power cut";

/// What many seeds came to.
#[derive(Debug, Default)]
pub struct Total {
    /// Seeds run.
    pub seeds: u64,
    /// What they went through.
    pub counts: Counts,
    /// Seeds that failed, and why, by seed.
    pub failures: Vec<(u64, String)>,
}

/// Which seeds to run, and how. The default runs none.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// The first seed.
    pub first: u64,
    /// How many; `u64::MAX`: until told to stop.
    pub seeds: u64,
    /// Only those of this style.
    pub style: Option<Style>,
    /// Threads; each runs seeds of its own.
    pub threads: u32,
    /// The mistake the drive makes.
    pub bug: Option<Bug>,
    /// Failures after which to stop.
    pub failures_max: usize,
    /// Power cuts after which to stop; the seeds that were begun are finished.
    pub cuts_max: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            first: 0,
            seeds: 0,
            style: None,
            threads: 2,
            bug: None,
            failures_max: usize::MAX,
            cuts_max: u64::MAX,
        }
    }
}

impl Plan {
    fn wants<S: Subject>(&self, seed: u64) -> bool {
        self.style.is_none_or(|style| style == seed::style::<S>(seed))
    }
}

/// Runs a plan. `watch` is called after every seed.
pub fn run<S: Subject>(plan: Plan, watch: impl Fn(&Total) + Sync) -> Total {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Total::default());
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= plan.seeds {
                return;
            }
            let seed = plan.first.wrapping_add(index);
            if !plan.wants::<S>(seed) {
                continue;
            }
            let report = run_one::<S>(seed, plan.bug);
            let mut total = total.lock();
            total.seeds += 1;
            total.counts.merge(&report.counts);
            total.failures.extend(report.failure.map(|why| (seed, why)));
            let is_enough =
                total.failures.len() >= plan.failures_max || total.counts.get(POWER_CUT) >= plan.cuts_max;
            watch(&total);
            if is_enough {
                stop.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..plan.threads.max(1)).for_each(|_| _ = scope.spawn(worker)));
    let mut total = total.into_inner();
    total.failures.sort();
    total
}

/// The first seed of the plan that fails with its mistake planted and not without it, and what it says.
pub fn first_that_finds<S: Subject>(plan: Plan) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let found: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let worker = || {
        // Seeds are handed out in their order, and those that were begun are finished.
        while found.lock().is_none() {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= plan.seeds {
                return;
            }
            let seed = plan.first.wrapping_add(index);
            if !plan.wants::<S>(seed) {
                continue;
            }
            let Some(why) = run_one::<S>(seed, plan.bug).failure else { continue };
            if run_one::<S>(seed, None).failure.is_some() {
                continue;
            }
            let mut found = found.lock();
            if found.as_ref().is_none_or(|(earlier, _)| seed < *earlier) {
                *found = Some((seed, why));
            }
        }
    };
    thread::scope(|scope| (0..plan.threads.max(1)).for_each(|_| _ = scope.spawn(worker)));
    found.into_inner()
}

/// Runs a seed; a panic is a failure like any other.
pub fn run_one<S: Subject>(seed: u64, bug: Option<Bug>) -> Report {
    catch_unwind(AssertUnwindSafe(|| seed::run::<S>(seed, bug, false))).unwrap_or_else(|panic| Report {
        counts: Counts::default(),
        failure: Some(format!("panic: {}", message(&*panic))),
        steps: 0,
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
