//! Objects of an S3 bucket at any endpoint, listed with ListObjectsV2 and read with ranged GETs. Nothing is
//! written.

mod listing;
mod sign;
mod strikes;

use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rusty_s3::{S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::{Response, Uri};
use ureq::tls::{RootCerts, TlsConfig};

use self::listing::Listing;
use self::sign::{Signer, with_query};
use self::strikes::Strikes;
use super::population::Population;
use super::{ReadAt, SourceError};

/// Validity that the library asks for. Its URLs are not signed.
const NOT_SIGNED: Duration = Duration::from_secs(1);
/// Default timeout of a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest number of attempts for a request that failed for a temporary reason.
const TRIES_MAX: u32 = 4;
/// Pause before the second attempt, doubled for each further one.
const PAUSE: Duration = Duration::from_millis(200);
/// Largest accepted page of a listing, in bytes.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// Largest accepted description of an error, in bytes.
const ERROR_BYTES_MAX: u64 = 64 << 10;
/// Default region. Endpoints other than Amazon's usually ignore it.
const REGION_DEFAULT: &str = "us-east-1";

/// Access to a bucket.
#[derive(Clone, Debug, Default)]
pub struct S3Options {
    /// URL of the endpoint; `None` for Amazon's in the region.
    pub endpoint: Option<String>,
    /// Region; `None` for `us-east-1`.
    pub region: Option<String>,
    /// Key, secret and optional session token; `None` for anonymous access.
    pub credentials: Option<(String, String, Option<String>)>,
    /// The bucket is in the host name instead of the path. Amazon's endpoints always use the host name.
    pub virtual_host: bool,
    /// Number of prefix levels shown separately in the breakdown, at least 1.
    pub depth: usize,
    /// All objects will be read: a bucket with more than can be listed is then refused, not sampled.
    pub whole: bool,
    /// Seed of the sample of objects that is kept of a bucket with very many.
    pub seed: u64,
    /// Timeout of a request; `None` for 60 seconds. A failed request is not repeated after it.
    pub patience: Option<Duration>,
}

/// A bucket and its connection parameters.
#[derive(Debug)]
pub struct Bucket {
    bucket: rusty_s3::Bucket,
    signer: Option<Signer>,
    agent: Agent,
    patience: Duration,
    strikes: Strikes,
}

impl S3Options {
    /// Returns whether requests and data go over a network without encryption, where others can read and
    /// change them.
    pub fn is_plain_text(&self) -> bool {
        let Some(endpoint) = self.endpoint.as_ref().and_then(|endpoint| endpoint.parse::<Uri>().ok()) else {
            return false;
        };
        let host = endpoint.host().unwrap_or_default();
        let local = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
        endpoint.scheme_str() == Some("http") && !local
    }
}

impl Bucket {
    /// Creates a bucket of this name. Sends no request.
    ///
    /// # Errors
    /// Fails if the endpoint is not a URL or the name is invalid.
    pub fn new(name: &str, options: &S3Options) -> Result<Bucket, SourceError> {
        let shown = format!("s3://{name}");
        let region = options.region.clone().unwrap_or_else(|| REGION_DEFAULT.to_string());
        let amazon = options.endpoint.is_none();
        let endpoint =
            options.endpoint.clone().unwrap_or_else(|| format!("https://s3.{region}.amazonaws.com"));
        let url = endpoint.parse().map_err(|error| {
            SourceError::new(
                &shown,
                format!("endpoint {endpoint:?}: {error}; write http://HOST:PORT or https://HOST"),
            )
        })?;
        let style = if amazon || options.virtual_host { UrlStyle::VirtualHost } else { UrlStyle::Path };
        let signer = options.credentials.clone().map(|keys| Signer::new(keys, region.clone()));
        let bucket = rusty_s3::Bucket::new(url, style, name.to_string(), region)
            .map_err(|error| SourceError::new(&shown, format!("endpoint {endpoint:?}: {error}")))?;
        let patience = options.patience.unwrap_or(PATIENCE);
        let config = Agent::config_builder()
            .timeout_global(Some(patience))
            .http_status_as_error(false)
            // What is signed is for this server alone.
            .max_redirects(0)
            // The authorities that the machine trusts, which may include those of the user's own network.
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .build();
        Ok(Bucket { bucket, signer, agent: config.into(), patience, strikes: Strikes::new(patience) })
    }

    /// Name of the bucket.
    pub fn name(&self) -> &str {
        self.bucket.name()
    }

    /// Sends a GET. Repeats it after temporary failures: a failed connection, a server error, or status 429.
    fn get(&self, url: &str, headers: &[(&str, String)]) -> io::Result<Response<ureq::Body>> {
        let url: Uri = with_query(url).parse().map_err(io::Error::other)?;
        let mut pause = PAUSE;
        let started = Instant::now();
        for tried in 1.. {
            let signed = self.signer.as_ref().map(|signer| signer.sign(&url, headers, SystemTime::now()));
            let mut request = self.agent.get(&url);
            for (name, value) in headers.iter().chain(signed.iter().flatten()) {
                request = request.header(*name, value);
            }
            let error = match request.call() {
                Ok(answer) if answer.status().is_success() => return Ok(answer),
                Ok(mut answer) => {
                    let status = answer.status();
                    let body = answer.body_mut().with_config().limit(ERROR_BYTES_MAX).read_to_string();
                    let error = Refused::new(status.as_u16(), &body.unwrap_or_default()).into();
                    if !(status.is_server_error() || status.as_u16() == 429) {
                        return Err(error);
                    }
                    error
                }
                Err(error) => io::Error::other(error),
            };
            if tried >= TRIES_MAX || started.elapsed() >= self.patience {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        Err(io::Error::other("not tried"))
    }
}

/// A request that the server answered with an error.
#[derive(Debug, thiserror::Error)]
#[error("HTTP status {status}{said}")]
struct Refused {
    status: u16,
    /// Code and message of S3's error document, if there is one.
    said: String,
}

impl Refused {
    fn new(status: u16, body: &str) -> Refused {
        let tag = |name: &str| {
            let (_, rest) = body.split_once(&format!("<{name}>"))?;
            rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_string())
        };
        let said = match (tag("Code"), tag("Message")) {
            // Only requests for objects have a condition: the entity tag of the listing.
            _ if status == 412 => ": changed since it was listed".to_string(),
            (Some(code), Some(message)) => format!(": {code}, {message}"),
            (Some(code), None) => format!(": {code}"),
            _ => String::new(),
        };
        Refused { status, said }
    }

    /// Returns the HTTP status if the server answered with an error.
    fn status_of(error: &io::Error) -> Option<u16> {
        error.get_ref()?.downcast_ref::<Refused>().map(|refused| refused.status)
    }
}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        let kind = match refused.status {
            401 | 403 => io::ErrorKind::PermissionDenied,
            404 => io::ErrorKind::NotFound,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, refused)
    }
}

impl Population {
    /// Adds the objects of `s3://BUCKET[/PREFIX]`. Calls `progress` with the number of items found so far.
    ///
    /// # Errors
    /// Fails if the bucket cannot be listed.
    pub fn add_s3(
        &mut self,
        uri: &str,
        options: &S3Options,
        progress: &dyn Fn(u64),
    ) -> Result<(), SourceError> {
        let rest = uri.strip_prefix("s3://").unwrap_or(uri);
        let (name, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(SourceError::new(uri, "no bucket; write s3://BUCKET/PREFIX"));
        }
        let bucket = Arc::new(Bucket::new(name, options)?);
        let mut listing = Listing::new(prefix, options, self);
        let failed = |error: io::Error| SourceError::new(uri, error);
        while !listing.has_ended() {
            let page = list(&bucket, prefix, listing.token()).map_err(failed)?;
            listing.take_page(&page).map_err(failed)?;
            progress(self.items.len() as u64 + listing.objects_count());
        }
        listing.add_to(self, bucket);
        Ok(())
    }
}

/// Fuzz target: answers of an S3 server, one after another, separated by bytes of 0: pages of a listing, each
/// also as an error document.
#[cfg(feature = "testing")]
pub(crate) fn fuzz_answers(bytes: &[u8]) {
    let options = S3Options { endpoint: Some("http://127.0.0.1:1".into()), depth: 2, ..S3Options::default() };
    let Ok(bucket) = Bucket::new("bucket", &options) else { return };
    let mut all = Population::new();
    let mut listing = Listing::new("logs/2026", &options, &all);
    for answer in bytes.split(|byte| *byte == 0) {
        let text = String::from_utf8_lossy(answer);
        let error = Refused::new(403, &text).to_string();
        assert!(error.starts_with("HTTP status 403"), "{error}");
        if listing.take_page(&text).is_err() || listing.has_ended() {
            break;
        }
    }
    listing.add_to(&mut all, Arc::new(bucket));
    assert!(all.items.len() <= bytes.len());
    let blocks: u64 = all.items.iter().map(|item| item.bytes.div_ceil(layout::BLOCK_BYTES as u64)).sum();
    assert_eq!(blocks, all.blocks());
    for item in &all.items {
        assert!(item.bytes > 0, "empty objects are skipped");
        assert!(all.groups[item.group as usize].starts_with("s3://bucket/"), "{:?}", all.groups);
    }
}

fn list(bucket: &Bucket, prefix: &str, token: Option<&str>) -> io::Result<String> {
    let mut action = bucket.bucket.list_objects_v2(None);
    if !prefix.is_empty() {
        action.with_prefix(prefix.to_string());
    }
    if let Some(token) = token {
        action.with_continuation_token(token.to_string());
    }
    let mut answer = bucket.get(action.sign(NOT_SIGNED).as_str(), &[])?;
    answer.body_mut().with_config().limit(PAGE_BYTES_MAX).read_to_string().map_err(io::Error::other)
}

/// Returns an entity tag without its quotes, and without the mark of a proxy that compressed the answer.
fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

/// Returns the first byte of a `content-range`, such as `bytes 0-4095/65536`.
fn start_of(range: &str) -> Option<u64> {
    range.trim().strip_prefix("bytes ")?.split_once('-')?.0.trim().parse().ok()
}

/// Reader of an object.
pub(crate) struct Object {
    bucket: Arc<Bucket>,
    key: Box<str>,
    tag: Box<str>,
    /// Listed length, in bytes.
    bytes: u64,
}

impl Object {
    pub(crate) fn new(bucket: Arc<Bucket>, key: &str, tag: &str, bytes: u64) -> Object {
        Object { bucket, key: key.into(), tag: tag.into(), bytes }
    }

    /// Requests a range, and returns the length of what there is of it.
    fn read_range(&self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let url = self.bucket.bucket.get_object(None, &self.key).sign(NOT_SIGNED);
        let range = format!("bytes={offset}-{}", offset + buf.len() as u64 - 1);
        let mut headers = vec![("range", range)];
        if !self.tag.is_empty() {
            // An object that was replaced after listing is refused with status 412, so its data is not mixed
            // with the listed object.
            headers.push(("if-match", format!("\"{}\"", bare(&self.tag))));
        }
        let mut answer = self.bucket.get(url.as_str(), &headers)?;
        let text_of = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok());
        if answer.status().as_u16() == 206 {
            let given = text_of("content-range").and_then(start_of);
            if given != Some(offset) {
                return Err(io::Error::other("the server answers with another range"));
            }
        } else if offset > 0 {
            return Err(io::Error::other("the server does not answer range requests"));
        }
        // A server that ignores `if-match`.
        if !self.tag.is_empty() && text_of("etag").is_some_and(|tag| bare(tag) != bare(&self.tag)) {
            return Err(Refused::new(412, "").into());
        }
        let mut reader = answer.body_mut().as_reader();
        let mut done = 0;
        while done < buf.len() {
            match reader.read(&mut buf[done..])? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }
}

impl ReadAt for Object {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let strikes = &self.bucket.strikes;
        strikes.check(&self.key)?;
        let started = Instant::now();
        let read = self.read_range(offset, buf);
        let listed = self.bytes.saturating_sub(offset).min(buf.len() as u64);
        strikes.record(&self.key, started, listed, &read);
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_in_plain_text_are_known() {
        for (endpoint, plain) in [
            (None, false),
            (Some("https://s3.example.com"), false),
            (Some("http://s3.example.com:9000"), true),
            (Some("HTTP://s3.example.com"), true),
            (Some("http://192.0.2.1"), true),
            (Some("http://localhost:9000"), false),
            (Some("http://127.0.0.1:9000"), false),
            (Some("http://[::1]:9000"), false),
            (Some("http://localhost.example.com"), true),
        ] {
            let options = S3Options { endpoint: endpoint.map(str::to_string), ..S3Options::default() };
            assert_eq!(options.is_plain_text(), plain, "{endpoint:?}");
        }
    }

    #[test]
    fn a_refusal_says_what_s3_says() {
        let body = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>";
        assert_eq!(Refused::new(404, body).to_string(), "HTTP status 404: NoSuchBucket, gone");
        assert_eq!(Refused::new(500, "").to_string(), "HTTP status 500");
        assert_eq!(Refused::status_of(&Refused::new(412, body).into()), Some(412));
        assert_eq!(Refused::status_of(&io::Error::other("HTTP status 412")), None);
    }
}
