//! A checkpoint of a drive with many segments writes only what changed.

use crate::common;
use crate::faulty;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive};
use faulty::{Faulty, Tasks};
use layout::{Checkpoint, Superblock};
use media::{IoBuf, Media};

const PHYSICAL: u64 = 32 << 30;
const BLOCK: u64 = 4096;
/// Limit for a checkpoint after one write: pages of the header and the table in two copies, and packs of the
/// map.
const SMALL_BYTES: u64 = 96 << 10;

fn new_drive() -> (Arc<Faulty>, Tasks, Drive<Erased>) {
    let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
    let options = CreateOptions { segment_bytes: Some(512 << 10), ..create_options(PHYSICAL, PHYSICAL) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let drive = tasks.open(&media, |_| {});
    (media, tasks, drive)
}

fn write(tasks: &Tasks, drive: &Drive<Erased>, block: u64) {
    tasks.run(drive.write(block * BLOCK, &random(block, BLOCK as usize), true)).expect("write");
}

/// Runs `what`. Returns the bytes written to the medium by it.
fn written_by<T>(media: &Faulty, what: impl FnOnce() -> T) -> (u64, T) {
    let before = media.attempted_bytes();
    let answer = what();
    (media.attempted_bytes() - before, answer)
}

#[test]
fn a_checkpoint_writes_the_pages_of_the_table_that_changed() {
    let (media, tasks, drive) = new_drive();
    let table = Checkpoint::encoded_len(drive.status().segments_count as usize) as u64;
    assert!(table > 20 * SMALL_BYTES / 2, "a table of {table} bytes is not large");
    for round in 0..3 {
        // After this, both slots hold the table.
        write(&tasks, &drive, round);
        tasks.run(drive.checkpoint()).expect("checkpoint");
    }
    for round in 3..9 {
        write(&tasks, &drive, round * 700);
        let (bytes, _) = written_by(&media, || tasks.run(drive.checkpoint()).expect("checkpoint"));
        assert!(bytes <= SMALL_BYTES, "checkpoint {round} wrote {bytes} bytes, the table has {table}");
    }
    let (bytes, _) = written_by(&media, || tasks.run(drive.close()).expect("close"));
    assert!(bytes <= SMALL_BYTES, "closing wrote {bytes} bytes");
    drop(drive);
    let (bytes, drive) = written_by(&media, || tasks.open(&media, |_| {}));
    assert!(bytes <= SMALL_BYTES, "opening wrote {bytes} bytes");
    for round in 3..9 {
        let mut back = vec![0; BLOCK as usize];
        tasks.run(drive.read(round * 700 * BLOCK, &mut back)).expect("read");
        assert!(back == random(round * 700, BLOCK as usize), "round {round}");
    }
    assert_eq!(tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
}

/// Content that a place lost is written there again, wherever in the table it was.
#[test]
fn copies_of_checkpoints_that_went_bad_are_made_whole() {
    let (media, tasks, drive) = new_drive();
    for round in 0..3 {
        write(&tasks, &drive, round);
        tasks.run(drive.checkpoint()).expect("checkpoint");
    }
    tasks.run(drive.close()).expect("close");
    drop(drive);
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
    let geometry = Superblock::decode(&page).expect("superblock").geometry;
    for slot in 0..2 {
        let lost = geometry.checkpoint_offset(slot, 1) + 200 * 4096;
        tasks.run(media.write(lost, Arc::new(IoBuf::zeroed(4096)))).expect("write");
    }
    let faults = || {
        let drive = tasks.open(&media, |options| options.read_only = true);
        tasks.run(drive.check(false)).expect("check")
    };
    assert_eq!(faults().len(), 2);
    let drive = tasks.open(&media, |_| {});
    write(&tasks, &drive, 5);
    tasks.run(drive.close()).expect("close");
    drop(drive);
    assert_eq!(faults(), Vec::<String>::new());
}
