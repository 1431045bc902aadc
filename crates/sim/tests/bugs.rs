//! Every mistake planted in the drive is found. Requires `--features planted-bugs`; a release build makes it
//! fast.
#![cfg(feature = "planted-bugs")]

use sim::Bug;
use sim::campaign::{self, Plan};
use sim::served::Served;

/// Number of seeds within which a mistake must be found.
const SEEDS: u64 = 1000;

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::all() {
        let plan = Plan { seeds: SEEDS, bug: Some(bug), failures_max: 1, ..Plan::default() };
        let found = campaign::first_that_finds::<Served>(plan);
        assert!(found.is_some(), "{} was not found in {SEEDS} seeds", bug.name());
    }
}
