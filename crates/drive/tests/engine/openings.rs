//! Ids of the openings for writing: copies of a drive that went on by themselves are told from it by these.

use std::sync::Arc;

use crate::common::{self, Erased, erased, open, run, spawner};
use crate::image::Image;
use drive::{Drive, OpenOptions};
use layout::checkpoint::EARLIER_RUNS;
use media::{IoBuf, Media, MemoryMedia};

fn new_media() -> Arc<MemoryMedia> {
    common::new_media(codec::Policy::Lz4)
}

fn copy(media: &MemoryMedia) -> Arc<MemoryMedia> {
    let size_bytes = media.size_bytes();
    let (bytes, read) = run(media.read(0, IoBuf::zeroed(size_bytes as usize)));
    read.expect("a read");
    let copy = Arc::new(MemoryMedia::new(size_bytes));
    run(copy.write(0, Arc::new(bytes))).expect("a write");
    copy
}

/// Number of openings for writing, and the ids of the newest.
fn openings(drive: &Drive<Erased>) -> (u64, Vec<u64>) {
    let status = drive.status();
    (status.counters.opens_count, status.runs)
}

#[test]
fn each_opening_for_writing_is_known_to_the_next() {
    let media = new_media();
    let look = || {
        let options = OpenOptions { read_only: true, ..OpenOptions::new(77, spawner()) };
        openings(&run(Drive::open(erased(media.clone()), options)).expect("open"))
    };
    assert_eq!(look(), (0, vec![]), "a new drive");
    let drive = open(&media, 1);
    assert_eq!(openings(&drive), (1, vec![1]));
    run(drive.close()).expect("close");
    assert_eq!(look(), (1, vec![1]), "reading is no opening");
    let drive = open(&media, 2);
    run(drive.write(0, &[1; 4096], true)).expect("write");
    run(drive.checkpoint()).expect("checkpoint");
    run(drive.close()).expect("close");
    assert_eq!(look(), (2, vec![2, 1]));
    for entropy in 3..=100 {
        let drive = open(&media, entropy);
        assert_eq!(openings(&drive).0, entropy);
        run(drive.close()).expect("close");
    }
    let newest: Vec<u64> = (0..EARLIER_RUNS as u64).map(|since| 100 - since).collect();
    assert_eq!(look(), (100, newest));
}

#[test]
fn copies_that_go_on_have_openings_of_their_own() {
    let media = new_media();
    run(open(&media, 1).close()).expect("close");
    let copy = copy(&media);
    assert_eq!(openings(&open(&media, 2)), (2, vec![2, 1]));
    assert_eq!(openings(&open(&copy, 3)), (2, vec![3, 1]));
}

/// Who relied on an opening must not go on from one that begins without what was acknowledged in it.
#[test]
fn an_opening_without_all_of_the_one_before_says_so() {
    let next = |write_cache, gives_up_memory| {
        let media = new_media();
        let options = |entropy| OpenOptions { write_cache, ..OpenOptions::new(entropy, spawner()) };
        // Killed.
        drop(run(Drive::open(erased(media.clone()), options(1))).expect("open"));
        let look = OpenOptions { read_only: true, ..options(9) };
        let looking = run(Drive::open(erased(media.clone()), look)).expect("open");
        assert_eq!(openings(&looking), (1, vec![1]), "who looks judges nothing");
        let options = OpenOptions { gives_up_memory, ..options(2) };
        let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
        let (_, ids) = openings(&drive);
        run(drive.close()).expect("close");
        assert_eq!(openings(&open(&media, 3)).1[1..], ids, "it stays so");
        ids
    };
    assert_eq!(next(true, false), [2, !1]);
    assert_eq!(next(false, false), [2, 1], "without a write cache");
    assert_eq!(next(true, true), [2, 1], "an administrator has given it up");
}

/// Programs that do not know the ids write zeros.
#[test]
fn openings_before_one_of_an_older_program_are_not_known() {
    let media = new_media();
    for entropy in 1..4 {
        run(open(&media, entropy).close()).expect("close");
    }
    Image::of(&media).change_checkpoints(|checkpoint| checkpoint.earlier_runs = [0; EARLIER_RUNS]);
    assert_eq!(openings(&open(&media, 9)), (4, vec![9, 3]));
}
