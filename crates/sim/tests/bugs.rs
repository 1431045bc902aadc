//! The drive's planted bugs are found. Wants `--features planted-bugs`, and a release build to be quick.
#![cfg(feature = "planted-bugs")]

use drive::Drive;
use media::SimMedia;
use sim::Bug;
use sim::campaign::{self, Plan};

/// Seeds among which a bug must show, in lots: most show in the first, the rarest in one seed of some hundred.
const LOT: u64 = 100;
const LOTS_MAX: u64 = 50;

type Subject = Drive<SimMedia>;

#[test]
fn each_planted_bug_is_found() {
    for bug in Bug::ALL {
        let is_found = |lot| {
            let plan =
                Plan { first: lot * LOT, seeds: LOT, threads: 2, bug: Some(bug), failures_max: usize::MAX };
            let failures = campaign::run::<Subject>(plan, |_| true).failures;
            failures.iter().any(|(seed, _)| campaign::run_one::<Subject>(*seed, None).failure.is_none())
        };
        assert!((0..LOTS_MAX).any(is_found), "{} was not found in {} seeds", bug.name(), LOT * LOTS_MAX);
    }
}
