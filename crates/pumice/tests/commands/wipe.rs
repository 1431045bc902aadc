//! `pumice wipe` and `pumice format`

use crate::common::server::text;
use crate::common::{Drive, fails, needs, succeed};

fn written() -> Drive {
    let drive = Drive::create(&["--size", "64M", "--capacity", "100M"]);
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 7 0 8M", "-c", "flush", server.uri()]);
    assert!(server.stop().success());
    drive
}

#[test]
fn everything_goes_but_identity_and_wear() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = written();
    let path = text(&drive.path());
    let before = drive.status();
    assert_eq!(before["logical_used_bytes"], 8 << 20);
    // Requires a confirmation.
    fails(&drive.pumice(&["wipe", &path]), &["--yes"]);
    assert_eq!(drive.status()["logical_used_bytes"], 8 << 20);
    let run = drive.pumice(&["wipe", &path, "--yes"]);
    assert_eq!((run.code, run.stdout.contains("wiped")), (Some(0), true), "{run:?}");
    let after = drive.status();
    assert_eq!(after["logical_used_bytes"], 0);
    assert_eq!(after["host_written_bytes"], 0);
    assert_eq!(after["uuid"], before["uuid"]);
    assert_eq!(after["logical_capacity_bytes"], 100 << 20);
    let server = drive.serve(&[]);
    succeed("qemu-io", &["-f", "raw", "-c", "read -P 0 0 8M", "-c", "write -P 9 0 1M", server.uri()]);
    // A drive in use is not wiped.
    fails(&drive.pumice(&["wipe", &path, "--yes"]), &["in use"]);
    succeed("qemu-io", &["-f", "raw", "-c", "read -P 9 0 1M", server.uri()]);
}

#[test]
fn only_a_wipe_makes_the_capacity_smaller() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = written();
    let path = text(&drive.path());
    let run = drive.pumice(&["wipe", &path, "--yes", "--capacity", "10M", "--no-discard"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(drive.status()["logical_capacity_bytes"], 10 << 20);
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
}

#[test]
fn another_sector_size_wipes_too() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = written();
    let path = text(&drive.path());
    fails(&drive.pumice(&["format", &path, "--sector", "4096"]), &["--yes"]);
    assert_eq!(drive.status()["sector_bytes"], 512);
    let run = drive.pumice(&["format", &path, "--sector", "4096", "--yes"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let status = drive.status();
    assert_eq!((&status["sector_bytes"], &status["logical_used_bytes"]), (&4096.into(), &0.into()));
}

#[test]
fn bad_input_wipes_nothing() {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    std::fs::write(drive.file("text"), vec![b'x'; 100_000]).expect("write");
    for (arguments, code, says) in [
        (vec!["wipe", &drive.file("nothing"), "--yes"], 1, "o such file"),
        (vec!["wipe", &drive.file("text"), "--yes"], 1, "not a Pumice drive"),
        (vec!["wipe", "/", "--yes"], 1, "directory"),
        (vec!["wipe", "--yes"], 2, "required"),
        (vec!["wipe", &path, "--yes", "--capacity", "0"], 1, "capacity"),
        (vec!["wipe", &path, "--yes", "--capacity", "300T"], 1, "256 TiB"),
        (vec!["wipe", &path, "--yes", "--capacity", "some"], 2, "expected a size"),
        (vec!["format", &path, "--yes"], 2, "--sector"),
        (vec!["format", &path, "--yes", "--sector", "520"], 2, "520"),
        (vec!["format", &drive.file("text"), "--yes", "--sector", "512"], 1, "not a Pumice drive"),
    ] {
        let run = drive.pumice(&arguments);
        assert_eq!(run.code, Some(code), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(says), "{arguments:?}: {run:?}");
    }
    assert_eq!(std::fs::read(drive.file("text")).expect("read"), vec![b'x'; 100_000]);
    assert_eq!(drive.status()["logical_capacity_bytes"], 64 << 20);
}
