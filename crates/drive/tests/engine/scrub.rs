//! Scrubbing of a drive in use.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::{random, text_like};
use common::{Erased, new_drive, open, run};
use drive::{Drive, Error, Fault};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

const BLOCK: u64 = 4096;

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
}

/// Scrubs the whole drive. Returns the number of verified records, and the faults. `between` is called after
/// each step.
fn scrub(drive: &Drive<Erased>, between: impl FnMut()) -> (u64, Vec<Fault>) {
    let (records, faults, _) = scrub_for_lost(drive, between);
    (records, faults)
}

/// As `scrub`, with the blocks that are lost.
fn scrub_for_lost(drive: &Drive<Erased>, mut between: impl FnMut()) -> (u64, Vec<Fault>, Vec<u64>) {
    let (mut records, mut faults, mut lost, mut next) = (0, Vec::new(), Vec::new(), Some(0));
    while let Some(block) = next {
        let mut step = run(drive.scrub_step(block)).expect("a step");
        records += step.records_count;
        faults.append(&mut step.faults);
        lost.extend(step.lost.iter().flat_map(|range| range.start / BLOCK..range.end / BLOCK));
        assert!(lost.is_sorted(), "{lost:?}");
        assert!(step.next_block.is_none_or(|next| next > block));
        next = step.next_block;
        between();
    }
    (records, faults, lost)
}

/// Creates a drive with blocks in several leaves and nodes, on the medium.
fn spread() -> (Arc<MemoryMedia>, Drive<Erased>) {
    let (media, drive) = new_drive(64 << 20, 16 << 30);
    (0..1000).for_each(|i| write(&drive, place(i)));
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, 2);
    (media, drive)
}

fn place(i: u64) -> u64 {
    i % 10 * 400_000 + i / 10
}

#[test]
fn a_sound_drive_has_all_its_records_verified() {
    let (_, drive) = spread();
    assert_eq!(scrub(&drive, || ()), (1000, vec![]));
}

#[test]
fn bad_records_are_named_with_their_places_and_the_others_verified() {
    let (media, drive) = spread();
    let image = Image::of(&media);
    let bad: Vec<_> = [3, 500].iter().map(|i| image.newest(RecordKind::Data, place(*i))).collect();
    bad.iter().for_each(|record| image.flip_bit(record.payload() + 7));
    let (records, faults, lost) = scrub_for_lost(&drive, || ());
    assert_eq!((records, faults.len()), (998, 2));
    assert_eq!(lost, [place(500), place(3)], "in the order of their blocks");
    for record in bad {
        let fault = faults.iter().find(|fault| fault.position_bytes == Some(record.position)).expect("it");
        assert_eq!(fault.logical_offset_bytes, Some(record.header.block * BLOCK));
        assert_eq!(fault.segment, image.geometry().locate(record.position).map(|(segment, _)| segment));
    }
    assert_eq!(drive.status().counters.corrupt_records_count, 2);
}

/// A fault names the whole frame. What was trimmed or overwritten since is not lost.
#[test]
fn live_blocks_of_a_bad_frame_are_lost_and_no_others() {
    let (media, drive) = new_drive(64 << 20, 64 << 20);
    run(drive.write(0, &text_like(1, 24 * BLOCK as usize), true)).expect("write");
    run(drive.trim(9 * BLOCK, BLOCK, true)).expect("trim");
    write(&drive, 12);
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    let record = image.records(RecordKind::Data).into_iter().find(|r| r.header.block == 8).expect("a frame");
    assert_eq!(record.header.blocks(), 8);
    image.flip_bit(record.payload() + 100);
    let (_, faults, lost) = scrub_for_lost(&open(&media, 2), || ());
    assert_eq!(faults[0].logical_len_bytes, Some(8 * BLOCK));
    assert_eq!(lost, [8, 10, 11, 13, 14, 15]);
}

#[test]
fn a_bad_map_node_is_a_fault_and_what_it_maps_is_passed_over() {
    let (media, drive) = spread();
    let image = Image::of(&media);
    let leaf = image
        .records(RecordKind::Node)
        .into_iter()
        .rfind(|r| r.header.extra == 0 && r.header.block == place(1) / 512)
        .expect("a leaf");
    image.flip_bit(leaf.payload() + 1);
    let (records, faults, lost) = scrub_for_lost(&drive, || ());
    let first = place(1) / 512 * 512;
    assert_eq!(lost, (first..first + 512).collect::<Vec<_>>());
    // A hundred blocks are adjacent, in one leaf.
    assert_eq!((records, faults.len()), (900, 1));
    assert_eq!(faults[0].logical_len_bytes, Some(512 * BLOCK));
    assert_eq!(faults[0].position_bytes, Some(leaf.position));
}

#[test]
fn writes_cleaning_and_checkpoints_go_on_meanwhile() {
    let (_, drive) = spread();
    let mut round = 0;
    let (records, faults) = scrub(&drive, || {
        for _ in 0..50 {
            write(&drive, place(round % 1000));
            round += 7;
        }
        run(drive.clean()).expect("clean");
        run(drive.checkpoint()).expect("checkpoint");
    });
    assert_eq!(faults, []);
    assert!(records > 900 && records <= 1000, "{records}");
}

#[test]
fn it_ends_with_the_drive() {
    let (_, drive) = spread();
    run(drive.close()).expect("close");
    assert!(matches!(run(drive.scrub_step(0)), Err(Error::ReadOnly(_))));
}
