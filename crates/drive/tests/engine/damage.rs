//! Damaged backings: intact data is used, and damage is reported.

use crate::common;
use crate::image;

use std::ops::Range;
use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, erased, new_drive, open, run, spawner};
use drive::{Drive, Error, OpenOptions, State};
use image::Image;
use layout::RecordKind;
use media::{IoBuf, Media, MemoryMedia};

const BLOCK: u64 = 4096;

fn refusal(media: &Arc<MemoryMedia>) -> String {
    match run(Drive::open(erased(media.clone()), OpenOptions::new(9, spawner()))) {
        Err(error @ (Error::Corrupt(_) | Error::Damaged(_) | Error::NotADrive)) => error.to_string(),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a damaged drive was opened"),
    }
}

fn rescue(media: &Arc<MemoryMedia>) -> Drive<Erased> {
    let options = OpenOptions { read_only: true, accept_damage: true, ..OpenOptions::new(9, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("a rescue")
}

fn read(drive: &Drive<Erased>, block: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; BLOCK as usize];
    run(drive.read(block * BLOCK, &mut bytes)).map(|()| bytes)
}

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
}

fn assert_holds(drive: &Drive<Erased>, block: u64) {
    assert!(read(drive, block).expect("read") == random(block, BLOCK as usize), "block {block}");
}

fn closed_with(blocks: u64) -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    (0..blocks).for_each(|block| write(&drive, block));
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    (media, image)
}

#[test]
fn a_flipped_bit_is_reported_with_its_block_and_the_others_are_read() {
    let (media, image) = closed_with(50);
    image.flip_bit(image.newest(RecordKind::Data, 7).payload() + 100);
    let drive = open(&media, 2);
    let error = read(&drive, 7).expect_err("a flipped bit");
    assert!(matches!(&error, Error::Corrupt(why) if why.contains("block 7 ")), "{error}");
    (0..50).filter(|block| *block != 7).for_each(|block| assert_holds(&drive, block));
    assert_eq!(drive.status().counters.corrupt_records_count, 1);
}

#[test]
fn a_block_that_was_corrupt_can_be_written_again() {
    let (media, image) = closed_with(5);
    image.flip_bit(image.newest(RecordKind::Data, 3).position + 5);
    let drive = open(&media, 2);
    read(&drive, 3).expect_err("a flipped bit");
    write(&drive, 3);
    assert_holds(&drive, 3);
}

#[test]
fn the_second_superblock_stands_in_for_the_first() {
    let (media, image) = closed_with(5);
    image.flip_bit(40);
    let drive = open(&media, 2);
    assert_holds(&drive, 4);
    assert_eq!(drive.status().counters.corrected_reads_count, 1);
}

#[test]
fn nothing_is_corrected_on_a_whole_drive_and_openings_are_counted() {
    let (media, _) = closed_with(5);
    let drive = open(&media, 2);
    drive.count_powered(90);
    let counters = drive.status().counters;
    // The drive was opened before by `closed_with`.
    assert_eq!((counters.corrected_reads_count, counters.opens_count), (0, 2));
    run(drive.close()).expect("close");
    let drive = open(&media, 3);
    // Dropped without closing. The next opening finds it unclean, which is not an error of the backing.
    write(&drive, 9);
    drop(drive);
    let counters = open(&media, 4).status().counters;
    assert_eq!((counters.corrected_reads_count, counters.opens_count), (0, 4));
    assert_eq!(counters.powered_seconds, 90, "kept over openings");
}

#[test]
fn a_superblock_without_magic_is_not_the_last_word() {
    let (media, image) = closed_with(5);
    image.zero(0, 4096);
    assert_holds(&open(&media, 2), 4);
}

#[test]
fn without_any_superblock_the_error_says_so() {
    let (media, image) = closed_with(5);
    image.zero(0, 4096);
    image.zero(65536, 4096);
    assert_eq!(refusal(&media), "there is no Pumice drive here");
}

#[test]
fn with_both_superblocks_damaged_the_error_says_so() {
    let (media, image) = closed_with(5);
    image.flip_bit(40);
    image.flip_bit(65536 + 40);
    assert_eq!(refusal(&media), "corrupt: superblock: checksum mismatch");
}

#[test]
fn a_superblock_of_a_later_version_is_not_passed_over() {
    let (media, image) = closed_with(5);
    let mut page = image.read(0, 4096);
    page[8] = 4;
    page[12..16].fill(0);
    let crc = crc32c::crc32c(&page);
    page[12..16].copy_from_slice(&crc.to_le_bytes());
    image.write(0, &page);
    assert!(refusal(&media).contains("version 4"));
}

#[test]
fn one_copy_of_the_newest_checkpoint_is_enough() {
    for copy in 0..2 {
        let (media, image) = closed_with(5);
        image.flip_bit(image.copies_of(image.newest_checkpoint())[copy] + 60);
        let drive = open(&media, 2);
        assert!(drive.status().recovered.clean);
        assert_eq!(drive.status().counters.corrected_reads_count, 1);
        assert_holds(&drive, 4);
    }
}

#[test]
fn without_the_newest_checkpoint_its_run_is_rolled_forward() {
    let (media, image) = closed_with(5);
    image.copies_of(image.newest_checkpoint()).into_iter().for_each(|at| image.flip_bit(at + 60));
    let drive = open(&media, 2);
    assert!(drive.status().recovered.packs_count > 0);
    (0..5).for_each(|block| assert_holds(&drive, block));
}

#[test]
fn losing_the_only_checkpoint_that_tells_of_a_run_is_noticed() {
    let (media, _) = closed_with(5);
    let drive = open(&media, 2);
    write(&drive, 77);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    let newest = image.newest_checkpoint();
    image.copies_of(newest).into_iter().for_each(|at| image.flip_bit(at + 60));
    let why = refusal(&media);
    assert!(why.contains(&format!("checkpoint {newest}")), "{why}");
    let drive = rescue(&media);
    assert!(matches!(drive.status().state, State::Damaged(why) if why.contains("damaged")));
    (0..5).for_each(|block| assert_holds(&drive, block));
}

#[test]
fn losing_the_first_checkpoint_of_a_new_drive_is_noticed() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    write(&drive, 1);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    image.copies_of(image.newest_checkpoint()).into_iter().for_each(|at| image.zero(at, 8192));
    assert!(refusal(&media).contains("checkpoint 2"));
}

#[test]
fn a_checkpoint_torn_before_it_was_durable_is_not_missed() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    write(&drive, 1);
    run(drive.flush()).expect("flush");
    drop(drive);
    // The other slot is the one that the next checkpoint would use.
    let image = Image::of(&media);
    image.copies_of(image.newest_checkpoint() + 1).into_iter().for_each(|at| image.write(at, &[0xa5; 4096]));
    assert_holds(&open(&media, 2), 1);
}

#[test]
fn without_any_checkpoint_the_error_says_so() {
    let (media, image) = closed_with(5);
    for number in 0..2 {
        image.copies_of(number).into_iter().for_each(|at| image.flip_bit(at + 60));
    }
    assert_eq!(refusal(&media), "corrupt: no valid checkpoint");
}

/// A drive with three flushed writes after its checkpoint. The pack of the second one is missing.
fn with_a_gap() -> Arc<MemoryMedia> {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    for block in 0..3 {
        write(&drive, block);
        run(drive.flush()).expect("flush");
    }
    drop(drive);
    let image = Image::of(&media);
    let pack = image.newest(RecordKind::Data, 1).pack;
    image.zero(pack, 4096);
    media
}

#[test]
fn a_gap_in_what_was_durable_is_refused() {
    let why = refusal(&with_a_gap());
    assert!(why.contains("the log is damaged") && why.contains("missing or torn"), "{why}");
}

#[test]
fn a_gap_is_refused_read_only_too_unless_damage_is_accepted() {
    let media = with_a_gap();
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    assert!(matches!(run(Drive::open(erased(media), options)), Err(Error::Damaged(_))));
}

#[test]
fn damage_is_accepted_only_read_only() {
    let media = with_a_gap();
    let options = OpenOptions { accept_damage: true, ..OpenOptions::new(9, spawner()) };
    assert!(matches!(run(Drive::open(erased(media), options)), Err(Error::Damaged(_))));
}

#[test]
fn before_an_accepted_gap_everything_is_read() {
    let media = with_a_gap();
    let drive = rescue(&media);
    assert_holds(&drive, 0);
    assert_eq!(read(&drive, 2).expect("read"), vec![0; 4096]);
    assert!(matches!(drive.status().state, State::Damaged(why) if why.contains("missing or torn")));
    assert!(matches!(run(drive.write(0, &[1; 4096], false)), Err(Error::ReadOnly(_))));
}

#[test]
fn a_rescue_writes_nothing() {
    let media = with_a_gap();
    let before = Image::of(&media).read(0, 64 << 20);
    let drive = rescue(&media);
    assert_holds(&drive, 0);
    run(drive.flush()).expect("nothing to flush");
    drive.tick();
    run(drive.close()).expect("close");
    assert!(Image::of(&media).read(0, 64 << 20) == before);
}

#[test]
fn a_torn_pack_that_nothing_vouches_for_ends_the_log() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    write(&drive, 0);
    run(drive.flush()).expect("flush");
    write(&drive, 1);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    image.flip_bit(image.newest(RecordKind::Data, 1).payload());
    let drive = open(&media, 2);
    assert_holds(&drive, 0);
    assert_eq!(read(&drive, 1).expect("read"), vec![0; 4096]);
}

/// The segment of the missing packs led to the next one, whose first pack is damaged. The packs after that
/// still vouch for the missing ones.
#[test]
fn a_lost_segment_is_noticed_although_the_next_one_begins_with_damage() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    let data = random(1, 256 << 10);
    for at in 0..6 {
        run(drive.write(at * data.len() as u64, &data, true)).expect("write");
    }
    drop(drive);
    let image = Image::of(&media);
    let geometry = image.geometry();
    let segment = |block: u64| {
        let place = image.newest(RecordKind::Data, block).position;
        geometry.locate(place).expect("in a segment").0
    };
    let first = segment(0);
    let blocks = (0..6).map(|at| at * data.len() as u64 / BLOCK);
    let next = blocks.map(segment).find(|other| *other != first).expect("another segment");
    let lost = vec![0; geometry.segment_bytes as usize];
    image.write(geometry.segment_offset(first), &lost);
    image.flip_bit(geometry.segment_offset(next) + 2 * 4096);
    let why = refusal(&media);
    assert!(why.contains("missing or torn"), "{why}");
}

#[test]
fn a_backing_that_was_cut_short_is_refused() {
    let (media, image) = closed_with(5);
    let bytes = image.read(0, 63 << 20);
    let short = Arc::new(MemoryMedia::new(63 << 20));
    let mut buf = IoBuf::zeroed(bytes.len());
    buf.copy_from_slice(&bytes);
    run(short.write(0, Arc::new(buf))).expect("write");
    drop(media);
    assert!(refusal(&short).contains("cut short"));
    // It is not wiped either: afterwards it would still not be a usable drive.
    let wiped = run(Drive::wipe(&*short, drive::WipeOptions::any()));
    assert!(wiped.is_err_and(|error| error.to_string().contains("cut short")));
    let (after, read) = run(short.read(0, IoBuf::zeroed(bytes.len())));
    read.expect("read");
    assert!(after[..] == bytes[..], "something was written");
}

#[test]
fn another_drive_s_records_are_not_taken_for_ours() {
    let (media, _) = closed_with(5);
    let options = drive::CreateOptions { uuid: [8; 16], ..create_options(64 << 20, 128 << 20) };
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 3);
    assert_eq!(read(&drive, 0).expect("read"), vec![0; 4096]);
}

/// A closed drive with a mostly dead segment, in which blocks 0 and 1 are live.
fn worth_cleaning() -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    (0..600).for_each(|block| write(&drive, block));
    run(drive.trim(2 * BLOCK, 500 * BLOCK, false)).expect("trim");
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    (media, image)
}

#[test]
fn a_segment_with_a_flipped_bit_is_set_aside() {
    // In the payload, and in the record's header.
    for at in 0..2 {
        let (media, image) = worth_cleaning();
        let record = image.newest(RecordKind::Data, 1);
        image.flip_bit([record.payload() + 9, record.position + 4][at]);
        let drive = open(&media, 2);
        let lost_before = drive.status().physical_fixed_bytes;
        let mut rounds = 0;
        while run(drive.clean()).expect("clean") {
            rounds += 1;
            assert!(rounds < 100, "cleaning goes on for ever");
        }
        let notes = drive.status().notes;
        assert!(notes.len() == 1 && notes[0].contains("set aside"), "{notes:?}");
        // The lost data is not counted as space, and not after the next opening below either.
        let lost = |drive: &Drive<Erased>| drive.status().physical_fixed_bytes;
        assert!(lost(&drive) > lost_before + (900 << 10) && lost(&drive) < lost_before + (1 << 20));
        run(drive.checkpoint()).expect("checkpoint");
        while run(drive.clean()).expect("clean") {}
        assert_eq!(drive.status().notes, notes, "once is enough");
        assert_holds(&drive, 0);
        (502..600).for_each(|block| assert_holds(&drive, block));
        run(drive.close()).expect("close");
        let drive = open(&media, 3);
        while run(drive.clean()).expect("clean") {}
        assert!(drive.status().notes.is_empty(), "still set aside");
        assert!(lost(&drive) > lost_before + (900 << 10));
        assert_holds(&drive, 0);
    }
}

/// Records are verified one by one, also where no pack says where they are.
#[test]
fn a_segment_with_a_damaged_header_of_a_pack_is_emptied_and_freed() {
    for at in [0, 4, 29, 41, 45] {
        let (media, image) = worth_cleaning();
        image.flip_bit(image.newest(RecordKind::Data, 1).pack + at);
        let drive = open(&media, 2);
        while run(drive.clean()).expect("clean") {}
        assert_eq!(drive.status().notes, Vec::<String>::new());
        run(drive.checkpoint()).expect("checkpoint");
        (0..2).chain(502..600).for_each(|block| assert_holds(&drive, block));
        common::assert_sound(&drive);
        assert_eq!(drive.status().segments_damaged_count, 0);
    }
}

/// A wrong length or kind of a record hides those behind it from a walk, and not from a search.
#[test]
fn a_damaged_header_of_a_record_hides_no_other_record_from_cleaning() {
    for at in [9, 10, 11, 12, 13] {
        let (media, image) = worth_cleaning();
        let record = image.newest(RecordKind::Data, 0);
        let home = image.geometry().locate(record.position).expect("in a segment").0;
        image.flip_bit(record.position + at);
        let drive = open(&media, 2);
        while run(drive.clean()).expect("clean") {}
        run(drive.checkpoint()).expect("checkpoint");
        assert_eq!(drive.status().segments_damaged_count, 1);
        drop(drive);
        image.zero(image.geometry().segment_offset(home), image.geometry().segment_bytes as usize);
        let drive = open(&media, 3);
        read(&drive, 0).expect_err("its record is damaged");
        (1..2).chain(502..600).for_each(|block| assert_holds(&drive, block));
    }
}

#[test]
fn a_corrupt_leaf_does_not_stop_cleaning() {
    let (media, image) = worth_cleaning();
    // The checkpoint of a later run follows, so that roll-forward does not read the leaf.
    run(open(&media, 2).close()).expect("close");
    image.flip_bit(image.node(0, 0).payload() + 20);
    let drive = open(&media, 3);
    while run(drive.clean()).expect("clean") {}
    assert!(!drive.status().notes.is_empty());
    assert_holds(&drive, 599);
    write(&drive, 700);
    run(drive.close()).expect("close");
}

/// A corrupt node above the leaves: only the leaves under it are lost, and the drive stays usable.
#[test]
fn a_corrupt_node_above_the_leaves_stops_no_write() {
    const OTHER: u64 = 512 * 512;
    for (level, cached) in [(1, false), (1, true), (2, false)] {
        let (media, drive) = new_drive(64 << 20, 2 * OTHER * BLOCK);
        for block in [0, 1, 5000, OTHER, OTHER + 5000] {
            write(&drive, block);
        }
        run(drive.close()).expect("close");
        // The checkpoint of a later run follows, so that roll-forward does not read the node.
        run(open(&media, 2).close()).expect("close");
        let image = Image::of(&media);
        let drive = open(&media, 3);
        if cached {
            // Loads leaves and the nodes above them into memory.
            (0..2).for_each(|block| assert_holds(&drive, block));
        }
        image.flip_bit(image.node(level, 0).payload() + 2);
        for round in 0..3 {
            write(&drive, 1);
            write(&drive, 700 + round);
            write(&drive, 5001 + round);
            run(drive.checkpoint()).expect("checkpoint");
        }
        run(drive.close()).expect("close");

        let drive = open(&media, 4);
        for block in [1, 700, 701, 702, 5001, 5002, 5003] {
            assert_holds(&drive, block);
        }
        if !cached {
            assert!(read(&drive, 5000).is_err(), "what only the lost node leads to");
        }
        run(drive.trim(0, 2 * OTHER * BLOCK, false)).expect("trim");
        write(&drive, 6000);
        write(&drive, OTHER + 1);
        run(drive.checkpoint()).expect("checkpoint");
        while run(drive.clean()).expect("clean") {}
        assert_eq!(read(&drive, 0), Ok(vec![0; BLOCK as usize]));
        run(drive.close()).expect("close");
        let drive = open(&media, 5);
        assert_holds(&drive, 6000);
        assert_holds(&drive, OTHER + 1);
        assert_eq!(read(&drive, 5000), Ok(vec![0; BLOCK as usize]));
        run(drive.close()).expect("close");
    }
}

/// The block is packed again with its neighbours, as far as they are readable.
#[test]
fn a_write_to_a_full_drive_does_not_need_its_damaged_neighbours() {
    let (media, drive) = new_drive(32 << 20, 64 << 20);
    let mut next = 0;
    let mut fill = || {
        while let Ok(()) = run(drive.write(next * BLOCK, &random(next, BLOCK as usize), false)) {
            next += 1;
        }
    };
    fill();
    run(drive.trim(8 * BLOCK, BLOCK, false)).expect("trim");
    fill();
    run(drive.flush()).expect("flush");
    let image = Image::of(&media);
    image.flip_bit(image.newest(RecordKind::Data, 9).payload() + 100);
    let answer = run(drive.write(8 * BLOCK, &random(8, BLOCK as usize), false));
    assert_eq!(answer, Err(Error::NoSpace));
    // A partial overwrite of a block needs the whole block.
    let answer = run(drive.write(9 * BLOCK, &random(9, BLOCK as usize / 2), false));
    assert!(matches!(answer, Err(Error::Corrupt(_))), "{answer:?}");
}

/// When leaves are loaded for accounting, those with the most changes come first, and here these are under a
/// node that cannot be loaded. The others must be loaded all the same.
#[test]
fn leaves_that_cannot_be_loaded_keep_no_others_from_being_accounted_for() {
    const LEAF: u64 = 512;
    // Under another node of level 2.
    const OTHER: u64 = 512 * 512 * LEAF;
    // More leaves than are loaded at once.
    const LOST: u64 = 8300;
    const KEPT: u64 = 20;
    let (media, drive) = new_drive(64 << 20, 2 * OTHER * BLOCK);
    let leaves = |first: u64, count: u64| (0..count).map(move |leaf| first + leaf * LEAF);
    for first in leaves(0, LOST) {
        run(drive.write(first * BLOCK, &[7; 2 * BLOCK as usize], false)).expect("write");
    }
    for first in leaves(OTHER, KEPT) {
        (first..first + LEAF).for_each(|block| write(&drive, block));
    }
    run(drive.close()).expect("close");
    run(open(&media, 2).close()).expect("close");
    let image = Image::of(&media);
    let drive = open(&media, 3);
    drive.set_map_budget_bytes(16 << 20);
    image.flip_bit(image.node(2, 0).payload() + 2);
    for first in leaves(0, LOST) {
        run(drive.trim(first * BLOCK, 2 * BLOCK, false)).expect("trim");
    }
    let before = drive.status().physical_used_bytes;
    for first in leaves(OTHER, KEPT) {
        run(drive.trim(first * BLOCK, BLOCK, false)).expect("trim");
    }
    // Makes the drive idle.
    (0..60).for_each(|_| drive.tick());
    for _ in 0..8 {
        run(drive.maintain()).expect("maintain");
    }
    let gone = before.saturating_sub(drive.status().physical_used_bytes);
    assert!(gone >= KEPT * BLOCK, "{gone} bytes less are used");
    // A disk may take seconds for each attempt.
    let tried = drive.status().counters.corrupt_records_count;
    assert!((1..=64).contains(&tried), "the lost node was read {tried} times");
}

#[test]
fn a_gap_is_noticed_also_when_only_later_segments_show_it() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    // All packs in the first segment. No pack before the second segment calls any of them durable.
    (0..400).for_each(|block| write(&drive, block));
    run(drive.flush()).expect("flush");
    write(&drive, 400);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    let first = image.newest(RecordKind::Data, 0).pack;
    let packs = image.packs();
    let segment_of = |at: u64| image.geometry().locate(at).map(|(segment, _)| segment);
    let witness = packs.iter().find(|(_, header)| header.durable > 2).expect("a pack that knows");
    assert_ne!(segment_of(witness.0), segment_of(first));
    image.zero(first, 4096);
    assert!(refusal(&media).contains("missing or torn"));
}

#[test]
fn a_gap_is_noticed_also_when_it_swallows_the_only_packs_that_state_where_the_log_goes_on() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    // Flushes of 64 blocks each, over more than five segments.
    for round in 0..24 {
        (round * 64..(round + 1) * 64).for_each(|block| write(&drive, block));
        run(drive.flush()).expect("flush");
    }
    drop(drive);
    let image = Image::of(&media);
    let geometry = image.geometry();
    let home = geometry.locate(image.newest(RecordKind::Data, 700).pack).expect("in a segment").0;
    let first = geometry.locate(image.newest(RecordKind::Data, 0).pack).expect("in a segment").0;
    let last = geometry.locate(image.newest(RecordKind::Data, 1535).pack).expect("in a segment").0;
    assert!(first < home && home + 1 < last, "{first}, {home}, {last}");
    image.zero(geometry.segment_offset(home), geometry.segment_bytes as usize);
    assert!(refusal(&media).contains("missing or torn"));
}

/// The log continues from segment to segment. The last but one is lost completely, and some pages of the last
/// one.
#[test]
fn a_lost_stretch_that_ends_in_the_newest_segment_is_noticed() {
    for pages in [0, 1, 2, 30] {
        let (media, drive) = new_drive(64 << 20, 128 << 20);
        for at in 0..600 {
            run(drive.write(at * BLOCK, &random(at, BLOCK as usize), at % 30 == 29)).expect("write");
        }
        drop(drive);
        let image = Image::of(&media);
        let geometry = image.geometry();
        let (last, header) = image.packs().pop().expect("a pack");
        let start = geometry.segment_offset(header.segment);
        assert!(last > start + pages * BLOCK, "there are packs behind what is lost");
        let segment_bytes = u64::from(geometry.segment_bytes);
        image.zero(start - segment_bytes, (segment_bytes + pages * BLOCK) as usize);
        assert!(refusal(&media).contains("but pack"), "{pages} pages");
    }
}

/// A backing with a range that cannot be read.
struct Unreadable(Arc<MemoryMedia>, Range<u64>);

impl Media for Unreadable {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, std::io::Result<()>) {
        match offset < self.1.end && self.1.start < offset + buf.len() as u64 {
            true => (buf, Err(std::io::Error::other("unreadable"))),
            false => self.0.read(offset, buf).await,
        }
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> std::io::Result<()> {
        self.0.write(offset, buf).await
    }

    async fn sync(&self) -> std::io::Result<()> {
        self.0.sync().await
    }

    async fn discard(&self, offset: u64, len: u64) -> std::io::Result<()> {
        self.0.discard(offset, len).await
    }
}

/// A crash: nothing was synced, and the segment that led to the next one is lost. After the gap there may be
/// free space.
#[test]
fn a_page_behind_the_end_of_the_log_that_cannot_be_read_does_not_keep_the_drive_shut() {
    for (page, read_only, accept_damage) in [
        (0, false, false),
        (1, false, false),
        (2, true, true),
        (2, true, false),
        (2, false, false),
        (100, false, false),
    ] {
        let (media, next) = segment_lost_and_next();
        let bad = next + page * BLOCK;
        let media = Arc::new(Unreadable(media, bad..bad + BLOCK));
        let options = OpenOptions { read_only, accept_damage, ..OpenOptions::new(9, spawner()) };
        let drive =
            run(Drive::open(erased(media), options)).unwrap_or_else(|error| panic!("page {page}: {error}"));
        assert_eq!(run(drive.check(true)).expect("check"), Vec::<String>::new(), "page {page}");
    }
}

/// Returns the media, and the offset of the next segment of the log.
fn segment_lost_and_next() -> (Arc<MemoryMedia>, u64) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    let data = random(1, 256 << 10);
    for at in 0..6 {
        run(drive.write(at * data.len() as u64, &data, false)).expect("write");
    }
    drop(drive);
    let image = Image::of(&media);
    let geometry = image.geometry();
    let segment =
        |block: u64| geometry.locate(image.newest(RecordKind::Data, block).position).expect("in a segment").0;
    let first = segment(0);
    let next = (0..5).map(|at| segment(at * data.len() as u64 / BLOCK)).find(|other| *other != first);
    image.zero(geometry.segment_offset(first), geometry.segment_bytes as usize);
    (media, geometry.segment_offset(next.expect("another")))
}
