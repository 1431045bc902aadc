//! The newest checkpoint or the newest superblock cannot be had: the drive does not go on by an older one.

mod common;
#[path = "common/faulty.rs"]
mod faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::create_options;
use drive::{CreateOptions, Drive, Error, OpenOptions, WipeOptions};
use faulty::{Faulty, Tasks};
use layout::{Geometry, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 24 << 20;
const BACKING: u64 = 48 << 20;
const LOGICAL: u64 = 64 << 20;
const BLOCKS: u64 = 100;

type Grow<'a> = &'a dyn Fn(&Tasks, &Drive<Faulty>) -> Result<(), Error>;

fn new_drive(physical: u64, logical: u64) -> (Arc<Faulty>, Tasks, Geometry) {
    let (media, tasks) = (Arc::new(Faulty::new(BACKING)), Tasks::default());
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(physical, logical) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
    let geometry = Superblock::decode(&page).expect("superblock").geometry;
    (media, tasks, geometry)
}

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

fn write(tasks: &Tasks, drive: &Drive<Faulty>, version: u64) {
    for block in 0..BLOCKS {
        tasks.run(drive.write(block * BLOCK, &contents(block, version), false)).expect("write");
    }
    tasks.run(drive.flush()).expect("flush");
}

fn assert_reads(tasks: &Tasks, drive: &Drive<Faulty>, version: u64) {
    for block in 0..BLOCKS {
        let mut bytes = vec![0; BLOCK as usize];
        tasks.run(drive.read(block * BLOCK, &mut bytes)).expect("read");
        assert!(bytes == contents(block, version), "block {block}");
    }
}

fn assert_holds(tasks: &Tasks, drive: &Drive<Faulty>, version: u64) {
    assert_reads(tasks, drive, version);
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
}

/// Where the copies of a checkpoint lie.
fn copies(geometry: &Geometry, number: u64) -> [std::ops::Range<u64>; 2] {
    geometry.checkpoint_offsets(number).map(|offset| offset..offset + BLOCK)
}

fn error_of_opening(media: &Arc<Faulty>, tasks: &Tasks) -> Error {
    let opened = tasks.run(Drive::open(media.clone(), OpenOptions::new(1, tasks.spawner())));
    opened.err().expect("what it holds is not the newest")
}

fn overwrite(media: &Faulty, tasks: &Tasks, offset: u64) {
    let mut junk = IoBuf::zeroed(BLOCK as usize);
    junk.copy_from_slice(&random(offset, BLOCK as usize));
    tasks.run(media.write(offset, Arc::new(junk))).expect("write");
}

/// After a clean close nothing but the next checkpoint leads to what that run wrote, and the segment's first page alone knows of it.
#[test]
fn a_checkpoint_that_cannot_be_read_is_missed_whatever_else_cannot() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    // Closing frees segments below those that the heads would have gone to.
    (1..8).for_each(|version| write(&tasks, &drive, version));
    tasks.run(drive.close()).expect("close");
    let drive = tasks.open(&media, |_| {});
    let number = drive.status().checkpoint_number;
    media.attempts.lock().clear();
    write(&tasks, &drive, 8);
    drop(drive);

    let first = media.attempts.lock().first().expect("packs").start;
    media.unreadable.lock().extend(copies(&geometry, number));
    media.unreadable.lock().push(first..first + BLOCK);
    let error = error_of_opening(&media, &tasks);
    assert!(matches!(error, Error::Io(_)), "{error}");

    media.unreadable.lock().clear();
    assert_holds(&tasks, &tasks.open(&media, |_| {}), 8);
}

/// One copy cannot be read, the other shows that nothing newer was written.
#[test]
fn a_copy_that_cannot_be_read_is_not_missed_beside_an_older_one() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    let number = drive.status().checkpoint_number;
    drop(drive);
    let [first, _] = copies(&geometry, number + 1);
    media.unreadable.lock().push(first);
    assert_holds(&tasks, &tasks.open(&media, |_| {}), 1);
}

/// The medium did not take one of its copies, and the other is lost later: the older one beside it does not pass for the newest.
#[test]
fn a_checkpoint_of_one_copy_is_missed_where_that_is_lost() {
    for (copy, lost) in [(0, false), (1, false), (0, true), (1, true)] {
        let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
        let drive = tasks.open(&media, |_| {});
        (1..8).for_each(|version| write(&tasks, &drive, version));
        tasks.run(drive.close()).expect("close");
        let number = drive.status().checkpoint_number + 1;
        let places = copies(&geometry, number);
        media.unwritable.lock().push(places[copy].clone());
        let drive = tasks.open(&media, |_| {});
        write(&tasks, &drive, 8);
        drop(drive);

        media.unwritable.lock().clear();
        match lost {
            true => overwrite(&media, &tasks, places[1 - copy].start),
            false => media.unreadable.lock().push(places[1 - copy].clone()),
        }
        // The checkpoint after it has two copies.
        assert_holds(&tasks, &tasks.open(&media, |_| {}), 8);
    }
}

/// The map is cleaned, and what the last checkpoint freed of it belongs to the checkpoint before.
#[test]
fn what_a_checkpoint_freed_is_given_back_only_after_the_next() {
    let (media, tasks, geometry) = new_drive(BACKING, 4 << 30);
    let drive = tasks.open(&media, |_| {});
    let blocks: Vec<u64> = (0..1500).map(|n| n * 512).collect();
    for version in 0..3 {
        for block in &blocks {
            let mut data = vec![0; BLOCK as usize];
            data[..64].copy_from_slice(&random(block + version, 64));
            tasks.run(drive.write(block * BLOCK, &data, false)).expect("write");
        }
        tasks.run(drive.checkpoint()).expect("checkpoint");
    }
    tasks.run(drive.close()).expect("close");
    let drive = tasks.open(&media, |_| {});
    while tasks.run(drive.clean()).expect("clean") {}
    tasks.run(drive.checkpoint()).expect("checkpoint");
    for _ in 0..100 {
        drive.tick();
    }
    while tasks.run(drive.maintain()).expect("maintain") {
        tasks.turn();
    }
    assert!(drive.status().counters.discarded_bytes > 0);
    let number = drive.status().checkpoint_number;
    drop(drive);

    copies(&geometry, number).into_iter().for_each(|copy| overwrite(&media, &tasks, copy.start));
    let drive = tasks.open(&media, |_| {});
    for block in &blocks {
        let mut bytes = vec![0; BLOCK as usize];
        tasks.run(drive.read(block * BLOCK, &mut bytes)).expect("read");
        assert!(bytes[..64] == random(block + 2, 64), "block {block}");
    }
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
}

/// A wipe that is cut short leaves the drive as it was, also where the newest checkpoint could not be read just then.
#[test]
fn a_wipe_keeps_a_checkpoint_that_cannot_be_read() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    let bad = geometry.segment_offset(0) + 8 * BLOCK;
    media.unwritable.lock().push(bad..bad + BLOCK);
    let number = drive.status().checkpoint_number;
    write(&tasks, &drive, 1);
    assert_eq!(drive.status().checkpoint_number, number + 1, "it makes the lost pack unnecessary");
    drop(drive);

    media.unreadable.lock().extend(copies(&geometry, number + 1));
    let superblocks = [0, 1].map(Geometry::superblock_offset);
    media.unwritable.lock().extend(superblocks.map(|offset| offset..offset + BLOCK));
    tasks.run(Drive::wipe(&*media, WipeOptions::default())).expect_err("no superblock can be written");
    media.unwritable.lock().clear();
    media.unreadable.lock().clear();
    assert_holds(&tasks, &tasks.open(&media, |_| {}), 1);
}

/// Of the superblock of a drive that grew one copy took no write, and the other cannot be read, or is lost.
#[test]
fn a_superblock_older_than_the_checkpoint_is_refused() {
    let grow_size = |tasks: &Tasks, drive: &Drive<Faulty>| tasks.run(drive.set_physical_size(BACKING));
    let grow_capacity =
        |tasks: &Tasks, drive: &Drive<Faulty>| tasks.run(drive.set_logical_capacity(2 * LOGICAL));
    let grow: [Grow; 2] = [&grow_size, &grow_capacity];
    for (which, grow) in grow.into_iter().enumerate() {
        let (media, tasks, _) = new_drive(PHYSICAL, LOGICAL);
        let drive = tasks.open(&media, |_| {});
        write(&tasks, &drive, 1);
        let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
        media.unwritable.lock().push(second);
        grow(&tasks, &drive).expect("one copy is enough");
        drop(drive);

        media.unwritable.lock().clear();
        media.unreadable.lock().push(first.clone());
        let error = error_of_opening(&media, &tasks);
        assert!(matches!(error, Error::Io(_)), "growth {which}: {error}");
        media.unreadable.lock().clear();
        let drive = tasks.open(&media, |options| options.read_only = true);
        assert_reads(&tasks, &drive, 1);
        drop(drive);

        overwrite(&media, &tasks, first.start);
        let error = error_of_opening(&media, &tasks);
        assert!(matches!(&error, Error::Corrupt(why) if why.contains("newest superblock")), "{error}");
        let accepted = tasks.open(&media, |options| {
            (options.read_only, options.accept_damage) = (true, true);
        });
        assert_reads(&tasks, &accepted, 1);
    }
}

/// A wipe reached one copy of the superblock; the other says that there was none.
#[test]
fn a_wipe_is_not_undone_by_a_superblock_that_cannot_be_read() {
    let (media, tasks, _) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    tasks.run(drive.close()).expect("close");
    let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
    media.unwritable.lock().push(second);
    tasks.run(Drive::wipe(&*media, WipeOptions::default())).expect("one copy is enough");
    media.unwritable.lock().clear();
    media.unreadable.lock().push(first);
    let error = error_of_opening(&media, &tasks);
    assert!(matches!(error, Error::Io(_)), "{error}");
    let wiped_again = tasks.run(Drive::wipe(&*media, WipeOptions::default()));
    assert!(matches!(wiped_again, Err(Error::Io(_))), "{wiped_again:?}");
}

/// A wipe reached one copy of the superblock, which went bad before the drive was opened: what was wiped stays so.
#[test]
fn a_wipe_in_one_copy_is_not_undone_by_losing_it() {
    for (keeps_old, warnings) in [(false, 1), (true, 2)] {
        let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
        let drive = tasks.open(&media, |_| {});
        write(&tasks, &drive, 1);
        tasks.run(drive.close()).expect("close");
        let newest = drive.status().checkpoint_number;
        let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
        media.unwritable.lock().push(second);
        if keeps_old {
            media.unwritable.lock().extend(copies(&geometry, newest));
        }
        let wiped = tasks.run(Drive::wipe(&*media, WipeOptions::default())).expect("one copy is enough");
        assert_eq!((wiped.not_taken.len(), wiped.may_come_back), (warnings, keeps_old), "{wiped:?}");
        assert!(wiped.not_taken[0].contains("a copy of the superblock"), "{wiped:?}");
        media.unwritable.lock().clear();
        overwrite(&media, &tasks, first.start);
        if !keeps_old {
            let error = error_of_opening(&media, &tasks);
            assert!(matches!(&error, Error::Corrupt(why) if why.contains("wipe it again")), "{error}");
            tasks.run(Drive::wipe(&*media, WipeOptions::default())).expect("wiped again");
            let drive = tasks.open(&media, |_| {});
            assert_eq!(drive.status().logical_used_bytes, 0);
        }
    }
}

/// A drive that was used after such a wipe, and lost the superblock then, is wiped again: what was written in between has
/// nothing to do with what is written from then on.
#[test]
fn a_wipe_behind_a_lost_one_begins_anew() {
    let (media, tasks, _) = new_drive(PHYSICAL, LOGICAL);
    media.fail_discards.store(true, SeqCst);
    let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
    media.unwritable.lock().push(second);
    tasks.run(Drive::wipe(&*media, WipeOptions::default())).expect("one copy is enough");
    for version in 1..4 {
        let drive = tasks.open(&media, |_| {});
        write(&tasks, &drive, version);
    }
    media.unwritable.lock().clear();
    overwrite(&media, &tasks, first.start);
    tasks.run(Drive::wipe(&*media, WipeOptions::default())).expect("wiped again");
    for version in 4..7 {
        let drive = tasks.open(&media, |_| {});
        assert_eq!(drive.status().logical_used_bytes == 0, version == 4);
        write(&tasks, &drive, version);
        assert_holds(&tasks, &drive, version);
    }
}

/// Copies that take no write are counted for as long as they do not.
#[test]
fn copies_that_take_no_write_are_told() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    assert_eq!(drive.status().copies_not_taken_count, 0);
    media.unwritable.lock().extend([copies(&geometry, 0)[1].clone(), copies(&geometry, 1)[0].clone()]);
    write(&tasks, &drive, 1);
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(drive.status().copies_not_taken_count, 2);
    media.unwritable.lock().push(Geometry::superblock_offset(1)..Geometry::superblock_offset(1) + BLOCK);
    tasks.run(drive.set_logical_capacity(2 * LOGICAL)).expect("grow");
    assert_eq!(drive.status().copies_not_taken_count, 3);
    media.unwritable.lock().clear();
    tasks.run(drive.set_logical_capacity(3 * LOGICAL)).expect("grow");
    tasks.run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(drive.status().copies_not_taken_count, 0);
    assert_holds(&tasks, &drive, 1);
}

/// The newest checkpoint was taken in one copy, which was lost: the other place holds an older one, whole. Packs know better.
#[test]
fn a_checkpoint_in_one_copy_that_was_lost_is_missed() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    let newest = drive.status().checkpoint_number + 1;
    drop(drive);
    let [first, second] = copies(&geometry, newest);
    let len = (geometry.checkpoint_offset(1, 0) - geometry.checkpoint_offset(0, 0)) as usize;
    let (kept, _) = tasks.run(media.read(second.start, IoBuf::zeroed(len)));
    // Its first segments are in its first checkpoint alone.
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 2);
    assert_eq!(drive.status().checkpoint_number, newest);
    drop(drive);
    tasks.run(media.write(second.start, Arc::new(kept))).expect("as it was");
    overwrite(&media, &tasks, first.start);
    let error = error_of_opening(&media, &tasks);
    assert!(matches!(&error, Error::Damaged(why) if why.contains("knows checkpoint")), "{error}");
}

/// An opening was killed between the copies of its checkpoint, the next one could not read the one that was written and was
/// killed, too: the one after that must not believe it over what the second wrote.
#[test]
fn a_copy_that_could_not_be_read_is_not_believed_later() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    let before = drive.status().checkpoint_number;
    drop(drive);
    let [first, second] = copies(&geometry, before + 1);
    let len = (geometry.checkpoint_offset(1, 0) - geometry.checkpoint_offset(0, 0)) as usize;
    let (kept, _) = tasks.run(media.read(second.start, IoBuf::zeroed(len)));
    // Both take the same segments.
    let opening = || Drive::open(media.clone(), OpenOptions::new(7, tasks.spawner()));
    drop(tasks.run(opening()).expect("opened"));
    tasks.run(media.write(second.start, Arc::new(kept))).expect("as it was");

    media.unreadable.lock().push(first);
    media.unwritable.lock().push(geometry.segments_offset()..BACKING);
    media.attempts.lock().clear();
    tasks.run(opening()).err().expect("no pack can be written");
    media.unreadable.lock().clear();
    media.unwritable.lock().clear();
    let pack = media.attempts.lock().iter().find(|at| at.start >= geometry.segments_offset()).cloned();
    overwrite(&media, &tasks, pack.expect("a pack was tried").start);
    let drive = tasks.run(opening()).expect("opened by the checkpoint before");
    assert_holds(&tasks, &drive, 1);
}

/// A second backing with the same contents.
fn copy_of(media: &Arc<Faulty>, tasks: &Tasks) -> Arc<Faulty> {
    let copy = Arc::new(Faulty::new(BACKING));
    let (all, read) = tasks.run(media.read(0, IoBuf::zeroed(BACKING as usize)));
    read.expect("read");
    tasks.run(copy.write(0, Arc::new(all))).expect("write");
    copy
}

/// A pack was not taken, and the checkpoint that makes it unnecessary was taken in one copy: a flush that waits for that is answered
/// only when losing the copy would be noticed.
#[test]
fn a_flush_is_not_answered_by_a_checkpoint_in_one_copy_alone() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    (0..2).for_each(|_| tasks.run(drive.checkpoint()).expect("checkpoint"));
    let [refused, taken] = copies(&geometry, drive.status().checkpoint_number + 1);
    media.unwritable.lock().push(refused);
    media.fail_writes.store(true, SeqCst);
    tasks.run(drive.write(0, &contents(0, 2), false)).expect("write");
    let mut first = std::pin::pin!(drive.flush());
    while drive.status().counters.write_errors_count == 0 {
        assert_eq!(faulty::poll(first.as_mut()), None);
        tasks.turn();
    }
    media.fail_writes.store(false, SeqCst);
    media.attempts.lock().clear();
    while media.attempts_at(&taken) == 0 {
        assert_eq!(faulty::poll(first.as_mut()), None);
        tasks.turn();
    }
    media.hold_syncs.store(true, SeqCst);
    let mut second = std::pin::pin!(drive.flush());
    for _ in 0..10 {
        assert_eq!(faulty::poll(first.as_mut()), None);
        assert_eq!(faulty::poll(second.as_mut()), None);
        tasks.turn();
    }
    media.hold_syncs.store(false, SeqCst);
    tasks.turn();
    // Whichever is polled first.
    while faulty::poll(first.as_mut()).is_none() && faulty::poll(second.as_mut()).is_none() {
        tasks.turn();
    }
    let media = copy_of(&media, &tasks);
    media.unreadable.lock().push(taken);
    let drive = tasks.open(&media, |_| {});
    let mut bytes = vec![0; BLOCK as usize];
    tasks.run(drive.read(0, &mut bytes)).expect("read");
    assert!(bytes == contents(0, 2), "what was flushed is gone");
}
