//! Command line, environment and log of a server.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::log::Log;
use crate::server::Server;

/// Environment variable with the directory of admin sockets and of attached drives.
pub const RUNTIME_DIR: &str = "PUMICE_RUNTIME_DIR";
/// Environment variable with the user that a server becomes if root starts it.
pub const USER: &str = "PUMICE_USER";

/// Command line and environment of a server.
#[derive(Clone, Debug)]
pub struct Serve {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
    has_own_group: bool,
}

impl Serve {
    /// `program serve`: `program` is `pumice`.
    pub fn new(program: &Path) -> Serve {
        Serve {
            program: program.to_path_buf(),
            arguments: vec!["serve".into()],
            environment: Vec::new(),
            has_own_group: false,
        }
    }

    /// Serves the drive at `path`, too.
    pub fn drive(self, path: &Path) -> Serve {
        self.args([path])
    }

    /// Serves NBD clients at a Unix socket.
    pub fn nbd(self, socket: &Path) -> Serve {
        self.args([OsString::from("--nbd"), unix(socket)])
    }

    /// Answers questions at this admin socket.
    pub fn admin(self, socket: &Path) -> Serve {
        self.args([OsString::from("--admin"), unix(socket)])
    }

    /// Adds arguments.
    pub fn args<S: AsRef<OsStr>>(mut self, more: impl IntoIterator<Item = S>) -> Serve {
        self.arguments.extend(more.into_iter().map(|it| it.as_ref().to_os_string()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Serve {
        self.environment.push((name.as_ref().to_os_string(), value.as_ref().to_os_string()));
        self
    }

    /// Puts admin sockets into `dir`, where only those look for it who use that, too.
    pub fn runtime_dir(self, dir: &Path) -> Serve {
        self.env(RUNTIME_DIR, dir)
    }

    /// The server stays this user's, also if that is root.
    pub fn as_own_user(self) -> Serve {
        self.env(USER, rustix::process::geteuid().as_raw().to_string())
    }

    /// The server gets a process group of its own: Ctrl-C on the terminal does not reach it.
    pub fn in_own_group(mut self) -> Serve {
        self.has_own_group = true;
        self
    }

    /// The arguments, for who starts the program in another way.
    pub fn arguments(&self) -> &[OsString] {
        &self.arguments
    }

    /// The environment variables, likewise.
    pub fn environment(&self) -> &[(OsString, OsString)] {
        &self.environment
    }

    /// The command, without input. Its output is not redirected yet.
    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().cloned()).stdin(Stdio::null());
        if self.has_own_group {
            command.process_group(0);
        }
        command
    }

    /// Starts the server; its messages are appended to `log`. Its standard output is discarded.
    ///
    /// # Errors
    ///
    /// If the program cannot be run.
    pub fn spawn(&self, log: std::fs::File) -> io::Result<Child> {
        self.command().stdout(Stdio::null()).stderr(log).spawn()
    }

    /// Starts the server; its messages are appended to the file `log`.
    ///
    /// # Errors
    ///
    /// If the log cannot be written, or the program cannot be run.
    pub fn start(&self, log: &Path) -> io::Result<Server> {
        let (log, file) = Log::append(log)?;
        let mut command = self.command();
        command.stderr(file);
        Ok(Server::spawn(command)?.with_log(log))
    }
}

/// A socket in arguments.
fn unix(socket: &Path) -> OsString {
    let mut text = OsString::from("unix:");
    text.push(socket);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_is_in_order() {
        let serve = Serve::new(Path::new("/bin/pumice"))
            .drive(Path::new("/srv/drive"))
            .nbd(Path::new("/run/nbd.sock"))
            .admin(Path::new("/run/admin.sock"))
            .args(["--threads", "2"])
            .runtime_dir(Path::new("/run/x"))
            .as_own_user();
        let expected = [
            "serve",
            "/srv/drive",
            "--nbd",
            "unix:/run/nbd.sock",
            "--admin",
            "unix:/run/admin.sock",
            "--threads",
            "2",
        ];
        assert_eq!(serve.arguments(), expected);
        let names: Vec<&OsString> = serve.environment().iter().map(|(name, _)| name).collect();
        assert_eq!(names, [RUNTIME_DIR, USER]);
    }
}
