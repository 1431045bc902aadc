//! Records: header, payload, checksum.

mod common;

use common::{Spec, seal};
use layout::record::{
    RECORD_HEADER_BYTES, RecordHeader, decode_range, decode_record, encode_range, place_mask,
};
use layout::{DecodeError, Entry, RecordKind};
use proptest::prelude::*;

proptest! {
    #[test]
    fn decodes_what_was_encoded(spec in common::spec(), mask: u32, behind in 0..40_usize) {
        let mut bytes = spec.encode(mask);
        prop_assert!(bytes.len() % 16 == 0);
        bytes.resize(bytes.len() + behind, 0xee);
        let record = decode_record(&bytes, mask).expect("just encoded");
        let header = RecordHeader { crc: record.header.crc, ..spec.header() };
        prop_assert_eq!(record.header, header);
        prop_assert_eq!(record.payload, &spec.payload[..]);
    }

    #[test]
    fn another_mask_is_refused(spec in common::spec(), mask: u32, other: u32) {
        prop_assume!(mask != other);
        let bytes = spec.encode(mask);
        prop_assert_eq!(decode_record(&bytes, other), Err(DecodeError::Checksum("record")));
    }

    #[test]
    fn flipped_bit_is_refused(spec in common::spec(), mask: u32, bit in any::<prop::sample::Index>()) {
        let mut bytes = spec.encode(mask);
        // The padding behind the payload means nothing and is not covered.
        let bit = bit.index((RECORD_HEADER_BYTES + spec.payload.len()) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_record(&bytes, mask).is_err());
    }

    #[test]
    fn truncated_is_refused(spec in common::spec(), mask: u32, len in any::<prop::sample::Index>()) {
        let bytes = spec.encode(mask);
        let len = len.index(RECORD_HEADER_BYTES + spec.payload.len());
        prop_assert_eq!(decode_record(&bytes[..len], mask), Err(DecodeError::Truncated("record")));
    }

    /// What is accepted has a length that a map entry can hold.
    #[test]
    fn any_bytes_are_refused_or_fit_an_entry(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        len in prop::option::of(65_400..65_535_u16),
        kind in prop::sample::select(vec![1_u8, 2, 3, 4, 0x81, 0x84, 0, 5, 0x80]),
        mask: u32,
    ) {
        let mut bytes = bytes;
        let _ = decode_record(&bytes, mask);
        if let Some(len) = len {
            bytes.resize(66_000, 1);
            bytes[10..12].copy_from_slice(&len.to_le_bytes());
        }
        if bytes.len() > 12 {
            bytes[12] = kind;
        }
        seal::record(&mut bytes, mask);
        if let Ok(record) = decode_record(&bytes, mask) {
            let entry = record.header.entry_at(4096);
            prop_assert_eq!(entry.len_bytes(), record.header.record_len());
            prop_assert_eq!(entry.blocks(), record.header.blocks());
        }
    }

    #[test]
    fn range_decodes_as_encoded(count in 1..u64::MAX, word: Option<u32>) {
        let entry = word.map_or(Entry::UNMAPPED, Entry::fill);
        prop_assert_eq!(decode_range(&encode_range(count, entry)), Ok((count, entry)));
    }

    #[test]
    fn range_of_any_bytes_is_refused_or_a_range(payload in prop::collection::vec(any::<u8>(), 0..20)) {
        if let Ok((count, entry)) = decode_range(&payload) {
            prop_assert!(count > 0 && entry.is_valid() && !entry.is_record());
        }
    }
}

fn spec(kind: RecordKind) -> Spec {
    Spec { kind, block: 5, left_out: 0, codec: 0, extra: 0, payload: vec![7; 33] }
}

#[test]
fn unknown_kind_is_refused() {
    for kind in (0..=255_u8).filter(|kind| !(1..=4).contains(kind)) {
        let mut bytes = spec(RecordKind::Data).encode(0);
        bytes[12] = kind;
        seal::record(&mut bytes, 0);
        assert!(decode_record(&bytes, 0).is_err(), "kind {kind}");
    }
}

/// A frame's number of blocks is in the codec byte of data, and of nothing else.
#[test]
fn frames_have_2_4_or_8_blocks_and_begin_at_multiples_of_them() {
    let decoded = |kind, codec, block| {
        let bytes = Spec { codec, block, ..spec(kind) }.encode(0);
        decode_record(&bytes, 0).map(|record| record.header.blocks())
    };
    for (log, blocks) in [(0, 1), (1, 2), (2, 4), (3, 8), (8, 1), (11, 8)] {
        assert_eq!(decoded(RecordKind::Data, log << 4 | 2, 48), Ok(blocks));
        assert_eq!(decoded(RecordKind::Data, log << 4 | 2, 49).is_ok(), blocks == 1);
        assert_eq!(decoded(RecordKind::Overlay, log << 4, 49), Ok(1));
    }
    for codec in [0x40, 0x50, 0x60, 0x70, 0xf2] {
        assert!(decoded(RecordKind::Data, codec, 0).is_err(), "codec byte {codec:#x}");
    }
}

/// Twelve bits of an entry count the 16-byte units of a record, ten the 32-byte steps of a frame.
#[test]
fn record_longer_than_an_entry_can_tell_is_refused() {
    let of = |len: usize, codec: u8| {
        let bytes = Spec { payload: vec![1; len], codec, block: 0, ..spec(RecordKind::Data) }.encode(0);
        decode_record(&bytes, 0).map(|record| record.header.record_len())
    };
    assert_eq!(of(65_504, 0), Ok(65_520));
    assert!(of(65_505, 0).is_err() && of(65_535, 0).is_err());
    assert_eq!(of(32_720, 0x32), Ok(32_736));
    assert!(of(32_721, 0x32).is_err() && of(65_535, 0x32).is_err());
}

/// A range that covers nothing is never written.
#[test]
fn empty_range_is_refused() {
    assert!(decode_range(&encode_range(0, Entry::UNMAPPED)).is_err());
}

#[test]
fn range_with_a_record_or_malformed_entry_is_refused() {
    for entry in [Entry::record(4096, 64), Entry(1), Entry(u64::MAX), Entry(1 << 62)] {
        assert!(decode_range(&encode_range(1, entry)).is_err(), "{entry:?}");
    }
}

#[test]
fn range_of_another_length_is_refused() {
    for len in (0..40).filter(|len| *len != 16) {
        assert!(decode_range(&vec![0; len]).is_err());
    }
}

/// Near places, and near fillings of one place, have masks of their own.
#[test]
fn masks_of_neighbours_differ() {
    let mut masks = std::collections::HashSet::new();
    let mut count = 0_u64;
    for segment in 0..16 {
        for generation in 0..16 {
            for offset in (0..4096).step_by(16) {
                masks.insert(place_mask(0x1234_5678, segment, generation, offset));
                count += 1;
            }
        }
    }
    // 65,536 draws of 2^32 collide about once in two tries (birthday bound); a weak mix collides by the thousand.
    assert!(count - masks.len() as u64 <= 4, "{} masks of {count}", masks.len());
}
