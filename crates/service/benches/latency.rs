//! Cost of timing a request: counting it in and out, two looks at the clock, and one value added to a
//! histogram.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use service::{Kind, Latencies, Requests};

fn bench(criterion: &mut Criterion) {
    criterion.bench_function("two looks at the clock", |b| b.iter(|| black_box(Instant::now()).elapsed()));
    let latencies = Latencies::new(2);
    let mut took = 0;
    let mut record = || {
        took = (took + 997) % 1_000_000;
        latencies.record(Kind::Write, Duration::from_nanos(black_box(took)));
    };
    criterion.bench_function("one value added", |b| b.iter(&mut record));
    // The whole of it, as each request has it.
    let requests = Requests::new(2);
    let one = || requests.bench_one(black_box(Kind::Write));
    criterion.bench_function("a request counted and timed", |b| b.iter(one));
    // Another thread does the same all the time: shards keep the histograms apart, the counters are shared.
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let _ = requests.bench_one(Kind::Write);
            }
        });
        criterion.bench_function("a request counted and timed, beside another thread", |b| b.iter(one));
        stop.store(true, Ordering::Relaxed);
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
