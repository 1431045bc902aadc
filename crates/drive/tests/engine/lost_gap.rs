//! One read of the medium may be for records on both sides of the parity of a segment: pages there that
//! cannot be read cost nothing.

use crate::common;
use crate::faulty;

use std::sync::Arc;

use codec::testdata::random;
use common::create_options;
use drive::{CreateOptions, Drive};
use faulty::{Faulty, Tasks};
use layout::{Geometry, PAGE_BYTES, ParityForm, ParityShape, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const SIZE: u64 = 24 << 20;
/// With this form its parity is short enough to be read over.
const SEGMENT: u32 = 512 << 10;
/// Bytes of a write, and of a read.
const TOGETHER: usize = 256 << 10;
const WRITES: u64 = 16;

#[test]
fn pages_of_parity_between_records_need_not_be_readable() {
    let (media, tasks) = (Arc::new(Faulty::new(SIZE)), Tasks::default());
    let parity = ParityForm::Part64;
    let options = CreateOptions { segment_bytes: Some(SEGMENT), parity, ..create_options(SIZE, SIZE) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(PAGE_BYTES)));
    let geometry: Geometry = Superblock::decode(&page).expect("superblock").geometry;
    let drive = tasks.open(&media, |_| {});
    for number in 0..WRITES {
        let data = random(number, TOGETHER);
        tasks.run(drive.write(number * TOGETHER as u64, &data, false)).expect("write");
    }
    tasks.run(drive.close()).expect("close");
    let shape = ParityShape::new(SEGMENT, parity).expect("parity");
    let places = [
        shape.index_offsets()[0],
        shape.parity_offset(0),
        shape.parity_offset(shape.groups() - 1),
        shape.index_offsets()[1],
    ];
    for offset in places {
        let drive = tasks.open(&media, |options| options.read_only = true);
        let starts = (0..geometry.segments()).map(|segment| geometry.segment_offset(segment));
        let pages = starts.map(|start| start + u64::from(offset));
        *media.lost.lock() = pages.map(|page| page..page + PAGE_BYTES as u64).collect();
        for first in 0..WRITES * TOGETHER as u64 / BLOCK - TOGETHER as u64 / BLOCK {
            let mut read = vec![0; TOGETHER];
            let result = tasks.run(drive.read(first * BLOCK, &mut read));
            result.unwrap_or_else(|error| panic!("offset {offset}, from block {first}: {error}"));
            let (number, skip) = (first * BLOCK / TOGETHER as u64, (first * BLOCK) as usize % TOGETHER);
            let both = [random(number, TOGETHER), random(number + 1, TOGETHER)].concat();
            assert!(read == both[skip..skip + TOGETHER], "offset {offset}, from block {first}");
        }
        media.lost.lock().clear();
    }
}
