//! Objects of an S3 bucket at any endpoint, listed with ListObjectsV2 and read with ranged GETs. Nothing is written.

mod sign;

use std::collections::HashMap;
use std::io::{self, Read};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{S3Action, UrlStyle};
use ureq::Agent;
use ureq::http::{Response, Uri};
use ureq::tls::{RootCerts, TlsConfig};

use self::sign::{Signer, with_query};
use super::file::Stamp;
use super::population::{Item, Place, Population};
use super::{ReadAt, SourceError};

/// Validity that the library asks for. Its URLs are not signed.
const NOT_SIGNED: Duration = Duration::from_secs(1);
/// Timeout of a request.
const PATIENCE: Duration = Duration::from_secs(60);
/// Largest number of attempts for a request that failed for a temporary reason.
const TRIES_MAX: u32 = 4;
/// Pause before the second attempt, doubled for each further one.
const PAUSE: Duration = Duration::from_millis(200);
/// Largest accepted page of a listing, in bytes.
const PAGE_BYTES_MAX: u64 = 16 << 20;
/// Most memory for the list of objects, in bytes, so that a listing without an end does not take all there is.
const LIST_BYTES_MAX: usize = 2 << 30;
/// Memory for an object in the list beside its name and tag, in bytes.
const OBJECT_BYTES: usize = 128;
/// Most pages without an object, one after another.
const EMPTY_PAGES_MAX: u32 = 1000;
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
    /// Whether the bucket is in the host name instead of the path. Amazon's endpoints always use the host name.
    pub virtual_host: bool,
    /// Number of prefix levels shown separately in the breakdown, at least 1.
    pub depth: usize,
}

/// A bucket and its connection parameters.
#[derive(Debug)]
pub struct Bucket {
    bucket: rusty_s3::Bucket,
    signer: Option<Signer>,
    agent: Agent,
}

impl S3Options {
    /// Whether credentials would sign requests that anybody on the way can read and, for a while, repeat.
    pub fn exposes_requests(&self) -> bool {
        let host = |endpoint: &str| endpoint.parse::<Uri>().ok()?.host().map(str::to_owned);
        let plain = self.endpoint.as_deref().filter(|endpoint| endpoint.starts_with("http://"));
        let local = |host: String| {
            let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
            host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
        };
        self.credentials.is_some() && plain.is_some_and(|endpoint| !host(endpoint).is_some_and(local))
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
        let config = Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .http_status_as_error(false)
            // What is signed is for this server alone.
            .max_redirects(0)
            // The authorities that the machine trusts, which may include those of the user's own network.
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build())
            .build();
        Ok(Bucket { bucket, signer, agent: config.into() })
    }

    /// Name of the bucket.
    pub fn name(&self) -> &str {
        self.bucket.name()
    }

    /// Sends a GET. Repeats it after temporary failures: a failed connection, a server error, or status 429.
    fn get(&self, url: &str, headers: &[(&str, String)]) -> io::Result<Response<ureq::Body>> {
        let url: Uri = with_query(url).parse().map_err(io::Error::other)?;
        let mut pause = PAUSE;
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
                    let error =
                        refusal(status.as_u16(), &answer.body_mut().read_to_string().unwrap_or_default());
                    if !(status.is_server_error() || status.as_u16() == 429) {
                        return Err(error);
                    }
                    error
                }
                Err(error) => io::Error::other(error),
            };
            if tried >= TRIES_MAX {
                return Err(error);
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
        Err(io::Error::other("not tried"))
    }
}

/// Builds an error from a response: status, and code and message of S3's error document if present.
fn refusal(status: u16, body: &str) -> io::Error {
    let tag = |name: &str| {
        let (_, rest) = body.split_once(&format!("<{name}>"))?;
        rest.split_once(&format!("</{name}>")).map(|(text, _)| text.to_string())
    };
    let said = match (tag("Code"), tag("Message")) {
        (Some(code), Some(message)) => format!(": {code}, {message}"),
        (Some(code), None) => format!(": {code}"),
        _ => String::new(),
    };
    let kind = match status {
        401 | 403 => io::ErrorKind::PermissionDenied,
        404 => io::ErrorKind::NotFound,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, format!("HTTP status {status}{said}"))
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
        let mut listing = Listing::new(name, prefix, options.depth, self.buckets.len() as u32);
        self.buckets.push(bucket.clone());
        let failed = |error: io::Error| SourceError::new(uri, error);
        loop {
            let page = list(&bucket, prefix, listing.token.as_deref()).map_err(failed)?;
            let goes_on = self.take_page(&mut listing, &page).map_err(failed)?;
            progress(self.items.len() as u64);
            if !goes_on {
                return Ok(());
            }
        }
    }

    /// Adds the objects of a page. Returns whether another page follows.
    fn take_page(&mut self, listing: &mut Listing, text: &str) -> io::Result<bool> {
        let page = ListObjectsV2::parse_response(text)
            .map_err(|error| io::Error::other(format!("the listing is not one of S3: {error}")))?;
        listing.page(page.contents.len()).map_err(io::Error::other)?;
        for object in page.contents {
            let text_bytes = object.key.len() + object.etag.as_ref().map_or(0, String::len);
            listing.object(text_bytes).map_err(io::Error::other)?;
            let Some(bytes) = object.size.filter(|bytes| *bytes > 0) else {
                self.skipped.empty_files_count += 1;
                continue;
            };
            self.check_size(bytes).map_err(io::Error::other)?;
            let top = top_of(&object.key, &listing.prefix, listing.depth);
            let group = match listing.groups.get(top) {
                Some(group) => *group,
                None => {
                    let group = self.group(format!("s3://{}/{top}", listing.bucket));
                    listing.groups.insert(top.to_string(), group);
                    group
                }
            };
            let place =
                Place::Object(listing.number, object.key.into(), object.etag.unwrap_or_default().into());
            let item = Item { place, bytes, group, alone: false, stamp: Stamp::default() };
            self.push(item, &[(0, bytes.div_ceil(layout::BLOCK_BYTES as u64))]);
        }
        let next = page.next_continuation_token;
        let goes_on = next.is_some() && next != listing.token;
        listing.token = next;
        Ok(goes_on)
    }
}

/// Fuzz target: answers of an S3 server, one after another, separated by bytes of 0: pages of a listing, each also as an
/// error document.
#[cfg(feature = "testing")]
pub(crate) fn fuzz_answers(bytes: &[u8]) {
    let mut all = Population::new();
    let mut listing = Listing::new("bucket", "logs/2026", 2, 0);
    for answer in bytes.split(|byte| *byte == 0) {
        let text = String::from_utf8_lossy(answer);
        let error = refusal(403, &text).to_string();
        assert!(error.starts_with("HTTP status 403"), "{error}");
        if !matches!(all.take_page(&mut listing, &text), Ok(true)) {
            break;
        }
    }
    assert!(all.items.len() <= bytes.len() && listing.bytes <= LIST_BYTES_MAX);
    let blocks: u64 = all.items.iter().map(|item| item.bytes.div_ceil(layout::BLOCK_BYTES as u64)).sum();
    assert_eq!(blocks, all.blocks());
    for item in &all.items {
        assert!(item.bytes > 0, "empty objects are skipped");
        assert!(all.groups[item.group as usize].starts_with("s3://bucket/"), "{:?}", all.groups);
    }
}

/// How far a listing has come. A server could let it go on for ever.
#[derive(Default)]
struct Listing {
    /// Name and number of the bucket.
    bucket: String,
    number: u32,
    prefix: String,
    /// See [`S3Options::depth`].
    depth: usize,
    /// Numbers of the groups by what keys begin with.
    groups: HashMap<String, u32>,
    /// Names the next page.
    token: Option<String>,
    /// Memory for the objects so far.
    bytes: usize,
    empty_pages: u32,
}

impl Listing {
    fn new(bucket: &str, prefix: &str, depth: usize, number: u32) -> Listing {
        let (bucket, prefix) = (bucket.to_string(), prefix.to_string());
        Listing { bucket, number, prefix, depth: depth.max(1), ..Listing::default() }
    }

    fn page(&mut self, objects: usize) -> Result<(), &'static str> {
        self.empty_pages = if objects == 0 { self.empty_pages + 1 } else { 0 };
        match self.empty_pages > EMPTY_PAGES_MAX {
            true => Err("the listing goes on without objects"),
            false => Ok(()),
        }
    }

    fn object(&mut self, text_bytes: usize) -> Result<(), &'static str> {
        self.bytes += OBJECT_BYTES + text_bytes;
        match self.bytes > LIST_BYTES_MAX {
            true => Err("too many objects: the list would take more than 2 GiB; scan a prefix"),
            false => Ok(()),
        }
    }
}

/// Returns the first `depth` levels of a key below the prefix, as a directory.
fn top_of<'a>(key: &'a str, prefix: &str, depth: usize) -> &'a str {
    let from = prefix.rfind('/').map_or(0, |at| at + 1);
    // A hostile endpoint lists keys that do not begin with the prefix.
    let Some(below) = key.get(from..) else { return key };
    let ends = below.match_indices('/').map(|(at, _)| from + at + 1);
    &key[..ends.take(depth).last().unwrap_or(from)]
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

/// Reader of an object.
pub(crate) struct Object {
    bucket: Arc<Bucket>,
    key: Box<str>,
    tag: Box<str>,
}

impl Object {
    pub(crate) fn new(bucket: Arc<Bucket>, key: &str, tag: &str) -> Object {
        Object { bucket, key: key.into(), tag: tag.into() }
    }
}

impl ReadAt for Object {
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let url = self.bucket.bucket.get_object(None, &self.key).sign(NOT_SIGNED);
        let range = format!("bytes={offset}-{}", offset + buf.len() as u64 - 1);
        let mut headers = vec![("range", range)];
        if !self.tag.is_empty() {
            // An object that was replaced after listing is refused with status 412, so its data is not mixed with the
            // listed object.
            headers.push(("if-match", format!("\"{}\"", self.tag.trim_matches('"'))));
        }
        let mut answer = match self.bucket.get(url.as_str(), &headers) {
            Ok(answer) => answer,
            Err(error) if error.to_string().contains("HTTP status 412") => {
                return Err(io::Error::other("changed since it was listed"));
            }
            Err(error) => return Err(error),
        };
        if answer.status().as_u16() != 206 && offset > 0 {
            return Err(io::Error::other("the server does not answer range requests"));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_directories() {
        assert_eq!(top_of("a/b/c", "", 1), "a/");
        assert_eq!(top_of("a/b/c", "", 2), "a/b/");
        assert_eq!(top_of("a/b/c", "", 3), "a/b/");
        assert_eq!(top_of("c", "", 1), "");
        assert_eq!(top_of("logs/2026/x", "logs/", 1), "logs/2026/");
        assert_eq!(top_of("logs/2026/x", "lo", 1), "logs/");
        // Keys that are not below the prefix.
        assert_eq!(top_of("log\u{fffd}/2026/a", "logs/", 1), "log\u{fffd}/2026/a");
        assert_eq!(top_of("l", "logs/", 1), "l");
    }

    #[test]
    fn signed_requests_in_plain_text_are_known() {
        let with = |endpoint: Option<&str>, signed: bool| S3Options {
            endpoint: endpoint.map(str::to_string),
            credentials: signed.then(|| ("key".into(), "secret".into(), None)),
            ..S3Options::default()
        };
        for (endpoint, exposed) in [
            (None, false),
            (Some("https://s3.example.com"), false),
            (Some("http://s3.example.com:9000"), true),
            (Some("http://192.0.2.1"), true),
            (Some("http://localhost:9000"), false),
            (Some("http://127.0.0.1:9000"), false),
            (Some("http://[::1]:9000"), false),
            (Some("http://localhost.example.com"), true),
        ] {
            assert_eq!(with(endpoint, true).exposes_requests(), exposed, "{endpoint:?}");
            assert!(!with(endpoint, false).exposes_requests(), "{endpoint:?}");
        }
    }

    #[test]
    fn a_listing_without_an_end_is_ended() {
        let mut listing = Listing::default();
        assert!((0..10_000_000).try_for_each(|_| listing.object(80)).is_ok(), "ten million ordinary objects");
        assert!((0..10_000_000).try_for_each(|_| listing.object(80)).is_err());
        let mut listing = Listing::default();
        assert!((0..10_000).try_for_each(|page| listing.page(page % 3)).is_ok());
        assert!((0..10_000).try_for_each(|_| listing.page(0)).is_err());
    }

    #[test]
    fn a_refusal_says_what_s3_says() {
        let body = "<?xml version=\"1.0\"?><Error><Code>NoSuchBucket</Code><Message>gone</Message></Error>";
        assert_eq!(refusal(404, body).to_string(), "HTTP status 404: NoSuchBucket, gone");
        assert_eq!(refusal(500, "").to_string(), "HTTP status 500");
    }
}
