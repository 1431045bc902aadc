//! A full drive with damaged records: no segment is emptied that cannot be freed, so TRIM has room, and what
//! it frees can be written.

use crate::common;
use crate::faulty;
use crate::image;

use std::collections::BTreeSet;
use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, maintain, open, run};
use drive::{CreateOptions, Drive, Error};
use faulty::{Faulty, Tasks};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

const BLOCK: u64 = 4096;
/// A drive of 63 segments.
const PHYSICAL: u64 = 64 << 20;
/// A drive of 127 segments, a third of them damaged.
const LARGE: (u64, usize) = (128 << 20, 42);

fn write(drive: &Drive<Erased>, block: u64, version: u64) -> Result<(), Error> {
    run(drive.write(block * BLOCK, &random(block + version * 100_000, BLOCK as usize), false))
}

/// A drive filled until it refuses, closed; and the number of blocks.
fn full(physical: u64) -> (Arc<MemoryMedia>, u64) {
    let media = Arc::new(MemoryMedia::new(physical));
    let create = CreateOptions { segment_bytes: Some(1 << 20), ..create_options(physical, 2 * physical) };
    run(Drive::create(&*media, &create)).expect("create");
    let drive = open(&media, 1);
    let blocks =
        (0..2 * physical / BLOCK).find(|block| write(&drive, *block, 0).is_err()).expect("it is full");
    run(drive.close()).expect("close");
    (media, blocks)
}

/// Flips a bit in a record of data of so many segments. Returns the blocks.
fn damage(media: &Arc<MemoryMedia>, segments: usize, blocks: u64) -> BTreeSet<u64> {
    let image = Image::of(media);
    let (mut hit, mut lost) = (BTreeSet::new(), BTreeSet::new());
    for record in image.records(RecordKind::Data) {
        let segment = image.geometry().locate(record.position).expect("in a segment").0;
        if record.header.block < blocks && hit.len() < segments && hit.insert(segment) {
            image.flip_bit(record.payload() + 100);
            lost.insert(record.header.block);
        }
    }
    lost
}

#[test]
fn trim_has_room_after_overwrites_have_met_all_the_damage() {
    for (physical, segments) in [1, 6, 15, 30, 40, 55, 63].map(|n| (PHYSICAL, n)).into_iter().chain([LARGE]) {
        let (media, blocks) = full(physical);
        let lost = damage(&media, segments, blocks);
        let drive = open(&media, 2);
        // Known damage, as a scrub would find it.
        let mut bytes = vec![0; BLOCK as usize];
        run(drive.read(lost.first().expect("one") * BLOCK, &mut bytes)).expect_err("damaged");
        let (mut done, mut refused) = (0, 0);
        for n in 0..6000_u64 {
            let block = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks;
            match write(&drive, block, 1) {
                Ok(()) => done += 1,
                Err(_) => refused += 1,
            }
            if n % 200 == 0 {
                maintain(&drive);
            }
        }
        let state = || (segments, done, refused, drive.status().segments_free_count);
        run(drive.flush()).unwrap_or_else(|error| panic!("flush: {error}, {:?}", state()));
        run(drive.trim(0, BLOCK, false)).unwrap_or_else(|error| panic!("trim: {error}, {:?}", state()));
        for first in (0..blocks).step_by(16) {
            run(drive.trim(first * BLOCK, 8 * BLOCK, false))
                .unwrap_or_else(|error| panic!("trim: {error}, {:?}", state()));
        }
        maintain(&drive);
        run(drive.trim(0, 2 * physical, false)).expect("trim");
        maintain(&drive);
        // What was trimmed can be written, but for what is lost with the segments that were set aside.
        // Of the rest, a fifth of the drive is kept in reserve.
        let room = blocks * (50 - segments.min(50) as u64) / 63 / 2;
        (0..room).for_each(|block| write(&drive, block, 2).expect("write"));
        run(drive.close()).expect("close");
        open(&media, 3);
    }
}

/// As a file system does with its journal. What is set aside is lost room, so it is not for ever.
#[test]
fn some_blocks_of_a_bad_segment_can_be_overwritten_on_a_full_drive() {
    let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
    let create = CreateOptions { segment_bytes: Some(1 << 20), ..create_options(PHYSICAL, 2 * PHYSICAL) };
    tasks.run(Drive::create(&*media, &create)).expect("create");
    let drive = tasks.open(&media, |_| {});
    let write = |block: u64, version: u64| {
        let bytes = random(block + version * 100_000, BLOCK as usize);
        tasks.run(drive.write(block * BLOCK, &bytes, false))
    };
    (0..150).for_each(|block| write(block, 0).expect("write"));
    tasks.run(drive.flush()).expect("flush");
    let image = Image::of_any(&media);
    let geometry = image.geometry();
    let home = geometry.locate(image.newest(RecordKind::Data, 149).position).expect("in a segment").0;
    let start = geometry.segment_offset(home);
    media.unwritable.lock().push(start + 200 * BLOCK..start + 201 * BLOCK);
    (150..400).for_each(|block| write(block, 0).expect("write"));
    tasks.run(drive.flush()).expect("flush");
    let blocks = (400..2 * PHYSICAL / BLOCK).find(|block| write(*block, 0).is_err()).expect("it is full");
    assert_eq!(drive.status().segments_bad_count, 1);
    tasks.run(drive.flush()).expect("flush");
    let records = Image::of_any(&media).records(RecordKind::Data);
    let is_there = |block: &u64| {
        let newest = records.iter().rfind(|record| record.header.block == *block).expect("written");
        geometry.locate(newest.position).is_some_and(|(segment, _)| segment == home)
    };
    let there: Vec<u64> = (0..150).filter(is_there).collect();
    let done: Vec<u64> = there.iter().copied().filter(|block| write(*block, 1).is_ok()).collect();
    assert!((5..there.len()).contains(&done.len()), "{} of {}", done.len(), there.len());
    assert_eq!(write(blocks, 1), Err(Error::NoSpace));
    tasks.run(drive.flush()).expect("flush");
    // Neither cleaning nor TRIM lacks the room that they took.
    for version in 2..5 {
        (400..1400).for_each(|block| write(block, version).expect("in place, elsewhere"));
        while tasks.run(drive.maintain()).expect("maintain") {}
    }
    for first in (0..blocks).step_by(16) {
        tasks.run(drive.trim(first * BLOCK, 8 * BLOCK, false)).expect("trim");
    }
    tasks.run(drive.close()).expect("close");
    tasks.open(&media, |_| {});
}
