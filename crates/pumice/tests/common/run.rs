//! Execution of programs with a time limit.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Exit code and output of a program.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Time limit for any program, in seconds.
const LIMIT_SECONDS: &str = "400";

pub(crate) use launch::USER;

/// The user who runs the tests.
pub(crate) fn own_user() -> String {
    rustix::process::geteuid().as_raw().to_string()
}

/// Runs a program to its end under `timeout`.
pub(crate) fn in_time<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Run {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT_SECONDS, program]).args(arguments);
    command.stdin(Stdio::null()).env(USER, own_user());
    let output = command.output().expect("coreutils are installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let run = Run { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) };
    assert_ne!(run.code, Some(124), "{program} took more than {LIMIT_SECONDS} seconds: {run:?}");
    run
}

/// Returns the standard output of a program, which must succeed.
pub(crate) fn succeed<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> String {
    let run = in_time(program, arguments);
    let said: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert_eq!(run.code, Some(0), "{program} {said:?} failed:\n{}{}", run.stdout, run.stderr);
    run.stdout
}

/// Runs `pumice` without the configuration of this machine.
pub(crate) fn pumice<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    let mut all: Vec<&OsStr> =
        vec!["PUMICE_CONFIG=/nonexistent/pumice.toml".as_ref(), env!("CARGO_BIN_EXE_pumice").as_ref()];
    all.extend(arguments.iter().map(AsRef::as_ref));
    in_time("env", &all)
}

/// Returns whether programs are installed. Prints the first missing one in a line that `make test` counts.
pub(crate) fn needs(programs: &[&str]) -> bool {
    for program in programs {
        let known = Command::new("sh").args(["-c", &format!("command -v {program}")]).output();
        if !known.is_ok_and(|output| output.status.success()) {
            eprintln!("skipped: {program} is not installed");
            return false;
        }
    }
    true
}

/// Expects a failure with exit code 1 and one line that contains all of `says`.
pub(crate) fn fails(run: &Run, says: &[&str]) {
    fails_with(1, run, says);
}

/// Expects a failure with this exit code and one line that contains all of `says`.
pub(crate) fn fails_with(code: i32, run: &Run, says: &[&str]) {
    assert_eq!(run.code, Some(code), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(says.iter().all(|word| run.stderr.contains(word)), "{says:?}: {run:?}");
}
