//! Choice of the next free segment: the one with the lowest number, so that a file stays compact and recovery
//! knows where to search.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, open, run};
use drive::{CreateOptions, Drive};
use image::Image;
use layout::{Head, SegmentUse};
use media::MemoryMedia;

type Memory = Drive<Erased>;

const PIECE: u64 = 256 << 10;
const SEGMENT: u64 = 512 << 10;

fn write(drive: &Memory, piece: u64) {
    run(drive.write(piece * PIECE, &random(piece, PIECE as usize), false)).expect("write");
}

/// Free segments in the newest checkpoint, in ascending order, and those promised to heads.
fn free_segments(image: &Image) -> (Vec<u32>, Vec<u32>) {
    let newest = image.newest_checkpoint();
    let found = std::cell::RefCell::new((Vec::new(), Vec::new()));
    image.change_checkpoints(|checkpoint| {
        if checkpoint.number == newest {
            let free = (0..).zip(checkpoint.rows.iter()).filter(|(_, row)| row.usage == SegmentUse::Free);
            let heads = checkpoint.heads.iter().map(|head| head.next.segment).collect();
            *found.borrow_mut() = (free.map(|(segment, _)| segment).collect(), heads);
        }
    });
    found.into_inner()
}

/// Segments of the host's packs with numbers above `sequence`, in the order of the packs.
fn filled_since(image: &Image, sequence: u64) -> Vec<u32> {
    let packs = image.packs().into_iter();
    let packs = packs.filter(|(_, header)| header.sequence > sequence && header.head == Head::Host);
    let mut segments: Vec<u32> = packs.map(|(_, header)| header.segment).collect();
    segments.dedup();
    segments
}

fn used() -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(32 << 20));
    let options = CreateOptions { segment_bytes: Some(SEGMENT as u32), ..create_options(32 << 20, 64 << 20) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 1);
    for piece in 0..60 {
        write(&drive, piece);
    }
    run(drive.checkpoint()).expect("checkpoint");
    (media, drive)
}

/// Frees data that was written first, in the middle and last, in a different order, with a checkpoint after
/// each.
#[test]
fn the_lowest_is_filled_next_whenever_it_was_freed() {
    let (media, drive) = used();
    for pieces in [48..56, 24..32, 4..12, 36..42] {
        run(drive.trim(pieces.start * PIECE, (pieces.end - pieces.start) * PIECE, false)).expect("trim");
        run(drive.checkpoint()).expect("checkpoint");
    }
    let image = Image::of(&media);
    // The segment of the host's head, and the promised one, are filled first.
    let (mut free, promised) = free_segments(&image);
    free.retain(|segment| !promised.contains(segment));
    let before = drive.status().sequence;
    for piece in 200..216 {
        write(&drive, piece);
    }
    run(drive.flush()).expect("flush");
    let filled = filled_since(&image, before);
    let taken: Vec<u32> = filled.iter().copied().filter(|segment| free.contains(segment)).collect();
    assert!(taken.len() >= 6, "{filled:?} of {free:?}, promised {promised:?}");
    assert_eq!(taken, free[..taken.len()], "the lowest are filled, in rising order");
    let gaps = free.windows(2).filter(|pair| pair[0] + 1 != pair[1]).count();
    assert!(gaps >= 3 && taken[taken.len() - 1] > free[0] + taken.len() as u32, "{free:?}: too simple");
}

/// The next opening uses them in the same order.
#[test]
fn also_after_opening_again() {
    let (media, drive) = used();
    for pieces in [40..48, 8..16] {
        run(drive.trim(pieces.start * PIECE, (pieces.end - pieces.start) * PIECE, false)).expect("trim");
        run(drive.checkpoint()).expect("checkpoint");
    }
    run(drive.close()).expect("close");
    drop(drive);
    let image = Image::of(&media);
    let (free, _) = free_segments(&image);
    let drive = open(&media, 2);
    let before = drive.status().sequence;
    for piece in 200..206 {
        write(&drive, piece);
    }
    run(drive.flush()).expect("flush");
    let filled = filled_since(&image, before);
    assert!(filled.len() >= 3 && filled.is_sorted(), "{filled:?}");
    // The three heads take one segment each, and are promised another.
    let most = free[filled.len() + 5];
    assert!(filled.iter().all(|segment| *segment <= most), "{filled:?} of {free:?}");
}
