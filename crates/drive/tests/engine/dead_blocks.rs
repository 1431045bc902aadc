//! Frames that compress to fewer units than they have blocks. A record stays live until its last block dies,
//! so that nothing is freed or forgotten that other blocks need.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::Policy;
use codec::testdata::random;
use common::{Erased, assert_sound, create_options, maintain, open, run};
use drive::{CreateOptions, Drive};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: usize = 4096;
const FRAME: usize = 8 * BLOCK;
const SEGMENT: u64 = 512 << 10;
/// Patterns of live blocks, one bit each: all patterns except none and all.
const PATTERNS: std::ops::Range<u64> = 1..255;
/// Offset of the repeatedly written data that fills the rest of each segment.
const BALLAST: u64 = 32 << 20;

/// Eight bytes, repeated: not a fill of one word, but compressed to almost nothing.
fn frame(pattern: u64) -> Vec<u8> {
    format!("{pattern:07x}:").into_bytes().repeat(FRAME / 8)
}

fn block_of(pattern: u64, block: u64) -> u64 {
    pattern * 8 + block
}

fn blocks(pattern: u64, live: bool) -> impl Iterator<Item = u64> {
    (0..8).filter(move |block| (pattern >> block & 1 != 0) == live).map(move |block| block_of(pattern, block))
}

/// Writes almost a segment of data, which dies as soon as it is written again.
fn write_ballast(drive: &Memory, seed: u64) {
    for piece in 0..2 {
        let data = random(seed * 2 + piece, 240 << 10);
        run(drive.write(BALLAST + piece * (240 << 10), &data, false)).expect("write");
    }
}

/// Creates a drive with a frame for each pattern, in a segment with little other live data.
fn filled(patterns: impl Iterator<Item = u64>) -> (Arc<MemoryMedia>, Memory) {
    let physical = 280 * SEGMENT;
    let media = Arc::new(MemoryMedia::new(physical));
    let options = CreateOptions {
        segment_bytes: Some(SEGMENT as u32),
        codec: Policy::Auto,
        ..create_options(physical, 64 << 20)
    };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    for pattern in patterns {
        run(drive.write(block_of(pattern, 0) * BLOCK as u64, &frame(pattern), false)).expect("write");
        write_ballast(&drive, pattern);
    }
    run(drive.flush()).expect("flush");
    (media, drive)
}

/// Kills the blocks of each frame that must not live: by trim in one frame, by overwriting in the next.
fn kill(drive: &Memory, patterns: impl Iterator<Item = u64>) {
    for pattern in patterns {
        for block in blocks(pattern, false) {
            let offset = block * BLOCK as u64;
            match pattern % 2 {
                0 => run(drive.trim(offset, BLOCK as u64, false)).expect("trim"),
                _ => run(drive.write(offset, &random(block, BLOCK), false)).expect("write"),
            }
        }
    }
    run(drive.flush()).expect("flush");
}

/// Fills the freed space with other data, several times.
fn refill(drive: &Memory) {
    for round in 0..300 {
        write_ballast(drive, 1000 + round);
        maintain(drive);
    }
    run(drive.flush()).expect("flush");
}

fn assert_blocks(drive: &Memory, patterns: impl Iterator<Item = u64>, when: &str) {
    let mut back = vec![0; BLOCK];
    for pattern in patterns {
        for block in blocks(pattern, true) {
            let read = run(drive.read(block * BLOCK as u64, &mut back));
            assert_eq!(read, Ok(()), "{when}: block {block} of a frame with live blocks {pattern:#b}");
            assert!(back == frame(pattern)[..BLOCK], "{when}: block {block}, live blocks {pattern:#b}");
        }
        for block in blocks(pattern, false) {
            run(drive.read(block * BLOCK as u64, &mut back)).expect("read");
            let expected = if pattern % 2 == 0 { vec![0; BLOCK] } else { random(block, BLOCK) };
            assert!(back == expected, "{when}: block {block}, dead in {pattern:#b}");
        }
    }
}

#[test]
fn such_a_frame_has_fewer_units_than_blocks() {
    let (media, _drive) = filled(PATTERNS.take(1));
    let record = Image::of(&media).newest(RecordKind::Data, block_of(1, 0));
    assert_eq!(record.header.blocks(), 8);
    assert!(record.entry().units() < 8, "{}", record.entry().units());
}

#[test]
fn a_segment_is_not_freed_while_any_block_of_such_a_frame_lives() {
    let (media, drive) = filled(PATTERNS);
    kill(&drive, PATTERNS);
    assert_blocks(&drive, PATTERNS, "at once");
    run(drive.checkpoint()).expect("checkpoint");
    refill(&drive);
    assert_blocks(&drive, PATTERNS, "once the free segments were filled again");
    drop(drive);
    let drive = open(&media, 2);
    assert_blocks(&drive, PATTERNS, "opened again");
    assert_sound(&drive);
}

#[test]
fn cleaning_moves_what_lives_of_such_a_frame() {
    let (media, drive) = filled(PATTERNS);
    kill(&drive, PATTERNS);
    run(drive.checkpoint()).expect("checkpoint");
    while run(drive.clean()).expect("clean") {}
    run(drive.checkpoint()).expect("checkpoint");
    assert!(drive.status().counters.segments_cleaned_count > 200);
    assert_blocks(&drive, PATTERNS, "cleaned");
    refill(&drive);
    assert_blocks(&drive, PATTERNS, "filled again");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, 2);
    assert_blocks(&drive, PATTERNS, "opened again");
    assert_sound(&drive);
}
