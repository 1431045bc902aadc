//! A bit that flipped in the headers of a pack is found; nothing else is taken for that.

use crate::common::{Pack, sample_pack};
use layout::PAGE_BYTES;
use layout::mend::mend_pack;
use layout::pack::PACK_HEADER_BYTES;
use layout::record::RECORD_HEADER_BYTES;
use proptest::prelude::*;

fn mended(bytes: &[u8], pack: &Pack) -> Option<Vec<u8>> {
    mend_pack(bytes, pack.at.place(), pack.header.sequence)
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}

/// Where the records of a pack begin.
fn records(pack: &Pack) -> Vec<usize> {
    let mut at = PACK_HEADER_BYTES;
    let begin = |spec: &crate::common::Spec| {
        let begins = at;
        at += spec.header().record_len();
        begins
    };
    pack.specs.iter().map(begin).collect()
}

/// All bits of headers: of the pack, and of its records.
fn header_bits(pack: &Pack) -> Vec<usize> {
    let records = records(pack).into_iter().flat_map(|at| at..at + RECORD_HEADER_BYTES);
    (0..PACK_HEADER_BYTES).chain(records).flat_map(|byte| byte * 8..byte * 8 + 8).collect()
}

#[test]
fn each_flipped_bit_of_a_header_is_found_also_if_it_is_in_a_length() {
    let pack = sample_pack();
    for bit in header_bits(&pack) {
        let mut damaged = pack.bytes.clone();
        flip(&mut damaged, bit);
        // What follows a pack is not looked at.
        damaged.extend([0xa5; PAGE_BYTES]);
        assert!(mended(&damaged, &pack).as_deref() == Some(&pack.bytes[..]), "bit {bit}");
    }
}

#[test]
fn one_bit_in_the_header_of_each_record_is_found() {
    let pack = sample_pack();
    let mut damaged = pack.bytes.clone();
    for (n, at) in records(&pack).into_iter().enumerate() {
        flip(&mut damaged, at * 8 + n * 37 % 128);
    }
    assert!(mended(&damaged, &pack).as_deref() == Some(&pack.bytes[..]));
}

#[test]
fn a_damaged_payload_stays_damaged_and_keeps_no_header_from_being_mended() {
    let pack = sample_pack();
    let places = records(&pack);
    let with_payload = (0..places.len()).find(|n| pack.specs[*n].payload.len() > 8).expect("a long one");
    let mut expected = pack.bytes.clone();
    expected[places[with_payload] + RECORD_HEADER_BYTES + 3] ^= 0x44;
    assert!(mended(&expected, &pack).is_none_or(|bytes| bytes == expected), "its headers are right");
    for (n, at) in places.iter().enumerate().filter(|(n, _)| *n != with_payload) {
        let mut damaged = expected.clone();
        flip(&mut damaged, at * 8 + n * 41 % 128);
        assert!(mended(&damaged, &pack).as_deref() == Some(&expected[..]), "record {n}");
    }
}

#[test]
fn more_than_a_bit_of_a_header_is_not_guessed() {
    let pack = sample_pack();
    let bits = header_bits(&pack);
    for (n, first) in bits.iter().enumerate() {
        let second = bits[(n * 7919 + 1) % bits.len()];
        let of_record = |bit: usize| records(&pack).into_iter().rfind(|at| at * 8 <= bit);
        let are_of_two = of_record(*first).zip(of_record(second)).is_some_and(|(a, b)| a != b);
        if *first == second || are_of_two {
            continue;
        }
        let mut damaged = pack.bytes.clone();
        flip(&mut damaged, *first);
        flip(&mut damaged, second);
        assert_eq!(mended(&damaged, &pack), None, "bits {first} and {second}");
    }
}

#[test]
fn a_pack_of_another_number_or_place_is_not_the_one_that_is_missing() {
    let pack = sample_pack();
    let mut damaged = pack.bytes.clone();
    flip(&mut damaged, (PACK_HEADER_BYTES + 5) * 8);
    let (place, sequence) = (pack.at.place(), pack.header.sequence);
    assert!(mend_pack(&damaged, place, sequence).is_some());
    assert_eq!(mend_pack(&damaged, place, sequence ^ 4), None);
    let elsewhere = layout::pack::PackAddress { offset: place.offset + PAGE_BYTES as u32, ..place };
    assert_eq!(mend_pack(&damaged, elsewhere, sequence), None);
}

proptest! {
    #[test]
    fn anything_is_refused_without_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..9000),
        head in any::<bool>(),
        from in 0..5000_usize,
    ) {
        let pack = sample_pack();
        let mut damaged = pack.bytes.clone();
        let from = if head { from.min(damaged.len()) } else { 0 };
        let end = (from + bytes.len()).min(damaged.len());
        damaged[from..end].copy_from_slice(&bytes[..end - from]);
        let found = mended(&damaged, &pack);
        // Garbage in payloads leaves headers that are right.
        let headers = |bytes: &[u8]| header_bits(&pack).iter().map(|bit| bytes[bit / 8]).collect::<Vec<u8>>();
        prop_assert!(found.is_none_or(|found| headers(&found) == headers(&pack.bytes)));
    }
}
