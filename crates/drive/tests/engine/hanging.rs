//! A medium that takes no write for a long time: what waits for it takes as much memory as it contains, and
//! no more than the limit, however small the packs are.

use crate::common;
use crate::faulty;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive};
use faulty::{Faulty, Tasks, poll};
use space::UNWRITTEN_MAX_BYTES;

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 128 << 20;

fn new_drive() -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
    let options = CreateOptions { segment_bytes: Some(4 << 20), ..create_options(PHYSICAL, PHYSICAL) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let drive = tasks.open(&media, |_| {});
    (media, tasks, drive)
}

#[test]
fn packs_that_wait_keep_what_they_contain() {
    let (media, tasks, drive) = new_drive();
    media.hold_writes.store(true, SeqCst);
    for block in 0..200 {
        tasks.run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
        // The second one seals the pack.
        (0..2).for_each(|_| drive.tick());
    }
    let status = drive.status();
    assert_eq!(status.counters.host_written_bytes, 200 * BLOCK);
    // A unit each.
    assert_eq!(status.unwritten_memory_bytes, 200 * (64 << 10));
    media.hold_writes.store(false, SeqCst);
    tasks.run(drive.flush()).expect("flush");
    assert_eq!(drive.status().unwritten_memory_bytes, 0);
}

#[test]
fn writers_wait_when_the_limit_is_reached() {
    for blocks in [1, 20, 64] {
        let (media, tasks, drive) = new_drive();
        media.hold_writes.store(true, SeqCst);
        let data = random(blocks, (blocks * BLOCK) as usize);
        let mut taken = 0;
        loop {
            let offset = taken * blocks * BLOCK;
            assert!(offset < PHYSICAL / 2, "nobody waits");
            let mut write = pin!(drive.write(offset, &data, false));
            let Some(answer) = poll(write.as_mut()) else { break };
            answer.expect("write");
            taken += 1;
            (0..2).for_each(|_| drive.tick());
        }
        let memory = drive.status().unwritten_memory_bytes;
        let slack = 2 * space::PACK_HARD_BYTES as u64;
        assert!(
            (UNWRITTEN_MAX_BYTES..=UNWRITTEN_MAX_BYTES + slack).contains(&memory),
            "{memory} bytes of memory for {taken} writes of {blocks} blocks"
        );
        media.hold_writes.store(false, SeqCst);
        tasks.run(drive.flush()).expect("flush");
        for n in 0..taken {
            let mut back = vec![0; data.len()];
            tasks.run(drive.read(n * blocks * BLOCK, &mut back)).expect("read");
            assert!(back == data, "write {n} of {blocks} blocks");
        }
    }
}
