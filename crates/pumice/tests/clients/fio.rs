//! fio with verification of its writes.

use crate::common::{Drive, Server, needs, succeed};

/// Returns whether fio has an nbd engine. Prints a message if not.
fn usable() -> bool {
    if !needs(&["fio"]) {
        return false;
    }
    let knows = succeed("fio", &["--enghelp"]).lines().any(|line| line.trim() == "nbd");
    if !knows {
        eprintln!("skipped: this fio has no nbd engine");
    }
    knows
}

/// Runs one workload with verification. `more` are its options.
fn fio(drive: &Drive, server: &Server, more: &[&str]) {
    let uri = format!("--uri={}", server.uri());
    let folder = format!("--aux-path={}", drive.folder().display());
    let common = [
        "--name=verify",
        "--ioengine=nbd",
        &uri,
        &folder,
        "--thread",
        "--size=48M",
        "--verify=crc32c",
        "--verify_fatal=1",
        "--buffer_compress_percentage=60",
        "--refill_buffers",
        "--randseed=7",
    ];
    succeed("fio", &[&common, more].concat());
}

/// Creates a small drive, so that cleaning is active.
fn small() -> Drive {
    Drive::create(&["--size", "64M"])
}

#[test]
fn sequential() {
    if usable() {
        let drive = small();
        fio(&drive, &drive.serve(&[]), &["--rw=write", "--bs=128k", "--iodepth=8"]);
    }
}

#[test]
fn random_blocks_rewritten_and_read_back_after_a_restart() {
    if !usable() {
        return;
    }
    let drive = small();
    let server = drive.serve(&[]);
    let load = ["--rw=randwrite", "--bs=4k", "--iodepth=32", "--end_fsync=1"];
    fio(&drive, &server, &[&load[..], &["--do_verify=0", "--loops=3", "--norandommap=0"]].concat());
    server.kill();
    let server = drive.serve(&[]);
    fio(&drive, &server, &["--rw=randread", "--bs=4k", "--iodepth=32", "--verify_only"]);
}

#[test]
fn sectors_of_512_bytes() {
    if usable() {
        let drive = small();
        let load = ["--rw=randwrite", "--bs=512", "--iodepth=16", "--size=4M"];
        fio(&drive, &drive.serve(&[]), &load);
    }
}

#[test]
fn mixed_sizes_with_flushes() {
    if usable() {
        let drive = small();
        let load = ["--rw=randrw", "--bsrange=4k-300k", "--blockalign=4k", "--iodepth=16", "--fsync=20"];
        fio(&drive, &drive.serve(&[]), &load);
    }
}

#[test]
fn several_jobs_with_trims() {
    if !usable() {
        return;
    }
    let drive = Drive::create(&["--size", "128M"]);
    let server = drive.serve(&[]);
    let jobs = ["--numjobs=3", "--size=24M", "--offset_increment=32M", "--group_reporting"];
    fio(&drive, &server, &[&jobs[..], &["--rw=randwrite", "--bs=8k", "--iodepth=8"]].concat());
    let uri = format!("--uri={}", server.uri());
    let trims = ["--name=trim", "--ioengine=nbd", &uri, "--thread", "--rw=randtrimwrite", "--bs=16k"];
    succeed("fio", &[&trims[..], &jobs[..], &["--iodepth=8"]].concat());
    assert_eq!(drive.status()["server"]["requests"]["errors_count"], 0);
    assert!(server.stop().success());
    let run = drive.pumice(&["check", "--deep", &drive.file("drive")]);
    assert_eq!(run.code, Some(0), "{run:?}");
}
