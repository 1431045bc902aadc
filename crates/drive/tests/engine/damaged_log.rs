//! Damage in the part of the log that an opening reads: data that was durable is lost where it is damaged, and nowhere else.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::{fio_like, random};
use common::{Erased, assert_sound, erased, new_drive, open, run, spawner};
use drive::{Drive, Error, OpenOptions, State};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

const BLOCK: u64 = 4096;
/// Blocks, and those among them that share a pack.
const BLOCKS: u64 = 60;
const TOGETHER: u64 = 6;
/// In a pack that later ones call durable.
const HIT: u64 = 20;

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block + version * 1000, BLOCK as usize)
}

fn write(drive: &Drive<Erased>, block: u64, version: u64) {
    run(drive.write(block * BLOCK, &contents(block, version), false)).expect("write");
}

fn read(drive: &Drive<Erased>, block: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; BLOCK as usize];
    run(drive.read(block * BLOCK, &mut bytes)).map(|()| bytes)
}

fn assert_holds(drive: &Drive<Erased>, blocks: impl Iterator<Item = u64>) {
    for block in blocks {
        assert!(read(drive, block).expect("read") == contents(block, 0), "block {block}");
    }
}

/// A drive that was not closed, with several packs of flushed writes after its checkpoint; then more is done, and flushed.
fn not_closed(more: impl Fn(&Drive<Erased>)) -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    for first in (0..BLOCKS).step_by(TOGETHER as usize) {
        (first..first + TOGETHER).for_each(|block| write(&drive, block, 0));
        run(drive.flush()).expect("flush");
    }
    more(&drive);
    run(drive.flush()).expect("flush");
    drop(drive);
    let image = Image::of(&media);
    (media, image)
}

fn refusal(media: &Arc<MemoryMedia>) -> String {
    match run(Drive::open(erased(media.clone()), OpenOptions::new(9, spawner()))) {
        Err(Error::Damaged(why)) => why,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("a drive with a damaged log was opened"),
    }
}

#[test]
fn one_flipped_bit_costs_one_record() {
    let (media, image) = not_closed(|_| ());
    image.flip_bit(image.newest(RecordKind::Data, HIT).payload() + 100);
    let drive = open(&media, 2);
    assert_eq!(drive.status().state, State::Online);
    assert_eq!(drive.status().recovered.damaged_records_count, 1);
    assert_eq!(drive.status().counters.corrupt_records_count, 1);
    let notes = drive.status().notes;
    assert!(
        notes.iter().any(|note| note.contains("damaged records in the newest log: 1, the first in pack")),
        "{notes:?}"
    );
    let error = read(&drive, HIT).expect_err("a flipped bit");
    assert!(matches!(&error, Error::Corrupt(why) if why.contains("block 20 ")), "{error}");
    assert_holds(&drive, (0..BLOCKS).filter(|block| *block != HIT));

    // It is found in the map by the next opening, and gone once it is written again.
    run(drive.close()).expect("close");
    let drive = open(&media, 3);
    assert_eq!(drive.status().recovered.damaged_records_count, 0);
    read(&drive, HIT).expect_err("still damaged");
    write(&drive, HIT, 0);
    assert_holds(&drive, 0..BLOCKS);
    assert_sound(&drive);
}

#[test]
fn many_flipped_bits_cost_as_many_records() {
    let (media, image) = not_closed(|_| ());
    let hit = [1, 2, 9, 20, 21, 22, 23, 30, 41];
    let places = hit.map(|block| image.newest(RecordKind::Data, block).payload() + 7 * block);
    places.iter().for_each(|place| image.flip_bit(*place));
    let drive = open(&media, 2);
    assert_eq!(drive.status().recovered.damaged_records_count, hit.len() as u64);
    assert_holds(&drive, (0..BLOCKS).filter(|block| !hit.contains(block)));
    hit.iter().for_each(|block| assert!(matches!(read(&drive, *block), Err(Error::Corrupt(_))), "{block}"));
}

#[test]
fn what_was_overwritten_later_is_not_lost() {
    let (media, image) = not_closed(|drive| {
        write(drive, HIT, 1);
        run(drive.trim((HIT + 1) * BLOCK, BLOCK, false)).expect("trim");
    });
    let old = |block: u64| image.records(RecordKind::Data).into_iter().find(|r| r.header.block == block);
    let places = [HIT, HIT + 1].map(|block| old(block).expect("a record").payload() + 9);
    places.iter().for_each(|place| image.flip_bit(*place));
    let drive = open(&media, 2);
    assert!(read(&drive, HIT).expect("read") == contents(HIT, 1));
    assert_eq!(read(&drive, HIT + 1).expect("read"), vec![0; BLOCK as usize]);
    assert_holds(&drive, (0..BLOCKS).filter(|block| ![HIT, HIT + 1].contains(block)));
    assert_sound(&drive);
}

#[test]
fn the_blocks_of_a_frame_are_lost_together() {
    const FRAME: u64 = 64;
    let data = fio_like(5, 8 * BLOCK as usize, 60);
    let (media, image) = not_closed(|drive| {
        run(drive.write(FRAME * BLOCK, &data, false)).expect("write");
        run(drive.flush()).expect("flush");
        write(drive, 0, 0);
    });
    let frame = image.newest(RecordKind::Data, FRAME);
    assert!(frame.header.blocks() > 1, "a frame");
    image.flip_bit(frame.payload() + 50);
    let drive = open(&media, 2);
    let end = FRAME + frame.header.blocks();
    (FRAME..end).for_each(|block| assert!(matches!(read(&drive, block), Err(Error::Corrupt(_))), "{block}"));
    let rest = (end..FRAME + 8).map(|block| (block, (block - FRAME) as usize * BLOCK as usize));
    rest.for_each(|(block, at)| assert!(read(&drive, block).expect("read") == data[at..at + BLOCK as usize]));
    assert_holds(&drive, 0..BLOCKS);
}

#[test]
fn a_read_only_look_finds_the_same_and_writes_nothing() {
    let (media, image) = not_closed(|_| ());
    image.flip_bit(image.newest(RecordKind::Data, HIT).payload() + 100);
    let before = image.read(0, 64 << 20);
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    assert_holds(&drive, (0..BLOCKS).filter(|block| *block != HIT));
    read(&drive, HIT).expect_err("a flipped bit");
    assert_eq!(run(drive.check(true)).expect("check").len(), 1);
    let faults = run(drive.check(false)).expect("check");
    assert_eq!(faults, ["damaged records in the newest log: 1; a deep check says what is lost"]);
    run(drive.close()).expect("close");
    assert!(image.read(0, 64 << 20) == before);
}

/// What the map is made of must be whole.
#[test]
fn headers_and_what_is_told_in_a_payload_are_not_done_without() {
    let trimmed = |drive: &Drive<Erased>| {
        run(drive.trim(HIT * BLOCK, 2 * BLOCK, false)).expect("trim");
        run(drive.flush()).expect("flush");
        write(drive, 0, 0);
    };
    let places: [fn(&Image) -> u64; 3] = [
        |image| image.newest(RecordKind::Data, HIT).position + 5,
        |image| image.newest(RecordKind::Data, HIT).pack + 50,
        |image| image.newest(RecordKind::Range, HIT).payload() + 3,
    ];
    for place in places {
        let (media, image) = not_closed(trimmed);
        image.flip_bit(place(&image));
        let why = refusal(&media);
        assert!(why.contains("is missing or torn, but pack"), "{why}");
    }
}

/// The same bytes are what a crash leaves: nothing says that they were durable, so they were never acknowledged as such.
#[test]
fn without_proof_it_is_the_end_of_the_log() {
    let (media, image) = not_closed(|drive| write(drive, HIT, 1));
    image.flip_bit(image.newest(RecordKind::Data, HIT).payload() + 100);
    let drive = open(&media, 2);
    assert_eq!(drive.status().recovered.damaged_records_count, 0);
    assert_holds(&drive, 0..BLOCKS);
}
