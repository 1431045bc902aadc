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
        let changes: [(&[&str], &str); 7] = [
            (&create, "created"),
            (&["set-capacity", &path, "100M"], "changed"),
            (&["set-size", &path, "64M"], "changed"),
            (&["set-codec", &path, "lz4"], "changed"),
            (&["set-parity", &path, "1/64"], "changed"),
            (&["wipe", &path, "--yes"], "wiped"),
            (&["format", &path, "--sector", "512", "--yes"], "wiped"),
        ];
        for (command, done) in changes {
            let command = [command, json].concat();
            let (code, stderr) = run(&command, true)?;
            assert_eq!(code, Some(0), "{command:?}: {stderr}");
            assert!(stderr.contains(done) && stderr.contains("cannot write to standard output"), "{stderr}");
            let (code, stderr) = run(&command, false)?;
            assert_eq!((code, stderr.contains("standard output")), (Some(0), false), "{command:?}: {stderr}");
        }
        let _ = std::fs::remove_file(&other);
    }
    Ok(())
}

/// A failure to print a report is a failure, and names the output.
#[test]
fn a_report_that_cannot_be_written_is_an_error_of_the_output() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let (path, pages) = (text(&drive.path()), drive.file("pages"));
    let commands: [&[&str]; 9] = [
        &["status", &path],
        &["status", &path, "--json"],
        &["list", "--json"],
        &["capacity", &path],
        &["doctor", &path],
        &["plan", "--physical", "64M", "--ratio", "2"],
        &["tco", "--fields"],
        &["man", &pages],
        &["completions", "bash"],
    ];
    for command in commands {
        let (code, stderr) = run(command, true)?;
        assert_eq!(code, Some(1), "{command:?}: {stderr}");
        let expected = "pumice: cannot write to standard output: No space left on device";
        assert_eq!(stderr.lines().last(), Some(expected), "{command:?}");
        assert_eq!(run(command, false)?.0, Some(0), "{command:?}");
    }
    Ok(())
}

/// Runs a command whose standard error is closed or full, and returns its exit code.
fn unheard(drive: &Drive, redirection: &str, arguments: &[&str]) -> Option<i32> {
    let script = format!("exec \"$0\" \"$@\" {redirection}");
    let mut command = Command::new("timeout");
    command.args(["180", "sh", "-c", &script, env!("CARGO_BIN_EXE_pumice")]).args(arguments);
    command.env("PUMICE_RUNTIME_DIR", drive.runtime_dir()).stdin(Stdio::null()).stdout(Stdio::null());
    command.status().expect("coreutils are installed").code()
}

/// A panic would be 134, and a message that cannot be written must not change the code.
#[test]
fn errors_that_nobody_reads_keep_their_code() -> Outcome {
    for redirection in ["2>&-", "2>/dev/full"] {
        let drive = Drive::create(&["--size", "64M"]);
        let (path, missing) = (text(&drive.path()), drive.file("missing"));
        let config = drive.file("pumice.toml");
        std::fs::write(&config, format!("[[drive]]\npath = \"{missing}\"\n"))?;
        let commands: [(&[&str], i32); 12] = [
            (&["list"], 0),
            (&["capacity", &path], 0),
            (&["status", &missing], 1),
            (&["create", &path, "--size", "32M"], 1),
            (&["set-size", &path, "1M"], 1),
            (&["wipe", &path], 1),
            (&["serve", "--config", &config], 1),
            (&["serve", &missing], 1),
            (&["check", &missing], 3),
            (&["frobnicate"], 2),
            (&["create", &path, "--size", "many"], 2),
            (&["check", &path], 0),
        ];
        for (arguments, code) in commands {
            assert_eq!(unheard(&drive, redirection, arguments), Some(code), "{redirection} {arguments:?}");
        }
        let done = ["set-capacity", &path, "1G"];
        assert_eq!(unheard(&drive, redirection, &done), Some(0), "{redirection}: changed, with a warning");
        assert_eq!(drive.status()["logical_capacity_bytes"], 1 << 30);
    }
    Ok(())
}

/// The log goes to standard error. A drive must not be opened in its place.
#[test]
fn a_server_whose_standard_error_is_closed_serves() -> Outcome {
    let drive = Drive::create(&["--size", "64M"]);
    let mut command = Command::new("sh");
    let script = "exec \"$0\" serve \"$1\" 2>&-";
    command.args(["-c", script, env!("CARGO_BIN_EXE_pumice"), &text(&drive.path())]);
    command.env("PUMICE_LOG", "debug");
    let server = drive.start(command, 1);
    assert_eq!(drive.status()["state"], "online");
    assert!(server.stop().success());
    let check = drive.pumice(&["check", &text(&drive.path()), "--deep"]);
    assert_eq!(check.code, Some(0), "{check:?}");
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
