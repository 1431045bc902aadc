//! The fuzz targets of `fuzz/`, run for a moment on damaged copies of valid structures: no decoder panics,
//! and what one accepts is consistent. The same seed does the same cases; a failure prints how to repeat it.
//!
//! `PUMICE_FUZZ_SEED` chooses other cases, `PUMICE_FUZZ_SECONDS` more of them, `PUMICE_FUZZ_CASE` a single
//! one.

#[path = "../common/mod.rs"]
mod common;

mod checkpoint;
mod harness;
mod memory;
mod node;
mod owner;
mod pack;
mod parity;
mod record;
mod superblock;

use common::seal;
use harness::fuzz;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Valid structures, the same in every run.
fn some<S: Strategy>(strategy: S, encode: impl Fn(S::Value) -> Vec<u8>) -> Vec<Vec<u8>> {
    let mut runner = TestRunner::deterministic();
    (0..32).map(|_| encode(strategy.new_tree(&mut runner).expect("a valid structure").current())).collect()
}

fn superblocks() -> Vec<Vec<u8>> {
    some(common::superblock(), |superblock| superblock.encode().to_vec())
}

fn owner_pages() -> Vec<Vec<u8>> {
    some(common::owner_page(), |page| page.encode().to_vec())
}

fn checkpoints() -> Vec<Vec<u8>> {
    some(common::checkpoint(), |checkpoint| common::encoded(&checkpoint))
}

fn packs() -> Vec<Vec<u8>> {
    let mut packs = some(common::pack(), |pack| pack.bytes);
    packs.push(common::sample_pack().bytes);
    packs
}

fn memories() -> Vec<Vec<u8>> {
    some(common::pack(), |pack| common::memory_with(&pack))
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

/// Byte 1 of the magic number, by which the target chooses the size of the segment, means 1 MiB.
fn parity_indexes() -> Vec<Vec<u8>> {
    let forms = [layout::ParityForm::Part32, layout::ParityForm::Part64, layout::ParityForm::Part16];
    let indexes = forms.into_iter().flat_map(|form| {
        let shape = layout::ParityShape::new(1 << 20, form).expect("parity");
        [0, 1, 40, shape.room_pages()].map(|end| {
            let mut bytes = vec![0; shape.index_bytes()];
            let index = layout::ParityIndex {
                log_id: *b"sixteen bytes id",
                segment: end,
                generation: 7,
                last_sequence: 1 + u64::from(end),
                pages: (0..end).map(|page| page.wrapping_mul(0x9e37_79b9)).collect(),
                parity: (0..shape.groups_used(end)).collect(),
            };
            index.encode(&shape, &mut bytes);
            bytes
        })
    });
    indexes.collect()
}

#[test]
fn parity_target() {
    fuzz("parity_target", &parity_indexes(), parity::run);
}

#[test]
fn superblock_target() {
    fuzz("superblock_target", &superblocks(), superblock::run);
}

#[test]
fn owner_target() {
    fuzz("owner_target", &owner_pages(), owner::run);
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
fn memory_target() {
    fuzz("memory_target", &memories(), memory::run);
}

#[test]
fn record_target() {
    fuzz("record_target", &records(), record::run);
}

#[test]
fn node_target() {
    fuzz("node_target", &nodes(), node::run);
}

/// See fuzz/README.md.
#[test]
#[ignore = "prepares longer runs: see fuzz/README.md"]
fn write_corpus() {
    harness::write_corpus("superblock", &superblocks());
    harness::write_corpus("owner", &owner_pages());
    harness::write_corpus("checkpoint", &checkpoints());
    harness::write_corpus("pack", &packs());
    harness::write_corpus("memory", &memories());
    harness::write_corpus("record", &records());
    harness::write_corpus("node", &nodes());
    harness::write_corpus("parity", &parity_indexes());
}
