//! A running server.

use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::log::Log;

/// Interval of checks of a process.
const POLL: Duration = Duration::from_millis(1);

/// Start of a line with the address of a drive.
const SERVING: &str = "serving ";

/// Outcome of waiting for a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It serves clients.
    Serves,
    /// It has ended.
    Ended(ExitStatus),
    /// The wait was interrupted.
    Interrupted,
    /// It did not serve in time.
    Late,
}

/// A server, killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    printed: Vec<String>,
    log: Option<Log>,
}

impl Server {
    /// Starts a command whose standard output is that of a server.
    ///
    /// # Errors
    ///
    /// If it cannot be run.
    pub fn spawn(mut command: Command) -> io::Result<Server> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                // Read to the end: otherwise the server would block when it prints.
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Fails if the receiver is gone.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Server { child, lines, printed: Vec::new(), log: None })
    }

    pub(crate) fn with_log(mut self, log: Log) -> Server {
        self.log = Some(log);
        self
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the server has printed `count` addresses of drives, which it does when these are open, for
    /// at most `limit`, or until `interrupted` returns true.
    ///
    /// # Errors
    ///
    /// If the process cannot be waited for.
    pub fn wait_ready(
        &mut self,
        count: usize,
        limit: Duration,
        interrupted: impl Fn() -> bool,
    ) -> io::Result<Readiness> {
        let since = Instant::now();
        while self.addresses_count() < count {
            if interrupted() {
                return Ok(Readiness::Interrupted);
            }
            match self.lines.recv_timeout(POLL) {
                Ok(line) => {
                    self.printed.push(line);
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                // It is about to end.
                Err(RecvTimeoutError::Disconnected) => sleep(POLL),
            }
            if let Some(status) = self.child.try_wait()? {
                // It may have printed something meanwhile.
                self.printed.extend(self.lines.try_iter());
                return Ok(Readiness::Ended(status));
            }
            if since.elapsed() > limit {
                return Ok(Readiness::Late);
            }
        }
        Ok(Readiness::Serves)
    }

    fn addresses_count(&self) -> usize {
        self.printed.iter().filter(|line| line.starts_with(SERVING)).count()
    }

    /// The lines that it has printed while it was waited for: `serving PATH at URI`, `metrics at URL`.
    pub fn printed(&self) -> &[String] {
        &self.printed
    }

    /// Log of this server so far; empty if it has none.
    pub fn logged(&self) -> String {
        self.log.as_ref().map(Log::text).unwrap_or_default()
    }

    /// Exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends a signal. The server may have ended by itself.
    pub fn signal(&self, signal: Signal) {
        // The process id is that of the child: it was not waited for, or the kernel refuses.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Asks it to end: SIGTERM.
    pub fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits for its end, for at most `limit`; `None` if it has not ended then.
    ///
    /// # Errors
    ///
    /// If the process cannot be waited for.
    pub fn wait(&mut self, limit: Duration) -> io::Result<Option<ExitStatus>> {
        wait(&mut self.child, limit)
    }

    /// Sends SIGKILL, without waiting.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = self.child.wait();
    }
}

/// Waits at most `limit` for a process to end.
///
/// # Errors
///
/// If the process cannot be waited for.
pub fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if since.elapsed() > limit {
            return Ok(None);
        }
        sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Far more than any of these takes.
    const LONG: Duration = Duration::from_secs(60);

    fn server(script: &str) -> Server {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        Server::spawn(command).expect("a shell")
    }

    #[test]
    fn a_server_is_ready_when_it_has_printed_its_addresses() -> io::Result<()> {
        let mut one = server("echo metrics at h; echo serving a at x; echo serving b at y; exec sleep 600");
        assert_eq!(one.wait_ready(2, LONG, || false)?, Readiness::Serves);
        assert_eq!(one.printed(), ["metrics at h", "serving a at x", "serving b at y"]);
        assert_eq!(one.wait_ready(3, LONG, || true)?, Readiness::Interrupted);
        assert_eq!(one.wait_ready(3, Duration::ZERO, || false)?, Readiness::Late);
        assert_eq!(one.ended(), None);
        one.ask_to_stop();
        assert!(one.wait(LONG)?.is_some_and(|status| !status.success()));
        Ok(())
    }

    #[test]
    fn a_server_that_ends_is_not_waited_for() -> io::Result<()> {
        let mut none = server("exit 3");
        let Readiness::Ended(status) = none.wait_ready(1, LONG, || false)? else { panic!("it has ended") };
        assert_eq!(status.code(), Some(3));
        Ok(())
    }
}
