//! Blocks far from each other, and a map much larger than its memory: TRIM succeeds, however full the drive
//! is.

use crate::common;

use std::cell::Cell;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, erased, run, spawner};
use drive::{CreateOptions, Drive, Error, OpenOptions};
use futures::future::join;
use futures::stream::{self, StreamExt};
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: u64 = 4096;
/// Requests in flight.
const DEPTH: usize = 32;
/// Most polls without progress.
const PATIENCE: u64 = 20_000;

/// Blocks all over a drive, in irregular order.
fn scattered(capacity: u64) -> impl Iterator<Item = u64> {
    (0..).map(move |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % (capacity / BLOCK))
}

fn new_drive(physical: u64, logical: u64, map_budget_bytes: u64) -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(physical));
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(physical, logical) };
    run(Drive::create(&*media, &options)).expect("create");
    let options = OpenOptions { map_budget_bytes, ..OpenOptions::new(1, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    (media, drive)
}

/// Writes blocks with `record_bytes` of incompressible data, until the drive is full. Returns the blocks.
fn fill(drive: &Memory, capacity: u64, record_bytes: usize) -> Vec<u64> {
    let mut written = Vec::new();
    for block in scattered(capacity) {
        let mut data = vec![0; BLOCK as usize];
        data[..record_bytes].copy_from_slice(&random(block, record_bytes));
        match run(drive.write(block * BLOCK, &data, false)) {
            Ok(()) => written.push(block),
            Err(Error::NoSpace) => return written,
            Err(error) => panic!("{error}"),
        }
    }
    written
}

/// Trims blocks, up to [`DEPTH`] at a time, beside maintenance. Panics if there is no progress for long.
fn trim_all(drive: &Memory, blocks: &[u64]) {
    let (done, over) = (Cell::new(0), Cell::new(false));
    let trims = async {
        let trim = |block: &u64| {
            let offset = block * BLOCK;
            async move { drive.trim(offset, BLOCK, false).await }
        };
        let mut answers = stream::iter(blocks).map(trim).buffer_unordered(DEPTH);
        while let Some(answer) = answers.next().await {
            answer.expect("trim");
            done.set(done.get() + 1);
        }
        over.set(true);
    };
    let upkeep = async {
        while !over.get() {
            drive.tick();
            drive.maintain().await.expect("maintain");
            futures::pending!();
        }
    };
    let mut both = pin!(join(trims, upkeep));
    let mut polls = (0, 0);
    while both.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        polls = if done.get() == polls.0 { (polls.0, polls.1 + 1) } else { (done.get(), 0) };
        assert!(polls.1 < PATIENCE, "nothing is answered after {} blocks: {:#?}", done.get(), drive.status());
    }
}

#[test]
fn a_full_drive_takes_trims_with_a_map_much_larger_than_its_memory() {
    for (physical, logical, map) in [(64 << 20, 16 << 30, 64 << 10), (64 << 20, 1 << 40, 64 << 10)] {
        let (_media, drive) = new_drive(physical, logical, map);
        let mut written = fill(&drive, logical, BLOCK as usize);
        written.sort_unstable_by_key(|block| block.wrapping_mul(0xd134_2543_de82_ef95));
        trim_all(&drive, &written[..written.len() * 9 / 10]);
        assert_sound(&drive);
    }
}

/// The map takes a large part of the drive, and a trimmed or moved block changes more of it than it frees.
#[test]
fn a_full_drive_of_small_records_takes_trims() {
    let large_cache = 128 << 20;
    for (logical, map) in
        [(1 << 30, 64 << 10), (16 << 30, 1 << 20), (1 << 40, 64 << 10), (1 << 44, large_cache)]
    {
        let (_media, drive) = new_drive(24 << 20, logical, map);
        let mut written = fill(&drive, logical, 250);
        written.sort_unstable_by_key(|block| block.wrapping_mul(0xd134_2543_de82_ef95));
        for (n, block) in written[..written.len() * 9 / 10].iter().enumerate() {
            let trimmed = run(drive.trim(block * BLOCK, BLOCK, false));
            trimmed.unwrap_or_else(|error| panic!("{error} after {n} blocks: {:#?}", drive.status()));
        }
        assert_sound(&drive);
    }
}

/// Lack of space is not reported while only the changed map has to be written, which is a large part of a
/// small drive.
#[test]
fn out_of_space_is_reported_when_hardly_anything_is_left() {
    let logical = 1 << 30;
    let (_media, drive) = new_drive(32 << 20, logical, 4 << 20);
    let mut reported_at = None;
    let mut written = 0_u64;
    for block in scattered(logical) {
        let mut data = vec![0; BLOCK as usize];
        data[..100].copy_from_slice(&random(block, 100));
        match run(drive.write(block * BLOCK, &data, false)) {
            Ok(()) => written += 1,
            Err(Error::NoSpace) => break,
            Err(error) => panic!("{error}"),
        }
        if reported_at.is_none() && written.is_multiple_of(16) && drive.status().out_of_space {
            reported_at = Some(written);
        }
    }
    let reported_at = reported_at.expect("reported before a write is refused");
    assert!(written - reported_at < written / 50, "reported after {reported_at} of {written} blocks");
}

/// On a drive full of live data, cleaning gains nothing, because each moved block changes the map.
#[test]
fn an_idle_full_drive_comes_to_rest() {
    for (physical, logical, map) in [(37 << 20, 64 << 30, 128 << 10), (64 << 20, 16 << 30, 64 << 10)] {
        let (_media, drive) = new_drive(physical, logical, map);
        fill(&drive, logical, BLOCK as usize);
        let mut pieces = 0;
        while run(drive.maintain()).expect("maintain") {
            drive.tick();
            pieces += 1;
            assert!(pieces < 20_000, "it wears its medium for ever: {:#?}", drive.status().counters);
        }
    }
}

/// Each overwrite takes a little more space than what it replaces. All together they must leave the map
/// enough space.
#[test]
fn overwrites_that_grow_leave_room_for_trims() {
    let logical = 1 << 30;
    let (_media, drive) = new_drive(13 << 20, logical, 1 << 20);
    let written = fill(&drive, logical, 32);
    for block in &written {
        let mut data = vec![0; BLOCK as usize];
        data[..72].copy_from_slice(&random(block + 1, 72));
        match run(drive.write(block * BLOCK, &data, false)) {
            Ok(()) | Err(Error::NoSpace) => {}
            Err(error) => panic!("{error}: {:#?}", drive.status()),
        }
    }
    let refused =
        written.iter().filter(|block| run(drive.trim(**block * BLOCK, BLOCK, false)).is_err()).count();
    assert_eq!(refused, 0, "of {}: {:#?}", written.len(), drive.status());
    assert_sound(&drive);
}
