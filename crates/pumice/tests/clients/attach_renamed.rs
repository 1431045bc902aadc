//! An attached drive whose name passes to another drive of its server, and whose place to a copy.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;

use crate::attach::{Attached, kill, usable};
use crate::attach_servers::{Stopped, attachment, holds, server_of, write};
use crate::common::server::wait_until;
use crate::common::{Outcome, fails, sample, succeed};

const BLOCK: usize = 4096;

/// A reload swaps the names of two drives and opens the attached one anew, so that its bridge connects again.
#[test]
fn what_is_written_to_a_device_stays_in_its_drive() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let other = it.drive.file("other");
    assert_eq!(it.drive.pumice(&["create", &other, "--size", "64M", "--capacity", "64M"]).code, Some(0));
    let config = |names: [&str; 2], write_cache: bool| {
        format!(
            "[server]\nnbd = [\"unix:{}\"]\n[[drive]]\npath = \"{}\"\nname = \"{}\"\nwrite-cache = {write_cache}\n\
             [[drive]]\npath = \"{other}\"\nname = \"{}\"\n",
            it.drive.file("all"),
            it.path(),
            names[0],
            names[1],
        )
    };
    let server = it.drive.serve_config(&config(["one", "two"], true), 2);
    let node = it.attach(&[]);
    let mut write_cache = true;
    for round in 0..6_u64 {
        write_cache = !write_cache;
        let names = if round % 2 == 0 { ["two", "one"] } else { ["one", "two"] };
        it.drive.reload(&server, &config(names, write_cache));
        let mut device = std::fs::File::options().write(true).custom_flags(libc::O_DSYNC).open(&node)?;
        device.seek(SeekFrom::Start(round * BLOCK as u64))?;
        device.write_all(&sample(round, BLOCK))?;
    }
    it.detach(&node);
    assert!(server.stop().success(), "{}", it.drive.log());
    let used = |path: &str| -> Outcome<u64> {
        let report: serde_json::Value =
            serde_json::from_str(&succeed(env!("CARGO_BIN_EXE_pumice"), &["status", "--json", path]))?;
        Ok(report["drives"][0]["logical_used_bytes"].as_u64().ok_or("a number")?)
    };
    assert_eq!((used(&it.path())?, used(&other)?), (6 * BLOCK as u64, 0));
    Ok(())
}

/// The drive is copied while it is attached, its server is killed, and it goes on from the copy. Then its
/// first file is in its place again, which lacks what was acknowledged since. Its own last memory fits it.
#[test]
fn a_device_that_went_on_from_a_copy_does_not_go_back() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    write(&node, 3);
    let (first, copy) = (it.drive.file("first"), it.drive.file("copy"));
    let place = |from: &str, to: &str| fs::rename(from, to);
    succeed("sync", &[&node]);
    let server = server_of(&it.drive, &it.path());
    {
        // It goes on writing by itself: a copy may lack that.
        let _stopped = Stopped::new(server);
        fs::copy(it.drive.path(), &copy)?;
        place(&it.path(), &first)?;
        place(&copy, &it.path())?;
        kill(server);
    }
    let attachment = |key: &str| attachment(&it.drive)[key].clone();
    let (state, reason) = (|| attachment("state"), || attachment("state_reason").to_string());
    wait_until("a server", || state() == "attached" && server_of(&it.drive, &it.path()) != server);
    write(&node, 4);
    wait_until("the bridge", || it.record()["drive_opens_count"] == 2);
    // Once something later is known to be durable, that is the reason.
    let is_refused = || ["another copy", "an older state"].iter().any(|it| reason().contains(it));
    for round in 0..3 {
        let server = server_of(&it.drive, &it.path());
        place(&it.path(), &copy)?;
        place(&first, &it.path())?;
        kill(server);
        wait_until("a refusal", is_refused);
        place(&it.path(), &first)?;
        place(&copy, &it.path())?;
        wait_until("the device", || state() == "attached");
        assert!(holds(&node, 4 + round), "{}", it.logs());
        write(&node, 5 + round);
    }
    let server = server_of(&it.drive, &it.path());
    place(&it.path(), &copy)?;
    place(&first, &it.path())?;
    kill(server);
    wait_until("a refusal", is_refused);
    fails(&it.drive.pumice(&["detach", &node, "--force"]), &["what was acknowledged is not there"]);
    Ok(())
}

/// A copy that was made while the drive was in use takes its place, with another directory: no mark of the
/// bridge tells the next server that this is an attached drive.
#[test]
fn a_copy_in_another_directory_in_the_place_of_the_drive_is_refused() -> Outcome {
    if !usable() {
        return Ok(());
    }
    for signal in ["-KILL", "-TERM"] {
        let it = Attached::create(&["--size", "64M"]);
        let at = |name: &str| it.drive.file(name);
        let (x, y, z) = (at("x"), at("y"), at("z"));
        fs::create_dir(&x)?;
        fs::create_dir(&y)?;
        let path = format!("{x}/drive");
        fs::rename(it.drive.path(), &path)?;
        let run = it.drive.pumice(&["attach", &path, "--by", "loop"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let node = run.stdout.trim().to_string();
        write(&node, 3);
        succeed("sync", &[&node]);
        fs::copy(&path, format!("{y}/drive"))?;
        write(&node, 4);
        let server = server_of(&it.drive, &path);
        fs::rename(&x, &z)?;
        fs::rename(&y, &x)?;
        succeed("kill", &[signal, &server.to_string()]);
        let (state, reason) =
            (|| attachment(&it.drive)["state"].clone(), || attachment(&it.drive)["state_reason"].to_string());
        let refused = ["another copy", "an older state", "are lost"];
        wait_until("a refusal", || refused.iter().any(|why| reason().contains(why)));
        fs::rename(&x, &y)?;
        fs::rename(&z, &x)?;
        wait_until("the device", || state() == "attached" && reason() == "null");
        assert!(holds(&node, 4), "{}", it.logs());
        it.detach(&node);
    }
    Ok(())
}
