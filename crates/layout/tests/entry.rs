//! The eight bytes of a map entry.

mod common;

use layout::Entry;
use proptest::prelude::*;

proptest! {
    #[test]
    fn record_gives_back_position_and_length(position in 0..1_u64 << 50, units in 1..4096_usize) {
        let entry = Entry::record(position * 16, units * 16);
        prop_assert!(entry.is_valid() && entry.is_record() && !entry.is_unmapped());
        prop_assert_eq!(entry.fill_word(), None);
        prop_assert_eq!((entry.position_bytes(), entry.len_bytes()), (position * 16, units * 16));
    }

    #[test]
    fn fill_gives_back_its_word(word: u32) {
        let entry = Entry::fill(word);
        prop_assert!(entry.is_valid() && !entry.is_record() && !entry.is_unmapped());
        prop_assert_eq!(entry.fill_word(), Some(word));
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
                None if entry.is_record() => Entry::record(entry.position_bytes(), entry.len_bytes()),
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
}

#[test]
fn fill_of_more_than_a_word_is_refused() {
    assert!(!Entry(2 << 62 | 1 << 32).is_valid());
    assert!(!Entry(2 << 62 | 1 << 61).is_valid());
}
