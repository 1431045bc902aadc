//! Running programs with a limit on their time.

use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// How a program ended and what it printed.
#[derive(Debug)]
pub(crate) struct Run {
    /// Exit code; `None` if a signal ended it.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Seconds any program may take.
const LIMIT_SECONDS: &str = "180";

/// Runs a program to its end, under `timeout`.
pub(crate) fn in_time<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Run {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", LIMIT_SECONDS, program]).args(arguments).stdin(Stdio::null());
    let output = command.output().expect("coreutils are installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let run = Run { code: output.status.code(), stdout: text(&output.stdout), stderr: text(&output.stderr) };
    assert_ne!(run.code, Some(124), "{program} took more than {LIMIT_SECONDS} seconds: {run:?}");
    run
}

/// What a program prints; it must succeed.
pub(crate) fn succeed<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> String {
    let run = in_time(program, arguments);
    let said: Vec<_> = arguments.iter().map(AsRef::as_ref).collect();
    assert_eq!(run.code, Some(0), "{program} {said:?} failed:\n{}{}", run.stdout, run.stderr);
    run.stdout
}

/// Runs `pumice`, without whatever configuration this machine has.
pub(crate) fn pumice<S: AsRef<OsStr>>(arguments: &[S]) -> Run {
    let mut all: Vec<&OsStr> =
        vec!["PUMICE_CONFIG=/nonexistent/pumice.toml".as_ref(), env!("CARGO_BIN_EXE_pumice").as_ref()];
    all.extend(arguments.iter().map(AsRef::as_ref));
    in_time("env", &all)
}

/// Whether programs are installed; says which one is not, in a line that `make test` counts.
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

/// A command that must have failed, with one line that says all of this.
pub(crate) fn fails(run: &Run, says: &[&str]) {
    fails_with(1, run, says);
}

/// The same, with another exit code.
pub(crate) fn fails_with(code: i32, run: &Run, says: &[&str]) {
    assert_eq!(run.code, Some(code), "{run:?}");
    assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    assert!(says.iter().all(|word| run.stderr.contains(word)), "{says:?}: {run:?}");
}
