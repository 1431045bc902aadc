//! Parity: pages that are lost or are not as they were written are made again, records on them move, and what
//! cannot be made again is an error and never wrong data.

use std::sync::atomic::Ordering::SeqCst;

use codec::testdata::random;
use drive::{Error, Planted, PlantedBug};
use layout::{PAGE_BYTES, PackHeader, ParityForm, ParityIndex, ParityShape};

use crate::image::Image;
use crate::protected::{BLOCK, BLOCKS, Host, PAGE, SEGMENT, contents};

/// Every segment of a drive that was closed has parity, and every page is a member with its checksum.
#[test]
fn a_closed_drive_is_covered_whole() {
    for form in [ParityForm::Part32, ParityForm::Part64, ParityForm::Part16] {
        let mut host = Host::filled(form);
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
        let mut host = Host::filled(form);
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
    let mut host = Host::filled(ParityForm::Part32);
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
    let mut host = Host::filled(ParityForm::Part32);
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
        let parity = drive.status().parity;
        assert!(parity.repaired_pages_count > 0 && parity.last_repaired_byte.is_some());
    }
}

/// A flush, and the pack ends exactly where the room of its segment does: what vouches for it goes elsewhere.
#[test]
fn a_flush_at_the_end_of_a_segment_is_vouched_for() {
    let mut host = Host::with_physical(ParityForm::Part32, 28 << 20);
    let drive = host.open();
    let room = host.shape().room_pages();
    let image = Image::of_any(&host.media);
    let mut ends_there = 0;
    for round in 0..u64::from(room) * 3 {
        host.tasks.run(drive.write(round * BLOCK, &[round as u8; 5], false)).expect("write");
        host.tasks.run(drive.flush()).expect("flush");
        if round % 5 == 0 {
            // Without what vouches for it, so that the count of packs becomes odd.
            continue;
        }
        (0..3).for_each(|_| {
            drive.tick();
            host.tasks.turn();
        });
        if round % u64::from(room) < u64::from(room) / 4 {
            continue;
        }
        let packs = image.packs();
        let with_records = packs.iter().rfind(|(_, header)| header.records > 0).expect("packs");
        let end = with_records.1.offset + with_records.1.len;
        ends_there += u32::from(end == host.shape().room_bytes());
        let vouched = packs.iter().map(|(_, header)| header.durable).max();
        assert!(vouched >= Some(with_records.1.sequence), "round {round}, which ends at {end}");
    }
    assert!(ends_there > 0, "no pack ended there");
}

/// A head's packs fill the room of its segment when the server is killed. What cannot be read behind them is
/// parity, where the log does not go on.
#[test]
fn parity_behind_the_end_of_the_log_need_not_be_readable() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    let image = Image::of_any(&host.media);
    let room = host.shape().room_bytes();
    host.write(&drive, 0..20);
    // A page for each of these.
    let tiny = BLOCKS * BLOCK;
    let full = (0..=255).find_map(|value| {
        host.tasks.run(drive.write(tiny, &[value; 5], true)).expect("write");
        let headers = image.packs().into_iter().map(|(_, header)| header);
        let newest = headers.max_by_key(|header| header.sequence);
        newest.filter(|header| header.offset + header.len == room).map(|header| (header, value))
    });
    let (full, value) = full.expect("no pack ends there");
    drop(drive);
    let start = host.geometry.segment_offset(full.segment);
    let parity = start + u64::from(room)..start + u64::from(host.geometry.segment_bytes);
    host.media.lost.lock().push(parity);
    let drive = host.open();
    host.assert_whole(&drive);
    let mut bytes = [0; 5];
    host.tasks.run(drive.read(tiny, &mut bytes)).expect("read");
    assert_eq!(bytes, [value; 5]);
}

/// What parity needs cannot be read for a while: that is an error of reading, and nothing is given up.
#[test]
fn what_lacks_reads_is_not_damaged() {
    let mut host = Host::filled(ParityForm::Part32);
    let groups = u64::from(host.shape().groups());
    let mut hidden = Vec::new();
    for (segment, index) in host.segments() {
        let start = host.geometry.segment_offset(segment);
        for page in 0..groups.min(u64::from(index.end())) {
            host.overwrite(start + page * PAGE, &[0; PAGE_BYTES]);
        }
        // The list itself, or one other page of each group.
        match segment % 2 {
            0 => hidden.extend(
                host.shape().index_offsets().map(|at| start + u64::from(at)..start + u64::from(at) + 1),
            ),
            _ => hidden.push(start + groups * PAGE..start + 2 * groups * PAGE),
        }
    }
    let drive = host.open();
    *host.media.lost.lock() = hidden;
    let mut bytes = vec![0; BLOCK as usize];
    for block in 0..BLOCKS {
        match host.tasks.run(drive.read(block * BLOCK, &mut bytes)) {
            Ok(()) => assert!(bytes == contents(block, 1), "block {block}"),
            Err(Error::Io(_)) => {}
            Err(other) => panic!("block {block}: {other}"),
        }
    }
    host.settle(&drive);
    let status = drive.status();
    assert!(status.counters.read_errors_count > 0);
    assert_eq!((status.counters.corrupt_records_count, status.segments_damaged_count), (0, 0));
    host.media.lost.lock().clear();
    host.assert_whole(&drive);
}

/// Neither copy of an index is left: what is lost counts all the same.
#[test]
fn what_is_lost_with_both_indexes_counts() {
    let mut host = Host::filled(ParityForm::Part32);
    let (segment, _) = host.segments()[2];
    let start = host.geometry.segment_offset(segment);
    for offset in host.shape().index_offsets() {
        host.overwrite(start + u64::from(offset), &[0; PAGE_BYTES]);
    }
    host.overwrite(start + 20 * PAGE, &[0; PAGE_BYTES]);
    let drive = host.open();
    let lost = host.read(&drive).len();
    assert!((1..=2).contains(&lost), "{lost}");
    let count = drive.status().parity.lost_pages_count;
    assert!((1..=2).contains(&count), "{count}");
    host.read(&drive);
    assert_eq!(drive.status().parity.lost_pages_count, count, "once");
}

/// More pages than are kept in memory: each counts once, and a run is one event.
#[test]
fn pages_count_once() {
    let mut host = Host::filled(ParityForm::Part16);
    let mut lost = 0;
    for (segment, index) in host.segments() {
        let run = host.shape().groups().min(index.end());
        host.overwrite(host.geometry.segment_offset(segment), &random(3, (u64::from(run) * PAGE) as usize));
        lost += u64::from(run);
    }
    // More than an hour's repairs make a failing backing of it, if each page is one.
    for _ in 0..2 {
        let drive = host.open();
        (0..3).for_each(|_| host.assert_whole(&drive));
        let parity = drive.status().parity;
        assert!(parity.repaired_pages_count <= lost && parity.repaired_pages_count > lost / 2, "{parity:?}");
        assert!(!parity.is_failing);
    }
}

/// All pages of a segment but its parity are lost. For a record, one page of each of its groups is asked for
/// beside its own: a disk may take seconds for each that fails.
#[test]
fn what_is_lost_is_not_read_on() {
    let mut host = Host::filled(ParityForm::Part32);
    let (segment, index) = host.segments().swap_remove(2);
    let start = host.geometry.segment_offset(segment);
    let drive = host.open();
    host.media.lost.lock().push(start..start + u64::from(index.end()) * PAGE);
    let asked = || host.media.failed_reads.load(SeqCst);
    let mut most = 0;
    for block in 0..BLOCKS {
        let (before, mut bytes) = (asked(), vec![0; BLOCK as usize]);
        let _ = host.tasks.run(drive.read(block * BLOCK, &mut bytes));
        most = most.max(asked() - before);
    }
    assert!((1..20).contains(&most), "{most}");
}

/// A full drive: what lost pages is moved to where it has a spare, because that frees as much as it takes.
#[test]
fn a_full_drive_moves_what_lost_pages() {
    let mut host = Host::with_physical(ParityForm::Part32, 28 << 20);
    let drive = host.open();
    let record = BLOCK + layout::record::RECORD_HEADER_BYTES as u64;
    let full = drive.space().1 / record * 92 / 100;
    host.versions.resize(full as usize, 0);
    host.write(&drive, 0..full - 20);
    host.write(&drive, full / 3..full / 2);
    host.tasks.run(drive.close()).expect("close");
    let groups = u64::from(host.shape().groups());
    let before = host.segments();
    let lose = |host: &Host, segment: u32, page: u64| {
        host.overwrite(host.geometry.segment_offset(segment) + page * PAGE, &random(page, PAGE_BYTES));
    };
    before.iter().for_each(|(segment, _)| lose(&host, *segment, 5));
    let drive = host.open();
    host.assert_whole(&drive);
    (0..5).for_each(|_| host.settle(&drive));
    host.tasks.run(drive.close()).expect("close");
    // Another page of the same groups, where the same filling is still in use.
    for (segment, index) in host.segments() {
        let is_same =
            |(before, of): &(u32, ParityIndex)| *before == segment && of.generation == index.generation;
        if before.iter().any(is_same) {
            lose(&host, segment, 5 + groups);
        }
    }
    let drive = host.open();
    host.assert_whole(&drive);
}

/// The planted mistake: what was on repaired pages stays there, and the next opening finds it again.
#[test]
fn records_that_stay_on_repaired_pages_are_found_again() {
    let repaired_again = |planted: Planted| {
        let mut host = Host::filled(ParityForm::Part32);
        for (segment, _) in host.segments() {
            let start = host.geometry.segment_offset(segment);
            host.overwrite(start + 5 * PAGE, &random(5, PAGE_BYTES));
        }
        let drive = host.open_with(planted);
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

/// The medium is slow to take parity: no flush waits for it, and only that of some fillings waits in memory.
/// The rest is made from the medium, before the drive is closed at the latest.
#[test]
fn parity_that_waits_takes_bounded_memory() {
    for closes_at_once in [false, true] {
        let mut host = Host::new(ParityForm::Part32);
        host.versions.resize(11_000, 0);
        let drive = host.open();
        *host.media.held.lock() = host.parity_places();
        host.write(&drive, 0..11_000);
        let waiting = drive.status().parity.uncovered_segments_count;
        assert!(waiting >= 5, "{waiting}");
        host.media.held.lock().clear();
        if !closes_at_once {
            (0..5).for_each(|_| host.settle(&drive));
            assert_eq!(drive.status().parity.uncovered_segments_count, 0);
        }
        host.tasks.run(drive.close()).expect("close");
        for (segment, _) in host.segments() {
            host.overwrite(host.geometry.segment_offset(segment) + 2 * PAGE, &random(2, PAGE_BYTES));
        }
        let drive = host.open();
        host.assert_whole(&drive);
    }
}

/// The medium takes no parity at all: segments are set aside up to a limit, and the others count as
/// uncovered.
#[test]
fn parity_that_is_not_taken_is_counted() {
    let mut host = Host::new(ParityForm::Part32);
    let drive = host.open();
    *host.media.unwritable.lock() = host.parity_places();
    host.write(&drive, 0..BLOCKS);
    host.write(&drive, 0..BLOCKS);
    let status = drive.status();
    assert!(status.parity.uncovered_segments_count > 0, "{:?}", status.notes);
    assert!(status.notes.iter().any(|note| note.contains("has no parity")), "{:?}", status.notes);
    host.assert_whole(&drive);
}

/// A crash may take some pieces of parity: an index alone does not show that the rest is there.
#[test]
fn parity_that_a_crash_took_in_part_is_made_again() {
    for lost in 0..3 {
        let mut host = Host::new(ParityForm::Part32);
        let drive = host.open();
        host.write(&drive, 0..1200);
        drop(drive);
        let shape = host.shape();
        let segments = host.segments();
        assert!(segments.len() > 2, "{}", segments.len());
        let [first, last] = shape.index_offsets();
        let lost = [first, shape.parity_offset(2), last][lost];
        for (segment, _) in &segments {
            host.overwrite(host.geometry.segment_offset(*segment) + u64::from(lost), &[0; PAGE_BYTES]);
        }
        let drive = host.open();
        host.settle(&drive);
        assert_eq!(drive.status().parity.uncovered_segments_count, 0);
        for (segment, _) in &segments {
            let start = host.geometry.segment_offset(*segment);
            assert!(host.page(start + u64::from(lost)).iter().any(|byte| *byte != 0), "at {lost}");
            host.overwrite(start + 2 * PAGE, &random(2, PAGE_BYTES));
        }
        host.assert_whole(&drive);
    }
}

/// What cannot be made again is not tried at every read, but after a while it is.
#[test]
fn what_is_lost_is_tried_again_later() {
    let mut host = Host::filled(ParityForm::Part32);
    let groups = u64::from(host.shape().groups());
    let (segment, _) = host.segments()[2];
    let start = host.geometry.segment_offset(segment);
    let pages = [20, 20 + groups].map(|page| start + page * PAGE);
    pages.iter().for_each(|page| host.media.lost.lock().push(*page..page + PAGE));
    let drive = host.open();
    let lost = host.read(&drive);
    assert!(!lost.is_empty());
    let count = drive.status().parity.lost_pages_count;
    let reads = || drive.status().counters.physical_read_bytes;
    let before = reads();
    assert!(host.tasks.run(drive.read(lost[0] * BLOCK, &mut [0; BLOCK as usize])).is_err());
    assert!(reads() - before < 8 * PAGE, "its group is not read: {}", reads() - before);
    // The disk reads them again, as disks do now and then.
    host.media.lost.lock().clear();
    assert_eq!(drive.status().parity.lost_pages_count, count, "they are counted once");
    host.assert_whole(&drive);
    // One of them is lost for good.
    host.media.lost.lock().push(pages[0]..pages[0] + PAGE);
    (0..200).for_each(|_| drive.tick());
    host.assert_whole(&drive);
    assert!(drive.status().parity.repaired_pages_count > 0);
}

/// A page that was made again is answered from memory until what lives on it has moved.
#[test]
fn a_page_is_made_again_once() {
    let mut host = Host::filled(ParityForm::Part32);
    let (segment, _) = host.segments()[2];
    let start = host.geometry.segment_offset(segment);
    host.media.lost.lock().push(start + 5 * PAGE..start + 6 * PAGE);
    let drive = host.open();
    let before = drive.status().counters;
    let mut read_bytes = Vec::new();
    for _ in 0..4 {
        assert_eq!(host.read(&drive), Vec::<u64>::new());
        read_bytes.push(drive.status().counters.physical_read_bytes);
    }
    assert_eq!(drive.status().parity.repaired_pages_count, 1);
    let answered = drive.status().counters.corrected_reads_count - before.corrected_reads_count;
    assert!(answered >= 4, "{answered}");
    let a_group = 20 * PAGE;
    let first = read_bytes[0] - before.physical_read_bytes;
    assert!(read_bytes[3] - read_bytes[2] + a_group < first, "{read_bytes:?}");
}

/// A filling whose parity was made twice, because a crash took its end: a copy of the index that was not
/// written the second time names other pages. The other copy is right.
#[test]
fn an_outdated_copy_of_the_index_harms_nobody() {
    for copy in 0..2 {
        let mut host = Host::filled(ParityForm::Part32);
        let shape = host.shape();
        let (segment, index) = host.segments().into_iter().next().expect("a segment with parity");
        let mut outdated = ParityIndex { last_sequence: index.last_sequence + 3, ..index };
        outdated.parity.iter_mut().for_each(|sum| *sum ^= 1);
        let mut bytes = vec![0; shape.index_bytes()];
        outdated.encode(&shape, &mut bytes);
        let start = host.geometry.segment_offset(segment);
        host.overwrite(start + u64::from(shape.index_offsets()[copy]), &bytes);
        host.overwrite(start + 5 * PAGE, &[9; PAGE_BYTES]);
        let drive = host.open();
        host.assert_whole(&drive);
        assert!(drive.status().parity.repaired_pages_count > 0, "copy {copy}");
    }
}

/// Two pages of a group are lost one after the other: the first is in memory, and makes the second again.
#[test]
fn a_page_in_memory_makes_another_again() {
    for unreadable in [false, true] {
        let mut host = Host::filled(ParityForm::Part32);
        let groups = u64::from(host.shape().groups());
        let segments = host.segments();
        let drive = host.open();
        for round in 0..2 {
            for (segment, _) in &segments {
                let at = host.geometry.segment_offset(*segment) + (5 + round * groups) * PAGE;
                match unreadable {
                    true => host.media.lost.lock().push(at..at + PAGE),
                    false => host.overwrite(at, &random(at, PAGE_BYTES)),
                }
            }
            assert_eq!(host.read(&drive), Vec::<u64>::new(), "round {round}");
        }
        assert_eq!(drive.status().parity.lost_pages_count, 0);
        host.settle(&drive);
        host.tasks.run(drive.close()).expect("close");
        host.media.lost.lock().clear();
        let drive = host.open();
        host.assert_whole(&drive);
        assert_eq!(drive.status().parity.repaired_pages_count, 0, "all of it has moved");
    }
}

/// What a power cut took from the end of the log stays missing, although the parity of its segment survived
/// and could make it again. With the planted mistake it comes back.
#[test]
fn parity_does_not_lengthen_a_log() {
    let survivors = |planted: Planted| {
        let mut host = Host::new(ParityForm::Part32);
        let drive = host.open();
        for block in 0..600 {
            host.versions[block as usize] = 1;
            host.tasks.run(drive.write(block * BLOCK, &contents(block, 1), false)).expect("write");
        }
        for _ in 0..50 {
            host.tasks.turn();
        }
        drop(drive);
        let (segment, index) = host.segments().remove(0);
        let start = host.geometry.segment_offset(segment);
        let is_pack = |page: &u32| PackHeader::decode(&host.page(start + u64::from(*page) * PAGE)).is_ok();
        let last = (0..index.end()).rfind(is_pack).expect("a pack");
        host.overwrite(start + u64::from(last) * PAGE, &[0; PAGE_BYTES]);
        let drive = host.open_with(planted);
        let holds = |block: &u64| {
            let mut bytes = vec![0; BLOCK as usize];
            host.tasks.run(drive.read(block * BLOCK, &mut bytes)).expect("read");
            assert!(bytes == contents(*block, 1) || bytes.iter().all(|byte| *byte == 0), "block {block}");
            bytes == contents(*block, 1)
        };
        (0..600).filter(holds).count()
    };
    let rightly = survivors(Planted::default());
    assert!((1..256).contains(&rightly), "{rightly}");
    if Planted::IS_POSSIBLE {
        assert!(survivors(Planted::new(Some(PlantedBug::TornTailRemade))) > rightly);
    }
}

/// A segment is not filled again while its parity is on the way to the medium, also if nothing lives there
/// any more. With the planted mistake it is.
#[test]
fn a_segment_is_not_filled_again_while_its_parity_is_written() {
    let fills = |planted: Planted| {
        let mut host = Host::new(ParityForm::Part32);
        let drive = host.open_with(planted);
        let segment = 0;
        let start = host.geometry.segment_offset(segment);
        let room = start + u64::from(host.shape().room_bytes());
        host.media.held.lock().push(room..start + u64::from(SEGMENT));
        host.write(&drive, 0..400);
        assert!(host.media.attempts_at(&(room..room + PAGE)) > 0, "its parity is written");
        let before = host.media.attempts_at(&(start..start + PAGE));
        assert!(before > 0);
        for _ in 0..20 {
            host.write(&drive, 0..1500);
            host.tasks.run(drive.checkpoint()).expect("checkpoint");
        }
        let after = host.media.attempts_at(&(start..start + PAGE));
        host.media.held.lock().clear();
        host.settle(&drive);
        host.assert_whole(&drive);
        after - before
    };
    assert_eq!(fills(Planted::default()), 0);
    if Planted::IS_POSSIBLE {
        assert!(fills(Planted::new(Some(PlantedBug::ParityUnpinned))) > 0);
    }
}
