//! A leaf of the map that is lost: what it led to counts as live, and nothing else is lost by that.

use crate::common;
use crate::image;

use std::ops::Range;
use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, erased, maintain, new_drive, open, run, spawner};
use drive::{Drive, Error, OpenOptions};
use image::Image;
use media::MemoryMedia;

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

/// Damages leaves on a closed drive. Roll-forward does not read them.
fn lose_leaves(media: &Arc<MemoryMedia>, entropy: u64, leaves: Range<u64>) {
    run(open(media, entropy).close()).expect("close");
    let image = Image::of(media);
    let nodes: Vec<u64> = leaves.map(|leaf| image.node(0, leaf).payload() + 5).collect();
    nodes.into_iter().for_each(|at| image.flip_bit(at));
}

fn rewrite(drive: &Drive<Erased>, blocks: Range<u64>, round: u64) {
    for block in blocks {
        let bytes = random(block + round * 1_000_000, BLOCK as usize);
        run(drive.write(block * BLOCK, &bytes, false)).expect("write");
    }
}

/// Idle for minutes, it gives lost leaves up.
fn rest(drive: &Drive<Erased>) {
    for _ in 0..20 {
        maintain(drive);
        (0..60).for_each(|_| drive.tick());
    }
}

/// Writes from a cold map: each leaf still owes what it replaces. More is counted then than two drives hold.
fn assert_opens_whatever_is_counted(
    media: &Arc<MemoryMedia>,
    (entropy, blocks): (u64, u64),
    write: impl Fn(&Drive<Erased>),
) {
    let mut options = OpenOptions::new(entropy, spawner());
    options.checkpoint_bytes = 8 << 20;
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    write(&drive);
    run(drive.checkpoint()).expect("checkpoint");
    run(drive.checkpoint()).expect("checkpoint");
    let counted = drive.status().logical_used_bytes / BLOCK;
    assert!(counted > 2 * blocks, "{counted}: no more than is taken from any drive");
    drop(drive);
    let drive = open(media, entropy + 1);
    let counted = drive.status().logical_used_bytes / BLOCK;
    assert!((blocks..=2 * blocks + 2 * LEAF).contains(&counted), "{counted}");
    run(drive.close()).expect("close");
}

#[test]
fn a_drive_opens_whatever_its_lost_leaves_count() {
    let blocks = 16 * LEAF;
    let (media, drive) = new_drive(256 << 20, blocks * BLOCK);
    rewrite(&drive, 0..blocks, 0);
    run(drive.close()).expect("close");
    lose_leaves(&media, 2, 0..12);
    let drive = open(&media, 3);
    rewrite(&drive, 0..12 * LEAF, 1);
    rest(&drive);
    run(drive.close()).expect("close");
    assert_opens_whatever_is_counted(&media, (4, blocks), |drive| rewrite(drive, 0..blocks, 2));
    let drive = open(&media, 6);
    for block in 0..blocks {
        assert!(read(&drive, block) == Ok(random(block + 2_000_000, BLOCK as usize)), "{block}");
    }
}

#[test]
fn a_drive_opens_that_lost_leaves_again_and_again() {
    let blocks = 4 * LEAF;
    let (media, drive) = new_drive(64 << 20, blocks * BLOCK);
    rewrite(&drive, 0..blocks, 0);
    run(drive.close()).expect("close");
    for round in 1..4 {
        lose_leaves(&media, 10 * round, 0..4);
        let drive = open(&media, 10 * round + 1);
        run(drive.trim(0, blocks * BLOCK, false)).expect("trim");
        maintain(&drive);
        run(drive.checkpoint()).expect("checkpoint");
        rewrite(&drive, 0..blocks, round);
        run(drive.close()).expect("close");
    }
    run(open(&media, 50).close()).expect("close");
}

#[test]
fn a_drive_opens_whatever_its_lost_leaves_count_as_fills() {
    let blocks = 8 * LEAF;
    let (media, drive) = new_drive(64 << 20, blocks * BLOCK);
    let fill = |drive: &Drive<Erased>, blocks: Range<u64>, byte: u8| {
        for at in blocks.step_by(64) {
            run(drive.write(at * BLOCK, &vec![byte; 64 * BLOCK as usize], false)).expect("write");
        }
    };
    fill(&drive, 0..blocks, 1);
    run(drive.close()).expect("close");
    lose_leaves(&media, 2, 3..4);
    let drive = open(&media, 3);
    fill(&drive, 3 * LEAF..4 * LEAF, 2);
    rest(&drive);
    run(drive.close()).expect("close");
    assert_opens_whatever_is_counted(&media, (4, blocks), |drive| fill(drive, 0..blocks, 3));
}
