//! A drive that is nearly full of text, written in order, and then overwritten a block at a time at random:
//! the frames that it was written in die block by block, and cleaning has to pack anew what is left of them.
//! The same for a drive that was settled: as every drive is that was ever idle.
//!
//! `cargo bench -p drive --bench full` prints the table of lab/cleaning.md: how long writes take, and
//! what is written to the medium for each byte of the host's. One thread; the background has a turn after
//! each few writes, as on a server that is busy.
#![allow(clippy::print_stdout)]

mod common;

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use codec::{Policy, testdata};
use common::{poll_in_place, spawner};
use drive::{CreateOptions, Drive, Error, OpenOptions, Settle};
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
        far_copies: None,
        parity: layout::ParityForm::None,
    };
    wait(async {
        Drive::create(&*media, &create).await?;
        Drive::open(media, OpenOptions::new(1, spawner())).await
    })
}

/// CPU time of this thread in seconds.
fn cpu() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn used_percent(drive: &Drive<MemoryMedia>) -> f64 {
    let (used, limit) = drive.space();
    used as f64 * 100.0 / limit as f64
}

/// Fills a drive to that level. Answers how many blocks that took.
fn fill(drive: &Drive<MemoryMedia>, percent: f64, mut written: u64) -> u64 {
    while used_percent(drive) < percent {
        let data = testdata::text_like(written, PIECE);
        wait(drive.write(written, &data, false));
        written += PIECE as u64;
        while wait(drive.maintain()) {}
    }
    written
}

/// Settles all of a drive.
fn settle(drive: &Drive<MemoryMedia>) {
    wait(drive.flush());
    let mut block = Some(0);
    while let Some(next) = block {
        let step = wait(drive.settle_step(next, Settle::All));
        block = step.next_block;
        while wait(drive.maintain()) {}
        if step.no_room {
            drive.tick();
        }
    }
}

fn main() {
    println!(
        "| filled to | overwritten | refused | CPU us a write, cleaning included | p50 us | p99 us | longest ms | \
         bytes written a byte of the host's (cleaning, map) | a byte of log (cleaning) | used then |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let pool = testdata::text_like(77, POOL_BYTES);
    for (percent, is_settled) in [(80.0, false), (90.0, false), (90.0, true), (96.0, false)] {
        let drive = new_drive();
        let mut written = fill(&drive, percent, 0);
        // Settling makes room for more.
        if is_settled {
            settle(&drive);
            while used_percent(&drive) <= percent - 1.0 {
                written = fill(&drive, percent, written);
                settle(&drive);
            }
        }
        let blocks = written / BLOCK as u64;
        let before = drive.status().counters;
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 20) % blocks * BLOCK as u64
        };
        let (mut times, mut refused) = (Vec::with_capacity(WRITES), 0);
        let began = cpu();
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
        let cpu_micros = (cpu() - began) * 1e6 / WRITES as f64;
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
            "| {percent} %{} | {} MiB of {} | {refused} | {cpu_micros:.0} | {:.0} | {:.0} | {:.1} | {:.2} ({:.2}, \
             {:.2}) | {:.2} ({:.2}) | {:.1} % |",
            if is_settled { ", settled" } else { "" },
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
