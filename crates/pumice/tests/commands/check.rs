//! `pumice check`

use std::os::unix::fs::FileExt;

use crate::common::server::text;
use crate::common::{Drive, Outcome, fails_with, needs, sample, succeed};

/// Returns a closed drive with 16 MiB of data.
fn filled() -> Drive {
    let drive = Drive::create(&["--size", "64M", "--parity", "none"]);
    let data = drive.file("data");
    std::fs::write(&data, sample(1, 16 << 20)).expect("written");
    let server = drive.serve(&[]);
    succeed("nbdcopy", &["--flush", &data, server.uri()]);
    assert!(server.stop().success());
    drive
}

#[test]
fn a_sound_drive_has_no_faults() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = filled();
    for arguments in [&["check"][..], &["check", "--deep"]] {
        let run = drive.pumice(&[arguments, &[&text(&drive.path())]].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        assert!(run.stdout.ends_with("no faults\n"), "{run:?}");
    }
}

#[test]
fn flipped_bits_in_records_are_found() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    let drive = filled();
    let file = std::fs::File::options().read(true).write(true).open(drive.path())?;
    // A position in the middle of the data. Any page that is mostly nonzero will do, because in compressed
    // data no fixed byte pattern could be searched for.
    let mut page = vec![0; 4096];
    let mut at = 8 << 20;
    loop {
        file.read_exact_at(&mut page, at)?;
        if page.iter().filter(|byte| **byte != 0).count() > 3000 {
            break;
        }
        at += 4096;
    }
    page[2000..2016].iter_mut().for_each(|byte| *byte ^= 0x55);
    file.write_all_at(&page, at)?;
    drop(file);
    let run = drive.pumice(&["check", "--deep", &text(&drive.path())]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let faults: Vec<&str> = run.stdout.lines().filter(|line| line.starts_with("fault: ")).collect();
    assert!(!faults.is_empty(), "{run:?}");
    for fault in faults {
        for part in ["logical bytes ", "segment ", " of the backing, "] {
            assert!(fault.contains(part), "{fault}");
        }
    }
    assert!(run.stderr.contains("fault"), "{run:?}");
    Ok(())
}

/// Returns exit code and JSON output of `check`, which is printed even if there are faults.
fn checked(drive: &Drive, arguments: &[&str]) -> (Option<i32>, serde_json::Value) {
    let run = drive.pumice(&[&["check", &text(&drive.path()), "--json"], arguments].concat());
    assert!(run.stderr.lines().count() <= 1, "{run:?}");
    (run.code, serde_json::from_str(&run.stdout).expect("JSON"))
}

#[test]
fn every_structure_is_reported() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = filled();
    let (code, found) = checked(&drive, &["--deep"]);
    assert_eq!(code, Some(0), "{found}");
    assert_eq!(found["faults"], serde_json::json!([]));
    assert_eq!(found["closed_properly"], true);
    assert_eq!(found["superblock_copies"].as_array().map(Vec::len), Some(2));
    assert_eq!(found["checkpoint_copies"].as_array().map(Vec::len), Some(4));
    // 16 MiB in blocks of 4 KiB, and in leaves of 2 MiB.
    assert_eq!(found["records_count"], 4096);
    assert_eq!(found["records_verified_count"], 4096);
    assert_eq!(found["map_nodes_counts"], serde_json::json!([8, 1, 1, 1]));
    let run = drive.pumice(&["check", &text(&drive.path())]);
    for what in [
        "superblock: ",
        "checkpoint slot 0: ",
        "log: ",
        "segments: ",
        "map: 8 leaves",
        "records: 4096,",
        "fills: ",
    ] {
        assert!(run.stdout.contains(what), "{what}: {run:?}");
    }
}

#[test]
fn a_lost_copy_of_the_superblock_is_a_fault() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let file = std::fs::File::options().write(true).open(drive.path())?;
    file.write_all_at(&[0; 4096], 0)?;
    let (code, found) = checked(&drive, &[]);
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(found["faults"][0]["only_a_spare_copy"], true);
    assert_eq!(found["faults"][0]["position_bytes"], 0);
    Ok(())
}

#[test]
fn a_closed_drive_has_no_files() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["check", "--deep", "--files", &text(&drive.path())]);
    fails_with(3, &run, &["not being served", "attach and mount it"]);
}

#[test]
fn what_cannot_be_opened_is_described_as_far_as_it_goes() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let file = std::fs::File::options().write(true).open(drive.path())?;
    // Both copies of the only checkpoint.
    let (_, found) = checked(&drive, &[]);
    for copy in found["checkpoint_copies"].as_array().ok_or("copies")? {
        file.write_all_at(&[1; 4096], copy["position_bytes"].as_u64().ok_or("a position")?)?;
    }
    let (code, found) = checked(&drive, &[]);
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(found["opened"], false);
    assert_eq!(found["faults_count"], 1);
    assert_eq!(found["superblock_copies"][1]["state"], "whole");
    assert_eq!(found["checkpoint_copies"][0]["state"], "foreign");
    Ok(())
}

#[test]
fn a_served_drive_is_only_scrubbed() {
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let path = text(&drive.path());
    fails_with(3, &drive.pumice(&["check", &path]), &["serves it; --deep"]);
    for arguments in [&["check", &path, "--files"][..], &["check", &path, "--deep", "--files"]] {
        fails_with(3, &drive.pumice(arguments), &["no block device is known to be it", "--files=MOUNT"]);
    }
}

#[test]
fn nothing_is_written() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    drive.serve(&[]).kill();
    let before = std::fs::read(drive.path())?;
    let run = drive.pumice(&["check", "--deep", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("not closed properly"), "{run:?}");
    assert!(std::fs::read(drive.path())? == before);
    Ok(())
}

#[test]
fn a_served_drive_is_scrubbed_while_it_is_used() {
    if !needs(&["qemu-io"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--codec", "none", "--parity", "none"]);
    let path = text(&drive.path());
    fails_with(3, &drive.pumice(&["check", &path, "--stop"]), &["the drive is not being served"]);
    std::fs::write(drive.file("random"), codec::testdata::random(5, 1 << 20)).expect("write");
    let server = drive.serve(&[]);
    let write = format!("write -s {} 0 8M", drive.file("random"));
    succeed("qemu-io", &["-f", "raw", "-c", &write, "-c", "flush", server.uri()]);
    fails_with(3, &drive.pumice(&["check", &path]), &["--deep"]);
    fails_with(3, &drive.pumice(&["check", &path, "--stop"]), &["no scrub"]);
    let run = drive.pumice(&["check", &path, "--deep", "--rate", "1G"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("verified: 2048 records") && run.stdout.contains("no faults"), "{run:?}");
    let scrub = drive.status()["server"]["scrub"].clone();
    assert_eq!((&scrub["state"], &scrub["faults_count"]), (&"finished".into(), &0.into()));
    // A scrub that would take an hour is stopped.
    let child = std::thread::spawn({
        let (own, path) = (drive.runtime_dir().display().to_string(), path.clone());
        move || {
            std::process::Command::new(env!("CARGO_BIN_EXE_pumice"))
                .args(["check", &path, "--deep", "--rate", "2K"])
                .env("PUMICE_RUNTIME_DIR", own)
                .output()
                .expect("run")
        }
    });
    while drive.status()["server"]["scrub"]["state"] != "running" {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(drive.pumice(&["check", &path, "--stop"]).code, Some(0));
    let output = child.join().expect("it ended");
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("stopped"));
    // A sector of the backing is damaged.
    let pattern = codec::testdata::random(5, 1 << 20);
    let backing = std::fs::read(drive.path()).expect("read");
    let needle = &pattern[300 * 1024..300 * 1024 + 64];
    let at = backing.windows(64).position(|window| window == needle).expect("it is there");
    let file = std::fs::OpenOptions::new().write(true).open(drive.path()).expect("open");
    std::os::unix::fs::FileExt::write_all_at(&file, b"rotten", at as u64).expect("write");
    file.sync_all().expect("sync");
    let run = drive.pumice(&["check", &path, "--deep", "--rate", "1G"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    let said = format!("fault: logical bytes {} to {}, segment ", 300 * 1024, 304 * 1024 - 1);
    assert!(run.stdout.contains(&said) && run.stdout.contains("of the backing"), "{run:?}");
    assert!(run.stderr.contains("1 faults") || run.stderr.contains("1 fault;"), "{run:?}");
}
