//! Compression of a corpus by the drive: ratios out of its status, and the processor time of reading.
//!
//! `cargo run --release -p drive --example reach -- DIR [foreground|own|all|fio|speed]`: each file of DIR on
//! a drive of its own, then all of them on one. Media are memory, one thread; time is CPU time of the thread.

#![allow(clippy::print_stdout, reason = "a program")]

use std::future::Future;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use codec::{CodecId, Compressor, Dictionary, Policy};
use drive::{CreateOptions, Drive, OpenOptions, Settle};
use media::{IoBuf, Media, MemoryMedia};

const BLOCK: usize = 4096;

fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    loop {
        if let Poll::Ready(answer) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return answer;
        }
    }
}

/// CPU time of this thread in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn new_drive(bytes: u64) -> Drive<MemoryMedia> {
    let physical = (bytes * 2 + (256 << 20)).next_multiple_of(1 << 20);
    let media = Arc::new(MemoryMedia::new(physical));
    // The kernel hands out memory when it is first touched: that is no part of writing to a drive.
    let touch = Arc::new(IoBuf::zeroed(1 << 20));
    for at in (0..physical).step_by(1 << 20) {
        run(media.write(at, touch.clone())).expect("memory");
    }
    let create = CreateOptions {
        physical_size_bytes: physical,
        logical_capacity_bytes: bytes.next_multiple_of(1 << 20),
        sector_bytes: 512,
        segment_bytes: None,
        codec: Policy::Auto,
        uuid: [7; 16],
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
        far_copies: None,
        parity: layout::ParityForm::None,
    };
    run(Drive::create(&*media, &create)).expect("create");
    run(Drive::open(media, OpenOptions::new(1, Arc::new(run)))).expect("open")
}

/// Ratio out of the status, the map written.
fn ratio(drive: &Drive<MemoryMedia>) -> (f64, u64) {
    run(drive.flush()).expect("flush");
    run(drive.checkpoint()).expect("checkpoint");
    let status = drive.status();
    (status.compression_ratio, status.physical_used_bytes)
}

fn background(drive: &Drive<MemoryMedia>) {
    if drive.training_is_due() {
        run(drive.train()).expect("train");
    }
    while run(drive.maintain()).expect("maintain") {}
}

fn write_sequential(drive: &Drive<MemoryMedia>, at: u64, data: &[u8]) {
    for (i, piece) in data.chunks(128 << 10).enumerate() {
        run(drive.write(at + (i << 17) as u64, piece, false)).expect("write");
        background(drive);
    }
}

fn shuffled(count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    let mut z: u64 = 1;
    for i in (1..count).rev() {
        z = z.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(i, (z >> 33) as usize % (i + 1));
    }
    order
}

fn settle(drive: &Drive<MemoryMedia>) {
    let mut next = Some(0);
    while let Some(block) = next {
        let step = run(drive.settle_step(block, Settle::All)).expect("settle");
        assert!(!step.no_room, "the drive is large enough");
        next = step.next_block;
        while run(drive.maintain()).expect("maintain") {}
    }
}

/// Mean CPU time of a 4 KiB read, in microseconds: in random order, and one block after the other.
fn read_times(drive: &Drive<MemoryMedia>, bytes: usize) -> [f64; 2] {
    const READS: usize = 20_000;
    let in_order: Vec<usize> = (0..bytes / BLOCK).collect();
    [shuffled(bytes / BLOCK), in_order].map(|order| {
        let step = (order.len() / READS).max(1);
        // Runs of 64 in a row, all over the drive.
        let some: Vec<usize> = order.chunks(64).step_by(step).flatten().copied().collect();
        let mut block = vec![0; BLOCK];
        let begun = cpu();
        for n in &some {
            run(drive.read((n * BLOCK) as u64, &mut block)).expect("read");
        }
        (cpu() - begun) * 1e6 / some.len() as f64
    })
}

/// Size of the data compressed by the bare codec, in bytes: zstd 1 in units of 32 KiB; zstd 1 with a
/// dictionary, trained on every 17th block, at 4 KiB; zstd 3 in units of 128 KiB, each rounded up to 4 KiB.
fn bare(data: &[u8]) -> [u64; 3] {
    let sum = |level: i8, unit: usize, round: usize, dictionary: Option<&Dictionary>| -> u64 {
        let mut compressor = Compressor::uncut(Policy::Zstd(level));
        let mut out = Vec::new();
        data.chunks(unit)
            .map(|chunk| {
                out.clear();
                let bytes = match compressor.compress(chunk, dictionary, &mut out) {
                    CodecId::Raw => chunk.len(),
                    _ => out.len(),
                };
                bytes.next_multiple_of(round) as u64
            })
            .sum()
    };
    let samples: Vec<&[u8]> = data.chunks_exact(BLOCK).step_by(17).take(1024).collect();
    let trained = codec::train(&samples, codec::DICTIONARY_BYTES_MAX, 1).ok();
    let dictionary = trained.and_then(|bytes| Dictionary::new(1, bytes).ok());
    [sum(1, 32 << 10, 1, None), sum(1, BLOCK, 1, dictionary.as_ref()), sum(3, 128 << 10, BLOCK, None)]
}

struct Row {
    bare: [u64; 3],
    logical: u64,
    sequential: u64,
    random: u64,
    settled: u64,
    /// Random, and in order.
    read: [f64; 2],
}

fn one(data: &[u8], all: bool) -> Row {
    let logical = data.len() as u64;
    let drive = new_drive(logical);
    write_sequential(&drive, 0, data);
    let (_, sequential) = ratio(&drive);
    drop(drive);
    let drive = new_drive(logical);
    for n in shuffled(data.len() / BLOCK) {
        run(drive.write((n * BLOCK) as u64, &data[n * BLOCK..][..BLOCK], false)).expect("write");
        if n % 64 == 0 {
            background(&drive);
        }
    }
    let (_, random) = ratio(&drive);
    if !all {
        return Row {
            bare: bare(data),
            logical,
            sequential,
            random,
            settled: 0,
            read: read_times(&drive, data.len()),
        };
    }
    settle(&drive);
    let (_, settled) = ratio(&drive);
    let read = read_times(&drive, data.len());
    let mut back = vec![0; 1 << 20];
    for (i, piece) in data.chunks(1 << 20).enumerate() {
        run(drive.read((i << 20) as u64, &mut back[..piece.len()])).expect("read");
        assert!(back[..piece.len()] == *piece, "what was written is read");
    }
    Row { bare: bare(data), logical, sequential, random, settled, read }
}

/// Bytes that a block takes more than what bare zstd 1 needs, for fio's data of each compressibility.
fn fio() {
    println!("| fio's data | bare zstd 1, 4K | drive, 128K writes | drive, 4K writes | bytes a block over |");
    println!("| --- | --- | --- | --- | --- |");
    for percent in [20, 40, 50, 60, 70, 80, 90, 95, 100] {
        let data = codec::testdata::fio_like(1, 64 << 20, percent);
        let mut compressor = Compressor::uncut(Policy::Zstd(1));
        let mut out = Vec::new();
        let block_bytes = |block: &[u8]| {
            out.clear();
            match compressor.compress(block, None, &mut out) {
                CodecId::Raw => BLOCK as u64,
                _ => out.len() as u64,
            }
        };
        let bare: u64 = data.chunks_exact(BLOCK).map(block_bytes).sum();
        let drive = new_drive(data.len() as u64);
        write_sequential(&drive, 0, &data);
        let (_, sequential) = ratio(&drive);
        let drive = new_drive(data.len() as u64);
        for (i, n) in shuffled(data.len() / BLOCK).into_iter().enumerate() {
            run(drive.write((n * BLOCK) as u64, &data[n * BLOCK..][..BLOCK], false)).expect("write");
            if i % 64 == 0 {
                background(&drive);
            }
        }
        let (_, random) = ratio(&drive);
        let blocks = (data.len() / BLOCK) as f64;
        let of = |bytes: u64| data.len() as f64 / bytes.max(1) as f64;
        let over = |bytes: u64| (bytes as f64 - bare as f64) / blocks;
        println!(
            "| {percent} % | {:.3} | {:.3} | {:.3} | {:.1}, {:.1} |",
            of(bare),
            of(sequential),
            of(random),
            over(sequential),
            over(random)
        );
    }
}

/// One way to write in [`speed`].
struct Column {
    name: &'static str,
    /// Writes everything once, with two threads.
    once: Box<dyn Fn()>,
    bytes: usize,
    /// Of each round.
    speeds: Vec<f64>,
    cpu: Vec<f64>,
}

/// CPU time of the process in seconds.
fn process_cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// MB/s of sequential writes with two threads, and of the bare codec on as many: medians of seven rounds,
/// taking turns. Each drive is written over again and again. `only` names the one way that is looked at, for
/// profiles.
fn speed(files: &[(String, Vec<u8>)], only: Option<&str>) {
    const ROUNDS: usize = 7;
    /// Written in a round, at least: the quick ones would be over too soon to be measured.
    const QUICK_BYTES: usize = 2 << 30;
    let mixed = files.iter().flat_map(|(_, data)| data[..data.len().min(8 << 20)].to_vec());
    let mixed: Arc<Vec<u8>> = Arc::new(mixed.collect());
    let random = Arc::new(codec::testdata::random(1, 128 << 20));
    let compressed = files.iter().find(|(name, _)| name == "compressed");
    let compressed = Arc::new(compressed.map_or_else(Vec::new, |(_, data)| data.clone()));
    let threads = |work: &(dyn Fn(usize) + Sync)| {
        std::thread::scope(|scope| {
            for thread in 0..2 {
                scope.spawn(move || work(thread));
            }
        });
    };
    let mut columns: Vec<Column> = Vec::new();
    let mut add = |name, bytes, once| {
        if only.is_none_or(|only| only == name) {
            columns.push(Column { name, once, bytes, speeds: Vec::new(), cpu: Vec::new() });
        }
    };
    let data = mixed.clone();
    let bare = move || {
        let half = data.len() / 2 / BLOCK * BLOCK;
        threads(&|thread| {
            let mut compressor = Compressor::new(Policy::Zstd(1));
            let mut out = Vec::new();
            for block in data[thread * half..][..half].chunks_exact(BLOCK) {
                out.clear();
                compressor.compress(block, None, &mut out);
            }
        });
    };
    add("bare zstd 1 at 4 KiB, mixed data", mixed.len(), Box::new(bare) as Box<dyn Fn()>);
    for (name, data, policy) in [
        ("auto, mixed data", &mixed, Policy::Auto),
        ("lz4, mixed data", &mixed, Policy::Lz4),
        ("auto, random data", &random, Policy::Auto),
        ("none, random data", &random, Policy::None),
        ("auto, compressed data", &compressed, Policy::Auto),
        ("none, compressed data", &compressed, Policy::None),
    ] {
        if data.is_empty() || only.is_some_and(|only| only != name) {
            continue;
        }
        let quick = policy == Policy::None || !Arc::ptr_eq(data, &mixed);
        let times = if quick { QUICK_BYTES.div_ceil(data.len()) } else { 1 };
        let drive = new_drive(data.len() as u64);
        run(drive.set_codec(policy)).expect("set the codec");
        let half = data.len() / 2 / (128 << 10) * (128 << 10);
        let data = data.clone();
        let once = move || {
            threads(&|thread| {
                for _ in 0..times {
                    for (i, piece) in data[thread * half..][..half].chunks(128 << 10).enumerate() {
                        run(drive.write((thread * half + (i << 17)) as u64, piece, false)).expect("write");
                    }
                }
            });
        };
        // Tables are allocated, segments filled for the first time.
        once();
        add(name, 2 * half * times, Box::new(once));
    }
    for _ in 0..ROUNDS {
        for column in &mut columns {
            let (begun, cpu) = (std::time::Instant::now(), process_cpu());
            (column.once)();
            column.speeds.push(column.bytes as f64 / 1e6 / begun.elapsed().as_secs_f64());
            column.cpu.push((process_cpu() - cpu) * 1e9 / (column.bytes / BLOCK) as f64);
        }
    }
    let median = |values: &mut dyn Iterator<Item = f64>| {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    println!("| two threads | MB/s | CPU, ns a block |\n| --- | --- | --- |");
    for column in &columns {
        let of = |values: &[f64]| median(&mut values.iter().copied());
        println!("| {} | {:.0} | {:.0} |", column.name, of(&column.speeds), of(&column.cpu));
    }
    let column = |name: &str| columns.iter().find(|column| column.name.starts_with(name));
    for (name, over) in
        [("auto, mixed", "bare"), ("auto, random", "none, random"), ("auto, compressed", "none, compressed")]
    {
        let (Some(one), Some(two)) = (column(name), column(over)) else { continue };
        let pairs = || (0..ROUNDS).map(|round| (one.speeds[round], two.speeds[round]));
        let cpu = || (0..ROUNDS).map(|round| (one.cpu[round], two.cpu[round]));
        println!(
            "{name} against {over}: speed {:.2}, by CPU time {:.2}; CPU {:+.0} ns a block",
            median(&mut pairs().map(|(one, two)| one / two)),
            median(&mut cpu().map(|(one, two)| two / one)),
            median(&mut cpu().map(|(one, two)| one - two)),
        );
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let (Some(dir), how) = (args.next(), args.next()) else {
        eprintln!("usage: reach DIR [foreground|own|all|fio|speed]");
        std::process::exit(2);
    };
    let how = how.unwrap_or_else(|| "all".to_string());
    let mut files: Vec<_> = std::fs::read_dir(Path::new(&dir))
        .expect("a directory")
        .map(|e| e.expect("an entry").path())
        .collect();
    files.sort();
    match how.as_str() {
        "fio" => return fio(),
        "speed" => {
            let read = |path: &std::path::PathBuf| {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (name, std::fs::read(path).expect("a file"))
            };
            let files: Vec<(String, Vec<u8>)> = files.iter().map(read).collect();
            return speed(&files, args.next().as_deref());
        }
        _ => {}
    }
    println!(
        "| data | sequential | bare zstd 1, 32K | random | bare zstd 1 + dictionary, 4K | settled \
         | zstd 3, 128K in sectors | us a random 4 KiB read | us a 4 KiB read in order |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    let mut sums = Row { bare: [0; 3], logical: 0, sequential: 0, random: 0, settled: 0, read: [0.0; 2] };
    let print = |name: &str, row: &Row| {
        let of = |bytes: u64| row.logical as f64 / bytes.max(1) as f64;
        println!(
            "| {name} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.3} | {:.1} | {:.1} |",
            of(row.sequential),
            of(row.bare[0]),
            of(row.random),
            of(row.bare[1]),
            of(row.settled),
            of(row.bare[2]),
            row.read[0],
            row.read[1]
        );
    };
    // Equal bytes of each, so that none counts for more.
    let most = 48 << 20;
    let load = |path: &Path| {
        let mut data = std::fs::read(path).expect("a file");
        data.truncate(data.len().min(most) / BLOCK * BLOCK);
        data
    };
    for path in &files {
        let row = one(&load(path), how != "foreground");
        print(&path.file_name().unwrap_or_default().to_string_lossy(), &row);
        sums.logical += row.logical;
        (0..3).for_each(|i| sums.bare[i] += row.bare[i]);
        sums.sequential += row.sequential;
        sums.random += row.random;
        sums.settled += row.settled;
        (0..2).for_each(|i| sums.read[i] += row.read[i] / files.len() as f64);
    }
    print("pooled, each on a drive of its own", &sums);
    if how == "all" {
        let data: Vec<u8> = files.iter().flat_map(|path| load(path)).collect();
        print("all on one drive", &one(&data, true));
    }
}
