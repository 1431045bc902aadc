//! Parity goes out to the medium: beside packs and flushes, and to a backing that is full.

use std::sync::atomic::Ordering::SeqCst;

use layout::{Head, ParityForm};

use crate::image::Image;
use crate::protected::{BLOCK, Host, PAGE, PHYSICAL, SEGMENT, contents};

/// No flush waits for parity: the medium takes packs, and holds what is written behind their room.
#[test]
fn no_flush_waits_for_parity() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    let behind = host.parity_places();
    host.media.held.lock().extend(behind.iter().cloned());
    let flushed = |host: &Host| host.tasks.give_up(drive.flush(), 10_000).expect("an answer").expect("flush");
    // More than two segments: the parity of the first is being written, that of the next one waits.
    host.write(&drive, 0..700);
    for _ in 0..50 {
        host.tasks.turn();
    }
    let attempts = |host: &Host| behind.iter().map(|part| host.media.attempts_at(part)).sum::<usize>();
    assert!(attempts(&host) > 0, "parity is written");
    flushed(&host);
    host.write(&drive, 0..100);
    flushed(&host);
    assert!(host.segments().is_empty(), "none of it is on the medium");
    host.media.held.lock().clear();
    host.settle(&drive);
    assert!(!host.segments().is_empty());
    host.assert_whole(&drive);
}

/// A flush comes while parity goes out in two pieces: the second one waits for it.
#[test]
fn parity_stands_aside_for_a_flush() {
    let mut host = Host::with_segments(ParityForm::Part16, 2 * PHYSICAL, 4 << 20);
    let drive = host.open();
    let places = host.parity_places();
    let begun = |host: &Host| places.iter().map(|place| host.media.attempts_at(place)).sum::<usize>();
    *host.media.held.lock() = places.clone();
    let mut block = 0;
    while begun(&host) == 0 {
        host.versions[block as usize] += 1;
        host.tasks.run(drive.write(block * BLOCK, &contents(block, 1), false)).expect("write");
        host.tasks.turn();
        block += 1;
    }
    host.media.hold_syncs.store(true, SeqCst);
    assert!(host.tasks.give_up(drive.flush(), 100).is_none(), "it waits for the sync");
    host.media.held.lock().clear();
    (0..100).for_each(|_| host.tasks.turn());
    assert_eq!(begun(&host), 1, "it does not wait for the rest");
    host.media.hold_syncs.store(false, SeqCst);
    host.tasks.run(drive.flush()).expect("flush");
    host.settle(&drive);
    assert_eq!(begun(&host), 2);
    // Both pieces are there, and both copies of the index.
    let (segment, index) = host.segments().swap_remove(0);
    let start = host.geometry.segment_offset(segment);
    let [first, last] = host.shape().index_offsets().map(|at| host.page(start + u64::from(at)));
    assert!(first[..] == last[..]);
    for (group, sum) in (0..).zip(&index.parity) {
        let page = host.page(start + u64::from(host.shape().parity_offset(group)));
        assert_eq!(crc32c::crc32c(&page), *sum, "group {group}");
    }
    host.media.lost.lock().push(start..start + u64::from(host.shape().groups()) * PAGE);
    host.assert_whole(&drive);
}

/// A page is lost while others with the same parity are being written.
#[test]
fn pages_are_made_again_beside_a_pack_that_is_written() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..10);
    let newest = Image::of_any(&host.media).packs().into_iter().map(|(_, header)| header);
    let newest = newest.filter(|header| header.head == Head::Host);
    let newest = newest.max_by_key(|header| header.sequence).expect("a pack");
    let start = host.geometry.segment_offset(newest.segment);
    let end = start + u64::from(newest.offset + newest.len);
    // What comes next is on its way, for more than a page of each group.
    host.media.held.lock().push(end..start + u64::from(SEGMENT));
    for block in 10..40 {
        host.versions[block as usize] += 1;
        host.tasks.run(drive.write(block * BLOCK, &contents(block, 1), false)).expect("write");
    }
    assert!(host.tasks.give_up(drive.flush(), 100).is_none(), "the pack is held");
    host.media.lost.lock().push(start..start + 3 * PAGE);
    let whole = |host: &Host| assert_eq!(host.read(&drive), Vec::<u64>::new());
    whole(&host);
    assert!(drive.status().parity.repaired_pages_count > 0);
    // The medium takes none of it.
    host.media.unwritable.lock().push(end..start + u64::from(SEGMENT));
    host.media.held.lock().clear();
    host.tasks.run(drive.flush()).expect("flush");
    whole(&host);
    host.settle(&drive);
    host.assert_whole(&drive);
}

/// The backing has no room for parity: that is tried again now and then, and not all the time.
#[test]
fn parity_without_room_is_tried_again_later() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..1200);
    drop(drive);
    let drive = host.open();
    host.media.full.store(true, SeqCst);
    let ticks = |count: u32| {
        for _ in 0..count {
            drive.tick();
            host.tasks.turn();
        }
    };
    ticks(20);
    let places = host.parity_places();
    let attempts = || places.iter().map(|place| host.media.attempts_at(place)).sum::<usize>();
    let before = attempts();
    assert!(before > 0);
    ticks(500);
    assert!(attempts() <= before + 1, "it is left alone for a while");
    assert!(drive.status().parity.uncovered_segments_count > 0);
    host.media.full.store(false, SeqCst);
    ticks(2000);
    assert_eq!(drive.status().parity.uncovered_segments_count, 0);
    host.assert_whole(&drive);
}
