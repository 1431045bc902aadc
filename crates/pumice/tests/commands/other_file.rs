//! A path is no identity: a drive whose file was deleted, renamed or replaced while a server has it open.

use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, Run, fails, fails_with};

/// Commands that go to the server of a drive, with the exit code of a failure. The path comes last.
const COMMANDS: [(i32, &[&str]); 12] = [
    (1, &["status", "--json"]),
    (1, &["status", "--all"]),
    (1, &["capacity"]),
    (3, &["check", "--deep"]),
    (3, &["check"]),
    (3, &["check", "--stop"]),
    (1, &["train"]),
    (1, &["settle"]),
    (1, &["wipe", "--yes"]),
    (1, &["format", "--sector", "4096", "--yes"]),
    (1, &["sfx-status"]),
    (1, &["sfx-nvme", "sfx", "change-cap", "-c", "50"]),
];
/// As those, with an argument behind the path.
const CHANGES: [[&str; 2]; 4] =
    [["set-capacity", "96M"], ["set-size", "128M"], ["set-codec", "lz4"], ["set-parity", "1/32"]];

/// Runs all commands with a path. Each must fail with one line that has all of `says`.
fn all_fail(drive: &Drive, path: &str, says: &[&str]) {
    for (code, command) in COMMANDS {
        fails_with(code, &drive.pumice(&[command, &[path]].concat()), says);
    }
    for [command, value] in CHANGES {
        fails(&drive.pumice(&[command, path, value]), says);
    }
    if rustix::process::geteuid().is_root() {
        fails(&drive.pumice(&["attach", path]), says);
        assert!(!drive.folder().join("run-attach").exists(), "a refusal leaves nothing");
    }
}

/// Returns how messages name a file.
fn inode(path: &Path) -> Outcome<String> {
    Ok(format!("inode {} of", std::fs::metadata(path)?.ino()))
}

fn uuid(drive: &Drive, path: &Path) -> String {
    let run: Run = drive.pumice(&["status", "--json", &text(path)]);
    let answer: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
    answer["drives"][0]["uuid"].as_str().expect("an id").to_string()
}

#[test]
fn no_command_takes_another_file_for_the_drive_of_its_path() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let (path, copy) = (drive.path(), drive.folder().join("copy"));
    // With the same id.
    std::fs::copy(&path, &copy)?;
    let server = drive.serve(&[]);
    let (held, pid, id) = (inode(&path)?, format!("process {}", server.pid()), uuid(&drive, &path));
    let says = |drive: &str, found: &str| [pid.clone(), held.clone(), drive.to_string(), found.to_string()];
    let all_fail = |says: [String; 4]| all_fail(&drive, &text(&path), &says.each_ref().map(String::as_str));

    std::fs::remove_file(&path)?;
    all_fail(says(&id, "nothing is at this path"));
    // What there is without a path is shown.
    assert_eq!(drive.status_of_server()["uuid"], id);

    let run = drive.pumice(&["create", &text(&path), "--size", "64M", "--capacity", "64M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    all_fail(says(&id, &inode(&path)?));
    std::fs::write(&path, "no drive")?;
    all_fail(says(&id, "not a drive"));
    std::fs::rename(&copy, &path)?;
    all_fail(says(&id, &inode(&path)?));
    assert!(server.stop().success());
    assert_eq!(uuid(&drive, &path), id, "the copy is untouched");
    assert_eq!(drive.status()["logical_capacity_bytes"], 64 << 20);
    Ok(())
}

#[test]
fn a_file_that_was_overwritten_with_another_drive_is_told() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let (path, other) = (drive.path(), drive.folder().join("other"));
    let run = drive.pumice(&["create", &text(&other), "--size", "64M", "--capacity", "64M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let (id, other_id) = (uuid(&drive, &path), uuid(&drive, &other));
    let server = drive.serve(&[]);
    // The file stays the same. What a server still writes at its start may come after the first copy.
    wait_until("it is told", || {
        let from = std::fs::File::open(&other);
        let to = std::fs::File::options().write(true).open(&path);
        std::io::copy(&mut from.expect("a drive"), &mut to.expect("a drive")).expect("copied");
        drive.pumice(&["status", &text(&path)]).code != Some(0)
    });
    all_fail(&drive, &text(&path), &[&id, &other_id, &inode(&path)?]);
    server.kill();
    Ok(())
}

#[test]
fn a_drive_is_found_by_each_path_that_leads_to_its_file() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let (path, link, hard, renamed) = (
        drive.path(),
        drive.folder().join("link"),
        drive.folder().join("hard"),
        drive.folder().join("renamed"),
    );
    symlink("drive", &link)?;
    std::fs::hard_link(&path, &hard)?;
    let server = drive.serve(&[]);
    let id = uuid(&drive, &path);
    for name in [&link, &hard] {
        assert_eq!(uuid(&drive, name), id);
    }
    std::fs::rename(&path, &renamed)?;
    assert_eq!(uuid(&drive, &renamed), id);
    let run = drive.pumice(&["set-capacity", &text(&renamed), "96M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(drive.status_of_server()["logical_capacity_bytes"], 96 << 20);
    assert!(server.stop().success());
    Ok(())
}
