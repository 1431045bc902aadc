//! A drive that keeps its space allocated discards nothing on the backing, neither when it is idle nor after
//! a wipe.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::create_options;
use drive::{CreateOptions, Drive, WipeOptions};
use faulty::{Faulty, Tasks};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 64 << 20;

/// Number of discards on the backing while a drive with freed segments is idle, and during a wipe after that.
fn discards(keep_allocated: bool) -> (u64, u64) {
    let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
    let options = CreateOptions { keep_allocated, ..create_options(PHYSICAL, 128 << 20) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    // Twice: the setting is stored.
    for _ in 0..2 {
        let drive = tasks.open(&media, |_| {});
        for block in 0..1000 {
            let data = random(block, BLOCK as usize);
            tasks.run(drive.write(block * BLOCK, &data, false)).expect("write");
        }
        tasks.run(drive.trim(0, 1000 * BLOCK, false)).expect("trim");
        tasks.run(drive.checkpoint()).expect("checkpoint");
        for _ in 0..60 {
            drive.tick();
            tasks.turn();
        }
        for _ in 0..200 {
            while tasks.run(drive.maintain()).expect("maintain") {}
            tasks.turn();
        }
        tasks.run(drive.close()).expect("close");
    }
    let idle = media.discards.load(SeqCst);
    tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    let discarded =
        tasks.run(Drive::discard_all(&*media, |_, _| std::ops::ControlFlow::Continue(()))).expect("discard");
    assert_eq!(discarded, !keep_allocated);
    (idle, media.discards.load(SeqCst) - idle)
}

#[test]
fn what_it_frees_stays_allocated() {
    let (idle, wiped) = discards(false);
    // Neighbouring segments go together.
    assert!(idle > 0 && wiped > 0, "another drive gives back what it frees: {idle}, {wiped}");
    assert_eq!(discards(true), (0, 0));
}
