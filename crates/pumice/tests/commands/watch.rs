//! `pumice status --watch` on a terminal provided by `script`.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
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
        .args(["60", "script", "--quiet", "--return", "--command", &command, "/dev/null"])
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
        screen.extend(seen.recv_timeout(Duration::from_secs(30)).map_err(|_| "nothing to see")?);
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
        .args(["60", "script", "--quiet", "--command", WATCH, "/dev/null"])
        .env("PUMICE_RUNTIME_DIR", drive.runtime_dir())
        .env("TERM", "dumb")
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

#[test]
fn wants_a_sane_interval() {
    let drive = Drive::create(&["--size", "64M"]);
    for arguments in [&["--watch=0"][..], &["--watch=soon"], &["--watch=-1"], &["--watch", "--json"]] {
        let run = drive.pumice(&[&["status"], arguments].concat());
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{arguments:?}: {run:?}");
    }
}
