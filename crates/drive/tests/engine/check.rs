//! Checking a drive: valid structures are counted, faults are reported with their place, and nothing is
//! changed.

use crate::common;
use crate::image;

use std::sync::Arc;

use codec::testdata::random;
use common::{Erased, assert_sound, erased, new_drive, open, run, spawner};
use drive::{CheckOptions, CheckProgress, CheckReport, CopyState, Drive, OpenOptions, Zeroes};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;

const BLOCK: u64 = 4096;
const PHYSICAL: u64 = 64 << 20;
const LOGICAL: u64 = 8 << 30;

fn options(deep: bool) -> CheckOptions {
    CheckOptions { deep, ..CheckOptions::default() }
}

/// Checks a drive like `pumice check`: nothing is written.
fn examine(media: &Arc<MemoryMedia>, deep: bool) -> CheckReport {
    let opening = OpenOptions { read_only: true, ..OpenOptions::new(9, spawner()) };
    let drive = run(Drive::open(erased(media.clone()), opening)).expect("open");
    run(drive.examine(options(deep), |_| {})).expect("check")
}

fn write(drive: &Drive<Erased>, block: u64) {
    run(drive.write(block * BLOCK, &random(block, BLOCK as usize), false)).expect("write");
}

/// Creates a closed drive with a block in each of `leaves` leaves, spread over four nodes above them, and a
/// fill.
fn spread(leaves: u64) -> (Arc<MemoryMedia>, Image) {
    let (media, drive) = new_drive(PHYSICAL, LOGICAL);
    (0..leaves).for_each(|i| write(&drive, place(i)));
    run(drive.write(place(leaves) * BLOCK, &[7; BLOCK as usize], false)).expect("write");
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    (media, image)
}

/// Block of leaf `i`. The leaves belong to four nodes in turn, in irregular order.
fn place(i: u64) -> u64 {
    (i % 4) * 512 * 512 + (i / 4 * 37 % 512) * 512 + i % 512
}

#[test]
fn a_sound_drive_is_counted() {
    let (media, _) = spread(400);
    let report = examine(&media, true);
    assert_eq!(report.faults, []);
    assert_eq!(report.records_count, 400);
    assert_eq!(report.records_verified_count, 400);
    assert_eq!(report.fills_count, 1);
    // The fill is in a separate leaf.
    assert_eq!(report.nodes_counts, [401, 4, 1, 1]);
    assert!(report.superblocks.iter().all(|found| matches!(found.state, CopyState::Whole { .. })));
    assert_eq!(report.checkpoints.len(), 4);
    let report = examine(&media, false);
    assert_eq!((report.records_count, report.records_verified_count), (400, 0));
}

#[test]
fn with_little_memory_it_takes_more_passes_and_finds_the_same() {
    let (media, image) = spread(400);
    let position = image.newest(RecordKind::Data, place(7)).position;
    image.flip_bit(position + 1);
    let whole = examine(&media, true);
    for records in [0, 1, 100, 300] {
        let drive = open(&media, 10 + records);
        let options = CheckOptions { deep: true, memory_bytes: records * 16 };
        let report = run(drive.examine(options, |_| {})).expect("check");
        assert_eq!(report.faults, whole.faults, "{records}");
        assert_eq!(report.records_verified_count, 399);
        assert_eq!(report.nodes_counts, whole.nodes_counts);
        run(drive.close()).expect("close");
    }
}

#[test]
fn progress_is_reported_to_the_end() {
    let (media, _) = spread(40);
    let drive = open(&media, 2);
    let mut steps = Vec::new();
    let report = run(drive.examine(options(true), |progress| steps.push(progress))).expect("check");
    assert_eq!(
        steps.iter().rfind(|steps| matches!(steps, CheckProgress::Map { .. })),
        Some(&CheckProgress::Map { nodes_count: report.nodes_counts.iter().sum() })
    );
    let total_bytes = report.records_bytes;
    assert_eq!(steps.last(), Some(&CheckProgress::Records { done_bytes: total_bytes, total_bytes }));
}

#[test]
fn changes_in_memory_count() {
    let (media, _) = spread(100);
    let drive = open(&media, 2);
    // Changes over images that are not loaded, in a new leaf, a trimmed block, a trimmed leaf, and a leaf
    // that becomes one fill.
    (0..50).for_each(|i| write(&drive, place(i)));
    write(&drive, 4 * 512 * 512 + 9);
    run(drive.trim(place(60) * BLOCK, BLOCK, false)).expect("trim");
    run(drive.trim(place(64) / 512 * 512 * BLOCK, 512 * BLOCK, false)).expect("trim");
    run(drive.write_zeroes(0, 512 * BLOCK, Zeroes::default())).expect("zeroes");
    assert_sound(&drive);
    let report = run(drive.examine(options(true), |_| {})).expect("check");
    assert!(report.owed_count > 0);
    run(drive.checkpoint()).expect("checkpoint");
    assert_sound(&drive);
    run(drive.close()).expect("close");
    assert_eq!(examine(&media, true).faults, []);
}

#[test]
fn a_bad_record_is_reported_with_all_its_places() {
    let (media, image) = spread(40);
    let record = image.newest(RecordKind::Data, place(7));
    image.flip_bit(record.payload() + 100);
    assert_eq!(examine(&media, false).faults, [], "only a deep check reads records");
    let report = examine(&media, true);
    assert_eq!(report.records_verified_count, 39);
    let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
    assert_eq!(fault.logical_offset_bytes, Some(place(7) * BLOCK));
    assert_eq!(fault.logical_len_bytes, Some(BLOCK));
    assert_eq!(fault.segment, image.geometry().locate(record.position).map(|(segment, _)| segment));
    assert_eq!(fault.position_bytes, Some(record.position));
    let line = fault.to_string();
    let offset = place(7) * BLOCK;
    assert!(line.contains(&format!("logical bytes {offset} to {}", offset + 4095)), "{line}");
    assert!(line.contains(&format!("byte {:#x} of the backing", record.position)), "{line}");
    assert!(line.contains("segment ") && line.contains("checksum"), "{line}");
}

#[test]
fn all_bad_records_of_a_read_are_reported_and_no_others() {
    let (media, image) = spread(60);
    let positions = [3, 4, 5, 31].map(|i| image.newest(RecordKind::Data, place(i)).position);
    positions.into_iter().for_each(|position| image.flip_bit(position + 1));
    let report = examine(&media, true);
    let mut bad: Vec<_> = report.faults.iter().filter_map(|fault| fault.logical_offset_bytes).collect();
    bad.sort_unstable();
    let mut expected = [3, 4, 5, 31].map(|i| place(i) * BLOCK);
    expected.sort_unstable();
    assert_eq!(bad, expected);
    assert_eq!(report.faults_count, 4);
}

#[test]
fn a_bad_node_is_reported_with_the_range_it_maps() {
    for level in 0..3_u16 {
        let (media, image) = spread(40);
        // The checkpoint of a later run follows, so that opening does not read the nodes.
        run(open(&media, 2).close()).expect("close");
        let node = image.node(level, 0);
        image.flip_bit(node.payload() + 3);
        let report = examine(&media, false);
        let bytes = (BLOCK * 512) << (9 * level);
        let fault = report.faults.iter().find(|fault| fault.position_bytes == Some(node.position));
        let fault = fault.unwrap_or_else(|| panic!("{:?}", report.faults));
        let bytes = bytes.min(LOGICAL);
        assert_eq!((fault.logical_offset_bytes, fault.logical_len_bytes), (Some(0), Some(bytes)));
        assert!(fault.to_string().contains(&format!("map node 0 of level {level}")), "{fault}");
    }
}

#[test]
fn a_bad_node_costs_nothing_beyond_the_capacity() {
    let (media, drive) = new_drive(PHYSICAL, 3 << 20);
    write(&drive, 600);
    run(drive.close()).expect("close");
    run(open(&media, 2).close()).expect("close");
    let image = Image::of(&media);
    for (level, index, (from, len)) in
        [(0, 1, (2 << 20, 1 << 20)), (1, 0, (0, 3 << 20)), (2, 0, (0, 3 << 20)), (3, 0, (0, 3 << 20))]
    {
        let node = image.node(level, index);
        image.flip_bit(node.payload() + 3);
        let report = examine(&media, false);
        image.flip_bit(node.payload() + 3);
        let fault = report.faults.iter().find(|fault| fault.position_bytes == Some(node.position));
        let fault = fault.unwrap_or_else(|| panic!("level {level}: {:?}", report.faults));
        assert_eq!((fault.logical_offset_bytes, fault.logical_len_bytes), (Some(from), Some(len)));
        // The root leads to the drive's own blocks too.
        assert_eq!(fault.to_string().contains("dictionaries"), level == 3, "{fault}");
    }
}

#[test]
fn a_missing_copy_of_the_superblock_is_a_fault_that_costs_nothing() {
    for (copy, damage) in [(0_u64, true), (1, true), (0, false), (1, false)] {
        let (media, image) = spread(4);
        match damage {
            true => image.flip_bit(copy * 65536 + 40),
            false => image.zero(copy * 65536, 4096),
        }
        let report = examine(&media, true);
        let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
        assert!(fault.spare && fault.position_bytes == Some(copy * 65536), "{fault:?}");
        let why = if damage { "is damaged" } else { "is missing" };
        let line = fault.to_string();
        assert!(line.contains(&format!("copy {copy} of the superblock {why}")), "{line}");
    }
}

#[test]
fn each_copy_of_each_checkpoint_is_looked_at() {
    for back in 0..2 {
        for copy in 0..2 {
            let (media, image) = spread(4);
            let number = image.newest_checkpoint() - back;
            let position = image.copies_of(number)[copy];
            // In the header, and in the table.
            for at in [60, 4096 + 20] {
                image.flip_bit(position + at);
                let report = examine(&media, false);
                let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
                assert!(fault.spare && fault.position_bytes == Some(position), "{fault:?}");
                let line = fault.to_string();
                assert!(line.contains(&format!("copy {copy} of checkpoint {number} is damaged")), "{line}");
                image.flip_bit(position + at);
            }
            assert_eq!(examine(&media, false).faults, []);
        }
    }
}

#[test]
fn half_a_checkpoint_after_a_power_cut_is_no_fault() {
    let (media, drive) = new_drive(PHYSICAL, LOGICAL);
    write(&drive, 0);
    run(drive.checkpoint()).expect("checkpoint");
    drop(drive);
    let image = Image::of(&media);
    image.flip_bit(image.copies_of(image.newest_checkpoint())[1] + 60);
    let report = examine(&media, true);
    assert_eq!(report.faults, []);
    let damaged = report.checkpoints.iter().filter(|found| matches!(found.state, CopyState::Damaged(_)));
    assert_eq!(damaged.count(), 1, "reported all the same: {:?}", report.checkpoints);
}

#[test]
fn a_new_drive_has_no_checkpoint_before_its_first() {
    let media = Arc::new(MemoryMedia::new(PHYSICAL));
    run(Drive::create(&*media, &common::create_options(PHYSICAL, LOGICAL))).expect("create");
    assert_eq!(examine(&media, true).faults, []);
}

#[test]
fn a_table_that_does_not_add_up_is_reported() {
    let (media, image) = spread(40);
    let record = image.newest(RecordKind::Data, place(0));
    let (segment, _) = image.geometry().locate(record.position).expect("inside");
    image.change_checkpoints(|checkpoint| checkpoint.rows[segment as usize].live_units += 1);
    let report = examine(&media, false);
    let [fault] = &report.faults[..] else { panic!("{:?}", report.faults) };
    assert_eq!(fault.segment, Some(segment));
    assert!(fault.to_string().contains("the table says"), "{fault}");
    image.change_checkpoints(|checkpoint| {
        checkpoint.rows[segment as usize].live_units -= 1;
        checkpoint.live_blocks += 1;
    });
    let report = examine(&media, false);
    assert!(report.faults[0].to_string().contains("are counted"), "{:?}", report.faults);
}

#[test]
fn overlapping_records_are_reported() {
    let (media, drive) = new_drive(PHYSICAL, LOGICAL);
    [0, 6].into_iter().for_each(|block| write(&drive, block));
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    // Leaf 0 gets a second entry for the record of block 0.
    let record = image.newest(RecordKind::Data, 0);
    let leaf = image.node(0, 0);
    assert_eq!(leaf.header.codec, 1, "pairs");
    let mut pair = 5_u16.to_le_bytes().to_vec();
    pair.extend_from_slice(&record.entry().0.to_le_bytes());
    // It replaces the second pair of the leaf.
    image.change(&leaf, leaf.payload() + u64::from(leaf.header.payload_len) - 10, &pair);
    let report = examine(&media, true);
    let said: Vec<String> = report.faults.iter().map(ToString::to_string).collect();
    assert!(said.iter().any(|line| line.contains("overlaps")), "{said:?}");
    assert!(said.iter().any(|line| line.contains("it is the record of block 0")), "{said:?}");
}

#[test]
fn more_faults_than_are_listed_are_counted() {
    let (media, drive) = new_drive(PHYSICAL, LOGICAL);
    (0..1200).for_each(|block| write(&drive, block));
    run(drive.close()).expect("close");
    let image = Image::of(&media);
    for record in image.records(RecordKind::Data) {
        image.flip_bit(record.position + 2);
    }
    let report = examine(&media, true);
    assert_eq!((report.faults.len(), report.faults_count), (1000, 1200));
}

#[test]
fn what_a_wipe_left_behind_is_no_fault() {
    let (media, _) = spread(40);
    for _ in 0..2 {
        run(Drive::wipe(&*media, drive::WipeOptions::any())).expect("wipe");
        let report = examine(&media, true);
        assert_eq!(report.faults, []);
        let blanked = report.checkpoints.iter().filter(|found| found.state == CopyState::Blank);
        assert_eq!(blanked.count(), 2, "{:?}", report.checkpoints);
    }
    // Once the drive is used again, all copies must be present.
    let drive = open(&media, 7);
    write(&drive, 3);
    run(drive.close()).expect("close");
    assert_eq!(examine(&media, true).faults, []);
    let image = Image::of(&media);
    let older = image.copies_of(image.newest_checkpoint() - 1)[0];
    image.flip_bit(older + 60);
    assert_eq!(examine(&media, true).faults.len(), 1);
}
