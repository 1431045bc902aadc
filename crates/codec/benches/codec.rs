//! Time for one 4 KiB block: `cargo bench -p codec`.

#![allow(missing_docs, reason = "criterion's macros make public functions")]

use std::hint::black_box;

use codec::{
    CodecId, Decompressor, Dictionary, Policy, choose, fill_word, looks_incompressible, testdata,
    with_compressor,
};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const BLOCK: usize = 4096;
/// More than a branch predictor can learn.
const BLOCKS: usize = 1024;

const POLICIES: [Policy; 6] =
    [Policy::Deflate(1), Policy::Lz4, Policy::Zstd(-1), Policy::Zstd(1), Policy::Zstd(3), Policy::None];

fn data_sets() -> [(&'static str, Vec<u8>); 3] {
    [
        ("text", testdata::text_like(1, BLOCKS * BLOCK)),
        ("fio60", testdata::fio_like(1, BLOCKS * BLOCK, 60)),
        ("random", testdata::random(1, BLOCKS * BLOCK)),
    ]
}

fn compress(criterion: &mut Criterion) {
    for (name, data) in data_sets() {
        let mut group = criterion.benchmark_group(format!("compress/{name}"));
        group.throughput(Throughput::Bytes(BLOCK as u64));
        for policy in POLICIES {
            let mut blocks = data.chunks_exact(BLOCK).cycle();
            group.bench_function(policy.to_string(), |bencher| {
                bencher.iter(|| {
                    let block = blocks.next().unwrap_or_default();
                    with_compressor(policy, |compressor, out| compressor.compress(block, None, out))
                });
            });
        }
    }
}

fn decompress(criterion: &mut Criterion) {
    for (name, data) in data_sets() {
        let mut group = criterion.benchmark_group(format!("decompress/{name}"));
        group.throughput(Throughput::Bytes(BLOCK as u64));
        for policy in POLICIES {
            let payloads: Vec<(CodecId, Vec<u8>)> = data
                .chunks_exact(BLOCK)
                .map(|block| {
                    with_compressor(policy, |compressor, out| match compressor.compress(block, None, out) {
                        CodecId::Raw => (CodecId::Raw, block.to_vec()),
                        id => (id, out.clone()),
                    })
                })
                .collect();
            let mut decompressor = Decompressor::new();
            let mut out = vec![0; BLOCK];
            let mut at = 0;
            group.bench_function(policy.to_string(), |bencher| {
                bencher.iter(|| {
                    at = (at + 1) % payloads.len();
                    let (id, payload) = &payloads[at];
                    decompressor.decompress(*id, payload, None, black_box(&mut out))
                });
            });
        }
    }
}

fn detect(criterion: &mut Criterion) {
    let zeros = ("zeros", vec![0; BLOCKS * BLOCK]);
    let mut group = criterion.benchmark_group("detect");
    group.throughput(Throughput::Bytes(BLOCK as u64));
    for (name, data) in data_sets().into_iter().chain([zeros]) {
        let mut blocks = data.chunks_exact(BLOCK).cycle();
        group.bench_function(format!("looks_incompressible/{name}"), |bencher| {
            bencher.iter(|| looks_incompressible(black_box(blocks.next().unwrap_or_default())));
        });
        group.bench_function(format!("fill_word/{name}"), |bencher| {
            bencher.iter(|| fill_word(black_box(blocks.next().unwrap_or_default())));
        });
    }
}

fn choosing(criterion: &mut Criterion) {
    let dictionaries: Vec<Dictionary> = (1..=16)
        .map(|id| Dictionary::new(id, testdata::text_like(id.into(), 60 << 10)).expect("any bytes serve"))
        .collect();
    let mut group = criterion.benchmark_group("choose");
    for (name, data) in data_sets() {
        for count in [1, 4, 16] {
            let mut blocks = data.chunks_exact(BLOCK).cycle();
            group.bench_function(format!("{name}/{count}"), |bencher| {
                bencher.iter(|| choose(&dictionaries[..count], black_box(blocks.next().unwrap_or_default())));
            });
        }
    }
}

criterion_group!(benches, compress, decompress, detect, choosing);
criterion_main!(benches);
