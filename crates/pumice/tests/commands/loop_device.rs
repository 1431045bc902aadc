//! Drives on loop devices. The device and its file hold the same bytes, so only one server may use them.

use std::path::PathBuf;
use std::process::Command;

use crate::common::mounts::DROP_COPIES;
use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, fails, fails_with, in_time, needs, succeed};

/// A loop device, detached when the test ends.
struct LoopDevice(String);

impl LoopDevice {
    /// Attaches the drive's file. Returns `None` and prints a message if no loop device can be created.
    fn attach(drive: &Drive) -> Option<LoopDevice> {
        if !needs(&["losetup"]) {
            return None;
        }
        LoopDevice::of(&text(&drive.path()), &[])
    }

    /// Attaches any file, with more arguments for `losetup`.
    fn of(path: &str, arguments: &[&str]) -> Option<LoopDevice> {
        let run = in_time("losetup", &[&["--find", "--show", path], arguments].concat());
        if run.code != Some(0) {
            eprintln!("skipped: no loop device here: {}", run.stderr.trim());
            return None;
        }
        Some(LoopDevice(run.stdout.trim().to_string()))
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(&self.0)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        in_time("losetup", &["--detach", &self.0]);
    }
}

#[test]
fn a_loop_device_whose_file_is_deleted_is_reported() {
    let drive = Drive::create(&["--size", "64M"]);
    let Some(device) = LoopDevice::attach(&drive) else { return };
    let server = drive.serve_paths(&[&device.path()], &[]);
    let report = || -> serde_json::Value {
        let run = drive.pumice(&["status", &text(&device.path()), "--json"]);
        serde_json::from_str::<serde_json::Value>(&run.stdout).expect("JSON")["drives"][0].take()
    };
    wait_until("the device is looked at", || report()["backing"]["place"] == "in-place");
    std::fs::remove_file(drive.path()).expect("deleted");
    wait_until("the file is missed", || report()["backing"]["place"] == "deleted");
    let warnings = || report()["critical_warning"]["names"].to_string();
    wait_until("the warning", || warnings().contains("backing-deleted"));
    wait_until("the event", || {
        report()["server"]["events"]["counts"].as_array().is_some_and(|counts| {
            counts.iter().any(|count| count["event"] == "backing-deleted" && count["count"] == 1)
        })
    });
    assert!(server.stop().success());
    // Its data is there as long as the loop device is.
    assert_eq!(drive.pumice(&["check", &text(&device.path())]).code, Some(0));
}

/// Returns whether mount namespaces can be created. Prints a message if not.
fn may_unshare() -> bool {
    let may = needs(&["unshare"]) && in_time("unshare", &["--mount", "true"]).code == Some(0);
    if !may {
        eprintln!("skipped: no mount namespace can be made here");
    }
    may
}

#[test]
fn a_drive_and_a_loop_device_on_it_have_one_server() {
    let drive = Drive::create(&["--size", "64M"]);
    let Some(device) = LoopDevice::attach(&drive) else { return };
    let other = format!("unix:{}", drive.file("other"));
    for (first, second) in [(drive.path(), device.path()), (device.path(), drive.path())] {
        let server = drive.serve_paths(&[&first], &[]);
        for command in [
            &["serve", &text(&second), "--nbd", &other][..],
            &["serve", &text(&second), "--nbd", &other, "--read-only"],
            &["create", &text(&second), "--force"],
            &["wipe", &text(&second), "--yes"],
            &["check", &text(&second)],
        ] {
            let code = if command[0] == "check" { 3 } else { 1 };
            fails_with(code, &drive.pumice(command), &["in use", &text(&second)]);
        }
        assert!(server.stop().success(), "{}", drive.log());
    }
}

#[test]
fn a_file_with_a_loop_device_on_it_is_not_overwritten() -> Outcome {
    if !needs(&["mkfs.ext4", "mount", "umount"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let Some(device) = LoopDevice::attach(&drive) else { return Ok(()) };
    let refuse = |says: &[&str]| {
        let before = std::fs::read(drive.path()).expect("readable");
        for command in [
            &["create", &path, "--force"][..],
            &["wipe", &path, "--yes"],
            &["format", &path, "--sector", "512", "--yes"],
        ] {
            fails(&drive.pumice(command), &[&["in use", &path, &device.0], says].concat());
        }
        assert!(std::fs::read(drive.path()).expect("readable") == before);
    };
    refuse(&["losetup --detach"]);
    // The contents of the device do not matter: here a file system replaces the drive.
    succeed("mkfs.ext4", &["-q", &device.0]);
    let point = drive.file("mnt");
    std::fs::create_dir(&point)?;
    // ext4 itself writes nothing then.
    let mounted = in_time("mount", &["-o", "ro", &device.0, &point]);
    if mounted.code != Some(0) {
        eprintln!("skipped: no file system can be mounted here: {}", mounted.stderr.trim());
        return Ok(());
    }
    refuse(&["mounted at", &point]);
    let run = drive.pumice(&["create", &device.0, "--force"]);
    assert_eq!(in_time("umount", &[&point]).code, Some(0));
    fails(&run, &["in use: mounted at", &point]);
    Ok(())
}

/// A file system on one loop device, and other loop devices of the same file.
#[test]
fn a_second_loop_device_of_a_file_is_not_overwritten_under_the_first() -> Outcome {
    if !needs(&["mkfs.ext4", "mount", "umount"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let Some(first) = LoopDevice::attach(&drive) else { return Ok(()) };
    succeed("mkfs.ext4", &["-q", &first.0, "32M"]);
    let whole = LoopDevice::of(&path, &[]).expect("a second one");
    let part = LoopDevice::of(&path, &["--offset", "4096"]).expect("a third one");
    let point = drive.file("mnt");
    std::fs::create_dir(&point)?;
    let mounted = in_time("mount", &[&first.0, &point]);
    if mounted.code != Some(0) {
        eprintln!("skipped: no file system can be mounted here: {}", mounted.stderr.trim());
        return Ok(());
    }
    let refused = [&whole, &part].map(|device| drive.pumice(&["create", &device.0, "--force"]));
    assert_eq!(in_time("umount", &[&point]).code, Some(0));
    for run in &refused {
        fails(run, &["in use", &first.0, "mounted at", &point]);
    }
    succeed("mkfs.ext4", &["-q", "-F", &first.0, "16M"]);
    // A device for bytes that the first one does not have.
    drop(first);
    let first = LoopDevice::of(&path, &["--sizelimit", "16M"]).expect("a smaller one");
    let behind = LoopDevice::of(&path, &["--offset", "32M"]).expect("one behind it");
    assert_eq!(in_time("mount", &[&first.0, &point]).code, Some(0));
    let run = drive.pumice(&["create", &behind.0, "--force"]);
    assert_eq!(in_time("umount", &[&point]).code, Some(0));
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}

#[test]
fn a_loop_device_whose_file_is_out_of_sight_is_only_read() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let Some(device) = LoopDevice::attach(&drive) else { return Ok(()) };
    if !may_unshare() {
        return Ok(());
    }
    // The socket is outside of the directory hidden by the mount.
    let outside = tempfile::tempdir()?;
    let nbd = format!("unix:{}", text(&outside.path().join("nbd")));
    let hide = format!("{DROP_COPIES} mount -t tmpfs none \"$1\" && shift && exec \"$@\"");
    let hidden = |arguments: &[&str]| {
        let program = env!("CARGO_BIN_EXE_pumice");
        let all = ["--mount", "sh", "-c", &hide, "sh", &text(drive.folder()), program, "serve", &device.0];
        let all: Vec<String> = all.iter().chain(arguments).map(ToString::to_string).collect();
        all
    };
    let refused = in_time("unshare", &hidden(&["--nbd", &nbd]));
    fails(&refused, &["cannot be locked", &device.0, &text(&drive.path())]);
    let mut command = Command::new("unshare");
    command.args(hidden(&["--nbd", &nbd, "--read-only"]));
    let server = drive.start(command, 1);
    assert!(drive.log().contains("which is not locked"), "{}", drive.log());
    assert!(server.stop().success(), "{}", drive.log());
    Ok(())
}

#[test]
fn a_file_that_may_only_be_read_is_locked_all_the_same() {
    let drive = Drive::create(&["--size", "64M"]);
    let Some(device) = LoopDevice::attach(&drive) else { return };
    if !may_unshare() {
        return;
    }
    let path = text(&drive.path());
    let protect = format!(
        "{DROP_COPIES} mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && shift && exec \"$@\""
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &protect, "sh", &path]);
    command.args([env!("CARGO_BIN_EXE_pumice"), "serve", &device.0]);
    let server = drive.start(command, 1);
    fails(&drive.pumice(&["serve", &path]), &["in use"]);
    assert!(!drive.log().contains("not locked"), "{}", drive.log());
    assert!(server.stop().success(), "{}", drive.log());
    assert!(drive.serve(&[]).stop().success());
}
