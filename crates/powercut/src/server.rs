//! The program under test: as a server, and its commands.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// How long a server may take to open a drive or to close it, and a command to end.
const LIMIT: Duration = Duration::from_secs(60);
/// How often a process is looked at.
const POLL: Duration = Duration::from_millis(1);

/// Where the program, its logs and sockets are.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program.
    pub program: PathBuf,
    /// A folder for sockets and logs.
    pub folder: PathBuf,
    /// How it reaches the disk: `uring` or `plain`.
    pub io: String,
}

impl Place {
    fn command(&self, arguments: &[String]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .env("PUMICE_RUNTIME_DIR", &self.folder)
            .env("PUMICE_IO", &self.io)
            .env("PUMICE_CONFIG", "/nonexistent/pumice.toml")
            .stdin(Stdio::null());
        command
    }

    /// What the servers log.
    pub fn log(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Where they serve.
    pub fn socket(&self) -> PathBuf {
        self.folder.join("nbd.sock")
    }

    /// Notes something between what the servers log.
    ///
    /// # Errors
    /// Of the file.
    pub fn note(&self, what: &str) -> io::Result<()> {
        use std::io::Write;
        let mut log = File::options().create(true).append(true).open(self.log())?;
        writeln!(log, "-- {what}")
    }

    /// Runs a command of the program to its end. Its output, if it exits with 0.
    ///
    /// # Errors
    /// If it does not end in time or exits otherwise.
    pub fn run(&self, arguments: &[String]) -> Result<String, String> {
        let what = arguments.join(" ");
        let path = self.folder.join("command.out");
        let cannot = |error: io::Error| format!("cannot run pumice {what}: {error}");
        let output = File::create(&path).map_err(cannot)?;
        let errors = output.try_clone().map_err(cannot)?;
        let mut child = self.command(arguments).stdout(output).stderr(errors).spawn().map_err(cannot)?;
        let status = wait(&mut child, LIMIT).map_err(cannot)?;
        let said = std::fs::read_to_string(&path).unwrap_or_default();
        match status {
            Some(status) if status.success() => Ok(said),
            Some(status) => Err(format!("pumice {what} ended with {status}:\n{said}")),
            None => {
                // It may wait for the disk for ever.
                let _ = child.kill();
                Err(format!("pumice {what} did not end in {} seconds:\n{said}", LIMIT.as_secs()))
            }
        }
    }
}

/// Waits for a process to end, for so long.
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

/// How the start of a server went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Started {
    /// It serves.
    Ready,
    /// It gave up.
    Ended(ExitStatus),
    /// It was interrupted.
    Interrupted,
}

/// A server; killed when dropped.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    log: PathBuf,
    /// Where its part of the log begins.
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
        // Whoever cleans up after a driver that was killed finds it there.
        std::fs::write(place.folder.join("server.pid"), child.id().to_string())?;
        let (sender, lines) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // Only the first is waited for.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Server { child, lines, log: place.log(), log_start })
    }

    /// Waits until it serves, ends, or `interrupted` says so.
    ///
    /// # Errors
    /// If it does neither in time.
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

    /// How it ended, if it has.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// SIGTERM.
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

    /// SIGKILL.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
    }

    /// What it has logged.
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
        // The disk answers, if with errors only.
        let _ = self.child.wait();
    }
}
