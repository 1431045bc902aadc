//! Several dictionaries: kinds of data are found automatically, and each block finds its dictionary.

use std::collections::HashSet;

use codec::{Dictionary, TrainError, choose, gain, testdata, train, train_several};

const BLOCK: usize = 4096;
const EACH: usize = 1 << 20;

/// Records of one of three kinds, with separate words, that have nothing in common.
fn kind(number: u64, seed: u64) -> Vec<u8> {
    // Six bits per byte: random bytes would look incompressible.
    let words = testdata::random(1000 + number, 256 * 12);
    let words: Vec<u8> = words.into_iter().map(|byte| byte & 0x3f | (number as u8) << 5).collect();
    let words: Vec<&[u8]> = words.chunks(12).collect();
    let mut data = Vec::with_capacity(EACH + 32);
    for noise in testdata::random(seed, EACH).chunks(4) {
        data.extend_from_slice(words[usize::from(noise[0])]);
        data.extend(noise.iter().map(|byte| byte % (10 + number as u8 * 40)));
        if data.len() >= EACH {
            break;
        }
    }
    data.truncate(EACH);
    data
}

/// Blocks of all kinds in turn, as in the reservoir of a drive.
fn mixed(kinds: &[Vec<u8>]) -> Vec<&[u8]> {
    (0..EACH / BLOCK).flat_map(|at| kinds.iter().map(move |kind| &kind[at * BLOCK..][..BLOCK])).collect()
}

fn dictionaries(trained: Vec<Vec<u8>>) -> Vec<Dictionary> {
    (1..).zip(trained).map(|(id, bytes)| Dictionary::new(id, bytes).expect("sound")).collect()
}

#[test]
fn each_kind_gets_a_dictionary_and_finds_it() {
    let kinds = [0, 1, 2].map(|number| kind(number, number));
    let samples = mixed(&kinds);
    let trained = train_several(&samples, 6, 8 << 10, 1).expect("enough");
    assert_eq!(trained, train_several(&samples, 6, 8 << 10, 1).expect("enough"), "deterministic");
    assert!((3..=6).contains(&trained.len()), "{}", trained.len());
    let several = dictionaries(trained);
    let mut used = HashSet::new();
    for number in 0..3 {
        // Other records of the same kind.
        let unseen = kind(number, 100 + number);
        for block in unseen.chunks(BLOCK) {
            let chosen = choose(&several, block).expect("one fits");
            used.insert((number, chosen.id()));
            assert!(gain(chosen, &[block], 1) > 1.05);
        }
        for frame in unseen.chunks(65536).chain([&unseen[..700]]) {
            assert!(choose(&several, frame).is_some());
        }
    }
    // No dictionary serves two kinds.
    let ids: HashSet<u16> = used.iter().map(|(_, id)| *id).collect();
    assert_eq!(used.len(), ids.len(), "{used:?}");
}

#[test]
fn nothing_is_chosen_where_nothing_fits() {
    let own = kind(1, 1);
    let samples: Vec<&[u8]> = own.chunks(BLOCK).collect();
    let one = dictionaries(train_several(&samples, 4, 8 << 10, 1).expect("enough"));
    for other in [kind(2, 2), testdata::random(1, EACH), testdata::text_like(1, EACH), vec![0; EACH]] {
        let chosen = other.chunks(BLOCK).filter(|block| choose(&one, block).is_some()).count();
        assert!(chosen * 50 < EACH / BLOCK, "{chosen}");
    }
    assert!(choose(&[], &own[..BLOCK]).is_none());
    for len in 0..20 {
        assert!(choose(&one, &vec![7; len]).is_none(), "{len}");
    }
}

#[test]
fn one_kind_of_data_is_one_dictionary_or_more_and_never_none() {
    let text = testdata::text_like(1, EACH);
    let samples: Vec<&[u8]> = text.chunks(BLOCK).collect();
    for count in [0, 1] {
        let trained = train_several(&samples, count, 8 << 10, 1).expect("enough");
        assert_eq!(trained, [train(&samples, 8 << 10, 1).expect("enough")]);
    }
    assert!(!train_several(&samples, 5, 8 << 10, 1).expect("enough").is_empty());
    // The same block repeatedly, and too few samples.
    assert!(!train_several(&vec![samples[0]; 500], 5, 8 << 10, 1).is_ok_and(|trained| trained.is_empty()));
    assert!(matches!(train_several(&[], 5, 8 << 10, 1), Err(TrainError::Samples { .. })));
}

/// Pages as in a database: each begins with bytes unique to the page, and similar records follow.
#[test]
fn what_each_page_begins_with_does_not_hide_what_follows() {
    let pages = |seed| {
        let mut data = kind(1, seed);
        for page in data.chunks_mut(BLOCK) {
            page[..256].copy_from_slice(&testdata::random(seed + 7, 256));
        }
        data
    };
    let data = pages(1);
    let samples: Vec<&[u8]> = data.chunks(BLOCK).collect();
    let one = dictionaries(vec![train(&samples, 8 << 10, 1).expect("enough")]);
    for frame in pages(2).chunks(8 * BLOCK) {
        assert!(choose(&one, frame).is_some());
        assert!(choose(&one, &frame[..4 * BLOCK]).is_some());
    }
}
