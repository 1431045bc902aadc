//! Objects put to and got from an S3 gateway, by a number of clients at once.
//!
//! It signs with `rusty-s3` and speaks HTTP with `ureq`, which `pumice scan` reads buckets with: whole S3 libraries bring another
//! asynchronous runtime's worth of crates for two requests.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};

use crate::error::{BenchError, Result};
use crate::fio::Measured;
use crate::process::{self, Stop};
use crate::target::S3Address;

/// Validity of a signed URL.
const SIGNED: Duration = Duration::from_secs(600);
/// Longest time for a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest accepted description of an error, in bytes.
const ERROR_BYTES_MAX: u64 = 64 << 10;
/// Pieces in which data is made: a share of each is zeros.
const CHUNK_BYTES: usize = 4096;

/// Puts all objects, or gets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ObjectJob {
    pub(crate) is_put: bool,
    pub(crate) object_kib: u32,
    /// Requests in flight.
    pub(crate) clients: u32,
    /// Share of the data that is zeros, in percent.
    pub(crate) zeros_percent: u8,
}

impl ObjectJob {
    pub(crate) fn text(&self) -> String {
        let what = if self.is_put { "PUT" } else { "GET" };
        format!("{what}, objects of {} KiB, {} clients", self.object_kib, self.clients)
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
    /// The bucket was made for the run.
    is_made: bool,
}

impl Access {
    /// Looks whether the bucket is there, and makes it if it is not.
    pub(crate) fn open(address: &S3Address, prefix: String) -> Result<Access> {
        let wrong = |problem: String| BenchError::target(&address.bucket, problem);
        let credentials = Credentials::from_env()
            .ok_or_else(|| wrong("no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_string()))?;
        let endpoint =
            address.endpoint.parse().map_err(|error| wrong(format!("{}: {error}", address.endpoint)))?;
        let region = std::env::var("AWS_REGION").unwrap_or_else(|_| "us-east-1".to_string());
        let bucket = Bucket::new(endpoint, UrlStyle::Path, address.bucket.clone(), region);
        let bucket = bucket.map_err(|error| wrong(format!("{}: {error}", address.endpoint)))?;
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
        let class = address.class.clone();
        let mut access = Access {
            agent: config.into(),
            bucket,
            credentials,
            class,
            prefix,
            put_count: AtomicU64::new(0),
            is_made: false,
        };
        let url = access.bucket.head_bucket(Some(&access.credentials)).sign(SIGNED);
        match access.agent.head(url.as_str()).call() {
            Ok(answer) if answer.status().is_success() => Ok(access),
            Ok(answer) if answer.status().as_u16() == 404 => {
                let url = access.bucket.create_bucket(&access.credentials).sign(SIGNED);
                success(access.agent.put(url.as_str()).send_empty())?;
                access.is_made = true;
                Ok(access)
            }
            Ok(answer) => Err(wrong(format!("the gateway answers with HTTP status {}", answer.status()))),
            Err(error) => Err(wrong(format!("{}: {error}", address.endpoint))),
        }
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
        success(request.send(data)).map(drop)
    }

    fn get(&self, object: u64, data: &mut [u8]) -> Result<()> {
        let key = self.key(object);
        let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNED);
        let mut answer = success(self.agent.get(url.as_str()).call())?;
        let mut reader = answer.body_mut().as_reader();
        std::io::Read::read_exact(&mut reader, data)
            .map_err(|error| BenchError::program("S3 gateway", format!("{key}: {error}")))
    }

    /// Removes what was put, and a bucket that was made.
    pub(crate) fn remove_all(&self) {
        for object in 0..self.put_count.load(Ordering::Relaxed) {
            let key = self.key(object);
            let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNED);
            // One that is not there any more is no failure.
            if self.agent.delete(url.as_str()).call().is_err() {
                // The gateway is gone: each further request would wait.
                return;
            }
        }
        if self.is_made {
            let url = self.bucket.delete_bucket(&self.credentials).sign(SIGNED);
            // It stays if somebody else put something into it.
            let _ = self.agent.delete(url.as_str()).call();
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
    let client = || {
        let mut data = vec![0; job.object_bytes()];
        let mut latencies_us = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let is_done = job.is_put && number >= count;
            if is_done || since.elapsed() >= limit || stop.is_set() {
                return latencies_us;
            }
            let begun = Instant::now();
            let done = match job.is_put {
                true => {
                    job.fill(number, &mut data);
                    access.put(number, &data)
                }
                false => access.get(number % count, &mut data),
            };
            if let Err(error) = done {
                if let Ok(mut failure) = failure.lock() {
                    failure.get_or_insert(error);
                }
                next.store(u64::MAX / 2, Ordering::Relaxed);
                return latencies_us;
            }
            latencies_us.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    };
    let mut latencies_us: Vec<f64> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..job.clients).map(|_| scope.spawn(client)).collect();
        clients.into_iter().flat_map(|client| client.join().unwrap_or_default()).collect()
    });
    stop.check()?;
    if let Some(error) = failure.into_inner().ok().flatten() {
        return Err(error);
    }
    let elapsed = since.elapsed().as_secs_f64();
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
        cpu_seconds: cpu() - cpu_before,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_has_its_share_of_zeros() {
        let job = ObjectJob { is_put: true, object_kib: 64, clients: 1, zeros_percent: 25 };
        let (mut one, mut again) = (vec![0; 64 << 10], vec![0; 64 << 10]);
        job.fill(7, &mut one);
        job.fill(7, &mut again);
        assert_eq!(one, again);
        job.fill(8, &mut again);
        assert_ne!(one, again);
        let zeros = one.iter().filter(|byte| **byte == 0).count();
        // A quarter, and one in 256 of the rest.
        assert!((16_384..17_000).contains(&zeros), "{zeros}");
        assert_eq!((job.count(1 << 20), job.count(1)), (16, 1));
    }
}
