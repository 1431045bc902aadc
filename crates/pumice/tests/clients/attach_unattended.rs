//! Loop devices whose bridges are killed: their server goes on, and the next bridge takes over.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use crate::attach::{Attached, fio, kill, usable};
use crate::attach_servers::Stopped;
use crate::common::mounts::unmount;
use crate::common::run::{USER, own_user};
use crate::common::server::wait_until;
use crate::common::{Outcome, fails, fails_with, in_time, sample, succeed};

/// Exit code of an `attach` that is to be tried again.
const WAITS: i32 = 4;

fn bridge(it: &Attached) -> i64 {
    it.record()["bridge_pid"].as_i64().expect("a process")
}

fn state(it: &Attached) -> String {
    it.listed()["attachment"]["state"].as_str().unwrap_or_default().to_string()
}

/// The server that has the FUSE device, or is about to get it.
fn serving(it: &Attached) -> Option<String> {
    fs::read_to_string(it.folder()?.join("serving")).ok()
}

/// Kills the bridge, and waits until that shows.
fn kill_bridge(it: &Attached) {
    kill(bridge(it));
    wait_until("the state", || state(it) == "unattended");
}

/// Starts another bridge, which takes over the device.
fn take_over(it: &Attached, node: &str) {
    let run = it.drive.pumice(&["attach", &it.path(), "--by", "loop", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}\n{}", it.logs());
    let found: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(found["device"], node);
    assert_eq!(found["taken_over"]["complete"], true, "{found}\n{}", it.logs());
    assert_eq!(state(it), "attached");
}

fn write(node: &str, data: &[u8], it: &Attached) {
    let file = it.drive.file("data");
    fs::write(&file, data).expect("written");
    succeed("dd", &[&format!("if={file}"), &format!("of={node}"), "bs=64k", "oflag=direct", "status=none"]);
}

fn read(node: &str, bytes: usize, it: &Attached) -> Vec<u8> {
    let file = it.drive.file("read");
    let count = format!("count={}", bytes >> 16);
    let (from, to) = (format!("if={node}"), format!("of={file}"));
    succeed("dd", &[&from, &to, "bs=64k", &count, "iflag=direct", "status=none"]);
    fs::read(file).expect("read")
}

#[test]
fn ext4_sees_no_kill_of_its_bridge() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "512M"]);
    let node = it.attach(&["--mkfs", "ext4"]);
    let point = it.mount(&node);
    fio(&point, true, || {
        kill_bridge(&it);
        sleep(Duration::from_millis(300));
        take_over(&it, &node);
        let before = serving(&it);
        it.kill_working_server();
        wait_until("the next server", || serving(&it) != before && state(&it) == "attached");
    });
    assert!(it.logs().contains("taken over from a bridge that was killed"), "{}", it.logs());
    // It does all that the first one did.
    kill_bridge(&it);
    assert!(it.drive.pumice(&["list"]).stdout.contains("waits for `pumice attach`"));
    fails(&it.drive.pumice(&["detach", &node]), &[&node, "mounted at"]);
    take_over(&it, &node);
    let run = it.drive.pumice(&["set-capacity", &it.path(), "640M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    wait_until("it has grown", || it.listed()["attachment"]["size_bytes"] == 640 << 20);
    unmount(&point);
    succeed("e2fsck", &["-f", "-n", &node]);
    it.detach(&node);
    let run = it.drive.pumice(&["check", "--deep", &it.path()]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

#[test]
fn a_device_without_a_bridge_is_detached_and_nothing_is_lost() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let server = it.drive.serve(&[]);
    let data = sample(3, 1 << 20);
    for force in [&[][..], &["--force"]] {
        let node = it.attach(&[]);
        kill_bridge(&it);
        let listed = it.listed();
        assert_eq!(listed["attachment"]["device"], node.as_str());
        assert!(listed["attachment"]["state_reason"].to_string().contains("`pumice attach`"), "{listed}");
        write(&node, &data, &it);
        assert!(read(&node, data.len(), &it) == data);
        fails(&it.drive.pumice(&["attach", &it.path(), "--mkfs", "ext4"]), &[&node, "without --mkfs"]);
        let run = it.drive.pumice(&[&["detach", &node], force].concat());
        assert_eq!((run.code, run.stderr.as_str()), (Some(0), ""), "{}", it.logs());
        assert!(it.folder().is_none(), "nothing is left");
    }
    let node = it.attach(&[]);
    assert!(read(&node, data.len(), &it) == data);
    it.detach(&node);
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn bridges_are_killed_in_the_middle_of_a_takeover() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let data = sample(4, 1 << 20);
    write(&node, &data, &it);
    for milliseconds in [1, 5, 10, 20, 40, 60, 90, 130, 200, 300] {
        kill(bridge(&it));
        let mut next = Command::new(env!("CARGO_BIN_EXE_pumice"))
            .args(["bridge", &it.path(), "--by", "loop"])
            .env("PUMICE_RUNTIME_DIR", it.drive.runtime_dir())
            .env(USER, own_user())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        sleep(Duration::from_millis(milliseconds));
        next.kill()?;
        next.wait()?;
        assert!(read(&node, data.len(), &it) == data, "after {milliseconds} ms\n{}", it.logs());
        take_over(&it, &node);
    }
    // One that was stopped is no other than one that works, until it is killed.
    let pid = bridge(&it);
    {
        let _stopped = Stopped::new(pid);
        fails_with(WAITS, &it.drive.pumice(&["attach", &it.path()]), &[&node, "was stopped"]);
        kill(pid);
    }
    take_over(&it, &node);
    assert!(read(&node, data.len(), &it) == data);
    it.detach(&node);
    Ok(())
}

#[test]
fn a_device_without_a_bridge_and_a_server_fails_and_the_drive_has_all() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let data = sample(5, 1 << 20);
    for stops in [false, true] {
        let node = it.attach(&[]);
        write(&node, &data, &it);
        kill_bridge(&it);
        let pid = it.record()["server_pid"].as_i64().ok_or("no server")?;
        if stops {
            succeed("kill", &["-TERM", &pid.to_string()]);
            wait_until("it has ended", || !fs::exists(format!("/proc/{pid}/exe")).unwrap_or(true));
            assert!(it.logs().contains("has no bridge"), "{}", it.logs());
        } else {
            kill(pid);
        }
        wait_until("the state", || state(&it) == "failed");
        let run =
            in_time("dd", &[&format!("if={node}"), "of=/dev/null", "bs=64k", "iflag=direct", "count=1"]);
        assert_eq!(run.code, Some(1), "{run:?}");
        let again = it.attach(&[]);
        assert!(read(&again, data.len(), &it) == data, "{}", it.logs());
        it.detach(&again);
    }
    Ok(())
}

#[test]
fn a_device_whose_fuse_connection_was_aborted_has_failed() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let point = it.drive.file("control");
    fs::create_dir(&point)?;
    let mounted = in_time("mount", &["-t", "fusectl", "none", &point]);
    if mounted.code == Some(0) {
        let backing = fs::read_to_string(format!("/sys/block/{}/loop/backing_file", &node[5..]))?;
        let connection = rustix::fs::minor(fs::metadata(backing.trim_end())?.dev());
        fs::write(format!("{point}/{connection}/abort"), "1")?;
        wait_until("the state", || state(&it) == "failed");
        let reason = it.listed()["attachment"]["state_reason"].clone();
        assert!(reason.as_str().is_some_and(|why| why.contains("FUSE connection")), "{reason}");
        assert_eq!(in_time("umount", &["--lazy", &point]).code, Some(0));
    } else {
        eprintln!("skipped: no control file system of FUSE: {mounted:?}");
    }
    it.detach(&node);
    Ok(())
}

/// Another way to attach is no reason to take a device for a dead one.
#[test]
fn a_device_that_works_is_not_given_another_kind() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&["--mkfs", "ext4"]);
    let point = it.mount(&node);
    kill_bridge(&it);
    for way in ["nbd", "ublk"] {
        fails_with(WAITS, &it.drive.pumice(&["attach", &it.path(), "--by", way]), &[&node, "--by loop"]);
    }
    fs::write(point.join("after"), sample(6, 1 << 20))?;
    rustix::fs::syncfs(fs::File::open(&point)?)?;
    take_over(&it, &node);
    unmount(&point);
    succeed("e2fsck", &["-f", "-n", &node]);
    it.detach(&node);
    Ok(())
}

/// A look at an attachment ends no request of a server that is slow, also if its process is unknown.
#[test]
fn a_server_that_does_not_answer_keeps_its_device() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let data = sample(7, 1 << 20);
    kill_bridge(&it);
    let noted = it.folder().ok_or("no folder")?.join("serving");
    let known: serde_json::Value = serde_json::from_slice(&fs::read(&noted)?)?;
    assert_eq!(known["pid"], it.record()["server_pid"]);
    for unknown in ["gone", "null"] {
        match unknown {
            "gone" => fs::remove_file(&noted)?,
            _ => fs::write(&noted, unknown)?,
        }
        {
            let _stopped = Stopped::new(it.record()["server_pid"].as_i64().ok_or("no server")?);
            assert_eq!(state(&it), "unattended");
            let run = it.drive.pumice(&["attach", &it.path()]);
            fails_with(WAITS, &run, &["unknown whether its server has the device"]);
        }
        write(&node, &data, &it);
        assert!(read(&node, data.len(), &it) == data, "{}", it.logs());
    }
    take_over(&it, &node);
    it.detach(&node);
    Ok(())
}

/// What cannot be noted for the next bridge does not keep a device from its server.
#[test]
fn a_server_gets_its_device_without_room_for_notes() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&[]);
    let data = sample(8, 1 << 20);
    let obstacle = it.folder().ok_or("no folder")?.join("serving.new");
    fs::create_dir(&obstacle)?;
    it.kill_working_server();
    write(&node, &data, &it);
    assert!(read(&node, data.len(), &it) == data, "{}", it.logs());
    assert_eq!(serving(&it), None, "that of an earlier server is not left");
    fs::remove_dir(&obstacle)?;
    kill_bridge(&it);
    take_over(&it, &node);
    it.detach(&node);
    Ok(())
}

/// Nothing else ends what waits for a server that hangs.
#[test]
fn a_mounted_device_without_a_bridge_is_given_up_by_force() -> Outcome {
    if !usable() {
        return Ok(());
    }
    let it = Attached::create(&["--size", "64M"]);
    let node = it.attach(&["--mkfs", "ext4"]);
    let point = it.mount(&node);
    kill_bridge(&it);
    {
        let _stopped = Stopped::new(it.record()["server_pid"].as_i64().ok_or("no server")?);
        fails(&it.drive.pumice(&["detach", "--force", &it.path()]), &["mounted at", "unmount it"]);
        unmount(&point);
    }
    wait_until("the state", || state(&it) == "failed");
    it.detach(&it.path());
    Ok(())
}
