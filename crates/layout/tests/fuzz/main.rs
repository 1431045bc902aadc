//! The fuzz targets of `fuzz/`, run for a moment on damaged copies of valid structures: no decoder panics, and what one
//! accepts is consistent. The same seed does the same cases; a failure prints how to repeat it.
//!
//! `PUMICE_FUZZ_SEED` chooses other cases, `PUMICE_FUZZ_SECONDS` more of them, `PUMICE_FUZZ_CASE` a single one.

#[path = "../common/mod.rs"]
mod common;

mod checkpoint;
mod mutate;
mod node;
mod pack;
mod record;
mod superblock;

use std::time::{Duration, Instant};

use common::seal;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use rand::SeedableRng;
use rand::rngs::StdRng;

/// For each of the five targets: two seconds in all.
const SECONDS: f64 = 0.4;
/// However fast the machine is.
const CASES_MAX: u64 = 1 << 40;

/// Valid structures, the same in every run.
fn some<S: Strategy>(strategy: S, encode: impl Fn(S::Value) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    (0..32).map(|_| encode(strategy.new_tree(&mut runner).expect("a valid structure").current())).collect()
}

fn superblocks() -> Vec<Vec<u8>> {
    some(common::superblock(), |superblock| superblock.encode().to_vec())
}

fn checkpoints() -> Vec<Vec<u8>> {
    some(common::checkpoint(), |checkpoint| common::encoded(&checkpoint))
}

fn packs() -> Vec<Vec<u8>> {
    let mut packs = some(common::pack(), |pack| pack.bytes);
    packs.push(common::sample_pack().bytes);
    packs
}

fn records() -> Vec<Vec<u8>> {
    let mut records = some(common::spec(), |spec| spec.encode(0));
    let sample = common::sample_pack();
    records.extend(sample.specs.iter().map(|spec| spec.encode(0)));
    records
}

fn nodes() -> Vec<Vec<u8>> {
    let entries = proptest::collection::btree_map(0..512_u16, common::entry(), 0..=512);
    some(entries, |entries| {
        let mut payload = vec![0];
        let mapped =
            || entries.iter().filter(|(_, entry)| !entry.is_unmapped()).map(|(slot, entry)| (*slot, *entry));
        payload[0] = layout::node::encode_node(mapped, &mut payload) as u8;
        payload
    })
}

fn setting<T: std::str::FromStr>(name: &str) -> Option<T> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name}={value} is no number")))
}

/// Says how to repeat a case that panicked.
struct Case {
    target: &'static str,
    seed: u64,
    number: u64,
}

impl Drop for Case {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Case { target, seed, number } = self;
            eprintln!(
                "repeat with PUMICE_FUZZ_SEED={seed} PUMICE_FUZZ_CASE={number} cargo test -p layout --test fuzz {target}"
            );
        }
    }
}

fn fuzz(target: &'static str, seeds: &[Vec<u8>], run: fn(&[u8])) {
    for seed in seeds {
        run(seed);
    }
    let seed = setting("PUMICE_FUZZ_SEED").unwrap_or(1);
    let (cases, limit) = match setting("PUMICE_FUZZ_CASE") {
        Some(number) => (number..number + 1, Duration::MAX),
        None => (0..CASES_MAX, Duration::from_secs_f64(setting("PUMICE_FUZZ_SECONDS").unwrap_or(SECONDS))),
    };
    let start = Instant::now();
    for number in cases {
        // A generator for each case: a case can be repeated without those before it.
        let mut rng = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let case = Case { target, seed, number };
        run(&mutate::mutate(seeds, &mut rng));
        drop(case);
        if start.elapsed() >= limit {
            break;
        }
    }
}

#[test]
fn superblock_target() {
    fuzz("superblock_target", &superblocks(), superblock::run);
}

#[test]
fn checkpoint_target() {
    fuzz("checkpoint_target", &checkpoints(), checkpoint::run);
}

#[test]
fn pack_target() {
    fuzz("pack_target", &packs(), pack::run);
}

#[test]
fn record_target() {
    fuzz("record_target", &records(), record::run);
}

#[test]
fn node_target() {
    fuzz("node_target", &nodes(), node::run);
}

/// Writes the valid structures to where the fuzzer looks for a corpus: `fuzz/corpus/<target>/`.
#[test]
#[ignore = "prepares longer runs: see fuzz/README.md"]
fn write_corpus() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let all = [
        ("superblock", superblocks()),
        ("checkpoint", checkpoints()),
        ("pack", packs()),
        ("record", records()),
        ("node", nodes()),
    ];
    for (target, seeds) in all {
        let folder = root.join(target);
        std::fs::create_dir_all(&folder).expect("a folder for the corpus");
        for (i, seed) in seeds.iter().enumerate() {
            std::fs::write(folder.join(format!("valid-{i}")), seed).expect("a file of the corpus");
        }
    }
}
