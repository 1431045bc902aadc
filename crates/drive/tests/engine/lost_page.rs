//! A page that cannot be read costs what is on it, and nothing else: the rest of its segment moves out. So
//! does what lives in a segment that took no write, which stays out of use.

use crate::common;
use crate::faulty;
use crate::image;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive, Error};
use faulty::{Faulty, Tasks};
use image::{Image, OnMedia};
use layout::{Geometry, RecordKind};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 900;

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

fn new_drive(segment_bytes: u32) -> (Arc<Faulty>, Tasks) {
    let physical = 60 * u64::from(segment_bytes);
    let (media, tasks) = (Arc::new(Faulty::new(physical)), Tasks::default());
    let options =
        CreateOptions { segment_bytes: Some(segment_bytes), ..create_options(physical, physical / 2) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    (media, tasks)
}

fn write(tasks: &Tasks, drive: &Drive<Erased>, block: u64, version: u64) {
    tasks.run(drive.write(block * BLOCK, &contents(block, version), false)).expect("write");
}

fn read(tasks: &Tasks, drive: &Drive<Erased>, block: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; BLOCK as usize];
    tasks.run(drive.read(block * BLOCK, &mut bytes)).map(|()| bytes)
}

fn segment(geometry: &Geometry, segment: u32) -> Range<u64> {
    let start = geometry.segment_offset(segment);
    start..start + u64::from(geometry.segment_bytes)
}

/// Does maintenance until there is nothing to do, also after pauses.
fn maintain(tasks: &Tasks, drive: &Drive<Erased>) {
    for _ in 0..200 {
        let mut rounds = 0;
        while tasks.run(drive.maintain()).expect("maintain") {
            rounds += 1;
            assert!(rounds < 10_000, "maintenance goes on for ever");
        }
        drive.tick();
        tasks.turn();
    }
}

/// Blocks whose newest record touches a range.
fn blocks_on(records: &[OnMedia], lost: &Range<u64>) -> BTreeSet<u64> {
    let touches = |record: &&OnMedia| {
        let end = record.position + record.header.record_len() as u64;
        record.position < lost.end && lost.start < end
    };
    records.iter().filter(touches).map(|record| record.header.block).collect()
}

#[test]
fn a_lost_page_of_a_segment_that_is_cleaned_hides_nothing_else() {
    // Pages of the first segment: the header of a pack, of which the records are looked for one by one;
    // others.
    for (segment_bytes, page) in [(1 << 20, 0), (1 << 20, 1), (1 << 20, 77), (1 << 20, 255), (4 << 20, 500)] {
        let when = format!("page {page} of segments of {segment_bytes}");
        let (media, tasks) = new_drive(segment_bytes);
        let drive = tasks.open(&media, |_| {});
        let blocks = BLOCKS * u64::from(segment_bytes) / (1 << 20);
        (0..blocks).for_each(|block| write(&tasks, &drive, block, 1));
        tasks.run(drive.flush()).expect("flush");
        let image = Image::of_any(&media);
        let (geometry, records) = (image.geometry(), image.records(RecordKind::Data));
        drop(drive);
        let drive = tasks.open(&media, |_| {});
        (0..blocks / 3).for_each(|n| tasks.run(drive.trim(3 * n * BLOCK, BLOCK, false)).expect("trim"));
        tasks.run(drive.checkpoint()).expect("checkpoint");

        let home = geometry.locate(records[0].position).expect("in a segment").0;
        let home = segment(&geometry, home);
        let lost = home.start + page * BLOCK..home.start + (page + 1) * BLOCK;
        media.lost.lock().push(lost.clone());
        while tasks.run(drive.clean()).expect("clean") {}
        let failed = drive.status().counters.read_errors_count;
        assert!((1..=6).contains(&failed), "{when}: {failed} reads failed");
        tasks.run(drive.checkpoint()).expect("checkpoint");

        *media.lost.lock() = vec![home.clone()];
        let gone = blocks_on(&records, &lost);
        for block in (0..blocks).filter(|block| block % 3 != 0) {
            let found = read(&tasks, &drive, block);
            match gone.contains(&block) {
                false => assert!(found == Ok(contents(block, 1)), "{when}: block {block}: {:?}", found.err()),
                true => assert!(matches!(found, Err(Error::Io(_))), "{when}: block {block}"),
            }
        }
        // It may have been unreadable for a moment only.
        media.lost.lock().clear();
        gone.iter().filter(|block| *block % 3 != 0).for_each(|block| {
            assert!(read(&tasks, &drive, *block) == Ok(contents(*block, 1)), "{when}: block {block}");
        });
    }
}

#[test]
fn a_segment_of_which_nothing_can_be_read_takes_few_attempts() {
    let (media, tasks) = new_drive(4 << 20);
    let drive = tasks.open(&media, |_| {});
    (0..1000).for_each(|block| write(&tasks, &drive, block, 1));
    tasks.run(drive.close()).expect("close");
    drop(drive);
    let drive = tasks.open(&media, |_| {});
    (0..500).for_each(|n| tasks.run(drive.trim(2 * n * BLOCK, BLOCK, false)).expect("trim"));
    tasks.run(drive.checkpoint()).expect("checkpoint");
    let image = Image::of_any(&media);
    let home = image.geometry().locate(image.records(RecordKind::Data)[0].position).expect("in a segment").0;
    media.lost.lock().push(segment(&image.geometry(), home));
    while tasks.run(drive.clean()).expect("clean") {}
    let failed = drive.status().counters.read_errors_count;
    assert!((2..40).contains(&failed), "{failed} reads failed");
}

/// A drive with data in a segment that then did not take a write. Returns the segment.
fn with_bad_segment(media: &Arc<Faulty>, tasks: &Tasks, drive: &Drive<Erased>, page: u64) -> u32 {
    (0..60).for_each(|block| write(tasks, drive, block, 1));
    tasks.run(drive.flush()).expect("flush");
    let image = Image::of_any(media);
    let home = image.newest(RecordKind::Data, 59).position;
    let home = image.geometry().locate(home).expect("in a segment").0;
    let at = segment(&image.geometry(), home).start + page * BLOCK;
    media.unwritable.lock().push(at..at + BLOCK);
    (60..BLOCKS).for_each(|block| write(tasks, drive, block, 1));
    tasks.run(drive.flush()).expect("flush");
    assert_eq!(drive.status().segments_bad_count, 1);
    home
}

#[test]
fn what_lives_in_a_bad_segment_moves_out_and_the_segment_stays_out_of_use() {
    for reopened in [false, true] {
        let (media, tasks) = new_drive(1 << 20);
        let drive = tasks.open(&media, |_| {});
        let home = with_bad_segment(&media, &tasks, &drive, 150);
        let home = segment(&Image::of_any(&media).geometry(), home);
        let drive = match reopened {
            false => drive,
            true => {
                drop(drive);
                tasks.open(&media, |_| {})
            }
        };
        let attempts = media.attempts_at(&home);
        maintain(&tasks, &drive);
        // Nodes of the map move with a checkpoint.
        tasks.run(drive.checkpoint()).expect("checkpoint");
        maintain(&tasks, &drive);
        tasks.run(drive.checkpoint()).expect("checkpoint");
        media.lost.lock().push(home.clone());
        assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
        for version in 1..4 {
            for block in 0..BLOCKS {
                let found = read(&tasks, &drive, block);
                assert!(found == Ok(contents(block, version)), "block {block}: {:?}", found.err());
            }
            (0..BLOCKS).for_each(|block| write(&tasks, &drive, block, version + 1));
            tasks.run(drive.flush()).expect("flush");
            maintain(&tasks, &drive);
        }
        assert_eq!(drive.status().segments_bad_count, 1);
        tasks.run(drive.close()).expect("close");
        drop(drive);
        let drive = tasks.open(&media, |_| {});
        assert_eq!(drive.status().segments_bad_count, 1, "it is remembered");
        assert!(read(&tasks, &drive, 7) == Ok(contents(7, 4)));
        assert_eq!(media.attempts_at(&home), attempts, "it is not written to again");
    }
}

#[test]
fn what_can_be_read_of_a_bad_segment_moves_out_and_attempts_come_to_an_end() {
    for flips in [false, true] {
        let (media, tasks) = new_drive(1 << 20);
        let drive = tasks.open(&media, |_| {});
        // The first pages of the segment, which hold data, cannot be read any more, or not rightly.
        let home = with_bad_segment(&media, &tasks, &drive, 150);
        let image = Image::of_any(&media);
        let home = segment(&image.geometry(), home);
        let records = image.records(RecordKind::Data);
        let lost = image.newest(RecordKind::Data, 20).position / BLOCK * BLOCK;
        let lost = lost..lost + BLOCK;
        assert!(home.contains(&lost.start));
        match flips {
            false => media.lost.lock().push(lost.clone()),
            true => image.zero(lost.start, BLOCK as usize),
        }
        maintain(&tasks, &drive);
        tasks.run(drive.checkpoint()).expect("checkpoint");
        maintain(&tasks, &drive);
        media.lost.lock().push(home.clone());
        let gone = blocks_on(&records, &lost);
        for block in 0..BLOCKS {
            let found = read(&tasks, &drive, block);
            assert_eq!(found.is_ok(), !gone.contains(&block), "block {block}: {:?}", found.err());
        }
        let before = drive.status().counters.read_errors_count;
        maintain(&tasks, &drive);
        let failed = drive.status().counters.read_errors_count - before;
        assert!(failed < 200, "{failed} reads failed in vain");
        assert_eq!(drive.status().segments_bad_count, 1);
    }
}

/// A disk may take seconds for each, and requests that need room wait for the step.
#[test]
fn few_reads_fail_in_one_step_and_the_next_goes_on_where_it_was() {
    // Pages of two windows; or the whole segment.
    let scattered = [3..4, 5..6, 40..41, 170..172, 300..301, 600..601, 701..702];
    for pages in [scattered.to_vec(), std::iter::once(0..1024).collect()] {
        let (media, tasks) = new_drive(4 << 20);
        let drive = tasks.open(&media, |_| {});
        (0..300).for_each(|block| write(&tasks, &drive, block, 1));
        tasks.run(drive.flush()).expect("flush");
        let image = Image::of_any(&media);
        let geometry = image.geometry();
        let home = geometry.locate(image.newest(RecordKind::Data, 299).position).expect("in a segment").0;
        let home = segment(&geometry, home);
        media.unwritable.lock().push(home.start + 800 * BLOCK..home.start + 801 * BLOCK);
        (300..2000).for_each(|block| write(&tasks, &drive, block, 1));
        tasks.run(drive.flush()).expect("flush");
        assert_eq!(drive.status().segments_bad_count, 1);
        let records = Image::of_any(&media).records(RecordKind::Data);
        let lost = |pages: &Range<u64>| home.start + pages.start * BLOCK..home.start + pages.end * BLOCK;
        let lost: Vec<Range<u64>> = pages.iter().map(lost).collect();
        media.lost.lock().clone_from(&lost);
        let failed = || drive.status().counters.read_errors_count;
        let (mut most, before) = (0, failed());
        for _ in 0..400 {
            let before = failed();
            tasks.run(drive.maintain()).expect("maintain");
            most = most.max(failed() - before);
            drive.tick();
            tasks.turn();
        }
        assert!(most <= 4 && failed() - before > 4, "{pages:?}: {most} of {}", failed() - before);
        *media.lost.lock() = vec![home.clone()];
        let gone: BTreeSet<u64> = lost.iter().flat_map(|lost| blocks_on(&records, lost)).collect();
        for block in 0..2000 {
            match gone.contains(&block) {
                false => assert!(read(&tasks, &drive, block) == Ok(contents(block, 1)), "{pages:?}: {block}"),
                true => assert!(read(&tasks, &drive, block).is_err(), "{pages:?}: {block}"),
            }
        }
    }
}
