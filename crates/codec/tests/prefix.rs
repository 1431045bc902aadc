//! Decompression of the first part of a frame without the rest.

use codec::{CodecError, CodecId, Compressor, Decompressor, Dictionary, Policy, testdata, train};
use proptest::prelude::*;

const BLOCK: usize = 4096;

static DICTIONARY: std::sync::LazyLock<Dictionary> = std::sync::LazyLock::new(|| {
    let data = testdata::text_like(99, 1 << 20);
    let samples: Vec<&[u8]> = data.chunks(BLOCK).collect();
    Dictionary::new(1, train(&samples, 16 << 10, 1).expect("enough")).expect("sound")
});

/// Blocks of the given kinds, one after the other.
fn frame(kinds: &[u8], seed: u64) -> Vec<u8> {
    let mut frame = Vec::new();
    for (number, kind) in (0..).zip(kinds) {
        let seed = seed + number;
        frame.extend(match kind {
            0 => testdata::text_like(seed, BLOCK),
            1 => testdata::random(seed, BLOCK),
            2 => vec![seed as u8; BLOCK],
            3 => testdata::fio_like(seed, BLOCK, 50),
            _ => testdata::random(seed, BLOCK).into_iter().map(|byte| byte & 0x3f).collect(),
        });
    }
    frame
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_prefix_is_right(
        kinds in prop::collection::vec(0..5_u8, 1..=16),
        seed in 0..1000_u64,
        policy in prop::sample::select(&[Policy::Lz4, Policy::Zstd(-3), Policy::Zstd(1), Policy::Zstd(6),
            Policy::Zstd(15), Policy::Deflate(1)]),
        with_dictionary: bool,
        uncut: bool,
        wanted in any::<prop::sample::Index>(),
    ) {
        let frame = frame(&kinds, seed);
        let dictionary = with_dictionary.then_some(&*DICTIONARY);
        let mut compressor = if uncut { Compressor::uncut(policy) } else { Compressor::new(policy) };
        let mut payload = Vec::new();
        let id = compressor.compress(&frame, dictionary, &mut payload);
        if id == CodecId::Raw {
            payload = frame.clone();
        }
        let mut decompressor = Decompressor::new();
        let wanted = wanted.index(frame.len() + 1);
        for wanted in [wanted, wanted / BLOCK * BLOCK, 0, frame.len(), usize::MAX] {
            let mut out = vec![0xee; frame.len()];
            decompressor.decompress_prefix(id, &payload, dictionary, &mut out, wanted).expect("sound");
            let wanted = wanted.min(frame.len());
            prop_assert_eq!(&out[..wanted], &frame[..wanted]);
        }
    }

    #[test]
    fn hostile_payloads_do_no_harm(
        payload in prop::collection::vec(any::<u8>(), 0..600),
        header: bool,
        expected in 0..70_000_usize,
        wanted in 0..70_000_usize,
    ) {
        // With the frame header that the encoder writes, more of these bytes are parsed as far as the blocks.
        let payload = if header { [&[0, 0x30], &payload[..]].concat() } else { payload };
        let mut decompressor = Decompressor::new();
        let mut out = vec![0; expected];
        for id in [CodecId::Raw, CodecId::Lz4, CodecId::Zstd, CodecId::Deflate, CodecId::Structured] {
            for dictionary in [None, Some(&*DICTIONARY)] {
                let _ = decompressor.decompress_prefix(id, &payload, dictionary, &mut out, wanted);
            }
        }
    }

    #[test]
    fn damaged_frames_do_no_harm(
        seed in 0..64_u64,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        wanted in 0..8_usize,
        policy in prop::sample::select(&[Policy::Lz4, Policy::Zstd(1)]),
        with_dictionary: bool,
    ) {
        let frame = testdata::text_like(seed, 8 * BLOCK);
        let dictionary = with_dictionary.then_some(&*DICTIONARY);
        let mut payload = Vec::new();
        let id = Compressor::new(policy).compress(&frame, dictionary, &mut payload);
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        let mut out = vec![0; frame.len()];
        let _ = Decompressor::new().decompress_prefix(id, &payload, dictionary, &mut out, wanted * BLOCK);
    }
}

/// Damage after the wanted blocks is not noticed, which shows that decoding stops early. zstd's low levels do
/// not cut frames.
#[test]
fn decoding_stops_early() {
    let frame = testdata::text_like(8, 8 * BLOCK);
    for policy in [Policy::Lz4, Policy::Zstd(6), Policy::Zstd(9)] {
        let mut payload = Vec::new();
        let id = Compressor::new(policy).compress(&frame, None, &mut payload);
        let end = payload.len();
        payload[end - end / 4..].fill(0xff);
        let mut out = vec![0; frame.len()];
        let mut decompressor = Decompressor::new();
        assert!(decompressor.decompress(id, &payload, None, &mut out).is_err(), "{policy}");
        for wanted in [1, BLOCK, 4 * BLOCK] {
            out.fill(0);
            decompressor.decompress_prefix(id, &payload, None, &mut out, wanted).expect("the first half");
            assert_eq!(out[..wanted], frame[..wanted], "{policy}");
        }
    }
}

#[test]
fn a_frame_that_ends_too_soon_is_an_error() {
    let frame = testdata::text_like(8, 2 * BLOCK);
    for policy in [Policy::Lz4, Policy::Zstd(1)] {
        let mut payload = Vec::new();
        let id = Compressor::new(policy).compress(&frame, None, &mut payload);
        let mut out = vec![0; 8 * BLOCK];
        let error = Decompressor::new()
            .decompress_prefix(id, &payload, None, &mut out, 3 * BLOCK)
            .expect_err("two blocks only");
        assert_eq!(
            error,
            CodecError::Length { codec: id, expected_bytes: 8 * BLOCK, actual_bytes: 2 * BLOCK }
        );
    }
    assert!(Decompressor::new().decompress_prefix(CodecId::Raw, &frame, None, &mut [0; 100], 10).is_err());
}
