//! Requests that cover a block in part read the block and write it again. Changes by others in between are
//! kept, even if a record of the block is at the same place with the same length again.

use crate::common;
use crate::faulty;

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use common::{Erased, create_options};
use drive::{Drive, Zeroes};
use faulty::{Faulty, Tasks, poll};
use layout::pack::PACK_HEADER_BYTES;
use layout::record::RECORD_HEADER_BYTES;
use layout::{Geometry, RecordHeader, RecordKind, Superblock};
use media::{IoBuf, Media};

const BLOCK: usize = 4096;
const SECTOR: usize = 512;

struct Bench {
    media: Arc<Faulty>,
    tasks: Tasks,
    drive: Drive<Erased>,
    geometry: Geometry,
}

/// Contents of block 0 in version `n`.
fn version(n: u64) -> Vec<u8> {
    random(1000 + n, BLOCK)
}

impl Bench {
    /// Creates a drive that requires checkpoints soon, so that requests have to wait for one.
    fn new() -> Bench {
        let (media, tasks) = (Arc::new(Faulty::new(64 << 20)), Tasks::default());
        tasks.run(Drive::create(&*media, &create_options(64 << 20, 64 << 20))).expect("create");
        let drive = tasks.open(&media, |options| options.checkpoint_bytes = 64 << 10);
        let (page, _) = tasks.run(media.read(0, IoBuf::zeroed(4096)));
        let geometry = Superblock::decode(&page).expect("a superblock").geometry;
        Bench { media, tasks, drive, geometry }
    }

    /// Header of the first record of the first pack of segment 0, if it is a record of block 0. Its checksum
    /// identifies the version.
    fn first_record(&self) -> Option<RecordHeader> {
        let (buf, result) =
            self.tasks.run(self.media.read(self.geometry.segment_offset(0), IoBuf::zeroed(BLOCK)));
        result.expect("read");
        let header = RecordHeader::decode(&buf[PACK_HEADER_BYTES..][..RECORD_HEADER_BYTES]).ok()?;
        (header.kind == RecordKind::Data && header.block == 0).then_some(header)
    }

    /// Lets `slow` read version 0 of block 0 and wait. Meanwhile all sectors of the block except the first
    /// are written durably, until its record is at the place of the record of version 0. Then `slow`
    /// continues. Returns the version at that place.
    fn pass_by<'a>(&'a self, slow: impl Future<Output = Result<(), drive::Error>> + 'a) -> u64 {
        let Bench { media, tasks, drive, .. } = self;
        tasks.run(drive.write(0, &version(0), true)).expect("write");
        let place = self.first_record().expect("version 0 is the first record of segment 0");
        // A checkpoint that is held up by its syncs, and so much log that writers have to wait for the next
        // one.
        media.hold_syncs.store(true, SeqCst);
        let mut checkpoint = Box::pin(drive.checkpoint());
        for _ in 0..5 {
            assert!(poll(checkpoint.as_mut()).is_none());
            tasks.turn();
        }
        let is_stalled = |i: &u64| {
            let data = random(*i, 60 << 10);
            tasks.give_up(drive.write((1 << 20) + i * (64 << 10), &data, false), 3).is_none()
        };
        (0..8).find(is_stalled).expect("writers wait for the checkpoint");
        let mut slow = Box::pin(slow);
        for _ in 0..3 {
            assert!(poll(slow.as_mut()).is_none(), "it reads, and waits");
        }
        media.hold_syncs.store(false, SeqCst);
        tasks.run(checkpoint).expect("checkpoint");
        tasks.run(drive.checkpoint()).expect("checkpoint");
        tasks.run(drive.trim(1 << 20, 8 << 20, true)).expect("trim");
        let mut n = 0;
        loop {
            n += 1;
            assert!(n < 20_000, "the place is never used again");
            tasks.run(drive.write(SECTOR as u64, &version(n)[SECTOR..], true)).expect("write");
            if n % 16 == 0 {
                tasks.run(drive.checkpoint()).expect("checkpoint");
            }
            if self.first_record().is_some_and(|now| now != place) {
                break;
            }
        }
        tasks.run(slow).expect("the slow request");
        n
    }

    fn assert_block(&self, first_sector: &[u8], version_of_the_rest: u64) {
        let mut back = vec![0; BLOCK];
        self.tasks.run(self.drive.read(0, &mut back)).expect("read");
        assert!(back[..SECTOR] == *first_sector, "the sector of the slow request");
        let rest = &version(version_of_the_rest)[SECTOR..];
        assert!(back[SECTOR..] == *rest, "durable writes of the other sectors were lost");
    }
}

#[test]
fn a_slow_write_of_a_sector_keeps_what_was_written_beside_it() {
    let bench = Bench::new();
    let n = bench.pass_by(bench.drive.write(0, &[0xaa; SECTOR], true));
    bench.assert_block(&[0xaa; SECTOR], n);
}

#[test]
fn a_slow_trim_of_a_sector_keeps_what_was_written_beside_it() {
    let bench = Bench::new();
    let n = bench.pass_by(bench.drive.trim(0, SECTOR as u64, true));
    bench.assert_block(&[0; SECTOR], n);
}

#[test]
fn slow_zeroes_to_a_sector_keep_what_was_written_beside_it() {
    let bench = Bench::new();
    let n = bench.pass_by(bench.drive.write_zeroes(0, SECTOR as u64, Zeroes { unmap: false, fua: true }));
    bench.assert_block(&[0; SECTOR], n);
}
