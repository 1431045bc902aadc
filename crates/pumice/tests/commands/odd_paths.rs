//! A drive whose path is not UTF-8. It is served and shown like any other, and does not hide the others.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use serde_json::Value;

use crate::common::server::text;
use crate::common::{Drive, Run, fails, in_time, needs, succeed};

/// Invalid UTF-8, and a terminal control character.
const NAME: &[u8] = b"dr\xff\x1bive";
const SHOWN: &str = "dr\\xff\\u{1b}ive";
const ENCODED: &str = "dr%FF%1Bive";

/// Runs `pumice` with arguments that are not UTF-8, on the servers of this drive.
fn pumice(drive: &Drive, arguments: &[&OsStr]) -> Run {
    let own = OsString::from(format!("PUMICE_RUNTIME_DIR={}", drive.runtime_dir().display()));
    in_time("env", &[&[own.as_os_str(), env!("CARGO_BIN_EXE_pumice").as_ref()], arguments].concat())
}

fn create(drive: &Drive) -> PathBuf {
    let odd = drive.folder().join(OsStr::from_bytes(NAME));
    let run = pumice(drive, &["create".as_ref(), odd.as_os_str(), "--size".as_ref(), "32M".as_ref()]);
    assert_eq!(run.code, Some(0), "{run:?}");
    odd
}

#[test]
fn a_path_that_is_not_text_is_shown_escaped_and_hides_no_other_drive() {
    let drive = Drive::create(&["--size", "64M"]);
    let odd = create(&drive);
    let server = drive.serve_paths(&[&drive.path(), &odd], &["--http", "127.0.0.1:0"]);
    let folder = text(drive.folder());
    let encoded = format!("file://{folder}/{ENCODED}");

    let run = drive.pumice(&["status", "--json"]);
    let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let paths = |answer: &Value| -> Vec<String> {
        let drives = answer["drives"].as_array().expect("drives");
        let mut paths: Vec<_> =
            drives.iter().map(|it| it["path"].as_str().expect("a path").to_string()).collect();
        paths.sort();
        paths
    };
    assert_eq!(paths(&answer), [text(&drive.path()), encoded.clone()]);
    let by_path = pumice(&drive, &["status".as_ref(), odd.as_os_str()]);
    assert_eq!(by_path.code, Some(0), "{by_path:?}");
    assert!(by_path.stdout.starts_with(&format!("{folder}/{SHOWN}  online")), "{by_path:?}");
    let capacity = drive.pumice(&["capacity", "--no-header"]);
    assert!(capacity.stdout.contains(&format!("\t{encoded}\n")), "{capacity:?}");
    // Changes reach the drive.
    let grown = pumice(&drive, &["set-capacity".as_ref(), odd.as_os_str(), "64M".as_ref()]);
    assert_eq!(grown.code, Some(0), "{grown:?}");
    assert!(!grown.stdout.contains('\x1b'), "{grown:?}");

    if needs(&["curl"]) {
        let base = server.http().trim_end_matches("metrics").to_string();
        let get = |path: &str| succeed("curl", &["-s", "--max-time", "20", &format!("{base}{path}")]);
        assert_eq!(paths(&serde_json::from_str(&get("status")).expect("JSON")).len(), 2);
        assert_eq!(get("healthz"), "ok\n");
        let series = format!("pumice_logical_capacity_bytes{{drive=\"{encoded}\"}} {}", 64 << 20);
        assert!(get("metrics").lines().any(|line| line == series), "{series}");
    }
    if needs(&["nbdinfo"]) {
        let uri = server.uris().iter().find(|uri| uri.contains(ENCODED)).expect("its own socket");
        assert_eq!(succeed("nbdinfo", &["--size", uri]).trim(), (64 << 20).to_string());
    }
    assert!(server.stop().success());
    assert!(drive.log().contains(SHOWN), "{}", drive.log());
}

#[test]
fn drives_whose_names_differ_in_such_a_byte_only_are_distinct() {
    let drive = Drive::create(&["--size", "64M"]);
    let paths = [b"dr\xfe".as_slice(), b"dr\xff"].map(|name| drive.folder().join(OsStr::from_bytes(name)));
    for path in &paths {
        let run = pumice(&drive, &["create".as_ref(), path.as_os_str(), "--size".as_ref(), "32M".as_ref()]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    let socket = format!("unix:{}", drive.file("both"));
    let server = drive.serve_paths(&[&paths[0], &paths[1]], &["--nbd", &socket]);
    if needs(&["nbdinfo"]) {
        let list = succeed("nbdinfo", &["--list", server.uri()]);
        assert!(list.contains(r"dr\\xfe") && list.contains(r"dr\\xff"), "{list}");
    }
    assert!(server.stop().success());
}

#[test]
fn check_and_doctor_answer_in_json_all_the_same() {
    let drive = Drive::create(&["--size", "64M"]);
    let odd = create(&drive);
    let encoded = format!("file://{}/{ENCODED}", text(drive.folder()));
    let answers = |command: &[&str], key: &str| {
        let mut arguments: Vec<&OsStr> = command.iter().map(OsStr::new).collect();
        arguments.insert(1, odd.as_os_str());
        let run = pumice(&drive, &arguments);
        assert!(matches!(run.code, Some(0 | 1)), "{run:?}");
        let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
        assert_eq!(answer[key], encoded, "{command:?}: {answer}");
    };
    answers(&["check", "--json"], "path");
    let server = drive.serve_paths(&[&odd], &[]);
    answers(&["check", "--deep", "--json"], "path");
    let run = pumice(&drive, &["doctor".as_ref(), odd.as_os_str(), "--json".as_ref()]);
    let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert!(answer.to_string().contains(&encoded), "{answer}");
    assert!(server.stop().success());
}

#[test]
fn a_file_with_a_loop_device_on_it_is_not_overwritten() {
    if !needs(&["losetup"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let odd = create(&drive);
    let run = in_time("losetup", &["--find".as_ref(), "--show".as_ref(), odd.as_os_str()]);
    if run.code != Some(0) {
        eprintln!("skipped: no loop device here: {}", run.stderr.trim());
        return;
    }
    let device = run.stdout.trim();
    let refused = pumice(&drive, &["wipe".as_ref(), odd.as_os_str(), "--yes".as_ref()]);
    in_time("losetup", &["--detach", device]);
    fails(&refused, &["in use", device]);
}
