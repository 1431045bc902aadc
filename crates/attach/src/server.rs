//! The server of a drive: found by its admin socket, started if there is none.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use nbd::client::{ExportUri, Replies, negotiate};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use status::{DriveState, StatusReport, path_text};

use crate::identity::Identity;
use crate::node::{Drive, Shape};
use crate::place;
use crate::relay::{Connected, Server};

/// Connections to a server: one for each core, up to this number.
const CONNECTIONS_MAX: usize = 4;
/// Time limit of connecting.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of negotiating: the server answers once requests of closed connections have ended. It commonly drops them after 10
/// seconds, and refuses after 60. Shorter than that: it is tried again, and a server that hangs does not delay a detach for long.
const NEGOTIATION: Duration = Duration::from_secs(20);
/// Time for what came over closed connections to end in a server of an older program, which does not wait for that by itself.
const OLDER_ENDS: Duration = Duration::from_millis(500);
/// Interval between starts of a server that ends.
const START_AGAIN: Duration = Duration::from_secs(1);
/// Interval of checks whether a server is ready, or has ended.
const POLL: Duration = Duration::from_millis(50);
/// Time for a server to close its drive.
const CLOSING: Duration = Duration::from_secs(120);

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// More arguments of `serve`.
    pub arguments: Vec<OsString>,
}

/// A server that the bridge has started, shared with whoever ends it.
#[derive(Clone, Default)]
pub(crate) struct Started(Arc<Mutex<Process>>);

#[derive(Default)]
struct Process {
    child: Option<Child>,
    /// Started by an earlier bridge.
    adopted: Option<u32>,
}

impl Started {
    /// Takes over a server that an earlier bridge has started.
    fn adopt(&self, pid: Option<u32>) {
        let mut process = self.0.lock();
        if process.child.as_ref().map(Child::id) != pid {
            // One that this bridge has started meanwhile ends by itself: the drive is in use.
            (process.child, process.adopted) = (None, pid);
        }
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        let process = self.0.lock();
        process.child.as_ref().map(Child::id).or(process.adopted)
    }

    /// Stops the server and waits until it has closed its drive.
    pub(crate) fn stop(&self, path: &Path) {
        self.stop_own();
        if let Some(pid) = self.0.lock().adopted.take() {
            stop_served(path, pid);
        }
    }

    /// Stops the server if this bridge has started it.
    pub(crate) fn stop_own(&self) {
        let Some(mut child) = self.0.lock().child.take() else { return };
        // Not after it has ended: its process id may be another's.
        if matches!(child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&child), Signal::TERM);
        }
        let since = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            if since.elapsed() >= CLOSING {
                tracing::error!("the server does not end");
                return;
            }
            sleep(POLL);
        }
    }
}

/// Stops the server with this process id, if it has the drive, and waits for its end.
pub(crate) fn stop_served(path: &Path, pid: u32) {
    let Some(process) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    // Its process id may be another's, but not that of this process.
    let Ok(process) = pidfd_open(process, PidfdFlags::empty()) else { return };
    if find(path).is_none_or(|report| server_pid(&report) != Some(pid)) {
        return;
    }
    let _ = pidfd_send_signal(&process, Signal::TERM);
    let limit = Timespec { tv_sec: CLOSING.as_secs() as i64, tv_nsec: 0 };
    while poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&limit)) == Err(Errno::INTR) {}
}

/// The drive as its server reports it.
pub(crate) fn find(path: &Path) -> Option<StatusReport> {
    service::find_served(Some(path)).into_iter().next()
}

/// The drive as its server last reported it, and which server that was. The bridge notes what it sees meanwhile.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<Option<Served>>>);

/// A drive that a server has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    /// Its opening by the server: the `instance` there; empty if it is unknown.
    pub(crate) instance: String,
    /// Its path there.
    pub(crate) path: String,
    pub(crate) identity: Identity,
}

impl Known {
    /// Notes a later state if it is that of the server of the last connections. Returns all that is known then.
    pub(crate) fn note(&self, report: &StatusReport) -> Option<Served> {
        let mut known = self.0.lock();
        let served = known.as_mut()?;
        let later = Identity::of(report);
        if instance(report).cloned().unwrap_or_default() != served.instance
            || served.identity.check(&later).is_err()
        {
            return None;
        }
        served.path = path_text(&report.path);
        served.identity = later;
        Some(served.clone())
    }
}

/// Finds the server again whenever it is gone.
pub(crate) struct DriveServer {
    path: PathBuf,
    folder: PathBuf,
    start: Start,
    pub(crate) started: Started,
    /// The bridge starts the server, or an earlier one has.
    owns: bool,
    started_at: Option<Instant>,
    /// The drive that is expected: that of a device which waits for a bridge.
    expected: Option<Identity>,
    pub(crate) known: Known,
    /// What the drive showed at the first connections.
    shape: Option<Shape>,
    /// Something else than the expected drive was found.
    pub(crate) is_other: bool,
}

impl DriveServer {
    pub(crate) fn new(
        path: &Path,
        folder: &Path,
        start: Start,
        started: Started,
        expected: Option<Identity>,
    ) -> DriveServer {
        DriveServer {
            path: path.to_path_buf(),
            folder: folder.to_path_buf(),
            start,
            started,
            owns: false,
            started_at: None,
            expected,
            known: Known::default(),
            shape: None,
            is_other: false,
        }
    }

    /// The drive and its server. Known after the first connection.
    pub(crate) fn drive(&self) -> Option<(Drive, Served)> {
        let served = self.known.0.lock().clone()?;
        Some((Drive { identity: served.identity.clone(), shape: self.shape.clone()? }, served))
    }

    /// Connects for the first time. If nobody serves the drive within `wait`, starts a server. Failures are not accepted before
    /// `insist`. `given_up` ends the waiting.
    pub(crate) fn first(
        &mut self,
        wait: Duration,
        insist: Duration,
        given_up: impl Fn() -> bool,
    ) -> Result<Connected, String> {
        let since = Instant::now();
        loop {
            // Asked first: a server that becomes ready meanwhile is tried again.
            let is_served = find(&self.path).is_some();
            let failed = match self.connect() {
                Ok(connected) => return Ok(connected),
                Err(reason) => reason,
            };
            if given_up() {
                return Err("given up".to_string());
            }
            let is_late = since.elapsed() >= insist;
            if (is_late && is_served) || self.is_other {
                return Err(failed);
            }
            if !self.owns && since.elapsed() >= wait {
                self.owns = true;
            }
            if is_late
                && self.owns
                && let Some(child) = &mut self.started.0.lock().child
                && let Ok(Some(status)) = child.try_wait()
            {
                return Err(self.last_words().unwrap_or_else(|| format!("its server ended ({status})")));
            }
            sleep(POLL);
        }
    }

    /// The last line of the server's log.
    fn last_words(&self) -> Option<String> {
        let log = fs::read_to_string(place::server_log(&self.folder)).ok()?;
        let line = log.lines().rfind(|line| !line.is_empty())?;
        Some(line.trim_start_matches("pumice: ").to_string())
    }

    /// Starts a server if the last one has ended.
    fn start(&mut self) -> Result<(), String> {
        let mut process = self.started.0.lock();
        if let Some(child) = &mut process.child {
            match child.try_wait() {
                Ok(None) => return Ok(()),
                Ok(Some(status)) => tracing::warn!(%status, "the server has ended"),
                Err(error) => return Err(error.to_string()),
            }
        }
        if self.started_at.is_some_and(|at| at.elapsed() < START_AGAIN) {
            return Ok(());
        }
        self.started_at = Some(Instant::now());
        let log = File::options().create(true).append(true).open(place::server_log(&self.folder));
        let log = log.map_err(|error| format!("cannot write the log of its server: {error}"))?;
        let mut socket = OsString::from("unix:");
        socket.push(place::nbd_socket(&self.folder));
        let mut command = Command::new(&self.start.program);
        command.arg("serve").arg(&self.path).arg("--nbd").arg(socket).args(&self.start.arguments);
        // Out of reach of the terminal's signals.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        let child = command.spawn().map_err(|error| format!("cannot start its server: {error}"))?;
        // The bridge must survive a shortage of memory; the server can be started again.
        let _ = fs::write(format!("/proc/{}/oom_score_adj", child.id()), "0");
        tracing::info!(pid = child.id(), "server started");
        process.child = Some(child);
        process.adopted = None;
        drop(process);
        Ok(())
    }

    /// Checks that a server has the drive that it is to have.
    fn check(&self, report: &StatusReport) -> Result<(), String> {
        let found = Identity::of(report);
        let known = self.known.0.lock();
        let known = known.as_ref().map(|served| &served.identity).or(self.expected.as_ref());
        known.map_or(Ok(()), |known| known.check(&found))
    }

    fn connect_to(&mut self, report: &StatusReport) -> Result<Connected, String> {
        let (socket, name) = endpoint(report)?;
        let checked = self.check(report);
        self.is_other = checked.is_err();
        checked?;
        let shape = shape(report);
        if let Some(before) = &self.shape {
            if before.size_bytes > shape.size_bytes {
                return Err("the drive has become smaller".to_string());
            }
            if before.read_only != shape.read_only || before.sector_bytes != shape.sector_bytes {
                return Err(
                    "the drive is served in another way: read-only or not, or with other sectors".to_string()
                );
            }
        }
        if instance(report).is_none() {
            sleep(OLDER_ENDS);
        }
        let count = std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX);
        let connect = || -> io::Result<UnixStream> {
            let mut stream = socket_file::connect(&socket, PATIENCE)?;
            stream.set_read_timeout(Some(NEGOTIATION))?;
            stream.set_write_timeout(Some(NEGOTIATION))?;
            negotiate(&mut stream, &name, Replies::Simple)
                .map_err(|error| io::Error::new(error.kind(), unanswered(&error)))?;
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(None)?;
            Ok(stream)
        };
        let streams = (0..count).map(|_| connect()).collect::<Result<Vec<_>, _>>();
        let streams = streams.map_err(|error| format!("{}: {error}", socket.display()))?;
        // Whoever has answered there is the server that was asked: it has the drive still.
        let id = |report: &StatusReport| (server_pid(report), instance(report).cloned());
        if find(&self.path).as_ref().map(id) != Some(id(report)) {
            return Err("its server was replaced meanwhile".to_string());
        }
        if socket == place::nbd_socket(&self.folder) {
            self.started.adopt(server_pid(report));
            self.owns = true;
        }
        *self.known.0.lock() = Some(Served {
            instance: instance(report).cloned().unwrap_or_default(),
            path: path_text(&report.path),
            identity: Identity::of(report),
        });
        self.shape = Some(shape);
        Ok(Connected { streams })
    }
}

impl Server for DriveServer {
    fn connect(&mut self) -> Result<Connected, String> {
        match find(&self.path) {
            Some(report) if report.state != DriveState::Closed => self.connect_to(&report),
            _ if self.owns => {
                self.start()?;
                Err("its server is starting".to_string())
            }
            _ => Err("it is not being served".to_string()),
        }
    }
}

/// What a failed negotiation means.
fn unanswered(error: &io::Error) -> String {
    match error.kind() {
        // Of a socket with a time limit.
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => format!(
            "its server does not answer within {} seconds: requests of connections that were closed may be under way still",
            NEGOTIATION.as_secs()
        ),
        _ => error.to_string(),
    }
}

/// The opening of a drive by its server, unlike any other before or after; `None` if the server does not tell: an older program.
pub(crate) fn instance(report: &StatusReport) -> Option<&String> {
    report.server.as_ref().map(|server| &server.instance).filter(|instance| !instance.is_empty())
}

/// Process id of the server of a drive.
pub(crate) fn server_pid(report: &StatusReport) -> Option<u32> {
    report.server.as_ref().map(|server| server.pid)
}

/// What the node of a drive shows.
pub(crate) fn shape(report: &StatusReport) -> Shape {
    Shape {
        size_bytes: report.logical_capacity_bytes,
        sector_bytes: report.sector_bytes,
        read_only: report.read_only_requested,
    }
}

/// Unix socket and export name of a drive. One without TLS: a certificate proves nothing that the file of the socket does not.
fn endpoint(report: &StatusReport) -> Result<(PathBuf, String), String> {
    let uris = report.server.iter().flat_map(|server| &server.nbd_uris);
    let exports = uris.filter_map(|uri| ExportUri::parse(uri).ok()).filter(|export| !export.has_tls());
    let mut sockets =
        exports.filter_map(|export| Some((export.unix_socket()?.to_path_buf(), export.name().to_string())));
    sockets.next().ok_or_else(|| {
        "its server listens at no Unix socket without TLS: add one to `nbd` in its configuration".to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_lets_nobody_in_is_named_as_the_reason() {
        let (mut stream, _server) = UnixStream::pair().expect("sockets");
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a limit");
        let error = negotiate(&mut stream, "", Replies::Simple).expect_err("nobody answers");
        assert!(unanswered(&error).contains("under way still"), "{error}");
        let other = io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(unanswered(&other), other.to_string());
    }
}
