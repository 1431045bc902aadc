//! Execution of other programs with a timeout.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Interval between checks while waiting.
const POLL: Duration = Duration::from_millis(10);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes all waiting functions fail.
pub(crate) fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Fails if [`interrupt`] was called.
pub(crate) fn check_interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Returns whether a program is installed.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(usual).any(|dir| dir.join(program).is_file())
}

/// Creates a command in its own process group. Ctrl-C on the terminal then reaches only this process, which
/// stops the others in order.
pub(crate) fn command<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).process_group(0).stdin(Stdio::null());
    command
}

/// Runs a program and returns its standard output. Fails if the program fails. The output must fit in a pipe
/// buffer.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S], limit: Duration) -> Result<String> {
    execute(program, arguments, limit, check_interrupted)
}

/// Runs a program like [`run`], but ignores an interrupt. Use it for cleanup.
pub(crate) fn run_always<S: AsRef<OsStr>>(program: &str, arguments: &[S], limit: Duration) -> Result<String> {
    execute(program, arguments, limit, || Ok(()))
}

fn execute<S: AsRef<OsStr>>(
    program: &str,
    arguments: &[S],
    limit: Duration,
    check: impl Fn() -> Result<()>,
) -> Result<String> {
    let mut command = command(program, arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot run {program}"))?;
    let ended = wait(limit, program, || Ok(child.try_wait()?), check);
    if ended.is_err() {
        kill(&mut child);
    }
    let status = ended?;
    let output = child.wait_with_output()?;
    if !status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.trim().lines().last().unwrap_or_default().to_string();
        bail!("{program} failed ({status}): {line}");
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits until `ready` returns a value.
pub(crate) fn wait_until<T>(
    limit: Duration,
    what: &str,
    ready: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    wait(limit, what, ready, check_interrupted)
}

fn wait<T>(
    limit: Duration,
    what: &str,
    mut ready: impl FnMut() -> Result<Option<T>>,
    check: impl Fn() -> Result<()>,
) -> Result<T> {
    let since = Instant::now();
    loop {
        if let Some(answer) = ready()? {
            return Ok(answer);
        }
        check()?;
        if since.elapsed() > limit {
            bail!("{what}: not done after {} seconds", limit.as_secs());
        }
        sleep(POLL);
    }
}

/// Kills a child process.
pub(crate) fn kill(child: &mut Child) {
    // Ignores errors: the child may have ended already.
    let _ = child.kill();
    let _ = child.wait();
}
