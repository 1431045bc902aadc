//! A leaf of the map that is lost: what it led to counts as live, and nothing else is lost by that.

use crate::common;
use crate::image;

use codec::testdata::random;
use common::{Erased, maintain, new_drive, open, run};
use drive::{Drive, Error};
use image::Image;

const BLOCK: u64 = 4096;
const LEAF: u64 = 512;

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
}

fn read(drive: &Drive<Erased>, block: u64) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; BLOCK as usize];
    run(drive.read(block * BLOCK, &mut bytes)).map(|()| bytes)
}

#[test]
fn what_a_lost_leaf_led_to_counts_as_live_and_the_range_can_be_used_again() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    (0..3 * LEAF).for_each(|block| write(&drive, block));
    run(drive.close()).expect("close");
    // The checkpoint of a later run follows, so that roll-forward does not read the leaf.
    run(open(&media, 2).close()).expect("close");
    let image = Image::of(&media);
    image.flip_bit(image.node(0, 1).payload() + 20);
    let drive = open(&media, 3);
    let before = drive.status().physical_used_bytes;
    assert!(matches!(read(&drive, LEAF), Err(Error::Corrupt(_))));
    run(drive.trim(LEAF * BLOCK, LEAF * BLOCK, false)).expect("trim");
    maintain(&drive);
    while run(drive.clean()).expect("clean") {}
    run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(read(&drive, LEAF), Ok(vec![0; BLOCK as usize]));
    (LEAF..2 * LEAF).for_each(|block| write(&drive, block));
    // Idle, it makes its log short, and loads what was cleared before that.
    (0..60).for_each(|_| drive.tick());
    maintain(&drive);
    let notes = drive.status().notes;
    assert!(
        notes.iter().any(|note| note.contains("was replaced; what it led to counts as live")),
        "{notes:?}"
    );
    run(drive.close()).expect("close");
    let drive = open(&media, 4);
    (0..3 * LEAF)
        .for_each(|block| assert!(read(&drive, block) == Ok(random(block, BLOCK as usize)), "{block}"));
    // The records of the leaf and those written since.
    assert_eq!(drive.status().physical_used_bytes - before, LEAF * 4112);
    let faults = run(drive.check(true)).expect("check");
    let are_counts = |fault: &String| fault.contains("the table says") || fault.contains("are counted");
    assert!(!faults.is_empty() && faults.iter().all(are_counts), "{faults:#?}");
}
