//! Dictionaries: their gain, lossless compression with them, and refusal of invalid ones.

use codec::{
    CodecId, Compressor, DICTIONARY_BYTES_MAX, Decompressor, Dictionary, DictionaryError, Policy, TrainError,
    gain, testdata, train,
};
use proptest::prelude::*;

const BLOCK: usize = 4096;

/// Blocks for training and blocks for evaluation.
fn samples(data: &[u8]) -> (Vec<&[u8]>, Vec<&[u8]>) {
    let (mut training, mut holdout) = (Vec::new(), Vec::new());
    for (number, block) in data.chunks_exact(BLOCK).enumerate() {
        if number % 4 == 3 { holdout.push(block) } else { training.push(block) }
    }
    (training, holdout)
}

fn trained(seed: u64) -> Dictionary {
    let data = testdata::text_like(seed, 2 << 20);
    Dictionary::new(7, train(&samples(&data).0, 32 << 10, 1).expect("enough of it")).expect("sound")
}

#[test]
fn a_dictionary_gains_on_what_it_was_trained_for() {
    let data = testdata::text_like(3, 2 << 20);
    let (training, holdout) = samples(&data);
    let bytes = train(&training, 32 << 10, 1).expect("enough of it");
    assert!(bytes.len() <= 32 << 10);
    assert_eq!(
        train(&training, 32 << 10, 1).expect("enough of it"),
        bytes,
        "the same samples, the same bytes"
    );
    let dictionary = Dictionary::new(1, bytes.clone()).expect("sound");
    assert_eq!((dictionary.id(), dictionary.bytes()), (1, &bytes[..]));
    for level in [1, 6] {
        let gained = gain(&dictionary, &holdout, level);
        assert!(gained > 1.03, "{gained} at level {level}");
    }
    // No gain on data that has nothing in common with the samples.
    let other: Vec<u8> = testdata::random(1, 1 << 20).into_iter().map(|byte| byte & 0x3f).collect();
    assert!(gain(&dictionary, &other.chunks(BLOCK).collect::<Vec<_>>(), 1) < 1.01);
    assert_eq!(gain(&dictionary, &[], 1), 1.0);
}

#[test]
fn memory_grows_as_tables_are_made() {
    let dictionary = trained(1);
    let before = dictionary.memory_bytes();
    assert!(before > dictionary.bytes().len());
    let mut out = Vec::new();
    Compressor::new(Policy::Zstd(3)).compress(
        &testdata::text_like(1, BLOCK),
        Some(&dictionary.clone()),
        &mut out,
    );
    assert!(dictionary.memory_bytes() > before + dictionary.bytes().len());
}

#[test]
fn what_is_no_dictionary_is_refused() {
    let bytes = trained(1).bytes().to_vec();
    assert_eq!(Dictionary::new(0, bytes.clone()).expect_err("id"), DictionaryError::Id);
    for len in [0, 7, DICTIONARY_BYTES_MAX + 1] {
        let error = Dictionary::new(2, vec![0; len]).expect_err("length");
        assert_eq!(error, DictionaryError::Length { id: 2, bytes: len });
        assert_eq!(error.to_string().lines().count(), 1);
    }
    // Cuts or damages the tables after magic number and id.
    assert_eq!(Dictionary::new(9, &bytes[..20]).expect_err("cut"), DictionaryError::Corrupt(9));
    let mut damaged = bytes;
    damaged[8..40].fill(0xff);
    assert_eq!(Dictionary::new(9, damaged).expect_err("damaged"), DictionaryError::Corrupt(9));
}

#[test]
fn too_few_samples_are_an_error() {
    let text = testdata::text_like(1, 2 << 20);
    for samples in [&[][..], &[&[][..]], &[&text[..7]], &[&text[..BLOCK]]] {
        let error = train(samples, 32 << 10, 1).expect_err("too few");
        assert!(
            matches!(error, TrainError::Samples { .. }) && error.to_string().lines().count() == 1,
            "{error}"
        );
    }
    let all: Vec<&[u8]> = text.chunks(BLOCK).collect();
    assert_eq!(train(&all, 255, 1), Err(TrainError::Room(255)));
    assert!(train(&all, usize::MAX, 1).expect("cut to the limit").len() <= DICTIONARY_BYTES_MAX);
    // Nothing in them repeats. The result is an error or a useless dictionary, which its low gain keeps out
    // of use.
    let random = testdata::random(1, 1 << 20);
    if let Ok(bytes) = train(&random.chunks(BLOCK).collect::<Vec<_>>(), 16 << 10, 1) {
        let dictionary = Dictionary::new(1, bytes).expect("sound");
        assert!(gain(&dictionary, &text.chunks(BLOCK).collect::<Vec<_>>(), 1) < 1.03);
    }
}

#[test]
fn a_compressor_goes_from_dictionary_to_dictionary() {
    let (one, two) = (trained(1), trained(2));
    let block = testdata::text_like(77, BLOCK);
    let mut compressor = Compressor::new(Policy::Zstd(1));
    let mut decompressor = Decompressor::new();
    let choices = [None, Some(&one), Some(&two), Some(&one), None, None, Some(&two)];
    let mut lengths = Vec::new();
    for dictionary in choices {
        // A compression that fails for lack of space must not affect the next.
        let mut short = testdata::random(1, 100);
        short[..20].fill(0);
        compressor.compress(&short, dictionary, &mut Vec::new());
        let mut payload = Vec::new();
        let id = compressor.compress(&block, dictionary, &mut payload);
        assert_eq!(id, CodecId::Zstd);
        let mut back = vec![0; BLOCK];
        decompressor.decompress(id, &payload, dictionary, &mut back).expect("its own dictionary");
        assert_eq!(back, block);
        // The result equals that of a compressor that has used no other dictionary.
        let mut fresh = Vec::new();
        Compressor::new(Policy::Zstd(1)).compress(&block, dictionary, &mut fresh);
        assert_eq!(payload, fresh);
        lengths.push(payload.len());
    }
    assert!(lengths[1] < lengths[0] && lengths[3] == lengths[1] && lengths[4] == lengths[0]);
    // The dictionary may be dropped before its users.
    drop((one, two));
    assert_eq!(compressor.compress(&block, None, &mut Vec::new()), CodecId::Zstd);
}

#[test]
fn other_codecs_know_no_dictionary() {
    let dictionary = trained(1);
    let block = testdata::text_like(5, BLOCK);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let mut compressor = Compressor::new(Policy::Lz4);
    assert_eq!(compressor.compress(&block, Some(&dictionary), &mut with), CodecId::Lz4);
    compressor.compress(&block, None, &mut without);
    assert_eq!(with, without);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Any bytes from a medium: if they are accepted as a dictionary, data compressed with them is restored
    /// with them.
    #[test]
    fn any_bytes_that_are_taken_serve(
        trained_first: bool,
        tail in prop::collection::vec(any::<u8>(), 8..2000),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        seed in 0..50_u64,
        level in prop::sample::select(&[-5_i8, 1, 3, 6, 9, 13]),
        len in prop_oneof![Just(4096_usize), Just(65536), 100..20_000_usize],
    ) {
        let mut bytes = tail;
        if trained_first {
            static TRAINED: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| trained(4).bytes().to_vec());
            bytes = TRAINED.clone();
        }
        for (at, byte) in damage {
            let at = at.index(bytes.len().min(600));
            bytes[at] = byte;
        }
        let Ok(dictionary) = Dictionary::new(3, bytes) else {
            return Ok(());
        };
        let data = testdata::text_like(seed, len);
        let mut payload = Vec::new();
        let id = Compressor::new(Policy::Zstd(level)).compress(&data, Some(&dictionary), &mut payload);
        if id == CodecId::Zstd {
            let mut back = vec![0; data.len()];
            let mut decompressor = Decompressor::new();
            decompressor.decompress(id, &payload, Some(&dictionary), &mut back).expect("its own dictionary");
            prop_assert_eq!(&back, &data);
            // Without the dictionary: an error or wrong bytes, but no panic.
            let _ = decompressor.decompress(id, &payload, None, &mut back);
        }
    }
}
