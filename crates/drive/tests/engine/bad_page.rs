//! A page that accepts no writes, at any position: the drive opens, accepts writes, loses nothing, and never
//! writes to its segment again.

use crate::common;
use crate::faulty;

use std::ops::Range;
use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, erased};
use drive::{CreateOptions, Drive, Error, OpenOptions, State};
use faulty::{Faulty, Tasks};
use layout::{Geometry, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 24 << 20;
/// Openings of each drive.
const OPENINGS: u64 = 20;
const BLOCKS: u64 = 300;

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

fn write(tasks: &Tasks, drive: &Drive<Erased>, version: u64) {
    for block in 0..BLOCKS {
        let data = contents(block, version);
        tasks.run(drive.write(block * BLOCK, &data, block % 50 == 0)).expect("write");
    }
    tasks.run(drive.flush()).expect("flush");
}

fn assert_holds(tasks: &Tasks, drive: &Drive<Erased>, version: u64, when: &str) {
    for block in 0..BLOCKS {
        let mut bytes = vec![0; BLOCK as usize];
        tasks.run(drive.read(block * BLOCK, &mut bytes)).expect("read");
        assert!(bytes == contents(block, version), "{when}: block {block}");
    }
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new(), "{when}");
}

fn new_drive() -> (Arc<Faulty>, Tasks, Geometry) {
    let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, 64 << 20) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
    let geometry = Superblock::decode(&page).expect("superblock").geometry;
    (media, tasks, geometry)
}

/// Range of a segment on the backing.
fn segment(geometry: &Geometry, segment: u32) -> Range<u64> {
    let start = geometry.segment_offset(segment);
    start..start + u64::from(geometry.segment_bytes)
}

/// Opens the drive, writes, and closes or crashes it, repeatedly. Returns the number of bad segments in the
/// status at the end.
fn life(media: &Arc<Faulty>, tasks: &Tasks, bad: &[Range<u64>], when: &str) -> u32 {
    let (mut count, mut attempts) = (0, 0);
    for opening in 1..=OPENINGS {
        let when = format!("{when}, opening {opening}");
        let drive = tasks.open(media, |_| {});
        let status = drive.status();
        assert_eq!(status.state, State::Online, "{when}");
        assert!(status.segments_bad_count >= count, "{when}: it is remembered");
        let now: usize = bad.iter().map(|bad| media.attempts_at(bad)).sum();
        if count as usize == bad.len() {
            assert_eq!(now, attempts, "{when}: they are not written to again");
        }
        if opening > 1 {
            assert_holds(tasks, &drive, opening - 1, &when);
        }
        write(tasks, &drive, opening);
        if opening % 2 == 0 {
            while tasks.run(drive.clean()).expect("clean") {}
            assert_holds(tasks, &drive, opening, &when);
            tasks.run(drive.close()).expect("close");
        }
        count = drive.status().segments_bad_count;
        attempts = bad.iter().map(|bad| media.attempts_at(bad)).sum();
    }
    count
}

#[test]
fn the_drive_opens_and_goes_on_wherever_the_page_is() {
    let places = [(0, 0), (0, 1), (0, 70), (1, 0), (2, 0), (2, 3), (3, 0), (3, 60), (4, 0), (5, 0)];
    for (number, page) in places {
        let when = format!("page {page} of segment {number} takes no write");
        let (media, tasks, geometry) = new_drive();
        let bad = segment(&geometry, number);
        let at = bad.start + page * BLOCK;
        media.unwritable.lock().push(at..at + BLOCK);
        let count = life(&media, &tasks, &[bad], &when);
        assert_eq!(count, 1, "{when}");
        let drive = tasks.open(&media, |options| options.read_only = true);
        assert_eq!(drive.status().segments_bad_count, 1, "{when}: reported by a drive opened read-only");
    }
}

#[test]
fn several_pages_in_several_segments_do_no_more_harm() {
    let (media, tasks, geometry) = new_drive();
    let bad = [1, 4, 6].map(|number| segment(&geometry, number));
    for range in &bad {
        media.unwritable.lock().push(range.start + 8 * BLOCK..range.start + 9 * BLOCK);
    }
    assert_eq!(life(&media, &tasks, &bad, "three pages"), 3);
}

/// A wipe does not reset the state of bad segments.
#[test]
fn a_wipe_does_not_forget_it() {
    let (media, tasks, geometry) = new_drive();
    let bad = segment(&geometry, 1);
    media.unwritable.lock().push(bad.start..bad.start + BLOCK);
    assert_eq!(life(&media, &tasks, std::slice::from_ref(&bad), "before the wipe"), 1);
    tasks.run(Drive::wipe(&*media, drive::WipeOptions::any())).expect("wipe");
    let attempts = media.attempts_at(&bad);
    assert_eq!(life(&media, &tasks, std::slice::from_ref(&bad), "after the wipe"), 1);
    assert_eq!(media.attempts_at(&bad), attempts);
}

/// A checkpoint made the lost pack unnecessary. If that checkpoint cannot be read, the one before it leads
/// only to the gap. The gap must not be taken for the end of the log.
#[test]
fn a_checkpoint_that_cannot_be_read_is_missed_where_a_pack_is_missing() {
    let (media, tasks, geometry) = new_drive();
    let drive = tasks.open(&media, |_| {});
    let bad = segment(&geometry, 0);
    media.unwritable.lock().push(bad.start + 8 * BLOCK..bad.start + 9 * BLOCK);
    let number = drive.status().checkpoint_number;
    for block in 0..BLOCKS {
        tasks.run(drive.write(block * BLOCK, &contents(block, 1), false)).expect("write");
    }
    tasks.run(drive.flush()).expect("flush");
    assert_eq!(drive.status().segments_bad_count, 1);
    assert_eq!(drive.status().checkpoint_number, number + 1);
    drop(drive);

    let copies = [0, 1].map(|copy| geometry.checkpoint_offset(((number + 1) % 2) as usize, copy));
    media.unreadable.lock().extend(copies.map(|offset| offset..offset + BLOCK));
    let opened = tasks.run(Drive::open(erased(media.clone()), OpenOptions::new(1, tasks.spawner())));
    let error = opened.err().expect("it may hold what the log does not");
    assert!(matches!(error, Error::Io(_)), "{error}");

    media.unreadable.lock().clear();
    let drive = tasks.open(&media, |_| {});
    assert_holds(&tasks, &drive, 1, "read again");
}
