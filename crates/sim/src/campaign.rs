//! Many seeds, on several threads.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::report::Report;
use crate::{Bug, Counts, Style, Tested};

/// Name of the counter of power cuts.
pub const POWER_CUT: &str = "life: power cut";

/// Result of many seeds.
#[derive(Debug, Default)]
pub struct Total {
    /// Number of seeds run.
    pub seeds: u64,
    /// Counts of all seeds.
    pub counts: Counts,
    /// Seeds that failed, with the reason.
    pub failures: Vec<(u64, String)>,
}

/// Seeds to run, and parameters. The default runs none.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// What they run on.
    pub tested: Tested,
    /// The first seed.
    pub first: u64,
    /// Number of seeds. `u64::MAX`: until stopped.
    pub seeds: u64,
    /// Run only seeds of this style.
    pub style: Option<Style>,
    /// Number of threads. Each seed runs on one thread.
    pub threads: u32,
    /// Mistake planted in the drive.
    pub bug: Option<Bug>,
    /// Stop after this many failures.
    pub failures_max: usize,
    /// Stop after this many power cuts. Seeds already started are finished.
    pub cuts_max: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            tested: Tested::Drive,
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
    /// Returns the next seed to run. `handed_out` is the number of seeds that threads took so far.
    fn next_seed(&self, handed_out: &AtomicU64) -> Option<u64> {
        loop {
            let index = handed_out.fetch_add(1, Ordering::Relaxed);
            if index >= self.seeds {
                return None;
            }
            let seed = self.first.wrapping_add(index);
            if self.style.is_none_or(|style| style == self.tested.style(seed)) {
                return Some(seed);
            }
        }
    }
}

/// Runs a plan. Calls `watch` after every seed.
pub fn run(plan: Plan, watch: impl Fn(&Total) + Sync) -> Total {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let total = Mutex::new(Total::default());
    let worker = || {
        while !stop.load(Ordering::Relaxed) {
            let Some(seed) = plan.next_seed(&next) else { return };
            let report = run_one(plan.tested, seed, plan.bug);
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

/// Returns the first seed of the plan that fails with the planted mistake and not without it, with its
/// failure.
pub fn first_that_finds(plan: Plan) -> Option<(u64, String)> {
    let next = AtomicU64::new(0);
    let found: Mutex<Option<(u64, String)>> = Mutex::new(None);
    let worker = || {
        // Seeds are handed out in order, and seeds already started are finished.
        while found.lock().is_none() {
            let Some(seed) = plan.next_seed(&next) else { return };
            let Some(why) = run_one(plan.tested, seed, plan.bug).failure else { continue };
            if run_one(plan.tested, seed, None).failure.is_some() {
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

/// Runs a seed. A panic counts as a failure.
pub fn run_one(tested: Tested, seed: u64, bug: Option<Bug>) -> Report {
    catch_unwind(AssertUnwindSafe(|| tested.run(seed, bug, false))).unwrap_or_else(|panic| Report {
        counts: Counts::default(),
        failure: Some(format!("panic: {}", message(&*panic))),
        steps: 0,
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
