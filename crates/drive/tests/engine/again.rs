//! Replacement of dictionaries. Data settled before a dictionary existed is settled again if that helps. Old
//! dictionaries are removed when places run out. A drive that was just opened trains on the data it holds.

use crate::common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use codec::CodecId;
use common::{Erased, assert_sound, erased, new_media, run, spawner};
use drive::{Drive, OpenOptions, Settle, SettleStep};
use media::MemoryMedia;

type Memory = Drive<Erased>;

const BLOCK: usize = 4096;

/// A block similar to many others of its kind, without repetitions of its own and unlike blocks of other
/// kinds.
fn page(kind: u8, n: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(BLOCK);
    let mut z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    while out.len() < BLOCK {
        z = (z ^ z >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let line = format!(
            "{{\"time\":\"2026-03-{:02}T{:02}:{:02}Z\",\"level\":\"info\",\"host\":\"web-{}.example.net\",\
             \"request\":\"GET /shop/article/{}\",\"status\":{},\"bytes\":{}}}\n",
            z % 28 + 1,
            z >> 8 & 15,
            z >> 16 & 31,
            z % 251,
            z >> 32 & 0xffff,
            [200, 204, 301, 404, 500][(z >> 20) as usize % 5],
            z >> 40 & 0xffff
        );
        out.extend(line.bytes().map(|byte| byte ^ kind));
    }
    out.truncate(BLOCK);
    out
}

/// A block of sentences from which all blocks are composed. There are too many for neighbours to share them.
fn story(n: u64) -> Vec<u8> {
    const SENTENCES: u64 = 800;
    let sentence = |i: u64| -> Vec<u8> {
        codec::testdata::random(i, 48).into_iter().map(|byte| b'a' + byte % 26).collect()
    };
    let draws = codec::testdata::random(1000 + n, 86 * 2);
    let draws = draws.chunks_exact(2).map(|pair| u64::from(u16::from_le_bytes([pair[0], pair[1]])));
    let mut out: Vec<u8> = draws.flat_map(|draw| sentence(draw % SENTENCES)).collect();
    out.truncate(BLOCK);
    out
}

fn open(media: &Arc<MemoryMedia>, entropy: u64) -> Memory {
    open_with(media, OpenOptions::new(entropy, spawner()))
}

fn open_with(media: &Arc<MemoryMedia>, options: OpenOptions) -> Memory {
    run(Drive::open(erased(media.clone()), OpenOptions { sample_blocks: 256, ..options })).expect("open")
}

/// Checks the blocks of all kinds, and the drive.
fn assert_holds_all(drive: &Memory, kinds: u8) {
    for kind in 0..kinds {
        assert_holds(drive, kind * 3, first_of(kind), EACH);
    }
    assert_sound(drive);
}

fn new_drive() -> (Arc<MemoryMedia>, Memory) {
    let media = new_media(codec::Policy::Auto);
    let drive = open(&media, 1);
    (media, drive)
}

fn write(drive: &Memory, kind: u8, first: u64, count: u64) {
    // Out of order, so that each block is a separate record.
    for i in 0..count {
        let n = first + i * 37 % count;
        run(drive.write(n * 4096, &page(kind, n), false)).expect("write");
    }
}

fn assert_holds(drive: &Memory, kind: u8, first: u64, count: u64) {
    let mut back = vec![0; BLOCK];
    for n in first..first + count {
        run(drive.read(n * 4096, &mut back)).expect("read");
        assert!(back == page(kind, n), "block {n}");
    }
}

/// Does a whole settling pass. Returns the sum of its steps.
fn settle(drive: &Memory, which: Settle) -> SettleStep {
    let mut sum = SettleStep::default();
    let mut next = Some(0);
    while let Some(block) = next {
        let step = run(drive.settle_step(block, which)).expect("settle");
        sum.blocks_count += step.blocks_count;
        sum.before_bytes += step.before_bytes;
        sum.after_bytes += step.after_bytes;
        assert!(!step.no_room);
        next = step.next_block;
    }
    sum
}

fn settle_all(drive: &Memory) -> SettleStep {
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    settle(drive, Settle::All)
}

#[test]
fn what_is_settled_is_settled_again_once_for_each_training_that_helps() {
    let assert_reports = |drive: &Memory| {
        let mut back = vec![0; 600 * BLOCK];
        run(drive.read(0, &mut back)).expect("read");
        assert!(back.chunks_exact(BLOCK).zip(0..).all(|(block, n)| block == story(n)));
    };
    let (media, drive) = new_drive();
    for n in 0..600 {
        run(drive.write(n * 4096, &story(n), false)).expect("write");
    }
    assert_eq!(run(drive.gain_of_settling_again()).expect("gain"), None, "no dictionary");
    assert_eq!(settle_all(&drive).blocks_count, 600);
    assert_eq!(settle(&drive, Settle::Again).blocks_count, 0, "nothing has changed");
    run(drive.checkpoint()).expect("checkpoint");
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    let gain = run(drive.gain_of_settling_again()).expect("gain").expect("all of it is older");
    assert!(gain > 1.03, "{gain}");
    let again = settle(&drive, Settle::Again);
    assert!(again.blocks_count > 300, "{again:?}");
    assert!(again.after_bytes * 103 <= again.before_bytes * 100, "{again:?}");
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    let more = settle(&drive, Settle::Again);
    assert_eq!(more.blocks_count, 0, "what gained lies elsewhere, and what did not still does not: {more:?}");
    assert_reports(&drive);
    assert_sound(&drive);
    drop(drive);
    let drive = open(&media, 2);
    assert_eq!(settle(&drive, Settle::Again).blocks_count, 0, "for good");
    let left = run(drive.gain_of_settling_again()).expect("gain").unwrap_or(1.0);
    assert!(left < 1.03, "{left}");
    assert_reports(&drive);
    assert_sound(&drive);
}

/// Number of blocks of each kind on [`drive_without_places`].
const EACH: u64 = 300;
/// Most kinds of data.
const KINDS_MAX: u8 = 20;

/// First block of a kind on that drive. The oldest kinds have the highest blocks.
fn first_of(kind: u8) -> u64 {
    u64::from(KINDS_MAX - 1 - kind) * EACH
}

/// Creates a drive on which each training gave a dictionary that old data permanently needs, until no place
/// was left. Returns the number of kinds of data as well.
fn drive_without_places() -> (Arc<MemoryMedia>, Memory, u8) {
    let (media, mut drive) = new_drive();
    let mut kinds = 0_u8;
    let refused = loop {
        assert!(kinds < KINDS_MAX, "never refused: {:?}", drive.dictionaries());
        let first = first_of(kinds);
        write(&drive, kinds * 3, first, EACH);
        kinds += 1;
        let trained = run(drive.train()).expect("train");
        if trained.ids.is_empty() {
            break trained;
        }
        // All blocks of this kind need it.
        write(&drive, (kinds - 1) * 3, first, EACH);
        run(drive.close()).expect("close");
        drop(drive);
        drive = open(&media, 100 + u64::from(kinds));
        run(drive.forget_dictionaries()).expect("forget");
    };
    assert!(refused.outcome.contains("places"), "{refused:?}");
    (media, drive, kinds)
}

/// The dictionaries that were retired first are removed.
#[test]
fn places_for_dictionaries_are_made_free() {
    let (media, drive, kinds) = drive_without_places();
    assert!(drive.wants_dictionary_places() && !drive.training_is_due());
    let before: Vec<u16> = drive.dictionaries().iter().map(|it| it.id).collect();
    assert!(before.len() > 9, "{before:?}");
    let mut moved = 0;
    for _ in 0..10_000 {
        let step = run(drive.free_dictionaries_step()).expect("free");
        moved += step.blocks_count;
        if step.next_block.is_none() {
            break;
        }
    }
    let after: Vec<u16> = drive.dictionaries().iter().map(|it| it.id).collect();
    assert!(after.len() <= 9 && after.iter().all(|id| before.contains(id)), "{before:?} {after:?}");
    assert!(after.contains(before.iter().max().expect("one")), "the newest stays");
    // Only data that needed the removed dictionaries was moved.
    let gone = (before.len() - after.len()) as u64;
    assert!(moved > 0 && moved <= (gone + 1) * EACH, "{moved} blocks for {gone}");
    assert!(!drive.wants_dictionary_places() && drive.training_is_due());
    assert!(!run(drive.train()).expect("train").ids.is_empty(), "the sample was kept");
    assert_holds_all(&drive, kinds);
    // Not closed: moved data must be durable, because the catalog no longer holds the dictionaries.
    drop(drive);
    let drive = open(&media, 2);
    assert_holds_all(&drive, kinds);
}

/// Compression takes time, and hosts write meanwhile.
#[test]
fn what_is_overwritten_meanwhile_hides_nothing_that_needs_a_dictionary() {
    let (media, drive, kinds) = drive_without_places();
    run(drive.close()).expect("close");
    drop(drive);
    let host: Arc<Mutex<Option<Memory>>> = Arc::default();
    let (of_compute, next_block) = (host.clone(), Arc::new(AtomicU64::new(0)));
    let next = next_block.clone();
    let compute: drive::Compute = Arc::new(move |work: Box<dyn FnOnce() + Send>| {
        let host = of_compute.lock().expect("one thread").clone();
        let next = next.load(Ordering::Relaxed);
        for block in (next..(next + 64).min(first_of(0) + EACH)).filter(|block| block % 8 == 3) {
            let kind = (KINDS_MAX - 1 - (block / EACH) as u8) * 3;
            if kind >= kinds * 3 {
                continue;
            }
            let Some(drive) = &host else { continue };
            run(drive.write(block * 4096, &page(kind, block), false)).expect("write");
        }
        work();
    });
    let drive = open_with(&media, OpenOptions { compute, ..OpenOptions::new(300, spawner()) });
    let before = drive.dictionaries().len();
    *host.lock().expect("one thread") = Some(drive.clone());
    for _ in 0..10_000 {
        let step = run(drive.free_dictionaries_step()).expect("free");
        let Some(next) = step.next_block else { break };
        next_block.store(next, Ordering::Relaxed);
    }
    *host.lock().expect("one thread") = None;
    assert!(drive.dictionaries().len() < before, "nothing was forgotten");
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, 2);
    assert_holds_all(&drive, kinds);
}

/// Two callers: a step of one ends after the other has ended that pass and begun the next.
#[test]
fn a_late_step_says_nothing_of_the_next_pass() {
    let (media, drive, kinds) = drive_without_places();
    run(drive.close()).expect("close");
    drop(drive);
    let (other, far) = (Arc::new(Mutex::new(None::<Memory>)), Arc::new(AtomicU64::new(0)));
    let (of_compute, is_far) = (other.clone(), far.clone());
    let compute: drive::Compute = Arc::new(move |work: Box<dyn FnOnce() + Send>| {
        let drive = match is_far.load(Ordering::Relaxed) > first_of(1) {
            true => of_compute.lock().expect("one thread").take(),
            false => None,
        };
        if let Some(drive) = drive {
            while run(drive.free_dictionaries_step()).expect("free").next_block.is_some() {}
            assert!(run(drive.free_dictionaries_step()).expect("free").next_block.is_some(), "a second pass");
        }
        work();
    });
    let drive = open_with(&media, OpenOptions { compute, ..OpenOptions::new(300, spawner()) });
    *other.lock().expect("one thread") = Some(drive.clone());
    let (mut passes, before) = (0, drive.dictionaries().len());
    for _ in 0..20_000 {
        match run(drive.free_dictionaries_step()).expect("free").next_block {
            Some(next) => far.store(next, Ordering::Relaxed),
            None => passes += 1,
        }
        if passes == 2 {
            break;
        }
    }
    assert!(other.lock().expect("one thread").is_none(), "nobody came between");
    assert!(drive.dictionaries().len() < before, "nothing was forgotten");
    assert_holds_all(&drive, kinds);
}

#[test]
fn without_retired_dictionaries_nothing_is_made_free() {
    let (_, drive) = new_drive();
    write(&drive, 0, 0, 300);
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    write(&drive, 0, 0, 300);
    assert_eq!(run(drive.free_dictionaries_step()).expect("free"), SettleStep::default());
    assert_eq!(drive.dictionaries().len(), 1);
    assert_holds(&drive, 0, 0, 300);
}

/// Little was written since the drive was opened. The data it holds is equally suitable for training.
#[test]
fn a_drive_that_was_just_opened_learns_from_what_it_holds() {
    let (media, drive) = new_drive();
    write(&drive, 0, 5000, 600);
    // Data that is useless for training is skipped.
    for n in 0..600 {
        run(drive.write(n * 4096, &codec::testdata::random(n, BLOCK), false)).expect("write");
    }
    run(drive.close()).expect("close");
    drop(drive);
    let drive = open(&media, 2);
    assert!(drive.training_is_due(), "it holds enough, and was never trained");
    write(&drive, 0, 5000, 20);
    let trained = run(drive.train()).expect("train");
    assert!(trained.sample_read && trained.sample_blocks > 200, "{trained:?}");
    assert_eq!(trained.ids, [1], "{trained:?}");
    assert!(!drive.training_is_due());
    // Once the sample of written data is full, it is used for training.
    write(&drive, 9, 8000, 300);
    let trained = run(drive.train()).expect("train");
    assert!(!trained.sample_read, "{trained:?}");
    assert_eq!(trained.ids, [2], "{trained:?}");
    assert_holds(&drive, 0, 5000, 600);
    assert_holds(&drive, 9, 8000, 300);
    assert_sound(&drive);
}

#[test]
fn an_empty_drive_has_nothing_to_learn_from() {
    let (_, drive) = new_drive();
    run(drive.write(0, &vec![0x11; 64 * BLOCK], false)).expect("write");
    let trained = run(drive.train()).expect("train");
    assert!(trained.ids.is_empty() && trained.outcome.contains("too few"), "{trained:?}");
    assert_eq!(run(drive.survey(100)), drive::Survey::default());
}

/// The amount of data in each kind of frame is known, so the estimates add up to it. The use of codecs and
/// dictionaries is sampled.
#[test]
fn a_survey_tells_what_live_data_needs() {
    let (_, drive) = new_drive();
    write(&drive, 0, 0, 600);
    assert_eq!(run(drive.train()).expect("train").ids, [1]);
    write(&drive, 0, 1000, 600);
    run(drive.set_codec(codec::Policy::Lz4)).expect("set the codec");
    write(&drive, 0, 2000, 300);
    run(drive.flush()).expect("flush");
    let survey = run(drive.survey(400));
    let live = &survey.live;
    assert!(survey.records_count > 200, "{survey:?}");
    let of = |codec, dictionary| {
        let found =
            live.iter().find(|it| (it.codec, it.dictionary, it.settled) == (codec, dictionary, false));
        found.map_or(0, |it| it.share.logical_bytes)
    };
    let (plain, with, lz4) = (of(CodecId::Zstd, 0), of(CodecId::Zstd, 1), of(CodecId::Lz4, 0));
    let near = |bytes: u64, blocks: u64| bytes > blocks * 4096 * 7 / 10 && bytes < blocks * 4096 * 13 / 10;
    assert!(near(plain, 600) && near(with, 600) && near(lz4, 300), "{survey:?}");
    let sum: u64 = live.iter().map(|it| it.share.logical_bytes).sum();
    let known = drive.status().composition.fresh[0].logical_bytes;
    assert!(sum <= known && known - sum < 64 * 4096, "{sum} of {known}");
    run(drive.set_codec(codec::Policy::Auto)).expect("set the codec");
    settle_all(&drive);
    let survey = run(drive.survey(400));
    assert!(survey.live.iter().all(|it| it.settled && it.codec == CodecId::Zstd), "{survey:?}");
}
