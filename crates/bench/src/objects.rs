//! Objects put to and got from an S3 gateway, by a number of clients at once.
//!
//! It signs with `rusty-s3` and speaks HTTP with `ureq`, which `pumice scan` reads buckets with: whole S3
//! libraries bring another asynchronous runtime's worth of crates for two requests.

mod client;

use std::io::Read;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};

use crate::error::{BenchError, Result};
use crate::fio::Measured;
use crate::process::{self, Stop};
use crate::target::S3Address;
use crate::warp::Warp;
pub use client::S3Client;
pub(crate) use client::{OWN, choose};

/// Validity of a signed URL.
const SIGNED: Duration = Duration::from_secs(600);
/// Longest time for a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time in which a gateway ends what it has received completely of a client that is gone.
const LATE: Duration = Duration::from_secs(2);
/// Time between looks at a request to stop.
const POLL: Duration = Duration::from_millis(20);
/// Largest accepted description of an error, in bytes.
const ERROR_BYTES_MAX: u64 = 64 << 10;
/// Pieces in which data is made: a share of each is zeros.
const CHUNK_BYTES: usize = 4096;
/// Largest accepted list of keys, in bytes: a page has up to a thousand.
const LIST_BYTES_MAX: u64 = 8 << 20;
/// Most pages of keys that are removed: a million objects.
const PAGES_MAX: usize = 1000;
/// Objects that are removed at once.
const REMOVERS: usize = 8;

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
    agent: Agent,
    bucket: Bucket,
    credentials: Credentials,
    class: Option<String>,
    prefix: String,
    /// Objects that were put: the highest number and one.
    put_count: AtomicU64,
    /// Others may have put under the prefix for the run.
    is_put_to: AtomicBool,
    /// The gateway may be at work still on what was put, for a client that is gone.
    is_cut: AtomicBool,
    /// The bucket was made for the run.
    is_made: AtomicBool,
}

fn agent() -> Agent {
    /// More clients than any job has.
    const CONNECTIONS: usize = 64;
    let config = Agent::config_builder()
        .timeout_global(Some(PATIENCE))
        .http_status_as_error(false)
        .max_redirects(0)
        .max_idle_connections(CONNECTIONS)
        .max_idle_connections_per_host(CONNECTIONS)
        .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
        .build();
    config.into()
}

impl Access {
    /// Access to a bucket that may not be there.
    pub(crate) fn to(address: &S3Address, prefix: String) -> Result<Access> {
        let wrong = |problem: String| BenchError::target(&address.bucket, problem);
        let credentials = Credentials::from_env()
            .ok_or_else(|| wrong("no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_string()))?;
        let endpoint =
            address.endpoint.parse().map_err(|error| wrong(format!("{}: {error}", address.endpoint)))?;
        let region = std::env::var("AWS_REGION").unwrap_or_else(|_| "us-east-1".to_string());
        let bucket = Bucket::new(endpoint, UrlStyle::Path, address.bucket.clone(), region);
        let bucket = bucket.map_err(|error| wrong(format!("{}: {error}", address.endpoint)))?;
        let class = address.class.clone();
        Ok(Access {
            agent: agent(),
            bucket,
            credentials,
            class,
            prefix,
            put_count: AtomicU64::new(0),
            is_put_to: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_made: AtomicBool::new(false),
        })
    }

    /// Looks whether the bucket is there, and makes it if it is not.
    pub(crate) fn open(address: &S3Address, prefix: String, stop: &Stop) -> Result<Access> {
        let wrong = |problem: String| BenchError::target(&address.bucket, problem);
        let access = Access::to(address, prefix)?;
        let url = access.bucket.head_bucket(Some(&access.credentials)).sign(SIGNED);
        let agent = access.agent.clone();
        let ask = move || agent.head(url.as_str()).call().map(|answer| answer.status());
        match until_stopped(stop, ask)? {
            Ok(status) if status.is_success() => Ok(access),
            Ok(status) if status.as_u16() == 404 => {
                let url = access.bucket.create_bucket(&access.credentials).sign(SIGNED);
                success(access.agent.put(url.as_str()).send_empty())?;
                access.is_made.store(true, Ordering::Relaxed);
                Ok(access)
            }
            Ok(status) => Err(wrong(format!("the gateway answers with HTTP status {status}"))),
            Err(error) => Err(wrong(format!("{}: {error}", address.endpoint))),
        }
    }

    pub(crate) fn bucket_name(&self) -> &str {
        self.bucket.name()
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
    }

    /// What tells warp where the gateway is, and its keys.
    pub(crate) fn warp_environment(&self) -> Vec<(&'static str, String)> {
        let url = self.bucket.base_url();
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or(host.to_string(), |port| format!("{host}:{port}"));
        vec![
            ("WARP_HOST", host),
            ("WARP_TLS", (url.scheme() == "https").to_string()),
            ("WARP_KTLS", "false".to_string()),
            ("WARP_REGION", self.bucket.region().to_string()),
            ("WARP_ACCESS_KEY", self.credentials.key().to_string()),
            ("WARP_SECRET_KEY", self.credentials.secret().to_string()),
            ("WARP_SESSION_TOKEN", self.credentials.token().unwrap_or_default().to_string()),
        ]
    }

    /// Returns up to `count` keys that begin with `prefix`; `None` if there is no such bucket.
    fn keys(&self, prefix: &str, count: usize) -> Result<Option<Vec<String>>> {
        let failed = |problem: String| BenchError::program("S3 gateway", problem);
        let mut action = self.bucket.list_objects_v2(Some(&self.credentials));
        action.with_max_keys(count);
        if !prefix.is_empty() {
            action.with_prefix(prefix.to_string());
        }
        let answer = self.agent.get(action.sign(SIGNED).as_str()).call();
        if answer.as_ref().is_ok_and(|answer| answer.status().as_u16() == 404) {
            return Ok(None);
        }
        let mut answer = success(answer)?;
        let body = answer.body_mut().with_config().limit(LIST_BYTES_MAX).read_to_string();
        let body = body.map_err(|error| failed(error.to_string()))?;
        let listed = ListObjectsV2::parse_response(&body).map_err(|error| failed(error.to_string()))?;
        Ok(Some(listed.contents.into_iter().map(|it| it.key).filter(|key| key.starts_with(prefix)).collect()))
    }

    /// Returns the first key of the bucket; `None` if it is empty or not there.
    pub(crate) fn first_key(&self, stop: &Stop) -> Result<Option<String>> {
        let same = Access {
            agent: self.agent.clone(),
            bucket: self.bucket.clone(),
            credentials: self.credentials.clone(),
            class: None,
            prefix: String::new(),
            put_count: AtomicU64::new(0),
            is_put_to: AtomicBool::new(false),
            is_cut: AtomicBool::new(false),
            is_made: AtomicBool::new(false),
        };
        let keys = until_stopped(stop, move || same.keys("", 1))??;
        Ok(keys.and_then(|keys| keys.into_iter().next()))
    }

    /// Removes all objects under the prefix, and nothing else. Returns what stays, if anything does.
    fn remove_prefix(&self) -> Option<String> {
        /// Most keys of a page, by S3.
        const PAGE_KEYS: usize = 1000;
        let stays = |why: String| {
            Some(format!("objects may stay under {}/{}: {why}", self.bucket.name(), self.prefix))
        };
        let mut last = Vec::new();
        for _ in 0..PAGES_MAX {
            let keys = match self.keys(&self.prefix, PAGE_KEYS) {
                Ok(keys) => keys.unwrap_or_default(),
                Err(error) => return stays(error.to_string()),
            };
            if keys.is_empty() {
                return None;
            }
            if keys == last {
                return stays("the gateway still lists what was removed".to_string());
            }
            let (next, failure) = (AtomicUsize::new(0), Mutex::new(None));
            let remover = || {
                while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let url = self.bucket.delete_object(Some(&self.credentials), key).sign(SIGNED);
                    if let Err(error) = success(self.agent.delete(url.as_str()).call()) {
                        failure.lock().ok()?.get_or_insert(error);
                        break;
                    }
                }
                Some(())
            };
            std::thread::scope(|scope| (0..REMOVERS).for_each(|_| drop(scope.spawn(remover))));
            if let Some(error) = failure.into_inner().ok().flatten() {
                return stays(error.to_string());
            }
            last = keys;
        }
        stays("there were too many".to_string())
    }

    fn key(&self, object: u64) -> String {
        format!("{}{object}", self.prefix)
    }

    fn put(&self, object: u64, data: &[u8]) -> Result<()> {
        let key = self.key(object);
        let mut action = self.bucket.put_object(Some(&self.credentials), &key);
        if let Some(class) = &self.class {
            // Signed, as gateways ask of all headers of this name.
            action.headers_mut().insert("x-amz-storage-class", class.clone());
        }
        let mut request = self.agent.put(action.sign(SIGNED).as_str());
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
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED);
        let mut answer = success(self.agent.get(url.as_str()).call())?;
        let mut reader = answer.body_mut().as_reader();
        let failed = |problem: String| BenchError::program("S3 gateway", format!("{key}: {problem}"));
        reader.read_exact(data).map_err(|error| failed(error.to_string()))?;
        // The connection is used again only if its answer was read to the end.
        match reader.read(&mut [0]).map_err(|error| failed(error.to_string()))? {
            0 => Ok(()),
            _ => Err(failed("longer than what was put".to_string())),
        }
    }

    /// Removes what was put, and a bucket that was made. Returns what stays, if anything does. Once done, there is nothing
    /// to do any more.
    pub(crate) fn remove_all(&self) -> Option<String> {
        if self.is_cut.swap(false, Ordering::Relaxed) {
            // An object that the gateway completes after it was removed would stay.
            std::thread::sleep(LATE);
        }
        let (mut stays_count, mut first) = (0, None);
        let put_count = self.put_count.swap(0, Ordering::Relaxed);
        for object in 0..put_count {
            let key = self.key(object);
            let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED);
            let answer = self.agent.delete(url.as_str()).call();
            // The gateway is gone: each further request would wait.
            let is_gone = answer.is_err();
            // One that is not there any more is no failure.
            if answer.as_ref().is_ok_and(|answer| answer.status().as_u16() == 404) {
                continue;
            }
            if let Err(error) = success(answer) {
                first.get_or_insert(error);
                stays_count += if is_gone { put_count - object } else { 1 };
            }
            if is_gone {
                break;
            }
        }
        let name = self.bucket.name();
        if let Some(error) = first {
            return Some(format!("{stays_count} objects may stay under {name}/{}: {error}", self.prefix));
        }
        if self.is_put_to.swap(false, Ordering::Relaxed) {
            let stays = self.remove_prefix();
            if stays.is_some() {
                return stays;
            }
        }
        if self.is_made.swap(false, Ordering::Relaxed) {
            let url = self.bucket.delete_bucket(&self.credentials).sign(SIGNED);
            let error = success(self.agent.delete(url.as_str()).call()).err()?;
            return Some(format!("the bucket {name}, made for the run, stays: {error}"));
        }
        None
    }
}

/// Waits for an answer to a request that changes nothing, in a thread of its own, which goes on after a stop
/// until the request ends or the program does.
fn until_stopped<T: Send + 'static>(stop: &Stop, ask: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    // Nobody waits any more after a stop.
    std::thread::spawn(move || drop(sender.send(ask())));
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => stop.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(BenchError::program("S3 gateway", "a request ended without an answer"));
            }
        }
    }
}

/// Returns an answer that is a success.
fn success(answer: Result<Response<ureq::Body>, ureq::Error>) -> Result<Response<ureq::Body>> {
    let failed = |problem: String| BenchError::program("S3 gateway", problem);
    let mut answer = answer.map_err(|error| failed(error.to_string()))?;
    if answer.status().is_success() {
        return Ok(answer);
    }
    let body = answer.body_mut().with_config().limit(ERROR_BYTES_MAX).read_to_string().unwrap_or_default();
    let code =
        body.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>")).map(|(code, _)| code);
    Err(failed(format!("HTTP status {}: {}", answer.status(), code.unwrap_or("no reason given"))))
}

/// Runs a job: puts all objects of `bytes` once, or gets them in turns for `seconds`. No object is begun after `seconds`.
pub(crate) fn run(
    job: &ObjectJob,
    access: &Access,
    bytes: u64,
    seconds: u32,
    stop: &Stop,
) -> Result<Measured> {
    let count = job.count(bytes);
    let limit = Duration::from_secs(u64::from(seconds));
    let (next, failure) = (AtomicU64::new(0), Mutex::new(None));
    let cpu = || process::cpu_seconds(std::process::id(), false);
    let cpu_before = cpu();
    let since = Instant::now();
    // What each client did, and what it got last.
    let client = || {
        let mut data = vec![0; job.object_bytes()];
        let (mut latencies_us, mut got) = (Vec::new(), None);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_done = job.is_put && number >= count;
            if is_done || since.elapsed() >= limit || stop.is_set() {
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
                if let Ok(mut failure) = failure.lock() {
                    failure.get_or_insert(error);
                }
                next.store(u64::MAX / 2, Ordering::Relaxed);
                break;
            }
            latencies_us.push(begun.elapsed().as_secs_f64() * 1e6);
            got = (!job.is_put).then_some(object);
        }
        (latencies_us, got.map(|object| (object, data)))
    };
    let (latencies_us, got): (Vec<Vec<f64>>, Vec<_>) = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..job.clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().filter_map(|client| client.join().ok()).unzip()
    });
    let (elapsed, cpu_seconds) = (since.elapsed().as_secs_f64(), cpu() - cpu_before);
    stop.check()?;
    if let Some(error) = failure.into_inner().ok().flatten() {
        return Err(error);
    }
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
