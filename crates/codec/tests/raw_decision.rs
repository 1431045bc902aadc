//! The decision to store blocks raw: taken for blocks that no codec shrinks, and for no others.

use codec::{CodecId, Compressor, Policy, looks_incompressible, testdata};

const BLOCK: usize = 4096;

/// Share of blocks that the quick test considers incompressible.
fn given_up(data: &[u8]) -> f64 {
    let blocks = data.chunks_exact(BLOCK);
    let all = blocks.len() as f64;
    blocks.filter(|block| looks_incompressible(block)).count() as f64 / all
}

/// Bytes with a roughly normal distribution around 128, a sum of uniform ones, like data of sensors and
/// weights.
fn noise(seed: u64, len: usize, amplitude: i32) -> Vec<u8> {
    let random = testdata::random(seed, len * 8);
    let level = |eight: &[u8]| eight.iter().map(|&byte| i32::from(byte) - 128).sum::<i32>();
    random.chunks_exact(8).map(|eight| (128 + level(eight) * amplitude / 1024).clamp(0, 255) as u8).collect()
}

#[test]
fn random_data_is_given_up() {
    let random = testdata::random(11, 4000 * BLOCK);
    assert!(given_up(&random) > 0.999);
    assert!(given_up(&random[..65536]) > 0.9);
    assert!(looks_incompressible(&random[..65536]), "a frame");
    assert!(looks_incompressible(&random[..6000]), "an odd size");
    for policy in [Policy::Auto, Policy::Lz4, Policy::Zstd(19), Policy::Deflate(12), Policy::None] {
        let mut out = Vec::new();
        assert_eq!(Compressor::new(policy).compress(&random[..BLOCK], None, &mut out), CodecId::Raw);
        assert!(out.is_empty());
    }
}

#[test]
fn what_entropy_coding_or_runs_shrink_is_not_given_up() {
    let bf16: Vec<u8> = noise(1, 1 << 20, 256)
        .chunks_exact(4)
        .flat_map(|four| {
            let weight =
                (f32::from(four[0]) - 128.0) / 977.0 + f32::from(four[1]) / 1e6 + f32::from(four[2]) / 1e8;
            (weight.to_bits() >> 16).to_le_bytes().into_iter().take(2)
        })
        .collect();
    let doubles: Vec<u8> = testdata::random(2, 1 << 20)
        .chunks_exact(8)
        .flat_map(|eight| {
            let bits: [u8; 8] = eight.try_into().expect("eight bytes");
            (u64::from_le_bytes(bits) as f64 / u64::MAX as f64).to_le_bytes()
        })
        .collect();
    for (name, data) in [
        ("text", testdata::text_like(3, 1 << 20)),
        ("60 % zeros", testdata::fio_like(3, 1 << 20, 60)),
        ("10 % zeros", testdata::fio_like(3, 1 << 20, 10)),
        ("bf16 weights", bf16),
        ("doubles in 0..1", doubles),
        ("camera noise", noise(4, 1 << 20, 100)),
        ("7-bit", testdata::random(5, 1 << 20).into_iter().map(|byte| byte & 0x7f).collect()),
    ] {
        assert_eq!(given_up(&data), 0.0, "{name}");
    }
}

#[test]
fn a_frame_is_worth_it_if_one_block_is() {
    let mut frame = testdata::random(6, 65536);
    assert!(looks_incompressible(&frame));
    frame[5 * BLOCK..6 * BLOCK].fill(0);
    assert!(!looks_incompressible(&frame));
}

#[test]
fn saving_less_than_a_unit_is_raw() {
    // At the border of compressibility, a payload always saves at least one unit.
    for zeros in 0..64 {
        let mut block = testdata::random(7, 512);
        block[..zeros].fill(0);
        for policy in [Policy::Lz4, Policy::Zstd(1), Policy::Deflate(6)] {
            let mut out = Vec::new();
            let id = Compressor::new(policy).compress(&block, None, &mut out);
            assert_eq!(id == CodecId::Raw, out.is_empty());
            assert!(out.len() <= 512 - 16);
            assert!(id != CodecId::Raw || zeros < 48, "{policy} {zeros}");
        }
    }
}

#[test]
fn tiny_blocks_are_raw() {
    for len in 0..=16 {
        let mut out = Vec::new();
        assert_eq!(Compressor::new(Policy::Auto).compress(&vec![0; len], None, &mut out), CodecId::Raw);
        assert!(out.is_empty());
    }
}

/// Frames of blocks whose bytes are distributed nearly evenly are judged by a part, and blocks that are alike
/// gain whatever the part says.
#[test]
fn little_gain_is_foreseen() {
    let gains_little = |data: &[u8]| Compressor::new(Policy::Auto).gains_little(data, None);
    for seed in 0..50 {
        assert!(gains_little(&testdata::fio_like(seed, 32 << 10, 5)));
        assert!(gains_little(&testdata::fio_like(seed, 16 << 10, 5)));
        for percent in [15, 20, 50] {
            assert!(!gains_little(&testdata::fio_like(seed, 32 << 10, percent)), "{percent} %");
        }
        for step in [512, 1024, 2048, 4096, 8192, 16_384] {
            assert!(!gains_little(&testdata::random(seed, step).repeat((32 << 10) / step)), "{step}");
        }
        for make in [testdata::bfloat16, testdata::samples16, testdata::records, testdata::text_like] {
            assert!(!gains_little(&make(seed, 32 << 10)));
        }
        // As quickly compressed as judged.
        assert!(!gains_little(&testdata::random(seed, 8 << 10)));
    }
    assert!(!Compressor::new(Policy::Lz4).gains_little(&testdata::random(1, 32 << 10), None));
}
