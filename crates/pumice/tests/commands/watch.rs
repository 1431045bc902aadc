//! `pumice status --watch` on a terminal provided by `script`.

use std::io::{Read, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::server::text;
use crate::common::{Drive, Outcome, needs, succeed};

#[test]
fn shows_drives_until_somebody_has_seen_enough() -> Outcome {
    if !needs(&["script"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let command = format!("stty rows 40 columns 120; {} status --watch=0.1", env!("CARGO_BIN_EXE_pumice"));
    let mut child = Command::new("timeout")
        .args(["240", "script", "--quiet", "--return", "--command", &command, "/dev/null"])
        .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    let mut stdout = child.stdout.take().ok_or("no output")?;
    let (sender, seen) = mpsc::channel();
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut part) {
            // Fails when the test stops reading.
            let _ = sender.send(part[..count].to_vec());
        }
    });
    // Unchanged cells are not written again, so later words may be incomplete. Those of the first screen are
    // complete.
    let mut screen = Vec::new();
    while !String::from_utf8_lossy(&screen).contains("q quits") {
        screen.extend(seen.recv_timeout(Duration::from_secs(240)).map_err(|_| "nothing to see")?);
    }
    stdin.write_all(b"q")?;
    let status = child.wait()?;
    let screen = String::from_utf8_lossy(&screen).into_owned();
    assert!(screen.contains("online") && screen.contains("0.0 %"), "{screen:?}");
    assert!(screen.contains(&text(&drive.path())), "{screen:?}");
    assert!(screen.contains("settling") && screen.contains("dictionaries"), "{screen:?}");
    assert_eq!(status.code(), Some(0));
    Ok(())
}

/// Shows a report again and again.
const WATCH: &str = concat!(env!("CARGO_BIN_EXE_pumice"), " status --watch=0.1");

/// Two reports, without anything that moves a cursor.
fn assert_plain(drive: &Drive, shown: &str) {
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(shown.matches("Device Status:").count() >= 2, "{shown:?}");
    assert!(shown.contains(" UTC") && shown.contains(&text(&drive.path())), "{shown:?}");
}

#[test]
fn prints_plain_reports_without_a_terminal() {
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let runtime = format!("PUMICE_RUNTIME_DIR={}", text(&drive.runtime_dir()));
    // Ends when its reader does.
    let script = format!("{WATCH} | head -n 40");
    assert_plain(&drive, &succeed("env", &[&runtime, "TERM=xterm", "sh", "-c", &script]));
}

#[test]
fn prints_plain_reports_on_a_dumb_terminal() -> Outcome {
    if !needs(&["script"]) {
        return Ok(());
    }
    let drive = Drive::create(&["--size", "64M"]);
    let _server = drive.serve(&[]);
    let mut child = Command::new("timeout")
        .args(["240", "script", "--quiet", "--command", WATCH, "/dev/null"])
        .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
        .env("TERM", "dumb")
        // With one of them the program trusts a dumb terminal with colours.
        .env_remove("CI")
        .env_remove("CLICOLOR")
        .env_remove("CLICOLOR_FORCE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().ok_or("no input")?;
    let mut stdout = child.stdout.take().ok_or("no output")?;
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    while String::from_utf8_lossy(&shown).matches("Time to Full:").count() < 2
        && let count @ 1.. = stdout.read(&mut part)?
    {
        shown.extend_from_slice(&part[..count]);
    }
    // Interrupts it.
    stdin.write_all(b"\x03")?;
    std::io::copy(&mut stdout, &mut std::io::sink())?;
    child.wait()?;
    assert_plain(&drive, &String::from_utf8_lossy(&shown));
    Ok(())
}

/// `pumice status --watch` whose output is read as it comes.
struct Watching {
    child: Child,
    stdout: ChildStdout,
    shown: String,
}

impl Watching {
    fn start(drive: &Drive, path: &[&str]) -> Outcome<Watching> {
        // It passes signals and the exit code on.
        let mut command = Command::new("timeout");
        command.args(["240", env!("CARGO_BIN_EXE_pumice"), "status", "--watch=0.1"]).args(path);
        command.env("PUMICE_RUNTIME_DIR", drive.runtime_dir());
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let stdout = child.stdout.take().ok_or("no output")?;
        Ok(Watching { child, stdout, shown: String::new() })
    }

    /// Reads on until `enough` of what was shown so far, whose length in bytes is the result.
    fn read_until(&mut self, enough: impl Fn(&str) -> bool) -> Outcome<usize> {
        let mut part = [0; 4096];
        while !enough(&self.shown) {
            let count = self.stdout.read(&mut part)?;
            assert!(count > 0, "it ended: {}", self.shown);
            self.shown += std::str::from_utf8(&part[..count])?;
        }
        Ok(self.shown.len())
    }

    /// Interrupts it, and returns its exit code and what it complained of.
    fn interrupt(mut self) -> Outcome<(Option<i32>, String)> {
        succeed("kill", &["-INT", &self.child.id().to_string()]);
        std::io::copy(&mut self.stdout, &mut std::io::sink())?;
        let output = self.child.wait_with_output()?;
        Ok((output.status.code(), String::from_utf8(output.stderr)?))
    }
}

#[test]
fn a_drive_whose_server_stopped_is_the_only_one_missing() -> Outcome {
    let (drive, other) = (Drive::create(&["--size", "64M"]), Drive::create(&["--size", "64M"]));
    let _other = drive.serve_paths(&[&other.path()], &[]);
    let server = drive.serve(&[]);
    let mut all = Watching::start(&drive, &[])?;
    let missing = format!("\n{}: no server has it\n", text(&drive.path()));
    let mut one = Watching::start(&drive, &[&text(&drive.path())])?;
    one.read_until(|shown| shown.contains("Time to Full:"))?;
    all.read_until(|shown| shown.matches(" UTC\n").count() >= 2)?;
    let report = all.shown.split(" UTC\n").nth(1).unwrap_or_default();
    let of_drives = report.split("\n\n").filter(|part| part.contains("Device Status:")).count();
    assert_eq!(of_drives, 2, "{report}");
    assert!(server.stop().success());
    one.read_until(|shown| shown.contains(&missing))?;
    let before = all.shown.len();
    all.read_until(|shown| shown[before..].matches(" UTC\n").count() >= 2)?;
    for shown in [&one.shown, &all.shown] {
        assert!(!shown.contains("no drive is being served"), "{shown}");
    }
    assert_eq!(one.interrupt()?, (Some(0), String::new()));
    assert_eq!(all.interrupt()?, (Some(0), String::new()));
    Ok(())
}

#[test]
fn drives_of_a_server_that_hangs_may_be_served() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let server = drive.serve(&[]);
    let mut all = Watching::start(&drive, &[])?;
    all.read_until(|shown| shown.contains("Time to Full:"))?;
    let pid = server.pid().to_string();
    succeed("kill", &["-STOP", &pid]);
    // A report of nothing.
    all.read_until(|shown| shown.contains(" UTC\n\n"))?;
    succeed("kill", &["-CONT", &pid]);
    assert!(!all.shown.contains("no drive is being served"), "{}", all.shown);
    let (code, complaints) = all.interrupt()?;
    assert_eq!(code, Some(0));
    assert!(complaints.contains("its drives are left out"), "{complaints}");
    assert!(server.stop().success());
    let mut all = Watching::start(&drive, &[])?;
    all.read_until(|shown| shown.contains("\nno drive is being served"))?;
    assert_eq!(all.interrupt()?.0, Some(0));
    Ok(())
}

#[test]
fn wants_a_sane_interval() {
    let drive = Drive::create(&["--size", "64M"]);
    for arguments in [&["--watch=0"][..], &["--watch=soon"], &["--watch=-1"], &["--watch", "--json"]] {
        let run = drive.pumice(&[&["status"], arguments].concat());
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{arguments:?}: {run:?}");
    }
}
