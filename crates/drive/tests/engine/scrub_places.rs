//! Scrubs and deep checks of segments with parity: by place, dead pages, parity and its index, too.

use std::collections::{BTreeMap, BTreeSet};

use codec::testdata::random;
use drive::{CheckOptions, Drive, Fault};
use layout::{PAGE_BYTES, ParityForm, RecordKind};

use crate::common::Erased;
use crate::image::{Image, OnMedia};
use crate::protected::{BLOCK, BLOCKS, Host, PAGE};

/// What a scrub has read, verified and found.
struct Scrubbed {
    read_bytes: u64,
    records_count: u64,
    faults: Vec<Fault>,
}

fn scrub(host: &Host, drive: &Drive<Erased>) -> Scrubbed {
    let mut sum = Scrubbed { read_bytes: 0, records_count: 0, faults: Vec::new() };
    let mut next = Some(drive.scrub_begin().0);
    while let Some(position) = next {
        let step = host.tasks.run(drive.scrub_step(position)).expect("a step");
        sum.read_bytes += step.read_bytes;
        sum.records_count += step.records_count;
        sum.faults.extend(step.faults);
        next = step.next_block;
    }
    sum
}

/// A drive with what was overwritten in it, opened again.
fn used(form: ParityForm) -> (Host, Drive<Erased>) {
    let mut host = Host::new(form);
    let drive = host.open();
    host.write(&drive, 0..BLOCKS);
    host.write(&drive, 700..900);
    host.tasks.run(drive.close()).expect("close");
    let drive = host.open();
    (host, drive)
}

/// Damages pages that no record of a block overlaps any more, so many of one group in a segment.
fn damage_dead(host: &Host, drive: &Drive<Erased>, of_a_group: u64) -> u64 {
    let whole = host.read(drive);
    assert!(whole.is_empty());
    // Blocks 700 to 899 were written next to each other, and again elsewhere.
    let mut damaged = 0;
    for (segment, index) in host.segments() {
        let start = host.geometry.segment_offset(segment);
        let groups = u64::from(host.shape().groups());
        let pages = (0..of_a_group).map(|n| start + (u64::from(index.end()) / 2 + n * groups) * PAGE);
        let pages: Vec<u64> = pages.collect();
        let before: Vec<_> = pages.iter().map(|page| host.page(*page)).collect();
        pages.iter().for_each(|page| host.overwrite(*page, &random(*page, PAGE_BYTES)));
        let repaired = drive.status().parity.repaired_pages_count;
        let is_dead = host.read(drive).is_empty() && drive.status().parity.repaired_pages_count == repaired;
        match is_dead {
            true => damaged += of_a_group,
            false => pages.iter().zip(&before).for_each(|(page, before)| host.overwrite(*page, before)),
        }
    }
    damaged
}

#[test]
fn a_sound_drive_is_read_once() {
    for form in [ParityForm::Part32, ParityForm::Part16, ParityForm::None] {
        let (host, drive) = used(form);
        let sum = scrub(&host, &drive);
        assert_eq!(sum.faults, vec![], "{form:?}");
        assert_eq!(sum.records_count, BLOCKS, "{form:?}");
        let live = drive.status().physical_used_bytes;
        assert!(sum.read_bytes >= live * 9 / 10 && sum.read_bytes < live * 5 / 4, "{}", sum.read_bytes);
        assert_eq!(drive.status().parity.repaired_pages_count, 0);
    }
}

/// Dead pages, parity and either copy of its index: what lives in the segment moves to where it has a spare.
#[test]
fn what_no_read_would_find_is_found_and_moved() {
    for lost in 0..5 {
        let (host, drive) = used(ParityForm::Part32);
        let shape = host.shape();
        let [first, last] = shape.index_offsets();
        let mut count = 0;
        if lost == 0 {
            count = damage_dead(&host, &drive, 1);
            assert!(count > 0, "there are dead pages");
        } else {
            for (segment, _) in host.segments() {
                let start = host.geometry.segment_offset(segment);
                let places =
                    [vec![], vec![first], vec![last], vec![first, last], vec![shape.parity_offset(1)]];
                for place in &places[lost] {
                    host.overwrite(start + u64::from(*place), &random(1, PAGE_BYTES));
                    count += 1;
                }
            }
        }
        let report =
            host.tasks.run(drive.examine(CheckOptions { deep: true, ..CheckOptions::default() }, |_| {}));
        let report = report.expect("check");
        assert_eq!(report.faults, vec![], "case {lost}");
        // Segments in which nothing lives are not looked at.
        assert!((1..=count).contains(&report.protected_pages_bad_count), "case {lost}");
        assert_eq!(scrub(&host, &drive).faults, vec![], "case {lost}");
        assert!(drive.status().parity.repaired_pages_count > 0, "case {lost}");
        let worn = host.segments();
        host.settle(&drive);
        host.tasks.run(drive.checkpoint()).expect("checkpoint");
        assert!(host.segments() != worn, "case {lost}: nothing moved");
        let sum = scrub(&host, &drive);
        assert_eq!((sum.faults, sum.records_count), (vec![], BLOCKS), "case {lost}");
        host.tasks.run(drive.close()).expect("close");
        let mut host = host;
        let drive = host.open();
        host.assert_whole(&drive);
        let before = drive.status().parity.repaired_pages_count;
        scrub(&host, &drive);
        assert_eq!(drive.status().parity.repaired_pages_count, before, "case {lost}: all of it has moved");
    }
}

/// Beyond cover, but nothing lives there: nothing is lost.
#[test]
fn dead_pages_that_cannot_be_made_again_are_no_loss() {
    let (host, drive) = used(ParityForm::Part32);
    assert!(damage_dead(&host, &drive, 2) > 0, "there are dead pages");
    // It has tried pages that live, too.
    let before = drive.status().parity.lost_pages_count;
    let sum = scrub(&host, &drive);
    assert_eq!((sum.faults, sum.records_count), (vec![], BLOCKS));
    assert_eq!(drive.status().parity.lost_pages_count, before);
}

/// Records on both sides of pages that are lost: one read for both does not fail for what is between.
#[test]
fn lost_pages_between_two_records_harm_neither() {
    for form in [ParityForm::Part32, ParityForm::None] {
        let mut host = Host::new(form);
        let drive = host.open();
        host.write(&drive, 0..BLOCKS);
        (0..BLOCKS).step_by(6).for_each(|first| host.write(&drive, first..first + 3));
        host.tasks.run(drive.close()).expect("close");
        let image = Image::of_any(&host.media);
        let records = image.records(RecordKind::Data);
        // The newest of each block comes last.
        let newest: BTreeMap<u64, &OnMedia> =
            records.iter().map(|record| (record.header.block, record)).collect();
        let pages_of = |record: &OnMedia| {
            let end = record.payload() + u64::from(record.header.payload_len);
            (record.position / PAGE..end.div_ceil(PAGE)).map(|page| page * PAGE)
        };
        let live: BTreeSet<u64> = newest.values().flat_map(|record| pages_of(record)).collect();
        let written: BTreeSet<u64> = records.iter().flat_map(pages_of).collect();
        let drive = host.open();
        let dead: Vec<u64> = written.difference(&live).copied().collect();
        assert!(dead.len() > 400, "{}", dead.len());
        host.media.lost.lock().extend(dead.iter().map(|page| *page..page + PAGE));
        let mut bytes = vec![0; 60 * BLOCK as usize];
        for first in (0..BLOCKS).step_by(60) {
            host.tasks.run(drive.read(first * BLOCK, &mut bytes)).expect("read");
        }
        assert_eq!(drive.status().parity.lost_pages_count, 0);
        host.assert_whole(&drive);
    }
}

/// Beyond cover: each record that is lost is a fault, once, and no other.
#[test]
fn what_cannot_be_made_again_is_a_fault() {
    let (host, drive) = used(ParityForm::Part32);
    let groups = u64::from(host.shape().groups());
    let mut lost = Vec::new();
    for (segment, _) in host.segments() {
        let start = host.geometry.segment_offset(segment);
        let pages = [10, 10 + groups, 30].map(|page| start + page * PAGE);
        let before = pages.map(|at| host.page(at));
        pages.iter().for_each(|at| host.overwrite(*at, &random(*at, PAGE_BYTES)));
        lost = host.read(&drive);
        if !lost.is_empty() {
            break;
        }
        // Nothing lives there.
        pages.iter().zip(&before).for_each(|(at, bytes)| host.overwrite(*at, bytes));
    }
    let faults = scrub(&host, &drive).faults;
    assert!((1..=6).contains(&lost.len()), "{lost:?}");
    let count = lost.len();
    let named: Vec<u64> =
        faults.iter().filter_map(|fault| Some(fault.logical_offset_bytes? / 4096)).collect();
    assert_eq!(named.into_iter().collect::<BTreeSet<u64>>(), lost.into_iter().collect());
    assert_eq!(faults.len(), count);
}

/// Pages of one segment that cannot be read, and others that are wrong.
#[test]
fn unreadable_and_wrong_pages_of_one_segment_are_repaired() {
    for with_records in [false, true] {
        let (host, drive) = used(ParityForm::Part16);
        let groups = u64::from(host.shape().groups());
        for (segment, index) in host.segments() {
            let start = host.geometry.segment_offset(segment);
            let end = u64::from(index.end());
            for group in 0..groups.min(end) {
                let page = Some(group + groups * (group % 12)).filter(|page| *page < end).unwrap_or(group);
                let at = start + page * PAGE;
                match group % 2 {
                    0 => host.media.lost.lock().push(at..at + PAGE),
                    _ => host.overwrite(at, &random(at, PAGE_BYTES)),
                }
            }
        }
        if with_records {
            // From the first block on: segments are not read by place before.
            let mut next = Some(0);
            while let Some(position) = next {
                let step = host.tasks.run(drive.scrub_step(position)).expect("a step");
                assert_eq!(step.faults, vec![]);
                next = step.next_block;
            }
        } else {
            assert_eq!(scrub(&host, &drive).faults, vec![]);
        }
        host.assert_whole(&drive);
        assert!(drive.status().parity.repaired_pages_count > 0);
    }
}

/// New fillings have no parity any more: a scrub begins anew all the same, and reads what an earlier one has
/// read.
#[test]
fn a_scrub_after_parity_was_given_up_reads_everything() {
    let (host, drive) = used(ParityForm::Part32);
    assert_eq!(scrub(&host, &drive).faults, vec![]);
    host.tasks.run(drive.set_parity(ParityForm::None)).expect("no parity");
    let groups = u64::from(host.shape().groups());
    for (segment, _) in host.segments() {
        let start = host.geometry.segment_offset(segment);
        [10, 10 + groups]
            .iter()
            .for_each(|page| host.overwrite(start + page * PAGE, &random(*page, PAGE_BYTES)));
    }
    assert!(!scrub(&host, &drive).faults.is_empty());
}
