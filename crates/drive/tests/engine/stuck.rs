//! A map that cannot become smaller, and a full drive: the amount of useless writes is limited.

use crate::common;
use crate::faulty;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, erased, run, spawner};
use drive::{Drive, Error, OpenOptions};
use faulty::{Faulty, Tasks, poll};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

/// Bytes covered by a leaf of the map.
const LEAF_BYTES: u64 = 2 << 20;
const LEAVES: u64 = 700;
const BUDGET_BYTES: u64 = 64 << 10;

fn open(media: &Arc<MemoryMedia>, budget_bytes: u64, entropy: u64) -> Drive<Erased> {
    let mut options = OpenOptions::new(entropy, spawner());
    options.map_budget_bytes = budget_bytes;
    run(Drive::open(erased(media.clone()), options)).expect("open")
}

/// Creates a drive with one block in each of many leaves.
fn sparse(physical_bytes: u64, leaves: u64) -> Arc<MemoryMedia> {
    let mut options = create_options(physical_bytes, 1 << 38);
    options.segment_bytes = Some(512 << 10);
    let media = Arc::new(MemoryMedia::new(options.physical_size_bytes));
    run(Drive::create(&*media, &options)).expect("create");
    let drive = open(&media, 16 << 20, 1);
    for leaf in 0..leaves {
        run(write(&drive, leaf)).expect("write");
    }
    run(drive.close()).expect("close");
    // Opened once more, so that roll-forward does not read the map.
    run(open(&media, 16 << 20, 2).close()).expect("close");
    media
}

async fn write(drive: &Drive<Erased>, leaf: u64) -> Result<(), Error> {
    let mut block = vec![0; 4096];
    block[..8].copy_from_slice(&(leaf + 1).to_le_bytes());
    drive.write(leaf * LEAF_BYTES, &block, false).await
}

fn checkpoints(drive: &Drive<Erased>) -> u64 {
    drive.status().counters.checkpoints_count
}

#[test]
fn a_map_that_cannot_be_read_is_not_written_again_and_again() {
    let media = sparse(64 << 20, LEAVES);
    let image = Image::of(&media);
    for node in image.records(RecordKind::Node) {
        // Leaves only: every checkpoint has to read the nodes above.
        if node.header.extra == 0 {
            image.flip_bit(node.payload() + 3);
        }
    }
    let drive = open(&media, BUDGET_BYTES, 3);
    // More than half of the budget, but less than would stop writers.
    for leaf in 0..350 {
        run(write(&drive, leaf)).expect("no write fails of it");
    }
    assert!(drive.status().map_dirty_bytes > BUDGET_BYTES / 2, "{}", drive.status().map_dirty_bytes);
    let before = checkpoints(&drive);
    for _ in 0..1000 {
        drive.tick();
        // It may return an error.
        let _ = run(drive.maintain());
    }
    let written = checkpoints(&drive) - before;
    assert!((2..20).contains(&written), "{written} checkpoints in 1000 ticks");
    // Writers that need a smaller map get errors, also without many checkpoints.
    let before = checkpoints(&drive);
    let refused = (350..LEAVES).filter(|leaf| run(write(&drive, *leaf)).is_err()).count();
    assert!(refused > 100, "{refused}");
    assert!(checkpoints(&drive) - before < 20, "{} checkpoints", checkpoints(&drive) - before);
    assert!(run(drive.flush()).is_ok());
}

#[test]
fn a_refused_write_writes_few_checkpoints() {
    for leaves in [500, 5000] {
        let media = sparse(24 << 20, leaves);
        let drive = open(&media, 4 << 20, 3);
        let (mut refused, mut most) = (0, 0);
        // Changes all over a map that is not loaded, alternating with writes that fill the drive.
        for index in 0..4 * leaves {
            let before = checkpoints(&drive);
            let result = if index % 2 == 0 {
                run(write(&drive, index / 2 % leaves))
            } else {
                run(drive.write((leaves + index) * LEAF_BYTES, &random(index, 32 << 10), false))
            };
            match result {
                Ok(()) => {}
                Err(Error::NoSpace) => {
                    refused += 1;
                    most = most.max(checkpoints(&drive) - before);
                }
                Err(error) => panic!("{error}"),
            }
            if refused > 200 {
                break;
            }
        }
        assert!(refused > 20, "{refused} refused");
        assert!(most <= 4, "{most} checkpoints for one refused write");
    }
}

#[test]
fn nor_while_others_go_on_writing() {
    const PIECE: u64 = 64 << 10;
    let (media, tasks) = (Arc::new(Faulty::new(24 << 20)), Tasks::default());
    let mut options = create_options(24 << 20, 64 << 20);
    options.segment_bytes = Some(512 << 10);
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let drive = tasks.open(&media, |_| {});
    let mut filled = 0;
    while tasks.run(drive.write(filled * PIECE, &random(filled, PIECE as usize), false)).is_ok() {
        filled += 1;
    }
    // Some space, but not enough for the request.
    tasks.run(drive.trim(0, 2 * PIECE, false)).expect("trim");
    let before = drive.status().counters.checkpoints_count;
    let data = random(1, 256 << 10);
    let mut large = Box::pin(drive.write(60 << 20, &data, false));
    let mut overwritten = 0;
    let result = loop {
        if let Some(result) = poll(large.as_mut()) {
            break result;
        }
        tasks.turn();
        let block = (2 * PIECE) + overwritten % 64 * 4096;
        if poll(Box::pin(drive.write(block, &random(overwritten, 4096), false)).as_mut())
            .is_some_and(|r| r.is_ok())
        {
            overwritten += 1;
        }
    };
    assert_eq!(result, Err(Error::NoSpace));
    assert!(overwritten > 0, "nobody else wrote");
    let written = drive.status().counters.checkpoints_count - before;
    assert!(written <= 4, "{written} checkpoints for one refused write, {overwritten} others");
}
