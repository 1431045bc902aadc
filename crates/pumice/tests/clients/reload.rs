//! Reload of the configuration while clients are active.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::common::server::{text, wait_until};
use crate::common::{Drive, Outcome, in_time, needs, sample, succeed};

const PYTHON: &str = "/usr/bin/python3";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/reload.py");

/// A client that writes and verifies continuously.
struct Worker {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(uri: &str) -> Outcome<Worker> {
        let mut child =
            Command::new(PYTHON).args([SCRIPT, uri]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().ok_or("piped")?;
        let output = BufReader::new(child.stdout.take().ok_or("piped")?);
        Ok(Worker { child, input, output })
    }

    fn ask(&mut self, what: &str) -> Outcome<String> {
        writeln!(self.input, "{what}")?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        Ok(line.trim().to_string())
    }

    fn count(&mut self) -> Outcome<u64> {
        Ok(self.ask("count")?.parse()?)
    }
}

#[test]
fn drives_come_and_go_while_another_is_written_to() -> Outcome {
    if !needs(&["nbdinfo", "nbdcopy", PYTHON]) {
        return Ok(());
    }
    if in_time(PYTHON, &["-c", "import nbd"]).code != Some(0) {
        eprintln!("skipped: python3-libnbd is not installed");
        return Ok(());
    }
    let drive = Drive::create(&["--size", "128M"]);
    for name in ["second", "third"] {
        let run = drive.pumice(&["create", &drive.file(name), "--size", "64M", "--capacity", "64M"]);
        assert_eq!(run.code, Some(0), "{run:?}");
    }
    let config = |names: &[&str]| {
        let mut config = format!("[server]\nnbd = [\"unix:{}\"]\n", drive.file("all"));
        for name in names {
            config += &format!("[[drive]]\npath = \"{}\"\n", drive.file(name));
        }
        config
    };
    let uri = |name: &str| format!("nbd+unix:///{name}?socket={}", drive.file("all"));
    let server = drive.serve_config(&config(&["drive", "second"]), 2);
    let mut stays = Worker::start(&uri("drive"))?;
    let mut goes = Worker::start(&uri("second"))?;
    stays.count()?;
    goes.count()?;
    for round in 0..3_u64 {
        let (comes, leaves) = if round % 2 == 0 { ("third", "second") } else { ("second", "third") };
        let before = stays.count()?;
        drive.write_config(&config(&["drive", comes]));
        server.ask_to_reload();
        wait_until("the new export", || in_time("nbdinfo", &["--size", &uri(comes)]).code == Some(0));
        assert_ne!(in_time("nbdinfo", &["--size", &uri(leaves)]).code, Some(0), "{leaves} is gone");
        assert!(stays.count()? > before, "the client of the drive that stays goes on");
        // The new drive works and stores data correctly.
        let (data, back) = (drive.file("data"), drive.file("back"));
        std::fs::write(&data, sample(round, 64 << 20))?;
        succeed("nbdcopy", &["--flush", &data, &uri(comes)]);
        succeed("nbdcopy", &[&uri(comes), &back]);
        assert!(std::fs::read(&data)? == std::fs::read(&back)?);
        if round == 0 {
            // The client of the removed drive got an error instead of wrong data, and the drive was closed
            // properly.
            let ended = goes.child.wait()?;
            assert_eq!(ended.code(), Some(3));
            wait_until("it is closed", || {
                let run = drive.pumice(&["check", "--deep", &drive.file("second")]);
                run.code == Some(0) && run.stdout.contains("closed properly")
            });
        }
    }
    assert!(stays.ask("end")?.starts_with("ok "));
    assert!(stays.child.wait()?.success());
    assert!(server.stop().success());
    let run = drive.pumice(&["check", "--deep", &text(&drive.path())]);
    assert_eq!(run.code, Some(0), "{run:?}");
    Ok(())
}
