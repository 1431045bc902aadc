//! The program under test: as a server, and with its other commands.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Time limit for a server to open or close a drive, and for a command to end.
const LIMIT: Duration = Duration::from_secs(60);
/// Interval at which a process is polled.
const POLL: Duration = Duration::from_millis(1);

/// Paths of the program, its logs and sockets.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program.
    pub program: PathBuf,
    /// A folder for sockets and logs.
    pub folder: PathBuf,
    /// I/O back end: `uring` or `plain`.
    pub io: String,
}

impl Place {
    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("PUMICE_RUNTIME_DIR", self.folder.join("run"))
            .env("PUMICE_IO", &self.io)
            // Other users have no access to what is mounted here.
            .env("PUMICE_USER", rustix::process::geteuid().as_raw().to_string())
            .env("PUMICE_CONFIG", "/nonexistent/pumice.toml")
            .stdin(Stdio::null());
        command
    }

    /// Log file of the servers.
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// NBD socket of the servers.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// Adds a note to the log of the servers.
    ///
    /// # Errors
    /// Errors of the file.
    pub fn note(&self, what: &str) -> io::Result<()> {
        use std::io::Write;
        let mut log = File::options().create(true).append(true).open(self.log())?;
        writeln!(log, "-- {what}")
    }

    /// Runs a command of the program to its end. Returns its standard output if it exits with 0.
    ///
    /// # Errors
    /// If it does not end in time, or exits with another code.
    pub fn run(&self, arguments: &[String]) -> Result<String, Failed> {
        let command = arguments.join(" ");
        let [path, errors_path] = ["command.out", "command.err"].map(|name| self.folder.join(name));
        let cannot = |error: io::Error| Failed {
            why: format!("cannot run pumice {command}: {error}"),
            output: String::new(),
            errors: String::new(),
        };
        let output = File::create(&path).map_err(cannot)?;
        let errors = File::create(&errors_path).map_err(cannot)?;
        let mut child = self.command(arguments).stdout(output).stderr(errors).spawn().map_err(cannot)?;
        let status = wait(&mut child, LIMIT).map_err(cannot)?;
        let [output, errors] =
            [path, errors_path].map(|path| std::fs::read_to_string(path).unwrap_or_default());
        let why = match status {
            Some(status) if status.success() => return Ok(output),
            Some(status) => format!("pumice {command} ended with {status}"),
            None => {
                // It may wait for the disk forever.
                let _ = child.kill();
                format!("pumice {command} did not end in {} seconds", LIMIT.as_secs())
            }
        };
        Err(Failed { why, output, errors })
    }
}

/// A command that could not be run, failed, or did not end in time.
#[derive(Debug)]
pub struct Failed {
    /// Reason, with the command.
    pub why: String,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:\n{}{}", self.why, self.output, self.errors)
    }
}

impl From<Failed> for String {
    fn from(failed: Failed) -> String {
        failed.to_string()
    }
}

/// Waits at most `limit` for a process to end.
pub(crate) fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if since.elapsed() > limit {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Result of starting a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// The server accepts clients.
    Ready,
    /// The server ended.
    Ended(ExitStatus),
    /// The wait was interrupted.
    Interrupted,
}

/// A server. Dropping it kills the process.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
    /// Offset at which its part of the log begins.
    log_start: u64,
}

impl Server {
    /// Starts to serve a drive.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start(place: &Place, drive: &Path, arguments: &[String]) -> io::Result<Server> {
        let log = File::options().create(true).append(true).open(place.log())?;
        let log_start = log.metadata()?.len();
        let mut all = vec!["serve".to_string(), drive.display().to_string()];
        all.extend(["--nbd".to_string(), format!("unix:{}", place.socket().display())]);
        all.extend_from_slice(arguments);
        let mut child = place.command(&all).stdout(Stdio::piped()).stderr(log).spawn()?;
        // For scripts that clean up after a test driver was killed.
        std::fs::write(place.folder.join("server.pid"), child.id().to_string())?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Only the first line is waited for.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Server { child, lines, log: place.log(), log_start })
    }

    /// Waits until it serves, ends, or `interrupted` returns true.
    ///
    /// # Errors
    /// If none of that happens in time.
    pub fn wait_ready(&mut self, interrupted: impl Fn() -> bool) -> Result<Started, String> {
        let since = Instant::now();
        loop {
            if interrupted() {
                return Ok(Started::Interrupted);
            }
            if self.lines.recv_timeout(POLL).is_ok() {
                return Ok(Started::Ready);
            }
            if let Some(status) = self.child.try_wait().map_err(|error| error.to_string())? {
                return Ok(Started::Ended(status));
            }
            if since.elapsed() > LIMIT {
                return Err(format!("the server does not serve after {} seconds", LIMIT.as_secs()));
            }
        }
    }

    /// Exit status, if it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Sends SIGTERM.
    pub fn ask_to_stop(&self) {
        // It may have ended by itself.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// If it does not end in time.
    pub fn wait(&mut self) -> Result<ExitStatus, String> {
        let ended = wait(&mut self.child, LIMIT).map_err(|error| error.to_string())?;
        ended.ok_or_else(|| format!("the server does not stop in {} seconds", LIMIT.as_secs()))
    }

    /// Sends SIGKILL.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// Log of this server so far.
    pub fn logged(&self) -> String {
        let read = || {
            let mut file = File::open(&self.log)?;
            file.seek(SeekFrom::Start(self.log_start))?;
            io::read_to_string(file)
        };
        read().unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // It ends soon, because the disk replies, if only with errors.
        let _ = self.child.wait();
    }
}
