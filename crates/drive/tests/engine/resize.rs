//! Drives that grow while they are in use.

use crate::common;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, assert_sound, create_options, new_drive, open, run};
use drive::{Drive, Error};
use media::MemoryMedia;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 4096;

/// Creates a drive that uses the first part of a larger backing.
fn on_larger_backing(physical: u64, logical: u64, backing: u64) -> (Arc<MemoryMedia>, Drive<Erased>) {
    let media = Arc::new(MemoryMedia::new(backing));
    run(Drive::create(&*media, &create_options(physical, logical))).expect("create");
    let drive = open(&media, 1);
    (media, drive)
}

fn contents(chunk: u64) -> Vec<u8> {
    random(chunk, 64 * BLOCK)
}

/// Writes incompressible chunks of 256 KiB from `chunk` on until one is refused. Returns its number.
fn fill(drive: &Drive<Erased>, mut chunk: u64) -> u64 {
    loop {
        match run(drive.write(chunk * 64 * BLOCK as u64, &contents(chunk), false)) {
            Ok(()) => chunk += 1,
            Err(Error::NoSpace) => return chunk,
            Err(other) => panic!("{other}"),
        }
    }
}

fn assert_chunks(drive: &Drive<Erased>, chunks: u64) {
    let mut read = vec![0; 64 * BLOCK];
    for chunk in 0..chunks {
        run(drive.read(chunk * read.len() as u64, &mut read)).expect("read");
        assert!(read == contents(chunk), "chunk {chunk}");
    }
}

fn invalid(result: Result<(), Error>) -> String {
    match result {
        Err(Error::Invalid(why)) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn capacity_grows_under_a_live_drive_and_stays_grown() {
    let (media, drive) = new_drive(64 * MIB, 100 * MIB);
    let last = 300 * MIB - 4096;
    run(drive.write(100 * MIB - 4096, &[1; 4096], false)).expect("the last block");
    assert!(matches!(run(drive.write(last, &[2; 4096], false)), Err(Error::Invalid(_))));
    run(drive.set_logical_capacity(300 * MIB)).expect("grow");
    assert_eq!(drive.logical_capacity_bytes(), 300 * MIB);
    run(drive.write(last, &[2; 4096], true)).expect("beyond the old end");
    // No checkpoint follows: the crash comes at once.
    drop(drive);
    let drive = open(&media, 2);
    assert_eq!(drive.logical_capacity_bytes(), 300 * MIB);
    let mut block = [0; 4096];
    for (offset, byte) in [(100 * MIB - 4096, 1), (last, 2)] {
        run(drive.read(offset, &mut block)).expect("read");
        assert_eq!(block, [byte; 4096]);
    }
    assert_sound(&drive);
}

#[test]
fn capacity_does_not_shrink_and_must_be_whole_blocks_under_256_tib() {
    let (media, drive) = new_drive(64 * MIB, 100 * MIB);
    assert!(invalid(run(drive.set_logical_capacity(99 * MIB))).contains("only a wipe"));
    invalid(run(drive.set_logical_capacity(100 * MIB + 512)));
    invalid(run(drive.set_logical_capacity((1 << 48) - (2 << 20) + 4096)));
    run(drive.set_logical_capacity(100 * MIB)).expect("as it is");
    drop(drive);
    assert_eq!(open(&media, 2).logical_capacity_bytes(), 100 * MIB);
}

#[test]
fn a_full_drive_takes_writes_again_once_its_backing_has_grown() {
    let (media, drive) = on_larger_backing(32 * MIB, 256 * MIB, 128 * MIB);
    let full = fill(&drive, 0);
    assert!(drive.status().out_of_space);
    let before = drive.status();
    run(drive.set_physical_size(128 * MIB)).expect("grow");
    let after = drive.status();
    assert_eq!(after.physical_size_bytes, 128 * MIB);
    assert_eq!(after.segments_count, before.segments_count + 96);
    assert!(!after.out_of_space && after.physical_free_bytes > 80 * MIB);
    let fuller = fill(&drive, full);
    assert!(fuller > full + 4 * 80, "{full} chunks, then {fuller}");
    assert_chunks(&drive, fuller);
    assert_sound(&drive);
    run(drive.flush()).expect("flush");
    drop(drive);
    let drive = open(&media, 2);
    assert_chunks(&drive, fuller);
    assert_sound(&drive);
}

#[test]
fn a_crash_right_behind_the_growth_is_recovered_with_the_small_table() {
    let (media, drive) = on_larger_backing(32 * MIB, 256 * MIB, 64 * MIB);
    run(drive.write(0, &contents(0), true)).expect("write");
    run(drive.set_physical_size(64 * MIB)).expect("grow");
    drop(drive);
    let drive = open(&media, 2);
    assert_eq!(drive.status().physical_size_bytes, 64 * MIB);
    assert_chunks(&drive, 1);
    assert!(fill(&drive, 1) > 4 * 40);
    assert_sound(&drive);
}

#[test]
fn a_size_that_cannot_be_changes_nothing() {
    let (media, drive) = on_larger_backing(32 * MIB, 256 * MIB, 96 * MIB);
    assert!(invalid(run(drive.set_physical_size(31 * MIB))).contains("only grow"));
    assert!(invalid(run(drive.set_physical_size(97 * MIB))).contains("the backing has"));
    // Space for four times the first size, and a rest smaller than a segment.
    assert!(invalid(run(drive.set_physical_size(140 * MIB))).contains("four times"));
    run(drive.set_physical_size(32 * MIB)).expect("as it is");
    assert_eq!(drive.status().physical_size_bytes, 32 * MIB);
    drop(drive);
    assert_eq!(open(&media, 2).status().physical_size_bytes, 32 * MIB);
}

#[test]
fn a_closed_drive_does_not_grow() {
    let (_, drive) = new_drive(32 * MIB, 64 * MIB);
    run(drive.close()).expect("close");
    assert!(matches!(run(drive.set_logical_capacity(128 * MIB)), Err(Error::ReadOnly(_))));
    assert!(matches!(run(drive.set_physical_size(64 * MIB)), Err(Error::ReadOnly(_))));
}
