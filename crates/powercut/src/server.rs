//! The program under test: as a server, and with its other commands.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use launch::{Serve, Server, wait};

/// Time limit for a server to open or close a drive, and for a command to end.
pub const LIMIT: Duration = Duration::from_secs(60);

/// The program under test, and the folder of its logs and sockets.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its executable file.
    pub path: PathBuf,
    /// A folder for the NBD socket and logs.
    pub folder: PathBuf,
    /// The runtime directory of the servers.
    pub run: PathBuf,
    /// I/O back end: `uring` or `plain`.
    pub io: String,
    /// Mistake that its debug build is to make.
    pub planted: Option<String>,
}

impl Program {
    /// Environment and runtime folder of a server.
    fn server(&self) -> Serve {
        let serve = Serve::new(&self.path)
            .runtime_dir(&self.run)
            // Other users have no access to what is mounted here.
            .as_own_user()
            .env("PUMICE_IO", &self.io)
            .env("PUMICE_CONFIG", "/nonexistent/pumice.toml");
        self.planted.iter().fold(serve, |serve, mistake| serve.env("PUMICE_PLANTED", mistake))
    }

    /// Starts to serve a drive.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn serve(&self, drive: &Path, arguments: &[String]) -> io::Result<Server> {
        let serve = self.server().drive(drive).nbd(&self.socket()).args(arguments);
        let server = serve.start(&self.log())?;
        // For scripts that clean up after a test driver was killed.
        std::fs::write(self.folder.join("server.pid"), server.pid().to_string())?;
        Ok(server)
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
    pub fn run(&self, arguments: &[String]) -> Result<String, CommandFailed> {
        let command = arguments.join(" ");
        let [path, errors_path] = ["command.out", "command.err"].map(|name| self.folder.join(name));
        let cannot = |error: io::Error| CommandFailed {
            why: format!("cannot run pumice {command}: {error}"),
            output: String::new(),
            errors: String::new(),
        };
        let output = File::create(&path).map_err(cannot)?;
        let errors = File::create(&errors_path).map_err(cannot)?;
        let mut run = Command::new(&self.path);
        run.args(arguments).envs(self.server().environment().iter().cloned()).stdin(Stdio::null());
        let mut child = run.stdout(output).stderr(errors).spawn().map_err(cannot)?;
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
        Err(CommandFailed { why, output, errors })
    }
}

/// A command that could not be run, failed, or did not end in time.
#[derive(Debug, thiserror::Error)]
#[error("{why}:\n{output}{errors}")]
pub struct CommandFailed {
    /// Reason, with the command.
    pub why: String,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}
