//! The drive through 200 seeds.

use sim::Tested;
use sim::campaign::{self, Plan};

#[test]
fn two_hundred_seeds() {
    let plan = Plan { seeds: 200, failures_max: 5, ..Plan::default() };
    let total = campaign::run(plan, |_| ());
    for (seed, why) in &total.failures {
        eprintln!("seed {seed}: {why}\nreplay: cargo run --release -p sim -- --seed {seed} --verbose\n");
    }
    assert!(total.failures.is_empty(), "{} seeds failed", total.failures.len());
    for name in [
        "life: power cut",
        "life: branched",
        "life: hosts come over NBD",
        "order: the newest operation completes next",
        "order: operations complete by priorities",
        "life: panic in the engine",
        "life: a task interrupted another",
        "data: with a structure",
        "restart: panic during recovery",
        "rounds: part of a block changed",
        "op: change of codec",
        "fault: write torn",
        "restart: opened, only data of hosts is damaged",
        "drive: records of the log that were durable and are damaged",
        "drive: segments cleaned",
        "outcome: write refused for space",
        "op: growth",
        "op: growth given up",
        "op: write given up",
        "op: maintenance given up",
        "op: flush, drive full",
        "full: overwrite in place, taken",
        "full: refill after a trim, taken",
        "cut: a checkpoint written, not synced",
        "cut: just after a checkpoint's last sync",
        "drive: map nodes evicted",
        "op: settle, did something",
        "op: cut, did something",
        "op: train, kept a dictionary",
        "wipe: done",
        "wipe: cut short, drive empty",
        "wipe: cut short, drive as it was",
    ] {
        assert!(total.counts.get(name) > 0, "no seed has seen {name}");
    }
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 1000..1010 {
        let first = campaign::run_one(Tested::Drive, seed, None);
        assert_eq!(first, campaign::run_one(Tested::Drive, seed, None), "seed {seed}");
    }
}
