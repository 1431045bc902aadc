//! Measures random 4 KiB reads of a file or block device, for comparison with fio:
//!
//! ```text
//! cargo run --release -p media --example io_speed -- PATH [DEPTH [SECONDS [ring|plain]]]
//! fio --name=x --filename=PATH --rw=randread --bs=4k --direct=1 --ioengine=io_uring --iodepth=DEPTH \
//!     --runtime=SECONDS --time_based
//! ```
#![allow(clippy::print_stdout, reason = "what this program is for")]

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use media::{Direct, FileMedia, IoBuf, Media, UringReactor};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: io_speed PATH [DEPTH [SECONDS [ring|plain]]]")?;
    let depth: u64 = arguments.next().as_deref().unwrap_or("16").parse()?;
    let seconds: f64 = arguments.next().as_deref().unwrap_or("5").parse()?;
    let ring = arguments.next().as_deref() != Some("plain");

    let media = Arc::new(FileMedia::open(&path, true, Direct::Auto)?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let cpu_before = cpu_seconds()?;
    let (mut reads, mut latencies_us) = (0, Vec::new());
    runtime.block_on(async {
        let _guard = if ring { Some(UringReactor::install(depth as u32)?) } else { None };
        let lanes: Vec<_> =
            (0..depth).map(|lane| tokio::spawn(read_until(Arc::clone(&media), lane, until))).collect();
        for lane in lanes {
            let mut lane = lane.await??;
            reads += lane.len();
            latencies_us.append(&mut lane);
        }
        Ok::<_, Box<dyn Error>>(())
    })?;
    let cpu = cpu_seconds()? - cpu_before;
    latencies_us.sort_unstable();
    let percentile = |part: usize| latencies_us.get(latencies_us.len() * part / 1000).copied().unwrap_or(0);
    println!(
        "{} direct={} depth={depth}: {:.0} reads/s, latency p50 {} us, p99 {} us; this thread: {:.1} us CPU a read",
        if ring { "ring" } else { "plain" },
        media.direct(),
        reads as f64 / seconds,
        percentile(500),
        percentile(990),
        cpu * 1e6 / reads as f64,
    );
    Ok(())
}

/// Reads random pages one after the other. Returns the latency of each in microseconds.
async fn read_until(media: Arc<FileMedia>, lane: u64, until: Instant) -> std::io::Result<Vec<u32>> {
    let pages = media.size_bytes() / 4096;
    let mut state = (lane + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut latencies_us = Vec::new();
    let mut buf = IoBuf::pooled(4096);
    let mut now = Instant::now();
    while now < until {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let result;
        (buf, result) = media.read(state % pages * 4096, buf).await;
        result?;
        let before = std::mem::replace(&mut now, Instant::now());
        latencies_us.push((now - before).as_micros() as u32);
    }
    Ok(latencies_us)
}

/// CPU time of this thread in seconds (`/proc/thread-self/schedstat`, first field, nanoseconds).
fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = text.split_whitespace().next().ok_or("empty schedstat")?.parse()?;
    Ok(nanoseconds as f64 / 1e9)
}
