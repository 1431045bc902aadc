//! A segment's row in the checkpoint's table.

mod common;

use layout::{SegmentRow, SegmentUse};
use proptest::prelude::*;

proptest! {
    #[test]
    fn decodes_what_was_encoded(row in common::segment_row()) {
        let mut bytes = [0xa5; 16];
        row.encode(&mut bytes);
        prop_assert_eq!(SegmentRow::decode(&bytes), Ok(row));
    }

    #[test]
    fn any_bytes_mean_what_they_encode_to(bytes: [u8; 16]) {
        match SegmentRow::decode(&bytes) {
            Ok(row) => {
                let mut again = [0; 16];
                row.encode(&mut again);
                prop_assert_eq!(again, bytes);
            }
            Err(_) => prop_assert_eq!(bytes[15] >> 6, 3),
        }
    }
}

#[test]
fn too_few_bytes_are_refused() {
    for len in 0..16 {
        assert!(SegmentRow::decode(&[0; 16][..len]).is_err());
    }
}

#[test]
fn use_and_sequence_share_a_word() {
    let row =
        SegmentRow { live_units: 1, generation: 2, last_sequence: (1 << 62) - 1, usage: SegmentUse::Damaged };
    let mut bytes = [0; 16];
    row.encode(&mut bytes);
    assert_eq!(bytes, [1, 0, 0, 0, 2, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 0b1011_1111]);
}
