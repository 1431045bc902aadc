//! Records in the open pack of a segment that has just become bad, read while the packs that failed are
//! written elsewhere.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::create_options;
use drive::{CreateOptions, Drive, Settle};
use faulty::{Faulty, Tasks, poll};
use layout::Superblock;
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 32 << 20;
/// The block whose record is in the open pack.
const LAST: u64 = 3000;
/// Polls after which any checkpoint has ended.
const POLLS_MAX: usize = 100_000;

/// Text that compresses well together with its neighbours.
fn text(number: u64) -> Vec<u8> {
    let line = |i: u64| format!("line {i} of what compresses {}\n", i * 7919 % 1000).into_bytes();
    let mut text: Vec<u8> = (number * 1000..number * 1000 + 200).flat_map(line).collect();
    text.truncate(BLOCK as usize);
    text
}

#[test]
fn they_are_read_from_memory() {
    let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, 64 << 20) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(BLOCK as usize)));
    let geometry = Superblock::decode(&page).expect("superblock").geometry;
    let drive = tasks.open(&media, |_| {});
    for group in 0..16 {
        let data: Vec<u8> = (0..8).flat_map(|block| text(group * 8 + block)).collect();
        tasks.run(drive.write(group * 8 * BLOCK, &data, false)).expect("write");
    }
    tasks.run(drive.flush()).expect("flush");
    // Before writes are held: the superblock is to name the codec of settled data.
    tasks.run(drive.settle_step(6000, Settle::All)).expect("settle");
    tasks.run(drive.checkpoint()).expect("checkpoint");

    media.hold_writes.store(true, SeqCst);
    media.attempts.lock().clear();
    // The host moves on to another segment.
    for piece in 0..3 {
        let data = random(piece, 64 * BLOCK as usize);
        tasks.run(drive.write((1000 + piece * 64) * BLOCK, &data, false)).expect("write");
    }
    let mut at = Some(0);
    while let Some(block) = at {
        at = tasks.run(drive.settle_step(block, Settle::All)).expect("settle").next_block;
    }
    // Part of each settled frame dies. What is left of it is packed anew when its pack is written elsewhere,
    // which takes several polls.
    for frame in 0..32 {
        tasks.run(drive.write(frame * 4 * BLOCK, &text(5000 + frame), false)).expect("write");
    }
    for block in LAST..LAST + 4 {
        tasks.run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
        drive.tick();
    }
    tasks.turn();
    let attempts = media.attempts.lock().clone();
    let segment_of = |at: u64| geometry.locate(at).expect("a segment").0;
    let first = segment_of(attempts[0].start);
    for segment in attempts.iter().map(|at| segment_of(at.start)).filter(|segment| *segment != first) {
        let start = geometry.segment_offset(segment);
        media.unwritable.lock().push(start..start + u64::from(geometry.segment_bytes));
    }
    media.hold_writes.store(false, SeqCst);
    (0..4).for_each(|_| tasks.turn());
    assert!(drive.status().segments_bad_count >= 2, "{:?}", drive.status().notes);

    let assert_holds = |when: &str| {
        let mut bytes = vec![0; BLOCK as usize];
        tasks.run(drive.read(LAST * BLOCK, &mut bytes)).unwrap_or_else(|error| panic!("{when}: {error}"));
        assert!(bytes == random(LAST, BLOCK as usize), "{when}");
    };
    assert_holds("before");
    let mut checkpoint = Box::pin(drive.checkpoint());
    let done = (0..POLLS_MAX).find_map(|number| {
        let done = poll(checkpoint.as_mut());
        if done.is_none() {
            assert_holds(&format!("poll {number} of the checkpoint"));
            tasks.turn();
        }
        done
    });
    done.expect("it ends").expect("checkpoint");
    assert_holds("after");
}
