//! The server of the demo: a child process with this program.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ask::ask_status;
use launch::{RUNTIME_DIR, Readiness, Serve};
use status::StatusReport;

use super::say;
use super::tools::{check_interrupted, run, run_always};
use crate::human;

const LIMIT: Duration = Duration::from_secs(30);
/// Time that the server may take to end before it is killed: it finishes the training of a dictionary first.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of attaching and detaching.
const ATTACH_LIMIT: Duration = Duration::from_secs(120);

/// A child process that serves the drive; killed when dropped.
pub(super) struct Server {
    process: launch::Server,
    folder: PathBuf,
    /// Time from the start of the process until the drive was open.
    pub(super) ready_after: Duration,
}

impl Server {
    /// Path of the NBD socket.
    pub(super) fn socket(folder: &Path) -> PathBuf {
        folder.join("nbd.sock")
    }

    /// Starts a server for the file `drive` in `folder`.
    pub(super) fn start(folder: &Path) -> Result<Server> {
        // Ctrl-C on the terminal reaches only this process, which stops the server in order.
        let serve = Serve::new(Path::new(&own_program()?))
            .drive(&folder.join("drive"))
            .nbd(&Server::socket(folder))
            .admin(&folder.join("admin.sock"))
            .runtime_dir(&runtime_dir(folder))
            .in_own_group();
        let since = Instant::now();
        let mut process = serve.start(&folder.join("log")).context("cannot start the server")?;
        match process.wait_ready(1, LIMIT, || check_interrupted().is_err())? {
            Readiness::Serves => {}
            Readiness::Ended(status) => {
                bail!("the server ended ({status}): {}", process.logged().lines().last().unwrap_or_default())
            }
            Readiness::Interrupted => check_interrupted()?,
            Readiness::Late => bail!("the server: not done after {} seconds", LIMIT.as_secs()),
        }
        Ok(Server { process, folder: folder.to_path_buf(), ready_after: since.elapsed() })
    }

    /// Starts a server again after a kill, and prints what recovery took.
    pub(super) fn restart(folder: &Path) -> Result<Server> {
        let server = Server::start(folder)?;
        say_recovered(&server.status()?, server.ready_after);
        Ok(server)
    }

    /// Returns the status of the drive.
    pub(super) fn status(&self) -> Result<StatusReport> {
        let answer = ask_status(&self.folder.join("admin.sock"))?;
        answer.drives.into_iter().next().ok_or_else(|| anyhow!("the server has no drive"))
    }

    /// Kills the server with SIGKILL.
    pub(super) fn kill(self) {
        drop(self.process);
    }

    /// Stops the server with SIGTERM. Fails if it does not exit successfully.
    pub(super) fn stop(mut self) -> Result<()> {
        self.process.ask_to_stop();
        match self.process.wait(PATIENCE)? {
            Some(status) if status.success() => Ok(()),
            _ => bail!("the server did not stop as it should"),
        }
    }
}

/// Returns the write amplification counted by a server; `None` if no host has written yet.
pub(super) fn write_amplification(status: &StatusReport) -> Option<f64> {
    (status.host_written_bytes > 0).then_some(status.waf)
}

/// Prints what recovery took.
pub(super) fn say_recovered(status: &StatusReport, ready_after: Duration) {
    say(&format!(
        "Restarted: {} of log rolled forward, serving after {:.2} s",
        human::bytes(status.recovery.log_bytes),
        ready_after.as_secs_f64()
    ));
}

/// Runs this program with other arguments and returns its output.
pub(super) fn pumice(arguments: &[&str]) -> Result<String> {
    run(&own_program()?, arguments, LIMIT)
}

/// Attaches or detaches, by this program with other arguments. Not interrupted: what it makes must be known.
pub(super) fn of_attachment(folder: &Path, arguments: &[&str]) -> Result<String> {
    let runtime_dir = format!("{RUNTIME_DIR}={}", runtime_dir(folder).display());
    let program = [runtime_dir.as_str(), &own_program()?];
    run_always("env", &[&program, arguments].concat(), ATTACH_LIMIT)
}

/// The run-time directory of the demo: nobody else sees its drive.
pub(super) fn runtime_dir(folder: &Path) -> PathBuf {
    folder.join("run")
}

fn own_program() -> Result<String> {
    let own = std::env::current_exe().context("cannot find this program")?;
    path_text(&own).map(str::to_string)
}

/// Returns a path as text, for arguments.
pub(super) fn path_text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| anyhow!("{}: not UTF-8; choose another directory", path.display()))
}
