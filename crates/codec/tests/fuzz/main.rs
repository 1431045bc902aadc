//! The fuzz target of `fuzz/` for payloads, run briefly on damaged copies of valid ones. See
//! `fuzz/README.md`.

#[path = "../../../layout/tests/fuzz/harness.rs"]
mod harness;
mod payload;

use codec::{Compressor, Effort, Policy, testdata};

const BLOCK: usize = 4096;

/// Valid payloads, the same in every run.
fn payloads() -> Vec<Vec<u8>> {
    let mut payloads = Vec::new();
    let policies = [
        Policy::None,
        Policy::Lz4,
        Policy::Zstd(-3),
        Policy::Zstd(1),
        Policy::Zstd(6),
        Policy::Zstd(15),
        Policy::Deflate(1),
        Policy::Deflate(9),
    ];
    for policy in policies {
        for number in 0..3 {
            let dictionary = payload::dictionary(number);
            if dictionary.is_some() && !matches!(policy, Policy::Zstd(_)) {
                continue;
            }
            for (seed, blocks) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 16)] {
                let mut data = testdata::text_like(seed, blocks * BLOCK);
                data[BLOCK / 2..BLOCK].copy_from_slice(&testdata::random(seed, BLOCK / 2));
                data[blocks * BLOCK - 600..].fill(7);
                let mut out = Vec::new();
                let id = Compressor::new(policy).compress(&data, dictionary, &mut out);
                if policy == Policy::None {
                    out = data;
                }
                payloads.push(payload::encode(id, number, blocks, &out));
            }
        }
    }
    let kinds =
        [testdata::bfloat16, testdata::samples16, testdata::smooth, testdata::records, testdata::x86_code];
    for (seed, make) in (1..).zip(kinds) {
        for number in 0..3 {
            let dictionary = payload::dictionary(number);
            for (blocks, effort) in [(1, Effort::Foreground), (4, Effort::Settling), (8, Effort::Foreground)]
            {
                let data = make(seed, blocks * BLOCK);
                let mut out = Vec::new();
                let mut compressor = Compressor::new(Policy::Zstd(6));
                let coded = compressor.compress_structured(&data, dictionary, effort, &mut out);
                let number = if coded.dictionary { number } else { 0 };
                payloads.push(payload::encode(coded.id, number, blocks, &out));
            }
        }
    }
    // The same bytes serve as dictionary and payload.
    let trained = payload::dictionary(1).expect("the trained one").bytes();
    payloads.push(payload::encode(codec::CodecId::Zstd, 3, 1, trained));
    payloads
}

#[test]
fn payload_target() {
    harness::fuzz("payload_target", &payloads(), payload::run);
}

/// See fuzz/README.md.
#[test]
#[ignore = "prepares longer runs: see fuzz/README.md"]
fn write_corpus() {
    harness::write_corpus("payload", &payloads());
}
