//! Bytes that a later release uses and this one does not know: it opens the drive, changes it, and leaves one
//! that every release opens.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, erased, open, run, spawner};
use drive::{CopyState, CreateOptions, Drive, OpenOptions, find_copies};
use image::Image;
use layout::table::table_pages;
use media::MemoryMedia;

const BLOCK: u64 = 4096;
/// Three pages of the segment table, of which a small change touches the first, and an opening the last.
const PHYSICAL: u64 = 180 << 20;

fn new_media() -> Arc<MemoryMedia> {
    let media = Arc::new(MemoryMedia::new(PHYSICAL));
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, PHYSICAL) };
    run(Drive::create(&*media, &options)).expect("create");
    media
}

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * BLOCK, &random(block, BLOCK as usize), true)).expect("write");
}

/// Opens the drive read-only, as a stranger would. Checks everything.
fn assert_sound(media: &Arc<MemoryMedia>, blocks: u64, when: &str) {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(0, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options));
    let drive = drive.unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(run(drive.check(true)).expect("check"), Vec::<String>::new(), "{when}");
    for block in 0..blocks {
        let mut bytes = vec![0; BLOCK as usize];
        run(drive.read(block * BLOCK, &mut bytes)).expect("read");
        assert!(bytes == random(block, BLOCK as usize), "{when}: block {block}");
    }
}

/// Way in which a run ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Close,
    Kill,
    CheckpointAndKill,
}

fn assert_all_whole(media: &Arc<MemoryMedia>, when: &str) {
    let (superblocks, checkpoints) = run(find_copies(&**media));
    for copy in superblocks.into_iter().chain(checkpoints) {
        assert!(matches!(copy.state, CopyState::Whole { .. }), "{when}: {copy:?}");
    }
}

/// Which places of the checkpoints a later release has written, as bits.
const PLACES: u64 = 1 << 4;

#[test]
fn a_table_with_bytes_of_a_later_release_is_not_completed_with_wrong_checksums() {
    for round in 0..2 * PLACES {
        let places = round % PLACES;
        let z = |n: u64| (round * 8 + n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        let ends =
            [0, 1, 2, 3, 4].map(|n| [End::Close, End::Kill, End::CheckpointAndKill][z(n) as usize % 3]);
        let media = new_media();
        let mut blocks = 0;
        for _ in 0..2 {
            let drive = open(&media, blocks + 1);
            write(&drive, blocks);
            blocks += 1;
            if z(5) % 2 == 0 {
                run(drive.close()).expect("close");
            }
        }
        let image = Image::of(&media);
        let pages = table_pages(image.geometry().segments() as usize);
        assert_eq!(pages, 3);
        let marked: Vec<usize> = (0..pages).filter(|page| z(6) % 8 == 0 || z(6) >> page & 1 == 1).collect();
        let offsets = (0..2).flat_map(|number| image.copies_of(number)).enumerate();
        for (_, offset) in offsets.filter(|(place, _)| places >> place & 1 == 1) {
            assert!(image.use_later_bytes_of_checkpoint(offset, marked.clone()), "a checkpoint");
        }
        let story = format!("places {places:04b}, pages {marked:?}, {ends:?}");
        assert_sound(&media, blocks, &story);
        for (n, end) in ends.into_iter().enumerate() {
            let when = format!("{story}, run {n}");
            let options = OpenOptions::new(100 + n as u64, spawner());
            let drive = run(Drive::open(erased(media.clone()), options));
            let drive = drive.unwrap_or_else(|error| panic!("{when}: {error}"));
            write(&drive, blocks);
            blocks += 1;
            match end {
                End::Close => run(drive.close()).expect("close"),
                End::Kill => {}
                End::CheckpointAndKill => run(drive.checkpoint()).expect("checkpoint"),
            }
            drop(drive);
            assert_sound(&media, blocks, &when);
            assert_all_whole(&media, &when);
        }
    }
}

#[test]
fn all_bytes_and_flags_that_a_later_release_may_use_are_ignored() {
    for closed in [true, false] {
        let media = new_media();
        for block in 0..3 {
            let drive = open(&media, block + 1);
            write(&drive, block);
            if closed {
                run(drive.close()).expect("close");
            }
        }
        Image::of(&media).use_later_bytes();
        let mut blocks = 3;
        for end in [End::Close, End::Kill, End::CheckpointAndKill, End::Close] {
            let when = format!("closed: {closed}, then {end:?}");
            assert_sound(&media, blocks, &when);
            let drive = open(&media, blocks + 1);
            write(&drive, blocks);
            blocks += 1;
            match end {
                End::Close => run(drive.close()).expect("close"),
                End::Kill => {}
                End::CheckpointAndKill => run(drive.checkpoint()).expect("checkpoint"),
            }
        }
        assert_sound(&media, blocks, "at the end");
        let features = Image::of(&media).superblock.features;
        assert_eq!(features.compatible, crate::later::LATER_FEATURE, "the bit stays");
    }
}
