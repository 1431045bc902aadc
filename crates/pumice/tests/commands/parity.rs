//! Parity: `create --parity`, `set-parity`, and a drive whose backing lost pages.

use std::os::unix::fs::FileExt;

use layout::{Geometry, PAGE_BYTES, ParityForm};
use serde_json::Value;

use crate::common::server::text;
use crate::common::{Drive, Outcome, Server, fails, fails_with, needs, sample, succeed};

const SIZE: u64 = 64 << 20;

fn json(drive: &Drive, arguments: &[&str]) -> Value {
    let run = drive.pumice(arguments);
    assert_eq!(run.code, Some(0), "{run:?}");
    serde_json::from_str(&run.stdout).expect("JSON")
}

fn write(drive: &Drive, server: &Server, contents: &[u8]) {
    std::fs::write(drive.file("data"), contents).expect("written");
    succeed("nbdcopy", &["--flush", &drive.file("data"), server.uri()]);
}

fn holds(drive: &Drive, server: &Server, contents: &[u8]) {
    succeed("nbdcopy", &[server.uri(), &drive.file("back")]);
    let back = std::fs::read(drive.file("back")).expect("copied");
    assert!(back[..contents.len()] == *contents, "the drive holds something else");
}

#[test]
fn a_form_is_chosen_and_others_are_refused() {
    let drive = Drive::create(&["--size", "64M", "--parity", "1/16"]);
    let status = drive.status();
    assert_eq!(status["parity"]["form"], "1/16");
    let parity = status["physical_parity_bytes"].as_u64().expect("a number");
    assert!((SIZE / 17..SIZE / 14).contains(&parity), "{parity}");
    let sum: u64 = ["parity", "reserve", "fixed", "limit"]
        .iter()
        .map(|part| status[format!("physical_{part}_bytes")].as_u64().expect("a number"))
        .sum();
    assert_eq!(sum, SIZE);
    let other = drive.file("other");
    for form in ["1/8", "32", ""] {
        fails_with(2, &drive.pumice(&["create", &other, "--size", "64M", "--parity", form]), &["1/32"]);
        fails_with(2, &drive.pumice(&["set-parity", &text(&drive.path()), form]), &["1/32"]);
    }
    let plain = json(&drive, &["create", &other, "--size", "64M", "--json"]);
    assert_eq!(plain["parity"], ParityForm::OF_NEW_DRIVES.to_string());
}

#[test]
fn the_form_changes_with_and_without_a_server() {
    if !needs(&["nbdcopy"]) {
        return;
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "32M", "--parity", "none"]);
    let path = text(&drive.path());
    let answer = json(&drive, &["set-parity", &path, "1/64", "--json"]);
    assert_eq!((&answer["parity_before"], &answer["parity"]), (&"none".into(), &"1/64".into()));
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["parity"]["form"], "1/64");
    let contents = sample(3, 8 << 20);
    write(&drive, &server, &contents);
    let run = drive.pumice(&["set-parity", &path, "1/32"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(run.stdout.contains("parity 1/32 for what is written from now on, 1/64 until now"), "{run:?}");
    let contents = sample(4, 8 << 20);
    write(&drive, &server, &contents);
    // The change is durable immediately.
    server.kill();
    let server = drive.serve(&[]);
    assert_eq!(drive.status()["parity"]["form"], "1/32");
    holds(&drive, &server, &contents);
    assert!(server.stop().success());
    assert_eq!(drive.pumice(&["set-parity", &path, "none"]).code, Some(0));
    assert_eq!(drive.pumice(&["check", &path, "--deep"]).code, Some(0));
    let server = drive.serve(&["--read-only"]);
    fails(&drive.pumice(&["set-parity", &path, "1/16"]), &["read-only"]);
    holds(&drive, &server, &contents);
}

#[test]
fn a_drive_without_room_for_parity_stays_as_it_is() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    let drive = Drive::create_as_given(&["--size", "64M", "--parity", "none"]);
    let path = text(&drive.path());
    let capacity = drive.status()["logical_capacity_bytes"].as_u64().expect("a number");
    let server = drive.serve(&[]);
    let contents = codec::testdata::random(5, capacity as usize);
    write(&drive, &server, &contents);
    let says = ["parity 1/16 leaves room for", "free", "first"];
    fails(&drive.pumice(&["set-parity", &path, "1/16"]), &says);
    assert!(server.stop().success());
    let before = std::fs::read(drive.path())?;
    fails(&drive.pumice(&["set-parity", &path, "1/16"]), &says);
    assert!(std::fs::read(drive.path())? == before, "a refusal writes nothing");
    assert_eq!(drive.status()["parity"]["form"], "none");
    Ok(())
}

#[test]
fn lost_pages_are_repaired_and_reported() -> Outcome {
    if !needs(&["nbdcopy"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M", "--capacity", "32M", "--parity", "1/32"]);
    let path = text(&drive.path());
    let contents = codec::testdata::random(6, 16 << 20);
    let server = drive.serve(&[]);
    write(&drive, &server, &contents);
    assert!(server.stop().success());
    let geometry = Geometry::with_parity(SIZE, None, ParityForm::Part32)?;
    let file = std::fs::File::options().write(true).open(drive.path())?;
    for segment in 0..geometry.segments() {
        let at = geometry.segment_offset(segment) + 9 * PAGE_BYTES as u64;
        file.write_all_at(&codec::testdata::random(segment.into(), PAGE_BYTES), at)?;
    }
    let server = drive.serve(&[]);
    holds(&drive, &server, &contents);
    let status = drive.status();
    let repaired = status["parity"]["repaired_pages_count"].as_u64().expect("a number");
    assert!(repaired >= 10, "{repaired}");
    assert!(status["errors"]["corrected_reads_count"].as_u64() > Some(0), "{status}");
    assert_eq!(status["errors"]["corrupt_records_count"], 0);
    assert_eq!(status["parity"]["lost_pages_count"], 0);
    crate::common::server::wait_until("the event", || {
        let events = drive.status()["server"]["events"]["recent"].to_string();
        events.contains("page-repaired") && events.contains("nothing is lost")
    });
    let run = drive.pumice(&["doctor", &path]);
    assert!(run.stdout.contains("pages repaired since it was opened"), "{run:?}");
    let run = drive.pumice(&["status", "--all", &path]);
    assert!(run.stdout.contains("pages repaired") && run.stdout.contains("last at byte"), "{run:?}");
    assert!(server.stop().success());
    Ok(())
}
