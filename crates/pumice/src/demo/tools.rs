//! Running other programs, never longer than allowed.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How often something waited for is looked at.
const POLL: Duration = Duration::from_millis(10);
/// How long a program that was asked to end may take before it is killed. A server trains a dictionary to its end before.
const PATIENCE: Duration = Duration::from_secs(60);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Makes everything that waits give up.
pub(crate) fn interrupt() {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Fails once [`interrupt`] was called.
pub(crate) fn check_interrupted() -> Result<()> {
    if INTERRUPTED.load(Ordering::SeqCst) {
        bail!("interrupted");
    }
    Ok(())
}

/// Whether a program is installed.
pub(crate) fn installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/local/sbin", "/usr/sbin", "/sbin"].map(Into::into);
    std::env::split_paths(&path).chain(usual).any(|dir| dir.join(program).is_file())
}

/// A command in a process group of its own: Ctrl-C on the terminal is for us to handle, in our order.
pub(crate) fn command<S: AsRef<OsStr>>(program: &str, arguments: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).process_group(0).stdin(Stdio::null());
    command
}

/// Runs a program to its end; what it printed. It must succeed, and print little.
pub(crate) fn run<S: AsRef<OsStr>>(program: &str, arguments: &[S], limit: Duration) -> Result<String> {
    execute(program, arguments, limit, check_interrupted)
}

/// The same, interrupted or not: for taking down what was put up.
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

/// Waits for `ready` to answer.
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

/// Ends a child at once.
pub(crate) fn kill(child: &mut Child) {
    // Ended already, both times, is as good.
    let _ = child.kill();
    let _ = child.wait();
}

/// Asks a child to end, and kills it if it does not; true if it ended well.
pub(crate) fn terminate(child: &mut Child) -> bool {
    let pid = Pid::from_child(child);
    // Not through a handle that may be stale: the child is not waited for yet, so its number is still its own.
    let _ = kill_process(pid, Signal::TERM);
    let since = Instant::now();
    while since.elapsed() < PATIENCE {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => sleep(POLL),
            Err(_) => break,
        }
    }
    kill(child);
    false
}
