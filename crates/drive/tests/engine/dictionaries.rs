//! Dictionaries are trained on written data, kept if they help, and needed for reading from then on.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, erased, new_media, run, spawner};
use drive::{CreateOptions, Drive, OpenOptions};
use futures::future::{join, join_all};
use image::Image;
use layout::{Catalog, RecordKind};
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: usize = 4096;

/// A block similar to many others and without repetitions of its own: data for dictionaries.
fn page(n: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while out.len() < BLOCK {
        z = (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let (host, status) = (z % 251, [200, 204, 301, 404, 500][(z >> 20) as usize % 5]);
        let line = format!(
            "{{\"time\":\"2026-03-{:02}T{:02}:{:02}:{:02}Z\",\"level\":\"info\",\"host\":\"web-{host}.example.net\",\
             \"request\":\"GET /shop/article/{}\",\"status\":{status},\"bytes\":{}}}\n",
            z % 28 + 1,
            z >> 8 & 15,
            z >> 16 & 31,
            z >> 24 & 31,
            z >> 32 & 0xffff,
            z >> 40 & 0xffff
        );
        out.extend_from_slice(line.as_bytes());
    }
    out.truncate(BLOCK);
    out
}

fn options(entropy: u64) -> OpenOptions {
    OpenOptions { sample_blocks: 256, ..OpenOptions::new(entropy, spawner()) }
}

fn new_drive() -> (Arc<MemoryMedia>, Memory) {
    let media = new_media(codec::Policy::Auto);
    let drive = run(Drive::open(erased(media.clone()), options(1))).expect("open");
    (media, drive)
}

/// Creates a drive with few small segments, which is soon full.
fn new_small_drive() -> (Arc<MemoryMedia>, Memory) {
    let media = Arc::new(MemoryMedia::new(17 << 20));
    let create = CreateOptions {
        codec: codec::Policy::Auto,
        segment_bytes: Some(512 << 10),
        ..create_options(17 << 20, 64 << 20)
    };
    run(Drive::create(&*media, &create)).expect("create");
    let drive = run(Drive::open(erased(media.clone()), options(1))).expect("open");
    (media, drive)
}

fn write_pages(drive: &Memory, first: u64, count: u64) {
    for n in first..first + count {
        run(drive.write(n * 4096, &page(n), false)).expect("write");
    }
}

fn assert_pages(drive: &Memory, first: u64, count: u64) {
    let mut back = vec![0; BLOCK];
    for n in first..first + count {
        run(drive.read(n * 4096, &mut back)).expect("read");
        assert!(back == page(n), "block {n}");
    }
}

fn used(drive: &Memory) -> u64 {
    drive.status().physical_used_bytes
}

/// Dictionary ids of all data records of host blocks.
fn ids(media: &Arc<MemoryMedia>) -> Vec<u16> {
    let records = Image::of(media).records(RecordKind::Data).into_iter();
    records.filter(|r| r.header.block < 1 << 30).map(|r| r.header.extra).collect()
}

#[test]
fn it_is_trained_kept_and_used_and_survives_a_crash() {
    let (media, drive) = new_drive();
    assert!(!drive.training_is_due());
    write_pages(&drive, 0, 600);
    assert!(drive.training_is_due());
    let before = used(&drive);
    let trained = run(drive.train()).expect("train");
    assert_eq!(trained.ids, [1], "{trained:?}");
    assert!(trained.gain > 1.1, "{trained:?}");
    assert!(!drive.training_is_due());
    let logical = drive.status().logical_used_bytes;
    assert_eq!(logical, 600 * 4096, "the drive's own blocks are not the host's");
    let with_dictionary = used(&drive);
    write_pages(&drive, 600, 600);
    assert!((used(&drive) - with_dictionary) * 11 < before * 10, "it helps");
    run(drive.flush()).expect("flush");
    assert_pages(&drive, 0, 1200);
    assert_sound(&drive);
    drop(drive);
    assert!(ids(&media).contains(&1));
    let again = run(Drive::open(erased(media.clone()), options(2))).expect("open");
    assert_pages(&again, 0, 1200);
    assert_sound(&again);
    write_pages(&again, 0, 10);
    run(again.flush()).expect("flush");
    assert_eq!(ids(&media).last(), Some(&1), "it is in use after opening too");
}

#[test]
fn nothing_is_kept_that_does_not_help() {
    let (_, drive) = new_drive();
    let empty = run(drive.train()).expect("train");
    assert_eq!((empty.ids.len(), empty.sample_blocks), (0, 0));
    for n in 0..600 {
        let mut block = random(n, BLOCK);
        block[1500..].fill(n as u8);
        run(drive.write(n * 4096, &block, false)).expect("write");
    }
    let trained = run(drive.train()).expect("train");
    assert!(trained.ids.is_empty(), "{trained:?}");
    assert!(trained.sample_blocks > 200, "{trained:?}");
    assert!(trained.outcome.starts_with("not trained: "), "{trained:?}");
    assert_sound(&drive);
}

/// Blocks have strings in common, which are less of them than a dictionary must save.
#[test]
fn what_was_trained_and_does_not_help_is_not_kept() {
    let (_, drive) = new_drive();
    let options = [random(1, 40), random(2, 40), random(3, 40)];
    for n in 0..600 {
        let mut block = random(10 + n, BLOCK);
        block[..40].copy_from_slice(&options[n as usize % 3]);
        block[2500..].fill(n as u8);
        run(drive.write(n * 4096, &block, false)).expect("write");
    }
    let trained = run(drive.train()).expect("train");
    assert!(trained.outcome.starts_with("not kept: "), "{trained:?}");
    assert!(trained.ids.is_empty(), "{trained:?}");
    assert_sound(&drive);
}

/// The previous dictionary is needed as long as records that use it are live. Then its place is free.
#[test]
fn a_retired_dictionary_goes_when_nothing_needs_it() {
    let (media, drive) = new_drive();
    write_pages(&drive, 0, 600);
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    write_pages(&drive, 0, 100);
    // Other data, for which the first dictionary is useless.
    let other = |n: u64| -> Vec<u8> { page(n + 7000).into_iter().map(|b| b ^ 0x55).rev().collect() };
    for n in 1000..1600 {
        run(drive.write(n * 4096, &other(n), false)).expect("write");
    }
    let second = run(drive.train()).expect("train");
    assert_eq!(second.ids, [2], "{second:?}");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = run(Drive::open(erased(media.clone()), options(2))).expect("open");
    assert_pages(&drive, 0, 600);
    assert_eq!(drive.dictionaries().len(), 2);
    assert_eq!(run(drive.forget_dictionaries()).expect("forget"), 0, "records need it");
    // All of this data is moved, with the second dictionary.
    for pass in 0..3 {
        for n in (0..600).filter(|n| n % 3 == pass) {
            run(drive.write(n * 4096, &page(n), false)).expect("write");
        }
        while run(drive.clean()).expect("clean") {}
        run(drive.checkpoint()).expect("checkpoint");
    }
    for n in 1000..1600 {
        run(drive.write(n * 4096, &other(n), false)).expect("write");
    }
    // A dictionary that is retired while segments are open is stamped when the heads have left them.
    for _ in 0..3 {
        run(drive.forget_dictionaries()).expect("forget");
        run(drive.checkpoint()).expect("checkpoint");
        while run(drive.clean()).expect("clean") {}
        run(drive.checkpoint()).expect("checkpoint");
    }
    assert_pages(&drive, 0, 600);
    assert_sound(&drive);
    let left: Vec<u16> = drive.dictionaries().iter().map(|d| d.id).collect();
    assert_eq!(left, [2]);
    run(drive.close()).expect("close");
    let drive = run(Drive::open(erased(media), options(3))).expect("open");
    assert_pages(&drive, 0, 600);
    assert_eq!(drive.dictionaries().len(), 1);
}

/// Creates a closed drive with 600 pages, a dictionary, and 100 pages that need it.
fn closed_with_a_dictionary() -> Arc<MemoryMedia> {
    let (media, drive) = new_drive();
    write_pages(&drive, 0, 600);
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    write_pages(&drive, 600, 100);
    run(drive.close()).expect("close");
    media
}

/// Either copy is enough. Without both, exactly the data that needs the dictionary is lost, and that is
/// reported.
#[test]
fn a_copy_of_the_dictionary_may_rot() {
    for both in [false, true] {
        let media = closed_with_a_dictionary();
        let image = Image::of(&media);
        let firsts = [Catalog::dictionary_block(0, 0), Catalog::dictionary_block(0, 1)];
        // Located before the damage, because a pack with a damaged record is not examined.
        let records = firsts.map(|first| image.newest(RecordKind::Data, first));
        for record in &records[..if both { 2 } else { 1 }] {
            image.flip_bit(record.payload() + 20);
        }
        let drive = run(Drive::open(erased(media), options(2))).expect("open");
        assert_pages(&drive, 0, 600);
        let mut back = vec![0; BLOCK];
        let read = run(drive.read(650 * 4096, &mut back));
        let notes = drive.status().notes.join("\n");
        if both {
            let error = read.expect_err("lost").to_string();
            assert!(error.contains("dictionary 1"), "{error}");
            assert!(notes.contains("dictionary 1 cannot be read"), "{notes}");
            // New writes do not use it.
            write_pages(&drive, 650, 1);
            assert_pages(&drive, 650, 1);
        } else {
            assert!(read.is_ok() && back == page(650));
            assert_eq!(notes, "");
        }
    }
}

/// Returns the faults that a check finds.
fn checked(media: &Arc<MemoryMedia>, deep: bool) -> Vec<drive::Fault> {
    let drive = run(Drive::open(erased(media.clone()), OpenOptions { read_only: true, ..options(2) }));
    let options = drive::CheckOptions { deep, ..Default::default() };
    run(drive.expect("open").examine(options, |_| {})).expect("check").faults
}

/// No host can reach the drive's own blocks, so their numbers say nothing.
#[test]
fn a_check_names_a_dictionary_rather_than_bytes_beyond_the_capacity() {
    for (block, name) in [
        (Catalog::block(0), "catalog of dictionaries, copy 0: "),
        (Catalog::block(1), "catalog of dictionaries, copy 1: "),
        (Catalog::dictionary_block(0, 0), "dictionary 1, copy 0: "),
        (Catalog::dictionary_block(0, 1), "dictionary 1, copy 1: "),
    ] {
        let media = closed_with_a_dictionary();
        let image = Image::of(&media);
        let record = image.newest(RecordKind::Data, block);
        image.flip_bit(record.payload() + 20);
        let faults = checked(&media, true);
        let [fault] = &faults[..] else { panic!("{faults:?}") };
        assert!(fault.spare && fault.subject == drive::Subject::Dictionaries, "{fault:?}");
        assert_eq!((fault.logical_offset_bytes, fault.logical_len_bytes), (None, None));
        assert_eq!(fault.position_bytes, Some(record.position));
        let line = fault.to_string();
        assert!(line.starts_with("segment ") && line.contains(name), "{line}");
        // By these words copies of superblock and checkpoints are recognized.
        assert!(!line.contains("of the backing, copy "), "{line}");
    }
}

#[test]
fn a_check_names_the_map_of_the_dictionaries() {
    for level in 0..3_u16 {
        let media = closed_with_a_dictionary();
        // The checkpoint of a later run follows, so that the log does not tell where they are.
        run(run(Drive::open(erased(media.clone()), options(3))).expect("open").close()).expect("close");
        let image = Image::of(&media);
        let last = (1 << (9 * (3 - level))) - 1;
        let node = image.node(level, last);
        image.flip_bit(node.payload() + 3);
        let faults = checked(&media, false);
        let fault = faults.iter().find(|fault| fault.position_bytes == Some(node.position));
        let fault = fault.unwrap_or_else(|| panic!("{faults:?}"));
        assert_eq!((fault.logical_offset_bytes, fault.logical_len_bytes, fault.spare), (None, None, false));
        let name = format!("map node {last} of level {level}, which leads to the drive's dictionaries: ");
        assert!(fault.to_string().contains(&name), "{fault}");
        // What needs them is lost.
        let lost = checked(&media, true).iter().filter(|fault| fault.logical_len_bytes.is_some()).count();
        assert!(lost > 0);
    }
}

/// A catalog that cannot be read is not replaced. A new one would assign ids again that records use, and a
/// wrong dictionary may decode to wrong data.
#[test]
fn without_its_catalog_no_other_takes_its_place() {
    let media = closed_with_a_dictionary();
    let image = Image::of(&media);
    let copies = [0, 1].map(|copy| image.newest(RecordKind::Data, Catalog::block(copy)));
    copies.iter().for_each(|record| image.flip_bit(record.payload() + 20));
    let drive = run(Drive::open(erased(media.clone()), options(2))).expect("open");
    assert!(drive.status().notes.join("\n").contains("catalog of dictionaries cannot be read"));
    write_pages(&drive, 1000, 600);
    assert!(!drive.training_is_due() && run(drive.train()).is_err());
    assert_pages(&drive, 0, 600);
    assert_pages(&drive, 1000, 600);
    let mut back = vec![0; BLOCK];
    for n in 600..700 {
        assert!(run(drive.read(n * 4096, &mut back)).is_err(), "block {n}: an error, not other data");
    }
}

/// Packed again without its dictionary a record would become larger, so cleaning leaves it in
/// place. A small number of such records must not block segments that are needed: space reported as free
/// must be usable.
#[test]
fn records_that_need_a_retired_dictionary_hold_no_segments() {
    const SEGMENTS: u64 = 14;
    let (media, drive) = new_small_drive();
    write_pages(&drive, 0, 600);
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    // Two records with the dictionary in each segment.
    let kept = |segment: u64| 1000 + 2 * segment;
    for segment in 0..SEGMENTS {
        write_pages(&drive, kept(segment), 2);
        for block in (0..120).map(|at| 2000 + 120 * segment + at) {
            run(drive.write(block * 4096, &random(block, BLOCK), false)).expect("write");
        }
    }
    run(drive.trim(0, 1000 * 4096, false)).expect("trim");
    for n in 5000..5600 {
        run(drive.write(n * 4096, &other_page(n), false)).expect("write");
    }
    assert_eq!(run(drive.train()).expect("train").ids, [2]);
    run(drive.trim(2000 * 4096, 4000 * 4096, false)).expect("trim");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = run(Drive::open(erased(media.clone()), options(2))).expect("open");
    run(drive.forget_dictionaries()).expect("forget");
    let status = drive.status();
    let promised = status.physical_free_bytes + status.physical_reclaimable_bytes;
    let mut taken = 0;
    while run(drive.write((6000 << 12) + taken, &random(taken, 32 << 10), false)).is_ok() {
        taken += 32 << 10;
    }
    assert!(taken * 100 >= promised * 98, "{promised} bytes were called free, {taken} could be taken");
    for segment in 0..SEGMENTS {
        assert_pages(&drive, kept(segment), 2);
    }
    assert_sound(&drive);
    drop(drive);
    let drive = run(Drive::open(erased(media), options(3))).expect("open");
    for segment in 0..SEGMENTS {
        assert_pages(&drive, kept(segment), 2);
    }
    assert_sound(&drive);
}

/// Data like that of [`page`] for other dictionaries, but not for the same one.
fn other_page(n: u64) -> Vec<u8> {
    page(n).into_iter().map(|byte| byte ^ 0x55).rev().collect()
}

/// Groups of eight blocks from block [`FIRST`] on: a page, and seven incompressible blocks, so that the page
/// is not in a frame.
const GROUPS: u64 = 240;
const FIRST: u64 = 1000;

/// Content of a group after `version` changes.
fn group(number: u64, version: u64) -> Vec<u8> {
    let mut data = page(number + 1000 * (version + 1));
    data.extend_from_slice(&random(number + 1000 * (version + 1), 7 * BLOCK));
    data
}

fn assert_groups(drive: &Memory, version: u64) {
    let mut back = vec![0; 8 * BLOCK];
    for number in 0..GROUPS {
        run(drive.read((FIRST + 8 * number) << 12, &mut back)).expect("read");
        assert!(back == group(number, version), "group {number}");
    }
}

/// A full drive of groups whose pages need a retired dictionary. Returns also the first block of the data
/// that fills it.
fn full_of_what_needs_a_retired_dictionary() -> (Arc<MemoryMedia>, Memory, u64) {
    const FILLING: u64 = 6000;
    let (media, drive) = new_small_drive();
    write_pages(&drive, 0, 600);
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    // No segment holds both groups and data that is trimmed, so that cleaning does not choose any.
    run(drive.write(14_000 << 12, &random(1, 600 << 10), false)).expect("write");
    for number in 0..GROUPS {
        run(drive.write((FIRST + 8 * number) << 12, &group(number, 0), false)).expect("write");
    }
    run(drive.write(15_000 << 12, &random(2, 600 << 10), false)).expect("write");
    run(drive.close()).expect("close");
    drop(drive);
    // The sample is empty after opening.
    let drive = run(Drive::open(erased(media.clone()), options(2))).expect("open");
    for n in 5000..5600 {
        run(drive.write(n * 4096, &other_page(n), false)).expect("write");
    }
    assert_eq!(run(drive.train()).expect("train").ids, [2]);
    run(drive.trim(0, FIRST << 12, false)).expect("trim");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = run(Drive::open(erased(media.clone()), options(3))).expect("open");
    // From here on nothing is written that needs the first dictionary.
    assert_eq!(run(drive.forget_dictionaries()).expect("forget"), 0);
    let mut block = FILLING;
    for count in [16, 1] {
        while run(drive.write(block << 12, &random(block, count * BLOCK), false)).is_ok() {
            block += count as u64;
        }
    }
    (media, drive, FILLING)
}

/// Writing the same data again takes no more space than before, whatever dictionaries were added, and
/// whatever the codec is now.
#[test]
fn what_a_full_drive_holds_it_takes_again() {
    let (media, drive, _) = full_of_what_needs_a_retired_dictionary();
    let write_again = || {
        for number in 0..GROUPS {
            run(drive.write((FIRST + 8 * number) << 12, &group(number, 0)[..BLOCK], false)).expect("write");
        }
        let many: Vec<u8> = (0..100).flat_map(|number| group(number, 0)).collect();
        run(drive.write(FIRST << 12, &many, true)).expect("write many");
    };
    write_again();
    run(drive.set_codec(codec::Policy::None)).expect("set codec");
    write_again();
    assert_groups(&drive, 0);
    assert_sound(&drive);
    drop(drive);
    let drive = run(Drive::open(erased(media), options(4))).expect("open");
    assert_groups(&drive, 0);
}

/// On a full drive, data is replaced by similar data, with the dictionary that suits it although a newer one
/// exists: in single writes and in large ones. Data that needs the dictionary stays readable.
#[test]
fn a_full_drive_takes_what_only_a_retired_dictionary_makes_small() {
    for many in [0, 100] {
        let (media, drive, filling) = full_of_what_needs_a_retired_dictionary();
        // As much as the sizes of such data differ by.
        run(drive.trim(filling << 12, 4 << 12, false)).expect("trim");
        let data: Vec<u8> = (0..many).flat_map(|number| group(number, 1)).collect();
        run(drive.write(FIRST << 12, &data, false)).expect("write many");
        for len in [BLOCK, 8 * BLOCK] {
            for number in many..GROUPS {
                let (at, data) = ((FIRST + 8 * number) << 12, &group(number, 1)[..len]);
                run(drive.write(at, data, number % 16 == 0)).expect("write");
            }
        }
        run(drive.flush()).expect("flush");
        assert_groups(&drive, 1);
        assert_sound(&drive);
        drop(drive);
        let drive = run(Drive::open(erased(media), options(4))).expect("open");
        for round in 1..4 {
            run(drive.forget_dictionaries()).expect("forget");
            run(drive.trim((filling + 16 * round) << 12, 16 << 12, false)).expect("trim");
            while run(drive.clean()).expect("clean") {}
            run(drive.checkpoint()).expect("checkpoint");
        }
        assert_groups(&drive, 1);
        assert_sound(&drive);
    }
}

#[test]
fn many_writes_at_once_bring_a_retired_dictionary_back() {
    let (_media, drive, filling) = full_of_what_needs_a_retired_dictionary();
    // Space for the catalog.
    run(drive.trim(filling << 12, 4 << 12, false)).expect("trim");
    let groups: Vec<Vec<u8>> = (0..GROUPS).map(|number| group(number, 1)).collect();
    for (some, at) in groups.chunks(8).zip((0..).step_by(8)) {
        let write = |(group, number): (&Vec<u8>, u64)| {
            let (drive, data) = (&drive, group[..BLOCK].to_vec());
            async move { drive.write((FIRST + 8 * number) << 12, &data, false).await }
        };
        for answer in run(join_all(some.iter().zip(at..).map(write))) {
            answer.expect("what is no larger than what was there");
        }
    }
    assert_sound(&drive);
}

#[test]
fn a_write_waits_for_a_change_of_the_catalog_rather_than_being_refused() {
    let (media, drive, filling) = full_of_what_needs_a_retired_dictionary();
    run(drive.trim(filling << 12, 4 << 12, false)).expect("trim");
    let write = async |drive: &Drive<Erased>, number: u64| {
        drive.write((FIRST + 8 * number) << 12, &group(number, 1)[..BLOCK], false).await
    };
    for number in 0..160 {
        run(write(&drive, number)).expect("brought back");
    }
    run(drive.close()).expect("close");
    drop(drive);
    let drive = run(Drive::open(erased(media), options(4))).expect("open");
    let writes = join_all((160..GROUPS).map(|number| write(&drive, number)));
    let (forgotten, answers) = run(join(drive.forget_dictionaries(), writes));
    forgotten.expect("forget");
    for answer in answers {
        answer.expect("what is no larger than what was there");
    }
    assert_sound(&drive);
}

/// There is no room for dictionaries. That is no error, and training is not due again at once: settling,
/// which makes room, would have to wait for it.
#[test]
fn a_full_drive_that_was_never_trained_is_not_trained_again_and_again() {
    let (media, drive) = new_small_drive();
    write_pages(&drive, 0, 600);
    let mut block = 600;
    for count in [16, 1] {
        while run(drive.write(block << 12, &random(block, count * BLOCK), false)).is_ok() {
            block += count as u64;
        }
    }
    run(drive.close()).expect("close");
    drop(drive);
    let drive = run(Drive::open(erased(media), options(2))).expect("open");
    assert!(drive.training_is_due() && drive.is_untrained());
    let trained = run(drive.train()).expect("no room is no error");
    assert_eq!(trained.ids, [], "{trained:?}");
    assert!(trained.outcome.contains("no room"), "{trained:?}");
    assert!(!drive.training_is_due(), "it does not train again and again");
    assert_pages(&drive, 0, 600);
    assert_sound(&drive);
}
