//! Maps and tables that no correct drive wrote, although all their checksums are valid: two groups of blocks
//! with the entry of one frame, records that reach beyond their pack, segments that are out of use and hold
//! packs.

use crate::common;
use crate::faulty;
use crate::image;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::{random, text_like};
use common::{Erased, create_options, new_drive, open, run};
use drive::{Drive, Error};
use faulty::{Faulty, Tasks};
use image::{Image, OnMedia};
use layout::{Entry, RecordKind, SegmentUse};
use media::Media;

const BLOCK: u64 = 4096;
/// Bytes of a slot and its entry in a leaf of pairs.
const PAIR_BYTES: u64 = 10;

fn read(drive: &Drive<Erased>, block: u64, blocks: usize) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; blocks * BLOCK as usize];
    run(drive.read(block * BLOCK, &mut bytes)).map(|()| bytes)
}

/// Replaces the entry of a leaf's pair.
fn set_entry<M: Media>(image: &Image<M>, leaf: &OnMedia, pair: u64, entry: Entry) {
    assert_eq!(leaf.header.codec, 1, "pairs");
    image.change(leaf, leaf.payload() + pair * PAIR_BYTES + 2, &entry.0.to_le_bytes());
}

/// Blocks 0 and 1 are a frame, and so, by the leaf, are blocks 2 and 3: with the same entry.
#[test]
fn a_frame_at_two_places_is_corrupt_at_the_second() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    let text = text_like(1, 2 * BLOCK as usize);
    run(drive.write(0, &text, false)).expect("write");
    // So many others that the leaf is written as pairs.
    for block in [2, 3, 10, 20] {
        run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
    }
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    let frame = image.newest(RecordKind::Data, 0);
    assert_eq!(frame.header.blocks(), 2, "a frame");
    let leaf = image.node(0, 0);
    for pair in [2, 3] {
        set_entry(&image, &leaf, pair, frame.entry());
    }
    let drive = open(&media, 5);
    assert_eq!(read(&drive, 0, 2).expect("the frame"), text);
    // From within the first group into the second, over both, and within the second.
    for (block, blocks) in [(1, 2), (1, 3), (0, 4), (0, 3), (2, 2), (2, 1), (3, 1)] {
        let result = read(&drive, block, blocks);
        assert!(matches!(result, Err(Error::Corrupt(_))), "{blocks} blocks from {block} on: {result:?}");
        let unaligned = run(drive.read(block * BLOCK + 512, &mut vec![0; blocks * BLOCK as usize - 512]));
        assert!(matches!(unaligned, Err(Error::Corrupt(_) | Error::Invalid(_))), "{unaligned:?}");
    }
    assert!(!run(drive.check(true)).expect("check").is_empty());
    while run(drive.clean()).expect("clean") {}
    while run(drive.maintain()).expect("maintain") {}
}

/// A leaf's entry begins where the host's next pack will be, and is longer than the pack. While the pack is
/// in memory, what the entry points to is not read from there beyond its end.
#[test]
fn a_record_that_reaches_beyond_a_pack_in_memory_is_corrupt() {
    let make = || {
        let (media, tasks) = (Arc::new(Faulty::new(64 << 20)), Tasks::default());
        tasks.run(Drive::create(&*media, &create_options(64 << 20, 128 << 20))).expect("create");
        let drive = tasks.open(&media, |_| {});
        tasks.run(drive.write(0, &random(1, BLOCK as usize), false)).expect("write");
        tasks.run(drive.close()).expect("close");
        (media, tasks)
    };
    let write = |tasks: &Tasks, drive: &Drive<Erased>| {
        tasks.run(drive.write(5 * BLOCK, &random(5, BLOCK as usize), false)).expect("write");
    };
    // A drive to see where the pack will be.
    let (media, tasks) = make();
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive);
    tasks.run(drive.flush()).expect("flush");
    let place = Image::of_any(&media).newest(RecordKind::Data, 5).position;

    let (media, tasks) = make();
    let image = Image::of_any(&media);
    set_entry(&image, &image.node(0, 0), 0, Entry::record(place, Entry::MAX_LEN_BYTES));
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive);
    let read = |drive: &Drive<Erased>| {
        let result = tasks.run(drive.read(0, &mut vec![0; BLOCK as usize]));
        assert!(matches!(result, Err(Error::Corrupt(_))), "{result:?}");
    };
    // In the open pack, then in the sealed one.
    read(&drive);
    media.hold_writes.store(true, SeqCst);
    assert!(tasks.give_up(drive.flush(), 3).is_none(), "the pack waits for the medium");
    read(&drive);
}

/// The log goes on in a segment that the newest checkpoint calls damaged.
#[test]
fn a_damaged_segment_that_the_log_goes_on_in_stays_damaged() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    run(drive.write(0, &random(1, BLOCK as usize), true)).expect("write");
    run(drive.checkpoint()).expect("checkpoint");
    run(drive.write(BLOCK, &random(2, BLOCK as usize), true)).expect("write");
    drop(drive);
    let image = Image::of(&media);
    let place = image.newest(RecordKind::Data, 1).position;
    let (segment, _) = image.geometry().locate(place).expect("in a segment");
    image.change_checkpoints(|checkpoint| checkpoint.rows[segment as usize].usage = SegmentUse::Damaged);
    for entropy in 5..8 {
        let drive = open(&media, entropy);
        assert_eq!(drive.status().segments_damaged_count, 1);
        assert_eq!(read(&drive, 1, 1).expect("read"), random(2, BLOCK as usize));
        run(drive.close()).expect("close");
    }
    let drive = open(&media, 9);
    run(drive.trim(0, 128 << 20, true)).expect("trim");
    (0..3).for_each(|_| run(drive.checkpoint()).expect("checkpoint"));
    run(drive.close()).expect("close");
    assert_eq!(open(&media, 10).status().segments_damaged_count, 1, "also when nothing lives in it");
}
