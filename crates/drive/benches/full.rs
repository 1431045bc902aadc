//! A drive that is nearly full of text, written in order, and then overwritten a block at a time at random: the frames that it
//! was written in die block by block, and cleaning has to pack anew what is left of them.
//!
//! `cargo bench -p drive --bench full` prints the table of docs/lab/cleaning.md: how long writes take, and what is written to the medium for
//! each byte of the host's. One thread; the background has a turn after each few writes, as on a server that is busy.
#![allow(clippy::print_stdout)]

mod common;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::{Policy, testdata};
use common::{poll_in_place, spawner};
use drive::{CreateOptions, Drive, Error, OpenOptions};
use media::MemoryMedia;

const PHYSICAL: u64 = 512 << 20;
const BLOCK: usize = 4096;
const PIECE: usize = 256 << 10;
/// Text that blocks are overwritten with.
const POOL_BYTES: usize = 8 << 20;
const WRITES: usize = 50_000;
/// Writes between two turns of the background.
const WRITES_A_TURN: usize = 4;

fn wait<T>(future: impl Future<Output = Result<T, Error>>) -> T {
    poll_in_place(future).expect("a request on memory media")
}

fn new_drive() -> Drive<MemoryMedia> {
    let media = Arc::new(MemoryMedia::new(PHYSICAL));
    let create = CreateOptions {
        physical_size_bytes: PHYSICAL,
        logical_capacity_bytes: 16 * PHYSICAL,
        sector_bytes: 4096,
        segment_bytes: None,
        codec: Policy::Auto,
        uuid: [1; 16],
        created_unix_seconds: 0,
        endurance_bytes: 0,
        keep_allocated: false,
    };
    wait(async {
        Drive::create(&*media, &create).await?;
        Drive::open(media, OpenOptions::new(1, spawner())).await
    })
}

fn used_percent(drive: &Drive<MemoryMedia>) -> f64 {
    let (used, limit) = drive.space();
    used as f64 * 100.0 / limit as f64
}

/// Fills a drive to that level. Answers how many blocks that took.
fn fill(drive: &Drive<MemoryMedia>, percent: f64) -> u64 {
    let mut written = 0;
    while used_percent(drive) < percent {
        let data = testdata::text_like(written, PIECE);
        wait(drive.write(written, &data, false));
        written += PIECE as u64;
        while wait(drive.maintain()) {}
    }
    written / BLOCK as u64
}

fn main() {
    println!(
        "| filled to | overwritten | refused | p50 us | p99 us | longest ms | bytes written a byte of the host's (cleaning, map) | a byte of log (cleaning) | used then |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let pool = testdata::text_like(77, POOL_BYTES);
    for percent in [80.0, 90.0, 96.0] {
        let drive = new_drive();
        let blocks = fill(&drive, percent);
        let before = drive.status().counters;
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 20) % blocks * BLOCK as u64
        };
        let (mut times, mut refused) = (Vec::with_capacity(WRITES), 0);
        for i in 0..WRITES {
            let at = i * BLOCK % POOL_BYTES;
            let begun = Instant::now();
            match poll_in_place(drive.write(next(), &pool[at..at + BLOCK], false)) {
                Ok(()) => times.push(begun.elapsed()),
                Err(Error::NoSpace) => refused += 1,
                Err(error) => panic!("{error}"),
            }
            if i % WRITES_A_TURN == 0 {
                drive.tick();
                wait(drive.maintain());
            }
        }
        times.sort_unstable();
        let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or_default();
        let micros = |time: Duration| time.as_secs_f64() * 1e6;
        let after = drive.status().counters;
        let host = (after.host_written_bytes - before.host_written_bytes) as f64;
        let physical = (after.physical_written_bytes - before.physical_written_bytes) as f64;
        let cleaning = (after.cleaning_written_bytes - before.cleaning_written_bytes) as f64;
        let map = (after.map_written_bytes - before.map_written_bytes) as f64;
        let own = physical - cleaning - map;
        println!(
            "| {percent} % | {} MiB of {} | {refused} | {:.0} | {:.0} | {:.1} | {:.2} ({:.2}, {:.2}) | {:.2} ({:.2}) | {:.1} % |",
            (host as u64) >> 20,
            (blocks * BLOCK as u64) >> 20,
            micros(at(50)),
            micros(at(99)),
            micros(times.last().copied().unwrap_or_default()) / 1e3,
            physical / host,
            cleaning / host,
            map / host,
            physical / own,
            cleaning / own,
            used_percent(&drive),
        );
    }
}
