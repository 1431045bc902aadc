//! Any device: one that is made up here.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use codec::{CodecId, Decompressor, Policy, testdata};
use futures::executor::block_on;
use futures::future::join_all;
use offload::{
    Batch, Device, DeviceError, Executor, Job, Offload, OpenError, Options, Session, Workers, in_software,
};

/// Compresses by the CPU, and panics at the job of that number.
struct Made {
    jobs: Arc<AtomicUsize>,
    panics_at: usize,
    opens: usize,
    opened: AtomicUsize,
}

impl Made {
    fn new(panics_at: usize, opens: usize) -> Made {
        Made { jobs: Arc::default(), panics_at, opens, opened: AtomicUsize::new(0) }
    }
}

struct MadeSession(Arc<AtomicUsize>, usize);

impl Device for Made {
    fn name(&self) -> &'static str {
        "made"
    }

    fn codec(&self) -> CodecId {
        CodecId::Zstd
    }

    fn open(&self, _level: u8) -> Result<Box<dyn Session>, OpenError> {
        if self.opened.fetch_add(1, Ordering::Relaxed) >= self.opens {
            return Err(OpenError::Device { step: "made", code: 1, meaning: "none left" });
        }
        Ok(Box::new(MadeSession(Arc::clone(&self.jobs), self.panics_at)))
    }
}

impl Session for MadeSession {
    fn compress(&mut self, input: &[u8], out: &mut [u8]) -> Result<usize, DeviceError> {
        assert!(self.0.fetch_add(1, Ordering::Relaxed) != self.1, "planned panic");
        let done = in_software(input, Policy::Zstd(1));
        out[..done.payload.len()].copy_from_slice(&done.payload);
        Ok(done.payload.len())
    }
}

fn jobs(seed: u64) -> Vec<Job> {
    (0..4).map(|number| Job { input: testdata::text_like(seed + number, 4096).into() }).collect()
}

fn check(workers: &Workers, rounds: u64) -> Vec<Executor> {
    let all: Vec<Vec<Job>> = (0..rounds).map(jobs).collect();
    let done = block_on(join_all(all.iter().map(|jobs| workers.compress(jobs.clone()))));
    for (job, done) in all.iter().flatten().zip(done.iter().flatten()) {
        let mut back = vec![0; 4096];
        Decompressor::new().decompress(done.id, &done.payload, None, &mut back).expect("sound");
        assert_eq!(back[..], job.input[..]);
    }
    done.iter().flatten().map(|done| done.executor).collect()
}

#[test]
fn results_come_in_the_order_of_jobs() {
    let workers = Workers::start(Made::new(usize::MAX, 8), Options::default()).expect("it opens");
    assert!(check(&workers, 50).contains(&Executor::Device));
}

#[test]
fn a_worker_that_dies_takes_nothing_with_it() {
    // The batch in its hands and those behind it are done by the CPU.
    let options = Options { threads: 1, ..Options::default() };
    let workers = Workers::start(Made::new(5, 8), options).expect("it opens");
    let by = check(&workers, 10);
    assert!(
        by[..4].iter().all(|by| *by == Executor::Device)
            && by[4..].iter().all(|by| *by == Executor::Software),
        "{by:?}"
    );
    // And what comes now.
    assert!(check(&workers, 2).iter().all(|by| *by == Executor::Software));
}

#[test]
fn threads_without_a_session_work_by_the_cpu() {
    let workers = Workers::start(Made::new(usize::MAX, 1), Options { threads: 3, ..Options::default() })
        .expect("one is enough");
    check(&workers, 50);
    let counts = workers.statistics();
    assert_eq!(counts.device_jobs + counts.software_jobs, 200);
    assert!(Workers::start(Made::new(usize::MAX, 0), Options::default()).is_err());
}

#[test]
fn a_batch_with_too_few_results_is_done_anew() {
    let jobs = jobs(1);
    let (completer, batch) = Batch::channel(jobs.clone().into(), Policy::Lz4);
    completer.complete(vec![in_software(&jobs[0].input, Policy::Zstd(1))]);
    let done = block_on(batch);
    assert_eq!(done.len(), 4);
    assert!(done.iter().all(|done| done.id == CodecId::Lz4));
}
