//! The reported space is correct: cleaning never makes data larger, and free space accepts as much
//! incompressible data.

use crate::common;
use crate::kinds;

use std::sync::Arc;

use codec::Policy;
use codec::testdata::{random, text_like};
use common::{Erased, assert_sound, create_options, maintain, open, run};
use drive::{CreateOptions, Drive, Error};
use kinds::alike;
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: u64 = 4096;
const FRAME: u64 = 8 * BLOCK;
const PHYSICAL: u64 = 28 << 20;
/// Offset beyond all data that the tests write at first.
const ELSEWHERE: u64 = 8 << 30;

fn new_drive(codec: Policy) -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(PHYSICAL));
    let options =
        CreateOptions { codec, segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, 16 << 30) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    (media, drive)
}

/// Content of a drive: the codec, a frame by its number, and which blocks of each frame stay.
struct Kind {
    codec: Policy,
    frame: fn(u64) -> Vec<u8>,
    stays: fn(u64) -> bool,
}

const ALIKE_HALF: Kind = Kind { codec: Policy::Lz4, frame: alike, stays: |block| block % 2 == 0 };
const ALIKE_ONE: Kind = Kind { codec: Policy::Lz4, frame: alike, stays: |block| block == 0 };
const TEXT_HALF: Kind =
    Kind { codec: Policy::Auto, frame: |n| text_like(n, FRAME as usize), stays: |block| block % 2 == 0 };
const TEXT: Kind = Kind { stays: |_| true, ..TEXT_HALF };
const RANDOM: Kind =
    Kind { codec: Policy::Lz4, frame: |n| random(n, FRAME as usize), stays: |block| block % 8 != 7 };

impl Kind {
    /// Writes frames until `percent` of the limit is used, and trims the blocks that do not stay. Returns the
    /// number of frames.
    fn fill(&self, drive: &Memory, percent: u64) -> u64 {
        let mut frames = 0;
        loop {
            let (used, limit) = drive.space();
            if used * 100 >= limit * percent {
                break;
            }
            let data: Vec<u8> = (frames..frames + 8).flat_map(self.frame).collect();
            run(drive.write(frames * FRAME, &data, false)).expect("write");
            frames += 8;
            maintain(drive);
        }
        for block in (0..frames * 8).filter(|block| !(self.stays)(block % 8)) {
            run(drive.trim(block * BLOCK, BLOCK, false)).expect("trim");
        }
        run(drive.flush()).expect("flush");
        frames
    }

    fn assert_holds(&self, drive: &Memory, frames: u64) {
        let mut back = vec![0; FRAME as usize];
        for n in 0..frames {
            run(drive.read(n * FRAME, &mut back)).expect("read");
            let mut expected = (self.frame)(n);
            let blocks = (0..).zip(expected.chunks_mut(BLOCK as usize));
            blocks.filter(|(block, _)| !(self.stays)(*block)).for_each(|(_, bytes)| bytes.fill(0));
            assert!(back == expected, "frame {n}");
        }
    }
}

/// Cleans everything possible, step by step with checkpoints in between. The used space must not grow.
fn assert_cleaning_shrinks(kind: &Kind, percent: u64) {
    let (media, drive) = new_drive(kind.codec);
    let frames = kind.fill(&drive, percent);
    // The map is as small as it will be, too.
    run(drive.checkpoint()).expect("checkpoint");
    let before = drive.status().physical_used_bytes;
    let mut used = before;
    for _ in 0..3 {
        let mut cleaned = 0;
        while run(drive.clean()).expect("clean") {
            cleaned += 1;
            assert!(cleaned < 1000, "cleaning goes on for ever");
            let now = drive.status().physical_used_bytes;
            assert!(now <= used, "cleaning a segment made {used} bytes {now}");
            used = now;
        }
        // A checkpoint writes leaves again, whose entries may have become less alike.
        run(drive.checkpoint()).expect("checkpoint");
        used = drive.status().physical_used_bytes;
        assert!(used <= before + before / 100, "{before} bytes became {used}");
    }
    assert!(drive.status().counters.segments_cleaned_count > 10);
    kind.assert_holds(&drive, frames);
    drop(drive);
    let drive = open(&media, 2);
    kind.assert_holds(&drive, frames);
    assert_sound(&drive);
}

#[test]
fn cleaning_what_lives_of_equal_blocks_makes_nothing_larger() {
    assert_cleaning_shrinks(&ALIKE_HALF, 60);
}

#[test]
fn cleaning_one_block_of_each_frame_makes_nothing_larger() {
    assert_cleaning_shrinks(&ALIKE_ONE, 60);
}

#[test]
fn cleaning_half_dead_frames_of_text_makes_nothing_larger() {
    assert_cleaning_shrinks(&TEXT_HALF, 60);
}

/// Checks that incompressible data can fill at least 98 % of the space that the status reports as free or
/// reclaimable.
fn assert_free_is_free(kind: &Kind, percent: u64) {
    let (media, drive) = new_drive(kind.codec);
    let frames = kind.fill(&drive, percent);
    let status = drive.status();
    let promised = status.physical_free_bytes + status.physical_reclaimable_bytes;
    let mut taken = 0;
    loop {
        match run(drive.write(ELSEWHERE + taken, &random(taken, 32 << 10), false)) {
            Ok(()) => taken += 32 << 10,
            Err(Error::NoSpace) => break,
            Err(other) => panic!("{other}"),
        }
        if taken % (1 << 20) == 0 {
            maintain(&drive);
        }
    }
    assert!(
        taken * 100 >= promised * 98,
        "{} KiB were called free, {} KiB were taken: {status:?}",
        promised >> 10,
        taken >> 10
    );
    kind.assert_holds(&drive, frames);
    run(drive.flush()).expect("flush");
    drop(drive);
    kind.assert_holds(&open(&media, 2), frames);
}

#[test]
fn all_that_an_empty_drive_calls_free_can_be_written() {
    assert_free_is_free(&RANDOM, 0);
}

#[test]
fn what_is_free_beside_incompressible_data_can_be_written() {
    assert_free_is_free(&RANDOM, 60);
    assert_free_is_free(&RANDOM, 90);
}

#[test]
fn what_is_free_beside_text_can_be_written() {
    assert_free_is_free(&TEXT, 60);
    assert_free_is_free(&TEXT, 90);
}

#[test]
fn what_is_free_beside_half_dead_frames_can_be_written() {
    assert_free_is_free(&ALIKE_HALF, 60);
    assert_free_is_free(&ALIKE_HALF, 90);
    assert_free_is_free(&ALIKE_ONE, 90);
    assert_free_is_free(&TEXT_HALF, 90);
}

/// Blocks trimmed under leaves that are not in memory are counted until the leaves are loaded. An idle drive
/// that seems full loads them, so that the freed space is shown.
#[test]
fn an_idle_drive_accounts_for_what_was_trimmed_after_it_was_opened() {
    const LEAF: u64 = 512 * BLOCK;
    const SIZE: u64 = 96 << 20;
    let media = Arc::new(MemoryMedia::new(SIZE));
    let options = CreateOptions {
        codec: Policy::None,
        segment_bytes: Some(512 << 10),
        ..create_options(SIZE, 16 << 30)
    };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    let mut leaves = 0;
    while run(drive.write(leaves * LEAF, &random(leaves, 200 * BLOCK as usize), false)).is_ok() {
        leaves += 1;
    }
    assert!(leaves > 90, "{leaves} leaves");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, 2);
    let (used, limit) = drive.space();
    assert!(used * 10 > limit * 9, "{used} of {limit}");
    (0..leaves).for_each(|leaf| run(drive.trim(leaf * LEAF, LEAF, false)).expect("trim"));
    run(drive.flush()).expect("flush");
    // Until the drive counts as idle.
    (0..60).for_each(|_| drive.tick());
    maintain(&drive);
    let (used, limit) = drive.space();
    assert!(used * 2 < limit, "{used} of {limit} bytes are said to be used on a drive that holds nothing");
    assert_sound(&drive);
}

/// Closing makes everything durable without a flush of a host.
#[test]
fn closing_counts_no_flush_of_a_host() {
    let (media, drive) = new_drive(Policy::None);
    run(drive.write(0, &random(1, 4096), true)).expect("write");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, 2);
    assert_eq!(drive.status().counters.flushes_count, 0);
    run(drive.flush()).expect("flush");
    assert_eq!(drive.status().counters.flushes_count, 1);
}
