//! A drive under `pumice attach`: its loop device, and the two processes behind it.
//!
//! The *keeper* (the bridge process) starts the server again whenever it ends.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Deserialize;

use crate::error::{Error, Result};
use crate::server::{LIMIT, Program};

/// Interval of looks at files that processes write.
const POLL: Duration = Duration::from_millis(2);

/// Reason why no drive can be attached by a loop device here, if any.
pub fn why_not() -> Option<&'static str> {
    let opens = |path: &str| File::options().read(true).write(true).open(path).is_ok();
    if !rustix::process::geteuid().is_root() {
        return Some("attaching needs root");
    }
    if !opens("/dev/fuse") || !opens("/dev/loop-control") {
        return Some("no /dev/fuse or no /dev/loop-control");
    }
    None
}

/// A process that is not confused with a later one of the same id.
pub struct Process {
    pid: i32,
    handle: OwnedFd,
}

impl Process {
    /// The process with this id, if it is running and has `word` among its arguments.
    fn find(pid: i32, word: &str) -> Option<Process> {
        let handle = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_it = arguments.split(|byte| *byte == 0).any(|argument| argument == word.as_bytes());
        is_it.then_some(Process { pid, handle })
    }

    /// Process id.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Sends a signal. It may have ended by itself.
    pub fn signal(&self, signal: Signal) {
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it does not end.
    pub fn wait(&self) -> Result<()> {
        let timeout = Timespec { tv_sec: LIMIT.as_secs() as i64, tv_nsec: 0 };
        let mut ended = [PollFd::from_borrowed_fd(self.handle.as_fd(), PollFlags::IN)];
        match poll(&mut ended, Some(&timeout)) {
            Ok(0) => Err(Error::server(format!("or the keeper, process {}, does not end", self.pid))),
            Ok(_) => Ok(()),
            Err(error) => Err(Error::system("cannot wait for a process")(error.into())),
        }
    }
}

/// An attached drive.
pub struct Attachment {
    program: Program,
    drive: PathBuf,
    node: PathBuf,
}

/// Record of an attachment, as far as it is needed here.
#[derive(Deserialize)]
struct Record {
    bridge_pid: i32,
    server_pid: Option<i32>,
}

/// The server that a keeper has started last.
#[derive(Deserialize)]
struct Started {
    pid: i32,
}

impl Attachment {
    /// Attaches a drive. `arguments` are those of its server.
    ///
    /// # Errors
    /// If `pumice attach` fails.
    pub fn new(program: &Program, drive: &Path, arguments: &[String]) -> Result<Attachment> {
        // For scripts that clean up after a test driver was killed.
        fs::write(program.folder.join("run-time-directory"), program.run.as_os_str().as_encoded_bytes())
            .map_err(Error::system("cannot write the run-time directory's name"))?;
        // As processes have it among their arguments.
        let drive = std::path::absolute(drive).map_err(Error::system("the drive has no path"))?;
        let mut command = vec!["attach".to_string(), drive.display().to_string(), "--by=loop".to_string()];
        command.push("--".to_string());
        command.extend(arguments.iter().cloned());
        let node = PathBuf::from(program.run(&command)?.trim());
        Ok(Attachment { program: program.clone(), drive, node })
    }

    /// The block device.
    pub fn node(&self) -> &Path {
        &self.node
    }

    /// NBD socket of the server, for clients that read.
    ///
    /// # Errors
    /// If there is no attachment.
    pub fn socket(&self) -> Result<PathBuf> {
        self.folder().map(|folder| folder.join("nbd.sock")).ok_or_else(|| Error::server("is not attached"))
    }

    /// Logs of both processes.
    pub fn logs(&self) -> String {
        let read = |name| self.folder().and_then(|folder| fs::read_to_string(folder.join(name)).ok());
        ["bridge.log", "server.log"].map(|name| read(name).unwrap_or_default()).concat()
    }

    fn folder(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(directory(&self.program.run)).ok()?;
        entries.flatten().map(|entry| entry.path()).find(|folder| folder.join("attachment.json").exists())
    }

    fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.folder()?.join("attachment.json")).ok()?).ok()
    }

    fn process(&self, pid: i32) -> Option<Process> {
        Process::find(pid, &self.drive.display().to_string())
    }

    /// The keeper, if it is running.
    pub fn keeper(&self) -> Option<Process> {
        self.record().and_then(|record| self.process(record.bridge_pid))
    }

    /// The server that the keeper has started last, if it is running, whether or not it serves the drive.
    pub fn server(&self) -> Option<Process> {
        let started = || serde_json::from_slice(&fs::read(self.folder()?.join("server")).ok()?).ok();
        let pid = started().map(|server: Started| server.pid);
        pid.or_else(|| self.record()?.server_pid).and_then(|pid| self.process(pid))
    }

    /// Waits for a server other than `killed`, whether or not it serves the drive.
    ///
    /// # Errors
    /// If none is started.
    pub fn next_server(&self, killed: Option<i32>) -> Result<Process> {
        let since = Instant::now();
        loop {
            if let Some(server) = self.server().filter(|server| Some(server.pid) != killed) {
                return Ok(server);
            }
            if since.elapsed() > LIMIT {
                let problem = format!("was not started again in {} seconds", LIMIT.as_secs());
                return Err(Error::Server { problem, log: self.logs() });
            }
            std::thread::sleep(POLL);
        }
    }

    /// Detaches the drive; the server closes it.
    ///
    /// # Errors
    /// If `pumice detach` fails.
    pub fn detach(&self) -> Result<()> {
        let arguments = ["detach".to_string(), self.node.display().to_string()];
        Ok(self.program.run(&arguments).map(drop)?)
    }

    /// Kills the keeper, so that it starts no server, and the server. They may have ended by themselves. It
    /// may take until the disk answers before they have ended.
    ///
    /// # Errors
    /// If the keeper does not end.
    pub fn kill(&self) -> Result<Option<Process>> {
        if let Some(keeper) = self.keeper() {
            keeper.signal(Signal::KILL);
            keeper.wait()?;
        }
        let server = self.server();
        if let Some(server) = &server {
            server.signal(Signal::KILL);
        }
        Ok(server)
    }

    /// Removes what a killed keeper has left.
    ///
    /// # Errors
    /// If `pumice detach` fails.
    pub fn clear_away(&self) -> Result<()> {
        if self.folder().is_none() {
            return Ok(());
        }
        let drive = self.drive.display().to_string();
        Ok(self.program.run(&["detach".to_string(), "--force".to_string(), drive]).map(drop)?)
    }
}

/// Directory of the attachments of a run-time directory.
pub fn directory(run: &Path) -> PathBuf {
    let mut name = run.as_os_str().to_os_string();
    name.push("-attach");
    name.into()
}

/// Removes the memories that keepers have mounted for servers: the machine has lost its power.
///
/// # Errors
/// If one is in use.
pub fn forget_memories(run: &Path) -> io::Result<()> {
    let directory = directory(run);
    for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
        // It may not be mounted.
        let _ = rustix::mount::unmount(entry.path().join("memory"), rustix::mount::UnmountFlags::empty());
    }
    match fs::remove_dir_all(&directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
