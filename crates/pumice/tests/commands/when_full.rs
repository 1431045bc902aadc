//! `serve --when-full`: a write that finds no space fails, or is held until there is some.

use std::process::{Command, Stdio};

use crate::common::server::{text, wait_until};
use crate::common::{Drive, needs, succeed};

/// A drive without space for more, and the size of a write that does not fit.
fn full(how: &str) -> (Drive, crate::common::Server, String) {
    let drive = Drive::create(&["--size", "64M", "--capacity", "256M"]);
    let data = drive.file("random");
    std::fs::write(&data, codec::testdata::random(7, 4 << 20)).expect("written");
    let server = drive.serve(&["--when-full", how, "--throttle-at", "off"]);
    let fill = |at: u64| {
        let write = format!("write -s {data} {at}M 4M");
        std::process::Command::new("qemu-io").args(["-f", "raw", "-c", &write, server.uri()]).output()
    };
    for at in (0..40).step_by(4) {
        assert!(fill(at).is_ok_and(|run| run.status.success()), "{at} MiB fit");
    }
    (drive, server, data)
}

#[test]
fn a_held_write_is_done_as_soon_as_something_is_trimmed() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let (drive, server, data) = full("wait:3600");
    let held = || drive.status()["server"]["requests"]["held_count"].as_u64();
    // One after the other, until one is held.
    let mut writing = Command::new("qemu-io");
    writing.args(["-f", "raw"]);
    for at in (40..80).step_by(4) {
        writing.args(["-c", &format!("write -s {data} {at}M 4M")]);
    }
    let mut writer =
        writing.args(["-c", "flush", server.uri()]).stdout(Stdio::null()).spawn().expect("started");
    wait_until("a write to be held", || held() == Some(1));
    wait_until("the event", || drive.log().contains("writes are held"));
    // Others go on.
    succeed("qemu-io", &["-f", "raw", "-c", "read 0 4M", "-c", "flush", server.uri()]);
    assert_eq!(held(), Some(1));
    // There is room for all of them behind it.
    succeed("qemu-io", &["-f", "raw", "-d", "unmap", "-c", "discard 0 40M", "-c", "flush", server.uri()]);
    assert!(writer.wait().expect("waited for").success());
    let status = drive.status();
    assert_eq!(status["server"]["requests"]["no_space_count"], 0, "{status:#}");
    assert_eq!(held(), Some(0));
    assert!(server.stop().success());
}

#[test]
fn an_event_of_the_full_drive_precedes_the_growth_that_ends_it() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let (drive, server, data) = full("error");
    let mut writing = vec!["-f".to_string(), "raw".to_string()];
    for at in (40..80).step_by(4) {
        writing.extend(["-c".to_string(), format!("write -s {data} {at}M 4M")]);
    }
    writing.push(server.uri().to_string());
    assert_ne!(crate::common::in_time("qemu-io", &writing).code, Some(0));
    assert_eq!(drive.pumice(&["set-size", &text(&drive.path()), "128M"]).code, Some(0));
    wait_until("the growth", || drive.log().contains("physical size"));
    wait_until("the event", || drive.log().contains("out of physical space"));
    let log = drive.log();
    let (full, grown) = (log.find("out of physical space"), log.find("physical size"));
    assert!(full < grown, "{log}");
    assert!(server.stop().success());
}

#[test]
fn a_held_write_fails_when_its_time_is_over() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let (drive, server, data) = full("wait:1");
    let mut writing = vec!["-f".to_string(), "raw".to_string()];
    for at in (40..80).step_by(4) {
        writing.extend(["-c".to_string(), format!("write -s {data} {at}M 4M")]);
    }
    writing.push(server.uri().to_string());
    let run = Command::new("qemu-io").args(&writing).output().expect("run");
    let said = String::from_utf8_lossy(&run.stdout).to_string() + &String::from_utf8_lossy(&run.stderr);
    assert!(said.contains("No space left"), "{said}");
    let status = drive.status();
    assert!(status["server"]["requests"]["held_total_count"].as_u64() >= Some(1), "{status:#}");
    assert!(server.stop().success());
}

/// The position is the drive's own: another server goes on.
#[test]
fn periodic_scrubs_outlast_their_server() {
    let drive = Drive::create(&["--size", "64M"]);
    assert!(drive.status()["scrubs"]["finished_unix_seconds"].is_null());
    let server = drive.serve(&["--scrub-every", "1h"]);
    // An empty drive is verified at once.
    wait_until("the first scrub", || !drive.status()["scrubs"]["finished_unix_seconds"].is_null());
    let served = drive.status();
    assert_eq!(served["scrubs"]["every_seconds"], 3600.0);
    assert_eq!(served["scrubs"]["finished_faults_count"], 0);
    assert!(server.stop().success());
    let idle = drive.status();
    assert_eq!(idle["scrubs"]["finished_unix_seconds"], served["scrubs"]["finished_unix_seconds"]);
    let run = drive.pumice(&["status", &text(&drive.path()), "--all"]);
    assert!(run.stdout.contains("all records verified"), "{run:?}");
}
