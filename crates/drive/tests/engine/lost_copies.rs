//! Copies of superblock and checkpoint that are missing, damaged or older than the other.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, erased, new_drive, open, run, spawner};
use drive::{Drive, OpenOptions};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

const BLOCK: u64 = 4096;

fn look(media: &Arc<MemoryMedia>) -> Drive<Erased> {
    let options = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("a look")
}

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
}

fn closed() -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    write(&drive, 0);
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    (media, image)
}

/// Opens a drive although its log is damaged.
fn rescued(media: &Arc<MemoryMedia>) -> Drive<Erased> {
    let options = OpenOptions { read_only: true, accept_damage: true, ..OpenOptions::new(9, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("a rescue")
}

#[test]
fn a_lost_copy_is_reported_until_an_opening_writes_it_again() {
    let look = |media: &Arc<MemoryMedia>| look(media).status();
    let (media, image) = closed();
    assert_eq!((look(&media).copies_not_taken_count, look(&media).notes), (0, vec![]));
    let of_checkpoint = image.copies_of(image.newest_checkpoint())[1];
    for (at, what) in
        [(0, "the superblock"), (65536, "the superblock"), (of_checkpoint, "the newest checkpoint")]
    {
        let (media, image) = closed();
        image.zero(at, 4096);
        let status = look(&media);
        assert_eq!(
            (status.copies_not_taken_count, status.notes.len()),
            (1, 1),
            "{at:#x}: {:?}",
            status.notes
        );
        let expected = format!("a copy of {what} is missing, damaged or outdated, at byte {at:#x} ");
        assert!(status.notes[0].starts_with(&expected), "{:?}", status.notes);
        let status = open(&media, 2).status();
        assert_eq!((status.copies_not_taken_count, status.notes), (0, vec![]), "{at:#x}");
        assert_eq!((look(&media).copies_not_taken_count, look(&media).notes), (0, vec![]), "{at:#x}");
    }
}

/// A check and a status judge the copies alike: a power cut between the copies of the superblock is no fault,
/// and a copy that is older on a drive that was closed did not take a write.
#[test]
fn an_older_copy_of_the_superblock_is_lost_only_if_the_drive_was_closed() {
    let older_and_newer = |drive: &Drive<Erased>, image: &Image| {
        let older = image.read(65536, BLOCK as usize);
        run(drive.set_codec(codec::Policy::None)).expect("set codec");
        assert!(image.read(65536, BLOCK as usize) != older, "the superblock was written");
        older
    };
    let judged = |media: &Arc<MemoryMedia>| {
        let drive = look(media);
        let faults = run(drive.check(false)).expect("check").len();
        (drive.status().copies_not_taken_count, drive.status().notes.len(), faults)
    };
    for (closes, expected) in [(false, (0, 0, 0)), (true, (1, 1, 1))] {
        let (media, drive) = new_drive(64 << 20, 128 << 20);
        write(&drive, 0);
        run(drive.flush()).expect("flush");
        let image = Image::of(&media);
        let older = older_and_newer(&drive, &image);
        if closes {
            run(drive.close()).expect("close");
        }
        drop(drive);
        image.write(65536, &older);
        assert_eq!(judged(&media), expected, "closed: {closes}");
        run(open(&media, 2).close()).expect("close");
        assert_eq!(judged(&media), (0, 0, 0), "closed: {closes}");
    }
}

#[test]
fn a_lost_copy_has_a_remedy_only_where_the_drive_can_be_opened_for_writing() {
    let (damaged, drive) = new_drive(64 << 20, 128 << 20);
    for block in 0..3 {
        write(&drive, block);
        run(drive.flush()).expect("flush");
    }
    drop(drive);
    let image = Image::of(&damaged);
    image.zero(image.newest(RecordKind::Data, 1).pack, BLOCK as usize);
    image.zero(65536, BLOCK as usize);
    let (later, image) = closed();
    let mut superblock = image.superblock.clone();
    superblock.features.read_only_compatible = 1 << 40;
    image.write(0, &superblock.encode());
    image.zero(65536, 4096);
    for drive in [rescued(&damaged), look(&later)] {
        let notes = drive.status().notes;
        let is_lost = |note: &&String| note.starts_with("a copy of the superblock is missing");
        let note = notes.iter().find(is_lost).expect("a note");
        assert!(note.ends_with("; another copy is used"), "{note}");
    }
}
