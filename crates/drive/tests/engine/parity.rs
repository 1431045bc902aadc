//! Parity: pages that are lost or are not as they were written are made again, records on them move, and what
//! cannot be made again is an error and never wrong data.

use crate::common;
use crate::faulty;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{CreateOptions, Drive, Error, Planted, PlantedBug};
use faulty::{Faulty, Tasks};
use layout::{Geometry, PAGE_BYTES, PackHeader, ParityForm, ParityIndex, ParityShape, Superblock};
use media::{IoBuf, Media};

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 96 << 20;
const SEGMENT: u32 = 1 << 20;
const PAGE: u64 = PAGE_BYTES as u64;
const BLOCKS: u64 = 3000;

fn contents(block: u64, version: u64) -> Vec<u8> {
    random(block * 1000 + version, BLOCK as usize)
}

struct Host {
    media: Arc<Faulty>,
    tasks: Tasks,
    geometry: Geometry,
    /// Version of each block.
    versions: Vec<u64>,
    entropy: u64,
}

impl Host {
    fn new(parity: ParityForm) -> Host {
        let (media, tasks) = (Arc::new(Faulty::new(PHYSICAL)), Tasks::default());
        let options =
            CreateOptions { segment_bytes: Some(SEGMENT), parity, ..create_options(PHYSICAL, 64 << 20) };
        tasks.run(Drive::create(&*media, &options)).expect("create");
        let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
        let geometry = Superblock::decode(&page).expect("superblock").geometry;
        assert_eq!(geometry.parity, parity);
        Host { media, tasks, geometry, versions: vec![0; BLOCKS as usize], entropy: 0 }
    }

    fn open(&mut self) -> Drive<Erased> {
        self.entropy += 1;
        let entropy = self.entropy;
        self.tasks.open(&self.media, |options| options.entropy = entropy)
    }

    fn write(&mut self, drive: &Drive<Erased>, blocks: Range<u64>) {
        for block in blocks {
            let version = &mut self.versions[block as usize];
            *version += 1;
            let data = contents(block, *version);
            self.tasks.run(drive.write(block * BLOCK, &data, false)).expect("write");
        }
        self.tasks.run(drive.flush()).expect("flush");
        self.settle(drive);
    }

    /// Lets everything in the background happen.
    fn settle(&self, drive: &Drive<Erased>) {
        for _ in 0..200 {
            drive.tick();
            self.tasks.turn();
            while self.tasks.run(drive.maintain()).expect("maintain") {}
        }
    }

    /// Reads everything. Returns the blocks that cannot be read; what is read is right.
    fn read(&self, drive: &Drive<Erased>) -> Vec<u64> {
        let mut lost = Vec::new();
        for block in 0..BLOCKS {
            let mut bytes = vec![0; BLOCK as usize];
            match self.tasks.run(drive.read(block * BLOCK, &mut bytes)) {
                Ok(()) if self.versions[block as usize] == 0 => assert!(bytes.iter().all(|b| *b == 0)),
                Ok(()) => assert!(bytes == contents(block, self.versions[block as usize]), "block {block}"),
                Err(Error::Io(_) | Error::Corrupt(_)) => lost.push(block),
                Err(other) => panic!("block {block}: {other}"),
            }
        }
        lost
    }

    fn assert_whole(&self, drive: &Drive<Erased>) {
        assert_eq!(self.read(drive), Vec::<u64>::new());
        assert_eq!(self.tasks.run(drive.check(true)).expect("check"), Vec::<String>::new());
    }

    fn page(&self, position: u64) -> IoBuf {
        self.tasks.run(self.media.read(position, IoBuf::zeroed(PAGE_BYTES))).0
    }

    fn overwrite(&self, position: u64, bytes: &[u8]) {
        let mut page = IoBuf::zeroed(bytes.len());
        page.copy_from_slice(bytes);
        self.tasks.run(self.media.write(position, Arc::new(page))).expect("write");
    }

    /// Segments with parity.
    fn segments(&self) -> Vec<(u32, ParityIndex)> {
        let shape = ParityShape::new(SEGMENT, self.geometry.parity).expect("parity");
        let used = (0..self.geometry.segments())
            .filter(|segment| PackHeader::decode(&self.page(self.geometry.segment_offset(*segment))).is_ok());
        let index = |segment: u32| {
            let at = self.geometry.segment_offset(segment) + u64::from(shape.index_offsets()[0]);
            let bytes = self.tasks.run(self.media.read(at, IoBuf::zeroed(shape.index_bytes()))).0;
            ParityIndex::decode(&bytes, SEGMENT).ok().map(|(index, _)| index)
        };
        used.filter_map(|segment| Some((segment, index(segment)?))).collect()
    }

    fn shape(&self) -> ParityShape {
        ParityShape::new(SEGMENT, self.geometry.parity).expect("parity")
    }
}

/// Every segment of a drive that was closed has parity, and every page is a member with its checksum.
#[test]
fn a_closed_drive_is_covered_whole() {
    for form in [ParityForm::Part32, ParityForm::Part64, ParityForm::Part16] {
        let mut host = Host::new(form);
        let drive = host.open();
        host.write(&drive, 0..BLOCKS);
        host.tasks.run(drive.close()).expect("close");
        let segments = host.segments();
        assert!(segments.len() > 8, "{form:?}: {}", segments.len());
        for (segment, index) in segments {
            let start = host.geometry.segment_offset(segment);
            for (page, sum) in (0..).zip(&index.pages) {
                assert_eq!(crc32c::crc32c(&host.page(start + page * PAGE)), *sum, "{segment}, page {page}");
            }
        }
        let drive = host.open();
        host.settle(&drive);
        assert_eq!(drive.status().parity.uncovered_segments_count, 0);
        host.assert_whole(&drive);
        assert_eq!(drive.status().counters.corrected_reads_count, 0);
    }
}

/// One page of each segment, or the longest run that is covered, at any place.
#[test]
fn lost_pages_within_cover_are_made_again() {
    for (form, round) in [(ParityForm::Part32, 0), (ParityForm::Part32, 1), (ParityForm::Part16, 2)] {
        let mut host = Host::new(form);
        let drive = host.open();
        host.write(&drive, 0..BLOCKS);
        host.tasks.run(drive.close()).expect("close");
        let run = if round == 0 { 1 } else { u64::from(host.shape().groups()) };
        for (segment, index) in host.segments() {
            let end = u64::from(index.end());
            let first = (u64::from(segment) * 37 + round * 11) % end.saturating_sub(run).max(1);
            let start = host.geometry.segment_offset(segment) + first * PAGE;
            let lost = start..start + run.min(end - first) * PAGE;
            match segment % 2 {
                0 => host.media.lost.lock().push(lost),
                _ => host.overwrite(lost.start, &random(7, (lost.end - lost.start) as usize)),
            }
        }
        let drive = host.open();
        host.assert_whole(&drive);
        assert!(drive.status().parity.repaired_pages_count > 0, "{form:?}");
        assert_eq!(drive.status().counters.corrupt_records_count, 0, "{form:?}");
        host.settle(&drive);
        host.tasks.run(drive.close()).expect("close");
        // A disk puts another sector in the place of one that is written again.
        host.media.lost.lock().clear();
        // Nothing that lives is on those pages any more.
        let drive = host.open();
        host.assert_whole(&drive);
        assert_eq!(drive.status().parity.repaired_pages_count, 0, "{form:?}");
    }
}

/// What a head fills is covered by what is in memory.
#[test]
fn pages_of_open_segments_are_made_again() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..40);
    for segment in 0..4 {
        let start = host.geometry.segment_offset(segment);
        host.media.lost.lock().push(start + PAGE..start + 4 * PAGE);
    }
    host.assert_whole(&drive);
    assert!(drive.status().parity.repaired_pages_count > 0);
    host.write(&drive, 20..80);
    host.assert_whole(&drive);
}

/// After a crash there is no parity of what was written last. It is made, and then covers.
#[test]
fn fillings_of_a_run_that_crashed_get_their_parity() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..1200);
    drop(drive);
    let drive = host.open();
    assert!(drive.status().parity.uncovered_segments_count > 0);
    host.settle(&drive);
    assert_eq!(drive.status().parity.uncovered_segments_count, 0);
    for (segment, _) in host.segments() {
        let start = host.geometry.segment_offset(segment);
        host.media.lost.lock().push(start..start + 3 * PAGE);
    }
    host.assert_whole(&drive);
    assert!(drive.status().parity.repaired_pages_count > 0);
}

/// Two pages of one group are lost: an error for what is on them, and nothing else.
#[test]
fn what_is_beyond_cover_is_an_error() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..BLOCKS);
    host.tasks.run(drive.close()).expect("close");
    let groups = u64::from(host.shape().groups());
    let (segment, _) = host.segments()[2];
    let start = host.geometry.segment_offset(segment);
    for page in [20, 20 + groups] {
        host.overwrite(start + page * PAGE, &random(page, PAGE_BYTES));
    }
    let drive = host.open();
    let lost = host.read(&drive);
    assert!((1..=4).contains(&lost.len()), "{lost:?}");
    assert!(drive.status().parity.lost_pages_count >= 2);
    assert!(!host.tasks.run(drive.check(true)).expect("check").is_empty());
}

/// The parity itself, or an index, is damaged: what it covers is not.
#[test]
fn damaged_parity_harms_nobody() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..BLOCKS);
    host.tasks.run(drive.close()).expect("close");
    let shape = host.shape();
    for (n, (segment, _)) in host.segments().into_iter().enumerate() {
        let start = host.geometry.segment_offset(segment);
        let [first, last] = shape.index_offsets().map(|offset| start + u64::from(offset));
        // One copy of the index is enough; parity of other groups than those of the lost page is not needed.
        host.overwrite(if n % 2 == 0 { first } else { last }, &[0xff; PAGE_BYTES]);
        host.overwrite(start + u64::from(shape.parity_offset(2)), &[0xff; PAGE_BYTES]);
        host.overwrite(start + 3 * PAGE, &[0xff; PAGE_BYTES]);
    }
    let drive = host.open();
    host.assert_whole(&drive);
}

/// A drive with parity holds less, and says so.
#[test]
fn parity_takes_room_that_is_accounted_for() {
    let limit = |form| {
        let host = &mut Host::new(form);
        let drive = host.open();
        let status = drive.status();
        let sum = status.physical_used_bytes
            + status.physical_reclaimable_bytes
            + status.physical_free_bytes
            + status.physical_parity_bytes
            + status.physical_reserve_bytes
            + status.physical_fixed_bytes;
        assert_eq!(sum, status.physical_size_bytes, "{form:?}");
        let shape = ParityShape::new(SEGMENT, form);
        let part = shape.map_or(0, |shape| u64::from(SEGMENT - shape.room_bytes()));
        assert_eq!(status.physical_parity_bytes, u64::from(status.segments_count) * part, "{form:?}");
        drive.space().1
    };
    let forms = [ParityForm::None, ParityForm::Part64, ParityForm::Part32, ParityForm::Part16].map(limit);
    assert!(forms.is_sorted_by(|more, less| more > less), "{forms:?}");
    assert!(forms[2] * 100 > forms[0] * 93, "{forms:?}");
}

/// Packs of the newest log are lost, in a segment that was full before a crash: made again if their loss is
/// proved, or if they cannot be read.
#[test]
fn lost_packs_of_the_log_are_made_again() {
    for unreadable in [true, false] {
        let mut host = Host::new(ParityForm::Part32);
        let drive = host.open();
        host.write(&drive, 0..100);
        host.tasks.run(drive.checkpoint()).expect("checkpoint");
        // More than a segment, and then something that vouches for it.
        for block in 100..900 {
            host.versions[block as usize] += 1;
            let data = contents(block, host.versions[block as usize]);
            host.tasks.run(drive.write(block * BLOCK, &data, block % 100 == 99)).expect("write");
        }
        for _ in 0..50 {
            host.tasks.turn();
        }
        drop(drive);
        let segments = host.segments();
        assert!(segments.len() >= 2, "{}", segments.len());
        for (segment, index) in segments {
            let run = u64::from(host.shape().groups().min(index.end()));
            let start = host.geometry.segment_offset(segment) + u64::from(index.end() / 2) / 2 * PAGE;
            match unreadable {
                true => host.media.lost.lock().push(start..start + run * PAGE),
                false => host.overwrite(start, &random(9, (run * PAGE) as usize)),
            }
        }
        let drive = host.open();
        host.media.lost.lock().clear();
        host.assert_whole(&drive);
        assert!(drive.status().counters.corrected_reads_count > 0, "{:?}", drive.status().notes);
    }
}

/// The planted mistake: what was on repaired pages stays there, and the next opening finds it again.
#[test]
fn records_that_stay_on_repaired_pages_are_found_again() {
    let repaired_again = |planted: Planted| {
        let mut host = Host::new(ParityForm::Part32);
        let drive = host.open();
        host.write(&drive, 0..BLOCKS);
        host.tasks.run(drive.close()).expect("close");
        for (segment, _) in host.segments() {
            let start = host.geometry.segment_offset(segment);
            host.overwrite(start + 5 * PAGE, &random(5, PAGE_BYTES));
        }
        host.entropy += 1;
        let entropy = host.entropy;
        let drive = host.tasks.open(&host.media, |options| {
            options.entropy = entropy;
            options.planted = planted;
        });
        host.assert_whole(&drive);
        host.settle(&drive);
        host.tasks.run(drive.close()).expect("close");
        let drive = host.open();
        host.assert_whole(&drive);
        drive.status().parity.repaired_pages_count
    };
    assert_eq!(repaired_again(Planted::default()), 0);
    if Planted::IS_POSSIBLE {
        assert!(repaired_again(Planted::new(Some(PlantedBug::RepairedNotMoved))) > 0);
    }
}

/// The backing has no room for parity: that is tried again now and then, and not all the time.
#[test]
fn parity_without_room_is_tried_again_later() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    host.write(&drive, 0..1200);
    drop(drive);
    let drive = host.open();
    host.media.full.store(true, SeqCst);
    let ticks = |count: u32| {
        for _ in 0..count {
            drive.tick();
            host.tasks.turn();
        }
    };
    ticks(20);
    let before = host.media.attempts.lock().len();
    ticks(500);
    assert!(host.media.attempts.lock().len() <= before + 1, "it is left alone for a while");
    assert!(drive.status().parity.uncovered_segments_count > 0);
    host.media.full.store(false, SeqCst);
    ticks(2000);
    assert_eq!(drive.status().parity.uncovered_segments_count, 0);
    host.assert_whole(&drive);
}
