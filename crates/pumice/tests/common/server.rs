//! A drive in a temporary directory, and its servers.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use launch::{RUNTIME_DIR, Readiness, USER};
use rustix::process::Signal;

use super::run::{Run, in_time, own_user};

/// Longest wait for a server to become ready or to stop.
const LIMIT: Duration = Duration::from_secs(240);

/// A new drive, deleted when dropped.
pub(crate) struct Drive {
    folder: tempfile::TempDir,
}

impl Drive {
    /// Creates a drive with these arguments of `pumice create`. Its capacity is the physical size unless
    /// given.
    pub(crate) fn create(arguments: &[&str]) -> Drive {
        let size = arguments.iter().position(|argument| *argument == "--size").map(|at| arguments[at + 1]);
        match size {
            Some(size) if !arguments.contains(&"--capacity") => {
                Drive::create_as_given(&[arguments, &["--capacity", size]].concat())
            }
            _ => Drive::create_as_given(arguments),
        }
    }

    /// Creates a drive with exactly these arguments.
    pub(crate) fn create_as_given(arguments: &[&str]) -> Drive {
        Drive::create_in(&std::env::temp_dir(), arguments)
    }

    /// Creates a drive in a new directory below `above`.
    pub(crate) fn create_in(above: &Path, arguments: &[&str]) -> Drive {
        let drive = Drive { folder: tempfile::tempdir_in(above).expect("a temporary directory") };
        let path = drive.path();
        let run = drive.pumice(&[&["create", &text(&path)], arguments].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        drive
    }

    /// Directory of the drive, usable for files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Directory of the admin sockets, made by the first server.
    pub(crate) fn runtime_dir(&self) -> PathBuf {
        self.folder().join("run")
    }

    /// Path of the backing.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder().join("drive")
    }

    /// Path of a file beside the drive.
    pub(crate) fn file(&self, name: &str) -> String {
        text(&self.folder().join(name))
    }

    /// Runs `pumice` with access to the servers of this drive only.
    pub(crate) fn pumice(&self, arguments: &[&str]) -> Run {
        let own = format!("{RUNTIME_DIR}={}", self.runtime_dir().display());
        in_time("env", &[&[&own, env!("CARGO_BIN_EXE_pumice")], arguments].concat())
    }

    /// Returns the status as JSON.
    pub(crate) fn status(&self) -> serde_json::Value {
        let run = self.pumice(&["status", &text(&self.path()), "--json"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let mut answer: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        answer["drives"][0].take()
    }

    /// Returns the status of the only drive that is served, as JSON, wherever its file is.
    pub(crate) fn status_of_server(&self) -> serde_json::Value {
        let run = self.pumice(&["status", "--json"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let mut answer: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        answer["drives"][0].take()
    }

    /// Serves the drive with more arguments of `pumice serve`. The server is ready on return.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let path = self.path();
        self.serve_paths(&[path.as_path()], arguments)
    }

    /// Serves the given drives.
    pub(crate) fn serve_paths(&self, paths: &[&Path], arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("serve").args(paths).args(arguments);
        self.start(command, paths.len().max(1))
    }

    /// Writes a configuration to `pumice.toml` beside the drive and serves it. The server is ready when it
    /// has printed `count` addresses.
    pub(crate) fn serve_config(&self, config: &str, count: usize) -> Server {
        self.write_config(config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(["serve", "--config", &self.file("pumice.toml")]);
        self.start(command, count)
    }

    /// Replaces the configuration file.
    pub(crate) fn write_config(&self, config: &str) {
        std::fs::write(self.file("pumice.toml"), config).expect("written");
    }

    /// Replaces the configuration, reloads it and waits until that is done.
    pub(crate) fn reload(&self, server: &Server, config: &str) {
        let over = |log: &str| log.matches("file=").count() + log.matches("configuration not taken").count();
        let before = over(&self.log());
        self.write_config(config);
        server.ask_to_reload();
        wait_until("the reload", || over(&self.log()) > before);
    }

    /// Returns the log of the servers so far. A thread of the server writes it, so it is read until it stops
    /// growing.
    pub(crate) fn log(&self) -> String {
        let read = || std::fs::read_to_string(self.folder().join("log")).unwrap_or_default();
        let mut log = read();
        loop {
            std::thread::sleep(Duration::from_millis(100));
            let now = read();
            if now == log {
                return log;
            }
            log = now;
        }
    }

    /// Starts a server. It is ready when it has printed `count` addresses.
    pub(crate) fn start(&self, command: Command, count: usize) -> Server {
        let log = File::options().create(true).append(true).open(self.folder().join("log")).expect("a log");
        self.start_logging_to(command, count, log.into())
    }

    /// Starts a server with its log at another destination.
    pub(crate) fn start_logging_to(&self, mut command: Command, count: usize, log: Stdio) -> Server {
        // Files of a test are those of the user who runs it, so its servers stay that user's.
        if command.get_envs().all(|(name, _)| name != USER) {
            command.env(USER, own_user());
        }
        command.env(RUNTIME_DIR, self.runtime_dir()).stdin(Stdio::null()).stderr(log);
        let mut process = launch::Server::spawn(command).expect("the program was built");
        let ready = process.wait_ready(count, LIMIT, || false).expect("it is ours");
        if ready != Readiness::Serves {
            let log = std::fs::read_to_string(self.folder().join("log")).unwrap_or_default();
            panic!("the server does not serve, {ready:?}: {log}");
        }
        Server::of(process)
    }
}

/// A running server, killed when dropped.
pub(crate) struct Server {
    process: launch::Server,
    uris: Vec<String>,
    http: Option<String>,
}

impl Server {
    /// Takes the addresses from what a server has printed.
    fn of(process: launch::Server) -> Server {
        let (mut uris, mut http) = (Vec::new(), None);
        for line in process.printed() {
            match line.rsplit_once(" at ").expect("a line with a URI") {
                ("metrics", uri) => http = Some(uri.to_string()),
                (_, uri) => uris.push(uri.to_string()),
            }
        }
        Server { process, uris, http }
    }

    /// The first URI that the server printed.
    pub(crate) fn uri(&self) -> &str {
        &self.uris[0]
    }

    /// URL of the metrics.
    pub(crate) fn http(&self) -> &str {
        self.http.as_deref().expect("it was asked to")
    }

    /// All URIs that the server printed.
    pub(crate) fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The Unix socket of the first URI.
    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(self.uri().split_once("?socket=").expect("a Unix socket").1)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Kills the server with SIGKILL.
    pub(crate) fn kill(self) {
        drop(self.process);
    }

    /// Sends SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        self.process.ask_to_stop();
    }

    /// Sends SIGHUP.
    pub(crate) fn ask_to_reload(&self) {
        self.process.signal(Signal::HUP);
    }

    /// Sends SIGTERM and waits until the server ends.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits until the server ends.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait(LIMIT).expect("it is ours").expect("the server stops")
    }
}

/// Waits until `ready` returns true.
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < LIMIT, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns a path as text. Paths in tests are UTF-8.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_string()
}
