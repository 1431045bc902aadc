//! Far copies: drives that lost the start of their backing, and what must not be taken for one.

use crate::common;
use crate::faulty;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, erased, maintain, open, run, spawner};
use drive::{CopyState, CreateOptions, Drive, Error, OpenOptions, WipeOptions, find_copies};
use faulty::{Faulty, Tasks};
use image::Image;
use layout::{Geometry, PAGE_BYTES, Superblock};
use media::{IoBuf, Media, MemoryMedia};

pub(crate) const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
pub(crate) const BLOCK: u64 = 4096;
pub(crate) const SIZE: u64 = 64 * MIB;
/// Where far copies begin on a drive of this size.
pub(crate) const FAR: u64 = 32 * MIB;
const BLOCKS: u64 = 400;

pub(crate) fn options(physical: u64) -> CreateOptions {
    CreateOptions { far_copies: Some(true), ..create_options(physical, SIZE) }
}

pub(crate) fn created(physical: u64, backing: u64) -> (Arc<MemoryMedia>, Drive<Erased>) {
    let media = Arc::new(MemoryMedia::new(backing));
    run(Drive::create(&*media, &options(physical))).expect("create");
    let drive = open(&media, 1);
    (media, drive)
}

pub(crate) fn write(drive: &Drive<Erased>, round: u64) {
    for block in 0..BLOCKS {
        let bytes = random(round * BLOCKS + block, BLOCK as usize);
        run(drive.write(block * BLOCK, &bytes, false)).expect("write");
    }
    run(drive.flush()).expect("flush");
}

pub(crate) fn assert_holds(drive: &Drive<Erased>, round: u64, what: &str) {
    let mut read = vec![0; BLOCK as usize];
    for block in 0..BLOCKS {
        run(drive.read(block * BLOCK, &mut read)).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(read == random(round * BLOCKS + block, BLOCK as usize), "{what}: block {block}");
    }
}

pub(crate) fn put(media: &MemoryMedia, offset: u64, bytes: &[u8]) {
    let mut buf = IoBuf::zeroed(bytes.len());
    buf.copy_from_slice(bytes);
    run(media.write(offset, Arc::new(buf))).expect("write");
}

pub(crate) fn get(media: &MemoryMedia, offset: u64, len: u64) -> Vec<u8> {
    let (buf, result) = run(media.read(offset, IoBuf::zeroed(len as usize)));
    result.expect("read");
    buf.to_vec()
}

pub(crate) fn lose(media: &MemoryMedia, len: u64) {
    put(media, 0, &vec![0; len as usize]);
}

pub(crate) fn try_open(media: &Arc<MemoryMedia>) -> Result<Drive<Erased>, Error> {
    run(Drive::open(erased(media.clone()), OpenOptions::new(77, spawner())))
}

pub(crate) fn look(media: &Arc<MemoryMedia>) -> Result<Drive<Erased>, Error> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    run(Drive::open(erased(media.clone()), options))
}

pub(crate) fn refused(media: &Arc<MemoryMedia>) -> String {
    let before = get(media, 0, media.size_bytes());
    let why = match (try_open(media), look(media)) {
        (Err(why), Err(looking)) => {
            assert_eq!(why, looking);
            why.to_string()
        }
        _ => panic!("it was opened"),
    };
    assert!(get(media, 0, media.size_bytes()) == before, "something was written");
    why
}

fn is_whole(state: &CopyState) -> bool {
    matches!(state, CopyState::Whole { .. })
}

/// Numbers of whole copies of superblock and checkpoints.
pub(crate) fn whole_copies(media: &MemoryMedia) -> (usize, usize) {
    let (superblocks, checkpoints) = run(find_copies(media));
    let count = |copies: &[drive::CopyFound]| copies.iter().filter(|copy| is_whole(&copy.state)).count();
    (count(&superblocks), count(&checkpoints))
}

#[test]
fn a_drive_that_lost_its_start_opens_whole_and_writes_it_again() {
    let start = Geometry::without_far(SIZE, None).expect("sizes").segments_offset();
    for (len, closes) in
        [68 * KIB, 128 * KIB, 300 * KIB, start].into_iter().flat_map(|len| [(len, true), (len, false)])
    {
        let what = format!("{len} bytes lost, closed: {closes}");
        let (media, drive) = created(SIZE, SIZE);
        write(&drive, 1);
        run(drive.checkpoint()).expect("checkpoint");
        write(&drive, 2);
        if closes {
            run(drive.close()).expect("close");
        }
        drop(drive);
        lose(&media, len);

        let drive = look(&media).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_holds(&drive, 2, &what);
        let status = drive.status();
        assert!(status.recovered.start_lost && status.copies_not_taken_count >= 2, "{what}");
        let is_told =
            |note: &String| note.contains("start of the backing was lost") && note.ends_with("again");
        assert!(status.notes.iter().any(is_told), "{what}: {:?}", status.notes);
        let faults = run(drive.check(true)).expect("check");
        assert!(
            !faults.is_empty() && faults.iter().all(|fault| fault.contains("copy ")),
            "{what}: {faults:?}"
        );
        drop(drive);

        let drive = try_open(&media).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(drive.status().recovered.start_lost && drive.status().copies_not_taken_count == 0, "{what}");
        assert_eq!(whole_copies(&media), (3, 6), "{what}");
        assert_holds(&drive, 2, &what);
        write(&drive, 3);
        common::assert_sound(&drive);
        run(drive.close()).expect("close");

        // The other way round.
        put(&media, FAR, &vec![0; MIB as usize]);
        let drive = try_open(&media).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(!drive.status().recovered.start_lost, "{what}");
        run(drive.close()).expect("close");
        assert_eq!(whole_copies(&media), (3, 6), "{what}");
        lose(&media, len);
        assert_holds(&try_open(&media).unwrap_or_else(|error| panic!("{what}: {error}")), 3, &what);
    }
}

/// On a small drive the first segments, and so the newest log, may be lost with the start.
#[test]
fn a_start_that_takes_the_end_of_the_log_with_it_is_damage() {
    let geometry = Geometry::without_far(SIZE, None).expect("sizes");
    let first = geometry.segments_offset();
    for closes in [false, true] {
        let (media, drive) = created(SIZE, SIZE);
        run(drive.write(0, &random(7, BLOCK as usize), false)).expect("write");
        run(drive.flush()).expect("flush");
        run(drive.checkpoint()).expect("checkpoint");
        let image = Image::of(&media);
        let before = image.packs().len();
        run(drive.write(BLOCK, &random(8, BLOCK as usize), false)).expect("write");
        run(drive.flush()).expect("flush");
        let packs = image.packs();
        let (last, header) = packs.last().expect("packs");
        assert!(packs.len() > before && *last < first + MIB, "{packs:?}");
        let end = last + u64::from(header.len);
        if closes {
            run(drive.close()).expect("close");
        }
        drop(drive);
        lose(&media, end);
        if closes {
            // Nothing can have come after.
            drop(look(&media).expect("a drive that was closed"));
            continue;
        }
        let why = refused(&media);
        assert!(why.contains("the newest log may have been in what is lost"), "{why}");
        let accepts = OpenOptions { read_only: true, accept_damage: true, ..OpenOptions::new(9, spawner()) };
        let drive = run(Drive::open(erased(media.clone()), accepts)).expect("what is left");
        assert!(matches!(drive.status().state, drive::State::Damaged(_)), "{:?}", drive.status().state);
    }
}

/// Nothing of the log is lost, and no checkpoint names a segment yet: packs in front of the place where the
/// log goes on show it.
#[test]
fn a_start_that_takes_nothing_of_the_log_is_no_damage() {
    let first = Geometry::without_far(SIZE, None).expect("sizes").segments_offset();
    for blocks in [1, 100, 300, 600, 1000] {
        let (media, drive) = created(SIZE, SIZE);
        for block in 0..blocks {
            run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
        }
        run(drive.flush()).expect("flush");
        drop(drive);
        lose(&media, first);
        let drive = try_open(&media).unwrap_or_else(|error| panic!("{blocks} blocks: {error}"));
        let mut read = vec![0; BLOCK as usize];
        for block in 0..blocks {
            run(drive.read(block * BLOCK, &mut read)).expect("read");
            assert!(read == random(block, BLOCK as usize), "block {block} of {blocks}");
        }
    }
}

#[test]
fn a_drive_without_far_copies_is_gone_with_its_start() {
    let media = Arc::new(MemoryMedia::new(SIZE));
    let options = CreateOptions { far_copies: Some(false), ..create_options(SIZE, SIZE) };
    run(Drive::create(&*media, &options)).expect("create");
    run(open(&media, 1).close()).expect("close");
    assert_eq!(whole_copies(&media).0, 2);
    lose(&media, 68 * KIB);
    assert_eq!(try_open(&media).err(), Some(Error::NotADrive));
}

#[test]
fn the_far_copies_take_room_that_is_accounted_for() {
    let status = |far| {
        let media = Arc::new(MemoryMedia::new(SIZE));
        let options = CreateOptions { far_copies: Some(far), ..create_options(SIZE, SIZE) };
        run(Drive::create(&*media, &options)).expect("create");
        open(&media, 1).status()
    };
    let (with, without) = (status(true), status(false));
    assert_eq!((with.segments_count, with.segments_bad_count), (without.segments_count, 0));
    assert_eq!(with.segments_free_count + 1, without.segments_free_count);
    assert_eq!(with.physical_fixed_bytes, without.physical_fixed_bytes + MIB);
}

/// Also if what lies there by then was never on this backing before.
#[test]
fn a_longer_backing_and_growth_change_nothing() {
    let (media, drive) = created(SIZE, 3 * SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    lose(&media, MIB);
    assert_holds(&try_open(&media).expect("a partition that has grown"), 1, "grown below");

    let larger = Arc::new(MemoryMedia::new(10 * SIZE));
    put(&larger, 0, &get(&media, 0, 3 * SIZE));
    lose(&larger, MIB);
    let drive = try_open(&larger).expect("a copy on a larger disk");
    assert_holds(&drive, 1, "copied");
    run(drive.set_physical_size(4 * SIZE)).expect("grow");
    run(drive.set_logical_capacity(6 * SIZE)).expect("grow");
    write(&drive, 2);
    drop(drive);
    lose(&larger, MIB);
    let drive = try_open(&larger).expect("a drive that has grown");
    assert_holds(&drive, 2, "grown");
    assert_eq!((drive.status().physical_size_bytes, drive.logical_capacity_bytes()), (4 * SIZE, 6 * SIZE));

    let shorter = Arc::new(MemoryMedia::new(SIZE - MIB));
    put(&shorter, 0, &get(&media, 0, SIZE - MIB));
    lose(&shorter, MIB);
    assert!(refused(&shorter).contains("cut short"));
}

/// The start decides, as long as there is one.
#[test]
fn the_far_copies_of_an_older_drive_are_not_taken_beside_a_newer_start() {
    let (old, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let far = get(&old, FAR, MIB);
    for far_copies in [true, false] {
        let media = Arc::new(MemoryMedia::new(SIZE));
        let options = CreateOptions { uuid: [9; 16], far_copies: Some(far_copies), ..options(SIZE) };
        run(Drive::create(&*media, &options)).expect("create");
        let drive = open(&media, 2);
        write(&drive, 5);
        run(drive.close()).expect("close");
        put(&media, FAR, &far);
        let drive = try_open(&media).expect("open");
        assert_eq!(drive.status().uuid, [9; 16]);
        assert_holds(&drive, 5, "the newer drive");
        run(drive.close()).expect("close");
        if far_copies {
            lose(&media, MIB);
            assert_holds(&try_open(&media).expect("its far copies were written again"), 5, "the newer drive");
        }
    }
}

#[test]
fn creating_a_drive_leaves_no_far_copies_of_another_behind() {
    for (before, after) in [(SIZE, 40 * MIB), (40 * MIB, 2 * SIZE), (SIZE, SIZE), (SIZE, 2 * SIZE)] {
        for far_copies in [true, false] {
            let (media, drive) = created(before, 2 * SIZE);
            write(&drive, 1);
            run(drive.close()).expect("close");
            let options = CreateOptions { uuid: [9; 16], far_copies: Some(far_copies), ..options(after) };
            run(Drive::create(&*media, &options)).expect("create");
            let drive = open(&media, 2);
            write(&drive, 2);
            run(drive.close()).expect("close");
            lose(&media, MIB);
            match try_open(&media) {
                Ok(drive) => {
                    assert!(far_copies && drive.status().uuid == [9; 16]);
                    assert_holds(&drive, 2, "the newer drive");
                }
                Err(error) => assert!(!far_copies && error == Error::NotADrive, "{error}"),
            }
        }
    }
}

/// A new drive on part of the backing leaves what is behind it alone.
#[test]
fn of_two_drives_none_is_taken() {
    let (media, drive) = created(SIZE, SIZE);
    run(drive.close()).expect("close");
    let options = CreateOptions { uuid: [9; 16], ..options(30 * MIB) };
    run(Drive::create(&*media, &options)).expect("create");
    lose(&media, MIB);
    let why = refused(&media);
    assert!(why.contains("two drives are at bytes 0x1010000 and 0x2010000"), "{why}");
}

/// As by a release that does not know of far copies.
#[test]
fn a_drive_whose_segments_hold_something_else_is_not_taken() {
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let far = get(&media, FAR, MIB);
    let options = CreateOptions { uuid: [9; 16], far_copies: Some(false), ..options(SIZE) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 2);
    run(drive.write(0, &random(0, BLOCK as usize), true)).expect("write");
    drop(drive);
    put(&media, FAR, &far);
    lose(&media, MIB);
    let why = refused(&media);
    assert!(why.contains("something else was written to segment"), "{why}");
}

#[test]
fn far_copies_that_were_left_behind_are_not_taken_for_the_newest() {
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.checkpoint()).expect("checkpoint");
    let far = get(&media, FAR, MIB);
    // Cleaning and checkpoints free what the old copies lead to, and the log goes on there.
    for round in 2..40 {
        write(&drive, round);
        run(drive.checkpoint()).expect("checkpoint");
        maintain(&drive);
    }
    run(drive.close()).expect("close");
    put(&media, FAR, &far);
    assert_holds(&look(&media).expect("the start is there"), 39, "the newest");
    lose(&media, MIB);
    let why = refused(&media);
    assert!(why.contains("knows checkpoint"), "{why}");
}

/// A file system, a partition table, or whatever else.
#[test]
fn what_was_written_over_the_start_is_not_overwritten() {
    for at in [0, 1080, 5000, 32 * KIB, 65_536, 70_000, 127 * KIB] {
        let (media, drive) = created(SIZE, SIZE);
        write(&drive, 1);
        run(drive.close()).expect("close");
        lose(&media, MIB);
        let page = at / BLOCK * BLOCK;
        let mut bytes = vec![0; BLOCK as usize];
        bytes[(at - page) as usize..][..4].copy_from_slice(b"\x53\xefXY");
        put(&media, page, &bytes);
        let why = refused(&media);
        assert!(why.contains(&format!("at byte {at})")) && why.contains("first 128 KiB"), "{why}");
        lose(&media, 128 * KIB);
        assert_holds(&try_open(&media).expect("it is gone"), 1, "zeros");
    }
    // What is left of the drive itself is nothing else.
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    [100, 65_536 + 100].into_iter().for_each(|at| image.flip_bit(at));
    let drive = try_open(&media).expect("damaged superblocks");
    assert!(drive.status().recovered.start_lost);
    assert_holds(&drive, 1, "damaged superblocks");
}

#[test]
fn a_far_superblock_of_a_later_release_is_named() {
    let (media, drive) = created(SIZE, SIZE);
    run(drive.close()).expect("close");
    let mut superblock = Image::of(&media).superblock.clone();
    superblock.features.incompatible = 1 << 9;
    put(&media, Geometry::far_superblock_offset(FAR), &superblock.encode());
    assert!(refused(&media).contains("feature"), "one intact copy must be refused");
    lose(&media, MIB);
    assert!(refused(&media).contains("feature"));
}

/// A change that reached the far copy only, because no other was taken.
#[test]
fn the_newest_copy_counts_wherever_it_is() {
    let (media, drive) = created(SIZE, SIZE);
    let start = get(&media, 0, 68 * KIB);
    run(drive.set_logical_capacity(2 * SIZE)).expect("grow");
    write(&drive, 1);
    drop(drive);
    put(&media, 0, &start);
    let drive = try_open(&media).expect("open");
    assert_eq!(drive.logical_capacity_bytes(), 2 * SIZE);
    assert_holds(&drive, 1, "grown");
}

#[test]
fn a_wiped_drive_does_not_come_back() {
    let (media, drive) = created(SIZE, SIZE);
    write(&drive, 1);
    run(drive.close()).expect("close");
    lose(&media, MIB);
    let wiped = run(Drive::wipe(&*media, WipeOptions::any()));
    assert!(matches!(wiped, Err(Error::Invalid(_))), "{wiped:?}");
    run(try_open(&media).expect("open").close()).expect("close");
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    run(Drive::discard_all(&*media, |_, _| std::ops::ControlFlow::Continue(()))).expect("discard");
    assert_eq!(whole_copies(&media).0, 3);
    lose(&media, MIB);
    let drive = try_open(&media).expect("open");
    assert_eq!((drive.status().incarnation, drive.status().logical_used_bytes), (1, 0));
    write(&drive, 2);
    run(drive.close()).expect("close");
    lose(&media, MIB);
    assert_holds(&try_open(&media).expect("open"), 2, "after the wipe");
}

/// One failure is noted, and costs no more checkpoints than before.
#[test]
fn a_far_place_that_takes_no_writes_is_reported() {
    let media = Arc::new(Faulty::new(SIZE));
    let tasks = Tasks::default();
    tasks.run(Drive::create(&*media, &options(SIZE))).expect("create");
    let drive = tasks.open(&media, |_| {});
    let geometry = Image::of_any(&media).geometry();
    let places = [0, 1].map(|slot| geometry.checkpoint_offset(slot, 2));
    media.unwritable.lock().extend(places.map(|at| at..at + BLOCK));
    let before = drive.status().checkpoint_number;
    for round in 0..4 {
        tasks.run(drive.write(round * BLOCK, &random(round, BLOCK as usize), true)).expect("write");
        tasks.run(drive.checkpoint()).expect("checkpoint");
    }
    let status = drive.status();
    assert_eq!((status.copies_not_taken_count, status.checkpoint_number - before), (2, 4));
    assert!(status.notes.iter().any(|note| note.contains("places for checkpoints")), "{:?}", status.notes);
}

/// Every place that an image may name for them, and none makes a drive write elsewhere.
#[test]
fn hostile_places_are_refused() {
    let (media, drive) = created(SIZE, SIZE);
    run(drive.close()).expect("close");
    let page = Image::of(&media).superblock.encode();
    for place in (0..64).map(|power| 1_u64 << power).chain([0, 3, u64::MAX, SIZE - 1, FAR + BLOCK]) {
        let mut changed = page;
        changed[136..144].copy_from_slice(&place.to_le_bytes());
        changed[12..16].fill(0);
        let crc = crc32c::crc32c(&changed);
        changed[12..16].copy_from_slice(&crc.to_le_bytes());
        let is_possible = Superblock::decode(&changed).is_ok();
        assert_eq!(is_possible, (8 * MIB..SIZE).contains(&place) && place.is_power_of_two(), "{place:#x}");
        for at in [0, 65_536, Geometry::far_superblock_offset(FAR)] {
            put(&media, at, &changed);
        }
        // Its checkpoints say that other segments are set aside.
        assert_eq!(try_open(&media).is_ok(), place == FAR, "{place:#x}");
        lose(&media, 68 * KIB);
        assert_eq!(try_open(&media).is_ok(), place == FAR, "{place:#x}");
    }
    assert_eq!(page.len(), PAGE_BYTES);
}
