//! Cleaning moves frames with dead blocks. The record it writes leaves these blocks out, and none of them
//! reappears after any crash.

use crate::common;
use crate::image;
use crate::kinds;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, open, run};
use drive::{CreateOptions, Drive};
use image::Image;
use kinds::alike;
use layout::RecordKind;
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: u64 = 4096;
const FRAME: u64 = 8 * BLOCK;
const FRAMES: u64 = 48;
/// Offset of data that fills segments and is trimmed again.
const BALLAST: u64 = 16 << 20;

/// Fate of a block of a frame.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Stays,
    Overwritten,
    Trimmed,
}

/// Fate of each block. A frame loses up to seven blocks, in patterns that differ between frames.
fn fate(block: u64) -> Fate {
    match (block / 8 * 5 + block % 8 * 3) % 7 {
        0 | 3 | 6 => Fate::Stays,
        1 | 4 => Fate::Overwritten,
        _ => Fate::Trimmed,
    }
}

fn contents(block: u64) -> Vec<u8> {
    match fate(block) {
        Fate::Stays => alike(block / 8)[..BLOCK as usize].to_vec(),
        Fate::Overwritten => random(block, BLOCK as usize),
        Fate::Trimmed => vec![0; BLOCK as usize],
    }
}

fn assert_holds(drive: &Memory, when: &str) {
    let mut back = vec![0; BLOCK as usize];
    for block in 0..FRAMES * 8 {
        run(drive.read(block * BLOCK, &mut back)).expect("read");
        assert!(back == contents(block), "{when}: block {block}");
    }
}

/// Writes frames, and kills blocks of each before a checkpoint. The data that replaces them is before the
/// checkpoint too.
fn with_dead_blocks() -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(24 << 20));
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(24 << 20, 64 << 20) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    for frame in 0..FRAMES {
        run(drive.write(frame * FRAME, &alike(frame), false)).expect("write");
        let ballast = random(frame, 100 << 10);
        run(drive.write(BALLAST + frame * (128 << 10), &ballast, false)).expect("write");
    }
    for block in 0..FRAMES * 8 {
        match fate(block) {
            Fate::Stays => {}
            Fate::Overwritten => {
                run(drive.write(block * BLOCK, &contents(block), false)).expect("write");
            }
            Fate::Trimmed => run(drive.trim(block * BLOCK, BLOCK, false)).expect("trim"),
        }
    }
    run(drive.trim(BALLAST, 16 << 20, false)).expect("trim");
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    assert_holds(&drive, "before cleaning");
    (media, drive)
}

/// Cleans without a checkpoint, and makes the result durable. Returns the number of records that leave blocks
/// out.
fn clean(media: &Arc<MemoryMedia>, drive: &Memory) -> usize {
    let checkpoints = drive.status().counters.checkpoints_count;
    let mut cleaned = 0;
    while cleaned < 20 && run(drive.clean()).expect("clean") {
        cleaned += 1;
    }
    drive.tick();
    drive.tick();
    run(drive.flush()).expect("flush");
    assert_eq!(drive.status().counters.checkpoints_count, checkpoints, "all of it is behind the checkpoint");
    let records = Image::of(media).records(RecordKind::Data);
    records.iter().filter(|record| record.header.left_out != 0).count()
}

#[test]
fn a_frame_moved_in_part_brings_nothing_back_after_a_crash_or_two() {
    let (media, drive) = with_dead_blocks();
    let left_out = clean(&media, &drive);
    assert!(left_out > FRAMES as usize / 2, "{left_out} records that leave blocks out");
    assert_holds(&drive, "cleaned");
    assert_sound(&drive);
    drop(drive);
    let drive = open(&media, 2);
    assert_holds(&drive, "after a crash");
    assert_sound(&drive);
    drop(drive);
    let drive = open(&media, 3);
    assert_holds(&drive, "after another");
    assert_sound(&drive);
}

/// Frames that were moved in part are cleaned and crash again. The blocks left out may be written meanwhile.
#[test]
fn nor_does_one_that_is_moved_again() {
    let (media, mut drive) = with_dead_blocks();
    for round in 0..6 {
        assert!(clean(&media, &drive) > 0);
        // Writes that come after the moved records in the log.
        for block in (0..FRAMES * 8).filter(|block| fate(*block) != Fate::Stays && block % 6 == round) {
            match fate(block) {
                Fate::Trimmed => run(drive.trim(block * BLOCK, BLOCK, false)).expect("trim"),
                _ => run(drive.write(block * BLOCK, &contents(block), false)).expect("write"),
            }
        }
        run(drive.flush()).expect("flush");
        drop(drive);
        drive = open(&media, 10 + round);
        assert_holds(&drive, "after a crash");
        assert_sound(&drive);
    }
}
