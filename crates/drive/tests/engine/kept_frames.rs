//! Frames kept decompressed: adjacent blocks are read from them, but replaced blocks are not.

use crate::common;

use codec::testdata::text_like;
use common::{Erased, assert_sound, new_drive, run};
use drive::{Drive, Settle};

type Memory = Drive<Erased>;

const BLOCK: usize = 4096;

fn read(drive: &Memory, block: usize, blocks: usize) -> Vec<u8> {
    let mut back = vec![0xee; blocks * BLOCK];
    run(drive.read((block * BLOCK) as u64, &mut back)).expect("read");
    back
}

fn hits(drive: &Memory) -> u64 {
    drive.status().frame_hits_count
}

/// Creates a drive with two frames of eight blocks, the first of which is kept.
fn with_a_kept_frame() -> (Memory, Vec<u8>) {
    let (_, drive) = new_drive(64 << 20, 64 << 20);
    let data = text_like(1, 16 * BLOCK);
    run(drive.write(0, &data, true)).expect("write");
    for block in 0..8 {
        assert_eq!(read(&drive, block, 1), data[block * BLOCK..][..BLOCK]);
    }
    // The first read decodes a part, the second the whole frame.
    assert_eq!(hits(&drive), 6);
    (drive, data)
}

#[test]
fn neighbours_come_out_of_a_frame_that_is_kept() {
    let (drive, data) = with_a_kept_frame();
    // Parts of blocks, and reads that begin in one frame and end in another.
    let mut sector = [0; 512];
    run(drive.read(3 * 4096 + 512, &mut sector)).expect("read");
    assert_eq!(sector, data[3 * 4096 + 512..][..512]);
    assert_eq!(read(&drive, 6, 4), data[6 * BLOCK..10 * BLOCK]);
    assert_eq!(hits(&drive), 8);
    // A read of a whole frame decodes directly into the buffer.
    assert_eq!(read(&drive, 0, 8), data[..8 * BLOCK]);
    assert_eq!(hits(&drive), 8);
    assert_eq!(read(&drive, 9, 1), data[9 * BLOCK..10 * BLOCK]);
    assert_eq!(read(&drive, 10, 1), data[10 * BLOCK..11 * BLOCK]);
    assert_eq!(hits(&drive), 9);
    assert_sound(&drive);
}

#[test]
fn reads_all_over_the_drive_keep_nothing() {
    let (_, drive) = new_drive(64 << 20, 64 << 20);
    let data = text_like(1, 1024 * BLOCK);
    for (i, piece) in data.chunks(32 * BLOCK).enumerate() {
        run(drive.write((i * 32 * BLOCK) as u64, piece, false)).expect("write");
    }
    // One block of each frame: none is requested twice while it is remembered.
    for _ in 0..2 {
        for block in (0..1024).step_by(8) {
            assert_eq!(read(&drive, block, 1), data[block * BLOCK..][..BLOCK]);
        }
    }
    assert_eq!(hits(&drive), 0);
}

#[test]
fn what_replaced_a_block_is_read_and_not_what_is_kept() {
    let (drive, mut data) = with_a_kept_frame();
    let new = text_like(9, BLOCK);
    run(drive.write(2 * 4096, &new, false)).expect("write");
    data[2 * BLOCK..3 * BLOCK].copy_from_slice(&new);
    run(drive.trim(4 * 4096, 4096, false)).expect("trim");
    data[4 * BLOCK..5 * BLOCK].fill(0);
    run(drive.write(5 * 4096 + 1024, &[7; 512], false)).expect("write");
    data[5 * BLOCK + 1024..][..512].fill(7);
    for _ in 0..3 {
        for block in 0..8 {
            assert_eq!(read(&drive, block, 1), data[block * BLOCK..][..BLOCK], "block {block}");
        }
        assert_eq!(read(&drive, 1, 6), data[BLOCK..7 * BLOCK]);
    }
    assert_sound(&drive);
}

#[test]
fn a_frame_that_was_rewritten_whole_is_another() {
    let (drive, _) = with_a_kept_frame();
    for seed in 2..6 {
        let data = text_like(seed, 16 * BLOCK);
        run(drive.write(0, &data, false)).expect("write");
        for block in (0..16).rev() {
            assert_eq!(read(&drive, block, 1), data[block * BLOCK..][..BLOCK], "block {block}");
        }
    }
    let data = text_like(5, 16 * BLOCK);
    run(drive.flush()).expect("flush");
    let mut next = Some(0);
    while let Some(block) = next {
        next = run(drive.settle_step(block, Settle::All)).expect("settle").next_block;
    }
    for _ in 0..3 {
        for block in 0..16 {
            assert_eq!(read(&drive, block, 1), data[block * BLOCK..][..BLOCK], "block {block}");
        }
    }
}

/// Segments are filled repeatedly: a place holds many records one after the other.
#[test]
fn places_that_are_filled_again_hold_other_frames() {
    let (_, drive) = new_drive(40 << 20, 16 << 20);
    let mut random = 1_u64;
    let mut seeds = [u64::MAX; 512];
    for seed in 0..8000 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let frame = (random >> 40) as usize % seeds.len();
        run(drive.write((frame * 8 * BLOCK) as u64, &text_like(seed, 8 * BLOCK), false)).expect("write");
        seeds[frame] = seed;
        while run(drive.maintain()).expect("maintain") {}
        let frame = (random >> 20) as usize % seeds.len();
        if seeds[frame] == u64::MAX {
            continue;
        }
        let data = text_like(seeds[frame], 8 * BLOCK);
        for block in [1, 5, 2] {
            assert_eq!(read(&drive, frame * 8 + block, 1), data[block * BLOCK..][..BLOCK], "frame {frame}");
        }
    }
    assert!(hits(&drive) > 6000, "{}", hits(&drive));
    assert_sound(&drive);
}
