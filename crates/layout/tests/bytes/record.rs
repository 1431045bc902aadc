//! Records: header, payload, checksum.

use crate::common::{Spec, seal};
use layout::record::{
    RECORD_HEADER_BYTES, RecordHeader, decode_range, decode_record, encode_range, place_mask,
};
use layout::{DecodeError, Entry, RecordKind};
use proptest::prelude::*;

proptest! {
    #[test]
    fn decodes_what_was_encoded(spec in crate::common::spec(), mask: u32, behind in 0..40_usize) {
        let mut bytes = spec.encode(mask);
        prop_assert!(bytes.len() % 16 == 0);
        bytes.resize(bytes.len() + behind, 0xee);
        let record = decode_record(&bytes, mask).expect("just encoded");
        let header = RecordHeader { crc: record.header.crc, ..spec.header() };
        prop_assert_eq!(record.header, header);
        prop_assert_eq!(record.payload, &spec.payload[..]);
    }

    #[test]
    fn another_mask_is_refused(spec in crate::common::spec(), mask: u32, other: u32) {
        prop_assume!(mask != other);
        let bytes = spec.encode(mask);
        prop_assert_eq!(decode_record(&bytes, other), Err(DecodeError::Checksum("record")));
    }

    #[test]
    fn flipped_bit_is_refused(spec in crate::common::spec(), mask: u32, bit in any::<prop::sample::Index>()) {
        let mut bytes = spec.encode(mask);
        // The padding behind the payload means nothing and is not covered.
        let bit = bit.index((RECORD_HEADER_BYTES + spec.payload.len()) * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(decode_record(&bytes, mask).is_err());
    }

    #[test]
    fn truncated_is_refused(spec in crate::common::spec(), mask: u32, len in any::<prop::sample::Index>()) {
        let bytes = spec.encode(mask);
        let len = len.index(RECORD_HEADER_BYTES + spec.payload.len());
        prop_assert_eq!(decode_record(&bytes[..len], mask), Err(DecodeError::Truncated("record")));
    }

    /// An accepted header has a length that a map entry can hold.
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

/// Those of the 256 sets of blocks that a header may leave out.
fn allowed_left_out(kind: RecordKind, codec: u8) -> Vec<u8> {
    let header = |left_out| Spec { left_out, codec, block: 16, ..spec(kind) }.encode(0);
    (0..=255).filter(|left_out| RecordHeader::decode(&header(*left_out)).is_ok()).collect()
}

/// A frame leaves out any of its blocks but never all: such a record is dead and is not moved.
#[test]
fn only_frames_leave_out_blocks_and_never_all() {
    assert_eq!(allowed_left_out(RecordKind::Data, 0x12), [0, 0b01, 0b10]);
    assert_eq!(allowed_left_out(RecordKind::Data, 0xa2), (0..0b1111).collect::<Vec<u8>>());
    assert_eq!(allowed_left_out(RecordKind::Data, 0x32), (0..255).collect::<Vec<u8>>());
    assert_eq!(allowed_left_out(RecordKind::Data, 0x02), [0], "one block");
    for kind in [RecordKind::Range, RecordKind::Node, RecordKind::Overlay] {
        assert_eq!(allowed_left_out(kind, 0x32), [0], "{kind:?}");
    }
}

/// A corrupt map may ask about any block.
#[test]
fn record_applies_to_its_blocks_that_are_not_left_out() {
    let applied = |codec, left_out| -> Vec<u64> {
        let header = Spec { left_out, codec, block: 16, ..spec(RecordKind::Data) }.header();
        (0..200).chain([1 << 36, u64::MAX - 1, u64::MAX]).filter(|block| header.applies_to(*block)).collect()
    };
    assert_eq!(applied(0x02, 0), [16]);
    assert_eq!(applied(0x12, 0b01), [17]);
    assert_eq!(applied(0x22, 0b0100), [16, 17, 19]);
    assert_eq!(applied(0x32, 0b0100_0010), [16, 18, 19, 20, 21, 23]);
    assert_eq!(applied(0xb2, 0), (16..24).collect::<Vec<u64>>());
}

#[test]
fn fields_are_where_the_format_has_them() {
    let header = RecordHeader {
        crc: 0x0302_0100,
        block: 0x08_0706_0500,
        left_out: 0x3c,
        payload_len: 0x0b0a,
        kind: RecordKind::Data,
        codec: 0x31,
        extra: 0x0f0e,
    };
    let mut bytes = [0xff; RECORD_HEADER_BYTES];
    header.encode(&mut bytes);
    assert_eq!(bytes, [0, 1, 2, 3, 0, 5, 6, 7, 8, 0x3c, 10, 11, 1, 0x31, 14, 15]);
    assert_eq!(RecordHeader::decode(&bytes), Ok(header));
}

/// Forty bits: the byte behind them is not part of the number.
#[test]
fn largest_block_number_and_blocks_left_out_are_apart() {
    let block = (1 << 40) - 8;
    for left_out in [0, 1, 0x80, 0xfe] {
        let bytes = Spec { block, left_out, codec: 0x32, ..spec(RecordKind::Data) }.encode(7);
        let header = decode_record(&bytes, 7).expect("just encoded").header;
        assert_eq!((header.block, header.left_out), (block, left_out));
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
    // 65,536 draws of 2^32 collide about once in two tries (birthday bound); a weak mix collides by the
    // thousand.
    assert!(count - masks.len() as u64 <= 4, "{} masks of {count}", masks.len());
}
