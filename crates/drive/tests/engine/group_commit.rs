//! Numbers of writes and syncs of the medium for durable writes.

use crate::common;
use crate::faulty;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{Drive, Error};
use faulty::{Faulty, Tasks, poll};

const BLOCK: u64 = 4096;
const WRITES: u64 = 1024;
const IN_FLIGHT: usize = 32;

type Write<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

fn new_drive() -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let (media, tasks) = (Arc::new(Faulty::new(64 << 20)), Tasks::default());
    tasks.run(Drive::create(&*media, &create_options(64 << 20, 128 << 20))).expect("create");
    let drive = tasks.open(&media, |_| {});
    (media, tasks, drive)
}

fn counts(media: &Faulty) -> (u64, u64) {
    (media.writes.load(SeqCst), media.syncs.load(SeqCst))
}

/// Sends durable writes of one block each, at most `in_flight` at a time and `begun` per turn. Operations of
/// the medium take `turns` turns. Returns the writes and syncs of the medium.
fn durable_writes(in_flight: usize, begun: usize, turns: u64) -> (u64, u64) {
    let (media, tasks, drive) = new_drive();
    let before = counts(&media);
    let data: Vec<Vec<u8>> = (0..WRITES).map(|block| random(block, BLOCK as usize)).collect();
    let mut rest = (0..).zip(&data);
    let mut flying: Vec<Write<'_>> = Vec::new();
    let (mut done, mut turn) = (0, 0);
    while done < WRITES {
        turn += 1;
        assert!(turn < WRITES * 100, "{done} writes are durable, and no more");
        let free = begun.min(in_flight - flying.len());
        flying.extend(
            rest.by_ref()
                .take(free)
                .map(|(block, data)| -> Write<'_> { Box::pin(drive.write(block * BLOCK, data, true)) }),
        );
        let slow = turn % turns != 0;
        media.hold_writes.store(slow, SeqCst);
        media.hold_syncs.store(slow, SeqCst);
        flying.retain_mut(|write| match poll(write.as_mut()) {
            Some(result) => {
                result.expect("a durable write");
                done += 1;
                false
            }
            None => true,
        });
        tasks.turn();
    }
    let (writes, syncs) = counts(&media);
    (writes - before.0, syncs - before.1)
}

#[test]
fn many_in_flight_share_packs_and_syncs() {
    for (begun, turns) in [(IN_FLIGHT, 1), (IN_FLIGHT, 2), (IN_FLIGHT, 7), (3, 7), (1, 16)] {
        let (writes, syncs) = durable_writes(IN_FLIGHT, begun, turns);
        assert!(writes * 10 <= WRITES, "{writes} writes of the medium for {WRITES}, {turns} turns each");
        assert!(syncs * 10 <= WRITES, "{syncs} syncs for {WRITES}, {turns} turns each");
    }
}

#[test]
fn one_at_a_time_takes_one_write_and_one_sync_each() {
    let (writes, syncs) = durable_writes(1, 1, 1);
    // Checkpoints are written only by maintenance, which does not run here.
    assert!((WRITES..=WRITES + 8).contains(&writes), "{writes} writes of the medium for {WRITES}");
    assert!((WRITES..=WRITES + 8).contains(&syncs), "{syncs} syncs for {WRITES}");
}

/// Ticks in between vouch for what is durable. They cost at most one write each.
#[test]
fn requests_that_come_slowly_take_two_writes_and_one_sync_each() {
    const SLOW: u64 = 100;
    let (media, tasks, drive) = new_drive();
    let before = counts(&media);
    for block in 0..SLOW {
        tasks.run(drive.write(block * BLOCK, &random(block, BLOCK as usize), true)).expect("write");
        for _ in 0..4 {
            drive.tick();
            tasks.turn();
        }
    }
    let after = counts(&media);
    let (writes, syncs) = (after.0 - before.0, after.1 - before.1);
    assert!(writes <= 2 * SLOW + 4, "{writes} writes of the medium for {SLOW}");
    assert!(syncs <= SLOW + 4, "{syncs} syncs for {SLOW}");
}
