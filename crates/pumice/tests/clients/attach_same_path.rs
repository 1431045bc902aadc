//! Servers that have opened drives by one path: one before its file was moved away, another one what is there
//! now. An attached drive keeps to its own.

use std::fs;

use serde_json::Value;

use crate::attach::{Attached, usable};
use crate::common::server::wait_until;
use crate::common::{Outcome, Server, fails, sample, succeed};

/// Data of a device, in bytes.
const BYTES: usize = 1 << 20;
/// Capacity of a drive that is not the first one at the path.
const OTHER: &str = "96M";
/// Time for which requests are held, in seconds: a server that is not found ends a test.
const TIMEOUT: &str = "120";

fn write(it: &Attached, node: &str, seed: u64) {
    let data = it.drive.file("data");
    fs::write(&data, sample(seed, BYTES)).expect("written");
    succeed("dd", &[&format!("if={data}"), &format!("of={node}"), "bs=64k", "oflag=direct", "conv=fsync"]);
}

fn holds(it: &Attached, node: &str, seed: u64) -> bool {
    let read = it.drive.file("read");
    succeed("dd", &[&format!("if={node}"), &format!("of={read}"), "bs=64k", "count=16", "iflag=direct"]);
    fs::read(&read).expect("read") == sample(seed, BYTES)
}

/// Creates another drive at the path of the first.
fn create_other(it: &Attached) {
    let run = it.drive.pumice(&["create", &it.path(), "--size", "64M", "--capacity", OTHER]);
    assert_eq!(run.code, Some(0), "{run:?}");
}

/// A server of what is at the path now, with sockets of its own.
fn serve(it: &Attached, name: &str) -> Server {
    it.drive.serve(&["--nbd", &format!("unix:{}", it.drive.file(name))])
}

/// The drives in `list --json` with a device.
fn attached(it: &Attached) -> Vec<Value> {
    let run = it.drive.pumice(&["list", "--json"]);
    let mut list: Value = serde_json::from_str(&run.stdout).expect("JSON");
    let drives = list["drives"].as_array_mut().expect("drives");
    drives.drain(..).filter(|drive| !drive["attachment"].is_null()).collect()
}

/// Waits until requests are held because process `server` has another drive.
fn wait_for_server(it: &Attached, server: &Server) {
    let reason = format!("process {} serves another drive", server.pid());
    wait_until("requests are held", || {
        let attached = attached(it);
        let attachment = &attached[0]["attachment"];
        attachment["state"] == "waiting" && attachment["state_reason"].to_string().contains(&reason)
    });
}

#[test]
fn a_server_of_another_drive_at_the_path_does_not_hide_the_right_one() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let other = serve(&it, "other");
    fs::remove_file(it.drive.path())?;
    create_other(&it);
    let server = serve(&it, "own");
    let node = it.attach(&["--timeout", TIMEOUT]);
    write(&it, &node, 1);
    server.kill();
    wait_for_server(&it, &other);
    let server = serve(&it, "own");
    assert!(holds(&it, &node, 1), "{}", it.logs());
    write(&it, &node, 2);
    it.detach(&node);
    assert!(server.stop().success() && other.stop().success());
    Ok(())
}

/// A copy has the same id, and its log may have gone further.
#[test]
fn a_copy_that_was_at_the_path_is_not_taken_for_the_drive() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let copy = it.drive.file("copy");
    fs::copy(it.drive.path(), &copy)?;
    let other = serve(&it, "other");
    let node = it.attach(&[]);
    (1..4).for_each(|seed| write(&it, &node, seed));
    it.detach(&node);
    fs::rename(it.drive.path(), it.drive.file("moved"))?;
    fs::rename(&copy, it.drive.path())?;
    let server = serve(&it, "own");
    let node = it.attach(&["--timeout", TIMEOUT]);
    write(&it, &node, 4);
    server.kill();
    wait_for_server(&it, &other);
    let server = serve(&it, "own");
    assert!(holds(&it, &node, 4), "{}", it.logs());
    it.detach(&node);
    assert!(server.stop().success() && other.stop().success());
    Ok(())
}

#[test]
fn a_server_of_another_drive_keeps_no_bridge_from_starting_its_own() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let (path, right) = (it.drive.path(), it.drive.file("right"));
    let node = it.attach(&["--timeout", TIMEOUT]);
    write(&it, &node, 1);
    fs::rename(&path, &right)?;
    create_other(&it);
    let other = serve(&it, "other");
    fs::rename(&path, it.drive.file("moved"))?;
    fs::rename(&right, &path)?;
    it.kill_server_at_once();
    assert!(holds(&it, &node, 1), "{}", it.logs());
    it.detach(&node);
    assert!(other.stop().success());
    Ok(())
}

#[test]
fn a_device_is_shown_with_its_drive() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let first = serve(&it, "first");
    let its_line = |node: &str, capacity: u64| {
        let drives = attached(&it);
        assert_eq!(drives.len(), 1, "{drives:?}");
        assert_eq!(drives[0]["logical_capacity_bytes"], capacity, "{drives:?}");
        assert_eq!(drives[0]["attachment"]["device"], node);
        let run = it.drive.pumice(&["list", "--no-header"]);
        let line = run.stdout.lines().find(|line| line.contains(node)).expect("a line");
        assert!(line.contains(&format!(" {}.00 MiB", capacity >> 20)), "{run:?}");
    };
    // The devices of both, in turn: one of the drives is the first in the list.
    let node = it.attach(&[]);
    fs::rename(it.drive.path(), it.drive.file("moved"))?;
    create_other(&it);
    let second = serve(&it, "second");
    its_line(&node, 64 << 20);
    // A number is the name of one drive.
    let run = it.drive.pumice(&["sfx-nvme", "list"]);
    let names = run.stdout.lines().filter(|line| line.starts_with("/dev/sfdv"));
    assert_eq!(names.count(), 1, "{run:?}");
    it.detach(&node);
    let node = it.attach(&[]);
    its_line(&node, 96 << 20);
    it.detach(&node);
    assert!(first.stop().success() && second.stop().success());
    Ok(())
}

/// Erasing a device erases what it is made of, and nothing that is at the path of that by now.
#[test]
fn no_other_drive_is_erased_by_the_name_of_a_device() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let first = serve(&it, "first");
    let node = it.attach(&[]);
    fs::rename(it.drive.path(), it.drive.file("moved"))?;
    create_other(&it);
    let second = serve(&it, "second");
    for name in [&node, "0"] {
        for command in [
            &["sfx-nvme", "format", name, "-l", "1", "--force"][..],
            &["sfx-nvme", "sfx", "change-cap", name, "-c", "1"],
        ] {
            fails(&it.drive.pumice(command), &[name, "is the device of another drive", &it.path()]);
        }
    }
    let status = it.drive.status();
    assert_eq!((&status["incarnation"], &status["sector_bytes"]), (&0.into(), &512.into()), "{status}");
    assert_eq!(status["logical_capacity_bytes"], 96 << 20);
    it.detach(&node);
    assert!(first.stop().success() && second.stop().success());
    Ok(())
}

#[test]
fn an_attached_drive_is_not_made_anew_while_its_server_is_down() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let server = serve(&it, "own");
    let node = it.attach(&["--timeout", TIMEOUT]);
    write(&it, &node, 1);
    server.kill();
    let (path, link, moved) = (it.path(), it.drive.file("link"), it.drive.file("moved"));
    fs::hard_link(&path, &link)?;
    let refused = |name: &str| {
        for command in [&["create", name, "--force"][..], &["wipe", name, "--yes"]] {
            fails(&it.drive.pumice(command), &["attached as ", &node, "detach it first"]);
        }
    };
    refused(&path);
    refused(&link);
    // Nothing is at its path.
    fs::rename(&path, &moved)?;
    refused(&moved);
    refused(&link);
    fs::rename(&moved, &path)?;
    let server = serve(&it, "own");
    assert!(holds(&it, &node, 1), "{}", it.logs());
    it.detach(&node);
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_path_detaches_the_drive_that_is_there() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let first = serve(&it, "first");
    let node = it.attach(&["--timeout", TIMEOUT]);
    fs::rename(it.drive.path(), it.drive.file("moved"))?;
    create_other(&it);
    let second = serve(&it, "second");
    for option in [&[][..], &["--force"]] {
        let run = it.drive.pumice(&[&["detach", &it.path()], option].concat());
        fails(&run, &["another drive is attached as ", &node, "name its device"]);
    }
    assert_eq!(attached(&it)[0]["attachment"]["state"], "attached");
    it.detach(&node);
    assert!(first.stop().success() && second.stop().success());
    Ok(())
}
