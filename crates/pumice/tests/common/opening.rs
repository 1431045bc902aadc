//! A server that is stopped while it is opening a drive.

use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::Outcome;
use super::run::{USER, own_user};
use super::server::{Drive, text};

/// Attempts to stop a server at the right moment.
const TRIES: usize = 200;

/// A server, killed when dropped.
pub(crate) struct Opening(Child);

impl Opening {
    /// Starts a server, and stops it (SIGSTOP) when it has locked the drive, before it has an admin socket.
    pub(crate) fn start(drive: &Drive) -> Outcome<Opening> {
        let inode = format!(":{} ", std::fs::metadata(drive.path())?.ino());
        for _ in 0..TRIES {
            let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
            command.args(["serve", &text(&drive.path())]);
            command.env("PUMICE_RUNTIME_DIR", drive.runtime_dir()).env(USER, own_user());
            let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
            let mut server = Opening(child);
            let pid = format!(" {} ", server.0.id());
            // It may fail.
            while server.0.try_wait()?.is_none() {
                let locks = std::fs::read_to_string("/proc/locks")?;
                if locks.lines().any(|line| line.contains(&pid) && line.contains(&inode)) {
                    server.signal(Signal::STOP);
                    break;
                }
            }
            let sockets = std::fs::read_dir(drive.runtime_dir()).into_iter().flatten().flatten();
            let has_socket =
                sockets.into_iter().any(|it| it.path().extension().is_some_and(|it| it == "sock"));
            if server.0.try_wait()?.is_none() && !has_socket {
                return Ok(server);
            }
            drop(server);
            // What it leaves behind.
            drive.pumice(&["list"]);
        }
        Err("no server was stopped at the right moment".into())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).expect("it runs");
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
