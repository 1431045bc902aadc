//! The codec for structured data: it restores every input, makes numbers, records and code smaller than zstd
//! alone, and leaves text alone.

use codec::{
    CodecError, CodecId, Coded, Compressor, Decompressor, Dictionary, Effort, FRAME_BYTES_MAX, Policy,
    UNIT_BYTES, testdata, train,
};
use proptest::prelude::*;

const BLOCK: usize = 4096;
const EFFORTS: [Effort; 2] = [Effort::Foreground, Effort::Settling];

type Make = fn(u64, usize) -> Vec<u8>;

/// Kinds of structured data, and the share of zstd's size that they take at most, in hundredths, at 32 KiB.
const KINDS: [(&str, Make, usize); 7] = [
    ("bfloat16", testdata::bfloat16, 87),
    ("float32", testdata::float32, 92),
    ("samples16", testdata::samples16, 88),
    ("smooth", testdata::smooth, 60),
    ("picture", picture, 87),
    ("records", testdata::records, 75),
    ("x86 code", testdata::x86_code, 92),
];

fn picture(seed: u64, len: usize) -> Vec<u8> {
    testdata::picture(seed, 1000, len)
}

static DICTIONARY: std::sync::LazyLock<Dictionary> = std::sync::LazyLock::new(|| {
    let data = [testdata::x86_code(99, 1 << 19), testdata::text_like(99, 1 << 19)].concat();
    let samples: Vec<&[u8]> = data.chunks(BLOCK).collect();
    Dictionary::new(1, train(&samples, 16 << 10, 1).expect("enough")).expect("sound")
});

fn compressed(
    compressor: &mut Compressor,
    data: &[u8],
    dictionary: Option<&Dictionary>,
    effort: Effort,
) -> (Coded, Vec<u8>) {
    let mut payload = Vec::new();
    let coded = compressor.compress_structured(data, dictionary, effort, &mut payload);
    if coded.id == CodecId::Raw {
        assert!(payload.is_empty() && !coded.dictionary);
        payload = data.to_vec();
    } else {
        assert!(payload.len() + UNIT_BYTES <= data.len());
    }
    (coded, payload)
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    let size = prop_oneof![1..=64_usize, Just(4096), Just(16_384), Just(32_768), 1..=FRAME_BYTES_MAX];
    (size, any::<u64>(), 0..10_usize).prop_map(|(len, seed, kind)| match kind {
        0..7 => KINDS[kind].1(seed, len),
        7 => testdata::text_like(seed, len),
        8 => testdata::random(seed, len).into_iter().map(|byte| byte & 0x3f).collect(),
        // Several kinds, none of them at a multiple of its length.
        _ => {
            let mut mixed = testdata::random(seed, seed as usize % 7);
            for (at, (_, make, _)) in KINDS.iter().enumerate() {
                mixed.extend(make(seed + at as u64, len / 5 + 1));
            }
            mixed.truncate(len);
            mixed
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn round_trip(
        policy in prop::sample::select(&[Policy::Auto, Policy::Zstd(-3), Policy::Zstd(6), Policy::Zstd(8),
            Policy::Lz4, Policy::None]),
        blocks in prop::collection::vec(data(), 1..4),
        settling: bool,
        with_dictionary: bool,
        wanted in any::<prop::sample::Index>(),
    ) {
        let mut compressor = Compressor::new(policy);
        let mut decompressor = Decompressor::new();
        let dictionary = with_dictionary.then_some(&*DICTIONARY);
        for block in blocks {
            let (coded, payload) = compressed(&mut compressor, &block, dictionary, EFFORTS[usize::from(settling)]);
            let dictionary = dictionary.filter(|_| coded.dictionary);
            let mut back = vec![0xee; block.len()];
            decompressor.decompress(coded.id, &payload, dictionary, &mut back).expect("sound payload");
            prop_assert!(back == block);
            for wanted in [wanted.index(block.len() + 1), block.len() / 2, 1] {
                let mut out = vec![0xee; block.len()];
                decompressor.decompress_prefix(coded.id, &payload, dictionary, &mut out, wanted).expect("sound");
                let wanted = wanted.min(block.len());
                prop_assert!(out[..wanted] == block[..wanted]);
            }
            // Another length than that of the data is an error.
            let mut longer = vec![0; block.len() + 1];
            prop_assert!(decompressor.decompress(coded.id, &payload, dictionary, &mut longer).is_err());
            prop_assert!(decompressor.decompress(coded.id, &payload, dictionary,
                &mut longer[..block.len() - 1]).is_err());
        }
    }

    #[test]
    fn a_payload_depends_on_its_block_alone(one in data(), two in data(), settling: bool) {
        let effort = EFFORTS[usize::from(settling)];
        let fresh = compressed(&mut Compressor::new(Policy::Auto), &two, None, effort);
        let mut used = Compressor::new(Policy::Auto);
        compressed(&mut used, &one, Some(&*DICTIONARY), effort);
        prop_assert!(compressed(&mut used, &two, None, effort) == fresh);
    }

    #[test]
    fn damaged_payloads_do_no_harm(
        kind in 0..KINDS.len(),
        seed in 0..32_u64,
        settling: bool,
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        header in prop::collection::vec(any::<u8>(), 0..8),
        cut in any::<prop::sample::Index>(),
        truncate: bool,
        wanted in 0..40_000_usize,
    ) {
        let data = KINDS[kind].1(seed, 32_768);
        let (coded, mut payload) = compressed(&mut Compressor::new(Policy::Auto), &data, None,
            EFFORTS[usize::from(settling)]);
        prop_assert_eq!(coded.id, CodecId::Structured);
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        payload[..header.len()].copy_from_slice(&header);
        if truncate {
            payload.truncate(cut.index(payload.len()));
        }
        let mut decompressor = Decompressor::new();
        let mut out = vec![0; data.len()];
        let _ = decompressor.decompress(coded.id, &payload, None, &mut out);
        let _ = decompressor.decompress_prefix(coded.id, &payload, None, &mut out, wanted);
        // The contexts must be usable after an error.
        let (coded, payload) = compressed(&mut Compressor::new(Policy::Auto), &data, None, Effort::Foreground);
        decompressor.decompress(coded.id, &payload, None, &mut out).expect("sound payload");
        prop_assert!(out == data);
    }
}

fn bytes(policy: Policy, data: &[u8], frame: usize, effort: Option<Effort>) -> usize {
    let mut compressor = Compressor::new(policy);
    let frames = data.chunks(frame).map(|frame| match effort {
        Some(effort) => compressed(&mut compressor, frame, None, effort).1.len(),
        None => {
            let mut payload = Vec::new();
            compressor.compress(frame, None, &mut payload);
            if payload.is_empty() { frame.len() } else { payload.len() }
        }
    });
    frames.sum()
}

#[test]
fn structured_data_gains() {
    for (name, make, most) in KINDS {
        for seed in 0..3 {
            let data = make(seed, 1 << 19);
            for (policy, frame, effort) in [
                (Policy::Auto, 32_768, Effort::Foreground),
                (Policy::Auto, BLOCK, Effort::Foreground),
                (Policy::Zstd(8), 16_384, Effort::Settling),
            ] {
                let plain = bytes(policy, &data, frame, None);
                let structured = bytes(policy, &data, frame, Some(effort));
                // Smaller frames gain a little less.
                let most = if frame == 32_768 { most } else { (most + 4).min(96) };
                assert!(
                    structured * 100 <= plain * most,
                    "{name} at {frame}, {effort:?}: {structured} bytes of {plain}"
                );
            }
        }
    }
}

#[test]
fn settling_is_never_larger_than_zstd_alone() {
    for seed in 0..4 {
        let mut data: Vec<u8> = KINDS.iter().flat_map(|(_, make, _)| make(seed, 40_000)).collect();
        data.extend(testdata::text_like(seed, 100_000));
        data.extend(testdata::fio_like(seed, 50_000, 40));
        for policy in [Policy::Zstd(1), Policy::Zstd(6)] {
            for frame in data.chunks(16_384) {
                let plain = bytes(policy, frame, frame.len(), None);
                assert!(bytes(policy, frame, frame.len(), Some(Effort::Settling)) <= plain);
            }
        }
    }
}

/// Lines of text as programs write them.
fn text(seed: u64, len: usize) -> Vec<u8> {
    let words = testdata::text_like(seed, 4 * len);
    let printable = words.into_iter().filter(|byte| matches!(byte, b' '..=b'~' | b'\n'));
    let mut text: Vec<u8> = printable.collect();
    text.truncate(len);
    // A table whose rows have one length, as records have.
    for (number, bytes) in (1_700_000_000_u64..).zip(testdata::random(seed, len / 24).chunks_exact(2)) {
        let (one, two) = (u64::from(bytes[0]) % 100, u64::from(bytes[1]));
        text.extend_from_slice(format!("{number} {one:04} {two:06}\n").as_bytes());
    }
    text
}

#[test]
fn text_is_left_alone() {
    for seed in 0..4 {
        let text = text(seed, 1 << 18);
        for frame in [BLOCK, 16_384, 32_768] {
            for effort in EFFORTS {
                let mut compressor = Compressor::new(Policy::Auto);
                for frame in text.chunks(frame) {
                    let (coded, payload) = compressed(&mut compressor, frame, None, effort);
                    let mut plain = Vec::new();
                    assert_eq!(compressor.compress(frame, None, &mut plain), coded.id);
                    assert_eq!(payload, plain);
                }
            }
        }
    }
}

#[test]
fn a_dictionary_is_named_where_it_is_used() {
    let code = testdata::x86_code(5, BLOCK);
    let (coded, payload) =
        compressed(&mut Compressor::new(Policy::Auto), &code, Some(&*DICTIONARY), Effort::Foreground);
    assert_eq!(coded, Coded { id: CodecId::Structured, dictionary: true });
    let mut out = vec![0; BLOCK];
    Decompressor::new().decompress(coded.id, &payload, Some(&*DICTIONARY), &mut out).expect("sound");
    assert_eq!(out, code);
    let numbers = testdata::bfloat16(5, BLOCK);
    let (coded, payload) =
        compressed(&mut Compressor::new(Policy::Auto), &numbers, Some(&*DICTIONARY), Effort::Foreground);
    assert_eq!(coded, Coded { id: CodecId::Structured, dictionary: false });
    Decompressor::new().decompress(coded.id, &payload, None, &mut out).expect("sound");
    assert_eq!(out, numbers);
}

/// Damage after the wanted blocks is not noticed, which shows that decoding stops early where a transform
/// allows it.
#[test]
fn decoding_of_code_and_differences_stops_early() {
    for make in [testdata::x86_code as Make, testdata::smooth, picture] {
        let frame = make(8, 8 * BLOCK);
        let (coded, mut payload) =
            compressed(&mut Compressor::new(Policy::Zstd(6)), &frame, None, Effort::Settling);
        assert_eq!(coded.id, CodecId::Structured);
        let end = payload.len();
        payload[end - end / 4..].fill(0xff);
        let mut out = vec![0; frame.len()];
        let mut decompressor = Decompressor::new();
        assert!(decompressor.decompress(coded.id, &payload, None, &mut out).is_err());
        for wanted in [1, BLOCK, 3 * BLOCK] {
            out.fill(0);
            decompressor
                .decompress_prefix(coded.id, &payload, None, &mut out, wanted)
                .expect("the first half");
            assert!(out[..wanted] == frame[..wanted]);
        }
    }
}

/// A frame that holds too little to restore the wanted bytes is an error, although it holds as many bytes.
#[test]
fn a_frame_that_ends_too_soon_is_an_error() {
    for (name, make, _) in KINDS {
        let frame = make(8, 2 * BLOCK);
        let (coded, payload) =
            compressed(&mut Compressor::new(Policy::Auto), &frame, None, Effort::Foreground);
        assert_eq!(coded.id, CodecId::Structured);
        let mut decompressor = Decompressor::new();
        let mut out = vec![0; 8 * BLOCK];
        for wanted in [2 * BLOCK + 1, 3 * BLOCK, 8 * BLOCK] {
            let error = decompressor.decompress_prefix(coded.id, &payload, None, &mut out, wanted);
            let (codec, expected_bytes, actual_bytes) = (coded.id, out.len(), frame.len());
            let expected = CodecError::Length { codec, expected_bytes, actual_bytes };
            assert_eq!(error, Err(expected), "{wanted} of {name}");
        }
        // Fewer bytes come back right, or not at all: the rows of a table depend on its length.
        let wanted = BLOCK / 2;
        let result = decompressor.decompress_prefix(coded.id, &payload, None, &mut out, wanted);
        assert!(result.is_err() || out[..wanted] == frame[..wanted], "{name}");
    }
}

/// The transform is the low four bits of a payload's first byte (docs/reference/format.md).
#[test]
fn pictures_are_predicted_by_the_row_above() {
    const GRADIENT: u8 = 4;
    for (effort, policy, len) in
        [(Effort::Foreground, Policy::Auto, 32_768), (Effort::Settling, Policy::Zstd(8), 16_384)]
    {
        let mut compressor = Compressor::new(policy);
        let found = (0..20).filter(|&seed| {
            let frame = picture(seed, len);
            let (coded, payload) = compressed(&mut compressor, &frame, None, effort);
            coded.id == CodecId::Structured && payload[0] & 15 == GRADIENT
        });
        assert!(found.count() >= 18, "{effort:?}");
    }
}
