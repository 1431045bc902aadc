//! Tests of the simulator itself: a correct toy drive passes, and a wrong one fails.

use drive::PlantedBug;
use sim::campaign::{self, POWER_CUT, Plan};
use sim::{Bug, Tested};

fn must_pass(seeds: u64) {
    let plan = Plan { tested: Tested::Toy, seeds, failures_max: 5, ..Plan::default() };
    let total = campaign::run(plan, |_| ());
    assert_eq!(total.failures, []);
    assert_eq!(total.seeds, seeds);
}

#[test]
fn a_correct_drive_passes() {
    must_pass(15);
}

#[test]
#[ignore = "a minute of two processors: make test-long"]
fn a_correct_drive_passes_with_many_seeds() {
    must_pass(60);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..10 {
        assert_eq!(
            campaign::run_one(Tested::Toy, seed, None),
            campaign::run_one(Tested::Toy, seed, None),
            "seed {seed}"
        );
    }
}

#[test]
fn a_campaign_ends_after_so_many_power_cuts() {
    let plan = Plan { tested: Tested::Toy, seeds: u64::MAX, cuts_max: 50, ..Plan::default() };
    let total = campaign::run(plan, |_| ());
    assert!(total.counts.get(POWER_CUT) >= 50);
    assert_eq!(total.failures, []);
}

#[test]
fn lives_go_on_while_crashes_of_them_are_tried_out() {
    let plan = Plan { tested: Tested::Toy, seeds: 10, ..Plan::default() };
    let total = campaign::run(plan, |_| ());
    let (branches, cuts) = (total.counts.get("life: branched"), total.counts.get(POWER_CUT));
    assert!(branches > 10 * total.seeds && cuts > branches / 2, "{branches} branches, {cuts} power cuts");
}

fn must_be_found(bug: Bug) {
    let plan = Plan { tested: Tested::Toy, seeds: 300, bug: Some(bug), ..Plan::default() };
    assert!(campaign::first_that_finds(plan).is_some(), "{} went unnoticed", bug.name());
}

#[test]
fn a_flush_that_does_not_flush_is_found() {
    must_be_found(Bug::Drive(PlantedBug::SkipFlush));
}

#[test]
fn old_data_over_new_is_found() {
    must_be_found(Bug::Drive(PlantedBug::ApplyStaleMove));
}

#[test]
fn space_reused_too_early_is_found() {
    must_be_found(Bug::Drive(PlantedBug::ReuseSegmentEarly));
}

#[test]
fn a_torn_entry_taken_for_whole_is_found() {
    must_be_found(Bug::Drive(PlantedBug::IgnoreTornPack));
}

#[test]
fn a_forgotten_trim_is_found() {
    must_be_found(Bug::Drive(PlantedBug::DropTrim));
}
