//! `pumice demo` succeeds and leaves nothing behind.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::attach::usable;
use crate::common::{Outcome, needs};
use crate::tools;

/// Runs the demo. Returns whether it succeeded, and its output. Fails if it leaves files or mounts behind.
fn run_demo(interrupt_after: Option<Duration>) -> Outcome<(bool, String)> {
    let (success, [out, log]) = run_demo_with(&std::env::var("PATH")?, &[], interrupt_after)?;
    Ok((success, out + &log))
}

/// Runs the demo with another `PATH` and more arguments. Returns standard output and standard error
/// separately.
fn run_demo_with(
    path: &str,
    arguments: &[&str],
    interrupt_after: Option<Duration>,
) -> Outcome<(bool, [String; 2])> {
    let folder = tempfile::tempdir()?;
    let mut child = Command::new(env!("CARGO_BIN_EXE_pumice"))
        .arg("demo")
        .args(arguments)
        .env("PATH", path)
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(after) = interrupt_after {
        std::thread::sleep(after);
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::INT,
        )?;
    }
    let ended = tools::wait_until(Duration::from_secs(240), "the demo", || Ok(child.try_wait()?));
    if ended.is_err() {
        tools::kill(&mut child);
    }
    let status = ended?;
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!(std::fs::read_dir(folder.path())?.count(), 0, "something is left behind: {said:?}");
    let mounts = std::fs::read_to_string("/proc/self/mounts")?;
    assert!(!mounts.contains(folder.path().to_str().ok_or("a plain path")?), "still mounted: {mounts}");
    Ok((status.success(), said))
}

#[test]
fn the_demo_verifies_everything() -> Outcome {
    if !needs(&["nbdcopy", "tar"]) {
        return Ok(());
    }
    let (success, said) = run_demo(None)?;
    assert!(success, "{said}");
    assert!(said.contains("compression ratio") && said.contains("no faults"), "{said}");
    if usable() {
        assert!(said.contains("The file system continued without an error"), "{said}");
    }
    Ok(())
}

#[test]
fn without_a_mount_it_shows_the_write_amplification_too() -> Outcome {
    if !needs(&["nbdcopy", "tar"]) {
        return Ok(());
    }
    // Without mount, as for a user who cannot.
    let programs = tempfile::tempdir()?;
    for program in ["nbdcopy", "tar"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?;
        let found = String::from_utf8(found.stdout)?;
        std::os::unix::fs::symlink(found.trim(), programs.path().join(program))?;
    }
    let path = programs.path().to_str().ok_or("a plain path")?;
    let (success, [out, log]) = run_demo_with(path, &["--json"], None)?;
    assert!(success && log.contains("Not mounting a file system"), "{log}");
    let found: serde_json::Value = serde_json::from_str(&out)?;
    let schema = include_str!("../../../../docs/schema/demo.json");
    jsonschema::validate(&serde_json::from_str(schema)?, &found).map_err(|error| error.to_string())?;
    assert!(found["write_amplification"].as_f64().is_some_and(|waf| waf > 0.1), "{found}");
    Ok(())
}

#[test]
fn an_interrupted_demo_takes_everything_down() -> Outcome {
    if !needs(&["nbdcopy", "tar"]) {
        return Ok(());
    }
    let (success, said) = run_demo(Some(Duration::from_secs(3)))?;
    assert!(!success && said.contains("interrupted"), "{said}");
    Ok(())
}
