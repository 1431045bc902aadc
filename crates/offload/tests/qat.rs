//! QAT by way of a library that stands in for libqatzip: same functions, no device. What only the hardware
//! can show is not shown here (docs/how-to/offload.md).

#[path = "common/standin.rs"]
#[allow(unreachable_pub, reason = "a test")]
mod standin;

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use codec::{CodecId, Decompressor, testdata};
use futures::executor::block_on;
use libloading::Library;
use offload::{Choice, Device, Done, Executor, Job, Offload, OpenError, Options, Qat, StartError, Workers};

const BUSY: i32 = 1;
const FAIL: i32 = 2;
const NOHW: i32 = 3;
const GARBAGE: i32 = 4;
const OLDABI: i32 = 5;
const SOMETIMES: i32 = 6;
const SLOW: i32 = 7;

static BUILT: LazyLock<Option<(tempfile::TempDir, PathBuf)>> = LazyLock::new(standin::build);

/// The library, loaded a second time to control it.
struct StandIn {
    path: PathBuf,
    library: Library,
}

impl StandIn {
    /// A copy for each test: it has a state of its own then. `None`, and a line that says so, without a
    /// compiler.
    fn new(test: &str) -> Option<StandIn> {
        let Some((dir, built)) = &*BUILT else {
            eprintln!("skipped: no C compiler (cc)");
            return None;
        };
        let path = dir.path().join(format!("libqatzip-{test}.so"));
        std::fs::copy(built, &path).expect("a copy");
        // SAFETY: the library built above, which does nothing when it is loaded but read its environment.
        let library = unsafe { Library::new(&path) }.expect("what was built loads");
        Some(StandIn { path, library })
    }

    fn mode(&self, mode: i32) {
        // SAFETY: so standin.c declares it.
        unsafe { self.library.get::<unsafe extern "C" fn(i32)>(b"standin_mode\0").expect("is there")(mode) };
    }

    fn number(&self, name: &str) -> i32 {
        // SAFETY: all of standin.c's functions of no arguments that tests ask for return an int.
        unsafe { self.library.get::<unsafe extern "C" fn() -> i32>(name.as_bytes()).expect("is there")() }
    }

    fn start(&self, options: Options) -> Result<Workers, StartError> {
        Workers::start(Qat::load(Some(&self.path)).expect("it loads"), options)
    }
}

/// Blocks and frames that shrink by runs alone.
fn jobs(seed: u64, count: usize) -> Vec<Job> {
    (0..count)
        .map(|number| {
            let len = [4096, 16384, 65536, 4096, 512][number % 5];
            Job { input: testdata::fio_like(seed + number as u64, len, 70).into() }
        })
        .collect()
}

fn check(jobs: &[Job], done: &[Done]) {
    assert_eq!(jobs.len(), done.len());
    let mut decompressor = Decompressor::new();
    for (job, done) in jobs.iter().zip(done) {
        let mut back = vec![0; job.input.len()];
        if done.id == CodecId::Raw {
            assert!(done.payload.is_empty());
            continue;
        }
        assert_eq!(done.id, CodecId::Deflate);
        assert!(done.payload.len() + codec::UNIT_BYTES <= job.input.len());
        decompressor.decompress(done.id, &done.payload, None, &mut back).expect("any Pumice reads it");
        assert_eq!(back[..], job.input[..]);
    }
}

#[test]
fn the_device_does_it() {
    let Some(standin) = StandIn::new("does") else { return };
    let workers = standin.start(Options { threads: 3, level: 12, ..Options::default() }).expect("a session");
    for round in 0..20 {
        let jobs = jobs(round, 10);
        let done = block_on(workers.compress(jobs.clone()));
        check(&jobs, &done);
        assert!(done.iter().all(|done| done.executor == Executor::Device && done.id == CodecId::Deflate));
    }
    let counts = workers.statistics();
    assert_eq!((counts.device_jobs, counts.software_jobs, counts.busy, counts.failed), (200, 0, 0, 0));
    assert!(counts.device_output_bytes > 0 && counts.device_output_bytes < counts.device_input_bytes / 2);
    assert_eq!(standin.number("standin_misuse"), 0);
    drop(workers);
    assert_eq!(standin.number("standin_open_sessions"), 0);
}

#[test]
fn incompressible_data_does_not_reach_it() {
    let Some(standin) = StandIn::new("random") else { return };
    let workers = standin.start(Options::default()).expect("a session");
    let trials = standin.number("standin_calls");
    let jobs = vec![Job { input: testdata::random(1, 65536).into() }, Job { input: Arc::from([0; 7]) }];
    let done = block_on(workers.compress(jobs));
    assert!(
        done.iter()
            .all(|done| *done == Done { id: CodecId::Raw, payload: vec![], executor: Executor::Skipped })
    );
    // Sessions may still be opening, each with one trial.
    assert!(standin.number("standin_calls") - trials < 4);
    assert_eq!(workers.statistics().incompressible_jobs, 2);
    assert!(block_on(workers.compress(vec![])).is_empty());
}

#[test]
fn what_does_not_shrink_is_raw() {
    let Some(standin) = StandIn::new("raw") else { return };
    let workers = standin.start(Options::default()).expect("a session");
    // Text has no runs: this stand-in makes it longer, which a caller must not see.
    let jobs = vec![Job { input: testdata::random(1, 4096).into_iter().map(|byte| byte | 0x90).collect() }];
    let done = block_on(workers.compress(jobs.clone()));
    assert_eq!(done, [Done { id: CodecId::Raw, payload: vec![], executor: Executor::Device }]);
    assert_eq!(workers.statistics().device_output_bytes, 4096);
}

#[test]
fn a_busy_device_is_helped_out() {
    let Some(standin) = StandIn::new("busy") else { return };
    let workers = standin.start(Options { threads: 1, ..Options::default() }).expect("a session");
    standin.mode(BUSY);
    let first = jobs(1, 20);
    let done = block_on(workers.compress(first.clone()));
    check(&first, &done);
    assert!(done.iter().all(|done| done.executor == Executor::Software));
    standin.mode(SOMETIMES);
    let second = jobs(2, 30);
    let done = block_on(workers.compress(second.clone()));
    check(&second, &done);
    let counts = workers.statistics();
    // Busy is no failure: the device is asked again for each job.
    assert_eq!((counts.device_jobs, counts.software_jobs, counts.busy, counts.failed), (20, 30, 30, 0));
}

#[test]
fn a_device_that_fails_is_given_up_and_tried_again() {
    let Some(standin) = StandIn::new("fail") else { return };
    let workers = standin.start(Options { threads: 1, ..Options::default() }).expect("a session");
    standin.mode(FAIL);
    let first = jobs(1, 100);
    let done = block_on(workers.compress(first.clone()));
    check(&first, &done);
    assert!(done.iter().all(|done| done.executor == Executor::Software));
    let counts = workers.statistics();
    assert_eq!((counts.failed, counts.given_up, counts.software_jobs), (8, 1, 100));
    assert_eq!(standin.number("standin_open_sessions"), 0);
    standin.mode(0);
    let second = jobs(2, 400);
    let done = block_on(workers.compress(second.clone()));
    check(&second, &done);
    assert_eq!(done.last().expect("400").executor, Executor::Device, "it came back, and was found out");
    assert_eq!(standin.number("standin_misuse"), 0);
}

#[test]
fn without_a_device_there_is_no_offload() {
    let Some(standin) = StandIn::new("nohw") else { return };
    let choice = Choice::Qat(Some(standin.path.clone()));
    for (mode, words) in
        [(NOHW, "no QAT device"), (FAIL, "failed"), (BUSY, "timed out"), (GARBAGE, "decompress")]
    {
        standin.mode(mode);
        let Err(error) = choice.start(Options::default()) else { panic!("started in mode {mode}") };
        assert!(error.to_string().contains(words), "{error}");
        assert_eq!(error.to_string().lines().count(), 1);
    }
    assert_eq!(standin.number("standin_open_sessions"), 0);
    standin.mode(0);
    assert!(choice.start(Options::default()).expect("there it is").is_some());
}

#[test]
fn an_older_library_is_refused() {
    let Some(standin) = StandIn::new("oldabi") else { return };
    standin.mode(OLDABI);
    let device = Qat::load(Some(&standin.path)).expect("it loads");
    assert!(matches!(device.open(1), Err(OpenError::Version { .. })));
    assert!(matches!(Qat::load(Some(Path::new("/dev/null"))), Err(OpenError::Library { .. })));
}

#[test]
fn with_verify_nothing_wrong_gets_through() {
    let Some(standin) = StandIn::new("garbage") else { return };
    let workers =
        standin.start(Options { threads: 1, verify: true, ..Options::default() }).expect("a session");
    standin.mode(GARBAGE);
    let jobs = jobs(1, 50);
    let done = block_on(workers.compress(jobs.clone()));
    check(&jobs, &done);
    let counts = workers.statistics();
    assert!(counts.failed >= 8 && counts.given_up == 1, "{counts}");
    assert_eq!(counts.software_jobs + counts.device_jobs, 50);
}

#[test]
fn a_full_queue_is_no_wait() {
    let Some(standin) = StandIn::new("slow") else { return };
    let options = Options { threads: 1, queue_batches: 2, ..Options::default() };
    let workers = standin.start(options).expect("a session");
    standin.mode(SLOW);
    let all: Vec<Vec<Job>> = (0..20).map(|round| jobs(round, 2)).collect();
    let batches: Vec<_> = all.iter().map(|jobs| workers.compress(jobs.clone())).collect();
    for (jobs, batch) in all.iter().zip(batches) {
        check(jobs, &block_on(batch));
    }
    let counts = workers.statistics();
    assert!(counts.queue_full >= 1, "{counts}");
    assert_eq!(counts.device_jobs + counts.software_jobs, 40);
    assert_eq!(counts.software_jobs, counts.queue_full * 2);
}

#[test]
fn what_is_queued_is_done_before_the_end() {
    let Some(standin) = StandIn::new("end") else { return };
    let workers = standin.start(Options { threads: 1, ..Options::default() }).expect("a session");
    let all: Vec<Vec<Job>> = (0..10).map(|round| jobs(round, 3)).collect();
    let mut batches: Vec<_> = all.iter().map(|jobs| Some(workers.compress(jobs.clone()))).collect();
    // One that nobody waits for any more.
    batches[4] = None;
    drop(workers);
    for (jobs, batch) in all.iter().zip(batches) {
        if let Some(batch) = batch {
            check(jobs, &block_on(batch));
        }
    }
    assert_eq!(standin.number("standin_open_sessions"), 0);
}
