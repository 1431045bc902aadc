//! Frames: adjacent blocks compressed as one record, which die one by one.

use crate::common;
use crate::image;

use codec::testdata::{random, text_like};
use common::{Erased, assert_sound, create_options, erased, new_drive, open, run};
use drive::{Drive, OpenOptions};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: usize = 4096;

fn read(drive: &Memory, offset: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0xee; len];
    run(drive.read(offset, &mut back)).expect("read");
    back
}

/// Blocks of all data records on the backing, in the order of the log.
fn record_blocks(media: &std::sync::Arc<MemoryMedia>) -> Vec<(u64, u64)> {
    let records = Image::of(media).records(RecordKind::Data).into_iter();
    records.map(|record| (record.header.block, record.header.blocks())).collect()
}

#[test]
fn a_long_write_becomes_frames_at_multiples_of_their_blocks() {
    let (media, drive) = new_drive(64 << 20, 64 << 20);
    run(drive.write(5 * 4096, &text_like(1, 30 * BLOCK), true)).expect("write");
    let frames = record_blocks(&media);
    assert_eq!(frames, [(5, 1), (6, 2), (8, 8), (16, 8), (24, 8), (32, 2), (34, 1)]);
    assert_eq!(read(&drive, 5 * 4096, 30 * BLOCK), text_like(1, 30 * BLOCK));
    assert_sound(&drive);
}

#[test]
fn what_does_not_compress_or_repeats_a_word_stays_out_of_frames() {
    let (media, drive) = new_drive(64 << 20, 64 << 20);
    let mut data = text_like(1, 16 * BLOCK);
    data[2 * BLOCK..3 * BLOCK].copy_from_slice(&random(3, BLOCK));
    data[9 * BLOCK..10 * BLOCK].fill(0x20);
    run(drive.write(0, &data, true)).expect("write");
    let frames = record_blocks(&media);
    assert_eq!(frames, [(0, 2), (2, 1), (3, 1), (4, 4), (8, 1), (10, 2), (12, 4)]);
    assert_eq!(read(&drive, 0, data.len()), data);
    assert_sound(&drive);
}

#[test]
fn no_frames_where_they_are_switched_off_and_every_drive_reads_them() {
    let media = std::sync::Arc::new(MemoryMedia::new(64 << 20));
    run(Drive::create(&*media, &create_options(64 << 20, 64 << 20))).expect("create");
    let data = text_like(1, 32 * BLOCK);
    for (entropy, frame_blocks) in [(1, 1), (2, 2), (3, 16), (4, 64)] {
        let options = OpenOptions { frame_blocks, ..OpenOptions::new(entropy, common::spawner()) };
        let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
        run(drive.write(entropy << 20, &data, true)).expect("write");
        let largest = record_blocks(&media).iter().map(|(_, blocks)| *blocks).max();
        assert_eq!(largest, Some(frame_blocks.min(8)));
        for earlier in 1..=entropy {
            assert_eq!(read(&drive, earlier << 20, data.len()), data);
        }
        run(drive.close()).expect("close");
    }
}

#[test]
fn a_frame_is_smaller_than_its_blocks_alone() {
    let used = |frame_blocks| {
        let media = std::sync::Arc::new(MemoryMedia::new(64 << 20));
        run(Drive::create(&*media, &create_options(64 << 20, 64 << 20))).expect("create");
        let options = OpenOptions { frame_blocks, ..OpenOptions::new(1, common::spawner()) };
        let drive = run(Drive::open(erased(media), options)).expect("open");
        run(drive.write(0, &text_like(1, 4 << 20), true)).expect("write");
        drive.space().0
    };
    let (alone, together) = (used(1), used(8));
    assert!(together * 100 < alone * 95, "{together} of {alone}");
}

/// Every part of a frame can be read, from the pack in memory and from the medium.
#[test]
fn any_part_of_a_frame_is_read() {
    let (media, drive) = new_drive(64 << 20, 64 << 20);
    let data = text_like(7, 16 * BLOCK);
    let all = |drive: &Memory| {
        for from in (0..data.len()).step_by(3584) {
            for len in [512, 4096, 9728, 40960] {
                let len = len.min(data.len() - from);
                assert!(read(drive, from as u64, len) == data[from..from + len], "{len} bytes at {from}");
            }
        }
    };
    run(drive.write(0, &data, false)).expect("write");
    all(&drive);
    run(drive.flush()).expect("flush");
    all(&drive);
    drop(drive);
    all(&open(&media, 2));
}

/// A frame occupies its whole length until its last block dies. The share of dead blocks is reported as
/// repackable.
#[test]
fn the_blocks_of_a_frame_die_one_by_one() {
    let (media, drive) = new_drive(64 << 20, 64 << 20);
    run(drive.write(0, &text_like(1, 8 * BLOCK), true)).expect("write");
    let whole = drive.status().physical_used_bytes;
    let mut repackable = 0;
    for block in [3, 0, 7, 1, 2, 6, 5] {
        run(drive.trim(block * 4096, 4096, false)).expect("trim");
        let status = drive.status();
        assert_eq!(status.physical_used_bytes, whole, "block {block}");
        assert!(status.physical_repackable_bytes > repackable, "block {block}");
        repackable = status.physical_repackable_bytes;
        assert_sound(&drive);
    }
    run(drive.trim(4 * 4096, 4096, false)).expect("trim");
    let status = drive.status();
    assert_eq!((status.physical_used_bytes, status.physical_repackable_bytes), (0, 0));
    run(drive.flush()).expect("flush");
    drop(drive);
    assert_eq!(open(&media, 2).space().0, 0);
}

/// A frame with only live blocks is moved unchanged. Of other frames only the live blocks are packed again.
#[test]
fn cleaning_rewrites_what_lives_of_a_frame() {
    let (media, drive) = new_drive(32 << 20, 32 << 20);
    let data = text_like(1, 12 << 20);
    run(drive.write(0, &data, true)).expect("write");
    let mut model = data.clone();
    for block in (0..3072).filter(|block| block % 24 > 8 && block % 8 != 5) {
        run(drive.trim(block * 4096, 4096, false)).expect("trim");
        model[block as usize * BLOCK..][..BLOCK].fill(0);
    }
    run(drive.flush()).expect("flush");
    let live = drive.space().0;
    let before = record_blocks(&media).len();
    let mut cleaned = 0;
    while cleaned < 3 && run(drive.clean()).expect("clean") {
        cleaned += 1;
    }
    assert!(cleaned > 0);
    run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(read(&drive, 0, model.len()), model);
    assert_sound(&drive);
    let moved = record_blocks(&media).split_off(before);
    assert!(moved.iter().any(|(_, blocks)| *blocks == 8), "whole frames move as they are: {moved:?}");
    assert!(moved.iter().any(|(block, blocks)| block % 8 == 5 && *blocks == 1), "{moved:?}");
    assert!(
        drive.space().0 < live,
        "{} after {live}: cleaning never takes more than it frees",
        drive.space().0
    );
    drop(drive);
    let again = open(&media, 2);
    assert_eq!(read(&again, 0, model.len()), model);
    assert_sound(&again);
}

/// A corrupt frame affects only its own blocks, and the check reports all of them.
#[test]
fn a_bad_frame_is_reported_with_all_its_blocks() {
    let (media, drive) = new_drive(64 << 20, 64 << 20);
    run(drive.write(0, &text_like(1, 24 * BLOCK), true)).expect("write");
    run(drive.trim(9 * 4096, 4096, true)).expect("trim");
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    let record = image.records(RecordKind::Data).into_iter().find(|r| r.header.block == 8).expect("a frame");
    image.flip_bit(record.payload() + 100);
    let drive = open(&media, 2);
    let mut block = [0; BLOCK];
    for at in 0..24 {
        let bad = (8..16).contains(&at) && at != 9;
        assert_eq!(run(drive.read(at * 4096, &mut block)).is_err(), bad, "block {at}");
    }
    let options = drive::CheckOptions { deep: true, ..drive::CheckOptions::default() };
    let report = run(drive.examine(options, |_| {})).expect("check");
    assert_eq!(report.faults_count, 1, "{:?}", report.faults);
    assert_eq!(report.faults[0].logical_offset_bytes, Some(8 * 4096));
    assert_eq!(report.faults[0].logical_len_bytes, Some(8 * 4096));
    assert_eq!(report.records_verified_count, 16);
}
