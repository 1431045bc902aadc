//! Settling: cold blocks are compressed again, more strongly and together, and nothing else changes.

use crate::common;

use std::sync::Arc;

use codec::testdata::{fio_like, random, text_like};
use common::{Erased, assert_sound, erased, new_media, open, run};
use drive::{Drive, Settle, SettleStep};
use media::MemoryMedia;

type Memory = Drive<Erased>;
/// A computation that the drive requests.
type Work = Box<dyn FnOnce() + Send>;

const BLOCK: usize = 4096;

fn new_drive() -> (Arc<MemoryMedia>, Memory) {
    let media = new_media(codec::Policy::Auto);
    let drive = open(&media, 1);
    (media, drive)
}

/// Does a whole pass. Returns the sum of its steps.
fn settle(drive: &Memory, which: Settle) -> SettleStep {
    let mut sum = SettleStep::default();
    let mut block = 0;
    loop {
        let step = run(drive.settle_step(block, which)).expect("settle");
        sum.blocks_count += step.blocks_count;
        sum.before_bytes += step.before_bytes;
        sum.after_bytes += step.after_bytes;
        assert!(!step.no_room);
        match step.next_block {
            Some(next) => {
                assert!(next > block || next == 0);
                block = next;
            }
            None => return sum,
        }
    }
}

fn write_blocks(drive: &Memory, data: &[u8]) {
    // One by one and out of order, so that there are no frames.
    let blocks = data.len() / BLOCK;
    for i in 0..blocks {
        let n = i * 37 % blocks;
        run(drive.write((n * BLOCK) as u64, &data[n * BLOCK..][..BLOCK], false)).expect("write");
    }
}

fn contents(drive: &Memory, len: usize) -> Vec<u8> {
    let mut back = vec![0; len];
    run(drive.read(0, &mut back)).expect("read");
    back
}

#[test]
fn random_writes_become_strong_frames_once() {
    let (media, drive) = new_drive();
    let data = text_like(3, 1000 * BLOCK);
    write_blocks(&drive, &data);
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    let before = drive.space().0;
    let settled = settle(&drive, Settle::All);
    assert_eq!(settled.blocks_count, 1000);
    assert!(settled.after_bytes < settled.before_bytes);
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    let after = drive.space().0;
    assert!(after * 10 < before * 9, "{after} of {before}");
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 0, "settled once");
    drop(drive);
    let again = open(&media, 2);
    assert!(contents(&again, data.len()) == data);
    assert_eq!(settle(&again, Settle::All).blocks_count, 0, "and for good");
    assert_sound(&again);
}

#[test]
fn what_is_not_old_enough_waits() {
    let (_, drive) = new_drive();
    let data = text_like(3, 800 * BLOCK);
    write_blocks(&drive, &data);
    run(drive.flush()).expect("flush");
    assert_eq!(settle(&drive, Settle::Worthwhile(Some(1 << 40))).blocks_count, 0);
    assert!(settle(&drive, Settle::Worthwhile(Some(0))).blocks_count > 0, "sealed segments");
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
}

/// The codec changes for data written from then on. Existing data is still readable.
#[test]
fn the_codec_is_changed_while_the_drive_is_used() {
    use codec::{CodecId, Policy};
    let (media, drive) = new_drive();
    let data = text_like(3, 16 * BLOCK);
    let policies = [Policy::None, Policy::Lz4, Policy::Zstd(5), Policy::Deflate(6), Policy::Auto];
    for (i, policy) in policies.into_iter().enumerate() {
        run(drive.set_codec(policy)).expect("set the codec");
        assert_eq!(drive.status().codec, policy);
        run(drive.write((i * data.len()) as u64, &data, false)).expect("write");
    }
    let all = data.repeat(policies.len());
    assert!(contents(&drive, all.len()) == all);
    let composition = drive.status().composition;
    assert_eq!(composition.raw.logical_bytes, data.len() as u64, "none");
    assert_eq!(composition.fresh[3].logical_bytes, 4 * data.len() as u64, "frames of eight");
    let written = drive.status().written;
    let ways: Vec<_> = written.iter().map(|it| (it.codec, it.level, it.share.logical_bytes)).collect();
    let len = data.len() as u64;
    assert_eq!(
        ways,
        [
            (CodecId::Raw, None, len),
            (CodecId::Lz4, None, len),
            (CodecId::Zstd, Some(1), len),
            (CodecId::Zstd, Some(5), len),
            (CodecId::Deflate, Some(6), len),
        ]
    );
    assert!(written.iter().all(|it| it.dictionary == Some(0) && !it.settled));
    let used = |drive: &Memory| drive.space().0;
    let written = |hurried: bool| {
        let before = used(&drive);
        drive.set_hurried(hurried);
        run(drive.write(32 << 20, &data, false)).expect("write");
        let took = used(&drive) - before;
        run(drive.trim(32 << 20, data.len() as u64, false)).expect("trim");
        took
    };
    assert!(written(true) > written(false), "LZ4 takes more than zstd, and no time");
    run(drive.set_codec(Policy::Zstd(7))).expect("set the codec");
    run(drive.close()).expect("close");
    assert!(run(drive.set_codec(Policy::Lz4)).is_err(), "closed");
    drop(drive);
    let again = open(&media, 2);
    assert_eq!(again.status().codec, Policy::Zstd(7));
    assert!(contents(&again, all.len()) == all);
    settle(&again, Settle::All);
    let composition = again.status().composition;
    // Frames of eight made by level 5 and DEFLATE are smaller than frames of four would be.
    assert_eq!(composition.settled[2].logical_bytes, 2 * data.len() as u64);
    assert_eq!(composition.settled[3].logical_bytes, 2 * data.len() as u64);
    assert_eq!(composition.fresh[3].logical_bytes, 0);
    assert!(composition.settled[2].physical_bytes < composition.settled[2].logical_bytes / 2);
    assert_sound(&again);
}

/// Incompressible data stays in place, and is not examined again.
#[test]
fn raw_blocks_are_left_alone() {
    let (_, drive) = new_drive();
    let mut data = text_like(3, 64 * BLOCK);
    data[10 * BLOCK..12 * BLOCK].copy_from_slice(&random(1, 2 * BLOCK));
    write_blocks(&drive, &data);
    run(drive.flush()).expect("flush");
    assert_eq!(settle(&drive, Settle::All).blocks_count, 62);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 0);
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
}

/// A block overwritten after it was settled is a single block at the place of its frame, until it is settled
/// with its neighbours.
#[test]
fn an_overwritten_block_is_settled_alone_and_half_a_frame_with_the_rest() {
    let (_, drive) = new_drive();
    let mut data = text_like(3, 64 * BLOCK);
    write_blocks(&drive, &data);
    run(drive.flush()).expect("flush");
    settle(&drive, Settle::All);
    let overwrite = |n: usize, data: &mut Vec<u8>| {
        let block = text_like(n as u64 + 99, BLOCK);
        run(drive.write((n * BLOCK) as u64, &block, false)).expect("write");
        data[n * BLOCK..][..BLOCK].copy_from_slice(&block);
    };
    overwrite(17, &mut data);
    (40..44).for_each(|n| overwrite(n, &mut data));
    run(drive.flush()).expect("flush");
    assert!(contents(&drive, data.len()) == data);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 1 + 8);
    assert!(contents(&drive, data.len()) == data);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 0);
    assert_sound(&drive);
}

/// Blocks that the host overwrites while they are being compressed keep the host's data.
#[test]
fn a_write_in_between_wins() {
    let media = new_media(codec::Policy::Auto);
    let late: Arc<std::sync::Mutex<Option<Work>>> = Arc::default();
    let keep = late.clone();
    let options = drive::OpenOptions {
        compute: Arc::new(move |work| *keep.lock().expect("a lock") = Some(work)),
        ..drive::OpenOptions::new(1, common::spawner())
    };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    let mut data = text_like(3, 32 * BLOCK);
    write_blocks(&drive, &data);
    run(drive.flush()).expect("flush");
    let mut step = Box::pin(drive.settle_step(0, Settle::All));
    let waker = std::task::Waker::noop();
    let mut context = std::task::Context::from_waker(waker);
    assert!(step.as_mut().poll(&mut context).is_pending());
    for n in [3, 4, 5, 31] {
        let block = text_like(n as u64 + 99, BLOCK);
        run(drive.write((n * BLOCK) as u64, &block, false)).expect("write");
        data[n * BLOCK..][..BLOCK].copy_from_slice(&block);
    }
    let work = late.lock().expect("a lock").take().expect("work to be done");
    work();
    let done = run(step.as_mut()).expect("settle");
    drop(step);
    assert_eq!(done.blocks_count, 32 - 12);
    assert!(contents(&drive, data.len()) == data);
    run(drive.flush()).expect("flush");
    drop(drive);
    let again = open(&media, 2);
    assert!(contents(&again, data.len()) == data);
    assert_sound(&again);
}

/// Compression waits for an idle processor, perhaps for minutes. Checkpoints and cleaning do not wait for it.
#[test]
fn no_segment_is_kept_while_something_is_compressed() {
    let media = new_media(codec::Policy::Auto);
    let late: Arc<std::sync::Mutex<Option<Work>>> = Arc::default();
    let keep = late.clone();
    let options = drive::OpenOptions {
        compute: Arc::new(move |work| *keep.lock().expect("a lock") = Some(work)),
        ..drive::OpenOptions::new(1, common::spawner())
    };
    let drive = run(Drive::open(erased(media.clone()), options)).expect("open");
    // The first segment is full.
    let mut data = random(7, 400 * BLOCK);
    data[..32 * BLOCK].copy_from_slice(&text_like(3, 32 * BLOCK));
    write_blocks(&drive, &data);
    run(drive.flush()).expect("flush");
    let mut step = Box::pin(drive.settle_step(0, Settle::All));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(step.as_mut().poll(&mut context).is_pending());
    data = random(8, data.len());
    for round in 0..4 {
        // The segments are freed, and filled again.
        data[..BLOCK].copy_from_slice(&text_like(round, BLOCK));
        write_blocks(&drive, &data);
        run(drive.flush()).expect("flush");
        run(drive.checkpoint()).expect("checkpoint");
        assert_eq!(drive.status().segments_waiting_count, 0, "a freed segment is kept");
    }
    let work = late.lock().expect("a lock").take().expect("work to be done");
    work();
    assert_eq!(run(step.as_mut()).expect("settle").blocks_count, 0);
    drop(step);
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
}

/// In the background, data is not written again for next to nothing.
#[test]
fn what_gains_too_little_is_not_written_again() {
    const LEN: usize = 256 * BLOCK;
    let (_, drive) = new_drive();
    let mut data = fio_like(3, LEN, 50);
    // Records once that the superblock names the structured codec.
    settle(&drive, Settle::Worthwhile(None));
    write_large(&drive, &data);
    let before = drive.status().counters.physical_written_bytes;
    let step = settle(&drive, Settle::Worthwhile(None));
    assert_eq!(step.blocks_count, 0, "{step:?}");
    run(drive.flush()).expect("flush");
    // Nothing but an empty pack.
    let written = drive.status().counters.physical_written_bytes - before;
    assert!(written <= 4 * BLOCK as u64, "{written}");
    // What a host writes is looked at, and what gains is written.
    let text = text_like(9, 8 * BLOCK);
    for i in 0..8 {
        let block = &text[i * BLOCK..][..BLOCK];
        run(drive.write(((64 + i) * BLOCK) as u64, block, false)).expect("write");
        data[(64 + i) * BLOCK..][..BLOCK].copy_from_slice(block);
    }
    run(drive.flush()).expect("flush");
    let step = settle(&drive, Settle::Worthwhile(None));
    assert_eq!(step.blocks_count, 8, "{step:?}");
    let (before, after) = (step.before_bytes, step.after_bytes);
    assert!((before - after) * drive::SETTLE_PRICE_MAX >= after, "{after} of {before}");
    assert_eq!(settle(&drive, Settle::Worthwhile(None)).blocks_count, 0);
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
    // Who asks for it gets all of it.
    assert!(settle(&drive, Settle::All).blocks_count > 0);
    assert!(contents(&drive, data.len()) == data);
}

/// Requests wait for cleaning, so it compresses what is left of settled frames quickly. Settling looks at it
/// later.
#[test]
fn cleaning_packs_what_is_left_of_settled_frames_quickly() {
    let (_, drive) = new_drive();
    let mut data = text_like(3, 1600 * BLOCK);
    write_large(&drive, &data);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 1600);
    run(drive.flush()).expect("flush");
    assert_eq!(drive.status().composition.fresh.iter().map(|it| it.logical_bytes).sum::<u64>(), 0);
    // Two of four blocks die.
    for block in (0..1600).filter(|block| block % 4 < 2) {
        run(drive.trim((block * BLOCK) as u64, BLOCK as u64, false)).expect("trim");
        data[block * BLOCK..][..BLOCK].fill(0);
    }
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    let before = drive.space().0;
    while run(drive.clean()).expect("clean") {}
    run(drive.checkpoint()).expect("checkpoint");
    let composition = drive.status().composition;
    let fresh = composition.fresh[1].logical_bytes;
    assert!(fresh > 700 * BLOCK as u64, "{composition:?}");
    let after = drive.space().0;
    assert!(after * 10 < before * 8, "{after} of {before}");
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
    let settled = settle(&drive, Settle::Worthwhile(None)).blocks_count * BLOCK as u64;
    assert!(settled * 10 > fresh * 9, "{settled} of {fresh} gain");
}

/// What gains little is stored uncompressed at first, and compressed when it is settled. What gains nothing
/// is neither put off nor looked at again.
#[test]
fn what_gains_little_is_put_off() {
    const LEN: usize = 64 * BLOCK;
    let (media, drive) = new_drive();
    let mut data = fio_like(3, LEN, 6);
    data[8 * BLOCK..16 * BLOCK].copy_from_slice(&random(1, 8 * BLOCK));
    run(drive.write(0, &data, false)).expect("write");
    run(drive.flush()).expect("flush");
    let put_off = drive.status().composition;
    assert_eq!(put_off.raw.logical_bytes, LEN as u64, "{put_off:?}");
    assert!(contents(&drive, LEN) == data);
    // The mark outlives the opening.
    drop(drive);
    let drive = open(&media, 2);
    let step = settle(&drive, Settle::All);
    assert_eq!(step.blocks_count, 56, "{step:?}");
    assert!(step.after_bytes < step.before_bytes * 97 / 100, "{step:?}");
    assert_eq!(drive.status().composition.raw.logical_bytes, 8 * BLOCK as u64);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 0);
    assert!(contents(&drive, LEN) == data);
    assert_sound(&drive);
}

/// Only `auto` weighs gain against time, and only what gains little is put off.
#[test]
fn what_gains_is_compressed_at_once() {
    const LEN: usize = 64 * BLOCK;
    for (codec, percent) in [(codec::Policy::Zstd(1), 6), (codec::Policy::Auto, 14)] {
        let drive = open(&new_media(codec), 1);
        run(drive.write(0, &fio_like(3, LEN, percent), false)).expect("write");
        assert_eq!(drive.status().composition.raw.logical_bytes, 0, "{codec}, {percent} %");
    }
}

/// Reads a block of each group in turns, more groups than frames are kept, until they are hot.
fn heat(drive: &Memory, groups: std::ops::Range<usize>, data: &[u8]) {
    for block in (0..8).flat_map(|i| groups.clone().map(move |group| 8 * group + i)) {
        let mut back = vec![0; BLOCK];
        run(drive.read((block * BLOCK) as u64, &mut back)).expect("read");
        assert!(back == data[block * BLOCK..][..BLOCK]);
    }
}

/// Heats groups and cuts them. Returns how many blocks that were.
fn cut(drive: &Memory, groups: std::ops::Range<usize>, data: &[u8]) -> u64 {
    heat(drive, groups, data);
    let mut cut = 0;
    while let Some(step) = run(drive.cut_hot_step()).expect("cut") {
        assert!(!step.no_room);
        cut += step.blocks_count;
    }
    cut
}

/// Writes data in large pieces and makes it durable.
fn write_large(drive: &Memory, data: &[u8]) {
    for (i, piece) in data.chunks(32 * BLOCK).enumerate() {
        run(drive.write((i * 32 * BLOCK) as u64, piece, false)).expect("write");
    }
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    // Notes how much room there is.
    drive.tick();
}

#[test]
fn frames_that_are_read_at_random_often_are_cut_and_stay_so() {
    let (media, drive) = new_drive();
    let data = text_like(3, 1600 * BLOCK);
    write_large(&drive, &data);
    run(drive.train()).expect("train");
    let cut_blocks = cut(&drive, 10..90, &data);
    assert!(cut_blocks > 600, "{cut_blocks}");
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
    assert_eq!(cut(&drive, 10..90, &data), 0, "what is cut is no frame");
    assert_eq!(settle(&drive, Settle::All).blocks_count, 1600 - cut_blocks);
    assert_eq!(cut(&drive, 10..90, &data), 640 - cut_blocks, "those that shared a slot were settled");
    run(drive.checkpoint()).expect("checkpoint");
    drop(drive);
    let again = open(&media, 2);
    assert!(contents(&again, data.len()) == data);
    assert_eq!(settle(&again, Settle::All).blocks_count, 0);
}

#[test]
fn what_would_grow_much_what_is_streamed_and_a_drive_without_much_room_are_not_cut() {
    // Each block is like its neighbours, and has nothing in common with itself.
    let (_, drive) = new_drive();
    let block = |group| random(group, BLOCK).into_iter().map(|byte| b'0' + byte % 64).collect::<Vec<u8>>();
    let data: Vec<u8> = (0..200).flat_map(|group| block(group).repeat(8)).collect();
    write_large(&drive, &data);
    assert_eq!(cut(&drive, 0..200, &data), 0);

    assert_eq!(settle(&drive, Settle::All).blocks_count, 1600, "nor settled by that");

    let (_, drive) = new_drive();
    let data = text_like(3, 1600 * BLOCK);
    write_large(&drive, &data);
    run(drive.train()).expect("train");
    for round in 0..40 {
        if round < 20 {
            assert!(contents(&drive, data.len()) == data);
        }
        (0..200).for_each(|group| {
            let mut back = vec![0; BLOCK];
            run(drive.read((8 * group * BLOCK) as u64, &mut back)).expect("read");
        });
        if round == 19 {
            assert!(!drive.has_hot(), "streams read them whole in between");
        }
    }
    assert!(drive.has_hot(), "and now they do not");

    let mut at = data.len() as u64;
    while drive.status().physical_free_bytes * 10 > drive.status().physical_used_bytes {
        run(drive.write(at, &random(at, 64 * BLOCK), false)).expect("write");
        at += 64 * BLOCK as u64;
    }
    run(drive.flush()).expect("flush");
    drive.tick();
    assert!(!drive.has_hot(), "there is not much room");
    assert_eq!(cut(&drive, 0..80, &data), 0);
}

#[test]
fn what_was_cut_is_joined_again_when_room_is_short() {
    let (_, drive) = new_drive();
    let data = codec::testdata::x86_code(3, 1600 * BLOCK);
    write_large(&drive, &data);
    run(drive.train()).expect("train");
    assert_eq!(settle(&drive, Settle::All).blocks_count, 1600);
    let cut_blocks = cut(&drive, 0..200, &data);
    assert!(cut_blocks > 1000, "{cut_blocks}");
    assert_eq!(settle(&drive, Settle::All).blocks_count, 0);
    let mut at = data.len() as u64;
    while drive.status().physical_free_bytes * 8 > drive.status().physical_used_bytes {
        run(drive.write(at, &random(at, 64 * BLOCK), false)).expect("write");
        at += 64 * BLOCK as u64;
    }
    run(drive.flush()).expect("flush");
    common::maintain(&drive);
    run(drive.checkpoint()).expect("checkpoint");
    common::maintain(&drive);
    let joined = settle(&drive, Settle::All);
    assert!(joined.blocks_count * 10 > cut_blocks * 9, "{} of {cut_blocks}", joined.blocks_count);
    assert!(joined.after_bytes * 100 < joined.before_bytes * 97);
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
    assert_eq!(settle(&drive, Settle::All).blocks_count, 0);
}

#[test]
fn what_changes_while_it_is_cut_stays_as_it_was_written() {
    let (media, drive) = new_drive();
    let mut data = text_like(3, 800 * BLOCK);
    write_large(&drive, &data);
    run(drive.train()).expect("train");
    run(drive.close()).expect("close");
    let work: Arc<std::sync::Mutex<Vec<Work>>> = Arc::default();
    let options = drive::OpenOptions {
        compute: {
            let work = work.clone();
            Arc::new(move |it| work.lock().expect("no panic").push(it))
        },
        ..drive::OpenOptions::new(1, common::spawner())
    };
    let drive = run(Drive::open(erased(media), options)).expect("open");
    heat(&drive, 0..80, &data);
    let mut cutting = std::pin::pin!(drive.cut_hot_step());
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(cutting.as_mut().poll(&mut context).is_pending(), "it compresses elsewhere");
    let new = text_like(4, 80 * 8 * BLOCK);
    for i in (0..80 * 8).step_by(8) {
        data[i * BLOCK..][..BLOCK].copy_from_slice(&new[i * BLOCK..][..BLOCK]);
        run(drive.write((i * BLOCK) as u64, &new[i * BLOCK..][..BLOCK], false)).expect("write");
    }
    std::mem::take(&mut *work.lock().expect("no panic")).into_iter().for_each(|it| it());
    let step = run(cutting).expect("cut").expect("it was hot");
    assert_eq!(step.blocks_count, 7, "all but the one that was written");
    assert!(contents(&drive, data.len()) == data);
    assert_sound(&drive);
}
