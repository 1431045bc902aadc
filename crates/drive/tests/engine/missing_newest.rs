//! The newest checkpoint or superblock is unavailable: the drive must not continue from an older one.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use codec::{CodecId, Policy};
use common::{Erased, create_options, erased};
use drive::{CreateOptions, Drive, Error, OpenOptions, WipeOptions};
use faulty::{Faulty, Tasks};
use layout::{Geometry, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 24 << 20;
const BACKING: u64 = 48 << 20;
const LOGICAL: u64 = 64 << 20;
const BLOCKS: u64 = 100;

type Change<'a> = &'a dyn Fn(&Tasks, &Drive<Erased>) -> Result<(), Error>;

fn new_drive(physical: u64, logical: u64) -> (Arc<Faulty>, Tasks, Geometry) {
    let (media, tasks) = (Arc::new(Faulty::new(BACKING)), Tasks::default());
    let (segment_bytes, codec) = (Some(512 << 10), Policy::Auto);
    let options = CreateOptions { segment_bytes, codec, ..create_options(physical, logical) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
    let geometry = Superblock::decode(&page).expect("superblock").geometry;
    (media, tasks, geometry)
}

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

fn write(tasks: &Tasks, drive: &Drive<Erased>, version: u64) {
    for block in 0..BLOCKS {
        tasks.run(drive.write(block * BLOCK, &contents(block, version), false)).expect("write");
    }
    tasks.run(drive.flush()).expect("flush");
}

fn assert_reads(tasks: &Tasks, drive: &Drive<Erased>, version: u64) {
    for block in 0..BLOCKS {
        let mut bytes = vec![0; BLOCK as usize];
        tasks.run(drive.read(block * BLOCK, &mut bytes)).expect("read");
        assert!(bytes == contents(block, version), "block {block}");
    }
}

fn assert_holds(tasks: &Tasks, drive: &Drive<Erased>, version: u64) {
    assert_reads(tasks, drive, version);
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
}

/// Ranges of the copies of a checkpoint.
fn copies(geometry: &Geometry, number: u64) -> [std::ops::Range<u64>; 2] {
    geometry.checkpoint_offsets(number).map(|offset| offset..offset + BLOCK)
}

fn error_of_opening(media: &Arc<Faulty>, tasks: &Tasks) -> Error {
    let opened = tasks.run(Drive::open(erased(media.clone()), OpenOptions::new(1, tasks.spawner())));
    opened.err().expect("what it holds is not the newest")
}

fn overwrite(media: &Faulty, tasks: &Tasks, offset: u64) {
    let mut junk = IoBuf::zeroed(BLOCK as usize);
    junk.copy_from_slice(&random(offset, BLOCK as usize));
    tasks.run(media.write(offset, Arc::new(junk))).expect("write");
}

/// After a clean close, only the next checkpoint leads to what the next run wrote, and only the first page of
/// the segment refers to that checkpoint.
#[test]
fn a_checkpoint_that_cannot_be_read_is_missed_whatever_else_cannot() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    // Closing frees segments with lower numbers than those that the heads would have used.
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

/// One copy is unreadable, the other shows that nothing newer was written.
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

/// The medium did not take one of the copies, and the other is lost later. The older checkpoint next to it
/// must not be taken for the newest.
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
        // The next checkpoint has two copies.
        assert_holds(&tasks, &tasks.open(&media, |_| {}), 8);
    }
}

/// The map is cleaned. The part of it that the last checkpoint freed is still used by the checkpoint before.
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

/// An interrupted wipe leaves the drive unchanged, also if the newest checkpoint could not be read at that
/// time.
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
    tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect_err("no superblock can be written");
    media.unwritable.lock().clear();
    media.unreadable.lock().clear();
    assert_holds(&tasks, &tasks.open(&media, |_| {}), 1);
}

/// Writes rows of numbers, which the drive compresses by their structure, until it may.
fn write_rows(tasks: &Tasks, drive: &Drive<Erased>) -> Result<(), Error> {
    let row =
        |n: u32| (u64::from(n * 3) | u64::from(n.wrapping_mul(2_654_435_761) >> 20) << 32).to_le_bytes();
    let rows: Vec<u8> = (0..4096).flat_map(row).collect();
    for at in 0..8 {
        tasks.run(drive.write((BLOCKS + 8 * at) * BLOCK, &rows, false))?;
        while tasks.run(drive.maintain())? {
            tasks.turn();
        }
    }
    let ways = drive.status().written;
    assert!(ways.iter().any(|way| way.codec == CodecId::Structured), "{ways:?}");
    Ok(())
}

/// One copy of the superblock of a changed drive could not be written. The other becomes unreadable, or is
/// lost.
#[test]
fn a_superblock_older_than_the_checkpoint_is_refused() {
    let grow_size = |tasks: &Tasks, drive: &Drive<Erased>| tasks.run(drive.set_physical_size(BACKING));
    let grow_capacity =
        |tasks: &Tasks, drive: &Drive<Erased>| tasks.run(drive.set_logical_capacity(2 * LOGICAL));
    let codec = |tasks: &Tasks, drive: &Drive<Erased>| tasks.run(drive.set_codec(Policy::Deflate(1)));
    let changes: [Change; 4] = [&grow_size, &grow_capacity, &codec, &write_rows];
    for (which, change) in changes.into_iter().enumerate() {
        let (media, tasks, _) = new_drive(PHYSICAL, LOGICAL);
        let drive = tasks.open(&media, |_| {});
        write(&tasks, &drive, 1);
        let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
        media.unwritable.lock().push(second);
        change(&tasks, &drive).expect("one copy is enough");
        drop(drive);

        media.unwritable.lock().clear();
        media.unreadable.lock().push(first.clone());
        let error = error_of_opening(&media, &tasks);
        assert!(matches!(error, Error::Io(_)), "change {which}: {error}");
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

/// A wipe reached one copy of the superblock. The other copy does not show it.
#[test]
fn a_wipe_is_not_undone_by_a_superblock_that_cannot_be_read() {
    let (media, tasks, _) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    tasks.run(drive.close()).expect("close");
    let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
    media.unwritable.lock().push(second);
    tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect("one copy is enough");
    media.unwritable.lock().clear();
    media.unreadable.lock().push(first);
    let error = error_of_opening(&media, &tasks);
    assert!(matches!(error, Error::Io(_)), "{error}");
    let wiped_again = tasks.run(Drive::wipe(&*media, WipeOptions::any()));
    assert!(matches!(wiped_again, Err(Error::Io(_))), "{wiped_again:?}");
}

/// A wipe reached one copy of the superblock, which was damaged before the drive was opened. The data must
/// stay wiped.
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
        let wiped = tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect("one copy is enough");
        assert_eq!((wiped.not_taken.len(), wiped.may_come_back), (warnings, keeps_old), "{wiped:?}");
        assert!(wiped.not_taken[0].contains("a copy of the superblock"), "{wiped:?}");
        media.unwritable.lock().clear();
        overwrite(&media, &tasks, first.start);
        if !keeps_old {
            let error = error_of_opening(&media, &tasks);
            assert!(matches!(&error, Error::Corrupt(why) if why.contains("wipe it again")), "{error}");
            tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect("wiped again");
            let drive = tasks.open(&media, |_| {});
            assert_eq!(drive.status().logical_used_bytes, 0);
        }
    }
}

/// A drive was used after such a wipe, then lost the superblock, and is wiped again. Data written in between
/// must not be mixed with data written afterwards.
#[test]
fn a_wipe_behind_a_lost_one_begins_anew() {
    let (media, tasks, _) = new_drive(PHYSICAL, LOGICAL);
    media.fail_discards.store(true, SeqCst);
    let [first, second] = [0, 1].map(Geometry::superblock_offset).map(|at| at..at + BLOCK);
    media.unwritable.lock().push(second);
    tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect("one copy is enough");
    for version in 1..4 {
        let drive = tasks.open(&media, |_| {});
        write(&tasks, &drive, version);
    }
    media.unwritable.lock().clear();
    overwrite(&media, &tasks, first.start);
    tasks.run(Drive::wipe(&*media, WipeOptions::any())).expect("wiped again");
    for version in 4..7 {
        let drive = tasks.open(&media, |_| {});
        assert_eq!(drive.status().logical_used_bytes == 0, version == 4);
        write(&tasks, &drive, version);
        assert_holds(&tasks, &drive, version);
    }
}

/// Copies that cannot be written are counted as long as this is so.
#[test]
fn copies_that_take_no_write_are_reported() {
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

/// The newest checkpoint was written in one copy, which was lost. The other place holds an older one, intact.
/// Packs refer to the newer one.
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
    // Its first segments are named only in its first checkpoint.
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 2);
    assert_eq!(drive.status().checkpoint_number, newest);
    drop(drive);
    tasks.run(media.write(second.start, Arc::new(kept))).expect("as it was");
    overwrite(&media, &tasks, first.start);
    let error = error_of_opening(&media, &tasks);
    assert!(matches!(&error, Error::Damaged(why) if why.contains("knows checkpoint")), "{error}");
}

/// The newest checkpoint is lost in both copies, and the first pack that refers to it is damaged. A pack
/// behind that one refers to it too.
#[test]
fn a_lost_checkpoint_is_missed_although_the_first_pack_is_damaged() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    let drive = tasks.open(&media, |_| {});
    let number = drive.status().checkpoint_number;
    media.attempts.lock().clear();
    // All in one segment.
    for block in 0..4 {
        tasks.run(drive.write(block * BLOCK, &contents(block, 1), true)).expect("write");
    }
    drop(drive);
    let first = media.attempts.lock().first().expect("packs").start;
    let (mut page, _) = tasks.run(media.read(first, IoBuf::zeroed(BLOCK as usize)));
    page[512..].fill(0x55);
    tasks.run(media.write(first, Arc::new(page))).expect("write");
    copies(&geometry, number).iter().for_each(|copy| overwrite(&media, &tasks, copy.start));
    let error = error_of_opening(&media, &tasks);
    assert!(matches!(&error, Error::Damaged(why) if why.contains("knows checkpoint")), "{error}");
}

/// An opening was killed between the two copies of its checkpoint. The next opening could not read the copy
/// that was written, and was killed too. The third must not use that copy in place of what the second wrote.
#[test]
fn a_copy_that_could_not_be_read_is_not_believed_later() {
    let (media, tasks, geometry) = new_drive(PHYSICAL, LOGICAL);
    media.attempts.lock().clear();
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 1);
    let before = drive.status().checkpoint_number;
    drop(drive);
    let mut packs = media.attempts.lock().clone();
    packs.retain(|at| at.start >= geometry.segments_offset());
    packs.sort_by_key(|at| at.start);
    let [first, second] = copies(&geometry, before + 1);
    let len = (geometry.checkpoint_offset(1, 0) - geometry.checkpoint_offset(0, 0)) as usize;
    let (kept, _) = tasks.run(media.read(second.start, IoBuf::zeroed(len)));
    // Both openings take the same segments.
    let opening = || Drive::open(erased(media.clone()), OpenOptions::new(7, tasks.spawner()));
    drop(tasks.run(opening()).expect("opened"));
    tasks.run(media.write(second.start, Arc::new(kept))).expect("as it was");

    media.unreadable.lock().push(first);
    // What the first run wrote can be written again, and nothing else.
    let mut end = geometry.segments_offset();
    for pack in &packs {
        media.unwritable.lock().extend((end < pack.start).then_some(end..pack.start));
        end = pack.end;
    }
    media.unwritable.lock().push(end..BACKING);
    media.attempts.lock().clear();
    tasks.run(opening()).err().expect("no pack can be written");
    media.unreadable.lock().clear();
    media.unwritable.lock().clear();
    let is_new = |at: &&std::ops::Range<u64>| {
        at.start >= geometry.segments_offset()
            && packs.iter().all(|pack| at.end <= pack.start || pack.end <= at.start)
    };
    let pack = media.attempts.lock().iter().find(is_new).cloned();
    overwrite(&media, &tasks, pack.expect("a pack was tried").start);
    let drive = tasks.run(opening()).expect("opened by the checkpoint before");
    assert_holds(&tasks, &drive, 1);
}

/// Creates a second backing with the same contents.
fn copy_of(media: &Arc<Faulty>, tasks: &Tasks) -> Arc<Faulty> {
    let copy = Arc::new(Faulty::new(BACKING));
    let (all, read) = tasks.run(media.read(0, IoBuf::zeroed(BACKING as usize)));
    read.expect("read");
    tasks.run(copy.write(0, Arc::new(all))).expect("write");
    copy
}

/// A pack could not be written, and the checkpoint that makes it unnecessary was written in one copy only. A
/// flush that waits for the checkpoint completes only when a loss of that copy would be noticed.
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
    // Regardless of which is polled first.
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
