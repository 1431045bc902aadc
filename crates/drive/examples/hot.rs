//! Random reads of 4 KiB over a hot set, with and without the read cache: a Zipf distribution over a tenth of
//! the data. Then, without it, before and after the frames that are read often were cut: over the same set,
//! and over all data.
//!
//! `cargo run --release -p drive --example hot -- [MIB [READS [FILE]]]`: a drive of MIB (default 256) of the
//! file's bytes, or of text, in memory, one thread. The sides take turns; time is CPU time of the thread.

#![allow(clippy::print_stdout, reason = "a program")]

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use codec::Policy;
use drive::{CreateOptions, Drive, OpenOptions, ReadCache};
use media::MemoryMedia;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const BLOCK: usize = 4096;
/// Exponent of the distribution.
const EXPONENT: f64 = 1.1;
const ROUNDS: usize = 5;

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

/// Ranks by their probability, from a table of sums.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize) -> Zipf {
        let mut sum = 0.0;
        Zipf((1..=ranks).map(|rank| (sum += (rank as f64).powf(-EXPONENT), sum).1).collect())
    }

    fn draw(&self, rng: &mut StdRng) -> usize {
        let at = rng.random::<f64>() * self.0[self.0.len() - 1];
        self.0.partition_point(|sum| *sum < at)
    }
}

fn options() -> OpenOptions {
    OpenOptions::new(1, Arc::new(run))
}

/// Opens the drive read-only, so that several can have it.
fn reader(media: &Arc<MemoryMedia>, read_cache: Option<Arc<ReadCache>>) -> Drive<MemoryMedia> {
    run(Drive::open(media.clone(), OpenOptions { read_only: true, read_cache, ..options() })).expect("open")
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number =
        |default: usize| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (mib, reads) = (number(256), number(200_000));
    let data = match arguments.next() {
        Some(file) => std::fs::read(file).expect("a file"),
        None => codec::testdata::text_like(1, 16 << 20),
    };
    let (bytes, physical) = ((mib as u64) << 20, ((mib as u64) << 21) + (256 << 20));
    let media = Arc::new(MemoryMedia::new(physical));
    let create = CreateOptions {
        physical_size_bytes: physical,
        logical_capacity_bytes: bytes,
        sector_bytes: 4096,
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
    let drive = run(Drive::open(media.clone(), options())).expect("open");
    let pieces = data.chunks_exact(128 << 10).cycle();
    for (at, piece) in (0..bytes).step_by(128 << 10).zip(pieces) {
        run(drive.write(at, piece, false)).expect("write");
    }
    run(drive.close()).expect("close");
    drop(drive);

    let blocks = bytes as usize / BLOCK;
    let mut rng = StdRng::seed_from_u64(1);
    // The hot tenth is spread over the drive.
    let hot: Vec<usize> = rand::seq::index::sample(&mut rng, blocks, blocks / 10).into_vec();
    let zipf = Zipf::new(hot.len());
    let with = ReadCache::new(ReadCache::DEFAULT_BYTES);
    let drives = [("without", reader(&media, None)), ("with", reader(&media, with))];
    for round in 0..=ROUNDS {
        let mut seconds = [0.0; 2];
        for (side, (_, drive)) in drives.iter().enumerate() {
            seconds[side] = seconds_of(drive, round as u64, reads, |rng| hot[zipf.draw(rng)]);
        }
        if round > 0 {
            let us = seconds.map(|seconds| seconds * 1e6 / reads as f64);
            println!(
                "round {round}: {:.2} us without, {:.2} us with, {:.2} times",
                us[0],
                us[1],
                us[0] / us[1]
            );
        }
    }
    for (name, drive) in &drives {
        let status = drive.status();
        let (hits, misses) = (status.read_cache_hits_count, status.read_cache_misses_count);
        let share = 100.0 * hits as f64 / (hits + misses).max(1) as f64;
        println!("{name}: {share:.1} % hits, {} read from the medium", status.counters.physical_read_bytes);
    }
    drop(drives);
    let drive = run(Drive::open(media, options())).expect("open");
    println!("training: {}", run(drive.train()).expect("train").outcome);
    type Draw<'a> = &'a dyn Fn(&mut StdRng) -> usize;
    let ways: [(&str, Draw<'_>); 2] =
        [("hot set", &|rng| hot[zipf.draw(rng)]), ("all data", &|rng| rng.random_range(0..blocks))];
    for (name, draw) in ways {
        let before = seconds_of(&drive, 1, reads, draw);
        let used = drive.status().physical_used_bytes;
        let (begun, mut cut) = (cpu(), 0);
        for round in 0..ROUNDS as u64 {
            seconds_of(&drive, 10 + round, reads, draw);
            while let Some(step) = run(drive.cut_hot_step()).expect("cut") {
                run(drive.maintain()).expect("maintain");
                cut += step.blocks_count * BLOCK as u64;
            }
        }
        let cutting = cpu() - begun;
        let after = seconds_of(&drive, 1, reads, draw);
        let us = [before, after].map(|seconds| seconds * 1e6 / reads as f64);
        println!(
            "{name}: {:.2} us before, {:.2} us after {} MiB were cut; used {} MiB before, {} MiB after; {cutting:.1} s \
             with reads",
            us[0],
            us[1],
            cut >> 20,
            used >> 20,
            drive.status().physical_used_bytes >> 20
        );
    }
}

/// CPU time of reads of blocks that are drawn.
fn seconds_of(
    drive: &Drive<MemoryMedia>,
    seed: u64,
    reads: usize,
    draw: impl Fn(&mut StdRng) -> usize,
) -> f64 {
    let (mut rng, mut buf) = (StdRng::seed_from_u64(seed), vec![0; BLOCK]);
    let begun = cpu();
    for _ in 0..reads {
        let block = draw(&mut rng);
        run(drive.read((block * BLOCK) as u64, &mut buf)).expect("read");
    }
    cpu() - begun
}
