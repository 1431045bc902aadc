//! A drive and a copy of it, served at the same time.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, needs};

/// Returns the copies that the status of a drive reports.
fn copies(drive: &Drive, path: &Path) -> Value {
    let run = drive.pumice(&["status", "--json", &text(path)]);
    let answer: Value = serde_json::from_str(&run.stdout).expect("JSON");
    answer["drives"][0]["copies"].clone()
}

#[test]
fn a_copy_served_by_the_same_server_is_a_warning_of_both() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let (second, third) = (drive.folder().join("second"), drive.folder().join("third"));
    std::fs::copy(drive.path(), &second)?;
    std::fs::copy(drive.path(), &third)?;
    let server = drive.serve_paths(&[&drive.path(), &second, &third], &[]);
    let paths = [drive.path(), second.clone(), third.clone()];
    for path in &paths {
        wait_until("the copies", || copies(&drive, path).as_array().map(Vec::len) == Some(2));
    }
    let others = json!([
        {"path": text(&second), "pid": server.pid()},
        {"path": text(&third), "pid": server.pid()},
    ]);
    let mut found = copies(&drive, &drive.path());
    found.as_array_mut().ok_or("a list")?.sort_by_key(|copy| copy["path"].to_string());
    assert_eq!(found, others);
    let shown = drive.pumice(&["status", &text(&third)]).stdout;
    let warning =
        format!("  warning: a copy of this drive (same id) is served from {} by process", text(&second));
    assert!(shown.contains(&warning), "{shown}");
    let log = drive.log();
    assert!(log.contains("WARN a copy of this drive (same id) is served, too"), "{log}");
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_copy_served_by_another_server_is_a_warning_while_it_is_served() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let copy = drive.folder().join("copy");
    std::fs::copy(drive.path(), &copy)?;
    let first = drive.serve(&[]);
    assert_eq!(copies(&drive, &drive.path()), json!([]));
    let second = drive.serve_paths(&[&copy], &[]);
    let copy_of = |of: &Path, pid: u32| json!([{"path": text(of), "pid": pid}]);
    wait_until("the second knows", || copies(&drive, &copy) == copy_of(&drive.path(), first.pid()));
    wait_until("the first knows", || copies(&drive, &drive.path()) == copy_of(&copy, second.pid()));
    second.kill();
    wait_until("it is gone", || copies(&drive, &drive.path()) == json!([]));
    assert!(drive.log().contains("is no longer served"), "{}", drive.log());
    assert!(first.stop().success());
    Ok(())
}

#[test]
fn a_change_reaches_the_copy_that_was_named() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let copy = drive.folder().join("copy");
    std::fs::copy(drive.path(), &copy)?;
    // An admin socket for both drives. It is queried first.
    let admin = format!("unix:{}", drive.file("-.sock"));
    let server = drive.serve_paths(&[&drive.path(), &copy], &["--admin", &admin]);
    let run = drive.pumice(&["set-capacity", &text(&copy), "96M"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let capacity = |path: &Path| -> Outcome<Value> {
        let run = drive.pumice(&["status", "--json", &text(path)]);
        let answer: Value = serde_json::from_str(&run.stdout)?;
        Ok(answer["drives"][0]["logical_capacity_bytes"].clone())
    };
    assert_eq!((capacity(&drive.path())?, capacity(&copy)?), (json!(64 << 20), json!(96 << 20)));
    assert!(server.stop().success());
    Ok(())
}

#[test]
fn a_bounded_number_of_servers_is_asked() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let id = drive.status()["uuid"].as_str().ok_or("an id")?.to_string();
    // Listeners that do not accept: who connects waits in their queue. The last one sorts after all others.
    let silent = |name| std::os::unix::net::UnixListener::bind(drive.runtime_dir().join(name));
    let _first = (0..70).map(|n| silent(format!("{id}-{n:02}.sock"))).collect::<Result<Vec<_>, _>>()?;
    let last = silent(format!("{id}-zz.sock"))?;
    let told = "only the first 64 are asked for copies";
    wait_until("the warning", || drive.log().contains(told));
    assert_eq!(drive.log().matches(told).count(), 1);
    last.set_nonblocking(true)?;
    assert!(last.accept().is_err(), "it is not asked");
    server.kill();
    Ok(())
}

/// Id and incarnation of a drive that nobody serves.
fn contents(drive: &Drive, path: &str) -> Outcome<(Value, Value)> {
    let answer: Value = serde_json::from_str(&drive.pumice(&["status", "--json", path]).stdout)?;
    let found = &answer["drives"][0];
    assert!(found["incarnation"].is_number(), "{answer}");
    Ok((found["uuid"].clone(), found["incarnation"].clone()))
}

/// An erased drive is closed, and its file opened again by its path.
#[test]
fn a_drive_that_is_at_the_path_by_now_is_not_erased() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let other = drive.file("other");
    assert_eq!(drive.pumice(&["create", &other, "--size", "64M", "--capacity", "64M"]).code, Some(0));
    let before = contents(&drive, &other)?;
    let socket = drive.file("admin");
    let server = drive.serve(&["--admin", &format!("unix:{socket}")]);
    let id = drive.status()["uuid"].clone();
    std::fs::rename(drive.path(), drive.file("moved"))?;
    std::fs::rename(&other, drive.path())?;
    let mut admin = std::os::unix::net::UnixStream::connect(&socket)?;
    let change = json!({"command": "change", "drive": id, "change": {"erase": {}}});
    writeln!(admin, "{change}")?;
    let mut answer = String::new();
    BufReader::new(&admin).read_line(&mut answer)?;
    assert!(answer.contains("another drive is at this path now; nothing was erased"), "{answer}");
    assert!(server.stop().success(), "{}", drive.log());
    assert_eq!(contents(&drive, &text(&drive.path()))?, before);
    Ok(())
}

/// Runs a command that asks on a terminal, and answers yes after something has happened. It must fail.
/// Returns what it prints then.
pub(crate) fn answered_after(
    drive: &Drive,
    command: &str,
    happens: impl FnOnce() -> Outcome,
) -> Outcome<String> {
    let mut asking = Command::new("timeout")
        .args(["60", "script", "--quiet", "--return", "--command", command, "/dev/null"])
        .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = asking.stdout.take().ok_or("an output")?;
    let (mut shown, mut byte) = (Vec::new(), [0]);
    while !shown.ends_with(b"go on: ") && output.read(&mut byte)? == 1 {
        shown.push(byte[0]);
    }
    happens()?;
    asking.stdin.as_mut().ok_or("an input")?.write_all(b"yes\n")?;
    let mut told = String::new();
    output.read_to_string(&mut told)?;
    assert!(!asking.wait()?.success(), "{told}");
    Ok(told)
}

/// Whoever answers the question means the drive that was there when it was asked.
#[test]
fn a_drive_that_came_to_the_path_during_the_question_is_not_wiped() -> Outcome {
    if !needs(&["script"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let (path, other) = (text(&drive.path()), drive.file("other"));
    assert_eq!(drive.pumice(&["create", &other, "--size", "64M", "--capacity", "64M"]).code, Some(0));
    let before = contents(&drive, &other)?;
    let wipe = format!("'{}' wipe '{path}'", env!("CARGO_BIN_EXE_pumice"));
    let told = answered_after(&drive, &wipe, || {
        std::fs::rename(&path, drive.file("moved"))?;
        Ok(std::fs::rename(&other, &path)?)
    })?;
    assert!(told.contains("another drive is at this path now; nothing was erased"), "{told}");
    assert_eq!(contents(&drive, &path)?, before);
    Ok(())
}

/// A copy has the same id.
#[test]
fn a_copy_that_came_to_the_path_during_the_question_is_not_wiped() -> Outcome {
    if !needs(&["script"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let (path, copy) = (text(&drive.path()), drive.file("copy"));
    std::fs::copy(&path, &copy)?;
    let before = contents(&drive, &copy)?;
    let wipe = format!("'{}' wipe '{path}'", env!("CARGO_BIN_EXE_pumice"));
    let told = answered_after(&drive, &wipe, || Ok(std::fs::rename(&copy, &path)?))?;
    assert!(told.contains("another drive is at this path now; nothing was erased"), "{told}");
    assert_eq!(contents(&drive, &path)?, before);
    // What is no drive is no question.
    let blank = drive.file("blank");
    std::fs::write(&blank, vec![0; 1 << 20])?;
    let asked = format!(
        "timeout 60 script --quiet --return --command \"'{}' wipe '{blank}'\" /dev/null",
        env!("CARGO_BIN_EXE_pumice")
    );
    let run = crate::common::in_time("sh", &["-c", &asked]);
    assert!(run.stdout.contains("not a Pumice drive") && !run.stdout.contains("yes"), "{run:?}");
    Ok(())
}
