//! What the host sees of an attached drive: the queue of its loop device, and what udev asks.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Pid, Signal, kill_process};

use crate::attach::{Attached, usable};
use crate::common::{Outcome, in_time, needs, pumice, succeed};

fn attribute(node: &str, name: &str) -> PathBuf {
    PathBuf::from(format!("/sys/block/{}/queue/{name}", &node[5..]))
}

fn shown(node: &str, name: &str) -> String {
    fs::read_to_string(attribute(node, name)).unwrap_or_default().trim_end().to_string()
}

#[test]
fn limits_fit_the_blocks_of_the_drive() {
    if !usable() {
        return;
    }
    for sector in ["512", "4096"] {
        let it = Attached::create(&["--size", "64M", "--sector", sector]);
        let node = it.attach(&[]);
        for (name, value) in [
            ("logical_block_size", sector),
            ("physical_block_size", sector),
            ("discard_granularity", "4096"),
            ("rotational", "0"),
            ("write_cache", "write back"),
        ] {
            assert_eq!(shown(&node, name), value, "{name}");
        }
        it.detach(&node);
    }
}

/// An administrator has made a loop device "write through" when it was another disk.
#[test]
fn a_device_that_was_another_disk_sends_flushes() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let doctor = |word: &str| {
        let run = it.drive.pumice(&["doctor", &it.path()]);
        let line = run.stdout.lines().find(|line| line.contains(" flush-above ")).map(str::to_string);
        assert!(line.as_ref().is_some_and(|line| line.contains(word)), "{word}: {line:?}");
    };
    let node = it.attach(&[]);
    doctor("passes flushes on");
    fs::write(attribute(&node, "write_cache"), "write through")?;
    assert_eq!(shown(&node, "write_cache"), "write through");
    doctor("a power cut loses synced data");
    it.detach(&node);
    let node = it.attach(&[]);
    assert_eq!(shown(&node, "write_cache"), "write back");
    it.detach(&node);
    Ok(())
}

#[test]
fn udev_is_told_the_id_of_a_drive_whose_server_hangs() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let properties = |node: &str| {
        let run = it.drive.pumice(&["udev", &node[5..]]);
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{run:?}");
        run.stdout
    };
    let expected = format!("PUMICE_UUID={}\n", it.record()["drive_uuid"].as_str().ok_or("an id")?);
    assert_eq!(properties(&node), expected);
    let server =
        it.record()["server_pid"].as_i64().and_then(|pid| Pid::from_raw(pid as i32)).ok_or("a server")?;
    kill_process(server, Signal::STOP)?;
    assert_eq!(properties(&node), expected);
    kill_process(server, Signal::CONT)?;
    // A device of something else.
    let file = it.drive.file("other");
    fs::write(&file, [0; 4096])?;
    let other = succeed("losetup", &["--find", "--show", &file]);
    assert_eq!(properties(other.trim()), "");
    succeed("losetup", &["--detach", other.trim()]);
    it.detach(&node);
    assert_eq!(properties(&node), "");
    Ok(())
}

#[test]
fn udev_takes_the_rules() -> Outcome {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/udev/61-pumice.rules");
    let text = fs::read_to_string(rules)?;
    let asked = text.lines().find_map(|line| line.strip_prefix("IMPORT{program}=\"/usr/bin/pumice "));
    let asked = asked.and_then(|line| line.strip_suffix('"')).ok_or("a program")?;
    let arguments: Vec<&str> =
        asked.split(' ').map(|word| if word == "$kernel" { "loop0" } else { word }).collect();
    assert_eq!(pumice(&arguments).code, Some(0), "{arguments:?}");
    if !needs(&["udevadm"]) {
        return Ok(());
    }
    let verified = in_time("udevadm", &["verify", rules]);
    if verified.stderr.to_lowercase().contains("unknown command") {
        eprintln!("skipped: this udevadm is too old");
        return Ok(());
    }
    assert_eq!(verified.code, Some(0), "{verified:?}");
    Ok(())
}
