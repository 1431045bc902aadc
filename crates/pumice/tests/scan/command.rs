//! Output and errors of the command.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::common::server::text;
use crate::common::{pumice, sample};

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary directory");
    fs::create_dir(folder.path().join("sub")).expect("a directory");
    fs::write(folder.path().join("a.txt"), sample(1, 1 << 20)).expect("written");
    fs::write(folder.path().join("sub/b.bin"), vec![0; 1 << 20]).expect("written");
    folder
}

fn json(arguments: &[&str]) -> Value {
    let run = pumice(&[&["scan", "--json"], arguments].concat());
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

#[test]
fn the_stable_names_of_the_json() {
    let folder = folder();
    let report = json(&[&text(folder.path())]);
    for path in [
        "/version",
        "/mode",
        "/confidence",
        "/seed",
        "/data/files_count",
        "/data/data_bytes",
        "/data/hole_bytes",
        "/read/bytes",
        "/blocks/zero/estimate",
        "/codecs/0/codec",
        "/codecs/0/ratio/low",
        "/codecs/0/compress_mb_per_second",
        "/layouts/0/ratio/high",
        "/predicted_drive/ratio/estimate",
        "/predicted_drive/ratio_of_random_writes/estimate",
        "/predicted_drive/ratio_settled/estimate",
        "/predicted_drive/ratio/low",
        "/predicted_drive/ratio/high",
        "/predicted_drive/physical_used_bytes/estimate",
        "/predicted_drive/physical_size_bytes/estimate",
        "/by_type/0/name",
        "/by_directory/1/ratio/estimate",
        "/largest_files/0/stored_bytes",
        "/skipped/symlinks_count",
        "/unreadable_count",
        "/changed_count",
    ] {
        assert!(report.pointer(path).is_some_and(|value| !value.is_null()), "{path}: {report}");
    }
    assert_eq!(report["mode"], "full");
    assert_eq!(report["data"]["data_bytes"], 2 << 20);
    assert_eq!(report["blocks"]["zero"]["estimate"], 0.5);
}

#[test]
fn the_table_says_the_same() {
    let folder = folder();
    let run = pumice(&["scan", &text(folder.path()), "--compare", "lz4,deflate:6", "--unit-precision", "0"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.stderr, "", "no bar where there is no terminal");
    for words in
        ["2.00 MiB of data in 2 files", "50.0 %", "deflate:6", "all read", "On a Pumice drive", "a.txt"]
    {
        assert!(run.stdout.contains(words), "{words}: {}", run.stdout);
    }
    assert!(!run.stdout.contains("zstd:9") && !run.stdout.contains("rival"), "{}", run.stdout);
}

#[test]
fn samples_with_an_interval() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("big");
    let mut bytes = sample(1, 24 << 20);
    bytes.resize(48 << 20, 0);
    fs::write(&path, bytes).expect("written");
    let arguments = ["--precision", "4", "--confidence", "90", "--unit-precision", "0", "--seed", "5"];
    let report = json(&[&[text(&path).as_str()], &arguments[..]].concat());
    assert_eq!(report["mode"], "sample");
    assert_eq!(report["seed"], 5);
    let zero = &report["blocks"]["zero"];
    let [low, high] = ["low", "high"].map(|end| zero[end].as_f64().expect("a number"));
    assert!(low <= 0.5 && 0.5 <= high, "{zero}");
    for row in report["codecs"].as_array().expect("rows") {
        let [value, low, high] =
            ["estimate", "low", "high"].map(|it| row["stored"][it].as_f64().expect("a number"));
        assert!((high - value).max(value - low) <= 0.0401, "{row}");
    }
    // At most 1130 samples of 32 KiB. Half of the data varies less than the worst case, so fewer samples
    // suffice.
    assert!(report["read"]["bytes"].as_u64().expect("bytes") < 30 << 20, "{}", report["read"]);
    let again = json(&[&[text(&path).as_str()], &arguments[..]].concat());
    assert_eq!(again["codecs"][0]["stored"], report["codecs"][0]["stored"]);
}

/// Reading stops when the estimate is good enough. A group of 32 KiB reaches over several small files, and
/// the head of each is read too where its name has no extension.
#[test]
fn of_many_small_files_only_a_fraction_is_read() {
    const FILES: u64 = 8000;
    const FILE_BYTES: u64 = 8 << 10;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let bytes = sample(1, (FILES * FILE_BYTES) as usize);
    for (number, bytes) in bytes.chunks(FILE_BYTES as usize).enumerate() {
        fs::write(folder.path().join(number.to_string()), bytes).expect("written");
    }
    let more = ["--precision", "4", "--unit-precision", "0", "--compare", "lz4", "--seed", "1"];
    let report = json(&[&[text(folder.path()).as_str()], &more[..]].concat());
    assert_eq!(report["mode"], "sample");
    assert_eq!(report["data"]["data_bytes"], FILES * FILE_BYTES);
    let read = report["read"]["bytes"].as_u64().expect("bytes");
    assert!(read < FILES * FILE_BYTES / 4, "{}", report["read"]);
    let stored = &report["codecs"][0]["stored"];
    let [low, high] = ["low", "high"].map(|end| stored[end].as_f64().expect("a number"));
    assert!(high - low <= 0.0801, "{stored}");
}

#[test]
fn standard_input() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .args(["scan", "-", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program was built");
    child.stdin.take().expect("piped").write_all(&sample(1, 3_000_001)).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success());
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["data"]["apparent_bytes"], 3_000_001);
    assert_eq!(report["sources"][0], "-");
}

#[test]
fn a_page_that_is_one_file() {
    let folder = folder();
    let page = folder.path().join("report.html");
    // A name that would be markup without escaping.
    fs::write(folder.path().join("<script>.txt"), sample(2, 1 << 20)).expect("written");
    let run = pumice(&["scan", &text(folder.path()), "--html", &text(&page)]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let html = fs::read_to_string(&page).expect("a page");
    assert!(html.starts_with("<!DOCTYPE html>"));
    assert!(html.matches("<figure ").count() >= 4, "charts");
    crate::common::readable::assert_readable(&html);
    for outside in ["<script", "src=", "<link", "@import"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("A Pumice drive stores this data at"));
}

#[test]
fn refusals() {
    let folder = folder();
    let root = text(folder.path());
    let sub = text(&folder.path().join("sub"));
    let beside = tempfile::tempdir().expect("a folder");
    let link = text(&beside.path().join("link"));
    std::os::unix::fs::symlink(&root, &link).expect("a link");
    let nobody = "nbd+unix:///?socket=/nonexistent";
    for (arguments, code, word) in [
        (vec![], 2, "PATH"),
        (vec![root.as_str(), "--precision", "0"], 2, "0.01 to 50"),
        (vec![root.as_str(), "--confidence", "100"], 2, "99.9999"),
        (vec![root.as_str(), "--compare", "gzip"], 2, "deflate"),
        (vec![root.as_str(), "--max-rate", "fast"], 2, "size"),
        (vec![root.as_str(), "--max-rate", "0"], 2, "--max-rate"),
        (vec!["/nonexistent"], 1, "/nonexistent"),
        (vec!["/dev/null"], 1, "/dev/null"),
        (vec![root.as_str(), "-"], 2, "alone"),
        (vec![root.as_str(), sub.as_str()], 2, "count twice"),
        (vec![root.as_str(), link.as_str()], 2, "is the same as"),
        (vec![nobody, nobody], 2, "count twice"),
        (vec!["s3://bucket", "s3://bucket/prefix"], 2, "s3://bucket/prefix: is within s3://bucket and"),
        (vec!["nbd+unix:///?socket=/nonexistent"], 1, "nbd+unix"),
        (vec!["nbds://localhost:1/disk"], 1, "nbds://localhost:1/disk"),
        (vec!["nbds://localhost:1?tls-verify-peer=0"], 1, "always verified"),
        (vec!["nbds://localhost:1", "--tls-ca", "/nonexistent.pem"], 1, "/nonexistent.pem"),
        (vec!["nbds://localhost:1", "--tls-cert", "/nonexistent.pem"], 2, "--tls-key"),
        (vec!["s3://bucket", "--s3-endpoint", "http://127.0.0.1:1"], 1, "s3://bucket"),
        (vec![root.as_str(), "--html", "/nonexistent/report.html"], 1, "/nonexistent/report.html"),
    ] {
        let run = pumice(&[&["scan"], arguments.as_slice()].concat());
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.starts_with("pumice: ") && run.stderr.contains(word), "{arguments:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    }
}

#[test]
fn a_page_that_cannot_be_written_is_refused_before_anything_is_read() {
    let folder = folder();
    let root = text(folder.path());
    for page in ["/nonexistent/report.html", root.as_str(), "/proc/report.html"] {
        // The source does not exist. The reported error is the one found first.
        let run = pumice(&["scan", "/nonexistent", "--html", page]);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stderr.starts_with(&format!("pumice: cannot write {page}: ")), "{run:?}");
    }
}

#[test]
fn an_endpoint_without_encryption_is_warned_about() {
    // A name that is not resolved: the scan ends with an error.
    let endpoint = "http://s3.invalid:1";
    for (endpoint, more, warned) in [
        (endpoint, &["--s3-anonymous"][..], true),
        (endpoint, &[], true),
        ("https://s3.invalid:1", &[], false),
        ("http://127.0.0.1:1", &[], false),
    ] {
        let run = pumice(&[&["scan", "s3://bucket", "--s3-endpoint", endpoint], more].concat());
        assert_eq!(run.code, Some(1), "{run:?}");
        let found = run.stderr.contains("warning: the S3 endpoint is reached without encryption");
        assert_eq!(found, warned, "{endpoint} {more:?}: {run:?}");
        assert!(!run.stderr.contains("signed requests"), "anonymous: {run:?}");
    }
}
