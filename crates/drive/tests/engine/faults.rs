//! Guarantees that hold on a backing that fails or is slow, and requests that must not wait for it.

use crate::common;
use crate::faulty;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options, erased};
use drive::{Drive, Error, OpenOptions, State, WipeOptions, Zeroes};
use faulty::{Faulty, Tasks, poll};
use layout::{Geometry, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;

fn new_drive() -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let (media, tasks) = (Arc::new(Faulty::new(64 << 20)), Tasks::default());
    tasks.run(Drive::create(&*media, &create_options(64 << 20, 128 << 20))).expect("create");
    let drive = tasks.open(&media, |_| {});
    (media, tasks, drive)
}

fn write(tasks: &Tasks, drive: &Drive<Erased>, block: u64) {
    tasks.run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
}

fn assert_holds(tasks: &Tasks, drive: &Drive<Erased>, block: u64) {
    let mut bytes = vec![0; BLOCK as usize];
    tasks.run(drive.read(block * BLOCK, &mut bytes)).expect("read");
    assert!(bytes == random(block, BLOCK as usize), "block {block}");
}

fn assert_poisoned(tasks: &Tasks, drive: &Drive<Erased>) {
    assert!(matches!(drive.status().state, State::Poisoned(_)), "{:?}", drive.status().state);
    assert!(matches!(tasks.run(drive.flush()), Err(Error::ReadOnly(_))));
    assert!(matches!(tasks.run(drive.write(0, &[1; 4096], false)), Err(Error::ReadOnly(_))));
    assert!(matches!(tasks.run(drive.trim(0, 4096, false)), Err(Error::ReadOnly(_))));
    assert!(matches!(tasks.run(drive.checkpoint()), Err(Error::ReadOnly(_))));
    assert!(matches!(tasks.run(drive.clean()), Err(Error::ReadOnly(_))));
    assert!(tasks.run(drive.close()).is_err());
    assert_eq!(tasks.run(drive.maintain()), Ok(false));
}

#[test]
fn a_failed_write_makes_the_drive_read_only() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    tasks.run(drive.flush()).expect("flush");
    write(&tasks, &drive, 2);
    media.fail_writes.store(true, SeqCst);
    assert!(matches!(tasks.run(drive.flush()), Err(Error::ReadOnly(_))));
    media.fail_writes.store(false, SeqCst);
    assert_poisoned(&tasks, &drive);
    // Acknowledged data can still be read. The pack that was not written is read from memory.
    assert_holds(&tasks, &drive, 1);
    assert_holds(&tasks, &drive, 2);
}

#[test]
fn a_failed_sync_makes_the_drive_read_only_although_the_next_would_succeed() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    media.fail_syncs.store(true, SeqCst);
    assert!(matches!(tasks.run(drive.flush()), Err(Error::ReadOnly(_))));
    media.fail_syncs.store(false, SeqCst);
    assert_poisoned(&tasks, &drive);
    assert_holds(&tasks, &drive, 1);
}

#[test]
fn a_failed_checkpoint_makes_the_drive_read_only() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    tasks.run(drive.flush()).expect("flush");
    media.fail_writes.store(true, SeqCst);
    assert!(matches!(tasks.run(drive.checkpoint()), Err(Error::ReadOnly(_))));
    media.fail_writes.store(false, SeqCst);
    assert_poisoned(&tasks, &drive);
    assert_holds(&tasks, &drive, 1);
}

#[test]
fn a_poisoned_drive_opens_again_with_what_was_durable() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    tasks.run(drive.flush()).expect("flush");
    media.fail_syncs.store(true, SeqCst);
    write(&tasks, &drive, 2);
    tasks.run(drive.flush()).expect_err("a failed sync");
    media.fail_syncs.store(false, SeqCst);
    drop(drive);
    let drive = tasks.open(&media, |_| {});
    assert_holds(&tasks, &drive, 1);
    write(&tasks, &drive, 3);
    tasks.run(drive.flush()).expect("flush");
}

/// Creates a drive with a flushed write after the checkpoint of its first opening, which is the second
/// checkpoint and is in slot 0. Returns also the offsets of the copies in each slot.
fn with_two_checkpoints() -> (Arc<Faulty>, Tasks, [Vec<Range<u64>>; 2]) {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    tasks.run(drive.flush()).expect("flush");
    drop(drive);
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
    let geometry = Superblock::decode(&page).expect("a superblock").geometry;
    let starts =
        |slot| (0..2).map(|copy| geometry.checkpoint_offset(slot, copy)).map(|at| at..at + 1).collect();
    (media, tasks, [starts(0), starts(1)])
}

#[test]
fn a_checkpoint_that_cannot_be_read_just_now_is_not_taken_for_lost() {
    let (media, tasks, slots) = with_two_checkpoints();
    *media.unreadable.lock() = slots[0].clone();
    let options = || OpenOptions::new(9, tasks.spawner());
    let refused = tasks.run(Drive::open(erased(media.clone()), options()));
    assert!(matches!(refused.err(), Some(Error::Io(_))));
    // An opening that accepts damage succeeds all the same.
    let rescue = OpenOptions { read_only: true, accept_damage: true, ..options() };
    tasks.run(Drive::open(erased(media.clone()), rescue)).expect("a rescue");
    media.unreadable.lock().clear();
    assert_holds(&tasks, &tasks.open(&media, |_| {}), 1);
}

#[test]
fn a_copy_that_is_read_at_the_second_attempt_is_not_lost() {
    let (media, tasks, drive) = new_drive();
    tasks.run(drive.close()).expect("close");
    drop(drive);
    media.flaky.lock().extend([0, 1].map(Geometry::superblock_offset).map(|at| (at..at + 1, true)));
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, tasks.spawner()) };
    let drive = tasks.run(Drive::open(erased(media.clone()), options)).expect("a look");
    let status = drive.status();
    assert_eq!((status.copies_not_taken_count, status.counters.corrected_reads_count), (0, 0));
    assert_eq!(tasks.run(drive.check(false)).expect("check"), Vec::<String>::new());
}

#[test]
fn a_wipe_cut_short_leaves_a_checkpoint_that_could_not_be_read_just_then() {
    for unreadable in [0, 1] {
        let (media, tasks, slots) = with_two_checkpoints();
        *media.unreadable.lock() = slots[unreadable].clone();
        let superblocks = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + 1);
        media.unwritable.lock().extend(superblocks);
        let cut = tasks.run(Drive::wipe(&*media, WipeOptions::any()));
        assert!(matches!(cut, Err(Error::Io(_))));
        media.unreadable.lock().clear();
        media.unwritable.lock().clear();
        assert_holds(&tasks, &tasks.open(&media, |_| {}), 1);
    }
}

#[test]
fn a_drive_of_which_no_checkpoint_can_be_read_is_not_wiped_over_what_may_be_whole() {
    let (media, tasks, slots) = with_two_checkpoints();
    *media.unreadable.lock() = slots.concat();
    let writes = media.writes.load(SeqCst);
    let refused = tasks.run(Drive::wipe(&*media, WipeOptions::any()));
    assert!(matches!(refused, Err(Error::Io(_))));
    assert_eq!(media.writes.load(SeqCst), writes);
    media.unreadable.lock().clear();
    assert_holds(&tasks, &tasks.open(&media, |_| {}), 1);
}

#[test]
fn a_failed_read_is_an_error_of_that_read_alone() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    tasks.run(drive.flush()).expect("flush");
    media.fail_reads.store(true, SeqCst);
    let mut bytes = vec![0; 4096];
    assert!(matches!(tasks.run(drive.read(BLOCK, &mut bytes)), Err(Error::Io(_))));
    media.fail_reads.store(false, SeqCst);
    assert_holds(&tasks, &drive, 1);
    write(&tasks, &drive, 2);
    tasks.run(drive.flush()).expect("flush");
    assert_eq!(drive.status().counters.read_errors_count, 1);
}

#[test]
fn an_unreadable_segment_does_not_stop_cleaning_for_good() {
    let (media, tasks, drive) = new_drive();
    (0..630).for_each(|block| write(&tasks, &drive, block));
    tasks.run(drive.trim(0, 500 * BLOCK, false)).expect("trim");
    tasks.run(drive.checkpoint()).expect("checkpoint");
    media.fail_reads.store(true, SeqCst);
    let mut rounds = 0;
    while tasks.run(drive.clean()).expect("clean") {
        rounds += 1;
        assert!(rounds < 100, "cleaning goes on for ever");
    }
    media.fail_reads.store(false, SeqCst);
    assert!(drive.status().notes.is_empty(), "an error of the medium may pass");
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert!(tasks.run(drive.clean()).expect("clean"));
    (500..630).for_each(|block| assert_holds(&tasks, &drive, block));
}

#[test]
fn without_write_cache_every_change_is_durable_before_it_returns() {
    let (media, tasks, drive) = new_drive();
    drop(drive);
    let drive = tasks.open(&media, |options| options.write_cache = false);
    for i in 0..10 {
        let before = media.syncs.load(SeqCst);
        match i % 3 {
            0 => write(&tasks, &drive, i),
            1 => tasks.run(drive.trim(0, BLOCK, false)).expect("trim"),
            _ => tasks.run(drive.write_zeroes(i * BLOCK, BLOCK, Zeroes::default())).expect("zeroes"),
        }
        assert!(media.syncs.load(SeqCst) > before);
        let status = drive.status();
        assert_eq!(status.durable_sequence, status.sequence);
    }
}

#[test]
fn with_write_cache_a_write_waits_for_nothing() {
    let (media, tasks, drive) = new_drive();
    media.hold_writes.store(true, SeqCst);
    media.hold_syncs.store(true, SeqCst);
    let syncs = media.syncs.load(SeqCst);
    (0..100).for_each(|block| write(&tasks, &drive, block));
    (0..100).for_each(|block| assert_holds(&tasks, &drive, block));
    assert_eq!(media.syncs.load(SeqCst), syncs);
}

#[test]
fn fua_waits_for_the_sync() {
    let (media, tasks, drive) = new_drive();
    media.hold_syncs.store(true, SeqCst);
    let data = random(1, 4096);
    let mut fua = Box::pin(drive.write(0, &data, true));
    for _ in 0..50 {
        assert!(poll(fua.as_mut()).is_none(), "acknowledged before it was durable");
        tasks.turn();
    }
    media.hold_syncs.store(false, SeqCst);
    tasks.run(fua).expect("durable");
}

#[test]
fn a_flush_waits_for_writes_in_flight() {
    let (media, tasks, drive) = new_drive();
    media.hold_writes.store(true, SeqCst);
    write(&tasks, &drive, 1);
    let syncs = media.syncs.load(SeqCst);
    let mut flush = Box::pin(drive.flush());
    for _ in 0..50 {
        assert!(poll(flush.as_mut()).is_none(), "nothing is on the medium yet");
        tasks.turn();
    }
    assert_eq!(media.syncs.load(SeqCst), syncs, "a sync now would cover nothing");
    media.hold_writes.store(false, SeqCst);
    tasks.run(flush).expect("flush");
}

#[test]
fn concurrent_flushes_share_syncs() {
    let (media, tasks, drive) = new_drive();
    media.hold_syncs.store(true, SeqCst);
    let before = media.syncs.load(SeqCst);
    let mut flushes = Vec::new();
    for block in 0..20 {
        write(&tasks, &drive, block);
        flushes.push(Box::pin(drive.flush()));
        for _ in 0..3 {
            assert!(flushes.iter_mut().all(|flush| poll(flush.as_mut()).is_none()));
            tasks.turn();
        }
    }
    media.hold_syncs.store(false, SeqCst);
    for flush in flushes {
        tasks.run(flush).expect("flush");
    }
    let syncs = media.syncs.load(SeqCst) - before;
    assert_eq!(syncs, 2, "the first, and one for all that came while it ran");
}

#[test]
fn a_flush_with_nothing_to_do_does_not_sync() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 0);
    tasks.run(drive.flush()).expect("flush");
    let before = media.syncs.load(SeqCst);
    tasks.run(drive.flush()).expect("flush");
    assert_eq!(media.syncs.load(SeqCst), before);
}

#[test]
fn requests_that_are_given_up_leave_the_drive_usable() {
    let (media, tasks, drive) = new_drive();
    (0..300).for_each(|block| write(&tasks, &drive, block));
    let data = random(7, 300 * BLOCK as usize);
    let mut bytes = vec![0; data.len()];
    for polls in 1..12 {
        media.hold_writes.store(polls % 3 == 0, SeqCst);
        media.hold_syncs.store(polls % 2 == 0, SeqCst);
        tasks.give_up(drive.write(0, &data, true), polls);
        tasks.give_up(drive.flush(), polls);
        tasks.give_up(drive.trim(512, 3 << 20, true), polls);
        tasks.give_up(drive.maintain(), polls);
        tasks.give_up(drive.checkpoint(), polls);
        tasks.give_up(drive.clean(), polls);
        tasks.give_up(drive.read(0, &mut bytes), polls);
        media.hold_writes.store(false, SeqCst);
        media.hold_syncs.store(false, SeqCst);
        tasks.run(drive.flush()).expect("flush");
    }
    tasks.run(drive.write(0, &data, false)).expect("write");
    tasks.run(drive.checkpoint()).expect("checkpoint");
    while tasks.run(drive.clean()).expect("clean") {}
    tasks.run(drive.read(0, &mut bytes)).expect("read");
    assert!(bytes == data);
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
    tasks.run(drive.close()).expect("close");
    assert_eq!(tasks.run(tasks.open(&media, |_| {}).check(true)).expect("check"), Vec::<String>::new());
}

/// Does maintenance until there is nothing to do.
fn maintain(tasks: &Tasks, drive: &Drive<Erased>) {
    for _ in 0..100 {
        while tasks.run(drive.maintain()).expect("maintain") {}
        tasks.turn();
    }
}

/// Creates a drive that is idle and has freed segments.
fn idle() -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let (media, tasks, drive) = new_drive();
    (0..1000).for_each(|block| write(&tasks, &drive, block));
    tasks.run(drive.trim(0, 1000 * BLOCK, false)).expect("trim");
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(media.discards.load(SeqCst), 0, "not while it is busy");
    for _ in 0..63 {
        drive.tick();
        tasks.turn();
    }
    (media, tasks, drive)
}

#[test]
fn freed_space_is_given_back_when_idle() {
    let (media, tasks, drive) = idle();
    maintain(&tasks, &drive);
    let discards = media.discards.load(SeqCst);
    let discarded = drive.status().counters.discarded_bytes;
    assert!(discards >= 1 && discarded >= 3 << 20, "{discards} discards of {discarded} bytes");
    assert!(!tasks.run(drive.maintain()).expect("maintain"), "once each");
    write(&tasks, &drive, 5);
    tasks.run(drive.flush()).expect("flush");
    assert_holds(&tasks, &drive, 5);
}

#[test]
fn a_backing_that_cannot_discard_is_asked_once() {
    let (media, tasks, drive) = idle();
    media.fail_discards.store(true, SeqCst);
    maintain(&tasks, &drive);
    assert_eq!(media.discards.load(SeqCst), 1);
    assert_eq!(drive.status().counters.discarded_bytes, 0);
    write(&tasks, &drive, 5);
    assert_holds(&tasks, &drive, 5);
}

#[test]
fn cleaning_after_a_checkpoint_was_given_up_leaves_a_whole_map() {
    for polls in 1..40 {
        let (media, tasks, drive) = new_drive();
        // More leaves under one node than a checkpoint writes in one step.
        for round in 0..3 {
            for leaf in 0..63 {
                write(&tasks, &drive, leaf * 512 + round % 2);
            }
            if round == 0 {
                tasks.run(drive.checkpoint()).expect("checkpoint");
            }
        }
        tasks.give_up(drive.checkpoint(), polls);
        while tasks.run(drive.clean()).expect("clean") {}
        tasks.run(drive.flush()).expect("flush");
        drop(drive);
        let drive = tasks.open(&media, |_| {});
        (0..63).for_each(|leaf| assert_holds(&tasks, &drive, leaf * 512));
        (0..63).for_each(|leaf| assert_holds(&tasks, &drive, leaf * 512 + 1));
        assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
    }
}

#[test]
fn a_checkpoint_given_up_while_its_slot_is_written_is_not_written_twice_at_a_time() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 5);
    tasks.run(drive.checkpoint()).expect("checkpoint");
    let (checkpoints, writes) = (drive.status().counters.checkpoints_count, media.writes.load(SeqCst));
    // Nothing has changed, so only the slot has to be written.
    media.hold_writes.store(true, SeqCst);
    for _ in 0..3 {
        assert!(tasks.give_up(drive.checkpoint(), 10).is_none());
    }
    assert_eq!(media.writes.load(SeqCst), writes + 1);
    media.hold_writes.store(false, SeqCst);
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(drive.status().counters.checkpoints_count, checkpoints + 1);
    assert_holds(&tasks, &drive, 5);
}

#[test]
fn a_map_of_which_a_checkpoint_was_given_up_is_checked_as_it_is() {
    for polls in 0..40 {
        let (_media, tasks, drive) = new_drive();
        // More nodes than a checkpoint writes in one step.
        (0..63).for_each(|leaf| write(&tasks, &drive, leaf * 512));
        tasks.give_up(drive.checkpoint(), polls);
        assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new(), "{polls} polls");
    }
}

#[test]
fn a_drive_left_alone_writes_out_what_it_has() {
    let (media, tasks, drive) = new_drive();
    write(&tasks, &drive, 1);
    let before = media.writes.load(SeqCst);
    drive.tick();
    drive.tick();
    tasks.turn();
    assert_eq!(media.writes.load(SeqCst), before + 1);
}
