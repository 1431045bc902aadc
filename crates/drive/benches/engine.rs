//! The engine on memory media against the bare codec and checksum over the same bytes, as ratios within one
//! run.
//!
//! If requests are long enough that the drive compresses blocks together, the bare side compresses the same
//! frames.
//!
//! `cargo bench -p drive` prints the tables of lab/engine.md. Each figure is the median of several
//! rounds in which the two sides take turns, because machines are shared and noisy. `-- single "lz4 fio"`
//! runs the lines of one codec and kind of data, `-- engine`, `-- space`, `-- cores` and `-- threads` the
//! other tables.
#![allow(clippy::print_stdout)]

mod common;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::{CodecId, Policy, testdata};
use common::{poll_in_place, spawner};
use drive::{CreateOptions, Drive, OpenOptions};
use media::MemoryMedia;

const MIB: usize = 1 << 20;
const ROUNDS: usize = 7;
const DATA_BYTES: usize = 64 * MIB;

fn now() -> u64 {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_nanos() as u64
}

type MemoryDrive = Drive<MemoryMedia>;

fn new_drive(policy: Policy, clock: bool) -> MemoryDrive {
    new_drive_with(policy, clock, None)
}

fn new_drive_with(policy: Policy, clock: bool, offload: Option<Arc<dyn offload::Offload>>) -> MemoryDrive {
    let physical = 256 * MIB as u64;
    let media = Arc::new(MemoryMedia::new(physical));
    let create = CreateOptions {
        physical_size_bytes: physical,
        logical_capacity_bytes: DATA_BYTES as u64,
        sector_bytes: 4096,
        segment_bytes: Some(4 << 20),
        codec: policy,
        uuid: [1; 16],
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
        far_copies: None,
        parity: layout::ParityForm::None,
    };
    let options = OpenOptions {
        clock: clock.then_some(now as drive::Clock),
        offload,
        ..OpenOptions::new(1, spawner())
    };
    let drive = poll_in_place(async {
        Drive::create(&*media, &create).await?;
        Drive::open(media, options).await
    });
    drive.expect("a drive on memory")
}

fn wait<T>(future: impl Future<Output = Result<T, drive::Error>>) -> T {
    futures::executor::block_on(future).expect("a request on memory media")
}

fn maintain(drive: &MemoryDrive) {
    while wait(drive.maintain()) {}
}

/// Pseudo-random order of `count` blocks: visits all if `count` is a power of two.
fn scattered(i: usize, count: usize) -> usize {
    (i.wrapping_mul(0x9e37_79b1) ^ i >> 3) % count
}

/// Bytes that a drive compresses as one of requests of that size, at a multiple of it: blocks alone, or
/// frames.
fn unit_of(request: usize) -> usize {
    request.min(32 * 1024)
}

/// Seconds to compress and sum every unit.
fn bare_write(policy: Policy, data: &[u8], unit: usize, scatter: bool) -> f64 {
    let start = Instant::now();
    let mut sum = 0;
    let count = data.len() / unit;
    codec::with_compressor(policy, |compressor, out| {
        for i in 0..count {
            let at = if scatter { scattered(i, count) } else { i } * unit;
            let block = &data[at..at + unit];
            out.clear();
            let payload = match compressor.compress(block, None, out) {
                CodecId::Raw => block,
                _ => &out[..],
            };
            sum ^= crc32c::crc32c(payload);
        }
    });
    std::hint::black_box(sum);
    start.elapsed().as_secs_f64()
}

struct Compressed {
    unit: usize,
    payloads: Vec<(CodecId, std::ops::Range<usize>)>,
    bytes: Vec<u8>,
}

fn compressed(policy: Policy, data: &[u8], unit: usize) -> Compressed {
    let mut bytes = Vec::new();
    let payloads = codec::with_compressor(policy, |compressor, _| {
        let one = |block: &[u8]| {
            let start = bytes.len();
            let id = compressor.compress(block, None, &mut bytes);
            if id == CodecId::Raw {
                bytes.extend_from_slice(block);
            }
            (id, start..bytes.len())
        };
        data.chunks_exact(unit).map(one).collect()
    });
    Compressed { unit, payloads, bytes }
}

/// Seconds to sum and decompress every unit, in scattered order or not.
fn bare_read(compressed: &Compressed, scatter: bool) -> f64 {
    let start = Instant::now();
    let mut out = vec![0; compressed.unit];
    let count = compressed.payloads.len();
    for i in 0..count {
        let (id, range) = &compressed.payloads[if scatter { scattered(i, count) } else { i }];
        let payload = &compressed.bytes[range.clone()];
        std::hint::black_box(crc32c::crc32c(payload));
        codec::with_decompressor(|d| d.decompress(*id, payload, None, &mut out)).expect("our own payload");
        std::hint::black_box(&out);
    }
    start.elapsed().as_secs_f64()
}

fn drive_write(drive: &MemoryDrive, data: &[u8], request: usize, scatter: bool) -> f64 {
    let start = Instant::now();
    let count = data.len() / request;
    for i in 0..count {
        let at = if scatter { scattered(i, count) } else { i } * request;
        wait(drive.write(at as u64, &data[at..at + request], false));
        if i % 256 == 0 {
            maintain(drive);
        }
    }
    start.elapsed().as_secs_f64()
}

fn drive_read(drive: &MemoryDrive, len: usize, request: usize, scatter: bool) -> f64 {
    let start = Instant::now();
    let count = len / request;
    let mut buf = vec![0; request];
    for i in 0..count {
        let at = if scatter { scattered(i, count) } else { i } * request;
        wait(drive.read(at as u64, &mut buf));
        std::hint::black_box(&buf);
    }
    start.elapsed().as_secs_f64()
}

/// Writes until the log has wrapped twice: every page of the medium is touched, segments are being reused.
fn warm_up(drive: &MemoryDrive, data: &[u8]) {
    while drive.status().counters.physical_written_bytes < 2 * drive.status().physical_size_bytes {
        drive_write(drive, data, 128 * 1024, false);
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Rounds of (bare, drive) taking turns: median MB/s of both, and the median ratio of speeds in percent.
fn compare(mut bare: impl FnMut() -> f64, mut with_drive: impl FnMut() -> f64) -> (f64, f64, f64) {
    let pairs: Vec<(f64, f64)> = (0..ROUNDS).map(|_| (bare(), with_drive())).collect();
    let speed = |seconds: f64| DATA_BYTES as f64 / 1e6 / seconds;
    (
        speed(median(pairs.iter().map(|p| p.0).collect())),
        speed(median(pairs.iter().map(|p| p.1).collect())),
        100.0 * median(pairs.iter().map(|p| p.0 / p.1).collect()),
    )
}

fn single_core(only: Option<&str>) {
    println!("| codec, data | request | bare MB/s | drive MB/s | ratio | beside the codec, ns a block |");
    println!("| --- | --- | --- | --- | --- | --- |");
    for policy in [Policy::Zstd(1), Policy::Lz4, Policy::None] {
        for (name, data) in [
            ("text", testdata::text_like(1, DATA_BYTES)),
            ("fio 60 %", testdata::fio_like(2, DATA_BYTES, 60)),
            ("random", testdata::random(3, DATA_BYTES)),
        ] {
            if only.is_some_and(|only| !format!("{policy} {name}").contains(only)) {
                continue;
            }
            let drive = new_drive(policy, false);
            warm_up(&drive, &data);
            let (frames, blocks) = (unit_of(128 * 1024), unit_of(4096));
            let payloads = compressed(policy, &data, frames);
            let line = |what: &str, (bare, speed, ratio): (f64, f64, f64)| {
                let beside = 4096.0 * 1e3 * (1.0 / speed - 1.0 / bare);
                println!(
                    "| {policy} {name} | {what} | {bare:.0} | {speed:.0} | {ratio:.0} % | {beside:.0} |"
                );
            };
            line(
                "128 KiB write",
                compare(
                    || bare_write(policy, &data, frames, false),
                    || drive_write(&drive, &data, 128 * 1024, false),
                ),
            );
            wait(drive.flush());
            line(
                "128 KiB read",
                compare(|| bare_read(&payloads, false), || drive_read(&drive, DATA_BYTES, 128 * 1024, false)),
            );
            line(
                "4 KiB random write",
                compare(
                    || bare_write(policy, &data, blocks, true),
                    || drive_write(&drive, &data, 4096, true),
                ),
            );
            wait(drive.flush());
            let payloads = compressed(policy, &data, blocks);
            line(
                "4 KiB random read",
                compare(|| bare_read(&payloads, true), || drive_read(&drive, DATA_BYTES, 4096, true)),
            );
        }
    }
}

/// Time inside the critical section, in ns a block.
fn engine_time() {
    println!("\n| engine time a 4 KiB block | ns |\n| --- | --- |");
    let data = testdata::fio_like(2, DATA_BYTES, 60);
    let drive = new_drive(Policy::Lz4, true);
    warm_up(&drive, &data);
    let blocks = (DATA_BYTES / 4096) as f64;
    let overhead = {
        let start = now();
        (0..100_000).for_each(|_| _ = std::hint::black_box(now()));
        (now() - start) as f64 / 100_000.0
    };
    let measure = |name: &str, work: &mut dyn FnMut()| {
        let values = (0..ROUNDS)
            .map(|_| {
                let before = drive.status().engine_nanoseconds;
                work();
                (drive.status().engine_nanoseconds - before) as f64 / blocks
            })
            .collect();
        println!("| {name} | {:.0} |", median(values));
    };
    measure("128 KiB writes", &mut || _ = drive_write(&drive, &data, 128 * 1024, false));
    measure("4 KiB random writes", &mut || _ = drive_write(&drive, &data, 4096, true));
    wait(drive.flush());
    measure("128 KiB reads", &mut || _ = drive_read(&drive, DATA_BYTES, 128 * 1024, false));
    measure("4 KiB random reads", &mut || _ = drive_read(&drive, DATA_BYTES, 4096, true));
    println!("(reading the clock takes {overhead:.0} ns, counted in once for each entry)");
}

/// Writes of 128 KiB by up to eight threads, with a codec that sleeps: as many cores as one likes.
fn sleeping_codec() {
    /// Of a frame of 32 KiB.
    const COST: Duration = Duration::from_millis(1);
    const REQUEST: usize = 128 * 1024;
    println!(
        "\n| threads, 1 ms a frame | MB/s | times one thread | part of the time in the critical section |\n\
         | --- | --- | --- | --- |"
    );
    let data = testdata::fio_like(2, DATA_BYTES, 60);
    let mut one = 0.0;
    for threads in 1..=8 {
        let drive = new_drive_with(Policy::Lz4, true, Some(Arc::new(offload::Simulated::new(COST))));
        let count = DATA_BYTES / REQUEST / 8;
        let start = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let (drive, data) = (drive.clone(), &data);
                scope.spawn(move || {
                    for at in (thread * count..).take(count).map(|i| i * REQUEST) {
                        wait(drive.write(at as u64, &data[at..at + REQUEST], false));
                    }
                });
            }
        });
        let seconds = start.elapsed().as_secs_f64();
        let speed = (threads * count * REQUEST) as f64 / 1e6 / seconds;
        if threads == 1 {
            one = speed;
        }
        let held = drive.status().engine_nanoseconds as f64 / 1e7 / seconds;
        println!("| {threads} | {speed:.1} | {:.2} | {held:.2} % |", speed / one);
    }
}

/// Four jobs on one core and on two.
fn two_cores() {
    println!(
        "\n| four jobs, memory media | one core MB/s | two cores MB/s | factor | bare codec's factor |\n\
         | --- | --- | --- | --- | --- |"
    );
    let data = testdata::fio_like(2, DATA_BYTES, 60);
    let text = testdata::text_like(2, DATA_BYTES);
    for (policy, name, data) in [
        (Policy::Zstd(1), "zstd:1 text", &text),
        (Policy::Lz4, "lz4 text", &text),
        (Policy::Lz4, "lz4 fio 60 %", &data),
    ] {
        let drive = new_drive(policy, false);
        warm_up(&drive, data);
        let parts = DATA_BYTES / 4;
        let jobs = |cores: &[usize], read: bool, request: usize| {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for job in 0..4 {
                    let drive = drive.clone();
                    scope.spawn(move || {
                        pin_to(cores);
                        let mut buf = vec![0; request];
                        let base = job * parts;
                        let count = parts / request;
                        for i in 0..count {
                            let at = base + scattered(i, count) * request;
                            if read {
                                wait(drive.read(at as u64, &mut buf));
                            } else {
                                wait(drive.write(at as u64, &data[at..at + request], false));
                                if i % 256 == 0 {
                                    maintain(&drive);
                                }
                            }
                        }
                    });
                }
            });
            start.elapsed().as_secs_f64()
        };
        // The same jobs without a drive: what the machine gives at best.
        let payloads = |unit| -> Vec<Compressed> {
            data.chunks(parts).map(|part| compressed(policy, part, unit)).collect()
        };
        let bare = |cores: &[usize], read: bool, scatter: bool, payloads: &[Compressed]| {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for (part, payloads) in data.chunks(parts).zip(payloads) {
                    scope.spawn(move || {
                        pin_to(cores);
                        if read {
                            bare_read(payloads, scatter)
                        } else {
                            bare_write(policy, part, payloads.unit, scatter)
                        }
                    });
                }
            });
            start.elapsed().as_secs_f64()
        };
        for request in [128 * 1024, 4096] {
            let payloads = payloads(unit_of(request));
            for read in [false, true] {
                let scatter = request == 4096;
                let bare_factor = median(
                    (0..ROUNDS)
                        .map(|_| {
                            bare(&[0], read, scatter, &payloads) / bare(&[0, 1], read, scatter, &payloads)
                        })
                        .collect(),
                );
                let pairs: Vec<(f64, f64)> =
                    (0..ROUNDS).map(|_| (jobs(&[0], read, request), jobs(&[0, 1], read, request))).collect();
                let speed = |seconds: f64| DATA_BYTES as f64 / 1e6 / seconds;
                println!(
                    "| {name}, {} KiB {} | {:.0} | {:.0} | {:.2} | {bare_factor:.2} |",
                    request / 1024,
                    if read { "reads" } else { "writes" },
                    speed(median(pairs.iter().map(|p| p.0).collect())),
                    speed(median(pairs.iter().map(|p| p.1).collect())),
                    median(pairs.iter().map(|p| p.0 / p.1).collect()),
                );
            }
        }
    }
}

/// Metadata on sequentially written data, and write amplification of uniform random overwrites.
fn space() {
    const PHYSICAL: u64 = 512 * MIB as u64;
    let create = |logical: u64| {
        let media = Arc::new(MemoryMedia::new(PHYSICAL));
        let options = CreateOptions {
            physical_size_bytes: PHYSICAL,
            logical_capacity_bytes: logical,
            sector_bytes: 4096,
            segment_bytes: Some(1 << 20),
            codec: Policy::Zstd(1),
            uuid: [1; 16],
            created_unix_seconds: 0,
            endurance_bytes: 0,
            keep_allocated: false,
            far_copies: None,
            parity: layout::ParityForm::None,
        };
        wait(async {
            Drive::create(&*media, &options).await?;
            Drive::open(media, OpenOptions::new(1, spawner())).await
        })
    };
    let data = testdata::fio_like(5, DATA_BYTES, 50);
    println!("\n| space | |\n| --- | --- |");

    let drive = create(PHYSICAL);
    for part in 0..4 {
        for (i, piece) in data.chunks(128 * 1024).enumerate() {
            wait(drive.write((part * DATA_BYTES + i * 128 * 1024) as u64, piece, false));
        }
    }
    wait(drive.checkpoint());
    let payloads = compressed(Policy::Zstd(1), &data, unit_of(128 * 1024)).bytes.len() as f64 * 4.0;
    let status = drive.status();
    let logical = status.logical_used_bytes as f64;
    println!(
        "| live bytes beside the payload, sequential at {:.2}:1 | {:.2} % of the logical bytes |",
        logical / payloads,
        100.0 * (status.physical_used_bytes as f64 - payloads) / logical
    );
    println!(
        "| everything written beside the payload (padding, checkpoints) | {:.2} % of the logical bytes |",
        100.0 * (status.counters.physical_written_bytes as f64 - payloads) / logical
    );

    let drive = create(PHYSICAL);
    let blocks = PHYSICAL / 4096;
    let mut random = 1u64;
    let mut overwrite = |count: u64| {
        for i in 0..count {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = scattered(i as usize, DATA_BYTES / 4096) * 4096;
            wait(drive.write((random >> 20) % blocks * 4096, &data[at..at + 4096], false));
            if i % 64 == 0 {
                maintain(&drive);
            }
        }
    };
    overwrite(4 * blocks);
    let before = drive.status().counters;
    overwrite(4 * blocks);
    let after = drive.status();
    let written = |a: u64, b: u64| (a - b) as f64;
    let host = written(after.counters.host_written_bytes, before.host_written_bytes);
    println!(
        "| WAF, uniform random 4 KiB overwrites, {:.0} % of physical space live | {:.2} |",
        100.0 * after.physical_used_bytes as f64 / PHYSICAL as f64,
        written(after.counters.physical_written_bytes, before.physical_written_bytes) / host
    );
    println!(
        "| of it cleaning, map | {:.2}, {:.2} |",
        written(after.counters.cleaning_written_bytes, before.cleaning_written_bytes) / host,
        written(after.counters.map_written_bytes, before.map_written_bytes) / host
    );
}

fn pin_to(cores: &[usize]) {
    let mut set = rustix::thread::CpuSet::new();
    cores.iter().for_each(|core| set.set(*core));
    rustix::thread::sched_setaffinity(None, &set).expect("pinning a thread");
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with('-')).collect();
    let wants = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    if wants("single") {
        single_core(wanted.iter().skip_while(|w| *w != "single").nth(1).map(String::as_str));
    }
    if wants("engine") {
        engine_time();
    }
    if wants("space") {
        space();
    }
    if wants("cores") {
        two_cores();
    }
    if wants("threads") {
        sleeping_codec();
    }
}
