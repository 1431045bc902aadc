//! A drive in a directory of its own, and servers of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::run::{Run, in_time};

/// Longest wait for a server to be ready, or to stop.
const LIMIT: Duration = Duration::from_secs(60);

/// A new drive; gone when dropped.
pub(crate) struct Drive {
    folder: tempfile::TempDir,
}

impl Drive {
    /// Creates it with these arguments of `pumice create`.
    pub(crate) fn create(arguments: &[&str]) -> Drive {
        let drive = Drive { folder: tempfile::tempdir().expect("a temporary directory") };
        let path = drive.path();
        let run = drive.pumice(&[&["create", &text(&path)], arguments].concat());
        assert_eq!(run.code, Some(0), "{run:?}");
        drive
    }

    /// Its directory, for files of the test.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Of the backing.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder().join("drive")
    }

    /// A file beside it.
    pub(crate) fn file(&self, name: &str) -> String {
        text(&self.folder().join(name))
    }

    /// Runs `pumice` so that it sees the servers of this drive only.
    pub(crate) fn pumice(&self, arguments: &[&str]) -> Run {
        let own = format!("PUMICE_RUNTIME_DIR={}", self.folder().display());
        in_time("env", &[&[&own, env!("CARGO_BIN_EXE_pumice")], arguments].concat())
    }

    /// Its status as JSON.
    pub(crate) fn status(&self) -> serde_json::Value {
        let run = self.pumice(&["status", &text(&self.path()), "--json"]);
        assert_eq!(run.code, Some(0), "{run:?}");
        let mut answer: serde_json::Value = serde_json::from_str(&run.stdout).expect("JSON");
        answer["drives"][0].take()
    }

    /// Serves it, with more arguments of `pumice serve`; ready on return.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        let path = self.path();
        self.serve_paths(&[path.as_path()], arguments)
    }

    /// Serves some drives.
    pub(crate) fn serve_paths(&self, paths: &[&Path], arguments: &[&str]) -> Server {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.arg("serve").args(paths).args(arguments);
        self.start(command, paths.len().max(1))
    }

    /// Serves what a configuration says, which is written to `pumice.toml` beside the drive; ready when it has told
    /// `count` addresses.
    pub(crate) fn serve_config(&self, config: &str, count: usize) -> Server {
        self.write_config(config);
        let mut command = Command::new(env!("CARGO_BIN_EXE_pumice"));
        command.args(["serve", "--config", &self.file("pumice.toml")]);
        self.start(command, count)
    }

    /// Replaces the configuration.
    pub(crate) fn write_config(&self, config: &str) {
        std::fs::write(self.file("pumice.toml"), config).expect("written");
    }

    /// What the servers logged so far. A thread of theirs writes it: read until nothing more comes.
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

    /// Starts a server; ready when it has told `count` addresses.
    pub(crate) fn start(&self, command: Command, count: usize) -> Server {
        let log = File::options().create(true).append(true).open(self.folder().join("log")).expect("a log");
        self.start_logging_to(command, count, log.into())
    }

    /// The same, with its log somewhere else.
    pub(crate) fn start_logging_to(&self, mut command: Command, count: usize, log: Stdio) -> Server {
        let child = command
            .env("PUMICE_RUNTIME_DIR", self.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("the program was built");
        let mut server = Server { child, uris: Vec::new(), http: None };
        server.wait_ready(count, &self.folder().join("log"));
        server
    }
}

/// A running server; killed when dropped.
pub(crate) struct Server {
    child: Child,
    uris: Vec<String>,
    http: Option<String>,
}

impl Server {
    /// Waits for `count` lines that say where it serves.
    fn wait_ready(&mut self, count: usize, log: &Path) {
        let stdout = self.child.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                // A test that has ended reads no more.
                let _ = sender.send(line);
            }
        });
        while self.uris.len() < count {
            let Ok(line) = lines.recv_timeout(LIMIT) else {
                panic!("the server does not serve: {}", std::fs::read_to_string(log).unwrap_or_default());
            };
            let (what, uri) = line.rsplit_once(" at ").expect("a line with a URI");
            match what {
                "metrics" => self.http = Some(uri.to_string()),
                _ => self.uris.push(uri.to_string()),
            }
        }
    }

    /// The first URI it told.
    pub(crate) fn uri(&self) -> &str {
        &self.uris[0]
    }

    /// Of its metrics.
    pub(crate) fn http(&self) -> &str {
        self.http.as_deref().expect("it was asked to")
    }

    /// All of them.
    pub(crate) fn uris(&self) -> &[String] {
        &self.uris
    }

    /// The Unix socket of the first URI.
    pub(crate) fn socket(&self) -> PathBuf {
        PathBuf::from(self.uri().split_once("?socket=").expect("a Unix socket").1)
    }

    /// Process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours");
    }

    /// SIGTERM.
    pub(crate) fn ask_to_stop(&self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
    }

    /// SIGHUP.
    pub(crate) fn ask_to_reload(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).expect("it runs");
    }

    /// SIGTERM, and waits for the end.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.ask_to_stop();
        self.wait()
    }

    /// Waits for the end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let since = Instant::now();
        while since.elapsed() < LIMIT {
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        panic!("the server does not stop");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until `ready`.
pub(crate) fn wait_until(what: &str, mut ready: impl FnMut() -> bool) {
    let since = Instant::now();
    while !ready() {
        assert!(since.elapsed() < LIMIT, "waited too long: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A path as text; those of the tests are plain.
pub(crate) fn text(path: &Path) -> String {
    path.to_str().expect("a plain path").to_string()
}
