//! A drive whose writes are compressed by an offload that finishes later, in any order, and sometimes
//! incorrectly.

use crate::common;
use crate::image;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use codec::testdata::{random, text_like};
use codec::{CodecId, Policy};
use common::{Erased, assert_sound, create_options, erased, run, spawner};
use drive::{Drive, Error, OpenOptions, Zeroes};
use image::Image;
use layout::RecordKind;
use media::MemoryMedia;
use offload::{Batch, Completer, Done, Executor, Job, Offload, Statistics, in_software};
use parking_lot::Mutex;

type Memory = Drive<Erased>;
type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + 'a>>;

const BLOCK: usize = 4096;
const MIB: u64 = 1 << 20;
const SOFTWARE: Policy = Policy::Deflate(1);

/// Result of a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    Well,
    /// Left to the CPU.
    Lost,
    /// Nothing is compressible.
    Raw,
    /// Frames are incompressible, blocks are not.
    NoFrames,
    /// Payloads are longer than the data they represent.
    TooLong,
}

/// Offload that finishes a batch on demand.
#[derive(Default)]
struct Later {
    queue: Mutex<Vec<(Vec<Job>, Completer)>>,
    batches: AtomicU64,
    jobs: AtomicU64,
}

impl Offload for Later {
    fn compress(&self, jobs: Vec<Job>) -> Batch {
        assert!(!jobs.is_empty(), "nobody asks for nothing");
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.jobs.fetch_add(jobs.len() as u64, Ordering::Relaxed);
        let (completer, batch) = Batch::channel(jobs.clone().into(), SOFTWARE);
        self.queue.lock().push((jobs, completer));
        batch
    }

    fn statistics(&self) -> Statistics {
        Statistics::default()
    }
}

impl Later {
    fn waiting(&self) -> usize {
        self.queue.lock().len()
    }

    fn finish(&self, at: usize, how: How) {
        let (jobs, completer) = self.queue.lock().swap_remove(at);
        let raw = || Done { id: CodecId::Raw, payload: Vec::new(), executor: Executor::Device };
        let done = |job: &Job| match how {
            How::Raw => raw(),
            How::NoFrames if job.input.len() > BLOCK => raw(),
            How::TooLong => {
                Done { id: CodecId::Deflate, payload: vec![0; job.input.len()], executor: Executor::Device }
            }
            _ => Done { executor: Executor::Device, ..in_software(&job.input, SOFTWARE) },
        };
        match how {
            How::Lost => drop(completer),
            _ => completer.complete(jobs.iter().map(done).collect()),
        }
    }
}

fn poll<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Poll<T> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn media(codec: Policy) -> Arc<MemoryMedia> {
    let media = Arc::new(MemoryMedia::new(64 * MIB));
    let options = drive::CreateOptions { codec, ..create_options(64 * MIB, 64 * MIB) };
    run(Drive::create(&*media, &options)).expect("create");
    media
}

fn open(media: &Arc<MemoryMedia>, entropy: u64, offload: Option<Arc<dyn Offload>>) -> Memory {
    let options = OpenOptions { offload, ..OpenOptions::new(entropy, spawner()) };
    run(Drive::open(erased(media.clone()), options)).expect("open")
}

fn with_later(codec: Policy) -> (Arc<MemoryMedia>, Arc<Later>, Memory) {
    let (media, later) = (media(codec), Arc::new(Later::default()));
    let drive = open(&media, 1, Some(later.clone()));
    (media, later, drive)
}

/// Preparing a large write takes long, and somebody changes a block that it covers in part all the time.
#[test]
fn a_write_beside_one_that_changes_its_edge_gets_its_turn() {
    const ROUNDS_MAX: u32 = 20;
    let (_media, later, drive) = with_later(Policy::Lz4);
    let data = text_like(5, 16 * BLOCK + 100);
    let edge = 16 * BLOCK as u64;
    write(&drive, &later, edge, &random(6, BLOCK), How::Well).expect("written");
    let mut writing: Writing<'_> = Box::pin(drive.write(0, &data, false));
    let mut waiting: Option<Writing<'_>> = None;
    let mut rounds = 0;
    while poll(&mut writing).is_pending() {
        rounds += 1;
        assert!(rounds <= ROUNDS_MAX, "it never gets its turn");
        if waiting.is_none() {
            let mut change: Writing<'_> =
                Box::pin(drive.write_zeroes(edge + 1024, 1 + u64::from(rounds), Zeroes::default()));
            if poll(&mut change).is_pending() {
                waiting = Some(change);
            }
        }
        // Others are not held up.
        run(drive.write_zeroes(2 * edge + 1, 1, Zeroes::default())).expect("beside it");
        later.finish(0, How::Well);
    }
    let status = drive.status();
    assert_eq!((status.conflicts_most, status.holds_count, status.hold_waits_count), (8, 1, 1));
    let mut change = waiting.expect("held up in the end");
    assert!(matches!(poll(&mut change), Poll::Ready(Ok(()))), "it continues");
    let mut back = vec![0; data.len() + 1000];
    run(drive.read(0, &mut back)).expect("read");
    assert!(back[..data.len()] == data[..]);
    assert!(back[data.len()..][..900] == random(6, BLOCK)[100..1000]);
    // A request that is dropped holds nothing.
    let mut writing: Writing<'_> = Box::pin(drive.write(0, &data, false));
    for _ in 0..ROUNDS_MAX {
        assert!(poll(&mut writing).is_pending());
        let change = &mut Box::pin(drive.write_zeroes(edge + 1024, 1, Zeroes::default()));
        if poll(change).is_pending() {
            drop(writing);
            return assert!(poll(change).is_ready());
        }
        later.finish(0, How::Well);
    }
    panic!("nothing was held");
}

/// Writes data, with all its batches finishing as `how`.
fn write(drive: &Memory, later: &Later, offset: u64, data: &[u8], how: How) -> Result<(), Error> {
    let mut writing: Writing<'_> = Box::pin(drive.write(offset, data, true));
    loop {
        if let Poll::Ready(result) = poll(&mut writing) {
            return result;
        }
        if later.waiting() > 0 {
            later.finish(0, how);
        }
    }
}

fn read(drive: &Memory, offset: u64, len: usize) -> Vec<u8> {
    let mut back = vec![0xee; len];
    run(drive.read(offset, &mut back)).expect("read");
    back
}

/// First block, number of blocks, codec and length of every data record, in the order of the log.
fn records(media: &Arc<MemoryMedia>) -> Vec<(u64, u64, u8, u16)> {
    let records = Image::of(media).records(RecordKind::Data).into_iter().map(|record| record.header);
    records.map(|it| (it.block, it.blocks(), it.codec & 3, it.payload_len)).collect()
}

/// Text, fills and random blocks.
fn mixed(seed: u64, blocks: usize) -> Vec<u8> {
    let mut data = text_like(seed, blocks * BLOCK);
    for (at, block) in data.chunks_mut(BLOCK).enumerate() {
        match (seed + at as u64) % 7 {
            2 => block.fill(0x20),
            5 => block.copy_from_slice(&random(seed + at as u64, BLOCK)),
            _ => {}
        }
    }
    data
}

#[test]
fn the_records_are_those_that_the_cpu_would_have_made() {
    let (media, later, drive) = with_later(SOFTWARE);
    let plain_media = self::media(SOFTWARE);
    let plain = open(&plain_media, 1, None);
    let writes = [(5 * 4096, mixed(1, 30)), (512, mixed(2, 9)[..30000 / 512 * 512].to_vec())];
    for (offset, data) in
        writes.iter().chain(&[(9 << 20, text_like(3, 200 * BLOCK)), (700 * 512, vec![7; 512])])
    {
        write(&drive, &later, *offset, data, How::Well).expect("write");
        run(plain.write(*offset, data, true)).expect("write");
        assert!(read(&drive, *offset, data.len()) == *data);
    }
    let made = records(&media);
    assert_eq!(made, records(&plain_media));
    assert!(made.iter().any(|record| record.1 == 8) && made.iter().any(|record| record.2 == 0));
    assert!(later.batches.load(Ordering::Relaxed) <= 7, "a piece is one batch");
    assert_sound(&drive);
}

#[test]
fn a_frame_that_is_not_worth_it_goes_block_by_block() {
    for (how, largest, codec) in [
        (How::NoFrames, 1, CodecId::Deflate),
        (How::Raw, 1, CodecId::Raw),
        (How::TooLong, 1, CodecId::Raw),
        (How::Lost, 8, CodecId::Deflate),
    ] {
        let (media, later, drive) = with_later(Policy::Auto);
        // A frame, with edges inside the adjacent blocks.
        let data = text_like(4, 10 * BLOCK);
        write(&drive, &later, 7 * 4096 + 512, &data, how).expect("write");
        assert!(read(&drive, 7 * 4096 + 512, data.len()) == data);
        let records = records(&media);
        assert_eq!(records.iter().map(|record| record.1).max(), Some(largest));
        assert_eq!(records.iter().map(|record| record.1).sum::<u64>(), 11, "{records:?}");
        assert!(records.iter().all(|record| record.2 == codec as u8), "{records:?}");
        assert_sound(&drive);
        assert!(read(&open(&media, 2, None), 7 * 4096 + 512, data.len()) == data);
    }
}

#[test]
fn results_that_are_not_one_for_each_job_are_not_believed() {
    struct Short;
    impl Offload for Short {
        fn compress(&self, jobs: Vec<Job>) -> Batch {
            Batch::done(jobs.iter().skip(1).map(|job| in_software(&job.input, SOFTWARE)).collect())
        }
        fn statistics(&self) -> Statistics {
            Statistics::default()
        }
    }
    let media = media(Policy::Auto);
    let drive = open(&media, 1, Some(Arc::new(Short)));
    let data = mixed(9, 64);
    run(drive.write(0, &data, true)).expect("write");
    assert!(read(&drive, 0, data.len()) == data);
    assert!(records(&media).iter().all(|record| record.2 == CodecId::Raw as u8));
}

#[test]
fn what_need_not_be_compressed_does_not_go_there() {
    let (_, later, drive) = with_later(Policy::Auto);
    let mut data = random(1, 64 * BLOCK);
    data[8 * BLOCK..24 * BLOCK].fill(0);
    run(drive.write(0, &data, false)).expect("write, without waiting for anybody");
    run(drive.trim(512, 8192, false)).expect("trim");
    assert_eq!(later.batches.load(Ordering::Relaxed), 0);
    // The same if the drive compresses nothing.
    let (media, later, drive) = with_later(Policy::None);
    let text = text_like(1, 16 * BLOCK);
    run(drive.write(0, &text, true)).expect("write");
    assert_eq!(later.batches.load(Ordering::Relaxed), 0);
    assert!(records(&media).iter().all(|record| record.2 == 0));
}

#[test]
fn many_writes_at_once_finish_in_any_order_and_survive_a_crash() {
    let (media, later, mut drive) = with_later(Policy::Auto);
    let mut rng = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: u64| {
        rng ^= rng << 13;
        rng ^= rng >> 7;
        rng ^= rng << 17;
        rng % bound
    };
    for round in 0..12 {
        // Separate ranges, in sectors. Adjacent writes share blocks at their ends, so they conflict there.
        let mut place = below(64) * 512;
        let mut jobs = Vec::new();
        for number in 0..24 {
            let len = [512, 4096, 3584, 40960, 131_072, 300_032][below(6) as usize];
            jobs.push((place, mixed(round * 100 + number, len / BLOCK + 1)[..len].to_vec()));
            place += len as u64;
        }
        let mut writing: Vec<Writing<'_>> = jobs
            .iter()
            .map(|(offset, data)| Box::pin(drive.write(*offset, data, false)) as Writing<'_>)
            .collect();
        while !writing.is_empty() {
            writing.retain_mut(|writing| match poll(writing) {
                Poll::Ready(result) => {
                    result.expect("write");
                    false
                }
                Poll::Pending => true,
            });
            if later.waiting() > 0 {
                let how = [How::Well, How::Well, How::Lost, How::NoFrames, How::Raw][below(5) as usize];
                later.finish(below(later.waiting() as u64) as usize, how);
            }
        }
        drop(writing);
        run(drive.flush()).expect("flush");
        for (offset, data) in &jobs {
            assert!(read(&drive, *offset, data.len()) == *data, "round {round}, {offset}");
        }
        if round % 3 == 2 {
            // Not closed, as after a crash. The drive can be read with and without the offload.
            drop(drive);
            let without = open(&media, 2 * round + 100, None);
            for (offset, data) in &jobs {
                assert!(read(&without, *offset, data.len()) == *data, "round {round}, {offset}");
            }
            assert_sound(&without);
            drop(without);
            drive = open(&media, 2 * round + 101, Some(later.clone()));
        }
    }
    assert!(later.jobs.load(Ordering::Relaxed) > 1000);
    let codecs: Vec<u8> = records(&media).iter().map(|record| record.2).collect();
    assert!(codecs.contains(&(CodecId::Deflate as u8)) && codecs.contains(&(CodecId::Raw as u8)));
}

#[test]
fn two_writes_into_one_block_both_last() {
    let (_, later, drive) = with_later(Policy::Auto);
    write(&drive, &later, 0, &text_like(1, BLOCK), How::Well).expect("write");
    let (left, right) = (text_like(2, 1024), text_like(3, 512));
    let mut writings: [Writing<'_>; 2] =
        [Box::pin(drive.write(1024, &left, false)), Box::pin(drive.write(3072, &right, false))];
    // Both have read the block before either is appended.
    assert!(writings.iter_mut().all(|writing| poll(writing).is_pending()));
    assert_eq!(later.waiting(), 2);
    later.finish(1, How::Well);
    assert!(poll(&mut writings[1]).is_ready());
    later.finish(0, How::Well);
    assert!(poll(&mut writings[0]).is_pending(), "made anew: the block is not what it was");
    later.finish(0, How::Well);
    assert!(poll(&mut writings[0]).is_ready());
    let mut wanted = text_like(1, BLOCK);
    wanted[1024..2048].copy_from_slice(&left);
    wanted[3072..3584].copy_from_slice(&right);
    assert_eq!(read(&drive, 0, BLOCK), wanted);
}

#[test]
fn a_write_given_up_has_changed_nothing() {
    let (_, later, drive) = with_later(Policy::Auto);
    let old = mixed(1, 512);
    write(&drive, &later, 0, &old, How::Well).expect("write");
    let seen = |drive: &Memory| {
        let status = drive.status();
        (status.logical_used_bytes, status.physical_used_bytes, status.counters.host_written_bytes)
    };
    let before = seen(&drive);
    let new = mixed(2, 512);
    // 64 KiB, with edges: one piece. 2 MiB, of which the first piece waits.
    for (offset, len) in [(512, 65536), (0, 2 << 20)] {
        let mut writing: Writing<'_> = Box::pin(drive.write(offset, &new[..len], true));
        assert!(poll(&mut writing).is_pending());
        drop(writing);
        assert_eq!(seen(&drive), before);
        assert!(read(&drive, 0, old.len()) == old);
        // The device finishes later.
        later.finish(0, How::Well);
        assert_eq!((later.waiting(), seen(&drive)), (0, before));
    }
    assert_sound(&drive);
    // No space stays reserved: all of it can still be used.
    let mut offset = 0;
    while offset < 32 * MIB {
        write(&drive, &later, offset, &new[..1 << 20], How::Raw).expect("there is space");
        offset += MIB;
    }
    assert!(read(&drive, 31 * MIB, 1 << 20) == new[..1 << 20]);
    run(drive.close()).expect("close");
}

#[test]
fn a_full_drive_refuses_and_goes_on() {
    let (media, later, drive) = with_later(Policy::Auto);
    let data = mixed(5, 256);
    let mut held = 0;
    let refused = loop {
        match write(&drive, &later, held, &data, How::Raw) {
            Ok(()) => held += MIB,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::NoSpace) && held > 32 * MIB, "{refused} at {held}");
    // Compressible data fits although it would not fit uncompressed. The drive determines this by compressing
    // it.
    run(drive.trim(held - MIB, 192 << 10, false)).expect("trim");
    write(&drive, &later, held, &text_like(1, 300 * 1024), How::Well).expect("it shrinks");
    held -= MIB;
    for offset in (0..held).step_by(MIB as usize) {
        assert!(read(&drive, offset, data.len()) == data);
    }
    drop(drive);
    let drive = open(&media, 3, None);
    assert!(read(&drive, held - MIB, data.len()) == data);
    assert_sound(&drive);
}

#[test]
fn cleaning_and_settling_need_no_offload() {
    let (media, later, drive) = with_later(Policy::Auto);
    for round in 0..6 {
        for offset in (0..2 * MIB).step_by(MIB as usize) {
            write(&drive, &later, offset, &mixed(round * 2 + offset / MIB, 256), How::Well).expect("write");
        }
    }
    let asked = later.batches.load(Ordering::Relaxed);
    for _ in 0..40 {
        run(drive.clean()).expect("clean");
    }
    let used = drive.status().physical_used_bytes;
    let mut block = Some(0);
    while let Some(at) = block {
        block = run(drive.settle_step(at, drive::Settle::All)).expect("settle").next_block;
    }
    assert_eq!(later.batches.load(Ordering::Relaxed), asked);
    assert!(drive.status().physical_used_bytes < used, "zstd at a high level beats deflate at a low one");
    run(drive.close()).expect("close");
    let drive = open(&media, 5, None);
    for offset in (0..2 * MIB).step_by(MIB as usize) {
        assert!(read(&drive, offset, 1 << 20) == mixed(5 * 2 + offset / MIB, 256));
    }
    assert_sound(&drive);
}
