//! Large changes to a large map, on small drives with small caches.

use crate::common;

use std::sync::Arc;

use common::{Erased, assert_sound, create_options, erased, run, spawner};
use drive::{Drive, OpenOptions, Zeroes};
use media::MemoryMedia;

/// Bytes covered by a leaf of the map.
const LEAF_BYTES: u64 = 2 << 20;
const LEAVES: u64 = 700;
const BUDGETS_BYTES: [u64; 2] = [64 << 10, 16 << 20];

fn open(media: &Arc<MemoryMedia>, budget_bytes: u64, entropy: u64) -> Drive<Erased> {
    let mut options = OpenOptions::new(entropy, spawner());
    options.map_budget_bytes = budget_bytes;
    options.checkpoint_bytes = 512 << 10;
    run(Drive::open(erased(media.clone()), options)).expect("open")
}

/// Creates a drive of 13 MiB with one block in each of many leaves, none of which is in memory.
fn sparse(budget_bytes: u64) -> (Arc<MemoryMedia>, Drive<Erased>) {
    let mut options = create_options(13 << 20, 1 << 38);
    options.segment_bytes = Some(512 << 10);
    let media = Arc::new(MemoryMedia::new(options.physical_size_bytes));
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, budget_bytes, 1);
    for leaf in 0..LEAVES {
        run(drive.write(leaf * LEAF_BYTES, &block(leaf), false)).expect("write");
    }
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, budget_bytes, 2);
    (media, drive)
}

fn block(leaf: u64) -> Vec<u8> {
    let mut block = vec![0; 4096];
    block[..8].copy_from_slice(&(leaf + 1).to_le_bytes());
    block
}

fn checkpoints(drive: &Drive<Erased>) -> u64 {
    drive.status().counters.checkpoints_count
}

/// Does maintenance until there is nothing to do, which must take few steps.
fn maintain(drive: &Drive<Erased>) {
    for _ in 0..64 {
        if !run(drive.maintain()).expect("maintain") {
            return;
        }
    }
    panic!("maintenance never ends");
}

#[test]
fn zeroing_what_is_not_in_memory_takes_few_checkpoints() {
    for budget in BUDGETS_BYTES {
        let (media, drive) = sparse(budget);
        let before = checkpoints(&drive);
        run(drive.write_zeroes(0, (LEAVES - 1) * LEAF_BYTES, Zeroes::default())).expect("zero");
        run(drive.write(4096, &block(7), true)).expect("write");
        maintain(&drive);
        assert!(checkpoints(&drive) - before < 32, "{} checkpoints", checkpoints(&drive) - before);
        assert_sound(&drive);
        drop(drive);
        let drive = open(&media, budget, 3);
        let mut data = vec![1; 4096];
        for leaf in 0..LEAVES {
            run(drive.read(leaf * LEAF_BYTES, &mut data)).expect("read");
            assert_eq!(data, if leaf == LEAVES - 1 { block(leaf) } else { vec![0; 4096] }, "leaf {leaf}");
        }
        run(drive.read(4096, &mut data)).expect("read");
        assert_eq!(data, block(7));
        assert_sound(&drive);
    }
}

#[test]
fn a_crash_after_zeroing_what_is_not_in_memory_is_rolled_forward() {
    for budget in BUDGETS_BYTES {
        let (media, drive) = sparse(budget);
        run(drive.write_zeroes(0, (LEAVES - 1) * LEAF_BYTES, Zeroes { unmap: false, fua: true }))
            .expect("zero");
        run(drive.write(LEAF_BYTES, &block(7), true)).expect("write");
        drop(drive);
        let drive = open(&media, budget, 3);
        let before = checkpoints(&drive);
        maintain(&drive);
        assert!(checkpoints(&drive) - before < 32, "{} checkpoints", checkpoints(&drive) - before);
        let mut data = vec![1; 4096];
        run(drive.read(0, &mut data)).expect("read");
        assert_eq!(data, [0; 4096]);
        run(drive.read(LEAF_BYTES, &mut data)).expect("read");
        assert_eq!(data, block(7));
        assert_sound(&drive);
    }
}

#[test]
fn trimming_what_is_not_in_memory_settles_its_space() {
    for budget in BUDGETS_BYTES {
        let (_media, drive) = sparse(budget);
        run(drive.trim(0, LEAVES * LEAF_BYTES, true)).expect("trim");
        maintain(&drive);
        run(drive.checkpoint()).expect("checkpoint");
        maintain(&drive);
        assert_sound(&drive);
    }
}

#[test]
fn changing_a_block_of_every_leaf_ends_also_in_a_tiny_cache() {
    for budget in BUDGETS_BYTES {
        let (media, drive) = sparse(budget);
        let before = checkpoints(&drive);
        for leaf in 0..LEAVES {
            run(drive.write(leaf * LEAF_BYTES + 8192, &block(leaf), false)).expect("write");
        }
        run(drive.flush()).expect("flush");
        maintain(&drive);
        assert!(checkpoints(&drive) - before < 100, "{} checkpoints", checkpoints(&drive) - before);
        drop(drive);
        let drive = open(&media, budget, 3);
        let mut data = vec![1; 4096];
        for leaf in 0..LEAVES {
            run(drive.read(leaf * LEAF_BYTES + 8192, &mut data)).expect("read");
            assert_eq!(data, block(leaf));
        }
        assert_sound(&drive);
    }
}
