//! Images that no correct drive wrote, although all their checksums are valid: errors, never a panic.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, erased, new_drive, open, run, spawner};
use drive::{Drive, Error, OpenOptions, State, Zeroes};
use image::Image;
use layout::{Checkpoint, Entry, NextSegment, RecordKind};
use media::MemoryMedia;

fn try_open(media: &Arc<MemoryMedia>) -> Result<Drive<Erased>, Error> {
    run(Drive::open(erased(media.clone()), OpenOptions::new(9, spawner())))
}

fn rescue(media: &Arc<MemoryMedia>) -> Drive<Erased> {
    let options = OpenOptions { read_only: true, accept_damage: true, ..OpenOptions::new(9, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("a rescue")
}

fn read(drive: &Drive<Erased>, block: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; 4096];
    run(drive.read(block * 4096, &mut bytes)).map(|()| bytes)
}

/// Creates a closed drive of 128 MiB whose leaves 0 and 1 are on the medium.
fn written() -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    for block in [0, 1, 600] {
        run(drive.write(block * 4096, &random(block, 4096), false)).expect("write");
    }
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    (media, image)
}

/// Like `written`, followed by changes to both leaves without loading them: the last checkpoint holds their
/// overlays.
fn with_overlays() -> (Arc<MemoryMedia>, Image) {
    let (media, _) = written();
    let drive = open(&media, 5);
    for block in [2, 601] {
        run(drive.write(block * 4096, &random(block, 4096), false)).expect("write");
    }
    run(drive.checkpoint()).expect("checkpoint");
    drop(drive);
    let image = Image::of(&media);
    (media, image)
}

fn assert_checkpoint_refused(change: impl Fn(&mut Checkpoint)) {
    let (media, image) = written();
    image.change_checkpoints(change);
    let refused = try_open(&media).err();
    assert!(matches!(refused, Some(Error::Corrupt(_))), "{refused:?}");
}

#[test]
fn a_root_outside_the_segments_is_refused() {
    assert_checkpoint_refused(|c| c.root = Entry::record(1 << 40, 4096));
}

#[test]
fn a_head_outside_the_segments_is_refused() {
    assert_checkpoint_refused(|c| c.heads[0].current = NextSegment { segment: 1 << 20, generation: 1 });
}

#[test]
fn more_live_than_a_segment_holds_is_refused() {
    assert_checkpoint_refused(|c| c.rows[3].live_units = u32::MAX);
}

#[test]
fn more_blocks_than_the_drive_has_are_refused() {
    assert_checkpoint_refused(|c| c.live_blocks = u64::MAX);
}

#[test]
fn a_checkpoint_number_at_the_end_of_counting_is_refused() {
    assert_checkpoint_refused(|c| c.number |= u64::MAX << 1);
}

/// Numbers are counted from 1, and the one before a checkpoint's is that of the other slot.
#[test]
fn a_checkpoint_number_of_zero_is_refused() {
    assert_checkpoint_refused(|c| c.number = 0);
}

#[test]
fn a_free_segment_that_holds_something_is_refused() {
    assert_checkpoint_refused(|c| c.rows[40].live_units = 7);
}

#[test]
fn counts_that_are_too_low_do_not_run_below_zero() {
    let (media, image) = written();
    image.change_checkpoints(|c| c.live_blocks = 0);
    let drive = try_open(&media).expect("nothing shows it yet");
    run(drive.trim(0, 128 << 20, true)).expect("trim");
    run(drive.checkpoint()).expect("checkpoint");
}

/// Writes an entry into the last pair of a node, and reads block 0.
fn assert_node_refused(level: u16, slot: u16, entry: Entry) {
    let (media, image) = written();
    let node = image.node(level, 0);
    assert_eq!(node.header.codec, 1, "pairs");
    let mut pair = slot.to_le_bytes().to_vec();
    pair.extend_from_slice(&entry.0.to_le_bytes());
    // The last pair, so that slots stay in ascending order.
    let last = node.payload() + u64::from(node.header.payload_len) - 10;
    image.change(&node, last, &pair);
    let drive = try_open(&media).expect("the map is read when it is needed");
    let error = read(&drive, 0).expect_err("a map that cannot be");
    assert!(matches!(&error, Error::Corrupt(why) if why.contains("cannot hold")), "{error}");
    assert!(!run(drive.check(true)).expect("check").is_empty());
    // Cleaning continues although the leaf cannot be loaded.
    while run(drive.clean()).expect("clean") {}
}

#[test]
fn a_leaf_that_points_outside_the_segments_is_corrupt() {
    assert_node_refused(0, 500, Entry::record(1 << 40, 4112));
}

#[test]
fn a_leaf_that_points_across_the_end_of_a_segment_is_corrupt() {
    let (_, image) = written();
    let end = image.geometry().segment_offset(5);
    assert_node_refused(0, 500, Entry::record(end - 16, 4112));
}

#[test]
fn a_fill_above_the_leaves_is_corrupt() {
    assert_node_refused(1, 50, Entry::fill(3));
}

#[test]
fn a_child_beyond_the_capacity_is_corrupt() {
    let (_, image) = written();
    assert_node_refused(1, 64, image.node(0, 0).entry());
}

fn assert_damaged(media: &Arc<MemoryMedia>) -> Drive<Erased> {
    let refused = try_open(media).err();
    assert!(matches!(refused, Some(Error::Corrupt(_) | Error::Damaged(_))), "{refused:?}");
    let drive = rescue(media);
    assert!(matches!(drive.status().state, State::Damaged(_)));
    drive
}

#[test]
fn an_overlay_that_points_outside_the_segments_is_refused() {
    let (media, image) = with_overlays();
    let overlay = image.newest(RecordKind::Overlay, 0);
    image.change(&overlay, overlay.payload() + 2, &Entry::record(1 << 40, 4112).0.to_le_bytes());
    assert_damaged(&media);
}

#[test]
fn an_overlay_of_a_leaf_beyond_the_capacity_is_refused() {
    let (media, image) = with_overlays();
    let overlay = image.newest(RecordKind::Overlay, 1);
    image.change(&overlay, overlay.position + 4, &64u64.to_le_bytes()[..6]);
    assert_damaged(&media);
}

#[test]
fn two_overlays_of_a_leaf_are_refused() {
    let (media, image) = with_overlays();
    let overlay = image.newest(RecordKind::Overlay, 1);
    image.change(&overlay, overlay.position + 4, &0u64.to_le_bytes()[..6]);
    let drive = assert_damaged(&media);
    assert_eq!(read(&drive, 2).expect("of the first overlay"), random(2, 4096));
}

#[test]
fn a_missing_overlay_is_noticed_also_when_opening_read_only() {
    let (media, image) = with_overlays();
    image.change_checkpoints(|c| c.overlay_records += 1);
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    let refused = run(Drive::open(erased(media.clone()), options)).err();
    assert!(matches!(&refused, Some(Error::Corrupt(why)) if why.contains("overlay")), "{refused:?}");
    assert_damaged(&media);
}

/// Creates a drive with a log record after its checkpoint, made by `write`.
fn with_tail(write: impl Fn(&Drive<Erased>)) -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    write(&drive);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    (media, image)
}

#[test]
fn data_beyond_the_capacity_is_refused() {
    let (media, image) = with_tail(|d| run(d.write(0, &random(1, 4096), false)).expect("write"));
    let record = image.newest(RecordKind::Data, 0);
    image.change(&record, record.position + 4, &[0xff; 5]);
    assert_damaged(&media);
}

#[test]
fn a_range_beyond_the_capacity_is_refused() {
    let (media, image) = with_tail(|d| run(d.write_zeroes(0, 65536, Zeroes::default())).expect("zeroes"));
    let record = image.newest(RecordKind::Range, 0);
    image.change(&record, record.payload(), &u64::MAX.to_le_bytes());
    assert_damaged(&media);
}

#[test]
fn a_node_of_no_level_does_not_lead_cleaning_astray() {
    let (media, image) = written();
    let node = image.node(0, 1);
    image.change(&node, node.position + 14, &0x0100u16.to_le_bytes());
    let drive = open(&media, 9);
    while run(drive.clean()).expect("clean") {}
    assert_eq!(read(&drive, 0).expect("read"), random(0, 4096));
    assert!(matches!(read(&drive, 600), Err(Error::Corrupt(_))));
}
