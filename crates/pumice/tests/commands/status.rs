//! `pumice status`

use crate::common::server::text;
use crate::common::{Drive, needs, succeed};

/// Keys that scripts may count on.
const KEYS: &[&str] = &[
    "path",
    "state",
    "logical_capacity_bytes",
    "physical_size_bytes",
    "logical_used_bytes",
    "physical_used_bytes",
    "physical_reclaimable_bytes",
    "physical_free_bytes",
    "compression_ratio",
    "waf",
    "host_written_bytes",
    "host_read_bytes",
    "physical_written_bytes",
    "physical_read_bytes",
    "out_of_space",
];

#[test]
fn idle_and_served() {
    let drive = Drive::create(&["--size", "64M"]);
    let status = drive.status();
    assert_eq!(status["state"], "idle");
    assert!(status["server"].is_null());
    for key in KEYS {
        assert!(!status[key].is_null(), "{key}");
    }
    let server = drive.serve(&[]);
    let status = drive.status();
    assert_eq!(status["state"], "online");
    assert_eq!(status["server"]["pid"], server.pid());
    for key in KEYS {
        assert!(!status[key].is_null(), "{key}");
    }
}

#[test]
fn counts_what_hosts_do() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    succeed(
        "qemu-io",
        &["-f", "raw", "-c", "write -P 3 0 4M", "-c", "read 0 1M", "-c", "flush", server.uri()],
    );
    let status = drive.status();
    assert_eq!(status["host_written_bytes"], 4 << 20);
    assert_eq!(status["logical_used_bytes"], 4 << 20);
    assert!(status["host_read_bytes"].as_u64() >= Some(1 << 20));
    assert!(status["server"]["requests"]["flushes_count"].as_u64() >= Some(1));
    assert_eq!(status["server"]["requests"]["in_flight_count"], 0);
    assert!(server.stop().success());
    assert_eq!(drive.status()["host_written_bytes"], 4 << 20, "counters survive");
}

#[test]
fn for_people() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["status", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("64.00 MiB") && run.stdout.contains("67108864"), "{}", run.stdout);
}

#[test]
fn without_a_path_only_what_is_served() {
    let drive = Drive::create(&["--size", "64M"]);
    let all = |drive: &Drive| -> serde_json::Value {
        serde_json::from_str(&drive.pumice(&["status", "--json"]).stdout).expect("JSON")
    };
    assert_eq!(all(&drive)["drives"], serde_json::json!([]));
    let server = drive.serve(&[]);
    assert_eq!(all(&drive)["drives"].as_array().map(Vec::len), Some(1));
    // Its admin socket stays behind, and is nobody's.
    server.kill();
    assert_eq!(all(&drive)["drives"], serde_json::json!([]));
    let left = std::fs::read_dir(drive.folder()).expect("there").flatten();
    assert!(!left.into_iter().any(|entry| entry.path().extension().is_some_and(|it| it == "sock")));
}

#[test]
fn a_further_admin_socket() {
    let drive = Drive::create(&["--size", "64M"]);
    let admin = drive.file("admin");
    let _server = drive.serve(&["--admin", &format!("unix:{admin}")]);
    let answer = service::ask_status(std::path::Path::new(&admin)).expect("an answer");
    assert_eq!(answer.drives.len(), 1);
}
