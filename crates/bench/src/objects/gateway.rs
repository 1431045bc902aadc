//! A gateway of S3, and requests to one bucket behind it.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};

use crate::error::{BenchError, Result};
use crate::process::Stop;
use crate::target::S3Address;

/// Validity of a signed URL.
pub(super) const SIGNED: Duration = Duration::from_secs(600);
/// Longest time for a request.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest time for the question whether a bucket is there, at the start of a run. Later the gateway may be
/// busy.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// Time between looks at a request to stop.
pub(super) const POLL: Duration = Duration::from_millis(20);
/// Largest accepted description of an error, in bytes.
const ERROR_BYTES_MAX: u64 = 64 << 10;
/// Largest accepted list of keys, in bytes: a page has up to a thousand.
const LIST_BYTES_MAX: u64 = 8 << 20;

/// What a gateway answers, whether it is a success or not.
pub(super) type Answer = Result<Response<ureq::Body>, ureq::Error>;

/// A bucket behind a gateway.
#[derive(Clone)]
pub(super) struct Gateway {
    pub(super) agent: Agent,
    pub(super) bucket: Bucket,
    pub(super) credentials: Credentials,
}

pub(super) fn agent() -> Agent {
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

impl Gateway {
    pub(super) fn at(address: &S3Address) -> Result<Gateway> {
        let wrong = |problem: String| BenchError::target(&address.bucket, problem);
        let credentials = Credentials::from_env()
            .ok_or_else(|| wrong("no keys: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY".to_string()))?;
        let endpoint =
            address.endpoint.parse().map_err(|error| wrong(format!("{}: {error}", address.endpoint)))?;
        let region = std::env::var("AWS_REGION").unwrap_or_else(|_| "us-east-1".to_string());
        let bucket = Bucket::new(endpoint, UrlStyle::Path, address.bucket.clone(), region);
        let bucket = bucket.map_err(|error| wrong(format!("{}: {error}", address.endpoint)))?;
        Ok(Gateway { agent: agent(), bucket, credentials })
    }

    /// Name of the bucket.
    pub(super) fn name(&self) -> &str {
        self.bucket.name()
    }

    /// Whether the bucket is there. Fails if the gateway cannot be asked, or does not answer in this time.
    pub(super) fn has_bucket(&self, within: Duration, stop: &Stop) -> Result<bool> {
        let wrong = |problem: String| BenchError::target(self.name(), problem);
        let url = self.bucket.head_bucket(Some(&self.credentials)).sign(SIGNED);
        let agent = self.agent.clone();
        let ask = move || {
            let request = agent.head(url.as_str()).config().timeout_global(Some(within)).build();
            request.call().map(|answer| answer.status())
        };
        match until_stopped(stop, ask)? {
            Ok(status) if status.is_success() => Ok(true),
            Ok(status) if status.as_u16() == 404 => Ok(false),
            Ok(status) => Err(wrong(format!("the gateway answers with HTTP status {status}"))),
            Err(error) => {
                let why = match error {
                    ureq::Error::Timeout(_) => {
                        format!("the gateway does not answer within {} seconds", within.as_secs())
                    }
                    error => error.to_string(),
                };
                let url = self.bucket.base_url().to_string();
                Err(wrong(format!("{}: {why}", url.trim_end_matches('/'))))
            }
        }
    }

    pub(super) fn make_bucket(&self) -> Answer {
        self.agent.put(self.bucket.create_bucket(&self.credentials).sign(SIGNED).as_str()).send_empty()
    }

    pub(super) fn remove_bucket(&self) -> Answer {
        self.agent.delete(self.bucket.delete_bucket(&self.credentials).sign(SIGNED).as_str()).call()
    }

    pub(super) fn remove(&self, key: &str) -> Answer {
        let action = self.bucket.delete_object(Some(&self.credentials), key);
        self.agent.delete(action.sign(SIGNED).as_str()).call()
    }

    /// Returns up to `count` keys that begin with `prefix`; `None` if there is no such bucket.
    pub(super) fn keys(&self, prefix: &str, count: usize) -> Result<Option<Vec<String>>> {
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
}

/// Waits for an answer to a request that changes nothing, until a stop.
pub(super) fn until_stopped<T: Send + 'static>(
    stop: &Stop,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    answered(ask, || stop.check())
}

/// Waits for an answer while `goes_on` agrees. The request has a thread of its own, which goes on after that
/// until the request ends or the program does.
pub(super) fn answered<T: Send + 'static>(
    ask: impl FnOnce() -> T + Send + 'static,
    goes_on: impl Fn() -> Result<()>,
) -> Result<T> {
    let (sender, receiver) = mpsc::channel();
    // Nobody may wait any more.
    std::thread::spawn(move || drop(sender.send(ask())));
    loop {
        match receiver.recv_timeout(POLL) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => goes_on()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(BenchError::program("S3 gateway", "a request ended without an answer"));
            }
        }
    }
}

/// Returns an answer that is a success.
pub(super) fn success(answer: Answer) -> Result<Response<ureq::Body>> {
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
