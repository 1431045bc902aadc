//! The table of segments: pages with a checksum each, of which a checkpoint writes only those that changed.

use crate::common::{encoded, seal};
use layout::table::{ROWS_A_PAGE, encode_page, page_of, page_rows, table_crc, table_pages};
use layout::{Checkpoint, DecodeError, PAGE_BYTES, SegmentRow, SegmentUse};
use proptest::prelude::*;

const STALE: DecodeError = DecodeError::Checksum("checkpoint table");
const MISPLACED: DecodeError = DecodeError::Field("checkpoint table", "page of another place");

/// Rows of three pages, each another one.
fn rows() -> Vec<SegmentRow> {
    (0..400)
        .map(|n| SegmentRow {
            live_units: 1000 + n,
            generation: 7 * n,
            last_sequence: u64::from(n) << 40,
            repackable_units: n,
            usage: SegmentUse::Used,
            ..SegmentRow::BLANK
        })
        .collect()
}

/// Bytes of page `page` of the table in an encoded checkpoint.
fn at(page: usize) -> std::ops::Range<usize> {
    (1 + page) * PAGE_BYTES..(2 + page) * PAGE_BYTES
}

/// A slot that holds `older`, written over with those of the pages of `newer` that `written` names; page 0 is
/// the header.
fn overwritten(older: &Checkpoint, newer: &Checkpoint, written: &[usize]) -> Result<Checkpoint, DecodeError> {
    let (mut slot, new) = (encoded(older), encoded(newer));
    for page in written {
        let bytes = page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
        slot[bytes.clone()].copy_from_slice(&new[bytes]);
    }
    Checkpoint::decode(&slot)
}

/// Two checkpoints of one slot: rows on the pages 0 and 2 of the table changed between them.
fn two_checkpoints() -> (Checkpoint, Checkpoint) {
    let older = Checkpoint { number: 10, ..crate::common::checkpoint_of(rows()) };
    let mut newer = Checkpoint { number: 12, ..older.clone() };
    newer.rows[169].live_units += 1;
    newer.rows[340].usage = SegmentUse::Bad;
    (older, newer)
}

#[test]
fn pages_that_did_not_change_need_not_be_written() {
    let (older, newer) = two_checkpoints();
    assert_eq!(encoded(&older)[at(1)], encoded(&newer)[at(1)]);
    assert_eq!(overwritten(&older, &newer, &[0, 1, 3]), Ok(newer));
}

/// A write of the slot that a power cut stopped, or that the medium lost in part: neither checkpoint is
/// there.
#[test]
fn page_left_from_an_older_checkpoint_is_found() {
    let (older, newer) = two_checkpoints();
    for written in [&[0][..], &[1], &[3], &[1, 3], &[0, 1], &[0, 3], &[0, 2, 3]] {
        assert_eq!(overwritten(&older, &newer, written), Err(STALE), "pages {written:?} written");
    }
}

/// A lost write of any single row, wherever it is.
#[test]
fn page_left_from_before_any_row_changed_is_found() {
    let older = crate::common::checkpoint_of(rows());
    for segment in 0..older.rows.len() {
        let mut newer = older.clone();
        newer.rows[segment].last_sequence += 1;
        let mut bytes = encoded(&newer);
        let page = at(page_of(segment as u32));
        bytes[page.clone()].copy_from_slice(&encoded(&older)[page]);
        assert_eq!(Checkpoint::decode(&bytes), Err(STALE), "row {segment}");
    }
}

#[test]
fn page_torn_between_two_checkpoints_is_found() {
    let (older, newer) = two_checkpoints();
    let old = encoded(&older);
    for sector in [8, 8 + 7, 24] {
        let mut bytes = encoded(&newer);
        let torn = sector * 512..(sector + 1) * 512;
        bytes[torn.clone()].copy_from_slice(&old[torn]);
        assert_eq!(Checkpoint::decode(&bytes), Err(STALE), "sector {sector}");
    }
}

#[test]
fn page_at_the_place_of_another_is_found() {
    let good = encoded(&crate::common::checkpoint_of(rows()));
    for (from, to) in [(0, 1), (1, 0), (0, 2), (2, 1)] {
        let mut bytes = good.clone();
        bytes.copy_within(at(from), at(to).start);
        assert_eq!(Checkpoint::decode(&bytes), Err(MISPLACED), "page {from} at the place of {to}");
        // As if the checkpoint had been meant so.
        seal::checkpoint(&mut bytes);
        assert_eq!(Checkpoint::decode(&bytes), Err(MISPLACED), "page {from} at the place of {to}");
    }
}

/// A page that is whole, has the right number, and rows of another drive or time.
#[test]
fn page_that_the_header_does_not_cover_is_found() {
    let checkpoint = crate::common::checkpoint_of(rows());
    for page in 0..3 {
        let mut bytes = encoded(&checkpoint);
        encode_page(page, &[SegmentRow::BLANK; 60], &mut bytes[at(page)]);
        assert_eq!(Checkpoint::decode(&bytes), Err(STALE), "page {page}");
        seal::checkpoint(&mut bytes);
        assert!(Checkpoint::decode(&bytes).is_ok(), "page {page}, covered");
    }
}

#[test]
fn every_flipped_bit_of_every_page_is_found() {
    // The second page has one row: zeros behind it are covered too.
    let mut bytes = encoded(&crate::common::checkpoint_of(rows()[..=ROWS_A_PAGE].to_vec()));
    assert_eq!(bytes.len(), 3 * PAGE_BYTES);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Checkpoint::decode(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    assert!(Checkpoint::decode(&bytes).is_ok());
}

/// Under right checksums: as many rows as the header says, from the pages that are there.
#[test]
fn number_of_rows_is_as_the_header_says_or_refused() {
    let rows = rows();
    let bytes = encoded(&crate::common::checkpoint_of(rows.clone()));
    for count in [0, 1, 169, 170, 171, 340, 341, 399, 400_usize] {
        let mut fewer = bytes.clone();
        fewer[56..60].copy_from_slice(&(count as u32).to_le_bytes());
        seal::checkpoint(&mut fewer);
        assert_eq!(Checkpoint::decode(&fewer).map(|found| found.rows), Ok(rows[..count].to_vec().into()));
    }
    for count in [511, 1 << 26, 1 << 31, u32::MAX] {
        let mut more = bytes.clone();
        more[56..60].copy_from_slice(&count.to_le_bytes());
        seal::checkpoint(&mut more);
        assert_eq!(Checkpoint::decode(&more), Err(DecodeError::Truncated("checkpoint")), "{count} rows");
    }
}

/// Bytes that mean nothing, under right checksums.
#[test]
fn bytes_written_as_zero_are_not_looked_at() {
    let checkpoint = crate::common::checkpoint_of(rows());
    let mut bytes = encoded(&checkpoint);
    let row = at(1).start + 16 + 24;
    let last = at(2).start + 16 + (400 - 340) * 24;
    for meaningless in [at(0).start + 8..at(0).start + 16, row + 22..row + 24, last..at(2).end] {
        bytes[meaningless].fill(0xff);
    }
    seal::checkpoint(&mut bytes);
    assert_eq!(Checkpoint::decode(&bytes), Ok(checkpoint));
}

proptest! {
    /// A header written alone, over pages written one by one, is the same checkpoint.
    #[test]
    fn pages_and_header_written_apart_are_the_same(checkpoint in crate::common::checkpoint()) {
        let rows = &checkpoint.rows;
        let mut bytes = vec![0xa5; Checkpoint::encoded_len(rows.len())];
        let mut crcs = Vec::new();
        for page in 0..table_pages(rows.len()) {
            crcs.push(encode_page(page, rows.page(page), &mut bytes[at(page)]));
        }
        let without_rows = Checkpoint { rows: layout::Rows::default(), ..checkpoint.clone() };
        without_rows.encode_header(rows.len() as u32, table_crc(&crcs), &mut bytes);
        prop_assert_eq!(bytes, encoded(&checkpoint));
    }

    #[test]
    fn every_segment_is_on_one_page(rows in 1..2000_usize) {
        let on_pages: Vec<usize> = (0..table_pages(rows)).flat_map(|page| page_rows(page, rows)).collect();
        prop_assert_eq!(on_pages, (0..rows).collect::<Vec<usize>>());
        for segment in 0..rows {
            prop_assert!(page_rows(page_of(segment as u32), rows).contains(&segment));
        }
    }

    /// As docs/reference/format.md has it: CRC32C of the pages' first four bytes, one behind the other.
    #[test]
    fn checksum_over_a_table_is_that_of_its_pages_checksums(crcs: Vec<u32>) {
        let list: Vec<u8> = crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect();
        prop_assert_eq!(table_crc(&crcs), crc32c::crc32c(&list));
    }
}
