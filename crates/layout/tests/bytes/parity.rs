//! Parity inside a segment: its places, its index, the mask of its pages.

use layout::pack::{PackAddress, decode_pack, drive_tag};
use layout::parity::parity_mask;
use layout::{
    DecodeError, Geometry, Head, NextSegment, PAGE_BYTES, PackHeader, ParityForm, ParityIndex, ParityShape,
};
use proptest::prelude::*;

fn shape(segment_bytes: u32, form: ParityForm) -> ParityShape {
    ParityShape::new(segment_bytes, form).expect("a form with parity")
}

#[test]
fn places_are_those_of_the_reference() {
    // Bytes of a segment, groups, pages of an index, bytes for packs: one page of 32.
    for (segment_bytes, groups, index_pages, room_bytes) in [
        (512 << 10, 3, 1, 492 << 10),
        (1 << 20, 7, 1, 247 << 12),
        (4 << 20, 31, 2, 989 << 12),
        (64 << 20, 511, 17, 15839 << 12),
    ] {
        let shape = shape(segment_bytes, ParityForm::Part32);
        assert_eq!((shape.groups(), shape.index_bytes()), (groups, index_pages * PAGE_BYTES));
        assert_eq!(shape.room_bytes(), room_bytes);
        assert_eq!(ParityForm::Part32.room_bytes(segment_bytes), room_bytes);
    }
    assert_eq!(ParityForm::None.room_bytes(1 << 20), 1 << 20);
    assert_eq!(shape(16 << 20, ParityForm::Part64).groups(), 63);
    assert_eq!(shape(16 << 20, ParityForm::Part16).groups(), 255);
}

/// Packs, two copies of the index and parity share no page and leave none over, and each group has one page.
#[test]
fn every_page_of_a_segment_has_one_purpose() {
    for segment_bytes in (19..=28).map(|bits| 1_u32 << bits) {
        for form in [ParityForm::Part32, ParityForm::Part64, ParityForm::Part16] {
            let shape = shape(segment_bytes, form);
            let mut seen: Vec<u32> = (0..shape.room_pages()).collect();
            let page = |offset: u32| {
                assert!(offset.is_multiple_of(PAGE_BYTES as u32));
                offset / PAGE_BYTES as u32
            };
            let index = |offset| page(offset)..page(offset) + (shape.index_bytes() / PAGE_BYTES) as u32;
            seen.extend(index(shape.index_offsets()[0]));
            seen.extend((0..shape.groups()).map(|group| page(shape.parity_offset(group))));
            seen.extend(index(shape.index_offsets()[1]));
            assert!(
                seen.iter().copied().eq(0..segment_bytes / PAGE_BYTES as u32),
                "{segment_bytes} {form:?}"
            );
            assert!(shape.groups() % 2 == 1);
            // The largest pack has room.
            assert!(shape.room_bytes() >= 256 << 10);
        }
    }
}

#[test]
fn each_page_of_a_filling_is_in_one_group() {
    let shape = shape(1 << 20, ParityForm::Part32);
    for end in [0, 1, 6, 7, 8, shape.room_pages()] {
        let mut seen: Vec<u32> = (0..shape.groups()).flat_map(|group| shape.members(group, end)).collect();
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..end));
        for group in 0..shape.groups() {
            assert!(shape.members(group, end).all(|page| shape.group_of(page) == group));
            assert_eq!(shape.members(group, end).next().is_some(), group < shape.groups_used(end));
        }
    }
}

/// A whole lost pack of 256 KiB is made again on new drives with room for larger segments.
#[test]
fn new_drives_with_parity_have_segments_that_cover_a_pack() {
    let segment_bytes = |gib: u64, form| {
        Geometry::with_parity(gib << 30, None, form).expect("a geometry").segment_bytes >> 20
    };
    for (gib, without, with) in
        [(1, 4, 4), (15, 4, 4), (16, 4, 16), (255, 4, 16), (256, 16, 16), (4096, 64, 64)]
    {
        assert_eq!(segment_bytes(gib, ParityForm::None), without, "{gib} GiB");
        for form in [ParityForm::Part32, ParityForm::Part64, ParityForm::Part16] {
            assert_eq!(segment_bytes(gib, form), with, "{gib} GiB, {form}");
        }
    }
    let asked_for = Geometry::with_parity(16 << 30, Some(1 << 20), ParityForm::Part32).expect("a geometry");
    assert_eq!((asked_for.segment_bytes, asked_for.parity), (1 << 20, ParityForm::Part32));
}

#[test]
fn forms_are_read_as_they_are_written() {
    for form in ParityForm::ALL {
        assert_eq!(form.to_string().parse(), Ok(form));
    }
    for text in ["", "1/8", "32", "None", " 1/32"] {
        let error = text.parse::<ParityForm>().expect_err(text);
        assert_eq!(error.to_string(), "expected 1/64, 1/32, 1/16 or none");
    }
}

fn index(shape: &ParityShape, end: u32) -> ParityIndex {
    ParityIndex {
        log_id: *b"sixteen bytes id",
        segment: 7,
        generation: 0x1234_5678,
        last_sequence: 99,
        pages: (0..end).map(|page| page.wrapping_mul(0x9e37_79b9)).collect(),
        parity: (0..shape.groups_used(end)).collect(),
    }
}

proptest! {
    #[test]
    fn an_index_is_read_as_it_was_written(
        bits in 19..25_u32, form in 1..4_u8, part in 0.0..=1.0_f64,
    ) {
        let shape = shape(1 << bits, ParityForm::of_number(form).expect("a form"));
        let index = index(&shape, (f64::from(shape.room_pages()) * part) as u32);
        let mut bytes = vec![7; shape.index_bytes()];
        index.encode(&shape, &mut bytes);
        prop_assert_eq!(ParityIndex::decode(&bytes, 1 << bits), Ok((index, shape)));
    }

    #[test]
    fn an_index_of_anything_is_refused(bytes in prop::collection::vec(any::<u8>(), 0..9000), end in any::<u32>()) {
        let mut bytes = bytes;
        prop_assert!(ParityIndex::decode(&bytes, 1 << 20).is_err());
        if bytes.len() >= 128 {
            bytes[..12].copy_from_slice(b"PUPARITY\x01\0\0\0");
            bytes[40] = 1;
            bytes[44..48].copy_from_slice(&end.to_le_bytes());
            prop_assert!(ParityIndex::decode(&bytes, 1 << 20).is_err());
        }
    }
}

#[test]
fn a_damaged_index_is_refused() {
    let shape = shape(1 << 20, ParityForm::Part32);
    let mut bytes = vec![0; shape.index_bytes()];
    index(&shape, 100).encode(&shape, &mut bytes);
    let means_something = 128 + 4 * (100 + shape.groups() as usize);
    for at in 0..means_something {
        bytes[at] ^= 1;
        assert!(ParityIndex::decode(&bytes, 1 << 20).is_err(), "byte {at}");
        bytes[at] ^= 1;
    }
    let short = &bytes[..means_something - 1];
    assert!(matches!(ParityIndex::decode(short, 1 << 20), Err(DecodeError::Truncated(_))));
    // That of a larger segment has more pages than there is room for.
    let large = ParityShape::new(4 << 20, ParityForm::Part32).expect("a form with parity");
    let mut bytes = vec![0; large.index_bytes()];
    index(&large, 900).encode(&large, &mut bytes);
    assert!(matches!(ParityIndex::decode(&bytes, 1 << 20), Err(DecodeError::Field(..))));
}

const UUID: [u8; 16] = *b"of the same log!";

fn empty_pack(page: u32, sequence: u64) -> Vec<u8> {
    let header = PackHeader {
        head: Head::Host,
        uuid: UUID,
        segment: 3,
        generation: 11,
        offset: page * PAGE_BYTES as u32,
        len: PAGE_BYTES as u32,
        used: 112,
        records: 0,
        sequence,
        durable: 0,
        checkpoint: 0,
        next: [NextSegment::NONE; 3],
        continued: 0,
        parity: layout::ParityForm::None,
    };
    let mut bytes = vec![0; PAGE_BYTES];
    header.encode(0, &mut bytes);
    bytes
}

/// CRC32C is linear: the XOR of three packs is a whole pack, and may be at its own place.
#[test]
fn a_parity_page_is_no_pack() {
    let mut xor = vec![0; PAGE_BYTES];
    for (page, sequence) in [(11, 8), (19, 16), (227, 32)] {
        for (to, from) in xor.iter_mut().zip(empty_pack(page, sequence)) {
            *to ^= from;
        }
    }
    let place = |offset| PackAddress { uuid: &UUID, segment: 3, generation: 11, offset };
    let offset = 251 * PAGE_BYTES as u32;
    assert!(decode_pack(&xor, place(offset), |_, _| {}).is_ok(), "without a mask it is a pack");
    let mask = parity_mask(drive_tag(&UUID), 3, 11, offset);
    for (byte, mask) in xor.iter_mut().zip(mask.to_le_bytes()) {
        *byte ^= mask;
    }
    assert!(PackHeader::decode(&xor).is_err());
    assert!((0..1000).all(|offset| parity_mask(1, 2, 3, offset) != 0));
}
