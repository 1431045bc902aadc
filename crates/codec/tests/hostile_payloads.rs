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

/// A match at distance 0 copies a byte to itself: whatever the destination held before, of another drive perhaps.
#[test]
fn nothing_of_the_destination_s_former_contents_is_returned() {
    for copies in [0, 1, 4, 11, 12, 15 + 100] {
        // One literal, a match at distance 0, and the literals that must come last.
        let mut payload = vec![0x10 | (copies as u8).min(15), b'a', 0, 0];
        if copies >= 15 {
            payload.push(copies as u8 - 15);
        }
        payload.push(12 << 4);
        payload.extend([b'z'; 12]);
        let len = 1 + copies + 4 + 12;
        for wanted in [len, len / 2] {
            let decoded = |before| {
                let mut out = vec![before; len];
                let mut decompressor = Decompressor::new();
                let result = match wanted == len {
                    true => decompressor.decompress(CodecId::Lz4, &payload, None, &mut out),
                    false => decompressor.decompress_prefix(CodecId::Lz4, &payload, None, &mut out, wanted),
                };
                result.map(|()| out[..wanted].to_vec())
            };
            assert_eq!(decoded(1), decoded(2), "a match of {} bytes, the first {wanted} wanted", copies + 4);
        }
    }
}
