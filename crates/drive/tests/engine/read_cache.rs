//! Cache of decompressed blocks: hits need no medium, and nothing is found that is not there any more.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::{random, text_like};
use common::{Erased, assert_sound, create_options, erased, maintain, run, spawner};
use drive::{Drive, OpenOptions, ReadCache, Settle, WipeOptions, Zeroes};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;

fn cache() -> Arc<ReadCache> {
    ReadCache::new(4 * MIB).expect("large enough")
}

fn new_media() -> Arc<MemoryMedia> {
    common::new_media(codec::Policy::Auto)
}

fn open(media: &Arc<MemoryMedia>, entropy: u64, cache: &Arc<ReadCache>) -> Memory {
    let options = OpenOptions { read_cache: Some(cache.clone()), ..OpenOptions::new(entropy, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("open")
}

fn read(drive: &Memory, block: usize, blocks: usize) -> Vec<u8> {
    let mut back = vec![0xee; blocks * BLOCK];
    run(drive.read((block * BLOCK) as u64, &mut back)).expect("read");
    back
}

fn write(drive: &Memory, block: usize, data: &[u8]) {
    run(drive.write((block * BLOCK) as u64, data, false)).expect("write");
}

/// Hits and misses.
fn counts(drive: &Memory) -> (u64, u64) {
    let status = drive.status();
    (status.read_cache_hits_count, status.read_cache_misses_count)
}

fn media_read_bytes(drive: &Memory) -> u64 {
    drive.status().counters.physical_read_bytes
}

/// Creates a drive with frames of text, all of them on the medium and settled or not.
fn filled(cache: &Arc<ReadCache>, blocks: usize) -> (Arc<MemoryMedia>, Memory, Vec<u8>) {
    let media = new_media();
    let drive = open(&media, 1, cache);
    let data = text_like(1, blocks * BLOCK);
    for (i, piece) in data.chunks(32 * BLOCK).enumerate() {
        write(&drive, i * 32, piece);
    }
    run(drive.flush()).expect("flush");
    (media, drive, data)
}

#[test]
fn the_second_read_of_a_block_needs_no_medium() {
    let cache = cache();
    let (_, drive, data) = filled(&cache, 64);
    let before = media_read_bytes(&drive);
    assert_eq!(read(&drive, 19, 1), data[19 * BLOCK..][..BLOCK]);
    assert_eq!(counts(&drive), (0, 1));
    let after = media_read_bytes(&drive);
    assert!(after > before);
    assert_eq!(read(&drive, 19, 1), data[19 * BLOCK..][..BLOCK]);
    // A part of it, too.
    let mut sector = [0; 1024];
    run(drive.read(19 * 4096 + 512, &mut sector)).expect("read");
    assert_eq!(sector, data[19 * BLOCK + 512..][..1024]);
    assert_eq!((counts(&drive), media_read_bytes(&drive)), ((2, 1), after));
    // Of a frame, only the block that was read is there.
    assert_eq!(read(&drive, 20, 1), data[20 * BLOCK..][..BLOCK]);
    assert_eq!(counts(&drive), (2, 2));
    assert!(cache.used_bytes() > 2 * BLOCK as u64);
}

#[test]
fn a_part_of_a_block_brings_all_of_it() {
    let (_, drive, data) = filled(&cache(), 64);
    let mut part = vec![0; 6000 / 512 * 512];
    run(drive.read(9 * 4096 + 1024, &mut part)).expect("read");
    assert_eq!(part, data[9 * BLOCK + 1024..][..part.len()]);
    assert_eq!(read(&drive, 9, 2), data[9 * BLOCK..][..2 * BLOCK]);
    assert_eq!(counts(&drive), (2, 2));
}

#[test]
fn streams_leave_it_alone() {
    let cache = cache();
    let (_, drive, data) = filled(&cache, 512);
    let empty = cache.used_bytes();
    for first in (0..512).step_by(32) {
        assert_eq!(read(&drive, first, 32), data[first * BLOCK..][..32 * BLOCK]);
    }
    assert_eq!((counts(&drive), cache.used_bytes()), ((0, 0), empty));
    // One block less than a stream's.
    read(&drive, 0, 31);
    assert_eq!(counts(&drive), (0, 31));
}

#[test]
fn what_replaced_a_block_is_read() {
    let (_, drive, data) = filled(&cache(), 64);
    (0..16).for_each(|block| assert_eq!(read(&drive, block, 1), data[block * BLOCK..][..BLOCK]));
    let new = text_like(2, 4 * BLOCK);
    write(&drive, 0, &new);
    run(drive.trim(4 * 4096, 2 * 4096, false)).expect("trim");
    run(drive.write_zeroes(6 * 4096, 2 * 4096, Zeroes::default())).expect("zeroes");
    // A part of a block that is in the cache: what is around it comes from there.
    run(drive.write(8 * 4096 + 512, &[9; 512], false)).expect("write");
    let mut expected = data[..16 * BLOCK].to_vec();
    expected[..4 * BLOCK].copy_from_slice(&new);
    expected[4 * BLOCK..8 * BLOCK].fill(0);
    expected[8 * BLOCK + 512..][..512].fill(9);
    for round in 0..3 {
        (0..16).for_each(|block| {
            assert!(read(&drive, block, 1) == expected[block * BLOCK..][..BLOCK], "{block} in round {round}");
        });
    }
    assert_sound(&drive);
}

#[test]
fn a_settled_block_is_read_anew() {
    let (_, drive, data) = filled(&cache(), 64);
    (0..2).for_each(|_| assert_eq!(read(&drive, 3, 1), data[3 * BLOCK..][..BLOCK]));
    assert_eq!(counts(&drive), (1, 1));
    let mut block = Some(0);
    while let Some(at) = block {
        block = run(drive.settle_step(at, Settle::All)).expect("settle").next_block;
    }
    (0..2).for_each(|_| assert_eq!(read(&drive, 3, 1), data[3 * BLOCK..][..BLOCK]));
    assert_eq!(counts(&drive), (2, 2));
}

#[test]
fn segments_that_are_filled_again_give_nothing_that_was_there_before() {
    // Blocks of one size in one order: each place of a segment soon holds another record that looks the same.
    const BLOCKS: usize = 64;
    let (cache, media) = (cache(), Arc::new(MemoryMedia::new(32 * MIB)));
    run(Drive::create(&*media, &create_options(32 * MIB, 32 * MIB))).expect("create");
    let drive = open(&media, 1, &cache);
    let rounds = 400;
    for round in 0..rounds {
        let contents = |block: usize| random((round * BLOCKS + block) as u64, BLOCK);
        (0..BLOCKS).for_each(|block| write(&drive, block, &contents(block)));
        for block in (0..BLOCKS).step_by(3) {
            (0..2).for_each(|_| assert!(read(&drive, block, 1) == contents(block), "{block} in {round}"));
        }
        drive.tick();
        maintain(&drive);
    }
    let status = drive.status();
    assert!(status.counters.physical_written_bytes > 2 * 32 * MIB, "the log went round");
    assert_eq!(status.read_cache_hits_count, rounds as u64 * 22);
    while run(drive.clean()).expect("clean") {}
    assert_sound(&drive);
}

#[test]
fn nothing_outlives_a_wipe_or_an_opening() {
    let cache = cache();
    let (media, drive, data) = filled(&cache, 64);
    (0..2).for_each(|_| assert_eq!(read(&drive, 3, 1), data[3 * BLOCK..][..BLOCK]));
    run(drive.close()).expect("close");
    let again = open(&media, 2, &cache);
    assert_eq!(read(&again, 3, 1), data[3 * BLOCK..][..BLOCK]);
    assert_eq!(counts(&again), (0, 1));
    run(again.close()).expect("close");
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    let empty = open(&media, 3, &cache);
    assert_eq!(read(&empty, 3, 1), [0; BLOCK]);
    // Those of the first opening, which still exists, and none of the others.
    drop(again);
    let with_one = cache.used_bytes();
    drop(drive);
    assert!(cache.used_bytes() < with_one);
}

#[test]
fn drives_with_the_same_places_do_not_mix() {
    let cache = cache();
    let (one, other) = (new_media(), new_media());
    // The same entropy: equal generations, equal entries.
    let (one, other) = (open(&one, 1, &cache), open(&other, 1, &cache));
    let data = [random(1, BLOCK), random(2, BLOCK)];
    for (drive, data) in [&one, &other].into_iter().zip(&data) {
        write(drive, 5, data);
        run(drive.flush()).expect("flush");
    }
    for _ in 0..2 {
        assert!(read(&one, 5, 1) == data[0] && read(&other, 5, 1) == data[1]);
    }
    assert_eq!((counts(&one), counts(&other)), ((1, 1), (1, 1)));
}

#[test]
fn without_a_cache_nothing_is_counted() {
    assert!(ReadCache::new(0).is_none());
    let drive = common::open(&new_media(), 1);
    write(&drive, 0, &random(1, BLOCK));
    (0..2).for_each(|_| assert_eq!(read(&drive, 0, 1), random(1, BLOCK)));
    assert_eq!(counts(&drive), (0, 0));
}

#[test]
fn a_deep_check_and_a_scrub_read_the_medium() {
    let cache = cache();
    let (media, drive, data) = filled(&cache, 64);
    run(drive.checkpoint()).expect("checkpoint");
    (0..2).for_each(|_| assert_eq!(read(&drive, 16, 1), data[16 * BLOCK..][..BLOCK]));
    let image = Image::of(&media);
    image.flip_bit(image.newest(RecordKind::Data, 16).payload() + 20);
    assert_eq!(read(&drive, 16, 1), data[16 * BLOCK..][..BLOCK]);
    let mut part = vec![0; BLOCK];
    run(drive.read(17 * 4096, &mut part)).expect_err("the rest of the frame is on the medium alone");
    assert!(!run(drive.check(true)).expect("check").is_empty());
    let mut faults = 0;
    let mut block = Some(0);
    while let Some(at) = block {
        let step = run(drive.scrub_step(at)).expect("scrub");
        (block, faults) = (step.next_block, faults + step.faults.len());
    }
    assert_eq!(faults, 1);
}
