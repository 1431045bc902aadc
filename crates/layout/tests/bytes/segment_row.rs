//! A segment's row in the checkpoint's table.

use layout::row::ROW_BYTES;
use layout::{ParityForm, SegmentRow, SegmentUse};
use proptest::prelude::*;

proptest! {
    #[test]
    fn decodes_what_was_encoded(row in crate::common::segment_row()) {
        let mut bytes = [0xa5; ROW_BYTES];
        row.encode(&mut bytes);
        prop_assert_eq!(SegmentRow::decode(&bytes), Ok(row));
    }

    #[test]
    fn any_bytes_mean_what_they_encode_to(bytes: [u8; ROW_BYTES], usage in 0..6_u8, narrow: bool) {
        let mut bytes = bytes;
        bytes[20] = usage;
        if narrow {
            bytes[15] &= 0x3f;
        }
        match SegmentRow::decode(&bytes) {
            Ok(row) => {
                let mut again = [0; ROW_BYTES];
                row.encode(&mut again);
                // The last two bytes mean nothing and are written as zero, and so are bits that do not.
                bytes[21] &= if bytes[21] & 0xf < 4 { 0x8f } else { 0x80 };
                bytes[22..].fill(0);
                prop_assert_eq!(again, bytes);
            }
            Err(_) => prop_assert!(usage > 3 || bytes[15] >> 6 != 0),
        }
    }
}

#[test]
fn too_few_bytes_are_refused() {
    for len in 0..ROW_BYTES {
        assert!(SegmentRow::decode(&[0; ROW_BYTES][..len]).is_err());
    }
}

#[test]
fn fields_are_where_the_format_has_them() {
    let row = SegmentRow {
        live_units: 0x0302_0100,
        generation: 0x0706_0504,
        last_sequence: 0x0f0e_0d0c_0b0a_0908,
        repackable_units: 0x1312_1110,
        usage: SegmentUse::Bad,
        parity: ParityForm::Part16,
        has_parity: true,
    };
    let mut bytes = [0xff; ROW_BYTES];
    row.encode(&mut bytes);
    assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 3, 0x83, 0, 0]);
}

#[test]
fn uses_have_their_numbers() {
    let uses = [SegmentUse::Free, SegmentUse::Used, SegmentUse::Damaged, SegmentUse::Bad];
    for (number, usage) in (0..).zip(uses) {
        let mut bytes = [0; ROW_BYTES];
        bytes[20] = number;
        assert_eq!(SegmentRow::decode(&bytes), Ok(SegmentRow { usage, ..SegmentRow::BLANK }));
    }
}

/// A page of the table is zero where there are no rows: read as rows, that is segments never used.
#[test]
fn blank_row_is_all_zeros() {
    let mut bytes = [0xff; ROW_BYTES];
    SegmentRow::BLANK.encode(&mut bytes);
    assert_eq!(bytes, [0; ROW_BYTES]);
}
