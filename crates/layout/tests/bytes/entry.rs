//! The eight bytes of a map entry.

use layout::Entry;
use proptest::prelude::*;

proptest! {
    #[test]
    fn record_gives_back_position_and_length(position in 0..1_u64 << 49,
        units in prop_oneof![1..4096_usize, Just(257)]) {
        let entry = Entry::record(position * 16, units * 16);
        prop_assert!(entry.is_valid() && entry.is_record() && !entry.is_unmapped());
        prop_assert_eq!(entry.fill_word(), None);
        prop_assert_eq!((entry.position_bytes(), entry.len_bytes()), (position * 16, units * 16));
        let settled = entry.settled();
        // An uncompressed block is put off instead.
        let is_raw = units == 257;
        prop_assert_eq!((settled.is_settled(), settled.is_put_off()), (!is_raw, is_raw));
        prop_assert!(!entry.is_settled() && !entry.is_put_off() && settled != entry);
        prop_assert_eq!((entry.is_raw(), settled.is_raw()), (is_raw, is_raw));
        prop_assert_eq!((settled.position_bytes(), settled.len_bytes()), (position * 16, units * 16));
    }

    #[test]
    fn frame_gives_back_position_length_and_blocks(
        position in 0..1_u64 << 49,
        steps in 1..1024_usize,
        log in 1..4_u32,
        block in 0..1_u64 << 36,
    ) {
        let (position, len, blocks) = (position * 16, steps * 32, 1 << log);
        let entry = Entry::frame(position, len, blocks);
        prop_assert!(entry.is_valid() && entry.is_record() && entry.is_frame() && !entry.is_unmapped());
        prop_assert_eq!(entry.fill_word(), None);
        prop_assert_eq!((entry.position_bytes(), entry.len_bytes(), entry.blocks()), (position, len, blocks));
        let first = entry.first_block(block);
        prop_assert!(first.is_multiple_of(blocks) && (first..first + blocks).contains(&block));
        let settled = entry.settled();
        prop_assert!(settled.is_settled() && !entry.is_settled() && settled.is_frame());
        prop_assert_eq!((settled.position_bytes(), settled.len_bytes(), settled.blocks()), (position, len, blocks));
        // The parts of all blocks make up the whole, and a slot tells as much as a block's number.
        let shares: u32 = (first..first + blocks).map(|block| entry.share_units(block)).sum();
        prop_assert_eq!(shares, entry.units());
        prop_assert_eq!(entry.share_units(block), entry.share_units(block % 512));
    }

    #[test]
    fn fill_gives_back_its_word(word: u32) {
        let entry = Entry::fill(word);
        prop_assert!(entry.is_valid() && !entry.is_record() && !entry.is_unmapped());
        prop_assert_eq!((entry.fill_word(), entry.settled()), (Some(word), entry));
    }

    #[test]
    fn any_bits_are_one_valid_kind_or_refused(kind in 0..4_u64, bits: u64, few in 0..64_u32) {
        let entry = Entry(kind << 62 | (bits & u64::MAX >> 2) >> few.min(63));
        let kinds =
            [entry.is_unmapped(), entry.is_record(), entry.fill_word().is_some()].iter().filter(|k| **k).count();
        prop_assert!(kinds <= 1);
        if entry.is_valid() {
            prop_assert_eq!(kinds, 1);
            let again = match entry.fill_word() {
                Some(word) => Entry::fill(word),
                None if entry.is_record() => {
                    let again = Entry::of_blocks(entry.position_bytes(), entry.len_bytes(), entry.blocks());
                    if entry.is_settled() || entry.is_put_off() { again.settled() } else { again }
                }
                None => Entry::UNMAPPED,
            };
            prop_assert_eq!(again, entry);
        }
        let _ = format!("{entry:?}");
    }
}

#[test]
fn unmapped_is_all_zeros() {
    assert_eq!(Entry::UNMAPPED, Entry(0));
    assert_eq!(Entry::default(), Entry::UNMAPPED);
    assert!(Entry::UNMAPPED.is_valid());
}

#[test]
fn record_without_length_is_refused() {
    assert!(!Entry(1 << 62).is_valid());
    assert!(!Entry(1 << 62 | 12345).is_valid());
    assert!(!Entry(3 << 62 | 12345).is_valid());
}

#[test]
fn frame_of_sixteen_blocks_is_refused() {
    assert!(Entry(3 << 62 | 2 << 60 | 1 << 49 | 12345).is_valid());
    assert!(!Entry(3 << 62 | 3 << 60 | 1 << 49 | 12345).is_valid());
}

#[test]
fn fill_of_more_than_a_word_is_refused() {
    assert!(!Entry(2 << 62 | 1 << 32).is_valid());
    assert!(!Entry(2 << 62 | 1 << 61).is_valid());
}
