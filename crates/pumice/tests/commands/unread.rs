//! Commands whose output cannot be written or is not read.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};

use crate::common::server::text;
use crate::common::{Drive, Outcome};

/// Returns exit code and standard error of a command whose standard output is full or closed.
fn run(arguments: &[&str], full: bool) -> Outcome<(Option<i32>, String)> {
    let stdout = match full {
        true => Stdio::from(File::options().write(true).open("/dev/full")?),
        false => {
            let (reader, writer) = std::io::pipe()?;
            drop(reader);
            writer.into()
        }
    };
    let output = Command::new(env!("CARGO_BIN_EXE_pumice")).args(arguments).stdout(stdout).output()?;
    Ok((output.status.code(), String::from_utf8(output.stderr)?))
}

/// The exit code reflects the change to the drive. A failure to print it is a warning.
#[test]
fn what_was_done_is_done() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    let other = drive.file("other");
    for json in [&[][..], &["--json"]] {
        let create = ["create", &other, "--size", "32M", "--force"];
        let changes: [(&[&str], &str); 6] = [
            (&create, "created"),
            (&["set-capacity", &path, "100M"], "changed"),
            (&["set-size", &path, "64M"], "changed"),
            (&["set-codec", &path, "lz4"], "changed"),
            (&["wipe", &path, "--yes"], "wiped"),
            (&["format", &path, "--sector", "512", "--yes"], "wiped"),
        ];
        for (command, done) in changes {
            let command = [command, json].concat();
            let (code, stderr) = run(&command, true)?;
            assert_eq!(code, Some(0), "{command:?}: {stderr}");
            assert!(
                stderr.contains(done) && stderr.contains("standard output cannot be written"),
                "{stderr}"
            );
            let (code, stderr) = run(&command, false)?;
            assert_eq!((code, stderr.contains("standard output")), (Some(0), false), "{command:?}: {stderr}");
        }
        let _ = std::fs::remove_file(&other);
    }
    Ok(())
}

#[test]
fn faults_that_nobody_reads_are_faults() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let path = text(&drive.path());
    assert_eq!(run(&["check", &path], true)?.0, Some(3));
    assert_eq!(run(&["check", &path], false)?.0, Some(0));
    // Damages one copy of the superblock.
    File::options().write(true).open(drive.path())?.write_all_at(&[0; 4096], 0)?;
    for full in [true, false] {
        let (code, stderr) = run(&["check", &path], full)?;
        assert_eq!(code, Some(1), "{stderr}");
    }
    Ok(())
}
