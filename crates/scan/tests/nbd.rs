//! NBD exports from nbdkit, and from servers that misbehave.

use std::io::{Read, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use codec::testdata;
use scan::{Options, Population, Report, SourceError, WalkOptions};

/// A running nbdkit, stopped when dropped.
struct Nbdkit {
    child: Child,
    _folder: tempfile::TempDir,
    image: PathBuf,
    uri: String,
}

impl Nbdkit {
    /// Serves an image. Returns `None` if nbdkit is missing.
    fn start(arguments: &[&str], plugin: &[&str]) -> Option<Nbdkit> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = folder.path().join("image");
        let file = std::fs::File::create(&image).expect("a file");
        let write =
            |bytes: &[u8], at| std::os::unix::fs::FileExt::write_all_at(&file, bytes, at).expect("written");
        write(&testdata::text_like(1, 5 << 20), 0);
        write(&testdata::random(2, 3 << 20), 40 << 20);
        file.set_len(64 << 20).expect("grown");
        let socket = folder.path().join("socket");
        let child = Command::new("nbdkit")
            .args(["--foreground", "--exit-with-parent", "--unix"])
            .arg(&socket)
            .args(arguments)
            .arg("file")
            .arg(&image)
            .args(plugin)
            .stdin(Stdio::null())
            .spawn();
        let Ok(child) = child else {
            eprintln!("skipped: nbdkit is not installed");
            return None;
        };
        let uri = format!("nbd+unix:///?socket={}", socket.display());
        let nbdkit = Nbdkit { child, _folder: folder, image, uri };
        let since = Instant::now();
        while std::os::unix::net::UnixStream::connect(&socket).is_err() {
            assert!(since.elapsed() < Duration::from_secs(60), "nbdkit does not serve");
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(nbdkit)
    }
}

impl Drop for Nbdkit {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn quick() -> Options {
    Options { compare: Vec::new(), unit_precision: None, threads: 2, ..Options::default() }
}

fn of_export(uri: &str, options: &Options) -> Result<Report, SourceError> {
    let mut all = Population::new();
    all.add_nbd(uri, &scan::NbdTlsFiles::default())?;
    scan::scan(&all, options, &|_| ())
}

fn of_file(path: &Path) -> Report {
    let mut all = Population::new();
    all.add_path(path, WalkOptions::default(), &|_| ()).expect("listed");
    scan::scan(&all, &Options { full: true, ..quick() }, &|_| ()).expect("scanned")
}

#[test]
fn an_export_is_what_its_image_is() {
    let Some(nbdkit) = Nbdkit::start(&[], &[]) else { return };
    let (export, file) = (
        of_export(&nbdkit.uri, &Options { full: true, ..quick() }).expect("scanned"),
        of_file(&nbdkit.image),
    );
    assert_eq!(export.data.data_bytes, file.data.data_bytes, "holes are known");
    assert_eq!(export.predicted_drive, file.predicted_drive);
}

#[test]
fn samples_of_an_export() {
    let Some(nbdkit) = Nbdkit::start(&[], &[]) else { return };
    let truth = of_file(&nbdkit.image).codecs[0].stored.estimate;
    let report = of_export(&nbdkit.uri, &Options { precision: 0.15, ..quick() }).expect("scanned");
    assert_eq!(report.mode, scan::report::Mode::Sample);
    let told = report.codecs[0].stored;
    assert!((told.low..=told.high).contains(&truth), "{told:?} {truth}");
}

#[test]
fn a_server_of_simple_replies() {
    let Some(nbdkit) = Nbdkit::start(&["--no-sr"], &[]) else { return };
    let export = of_export(&nbdkit.uri, &Options { full: true, ..quick() }).expect("scanned");
    // The server reports no holes, so they are read as zeros.
    assert_eq!(export.data.data_bytes, 64 << 20);
    assert!((export.blocks.zero.estimate - 56.0 / 64.0).abs() < 0.01, "{:?}", export.blocks.zero);
}

#[test]
fn read_errors_are_counted() {
    let Some(nbdkit) = Nbdkit::start(&["--filter=error"], &["error-pread-rate=50%"]) else { return };
    // Every second read fails. Other blocks are drawn instead.
    let export = of_export(&nbdkit.uri, &Options { precision: 0.15, ..quick() }).expect("scanned");
    assert_eq!(export.unreadable_count, 1, "{:?}", export.unreadable);
    assert!(export.read.blocks_count > 40, "{:?}", export.read);
}

/// A chunk, not the last one, of the reply to a request.
fn chunk(cookie: u64, kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = nbd::protocol::STRUCTURED_REPLY_MAGIC.to_be_bytes().to_vec();
    bytes.extend([0, 0]);
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    bytes.extend(data);
    bytes
}

/// Sends `script` to every client, whatever it requests, and closes the connection.
fn scripted(script: Vec<u8>) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).expect("a socket");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let _ = stream.write_all(&script);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let uri = format!("nbd+unix:///x?socket={}", socket.display());
    (folder, uri)
}

#[test]
fn servers_that_misbehave_are_refused() {
    let greeting =
        [nbd::protocol::INIT_MAGIC.to_be_bytes(), nbd::protocol::OPTS_MAGIC.to_be_bytes()].concat();
    let reply = |option: u32, kind: u32, data: &[u8]| {
        let mut bytes = nbd::protocol::REP_MAGIC.to_be_bytes().to_vec();
        bytes.extend([option, kind, data.len() as u32].map(u32::to_be_bytes).concat());
        bytes.extend(data);
        bytes
    };
    let fixed = [greeting.clone(), vec![0, 1]].concat();
    let no_structured = [fixed.clone(), reply(8, nbd::protocol::REP_ERR_UNSUP, b"")].concat();
    let size = |bytes: u64| [&[0, 0][..], &bytes.to_be_bytes(), &[0, 1]].concat();
    // An export that reports allocation, with the identifier 7.
    let context = [&[0, 0, 0, 7][..], b"base:allocation"].concat();
    let [ack, meta, info, go] = [
        reply(8, 1, b""),
        [reply(10, 4, &context), reply(10, 1, b"")].concat(),
        reply(7, 3, &size(1 << 40)),
        reply(7, 1, b""),
    ];
    let asked = [&fixed[..], &ack, &meta, &info, &go].concat();
    let flood = [&[0, 0, 0, 7][..], &[0; 16 << 20][..(16 << 20) - 8]].concat();
    let scripts = [
        (Vec::new(), "closed"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "not an NBD server"),
        ([greeting, vec![0, 0]].concat(), "fixed newstyle"),
        (fixed.clone(), "closed"),
        ([fixed.clone(), vec![7; 40]].concat(), "malformed"),
        ([fixed.clone(), reply(8, 1, b""), reply(10, 4, &[0; 4]), reply(9, 1, b"")].concat(), "malformed"),
        ([no_structured.clone(), reply(7, nbd::protocol::REP_ERR_UNKNOWN, b"")].concat(), "no export named"),
        ([no_structured.clone(), reply(7, nbd::protocol::REP_ERR_POLICY, b"not you")].concat(), "not you"),
        ([no_structured.clone(), reply(7, nbd::protocol::REP_ERR_TLS_REQD, b"")].concat(), "TLS"),
        ([&fixed[..], &reply(8, 1, b""), &reply(10, 4, &[0; 4]).repeat(1100)].concat(), "too many replies"),
        ([&no_structured[..], &reply(7, 3, &[0; 12]).repeat(1100)].concat(), "too many replies"),
        ([&no_structured[..], &reply(7, 3, &size(1 << 62)), &reply(7, 1, b"")].concat(), "not believed"),
        ([&asked[..], &chunk(1, 0, &[]).repeat(70_000)].concat(), "too many chunks"),
        ([&asked[..], &chunk(1, 5, &flood).repeat(5)].concat(), "too many extents"),
    ];
    for (script, word) in scripts {
        let (_folder, uri) = scripted(script);
        let error = of_export(&uri, &quick()).expect_err(word).to_string();
        assert!(error.contains(word) && error.lines().count() == 1, "{word}: {error}");
    }
}

/// Greeting and negotiation of a server with structured replies and an export of this size.
fn greeting(size_bytes: u64) -> Vec<u8> {
    let mut script =
        [nbd::protocol::INIT_MAGIC.to_be_bytes(), nbd::protocol::OPTS_MAGIC.to_be_bytes()].concat();
    script.extend([0, 1]);
    let mut reply = |option: u32, kind: u32, data: &[u8]| {
        script.extend(nbd::protocol::REP_MAGIC.to_be_bytes());
        script.extend([option, kind, data.len() as u32].map(u32::to_be_bytes).concat());
        script.extend(data);
    };
    reply(8, nbd::protocol::REP_ACK, b"");
    reply(10, nbd::protocol::REP_ACK, b"");
    reply(7, nbd::protocol::REP_INFO, &[&[0, 0][..], &size_bytes.to_be_bytes(), &[0, 1]].concat());
    reply(7, nbd::protocol::REP_ACK, b"");
    script
}

#[test]
fn replies_that_lie_fail_the_read_and_nothing_else() {
    let mut script = greeting(4096);
    // A chunk of data outside of the requested range.
    script.extend(nbd::protocol::STRUCTURED_REPLY_MAGIC.to_be_bytes());
    script.extend([0, 1, 0, 1]);
    script.extend(1_u64.to_be_bytes());
    script.extend(16_u32.to_be_bytes());
    script.extend(u64::MAX.to_be_bytes());
    script.extend([0; 8]);
    let (_folder, uri) = scripted(script);
    let error = of_export(&uri, &quick()).expect_err("nothing could be read").to_string();
    assert!(error.contains("none of the data could be read"), "{error}");
}

/// Chunks that leave out bytes of a request, or bring some twice, are no data. A chunk that is longer than
/// the request is refused by its header.
#[test]
fn replies_that_do_not_cover_a_request_are_refused() {
    let script = greeting(1 << 20);
    let data = |offset: u64, len: usize| {
        chunk(1, nbd::protocol::REPLY_TYPE_OFFSET_DATA, &[&offset.to_be_bytes()[..], &vec![7; len]].concat())
    };
    let hole = |offset: u64, len: u32| {
        let content = [&offset.to_be_bytes()[..], &len.to_be_bytes()].concat();
        chunk(1, nbd::protocol::REPLY_TYPE_OFFSET_HOLE, &content)
    };
    let mut done = chunk(1, nbd::protocol::REPLY_TYPE_NONE, &[]);
    done[5] = 1;
    let mut oversized = chunk(1, nbd::protocol::REPLY_TYPE_OFFSET_DATA, &[]);
    oversized[16..20].copy_from_slice(&u32::MAX.to_be_bytes());
    let read = |chunks: &[Vec<u8>]| {
        let (_folder, uri) = scripted([script.clone(), chunks.concat()].concat());
        let export = nbd::client::ExportUri::parse(&uri).expect("a URI");
        let mut connection = nbd::client::Connection::open(&export, None).expect("connected");
        let mut bytes = vec![1; 8192];
        connection.read_at(4096, &mut bytes).map(|_| bytes)
    };
    let whole = read(&[hole(8192, 4096), data(4096, 4096), done.clone()]).expect("in any order");
    assert!(whole[..4096].iter().all(|byte| *byte == 7) && whole[4096..].iter().all(|byte| *byte == 0));
    for chunks in [
        vec![done.clone()],
        vec![data(4096, 4096), done.clone()],
        vec![data(8192, 4096), done.clone()],
        vec![data(4096, 8192), hole(8192, 4096), done.clone()],
        vec![data(4096, 4096), data(4096, 4096), done.clone()],
    ] {
        let error = read(&chunks).expect_err("not the request");
        assert!(error.to_string().contains("do not cover the request, or overlap"), "{error}");
    }
    let error = read(&[oversized]).expect_err("longer than the request");
    assert!(error.to_string().contains("outside the requested range"), "{error}");
}

#[test]
fn ranges_without_number_are_taken_together() {
    let reply = |option: u32, kind: u32, data: &[u8]| {
        let mut bytes = nbd::protocol::REP_MAGIC.to_be_bytes().to_vec();
        bytes.extend([option, kind, data.len() as u32].map(u32::to_be_bytes).concat());
        bytes.extend(data);
        bytes
    };
    let context = [&[0, 0, 0, 7][..], b"base:allocation"].concat();
    let size_bytes = 20_u64 << 30;
    let size = [&[0, 0][..], &size_bytes.to_be_bytes(), &[0, 1]].concat();
    let mut script =
        [nbd::protocol::INIT_MAGIC.to_be_bytes(), nbd::protocol::OPTS_MAGIC.to_be_bytes()].concat();
    script.extend([0, 1]);
    for reply in
        [reply(8, 1, b""), reply(10, 4, &context), reply(10, 1, b""), reply(7, 3, &size), reply(7, 1, b"")]
    {
        script.extend(reply);
    }
    // A GiB a request, of which every other 512 bytes are data.
    let pair = [[0, 0, 2, 0, 0, 0, 0, 0], [0, 0, 2, 0, 0, 0, 0, 3]].concat();
    let extents = [&[0, 0, 0, 7][..], &pair.repeat(1 << 19)].concat();
    for cookie in 1..=5 {
        script.extend(chunk(cookie, 5, &extents));
        script.extend(chunk(cookie, 5, &extents));
        let done = script.len();
        script.extend(chunk(cookie, 0, &[]));
        script[done + 5] = 1;
    }
    let (_folder, uri) = scripted(script);
    let export = nbd::client::ExportUri::parse(&uri).expect("a URI");
    let mut connection = nbd::client::Connection::open(&export, None).expect("connected");
    let ranges = connection.data_ranges().expect("ranges");
    assert_eq!(ranges.len(), (5 << 20) + 1);
    assert_eq!(ranges.last(), Some(&(5 << 30..size_bytes)), "the rest counts as data");
}
