//! Drives that lost the start of their backing.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::Command;

use crate::common::server::text;
use crate::common::{Drive, fails, fails_with, needs, succeed};

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;

/// Creates a drive, with 16 MiB of data.
fn written(arguments: &[&str]) -> Drive {
    let drive = Drive::create(arguments);
    write(&drive, "7");
    drive
}

fn write(drive: &Drive, pattern: &str) {
    let server = drive.serve(&[]);
    let (write, uri) = (format!("write -P {pattern} 64k 16M"), server.uri());
    succeed("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", uri]);
    assert!(server.stop().success());
}

/// Serves the drive, which has the pattern, and closes it again.
fn reads_back(drive: &Drive, pattern: &str) {
    let server = drive.serve(&[]);
    let read = format!("read -P {pattern} 64k 16M");
    let printed = succeed("qemu-io", &["-f", "raw", "-c", &read, server.uri()]);
    assert!(!printed.contains("failed"), "{printed}");
    assert!(server.stop().success());
}

fn lose(drive: &Drive, from: u64, len: u64) {
    put(drive, from, &vec![0; len as usize]);
}

fn put(drive: &Drive, at: u64, bytes: &[u8]) {
    let file = File::options().write(true).open(drive.path()).expect("opened");
    file.write_all_at(bytes, at).expect("written");
}

#[test]
fn the_start_is_written_again() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = written(&["--size", "10G"]);
    let path = text(&drive.path());
    for len in [68 * KIB, MIB, 2 * MIB] {
        lose(&drive, 0, len);
        let run = drive.pumice(&["check", &path]);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stdout.contains("superblock: blank, blank, number "), "{run:?}");
        assert!(run.stderr.contains("start of the backing was lost"), "{run:?}");
        let run = drive.pumice(&["doctor", &path, "--json"]);
        assert!(run.stdout.contains("the start of the backing was lost"), "{run:?}");
        let status = drive.status();
        assert_eq!(status["recovery"]["start_lost"], true, "{status}");
        assert!(status["notes"].to_string().contains("start of the backing was lost"), "{status}");

        reads_back(&drive, "7");
        assert!(drive.log().contains("the start of the backing was lost"), "an event");
        assert_eq!(drive.status()["recovery"]["start_lost"], false);
        let run = drive.pumice(&["check", &path, "--deep"]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
}

/// Metadata of large drives is larger.
#[test]
fn more_is_lost_of_a_large_drive() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = written(&["--size", "1T"]);
    lose(&drive, 0, 8 * MIB);
    reads_back(&drive, "7");
    lose(&drive, 0, 25 * MIB);
    reads_back(&drive, "7");
    assert_eq!(drive.pumice(&["check", &text(&drive.path()), "--deep"]).code, Some(0));
}

#[test]
fn what_lay_in_lost_segments_is_lost_and_named() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "10G"]);
    let path = text(&drive.path());
    let random = drive.file("random");
    std::fs::write(&random, codec::testdata::random(1, 16 << 20)).expect("written");
    let server = drive.serve(&[]);
    let write = format!("write -s {random} 0 16M");
    succeed("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", server.uri()]);
    assert!(server.stop().success());
    lose(&drive, 0, 4 * MIB);
    let run = drive.pumice(&["check", &path, "--deep"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let named = |line: &&str| line.starts_with("fault: ") && line.contains("record of ");
    assert!(run.stdout.lines().filter(named).count() > 10, "{run:?}");
    // The rest is there.
    let server = drive.serve(&[]);
    let reads = |at: &str| {
        let mut read = Command::new("qemu-io");
        read.args(["-f", "raw", "-c", &format!("read {at} 64k"), server.uri()]);
        let read = read.output().expect("it runs");
        !String::from_utf8_lossy(&[read.stdout, read.stderr].concat()).contains("failed")
    };
    assert_eq!([reads("0"), reads("15M")], [false, true]);
    assert!(server.stop().success());
    // With the far copies, everything is.
    lose(&drive, 0, 4 * MIB);
    lose(&drive, 8 << 30, MIB);
    fails_with(3, &drive.pumice(&["check", &path]), &["not a Pumice drive"]);
    fails(&drive.pumice(&["serve", &path]), &["not a Pumice drive"]);
}

#[test]
fn sizes_that_change_below_do_not_matter() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "1G"]);
    let path = text(&drive.path());
    File::options().write(true).open(drive.path()).expect("opened").set_len(12 << 30).expect("grown");
    let run = drive.pumice(&["create", &path, "--size", "10G", "--capacity", "10G", "--force"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    write(&drive, "8");
    lose(&drive, 0, MIB);
    reads_back(&drive, "8");
    File::options().write(true).open(drive.path()).expect("opened").set_len(40 << 30).expect("grown");
    let run = drive.pumice(&["set-size", &path, "30G"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    lose(&drive, 0, MIB);
    reads_back(&drive, "8");
    assert_eq!(drive.status()["physical_size_bytes"], 30_u64 << 30);
}

#[test]
fn what_is_left_is_not_overwritten_unasked() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = written(&["--size", "1G"]);
    let path = text(&drive.path());
    let uuid = drive.status()["uuid"].clone();
    lose(&drive, 0, MIB);
    let create = ["create", &path, "--size", "1G", "--capacity", "1G"];
    fails(
        &drive.pumice(&create),
        &["holds copies of a Pumice drive that lost its start (at byte 536936448)"],
    );
    fails(&drive.pumice(&["wipe", &path, "--yes"]), &["start"]);
    // A file system.
    put(&drive, 1080, b"\x53\xef");
    fails(&drive.pumice(&["serve", &path]), &["something else was written over the start", "byte 1080"]);
    lose(&drive, 0, 128 * KIB);
    reads_back(&drive, "7");
    assert_eq!(drive.status()["uuid"], uuid);

    lose(&drive, 0, MIB);
    // On part of the backing: the copies of the drive before lie behind it.
    let create = ["create", &path, "--size", "300M", "--capacity", "300M", "--force"];
    let run = drive.pumice(&create);
    assert_eq!(run.code, Some(0), "{run:?}");
    write(&drive, "9");
    let after = drive.status()["uuid"].clone();
    assert_ne!(after, uuid);
    lose(&drive, 0, MIB);
    reads_back(&drive, "9");
    assert_eq!(drive.status()["uuid"], after);
}
