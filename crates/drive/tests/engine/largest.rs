//! A drive of 64 TiB on a sparse backing.

use crate::common;
use crate::sparse;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, create_options, erased, run, spawner};
use drive::{Drive, OpenOptions, WipeOptions};
use sparse::Sparse;

const TIB_64: u64 = 64 << 40;
const PIECE: usize = 1 << 20;

fn open(media: &Arc<Sparse>, entropy: u64) -> Drive<Erased> {
    run(Drive::open(erased(media.clone()), OpenOptions::new(entropy, spawner()))).expect("open")
}

fn assert_used(drive: &Drive<Erased>, last: u64) {
    for number in 0..=last {
        let mut back = vec![0; PIECE];
        run(drive.read(number << 40, &mut back)).expect("read");
        assert!(back == random(number, PIECE), "piece {number}");
    }
    assert_eq!(run(drive.check(true)).expect("check"), Vec::<String>::new());
}

#[test]
fn it_is_created_used_opened_again_and_wiped() {
    let media = Arc::new(Sparse::new(TIB_64, Arc::default()));
    run(Drive::create(&*media, &create_options(TIB_64, TIB_64))).expect("create");
    for number in 0..3 {
        let drive = open(&media, number);
        assert!(drive.status().segments_count > 1_000_000);
        run(drive.write(number << 40, &random(number, PIECE), true)).expect("write");
        run(drive.checkpoint()).expect("checkpoint");
        assert_used(&drive, number);
        // Every other time it is not closed.
        if number % 2 == 0 {
            run(drive.close()).expect("close");
        }
    }
    run(Drive::wipe(&*media, WipeOptions::any())).expect("wipe");
    let drive = open(&media, 9);
    assert_eq!((drive.status().logical_used_bytes, drive.status().physical_used_bytes), (0, 0));
    run(drive.write(0, &random(0, PIECE), true)).expect("write");
    assert_used(&drive, 0);
}
