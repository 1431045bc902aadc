//! The drive's planted bugs are found. Wants `--features planted-bugs`.
#![cfg(feature = "planted-bugs")]

use drive::Drive;
use media::SimMedia;
use sim::Bug;
use sim::campaign::{self, Plan};

/// Seeds among which a bug must show.
const SEEDS: u64 = 3000;

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        let plan = Plan { first: 0, seeds: SEEDS, threads: 2, bug: Some(bug), failures_max: 1 };
        let found = campaign::run::<Drive<SimMedia>>(plan, |_| true).failures;
        assert!(!found.is_empty(), "{} was not found in {SEEDS} seeds", bug.name());
    }
}
