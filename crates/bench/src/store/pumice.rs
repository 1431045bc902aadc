//! A Pumice drive, behind the server that users run.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use launch::Serve;
use serde::Deserialize;
use status::{StatusAnswer, StatusReport};

use super::limited::Limited;
use super::{Space, Store, Workshop};
use crate::error::{BenchError, Result};
use crate::fio::IoTarget;
use crate::process::{self, Server, Stop};
use crate::scene::{Action, Scene};

/// Longest time for a command on a drive, except settling.
const COMMAND: Duration = Duration::from_secs(60);
/// Longest time for settling.
const SETTLE: Duration = Duration::from_secs(180);

/// A drive that nobody looked into before the run.
const APPEARED: &str = "was not there at the start of the run, and is now: somebody else made it";

/// A served drive.
pub(crate) struct Pumice {
    asks: Asks,
    io_target: IoTarget,
    capacity_bytes: u64,
    // Ended before its backing goes away: fields are dropped in this order.
    server: Server,
    _made: Option<Made>,
    backing: Option<Limited>,
}

/// A drive that was made for a scene, removed when dropped.
struct Made(PathBuf);

impl Drop for Made {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// What is needed to ask the program about a drive.
pub(super) struct Asks {
    program: PathBuf,
    folder: PathBuf,
    drive: PathBuf,
    stop: Stop,
}

impl Asks {
    pub(super) fn new(workshop: &Workshop<'_>, drive: &Path) -> Asks {
        Asks {
            program: workshop.program.to_path_buf(),
            folder: workshop.folder.to_path_buf(),
            drive: drive.to_path_buf(),
            stop: workshop.stop.clone(),
        }
    }

    /// For cleaning up after a run that was stopped.
    pub(super) fn unstoppable(&self) -> Asks {
        Asks {
            program: self.program.clone(),
            folder: self.folder.clone(),
            drive: self.drive.clone(),
            stop: Stop::default(),
        }
    }

    /// What the drive holds.
    pub(super) fn space(&self) -> Result<Space> {
        self.status().map(|status| Space::of(&status))
    }

    /// Runs a command on the drive.
    pub(super) fn run(&self, command: &str, more: &[&str], limit: Duration) -> Result<String> {
        let runtime = self.folder.join("run");
        // Servers of this run, and no others, are asked.
        let runtime = format!("PUMICE_RUNTIME_DIR={}", runtime.display());
        // Another user than this one would not be ended with this program (`PR_SET_PDEATHSIG(2const)`), and
        // nbdfuse lets in nobody but the user who mounted it.
        let user = format!("PUMICE_USER={}", rustix::process::geteuid().as_raw());
        let (program, drive) = (self.program.display().to_string(), self.drive.display().to_string());
        let arguments = [&[runtime.as_str(), &user, &program, command, &drive], more].concat();
        let env = process::need("env", "coreutils")?;
        let ended = process::run(&env, &arguments, &self.folder, limit, &self.stop);
        ended.map(|ended| ended.output).map_err(|error| match error {
            BenchError::Program { problem, was_killed, .. } => BenchError::Program {
                program: format!("pumice {command}"),
                problem: problem.trim_start_matches("pumice: ").to_string(),
                was_killed,
            },
            error => error,
        })
    }

    fn status(&self) -> Result<StatusReport> {
        #[derive(Deserialize)]
        struct Answer(StatusAnswer);
        let text = self.run("status", &["--json"], COMMAND)?;
        let wrong = |problem: String| BenchError::Format { what: "pumice status".to_string(), problem };
        let answer: Answer = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
        answer.0.drives.into_iter().next().ok_or_else(|| wrong("no drive".to_string()))
    }
}

impl Pumice {
    /// Serves a drive for a scene; one that does not exist is made.
    pub(crate) fn open(
        workshop: &Workshop<'_>,
        path: Option<&Path>,
        codec: Option<&str>,
        scene: &Scene,
        backing: Option<Limited>,
    ) -> Result<Pumice> {
        let drive = match (&backing, path) {
            (Some(backing), _) => backing.path().to_path_buf(),
            (None, Some(path)) => std::path::absolute(path).map_err(BenchError::io(path))?,
            (None, None) => workshop.path("drive"),
        };
        let is_made = backing.is_some() || !drive.exists();
        if let Some(path) = path.filter(|path| is_made == workshop.drives.contains(path)) {
            let problem = if is_made { "was there at the start of the run, and is gone" } else { APPEARED };
            return Err(BenchError::target(&path.display().to_string(), problem));
        }
        // Before the program makes it. A drive on a limited backing goes with that.
        let made = (is_made && backing.is_none()).then(|| Made(drive.clone()));
        let asks = Asks::new(workshop, &drive);
        if is_made {
            let (size, capacity) = sizes(workshop.size_bytes, scene.expansion);
            let (size, capacity) = (size.to_string(), capacity.to_string());
            let mut more = vec!["--size", &size, "--capacity", &capacity, "--codec", codec.unwrap_or("auto")];
            if backing.is_some() {
                more.push("--force");
            }
            if let Err(error) = asks.run("create", &more, COMMAND) {
                if !error.may_be_done() {
                    // It removed what it made. What is there now is somebody else's.
                    std::mem::forget(made);
                }
                return Err(error);
            }
        } else {
            // What earlier scenes wrote must not count.
            asks.run("wipe", &["--yes"], COMMAND)?;
        }
        let socket = workshop.path("nbd.sock");
        let _ = fs::remove_file(&socket);
        // A full drive is measured as it is, not as it is slowed down. As users have it otherwise, but where
        // settling is waited for, it takes a whole processor.
        let is_settled = scene.steps.iter().any(|step| step.action == Action::Settle);
        let background = if is_settled { "100" } else { "10" };
        let cache = workshop.read_cache();
        let serve = Serve::new(workshop.program)
            .drive(&drive)
            .nbd(&socket)
            .args(["--background-cpu", background, "--read-cache", &cache, "--throttle-at", "off"])
            .runtime_dir(&workshop.path("run"))
            // As in `Asks::run`.
            .as_own_user();
        // Ended by the kernel if this program is killed.
        let log = workshop.path("serve.log");
        let server = Server::start(workshop.program, serve.arguments(), serve.environment(), &log)?;
        let status = server.wait(workshop.stop, || {
            // The drive is locked before the server can be asked about it.
            let status = match asks.status() {
                Err(BenchError::Program { .. }) => None,
                status => Some(status?),
            };
            Ok(status.filter(|status| status.server.is_some() && socket.exists()))
        })?;
        Ok(Pumice {
            asks,
            io_target: IoTarget::Nbd(super::nbd_uri(&socket)),
            capacity_bytes: status.logical_capacity_bytes.min(if is_made {
                u64::MAX
            } else {
                workshop.size_bytes
            }),
            server,
            _made: made,
            backing,
        })
    }
}

/// Physical size and capacity of a drive that is made. Without an expansion there is more space than
/// capacity, as drives have flash beyond what they show, so that data which does not compress fits.
pub(super) fn sizes(size_bytes: u64, expansion: Option<f64>) -> (u64, u64) {
    const MIB: u64 = 1 << 20;
    match expansion {
        None => (size_bytes.saturating_add(size_bytes / 4), size_bytes),
        Some(expansion) => (size_bytes, (size_bytes as f64 * expansion) as u64 / MIB * MIB),
    }
}

impl Store for Pumice {
    fn io_target(&self) -> &IoTarget {
        &self.io_target
    }

    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn servers(&self) -> Vec<u32> {
        vec![self.server.pid()]
    }

    fn devices(&self) -> Vec<u32> {
        self.backing.as_ref().map_or(Vec::new(), Limited::pids)
    }

    fn space(&self) -> Result<Option<Space>> {
        self.asks.space().map(Some)
    }

    fn drop_caches(&self) {
        // On a limited backing there is only what nbdkit keeps out of the cache itself.
        if self.backing.is_none() {
            super::drop_cached(&self.asks.drive);
        }
    }

    fn settle(&self) -> Result<()> {
        self.asks.run("settle", &[], SETTLE).map(drop)
    }
}
