//! Sizes that an image claims and does not have: they take no memory.

mod common;
#[path = "common/memory.rs"]
mod memory;
#[path = "common/sparse.rs"]
mod sparse;

use std::sync::Arc;

use codec::testdata::random;
use common::{create_options, run, spawner};
use drive::{CheckOptions, CreateOptions, Drive, Error, OpenOptions};
use layout::{Checkpoint, Geometry, Superblock};
use media::{IoBuf, Media};
use sparse::Sparse;

/// Memory for a drive of a few segments, and for what claimed ones take: two thirds of a byte each.
const BOUND_BYTES: u64 = 80 << 20;
/// As many segments as there can be.
const SEGMENTS_MAX: u32 = 1 << 26;
const TIB_64: u64 = 64 << 40;
/// Size of the drive before it claims more.
const SMALL: u64 = 64 << 20;

fn write(media: &Sparse, offset: u64, bytes: &[u8]) {
    let mut buf = IoBuf::zeroed(bytes.len());
    buf.copy_from_slice(bytes);
    run(media.write(offset, Arc::new(buf))).expect("write");
}

fn read(media: &Sparse, offset: u64, len: usize) -> IoBuf {
    let (buf, result) = run(media.read(offset, IoBuf::zeroed(len)));
    result.expect("read");
    buf
}

/// A drive of 64 MiB with a few blocks of data whose superblock says 64 TiB. `segments` are the rows that the
/// header of its checkpoints claims; `None`: those that it has.
fn claiming(segments: Option<u32>) -> Arc<Sparse> {
    let media = Arc::new(Sparse::new(TIB_64, Arc::default()));
    let options = CreateOptions { segment_bytes: Some(1 << 20), ..create_options(SMALL, SMALL) };
    run(Drive::create(&*media, &options)).expect("create");
    let before = Superblock::decode(&read(&media, 0, 4096)).expect("superblock");
    let geometry = Geometry { physical_size_bytes: TIB_64, max_segments: SEGMENTS_MAX, ..before.geometry };
    geometry.validate().expect("the largest");
    // Before anything is written: segments lie elsewhere.
    let superblock = Superblock { geometry, ..before.clone() };
    for copy in 0..2 {
        let from = before.geometry.checkpoint_offset(1, copy);
        let page = read(&media, from, Checkpoint::encoded_len(before.geometry.segments() as usize));
        write(&media, geometry.checkpoint_offset(1, copy), &page);
        write(&media, Geometry::superblock_offset(copy), &superblock.encode());
    }
    if let Some(segments) = segments {
        for copy in 0..2 {
            let at = geometry.checkpoint_offset(1, copy);
            let mut page = read(&media, at, 4096).to_vec();
            let (checkpoint, _) = Checkpoint::decode_header(&page).expect("whole");
            checkpoint.encode_header(segments, 0, &mut page);
            write(&media, at, &page);
        }
    }
    media
}

fn open(media: &Arc<Sparse>, read_only: bool) -> Result<Drive<Sparse>, Error> {
    run(Drive::open(media.clone(), OpenOptions { read_only, ..OpenOptions::new(7, spawner()) }))
}

/// All in one test: the memory of a process is counted as a whole.
#[test]
fn claimed_segments_take_no_memory() {
    // What a first use of everything takes is not counted.
    let small = Arc::new(Sparse::new(SMALL, Arc::default()));
    run(Drive::create(&*small, &create_options(SMALL, SMALL))).expect("create");
    use_it(&open(&small, false).expect("open"));

    // Rows that are not there.
    let media = claiming(Some(SEGMENTS_MAX - (1 << 20)));
    let watch = memory::watch();
    assert!(matches!(open(&media, true), Err(Error::Corrupt(_))));
    assert!(matches!(open(&media, false), Err(Error::Corrupt(_))));
    let (_, checkpoints) = run(drive::find_copies(&*media));
    assert_eq!(checkpoints.len(), 4);
    assert_bound("rows that are not there", &watch);

    // More segments than rows, as after a growth that a power cut stopped.
    let media = claiming(None);
    let watch = memory::watch();
    let drive = open(&media, true).expect("open");
    assert!(drive.status().segments_count > SEGMENTS_MAX - 10_000);
    assert_eq!(run(drive.check(true)).expect("check"), Vec::<String>::new());
    let status = drive.status();
    assert_eq!(status.segments_free_count, status.segments_count);
    assert_bound("inspected", &watch);
}

fn assert_bound(what: &str, watch: &Option<memory::Watch>) {
    let Some(watch) = watch else { return eprintln!("skipped: the kernel does not count memory here") };
    let grown = watch.grown_bytes();
    assert!(grown <= BOUND_BYTES, "{what}: {grown} bytes of memory");
}

fn use_it(drive: &Drive<Sparse>) {
    run(drive.write(0, &random(1, 1 << 20), true)).expect("write");
    run(drive.checkpoint()).expect("checkpoint");
    let mut back = vec![0; 1 << 20];
    run(drive.read(0, &mut back)).expect("read");
    assert!(back == random(1, 1 << 20));
    let options = CheckOptions { deep: true, ..CheckOptions::default() };
    assert_eq!(run(drive.examine(options, |_| {})).expect("check").faults_count, 0);
    run(drive.close()).expect("close");
}
