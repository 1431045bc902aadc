//! Writing, reading, reopening.

use crate::common;

use std::sync::Arc;

use codec::Policy;
use codec::testdata::{fio_like, random, text_like};
use common::{Erased, assert_sound, create_options, erased, new_drive, open, run, spawner};
use drive::{CreateOptions, Drive, OpenOptions, ReadCache, Settle, Zeroes};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

#[test]
fn what_was_written_is_read_before_and_after_reopening() {
    let (media, drive) = new_drive(64 << 20, 128 << 20);
    let text = text_like(1, 1 << 20);
    let noise = random(2, 300_032);
    run(drive.write(4096, &text, false)).expect("write");
    run(drive.write(32 << 20, &noise, true)).expect("write");
    let check = |drive: &Drive<Erased>| {
        let mut back = vec![0xff; text.len()];
        run(drive.read(4096, &mut back)).expect("read");
        assert!(back == text);
        let mut back = vec![0xff; noise.len()];
        run(drive.read(32 << 20, &mut back)).expect("read");
        assert!(back == noise);
        let mut hole = vec![0xff; 8192];
        run(drive.read(100 << 20, &mut hole)).expect("read");
        assert!(hole.iter().all(|b| *b == 0));
        assert_sound(drive);
    };
    check(&drive);
    run(drive.flush()).expect("flush");
    check(&drive);
    drop(drive);
    let again = open(&media, 2);
    assert!(again.status().recovered.packs_count > 0);
    check(&again);
    run(again.close()).expect("close");
    let last = open(&media, 3);
    assert!(last.status().recovered.clean);
    check(&last);
}

#[test]
fn sectors_are_merged_into_blocks() {
    let (_, drive) = new_drive(64 << 20, 64 << 20);
    let mut model = vec![0; 64 * 1024];
    for i in 0..200u64 {
        let offset = (i * 37 % 100) * 512;
        let data = fio_like(i, 512 * (1 + i as usize % 19), 50);
        run(drive.write(offset, &data, false)).expect("write");
        model[offset as usize..offset as usize + data.len()].copy_from_slice(&data);
    }
    let mut back = vec![0; model.len()];
    run(drive.read(0, &mut back)).expect("read");
    assert!(back == model);
    let mut part = vec![0; 1536];
    run(drive.read(512 * 13, &mut part)).expect("read");
    assert!(part == model[512 * 13..512 * 16]);
}

/// Data that begins within a word of a fill, a block, a frame: of each kind of content, with each codec.
#[test]
fn bytes_are_merged_into_blocks() {
    const REGION: usize = 96 << 10;
    let codecs = [Policy::Auto, Policy::Lz4, Policy::Deflate(1), Policy::None];
    for (codec, sector_bytes) in codecs.into_iter().zip([512, 4096, 4096, 512]) {
        let media = Arc::new(media::MemoryMedia::new(64 << 20));
        let options = CreateOptions { codec, sector_bytes, ..create_options(64 << 20, 64 << 20) };
        run(Drive::create(&*media, &options)).expect("create");
        let read_cache = ReadCache::new(1 << 20);
        let open = |entropy| {
            let options =
                OpenOptions { read_cache: read_cache.clone(), ..OpenOptions::new(entropy, spawner()) };
            run(Drive::open(erased(media.clone()), options)).expect("open")
        };
        let mut drive = open(1);
        let mut model = vec![0; REGION];
        let mut dice = StdRng::seed_from_u64(7);
        for i in 0..600 {
            let len = dice.random_range(1..=if i % 5 == 0 { 40_000 } else { 600 });
            let at = dice.random_range(0..REGION - len);
            let mut data = match i % 4 {
                0 => text_like(i, len),
                1 => random(i, len),
                2 => (0..len).map(|byte| [1, 2, 3, 4][(at + byte) % 4]).collect(),
                _ => vec![0; len],
            };
            match i % 8 {
                3 => run(drive.trim(at as u64, len as u64, false)).expect("trim"),
                7 => run(drive.write_zeroes(at as u64, len as u64, Zeroes { unmap: i % 16 != 7, fua: true }))
                    .expect("zeroes"),
                _ => run(drive.write(at as u64, &data, i % 16 == 0)).expect("write"),
            }
            model[at..at + len].copy_from_slice(&data);
            let len = dice.random_range(1..9000);
            let at = dice.random_range(0..REGION - len);
            data.resize(len, 0xff);
            run(drive.read(at as u64, &mut data)).expect("read");
            assert!(data[..] == model[at..at + len], "{codec} {i}: {len} bytes at {at}");
            if i % 150 == 149 {
                run(drive.flush()).expect("flush");
                run(drive.settle_step(0, Settle::All)).expect("settle");
                drop(drive);
                drive = open(i);
            }
        }
        assert_sound(&drive);
    }
}

#[test]
fn overwriting_for_long_is_cleaned_up_behind() {
    let (media, drive) = new_drive(32 << 20, 24 << 20);
    let mut model = vec![0u8; 24 << 20];
    let mut seed = 1u64;
    for _ in 0..12_000 {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let block = (seed >> 33) % (model.len() as u64 / 4096);
        let data = fio_like(seed, 4096, 50);
        run(drive.write(block * 4096, &data, false)).expect("write");
        model[block as usize * 4096..][..4096].copy_from_slice(&data);
        while run(drive.maintain()).expect("maintain") {}
    }
    assert_sound(&drive);
    let status = drive.status();
    assert!(status.counters.segments_cleaned_count > 0, "{status:?}");
    run(drive.flush()).expect("flush");
    drop(drive);
    let drive = open(&media, 2);
    assert_sound(&drive);
    let mut back = vec![0; model.len()];
    run(drive.read(0, &mut back)).expect("read");
    assert!(back == model);
}

#[test]
fn a_full_drive_refuses_and_takes_again_after_trim() {
    let (_, drive) = new_drive(32 << 20, 64 << 20);
    let noise = random(1, 128 * 1024);
    let mut written = 0;
    let error = loop {
        match run(drive.write(written, &noise, false)) {
            Ok(()) => written += noise.len() as u64,
            Err(error) => break error,
        }
    };
    assert_eq!(error, drive::Error::NoSpace);
    assert!(written > 12 << 20, "{written}");
    run(drive.flush()).expect("flush of a full drive");
    let mut back = vec![0; noise.len()];
    run(drive.read(written - noise.len() as u64, &mut back)).expect("read of a full drive");
    assert!(back == noise);
    assert_sound(&drive);
    run(drive.trim(0, written / 2, false)).expect("trim of a full drive");
    for i in 0..written / 4 / noise.len() as u64 {
        run(drive.write(i * noise.len() as u64, &noise, false)).expect("write after trim");
    }
    assert_sound(&drive);
}

#[test]
fn trim_and_zeroes_read_as_zeros_also_after_reopening() {
    let (media, drive) = new_drive(64 << 20, 1 << 40);
    let text = text_like(1, 4 << 20);
    run(drive.write(0, &text, false)).expect("write");
    run(drive.trim(512 * 3, 3 << 20, false)).expect("trim");
    run(drive.write_zeroes((3 << 20) + 4096 * 3, 65536, Zeroes::default())).expect("zeroes");
    run(drive.trim(1 << 30, (1 << 40) - (1 << 30), false)).expect("trim of what was never written");
    let mut model = text;
    model[512 * 3..512 * 3 + (3 << 20)].fill(0);
    model[(3 << 20) + 4096 * 3..(3 << 20) + 4096 * 3 + 65536].fill(0);
    run(drive.flush()).expect("flush");
    for entropy in 2..4 {
        let drive = open(&media, entropy);
        let mut back = vec![0xff; model.len()];
        run(drive.read(0, &mut back)).expect("read");
        assert!(back == model);
        assert_sound(&drive);
    }
    let runs = run(drive.extents(0, 8 << 20, 100)).expect("extents");
    assert_eq!(runs.iter().map(|r| r.len).sum::<u64>(), 8 << 20);
}
