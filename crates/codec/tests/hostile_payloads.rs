//! Arbitrary data from a damaged medium gives an error or wrong bytes (which the record's checksum detects),
//! never a panic.

use codec::{CodecError, CodecId, Compressor, Decompressor, Policy, testdata};
use proptest::prelude::*;

const IDS: [CodecId; 5] = [CodecId::Raw, CodecId::Lz4, CodecId::Zstd, CodecId::Deflate, CodecId::Structured];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn random_bytes(payload in prop::collection::vec(any::<u8>(), 0..600), expected in 0..70_000_usize) {
        let mut decompressor = Decompressor::new();
        let mut out = vec![0; expected];
        for id in IDS {
            let _ = decompressor.decompress(id, &payload, None, &mut out);
        }
    }

    #[test]
    fn damaged_payloads(
        seed in 0..32_u64,
        policy in prop::sample::select(&[Policy::Lz4, Policy::Zstd(1), Policy::Zstd(-5), Policy::Deflate(6)]),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        cut in any::<prop::sample::Index>(),
        truncate: bool,
    ) {
        let block = testdata::text_like(seed, 4096);
        let mut payload = Vec::new();
        let id = Compressor::new(policy).compress(&block, None, &mut payload);
        let cut_only = truncate && damage.is_empty();
        for (at, byte) in damage {
            let at = at.index(payload.len());
            payload[at] = byte;
        }
        if truncate {
            payload.truncate(cut.index(payload.len()));
        }
        let mut decompressor = Decompressor::new();
        let mut out = vec![0; block.len()];
        let result = decompressor.decompress(id, &payload, None, &mut out);
        // A payload that was only truncated holds too little.
        prop_assert!(!cut_only || result.is_err());

        // The context must be usable after an error.
        payload.clear();
        let id = Compressor::new(policy).compress(&block, None, &mut payload);
        decompressor.decompress(id, &payload, None, &mut out).expect("sound payload");
        prop_assert_eq!(out, block);
    }
}

#[test]
fn errors_name_codec_and_lengths() {
    let mut decompressor = Decompressor::new();
    let mut out = [0; 4096];
    assert_eq!(
        decompressor.decompress(CodecId::Raw, &[0; 4095], None, &mut out),
        Err(CodecError::Length { codec: CodecId::Raw, expected_bytes: 4096, actual_bytes: 4095 })
    );
    for id in [CodecId::Lz4, CodecId::Zstd, CodecId::Deflate, CodecId::Structured] {
        for payload in [&[] as &[u8], &[0xff; 64]] {
            let error =
                decompressor.decompress(id, payload, None, &mut out).expect_err("garbage").to_string();
            assert!(error.starts_with(&id.to_string()) && error.lines().count() == 1, "{error}");
        }
    }
}

/// A match at distance 0 copies a byte to itself: whatever the destination held before, of another drive
/// perhaps.
#[test]
fn nothing_of_the_destination_s_former_contents_is_returned() {
    let length = |first: &mut Vec<u8>, len: usize| {
        first.extend(std::iter::repeat_n(255, len / 255));
        first.push((len % 255) as u8);
    };
    for (literals, copies) in
        [1, 15, 300].into_iter().flat_map(|one| [4, 5, 18, 19, 40, 600].map(|two| (one, two)))
    {
        // Literals, a match at distance 0, and the literals that must come last.
        let mut payload = vec![(literals.min(15) << 4 | (copies - 4).min(15)) as u8];
        if literals >= 15 {
            length(&mut payload, literals - 15);
        }
        payload.extend(vec![b'a'; literals]);
        payload.extend([0, 0]);
        if copies >= 19 {
            length(&mut payload, copies - 19);
        }
        payload.push(12 << 4);
        payload.extend([b'z'; 12]);
        let len = literals + copies + 12;
        for wanted in [len, len - 12, literals + copies / 2] {
            let decoded = |before| {
                let mut out = vec![before; len];
                let mut decompressor = Decompressor::new();
                let result = match wanted == len {
                    true => decompressor.decompress(CodecId::Lz4, &payload, None, &mut out),
                    false => decompressor.decompress_prefix(CodecId::Lz4, &payload, None, &mut out, wanted),
                };
                result.map(|()| out[..wanted].to_vec())
            };
            assert!(decoded(1).is_ok(), "a match of {copies} bytes");
            assert_eq!(decoded(1), decoded(2), "a match of {copies} bytes, {wanted} of {len} wanted");
        }
    }
}
