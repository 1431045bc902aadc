//! Compression and decompression restore the input, for every policy and size, and a payload always saves at
//! least one unit.

use codec::{CodecId, Compressor, Decompressor, FRAME_BYTES_MAX, Policy, UNIT_BYTES, testdata};
use proptest::prelude::*;

fn policy() -> impl Strategy<Value = Policy> {
    prop_oneof![
        Just(Policy::Auto),
        Just(Policy::Lz4),
        Just(Policy::None),
        prop::sample::select(&[1_u8, 6, 12]).prop_map(Policy::Deflate),
        // High levels are slow, and differ from each other only in strategy.
        prop::sample::select(&[-5_i8, -1, 1, 3, 6, 9, 13, 19]).prop_map(Policy::Zstd),
    ]
}

/// Sizes around those in real use, and any other.
fn size() -> impl Strategy<Value = usize> {
    prop_oneof![1..=64_usize, Just(4096), Just(FRAME_BYTES_MAX), 1..=FRAME_BYTES_MAX]
}

fn data() -> impl Strategy<Value = Vec<u8>> {
    (size(), any::<u64>(), 0..5).prop_map(|(len, seed, kind)| match kind {
        0 => testdata::text_like(seed, len),
        1 => testdata::fio_like(seed, len, (seed % 101) as u32),
        2 => testdata::random(seed, len),
        3 => vec![seed as u8; len],
        // Compressible by entropy coding only.
        _ => testdata::random(seed, len).into_iter().map(|byte| byte & 0x3f).collect(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn round_trip(policy in policy(), blocks in prop::collection::vec(data(), 1..4)) {
        let mut compressor = Compressor::new(policy);
        let mut decompressor = Decompressor::new();
        for block in blocks {
            let mut out = b"before".to_vec();
            let id = compressor.compress(&block, None, &mut out);
            prop_assert_eq!(&out[..6], b"before");
            let payload = &out[6..];
            let mut back = vec![0xee; block.len()];
            if id == CodecId::Raw {
                prop_assert!(payload.is_empty());
                decompressor.decompress(id, &block, None, &mut back).expect("raw");
            } else {
                prop_assert!(!payload.is_empty() && payload.len() + UNIT_BYTES <= block.len());
                decompressor.decompress(id, payload, None, &mut back).expect("sound payload");
                // An expected length other than the block's is an error in both directions.
                let mut longer = vec![0; block.len() + 1];
                prop_assert!(decompressor.decompress(id, payload, None, &mut longer).is_err());
                prop_assert!(decompressor.decompress(id, payload, None, &mut longer[..block.len() - 1]).is_err());
            }
            prop_assert_eq!(back, block);
        }
    }

    #[test]
    fn a_payload_depends_on_its_block_alone(policy in policy(), one in data(), two in data()) {
        let mut fresh = Vec::new();
        let id = Compressor::new(policy).compress(&two, None, &mut fresh);
        let mut used = Compressor::new(policy);
        used.compress(&one, None, &mut Vec::new());
        let mut again = Vec::new();
        prop_assert_eq!(used.compress(&two, None, &mut again), id);
        prop_assert_eq!(again, fresh);
    }
}
