//! Tests of which pages a disk loses within the cover of parity: never two of a group, never both copies of
//! an index, and nothing that the drive cannot know to have been durable.

use std::collections::{BTreeMap, BTreeSet};

use layout::pack::{NextSegment, PackHeader};
use layout::parity::parity_mask;
use layout::superblock::KNOWN_CODECS;
use layout::{
    Checkpoint, Counters, Entry, Features, Geometry, Head, HeadPosition, Mix, ParityForm, ParityIndex,
    ParityShape, Rows, ScrubMark, SegmentRow, SegmentUse, Superblock,
};
use media::SimRng;
use powercut::disk::{Chooser, Disk, Extent, Failed, PAGE_BYTES, Pace, Stale};

const PAGE: u64 = PAGE_BYTES as u64;
const SEGMENTS: u64 = 26;
const UUID: [u8; 16] = *b"a drive of tests";
/// Sequence number of the last pack of each filling.
const LAST: u64 = 100;
/// The segment with a pack that vouches for the others.
const VOUCHING: u32 = 0;
/// Segments with fillings.
const FILLED: [u32; 3] = [2, 3, 5];

struct Drive {
    disk: Disk,
    geometry: Geometry,
    shape: ParityShape,
    end: u32,
}

impl Drive {
    /// A disk with a superblock and some fillings of `end` pages that are durable.
    fn new(segment_bytes: u32, form: ParityForm, end: u32, seed: u64) -> Result<Drive, Failed> {
        let size_bytes = SEGMENTS * u64::from(segment_bytes);
        let geometry = Geometry::with_parity(size_bytes, Some(segment_bytes), form).expect("a geometry");
        let disk = Disk::new(size_bytes, Pace::default(), Stale::Hidden, SimRng::new(seed));
        let superblock = Superblock {
            uuid: UUID,
            update: 1,
            geometry,
            logical_capacity_bytes: size_bytes,
            sector_bytes: 512,
            codec_policy: 0,
            codec_level: 0,
            created_unix_seconds: 0,
            endurance_bytes: 0,
            incarnation: 0,
            worn_bytes: 0,
            features: Features::default(),
            codecs: KNOWN_CODECS,
        };
        disk.write(Geometry::superblock_offset(0), &superblock.encode())?;
        let shape = ParityShape::new(segment_bytes, form).expect("a form with parity");
        let drive = Drive { disk, geometry, shape, end };
        drive.checkpoint(1, 0, &[])?;
        for segment in FILLED {
            drive.fill(segment, 1, &mut SimRng::new(seed + 1))?;
        }
        drive.disk.sync()?;
        Ok(drive)
    }

    fn log_id() -> [u8; 16] {
        UUID
    }

    fn page_offset(&self, segment: u32, page: u32) -> u64 {
        self.geometry.segment_offset(segment) + u64::from(page) * PAGE
    }

    /// Writes a filling with its parity.
    fn fill(&self, segment: u32, generation: u32, rng: &mut SimRng) -> Result<(), Failed> {
        let (shape, end) = (&self.shape, self.end);
        let pages: Vec<Vec<u8>> = (0..end)
            .map(|_| (0..PAGE_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect())
            .collect();
        let sum = |page: &Vec<u8>| crc32c::crc32c(page);
        let mut parity = Vec::new();
        for group in 0..shape.groups_used(end) {
            let mut page = vec![0; PAGE_BYTES];
            for member in shape.members(group, end) {
                page.iter_mut().zip(&pages[member as usize]).for_each(|(sum, byte)| *sum ^= byte);
            }
            let mask = parity_mask(0, segment, generation, shape.parity_offset(group));
            page.iter_mut().zip(mask.to_le_bytes()).for_each(|(byte, mask)| *byte ^= mask);
            parity.push(page);
        }
        let index = ParityIndex {
            log_id: Self::log_id(),
            segment,
            generation,
            last_sequence: LAST,
            pages: pages.iter().map(sum).collect(),
            parity: parity.iter().map(sum).collect(),
        };
        let mut copy = vec![0; shape.index_bytes()];
        index.encode(shape, &mut copy);
        let start = self.geometry.segment_offset(segment);
        for offset in shape.index_offsets() {
            self.disk.write(start + u64::from(offset), &copy)?;
        }
        self.disk.write(start, &pages.concat())?;
        self.disk.write(start + u64::from(shape.parity_offset(0)), &parity.concat())
    }

    /// Writes a checkpoint that has everything up to a pack in its map, and data in some segments.
    fn checkpoint(&self, number: u64, sequence: u64, live: &[u32]) -> Result<(), Failed> {
        let mut rows = Rows::blank(self.geometry.segments() as usize);
        for segment in live {
            rows[*segment as usize] = SegmentRow {
                live_units: 1,
                generation: 1,
                last_sequence: LAST,
                usage: SegmentUse::Used,
                parity: self.shape.form(),
                ..SegmentRow::BLANK
            };
        }
        let checkpoint = Checkpoint {
            uuid: Self::log_id(),
            number,
            sequence,
            root: Entry::UNMAPPED,
            clean: false,
            may_hold_more: false,
            written_through: false,
            memory_boot: [0; 16],
            overlay_records: 0,
            live_blocks: 0,
            fill_blocks: 0,
            mix: Mix::default(),
            generations: 1,
            entropy: 1,
            earlier_runs: [0; layout::checkpoint::EARLIER_RUNS],
            durable: 0,
            superblock_update: 1,
            heads: [HeadPosition::NONE; 3],
            counters: Counters::default(),
            scrub: ScrubMark::default(),
            rows,
        };
        let mut bytes = vec![0; Checkpoint::encoded_len(checkpoint.rows.len())];
        checkpoint.encode(&mut bytes);
        self.disk.write(self.geometry.checkpoint_offset(number as usize % 2, 0), &bytes)?;
        self.disk.sync()
    }

    /// Writes a pack that says that packs up to `durable` are durable.
    fn vouch(&self, durable: u64) -> Result<(), Failed> {
        let header = PackHeader {
            head: Head::Host,
            uuid: Self::log_id(),
            segment: VOUCHING,
            generation: 1,
            offset: 0,
            len: PAGE_BYTES as u32,
            used: layout::pack::PACK_HEADER_BYTES as u32,
            records: 0,
            sequence: LAST + 1,
            durable,
            checkpoint: 0,
            next: [NextSegment::NONE; 3],
            continued: 0,
            parity: self.shape.form(),
        };
        let mut pack = vec![0; PAGE_BYTES];
        header.encode(0, &mut pack);
        self.disk.write(self.geometry.segment_offset(VOUCHING), &pack)?;
        self.disk.sync()
    }

    /// Content of the disk up to the last filling; `None`: cannot be read.
    fn content(&self) -> Vec<Option<Vec<u8>>> {
        let last = FILLED[FILLED.len() - 1];
        (0..self.geometry.segment_offset(last + 1) / PAGE)
            .map(|at| self.disk.read(at * PAGE, PAGE_BYTES).ok())
            .collect()
    }

    /// The pages of segments that differ.
    fn differing(&self, before: &[Option<Vec<u8>>]) -> BTreeMap<u32, BTreeSet<u32>> {
        let mut found: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for (at, (now, before)) in self.content().iter().zip(before).enumerate() {
            let Some((segment, offset)) = self.geometry.locate(at as u64 * PAGE) else { continue };
            if now != before || now.is_none() {
                found.entry(segment).or_default().insert(offset / PAGE_BYTES as u32);
            }
        }
        found
    }

    /// Asserts that parity can make these pages of a filling again, by the layout alone.
    fn assert_covered(&self, lost: &BTreeSet<u32>) {
        let (shape, pages) = (&self.shape, self.geometry.segment_bytes / PAGE_BYTES as u32);
        let [first, last] = shape.index_offsets().map(|offset| offset / PAGE_BYTES as u32);
        let len = pages - last;
        let mut groups = BTreeSet::new();
        for page in lost {
            let group = match *page {
                page if page < self.end => page % shape.groups(),
                page if page >= first + len && page < last => page - first - len,
                page => {
                    assert!(page >= first, "page {page} is of no meaning");
                    continue;
                }
            };
            assert!(groups.insert(group), "two pages of group {group}: {lost:?}");
        }
        let copies = [first..first + len, last..pages];
        let hit = copies.iter().filter(|copy| lost.iter().any(|page| copy.contains(page)));
        assert!(hit.count() < 2, "both copies of the index: {lost:?}");
    }
}

#[test]
fn losses_within_the_cover_never_take_two_pages_of_a_group() -> Result<(), Failed> {
    let (mut lost_pages, mut full) = (0, 0);
    for seed in 0..36 {
        let form = [ParityForm::Part32, ParityForm::Part64, ParityForm::Part16][seed as usize % 3];
        let segment_bytes = (512 << 10) << (seed / 3 % 2);
        let shape = ParityShape::new(segment_bytes, form).expect("a form with parity");
        let end = [shape.room_pages(), shape.room_pages() / 2, shape.groups(), 3][seed as usize / 6 % 4];
        let drive = Drive::new(segment_bytes, form, end, seed)?;
        drive.vouch(LAST)?;
        let before = drive.content();
        let mut chooser = Chooser::new(SimRng::new(seed));
        for strike in 0..12 {
            // Power cuts change nothing of it.
            if strike % 7 == 0 {
                drive.disk.cut();
                drive.disk.restart();
            }
            drive.disk.lose_pages(&mut chooser, Extent::Covered, 2);
            let lost = drive.differing(&before);
            assert!(lost.keys().all(|segment| FILLED.contains(segment)), "{lost:?}");
            lost.values().for_each(|pages| drive.assert_covered(pages));
            let count: usize = lost.values().map(BTreeSet::len).sum();
            assert_eq!(chooser.counts().pages(), count as u64, "each loss changes a page, and is counted");
        }
        lost_pages += chooser.counts().pages();
        let groups = u64::from(shape.groups_used(end)) * FILLED.len() as u64;
        full += u64::from(chooser.counts().of_packs + chooser.counts().of_parity == groups);
    }
    // Mostly every group loses a page in the end.
    assert!(lost_pages > 500 && full > 15, "{lost_pages} pages, {full} drives with a loss in each group");
    Ok(())
}

#[test]
fn losses_beyond_the_cover_take_two_pages_of_a_group() -> Result<(), Failed> {
    let drive = Drive::new(512 << 10, ParityForm::Part16, 80, 1)?;
    drive.vouch(LAST)?;
    let before = drive.content();
    drive.disk.lose_pages(&mut Chooser::new(SimRng::new(1)), Extent::Beyond, 1);
    let lost = drive.differing(&before);
    assert_eq!(lost.len(), FILLED.len());
    for pages in lost.values() {
        let covered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drive.assert_covered(pages)));
        assert!(covered.is_err(), "{pages:?}");
    }
    Ok(())
}

/// Returns whether a disk loses anything.
fn loses(drive: &Drive) -> bool {
    let mut chooser = Chooser::new(SimRng::new(5));
    (0..20).for_each(|_| drive.disk.lose_pages(&mut chooser, Extent::Covered, 1));
    chooser.counts().pages() > 0
}

#[test]
fn a_filling_for_which_nothing_vouches_loses_nothing() -> Result<(), Failed> {
    let drive = || Drive::new(512 << 10, ParityForm::Part32, 40, 1);
    assert!(!loses(&drive()?));
    let vouched = drive()?;
    vouched.vouch(LAST - 1)?;
    assert!(!loses(&vouched));
    vouched.vouch(LAST)?;
    assert!(loses(&vouched));
    Ok(())
}

#[test]
fn a_filling_that_is_not_in_use_loses_nothing() -> Result<(), Failed> {
    let drive = Drive::new(512 << 10, ParityForm::Part32, 40, 1)?;
    drive.vouch(LAST)?;
    drive.checkpoint(2, LAST, &[])?;
    assert!(!loses(&drive));
    let before = drive.content();
    drive.checkpoint(3, LAST, &FILLED[..1])?;
    assert!(loses(&drive));
    let lost = drive.differing(&before);
    assert_eq!(lost.into_keys().collect::<Vec<u32>>(), FILLED[..1]);
    Ok(())
}

#[test]
fn pages_that_cannot_be_read_can_be_once_their_segment_is_free() -> Result<(), Failed> {
    let unreadable = |drive: &Drive| {
        let pages = drive.geometry.segment_bytes / PAGE_BYTES as u32;
        let fails = |segment, page| drive.disk.read(drive.page_offset(segment, page), PAGE_BYTES).is_err();
        FILLED.map(|segment| (0..pages).any(|page| fails(segment, page)))
    };
    let mut seeds = 0..50;
    let (drive, mut chooser) = loop {
        let drive = Drive::new(512 << 10, ParityForm::Part16, 80, 1)?;
        drive.vouch(LAST)?;
        let mut chooser = Chooser::new(SimRng::new(seeds.next().expect("a seed that makes all kinds")));
        (0..20).for_each(|_| drive.disk.lose_pages(&mut chooser, Extent::Covered, 1));
        if unreadable(&drive) == [true; 3] {
            break (drive, chooser);
        }
    };
    drive.disk.settle_unreadable(&mut chooser);
    assert_eq!(unreadable(&drive), [true; 3], "they are in use");
    drive.checkpoint(2, LAST, &FILLED[1..])?;
    drive.disk.settle_unreadable(&mut chooser);
    assert_eq!(unreadable(&drive), [false, true, true]);
    Ok(())
}

#[test]
fn a_filling_that_is_being_changed_or_is_not_whole_loses_nothing() -> Result<(), Failed> {
    let spoil = |page: u32, is_synced: bool| -> Result<BTreeSet<u32>, Failed> {
        let drive = Drive::new(512 << 10, ParityForm::Part32, 40, 1)?;
        drive.vouch(LAST)?;
        drive.disk.write(drive.page_offset(FILLED[0], page), &[9; PAGE_BYTES])?;
        if is_synced {
            drive.disk.sync()?;
        }
        let before = drive.content();
        assert!(loses(&drive));
        Ok(drive.differing(&before).into_keys().collect())
    };
    let others: BTreeSet<u32> = FILLED[1..].iter().copied().collect();
    let shape = ParityShape::new(512 << 10, ParityForm::Part32).expect("a form with parity");
    let [first, last] = shape.index_offsets().map(|offset| offset / PAGE_BYTES as u32);
    let parity = shape.parity_offset(1) / PAGE_BYTES as u32;
    for page in [0, 39, first, last, parity] {
        assert_eq!(spoil(page, true)?, others, "page {page}");
        assert_eq!(spoil(page, false)?, others, "page {page}");
    }
    // Behind the packs it is all the same, once it is durable.
    assert_eq!(spoil(50, false)?, others);
    assert_eq!(spoil(50, true)?, FILLED.into_iter().collect());
    Ok(())
}

#[test]
fn a_page_that_cannot_be_read_can_be_written() -> Result<(), Failed> {
    let drive = Drive::new(512 << 10, ParityForm::Part16, 80, 1)?;
    drive.vouch(LAST)?;
    let mut chooser = Chooser::new(SimRng::new(3));
    let mut unreadable = Vec::new();
    for _ in 0..20 {
        drive.disk.lose_pages(&mut chooser, Extent::Covered, 1);
        unreadable = (0..drive.disk.size_bytes() / PAGE)
            .filter(|at| drive.disk.read(at * PAGE, PAGE_BYTES).is_err())
            .collect();
    }
    assert!(!unreadable.is_empty());
    for at in unreadable {
        drive.disk.write(at * PAGE, &[7; PAGE_BYTES])?;
        assert_eq!(drive.disk.read(at * PAGE, PAGE_BYTES)?, [7; PAGE_BYTES]);
    }
    Ok(())
}

#[test]
fn a_new_filling_loses_pages_again() -> Result<(), Failed> {
    let drive = Drive::new(512 << 10, ParityForm::Part16, 80, 1)?;
    drive.vouch(LAST)?;
    let mut chooser = Chooser::new(SimRng::new(3));
    (0..60).for_each(|_| drive.disk.lose_pages(&mut chooser, Extent::Covered, 1));
    let all = chooser.counts().of_packs + chooser.counts().of_parity;
    assert_eq!(all, u64::from(drive.shape.groups()) * FILLED.len() as u64);
    let again = |generation, chooser: &mut Chooser| -> Result<u64, Failed> {
        drive.fill(FILLED[0], generation, &mut SimRng::new(2))?;
        drive.disk.sync()?;
        (0..60).for_each(|_| drive.disk.lose_pages(chooser, Extent::Covered, 1));
        Ok(chooser.counts().of_packs + chooser.counts().of_parity - all)
    };
    // What a filling has lost is remembered, whatever is there now.
    assert_eq!(again(1, &mut chooser)?, 0);
    assert_eq!(again(2, &mut chooser)?, u64::from(drive.shape.groups()));
    Ok(())
}
