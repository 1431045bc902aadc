//! The log goes on in a segment that holds an earlier filling, of which a page cannot be read: the drive
//! opens, unless it is the page at which the next pack would begin.

use crate::common;
use crate::faulty;

use std::sync::Arc;

use codec::testdata::random;
use common::create_options;
use drive::{CreateOptions, Drive, OpenOptions};
use faulty::{Faulty, Tasks};
use layout::{Geometry, Head, NextSegment, PAGE_BYTES, PackHeader, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PAGE: u64 = PAGE_BYTES as u64;
const SIZE: u64 = 24 << 20;
const BLOCKS: u64 = 256;
/// Blocks of a write, which make up a pack of as many pages.
const TOGETHER: u64 = 32;

fn page(media: &Faulty, tasks: &Tasks, at: u64) -> IoBuf {
    let (page, read) = tasks.run(media.read(at, IoBuf::zeroed(PAGE_BYTES)));
    read.expect("read");
    page
}

/// The segment that the newest pack promises to the host head, and the pack of an earlier filling that it
/// begins with.
fn promised(media: &Faulty, tasks: &Tasks, geometry: &Geometry) -> Option<(NextSegment, PackHeader)> {
    let pages = (geometry.segments_offset() / PAGE..media.size_bytes() / PAGE).map(|at| at * PAGE);
    let headers = pages.filter_map(|at| {
        let header = PackHeader::decode(&page(media, tasks, at)).ok()?;
        (geometry.locate(at)? == (header.segment, header.offset)).then_some(header)
    });
    let newest = headers.max_by_key(|header| header.sequence)?;
    let next = newest.next[Head::Host as usize];
    let start = geometry.segment_offset(next.segment);
    let header = PackHeader::decode(&page(media, tasks, start)).ok()?;
    (header.generation != next.generation && header.len as usize > PAGE_BYTES).then_some((next, header))
}

#[test]
fn a_page_of_an_earlier_filling_that_cannot_be_read_does_not_keep_the_drive_from_opening() {
    let (media, tasks) = (Arc::new(Faulty::new(SIZE)), Tasks::default());
    // What is discarded in the backing holds no packs any more.
    let options =
        CreateOptions { segment_bytes: Some(512 << 10), keep_allocated: true, ..create_options(SIZE, SIZE) };
    tasks.run(Drive::create(&*media, &options)).expect("create");
    let geometry = Superblock::decode(&page(&media, &tasks, 0)).expect("superblock").geometry;
    let drive = tasks.open(&media, |_| {});
    let mut version = 0;
    let (next, header) = loop {
        version += 1;
        assert!(version < 100, "no segment is filled again");
        for first in (0..BLOCKS).step_by(TOGETHER as usize) {
            let data = random(version * BLOCKS + first, (TOGETHER * BLOCK) as usize);
            tasks.run(drive.write(first * BLOCK, &data, true)).expect("write");
        }
        if let Some(found) = promised(&media, &tasks, &geometry) {
            break found;
        }
    };
    // It is not closed.
    drop(drive);
    let start = geometry.segment_offset(next.segment);
    let opens = |lost: u64| {
        let page = start + lost * PAGE..start + (lost + 1) * PAGE;
        *media.lost.lock() = Vec::from([page]);
        let options = OpenOptions { read_only: true, ..OpenOptions::new(5, tasks.spawner()) };
        let drive = tasks.run(Drive::open(common::erased(media.clone()), options))?;
        let mut read = vec![0; (TOGETHER * BLOCK) as usize];
        tasks.run(drive.read(0, &mut read)).expect("read");
        assert!(read == random(version * BLOCKS, read.len()), "page {lost}");
        Ok::<_, drive::Error>(())
    };
    for lost in 1..u64::from(header.len) / PAGE {
        opens(lost).unwrap_or_else(|error| panic!("page {lost} of pack {header:?}: {error}"));
    }
    assert!(matches!(opens(0), Err(drive::Error::Io(_))), "the log may go on there");
}
