//! Buckets on a small S3 test server that supports listing and ranged GETs.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use codec::testdata;
use scan::report::Mode;
use scan::{Options, Population, Report, S3Options, SourceError};

/// Objects by key: bytes and entity tag.
type Objects = BTreeMap<String, (Vec<u8>, String)>;

#[derive(Default)]
struct State {
    objects: Objects,
    /// Key that must sign the requests, if any. Other requests are refused.
    key: Option<String>,
    /// Number of requests to fail with status 503 first.
    failing: u32,
    lists: u32,
    /// Lists without end: each page is empty and has a token for the next.
    endless: bool,
    /// Lists this number of objects instead, of one block each: one of four random, the others zeros.
    many: Option<u64>,
    /// Size that listings claim for every object, if not the true one.
    claimed_bytes: Option<u64>,
    gets: u32,
    /// Requests for each key.
    gets_of: BTreeMap<String, u32>,
    /// Key whose requests fail with status 500.
    broken: Option<String>,
    /// Key whose requests get no answer.
    silent: Option<String>,
    /// Objects are sent whether or not they match.
    ignores_if_match: bool,
    /// Ranges are said to begin so many bytes further on.
    shift: usize,
}

struct StandIn {
    state: Arc<Mutex<State>>,
    endpoint: String,
}

impl StandIn {
    fn start(objects: Objects) -> StandIn {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let endpoint = format!("http://{}", listener.local_addr().expect("an address"));
        let state = Arc::new(Mutex::new(State { objects, ..State::default() }));
        let shared = state.clone();
        // The thread ends with the test.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        StandIn { state, endpoint }
    }

    fn options(&self) -> S3Options {
        S3Options { endpoint: Some(self.endpoint.clone()), depth: 1, ..S3Options::default() }
    }
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
        let target = line.split(' ').nth(1).unwrap_or_default().to_string();
        let mut headers = BTreeMap::new();
        loop {
            let mut header = String::new();
            if reader.read_line(&mut header).unwrap_or(0) <= 2 {
                break;
            }
            if let Some((name, value)) = header.trim_end().split_once(": ") {
                headers.insert(name.to_ascii_lowercase(), value.to_string());
            }
        }
        let method = line.split(' ').next().unwrap_or_default();
        assert_eq!(method, "GET", "a scan never writes");
        let is_silent = {
            let state = state.lock().expect("a lock");
            state.silent.as_ref().is_some_and(|key| target.ends_with(key.as_str()))
        };
        let (status, more, body) = answer(&target, &headers, &mut state.lock().expect("a lock"));
        if is_silent {
            // Until the client leaves.
            let _ = reader.read_line(&mut String::new());
            return;
        }
        let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{more}\r\n", body.len());
        // At once: the end of the answer would wait for an acknowledgement of its beginning.
        if stream.write_all(&[head.into_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

fn error(status: &str, code: &str) -> (String, String, Vec<u8>) {
    let body = format!(
        "<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>the stand-in says so</Message></Error>"
    );
    (status.to_string(), String::new(), body.into_bytes())
}

fn answer(target: &str, headers: &BTreeMap<String, String>, state: &mut State) -> (String, String, Vec<u8>) {
    if state.failing > 0 {
        state.failing -= 1;
        return error("503 Slow Down", "SlowDown");
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parameter = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(&format!("{name}=")).map(|v| v.replace("%2F", "/")))
    };
    if let Some(key) = &state.key {
        let by_key = format!("AWS4-HMAC-SHA256 Credential={key}/");
        if !headers.get("authorization").is_some_and(|said| said.starts_with(&by_key)) {
            return error("403 Forbidden", "AccessDenied");
        }
        assert_eq!(headers.get("x-amz-security-token").map(String::as_str), Some("TOKEN"));
        // URLs end up in logs.
        for secret in [key.as_str(), "TOKEN", "Amz", "Signature"] {
            assert!(!target.contains(secret), "{target}");
        }
    } else {
        assert_eq!(headers.get("authorization"), None, "anonymous");
    }
    let Some(rest) = path.strip_prefix("/bucket") else { return error("404 Not Found", "NoSuchBucket") };
    match rest.trim_start_matches('/') {
        "" => list(&parameter("prefix").unwrap_or_default(), parameter("continuation-token"), state),
        key => get(key, headers, state),
    }
}

fn list(prefix: &str, token: Option<String>, state: &mut State) -> (String, String, Vec<u8>) {
    /// Small pages, to get several of them.
    const PAGE: usize = 3;
    state.lists += 1;
    if state.endless {
        let body = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name><MaxKeys>3</MaxKeys>\
             <IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken></ListBucketResult>",
            state.lists
        );
        return ("200 OK".into(), "content-type: application/xml\r\n".into(), body.into_bytes());
    }
    let from: usize = token.and_then(|token| token.parse().ok()).unwrap_or(0);
    if let Some(count) = state.many {
        let next = count.min(from as u64 + 1000);
        let key = |number| format!("<Contents><Key>{}</Key><Size>4096</Size></Contents>", key_of(number));
        let body = format!(
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{}<IsTruncated>{}</IsTruncated>\
             <NextContinuationToken>{next}</NextContinuationToken></ListBucketResult>",
            (from as u64..next).map(key).collect::<String>(),
            next < count
        );
        return ("200 OK".into(), "content-type: application/xml\r\n".into(), body.into_bytes());
    }
    let keys: Vec<_> = state.objects.iter().filter(|(key, _)| key.starts_with(prefix)).collect();
    let mut body = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult \
         xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>bucket</Name><Prefix></Prefix><MaxKeys>3</MaxKeys>",
    );
    for (key, (bytes, tag)) in keys.iter().skip(from).take(PAGE) {
        body += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified><ETag>\"{tag}\"</ETag>\
             <Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
            state.claimed_bytes.unwrap_or(bytes.len() as u64)
        );
    }
    let more = keys.len() > from + PAGE;
    body += &format!("<IsTruncated>{more}</IsTruncated>");
    if more {
        body += &format!("<NextContinuationToken>{}</NextContinuationToken>", from + PAGE);
    }
    body += "</ListBucketResult>";
    ("200 OK".into(), "content-type: application/xml\r\n".into(), body.into_bytes())
}

/// Key of one of many objects.
fn key_of(number: u64) -> String {
    format!("{number:0200}.bin")
}

fn get(key: &str, headers: &BTreeMap<String, String>, state: &mut State) -> (String, String, Vec<u8>) {
    state.gets += 1;
    *state.gets_of.entry(key.to_string()).or_default() += 1;
    if state.broken.as_deref() == Some(key) {
        return error("500 Internal Server Error", "InternalError");
    }
    if state.many.is_some() {
        let number: u64 = key.trim_end_matches(".bin").parse().expect("a number");
        let bytes = if number.is_multiple_of(4) { testdata::random(number, 4096) } else { vec![0; 4096] };
        return ("206 Partial Content".into(), "content-range: bytes 0-4095/4096\r\n".into(), bytes);
    }
    let Some((bytes, tag)) = state.objects.get(key) else { return error("404 Not Found", "NoSuchKey") };
    if !state.ignores_if_match && headers.get("if-match").is_some_and(|said| said.trim_matches('"') != tag) {
        return error("412 Precondition Failed", "PreconditionFailed");
    }
    let range = headers.get("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((from, to)) =
        range.and_then(|(a, b)| Some((a.parse::<usize>().ok()?, b.parse::<usize>().ok()?)))
    else {
        return ("200 OK".into(), String::new(), bytes.clone());
    };
    let to = to.min(bytes.len() - 1);
    let first = from + state.shift;
    let more = format!("etag: \"{tag}\"\r\ncontent-range: bytes {first}-{to}/{}\r\n", bytes.len());
    ("206 Partial Content".into(), more, bytes[from..=to].to_vec())
}

fn objects() -> Objects {
    let mut objects = Objects::new();
    let mut put = |key: &str, bytes: Vec<u8>| {
        let tag = format!("tag-of-{key}");
        objects.insert(key.to_string(), (bytes, tag));
    };
    for i in 0..8 {
        put(&format!("logs/2026/{i}.json"), testdata::text_like(i, 300_000));
    }
    put("media/a.jpg", testdata::random(1, 2 << 20));
    put("media/empty", Vec::new());
    put("zeros", vec![0; 100_000]);
    objects
}

fn quick() -> Options {
    Options { compare: Vec::new(), unit_precision: None, threads: 3, ..Options::default() }
}

fn scanned(uri: &str, s3: &S3Options, options: &Options) -> Result<Report, SourceError> {
    let mut all = Population::new();
    all.add_s3(uri, s3, &|_| ())?;
    scan::scan(&all, options, &|_| ())
}

#[test]
fn a_bucket_anonymously() {
    let server = StandIn::start(objects());
    let report = scanned("s3://bucket", &server.options(), &quick()).expect("scanned");
    assert_eq!(report.mode, Mode::Full);
    assert_eq!(report.data.files_count, 10);
    assert_eq!(report.skipped.empty_files_count, 1);
    let blocks: u64 = objects().values().map(|(bytes, _)| bytes.len().div_ceil(4096) as u64).sum();
    assert_eq!(report.data.data_bytes, blocks * 4096);
    assert_eq!(report.unreadable_count, 0, "{:?}", report.unreadable);
    let names: Vec<&str> = report.by_directory.iter().map(|part| part.name.as_str()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.contains(&"s3://bucket/logs/") && names.contains(&"s3://bucket/media/"), "{names:?}");
    assert!(report.by_type.iter().any(|part| part.name == "json" && part.ratio.estimate > 1.8));
    assert!(server.state.lock().expect("a lock").lists >= 4, "in pages");
}

#[test]
fn a_prefix_with_credentials() {
    let server = StandIn::start(objects());
    server.state.lock().expect("a lock").key = Some("KEY".to_string());
    let refused =
        scanned("s3://bucket/media/", &server.options(), &quick()).expect_err("anonymous").to_string();
    assert!(refused.contains("AccessDenied"), "{refused}");
    let credentials = Some(("KEY".to_string(), "secret".to_string(), Some("TOKEN".to_string())));
    let options = S3Options { credentials, ..server.options() };
    let report = scanned("s3://bucket/media/", &options, &quick()).expect("scanned");
    assert_eq!(report.data.files_count, 1);
    assert_eq!(report.data.data_bytes, 2 << 20);
}

#[test]
fn samples_by_ranges() {
    let mut objects = Objects::new();
    objects.insert(
        "big.bin".into(),
        ([testdata::text_like(1, 15 << 20), testdata::random(2, 15 << 20)].concat(), "t".into()),
    );
    let server = StandIn::start(objects);
    let options = Options { precision: 0.1, ..quick() };
    let report = scanned("s3://bucket", &server.options(), &options).expect("scanned");
    assert_eq!(report.mode, Mode::Sample);
    let stored = report.codecs[0].stored;
    assert!(stored.half_width() <= 0.1001 && (stored.low..=stored.high).contains(&0.72), "{stored:?}");
    // At most 192 samples of 32 KiB, out of 30 MiB.
    assert!(report.read.bytes < 8 << 20, "not all of it: {}", report.read.bytes);
}

#[test]
fn a_server_that_is_busy_is_asked_again() {
    let server = StandIn::start(objects());
    server.state.lock().expect("a lock").failing = 2;
    let report = scanned("s3://bucket/zeros", &server.options(), &quick()).expect("scanned");
    assert_eq!(report.blocks.zero.estimate, 1.0);
}

#[test]
fn objects_that_are_replaced_or_go() {
    let server = StandIn::start(objects());
    let mut all = Population::new();
    all.add_s3("s3://bucket/logs", &server.options(), &|_| ()).expect("listed");
    {
        let mut state = server.state.lock().expect("a lock");
        state.objects.remove("logs/2026/3.json");
        state.objects.insert("logs/2026/4.json".into(), (testdata::random(1, 300_000), "another".into()));
    }
    let report = scan::scan(&all, &quick(), &|_| ()).expect("scanned");
    assert_eq!(report.unreadable_count, 2, "{:?}", report.unreadable);
    assert!(
        report.unreadable.iter().any(|trouble| trouble.why.contains("changed")),
        "{:?}",
        report.unreadable
    );
    assert!(
        report.unreadable.iter().any(|trouble| trouble.why.contains("NoSuchKey")),
        "{:?}",
        report.unreadable
    );
}

/// A server that does not know conditions, or gives other bytes than those asked for, is not believed.
#[test]
fn answers_of_another_version_or_range_are_not_taken() {
    let server = StandIn::start(objects());
    let mut all = Population::new();
    all.add_s3("s3://bucket/logs", &server.options(), &|_| ()).expect("listed");
    {
        let mut state = server.state.lock().expect("a lock");
        state.ignores_if_match = true;
        state.objects.insert("logs/2026/4.json".into(), (testdata::random(1, 300_000), "another".into()));
    }
    let report = scan::scan(&all, &quick(), &|_| ()).expect("scanned");
    assert_eq!(report.unreadable_count, 1, "{:?}", report.unreadable);
    assert!(report.unreadable[0].why.contains("changed"), "{:?}", report.unreadable);
    server.state.lock().expect("a lock").shift = 4096;
    let error = scan::scan(&all, &quick(), &|_| ()).expect_err("nothing is right").to_string();
    assert!(error.contains("another range"), "{error}");
}

/// Scans the logs while one of them is bad in the way that `spoil` sets, and returns the report and the
/// number of requests for that one.
fn with_a_bad_one(
    options: &Options,
    patience: Option<Duration>,
    spoil: impl Fn(&mut State, &str),
) -> (Report, u32) {
    const BAD: &str = "logs/2026/3.json";
    let server = StandIn::start(objects());
    let mut all = Population::new();
    let s3 = S3Options { patience, ..server.options() };
    all.add_s3("s3://bucket/logs", &s3, &|_| ()).expect("listed");
    spoil(&mut server.state.lock().expect("a lock"), BAD);
    let report = scan::scan(&all, options, &|_| ()).expect("scanned");
    assert_eq!(report.unreadable_count, 1, "{:?}", report.unreadable);
    assert!(report.unreadable[0].name.ends_with(BAD), "{:?}", report.unreadable);
    let gets = server.state.lock().expect("a lock").gets_of.get(BAD).copied().unwrap_or(0);
    (report, gets)
}

#[test]
fn objects_that_are_gone_are_requested_once_by_each_thread() {
    let sampled = Options { precision: 0.2, ..quick() };
    let full = Options { full: true, ..quick() };
    for options in [sampled, full] {
        let (_, gets) = with_a_bad_one(&options, None, |state, key| {
            state.objects.remove(key);
        });
        assert!((1..=options.threads as u32).contains(&gets), "{gets} requests, {options:?}");
    }
}

#[test]
fn objects_that_fail_are_given_up() {
    let options = Options { threads: 1, ..quick() };
    let (report, gets) = with_a_bad_one(&options, None, |state, key| state.broken = Some(key.into()));
    assert!(report.unreadable[0].why.contains("InternalError"), "{:?}", report.unreadable);
    // Three reads, each with repetitions.
    assert_eq!(gets, 3 * 4);
}

#[test]
fn objects_that_never_answer_are_given_up() {
    let options = Options { threads: 1, ..quick() };
    let patience = Some(Duration::from_millis(500));
    let (_, gets) = with_a_bad_one(&options, patience, |state, key| state.silent = Some(key.into()));
    assert_eq!(gets, 3, "a request without an answer is not repeated");
}

#[test]
fn what_cannot_be_is_told_in_a_line() {
    let server = StandIn::start(objects());
    let nobody = S3Options { endpoint: Some("http://127.0.0.1:1".into()), ..S3Options::default() };
    let bad = S3Options { endpoint: Some("no url".into()), ..S3Options::default() };
    for (uri, options, word) in [
        ("s3://other", &server.options(), "NoSuchBucket"),
        ("s3://", &server.options(), "s3://BUCKET"),
        ("s3://bucket", &bad, "endpoint"),
        ("s3://bucket", &nobody, "s3://bucket"),
    ] {
        let error = scanned(uri, options, &quick()).expect_err(uri).to_string();
        assert!(error.contains(word) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn a_listing_without_an_end_is_given_up() {
    let stand_in = StandIn::start(Objects::new());
    stand_in.state.lock().expect("a lock").endless = true;
    let mut all = Population::new();
    let error = all.add_s3("s3://bucket", &stand_in.options(), &|_| ()).expect_err("without end");
    assert!(error.to_string().contains("continues without objects"), "{error}");
}

#[test]
fn sizes_that_cannot_be_are_not_believed() {
    let stand_in = StandIn::start(Objects::new());
    let mut all = Population::new();
    {
        let mut state = stand_in.state.lock().expect("a lock");
        state.claimed_bytes = Some(u64::MAX / 2);
        state.objects.insert("a".into(), (vec![1], "t".into()));
    }
    let error = all.add_s3("s3://bucket", &stand_in.options(), &|_| ()).expect_err("too large");
    assert!(error.to_string().contains("not believed"), "{error}");
}

#[test]
fn a_bucket_with_more_objects_than_are_kept_is_sampled() {
    const COUNT: u64 = 250_000;
    let stand_in = StandIn::start(Objects::new());
    stand_in.state.lock().expect("a lock").many = Some(COUNT);
    let options = Options { precision: 0.05, ..quick() };
    let mut all = Population::new();
    all.add_s3("s3://bucket", &stand_in.options(), &|_| ()).expect("listed");
    assert!(all.items().len() < 1 << 16, "{}", all.items().len());
    let report = scan::scan(&all, &options, &|_| ()).expect("scanned");
    assert_eq!(report.mode, Mode::Sample);
    assert_eq!((report.data.files_count, report.data.data_bytes), (COUNT, COUNT * 4096));
    assert_eq!(report.data.apparent_bytes, COUNT * 4096);
    let zeros = report.blocks.zero;
    assert!((zeros.low..=zeros.high).contains(&0.75) && zeros.half_width() < 0.1, "{zeros:?}");
    assert!(report.notes.iter().any(|note| note.contains("250000 objects")), "{:?}", report.notes);
    let error = scan::scan(&all, &Options { full: true, ..options }, &|_| ()).expect_err("not all are known");
    assert!(error.to_string().contains("scan a prefix"), "{error}");
}
