//! A QAT, where there is one:
//! `PUMICE_LIBQATZIP=/path/of/libqatzip.so.3 cargo test -p offload --test hardware -- --nocapture`.

use std::path::Path;
use std::time::Instant;

use codec::{CodecId, Decompressor, testdata};
use futures::executor::block_on;
use futures::future::join_all;
use offload::{Executor, Job, Offload, Options, Qat, Workers};

const FRAME: usize = 16384;
const BATCH: usize = 32;
const BYTES: usize = 64 << 20;

#[test]
fn what_the_device_compresses_comes_back() {
    let Some(path) = std::env::var_os("PUMICE_LIBQATZIP") else {
        eprintln!("skipped: PUMICE_LIBQATZIP does not name a libqatzip with a device behind it");
        return;
    };
    let device = Qat::load(Some(Path::new(&path))).expect("the library loads");
    let workers = Workers::start(device, Options::default()).expect("the device opens");
    for (name, data) in [
        ("text", testdata::text_like(1, BYTES)),
        ("60 % zeros", testdata::fio_like(1, BYTES, 60)),
        ("random", testdata::random(1, BYTES)),
    ] {
        let jobs: Vec<Job> = data.chunks(FRAME).map(|frame| Job { input: frame.into() }).collect();
        let started = Instant::now();
        // As many batches at a time as the queue takes.
        let mut done = Vec::new();
        for some in jobs.chunks(BATCH * 32) {
            let batches = some.chunks(BATCH).map(|jobs| workers.compress(jobs.to_vec()));
            done.extend(block_on(join_all(batches)).into_iter().flatten());
        }
        let seconds = started.elapsed().as_secs_f64();
        let mut decompressor = Decompressor::new();
        let mut back = vec![0; FRAME];
        let mut stored = 0;
        for (job, done) in jobs.iter().zip(&done) {
            if done.id == CodecId::Raw {
                stored += job.input.len();
                continue;
            }
            stored += done.payload.len();
            decompressor.decompress(done.id, &done.payload, None, &mut back).expect("sound DEFLATE");
            assert!(back[..] == job.input[..], "{name}: what came back is not what went in");
        }
        let by_device = done.iter().filter(|done| done.executor == Executor::Device).count();
        eprintln!(
            "{name}: {:.2}:1, {:.0} MB/s, {by_device} of {} jobs by the device",
            BYTES as f64 / stored as f64,
            BYTES as f64 / 1e6 / seconds,
            done.len()
        );
    }
    eprintln!("{}", workers.statistics());
    assert!(workers.statistics().device_jobs > 0);
}
