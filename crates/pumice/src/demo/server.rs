//! The server of the demo: a child process with this program.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use ask::ask_status;
use status::StatusReport;

use super::say;
use super::tools::{command, kill, run, run_always, terminate, wait_until};
use crate::human;

const LIMIT: Duration = Duration::from_secs(30);
/// Time limit of attaching and detaching.
const ATTACH_LIMIT: Duration = Duration::from_secs(120);
/// Environment variable with the run-time directory of servers and of attached drives.
const RUNTIME_DIR: &str = "PUMICE_RUNTIME_DIR";

/// A child process that serves the drive; killed when dropped.
pub(super) struct Server {
    child: Child,
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
        let own = own_program()?;
        let log = File::options().create(true).append(true).open(folder.join("log"))?;
        let nbd = format!("unix:{}", Server::socket(folder).display());
        let admin = format!("unix:{}", folder.join("admin.sock").display());
        let drive = folder.join("drive");
        let arguments = ["serve", path_text(&drive)?, "--nbd", &nbd, "--admin", &admin];
        let since = Instant::now();
        let child = command(&own, &arguments)
            .env(RUNTIME_DIR, runtime_dir(folder))
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start the server")?;
        let mut server = Server { child, folder: folder.to_path_buf(), ready_after: Duration::ZERO };
        let child = &mut server.child;
        wait_until(LIMIT, "the server", || {
            if let Some(status) = child.try_wait()? {
                let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
                bail!("the server ended ({status}): {}", log.lines().last().unwrap_or_default());
            }
            // The sockets exist earlier, but clients are served only once the drive is open.
            let open = ask_status(&folder.join("admin.sock")).is_ok_and(|answer| !answer.drives.is_empty());
            Ok(open.then_some(()))
        })?;
        server.ready_after = since.elapsed();
        Ok(server)
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
    pub(super) fn kill(mut self) {
        kill(&mut self.child);
    }

    /// Stops the server with SIGTERM. Fails if it does not exit successfully.
    pub(super) fn stop(mut self) -> Result<()> {
        match terminate(&mut self.child) {
            true => Ok(()),
            false => bail!("the server did not stop as it should"),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        kill(&mut self.child);
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
