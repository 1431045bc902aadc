//! The simulator itself: a toy drive that is right passes, and one that is wrong does not.

use sim::Bug;
use sim::campaign::{self, Plan};
use sim::toy::Toy;

#[test]
fn a_correct_drive_passes() {
    let plan = Plan { first: 0, seeds: 200, style: None, threads: 2, bug: None, failures_max: 5 };
    let total = campaign::run::<Toy>(plan, |_| true);
    assert_eq!(total.failures, []);
    assert_eq!(total.seeds, 200);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..10 {
        assert_eq!(campaign::run_one::<Toy>(seed, None), campaign::run_one::<Toy>(seed, None), "seed {seed}");
    }
}

fn must_be_found(bug: Bug) {
    let plan = Plan { first: 0, seeds: 300, style: None, threads: 2, bug: Some(bug), failures_max: 3 };
    let failures = campaign::run::<Toy>(plan, |_| true).failures;
    let mut genuine =
        failures.iter().filter(|(seed, _)| campaign::run_one::<Toy>(*seed, None).failure.is_none());
    assert!(genuine.next().is_some(), "{} went unnoticed", bug.name());
}

#[test]
fn a_flush_that_does_not_flush_is_found() {
    must_be_found(Bug::SkipFlush);
}

#[test]
fn old_data_over_new_is_found() {
    must_be_found(Bug::ApplyStaleMove);
}

#[test]
fn space_reused_too_early_is_found() {
    must_be_found(Bug::ReuseSegmentEarly);
}

#[test]
fn a_torn_entry_taken_for_whole_is_found() {
    must_be_found(Bug::IgnoreTornPack);
}

#[test]
fn a_forgotten_trim_is_found() {
    must_be_found(Bug::DropTrim);
}
