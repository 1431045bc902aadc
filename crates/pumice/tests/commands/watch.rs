//! `pumice status --watch` on a terminal provided by `script`.

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::server::text;
use crate::common::{Drive, Outcome, needs};

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

#[test]
fn wants_a_terminal_and_a_sane_interval() {
    let drive = Drive::create(&["--size", "64M"]);
    let run = drive.pumice(&["status", "--watch"]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.stderr.contains("terminal"), "{run:?}");
    for arguments in [&["--watch=0"][..], &["--watch=soon"], &["--watch=-1"], &["--watch", "--json"]] {
        let run = drive.pumice(&[&["status"], arguments].concat());
        assert_eq!((run.code, run.stderr.lines().count()), (Some(2), 1), "{arguments:?}: {run:?}");
    }
}
