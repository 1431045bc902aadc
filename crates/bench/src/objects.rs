//! Objects put to and got from an S3 gateway, by a number of clients at once.
//!
//! It signs with `rusty-s3` and speaks HTTP with `ureq`, which `pumice scan` reads buckets with: whole S3
//! libraries bring another asynchronous runtime's worth of crates for two requests.

mod client;
mod gateway;
mod removal;
mod warp;

use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rusty_s3::S3Action;

use crate::error::{BenchError, Result};
use crate::fio::Measured;
use crate::objects::warp::Warp;
use crate::process::{self, Stop};
use crate::target::S3Address;
pub(crate) use client::{OWN, choose};
pub use client::{S3Client, UnknownS3Client};
use gateway::{ANSWER, Gateway, PATIENCE, POLL, SIGNED, success, until_stopped};
use removal::Ending;
pub(crate) use removal::LATE;

/// Pieces in which data is made: a share of each is zeros.
const CHUNK_BYTES: usize = 4096;

/// Puts all objects, or gets them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ObjectJob {
    pub(crate) is_put: bool,
    pub(crate) object_kib: u32,
    /// Requests in flight.
    pub(crate) clients: u32,
    /// Share of the data that is zeros, in percent. warp has its own data.
    pub(crate) zeros_percent: u8,
    /// The client that does it; `None`: the own one.
    pub(crate) warp: Option<Warp>,
}

impl ObjectJob {
    pub(crate) fn text(&self) -> String {
        let what = if self.is_put { "PUT" } else { "GET" };
        let job = format!("{what}, objects of {} KiB, {} clients", self.object_kib, self.clients);
        match &self.warp {
            None => job,
            Some(warp) => format!("{job}, {}, {}", warp.data_text(), warp.text()),
        }
    }

    /// Whether it runs for a time: warp does so always, the own client puts each object once.
    pub(crate) fn is_timed(&self) -> bool {
        !self.is_put || self.warp.is_some()
    }

    /// Time that it is expected to take as a timed job of `seconds`.
    pub(crate) fn expected_seconds(&self, seconds: u32) -> f64 {
        match self.warp {
            None => f64::from(seconds),
            Some(_) => Warp::expected_seconds(self.is_put, seconds),
        }
    }

    fn object_bytes(&self) -> usize {
        (self.object_kib as usize) << 10
    }

    /// Number of objects in a store of `bytes`, at least one.
    pub(crate) fn count(&self, bytes: u64) -> u64 {
        (bytes / self.object_bytes() as u64).max(1)
    }

    /// Makes the data of an object, the same for the same number.
    fn fill(&self, object: u64, data: &mut [u8]) {
        let mut random = StdRng::seed_from_u64(object);
        let filled = CHUNK_BYTES - CHUNK_BYTES * usize::from(self.zeros_percent) / 100;
        for chunk in data.chunks_mut(CHUNK_BYTES) {
            let filled = filled.min(chunk.len());
            random.fill_bytes(&mut chunk[..filled]);
        }
    }
}

/// Access to a bucket, and a prefix in it that is this run's own.
pub(crate) struct Access {
    gateway: Gateway,
    class: Option<String>,
    prefix: String,
    /// Shortens the clean-up.
    stop: Stop,
    /// Objects that were put: the highest number and one.
    put_count: AtomicU64,
    /// Others may have put under the prefix for the run.
    is_put_to: AtomicBool,
    /// The gateway may be at work still on what was put, for a client that is gone.
    is_cut: AtomicBool,
    /// That was so at some time.
    was_ever_cut: AtomicBool,
    /// The bucket was made for the run.
    is_made: AtomicBool,
}

impl Access {
    fn new(gateway: Gateway, class: Option<String>, prefix: String, stop: Stop) -> Access {
        Access {
            gateway,
            class,
            prefix,
            stop,
            put_count: AtomicU64::new(0),
            is_put_to: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            was_ever_cut: AtomicBool::new(false),
            is_made: AtomicBool::new(false),
        }
    }

    /// Access to a bucket that may not be there.
    pub(crate) fn to(address: &S3Address, prefix: String, stop: &Stop) -> Result<Access> {
        Ok(Access::new(Gateway::at(address)?, address.class.clone(), prefix, stop.clone()))
    }

    /// Looks whether the bucket is there, and makes it if it is not.
    pub(crate) fn open(address: &S3Address, prefix: String, stop: &Stop) -> Result<Access> {
        let access = Access::to(address, prefix, stop)?;
        access.open_bucket()?;
        Ok(access)
    }

    /// Whether the bucket is there. Fails if the gateway cannot be asked, or does not answer within ten
    /// seconds.
    pub(crate) fn is_there(&self) -> Result<bool> {
        self.gateway.has_bucket(ANSWER, &self.stop)
    }

    fn open_bucket(&self) -> Result<()> {
        if self.gateway.has_bucket(PATIENCE, &self.stop)? {
            return Ok(());
        }
        let gateway = self.gateway.clone();
        let ending = Ending::new(&self.stop);
        let answer = ending.ask(move || gateway.make_bucket()).map_err(|error| match self.stop.is_set() {
            true => BenchError::LeftBehind {
                source: Box::new(BenchError::Interrupted),
                left: format!("the bucket {} may have been made: {error}", self.gateway.name()),
            },
            false => error,
        })?;
        success(answer)?;
        self.is_made.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn bucket_name(&self) -> &str {
        self.gateway.name()
    }

    /// The prefix of this run, with a slash at its end.
    pub(crate) fn prefix(&self) -> &str {
        &self.prefix
    }

    pub(crate) fn class(&self) -> Option<&str> {
        self.class.as_deref()
    }

    /// Another program is about to put objects under the prefix: they are removed at the end.
    pub(crate) fn will_be_put_to(&self) {
        self.is_put_to.store(true, Ordering::Relaxed);
    }

    /// A client of the prefix has ended in the middle of its work.
    pub(crate) fn was_cut(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.was_ever_cut.store(true, Ordering::Relaxed);
    }

    /// Whether the gateway may store something for the run after all was removed.
    pub(crate) fn may_be_late(&self) -> bool {
        self.was_ever_cut.load(Ordering::Relaxed)
    }

    /// What tells warp where the gateway is, and its keys.
    pub(crate) fn warp_environment(&self) -> Vec<(&'static str, String)> {
        let Gateway { bucket, credentials, .. } = &self.gateway;
        let url = bucket.base_url();
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or(host.to_string(), |port| format!("{host}:{port}"));
        vec![
            ("WARP_HOST", host),
            ("WARP_TLS", (url.scheme() == "https").to_string()),
            ("WARP_KTLS", "false".to_string()),
            ("WARP_REGION", bucket.region().to_string()),
            ("WARP_ACCESS_KEY", credentials.key().to_string()),
            ("WARP_SECRET_KEY", credentials.secret().to_string()),
            ("WARP_SESSION_TOKEN", credentials.token().unwrap_or_default().to_string()),
        ]
    }

    /// Returns the first key of the bucket; `None` if it is empty or not there.
    pub(crate) fn first_key(&self, stop: &Stop) -> Result<Option<String>> {
        let gateway = self.gateway.clone();
        let keys = until_stopped(stop, move || gateway.keys("", 1))??;
        Ok(keys.and_then(|keys| keys.into_iter().next()))
    }

    fn key(&self, object: u64) -> String {
        format!("{}{object}", self.prefix)
    }

    fn put(&self, object: u64, data: &[u8]) -> Result<()> {
        let key = self.key(object);
        let Gateway { agent, bucket, credentials } = &self.gateway;
        let mut action = bucket.put_object(Some(credentials), &key);
        if let Some(class) = &self.class {
            // Signed, as gateways ask of all headers of this name.
            action.headers_mut().insert("x-amz-storage-class", class.clone());
        }
        let mut request = agent.put(action.sign(SIGNED).as_str());
        if let Some(class) = &self.class {
            request = request.header("x-amz-storage-class", class);
        }
        self.put_count.fetch_max(object + 1, Ordering::Relaxed);
        let answer = request.send(data);
        if answer.is_err() {
            self.was_cut();
        }
        success(answer).map(drop)
    }

    fn get(&self, object: u64, data: &mut [u8]) -> Result<()> {
        let key = self.key(object);
        let Gateway { agent, bucket, credentials } = &self.gateway;
        let url = bucket.get_object(Some(credentials), &key).sign(SIGNED);
        let mut answer = success(agent.get(url.as_str()).call())?;
        let mut reader = answer.body_mut().as_reader();
        let failed = |problem: String| BenchError::program("S3 gateway", format!("{key}: {problem}"));
        reader.read_exact(data).map_err(|error| failed(error.to_string()))?;
        // The connection is used again only if its answer was read to the end.
        match reader.read(&mut [0]).map_err(|error| failed(error.to_string()))? {
            0 => Ok(()),
            _ => Err(failed("longer than what was put".to_string())),
        }
    }
}

/// A job that clients run. A client whose request gets no answer may outlive its job.
struct RunningJob {
    job: ObjectJob,
    access: Arc<Access>,
    /// Number of objects.
    count: u64,
    since: Instant,
    limit: Duration,
    stop: Stop,
    next: AtomicU64,
    failure: Mutex<Option<BenchError>>,
}

/// What a client did: the latencies of its requests, and the object that it got last.
type Done = (Vec<f64>, Option<(u64, Vec<u8>)>);

impl RunningJob {
    fn client(&self) -> Done {
        let RunningJob { job, access, count, .. } = self;
        let mut data = vec![0; job.object_bytes()];
        let (mut latencies_us, mut got) = (Vec::new(), None);
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_done = job.is_put && number >= *count;
            if is_done || self.since.elapsed() >= self.limit || self.stop.is_set() {
                break;
            }
            if job.is_put {
                job.fill(number, &mut data);
            }
            let object = number % count;
            // To make the data takes a share of the time that its own latency must not have.
            let begun = Instant::now();
            let done = match job.is_put {
                true => access.put(object, &data),
                false => access.get(object, &mut data),
            };
            if let Err(error) = done {
                if let Ok(mut failure) = self.failure.lock() {
                    failure.get_or_insert(error);
                }
                self.next.store(u64::MAX / 2, Ordering::Relaxed);
                break;
            }
            latencies_us.push(begun.elapsed().as_secs_f64() * 1e6);
            got = (!job.is_put).then_some(object);
        }
        (latencies_us, got.map(|object| (object, data)))
    }
}

/// Runs a job: puts all objects of `bytes` once, or gets them in turns for `seconds`. No object is begun
/// after `seconds`.
pub(crate) fn run(
    job: &ObjectJob,
    access: &Arc<Access>,
    bytes: u64,
    seconds: u32,
    stop: &Stop,
) -> Result<Measured> {
    let cpu = || process::cpu_seconds(std::process::id(), false);
    let cpu_before = cpu();
    let since = Instant::now();
    let shared = Arc::new(RunningJob {
        job: job.clone(),
        access: access.clone(),
        count: job.count(bytes),
        since,
        limit: Duration::from_secs(u64::from(seconds)),
        stop: stop.clone(),
        next: AtomicU64::new(0),
        failure: Mutex::default(),
    });
    let (sender, receiver) = mpsc::channel();
    for _ in 0..job.clients {
        let (shared, sender) = (shared.clone(), sender.clone());
        // Nobody may wait any more.
        std::thread::spawn(move || drop(sender.send(shared.client())));
    }
    drop(sender);
    let ending = Ending::new(stop);
    let mut all: Vec<Done> = Vec::new();
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(done) => all.push(done),
            Err(RecvTimeoutError::Timeout) => ending.check().map_err(|_| {
                if job.is_put {
                    access.was_cut();
                }
                BenchError::Interrupted
            })?,
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    let (elapsed, cpu_seconds) = (since.elapsed().as_secs_f64(), cpu() - cpu_before);
    stop.check()?;
    if let Some(error) = shared.failure.lock().ok().and_then(|mut failure| failure.take()) {
        return Err(error);
    }
    let (latencies_us, got): (Vec<Vec<f64>>, Vec<_>) = all.into_iter().unzip();
    // One object of each client: to compare all would take the processors from the gateway.
    let mut expected = vec![0; job.object_bytes()];
    for (object, data) in got.into_iter().flatten() {
        job.fill(object, &mut expected);
        if data != expected {
            let problem = format!("{}: not what was put", access.key(object));
            return Err(BenchError::program("S3 gateway", problem));
        }
    }
    let mut latencies_us = latencies_us.concat();
    latencies_us.sort_by(f64::total_cmp);
    let at = |share: f64| latencies_us.get((latencies_us.len() as f64 * share) as usize).copied();
    let moved = latencies_us.len() as u64 * job.object_bytes() as u64;
    if moved == 0 {
        return Err(BenchError::program("S3 gateway", "no request was completed"));
    }
    let (read_bytes, written_bytes) = if job.is_put { (0, moved) } else { (moved, 0) };
    Ok(Measured {
        read_bytes,
        written_bytes,
        requests: latencies_us.len() as u64,
        seconds: elapsed,
        p50_us: at(0.5),
        p99_us: at(0.99),
        cpu_seconds,
    })
}

#[cfg(test)]
pub(crate) mod tests;
