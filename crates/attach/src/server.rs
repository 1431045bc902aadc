//! The server of a drive: found by its admin socket, started if there is none.

mod error;

use std::ffi::OsString;
use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ask::runtime_dir::MEMORY_DIR;
use ask::{DriveSearch, file_id, is_being_opened, server_with_open};
use fuse::Share;
use host::shortage;
use launch::{LOST_EXIT_CODE, Log, Serve};
use nbd::client::{Brought, ExportUri, Wishes, negotiate_attachment, take_left};
use parking_lot::Mutex;
use rustix::net::sockopt;
use status::{DriveState, FileId, StatusReport, path_text};

use crate::drive::Drive;
use crate::identity::{DifferentDrive, Identity};
use crate::marks::Marks;
use crate::memory_dir;
use crate::place::{self, Record};
use crate::process::Process;
use crate::processors;
use crate::served::{Known, LOST, Served, instance, memory_kept};
use crate::shape::Shape;
use crate::upstream::{Connected, Opened, Server, Supply};
use error::NegotiationError;
pub(crate) use error::{ServerError, StartError, StillRunning};

/// Connections to a server: one for every two processors, up to this number. Fewer connections carry more
/// answers at once.
const CONNECTIONS_MAX: usize = 4;
/// Send buffer of a connection, in bytes. With the kernel's default, 208 KiB, a thread blocks in the middle
/// of a large write, and delays all requests behind it.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Time limit of connecting.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time limit of negotiating: the server answers once requests of closed connections have ended. It commonly
/// drops them after 10 seconds, and refuses after 60. This limit is shorter: the line tries again, and a
/// hanging server does not delay a detach for long.
const NEGOTIATION: Duration = Duration::from_secs(20);
/// Time for the requests of closed connections to end in a server of an older program, which does not wait
/// for them.
const OLDER_ENDS: Duration = Duration::from_millis(500);
/// Interval between starts of a server that ends.
const START_AGAIN: Duration = Duration::from_secs(1);
/// Time within which a server that cannot serve its drive ends.
const FAILS: Duration = Duration::from_secs(10);
/// Time for a server that an earlier bridge has started to have the drive open. It may hang.
const LEFT_ANSWERS: Duration = Duration::from_secs(60);
/// Time for a server that somebody else has started to have the drive open.
const OPENS: Duration = Duration::from_secs(60);
/// Interval of checks whether a server is ready, or has ended.
const POLL: Duration = Duration::from_millis(50);
/// Openings of copies that are remembered. The newest is among those that a copy names after some more.
const PARTED_MAX: usize = 64;
/// Time for a server to close its drive.
const CLOSING: Duration = Duration::from_secs(120);

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Further arguments of `serve`.
    pub arguments: Vec<OsString>,
}

/// A server that the bridge has started. Shared with the threads that may stop it.
#[derive(Clone)]
pub(crate) struct Started {
    /// Folder in which it is recorded.
    folder: PathBuf,
    server: Arc<Mutex<Option<StartedServer>>>,
}

struct StartedServer {
    process: Process,
    /// `None` if an earlier bridge has started it.
    child: Option<Child>,
    /// It has served the drive.
    has_served: bool,
}

impl StartedServer {
    /// Returns how it ended; `None` if it runs.
    fn ended(&mut self) -> Option<(String, Option<i32>)> {
        match &mut self.child {
            Some(child) => match child.try_wait() {
                Ok(status) => status.map(|status| (status.to_string(), status.code())),
                Err(error) => Some((error.to_string(), None)),
            },
            None => (!self.process.is_running()).then(|| ("started before".to_string(), None)),
        }
    }
}

impl Started {
    /// `left`: a server that an earlier bridge has started.
    pub(crate) fn new(folder: &Path, left: Option<Process>) -> Started {
        let server = left.map(|process| StartedServer { process, child: None, has_served: false });
        Started { folder: folder.to_path_buf(), server: Arc::new(Mutex::new(server)) }
    }

    /// Takes over the server that serves the drive, which an earlier bridge has started if this one has not.
    fn adopt(&self, pid: Option<u32>) {
        let Some(pid) = pid else { return };
        let mut server = self.server.lock();
        match &mut *server {
            Some(known) if known.process.pid == pid => known.has_served = true,
            // A server that this bridge started meanwhile ends by itself: the drive is in use.
            _ => {
                *server = Some(self.noted(StartedServer {
                    process: Process::of(pid),
                    child: None,
                    has_served: true,
                }))
            }
        }
    }

    fn noted(&self, server: StartedServer) -> StartedServer {
        if let Err(error) = place::note_server(&self.folder, server.process) {
            tracing::warn!(%error, "if this process is killed, nobody will know which server it has started");
        }
        server
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        self.server.lock().as_ref().map(|server| server.process.pid)
    }

    /// The process id of a server that an earlier bridge has started, if that runs and has not served the
    /// drive yet.
    pub(crate) fn left(&self) -> Option<u32> {
        let server = self.server.lock();
        let left = server.as_ref().filter(|server| server.child.is_none() && !server.has_served)?;
        left.process.is_running().then_some(left.process.pid)
    }

    /// Stops the server and waits until it has closed its drive. With `may_kill`, kills one that hangs: its
    /// acknowledged, unflushed changes are lost.
    ///
    /// # Errors
    /// If it does not end.
    pub(crate) fn stop(&self, may_kill: bool) -> Result<(), StillRunning> {
        let server = self.server.lock().take();
        server.map_or(Ok(()), |server| stop(server, may_kill))
    }

    /// Stops the server if this bridge has started it.
    ///
    /// # Errors
    /// If it does not end.
    pub(crate) fn stop_own(&self) -> Result<(), StillRunning> {
        let own = self.server.lock().take_if(|server| server.child.is_some());
        // It has acknowledged nothing.
        own.map_or(Ok(()), |server| stop(server, true))
    }
}

fn stop(server: StartedServer, may_kill: bool) -> Result<(), StillRunning> {
    stop_process(server.process, may_kill)?;
    if let Some(mut child) = server.child {
        // It has ended.
        let _ = child.wait();
    }
    Ok(())
}

/// Ends a server, and waits until it has closed its drive.
///
/// # Errors
/// If it does not end.
pub(crate) fn stop_process(process: Process, may_kill: bool) -> Result<(), StillRunning> {
    let pid = process.pid;
    process.end(CLOSING, may_kill).then_some(()).ok_or(StillRunning { pid })
}

/// The server that a killed bridge has started, if it runs: the drive may not be open there yet.
pub(crate) fn left(folder: &Path, record: &Record) -> Option<Process> {
    match place::server(folder) {
        Some(process) => process.is_running().then_some(process),
        None => {
            // The record of an older program has no start time: its process id may be reused.
            let pid = record.server_pid?;
            let report = record.search().find_patiently()?;
            (server_pid(&report) == Some(pid)).then(|| Process::of(pid))
        }
    }
}

/// Finds the server again whenever it is gone.
pub(crate) struct DriveServer {
    path: PathBuf,
    folder: PathBuf,
    start: Start,
    pub(crate) search: DriveSearch,
    pub(crate) started: Started,
    /// The bridge starts the server, or an earlier one has.
    owns: bool,
    started_at: Option<Instant>,
    /// Why the server that was started last has not served the drive.
    failure: Option<Arc<StartError>>,
    /// Bytes of the server's log when it was started.
    log: Option<Log>,
    /// The drive that is expected: that of a device which waits for a bridge.
    expected: Option<Identity>,
    pub(crate) known: Known,
    /// What the drive showed at the first connections.
    shape: Option<Shape>,
    /// A device waits for the drive, or has it: the drive's server counts, wherever the path leads by now.
    is_fixed: bool,
    /// Marks that tell new servers that the drive is attached.
    pub(crate) marks: Marks,
    /// Something else than the expected drive was found.
    pub(crate) is_other: bool,
    /// The newest openings of copies that went their own way.
    parted: Vec<String>,
    /// The file that the server started last has, if that is not the drive's.
    wrong: Option<FileId>,
}

impl DriveServer {
    pub(crate) fn new(
        path: &Path,
        folder: &Path,
        start: Start,
        started: Started,
        expected: Option<Identity>,
    ) -> DriveServer {
        let search = match &expected {
            Some(expected) => expected.search(path),
            None => DriveSearch::new(path),
        };
        DriveServer {
            path: path.to_path_buf(),
            folder: folder.to_path_buf(),
            start,
            search,
            owns: started.pid().is_some(),
            started,
            started_at: None,
            failure: None,
            log: None,
            is_fixed: expected.is_some(),
            expected,
            known: Known::default(),
            shape: None,
            marks: Marks::default(),
            is_other: false,
            parted: Vec::new(),
            wrong: None,
        }
    }

    /// The drive and its server. Known after the first connection.
    pub(crate) fn drive(&self) -> Option<(Drive, Served)> {
        let served = self.known.get()?;
        Some((Drive { identity: served.identity.clone(), shape: self.shape.clone()? }, served))
    }

    /// Connects for the first time. If nobody serves the drive within `wait`, or is opening it, starts a
    /// server. Ignores failures before `insist`. `given_up` ends the wait.
    pub(crate) fn first(
        &mut self,
        wait: Duration,
        insist: Duration,
        given_up: impl Fn() -> bool,
    ) -> Result<Connected, ServerError> {
        let since = Instant::now();
        if let Some(Identity { uuid, file, .. }) = self.expected.clone() {
            // First: a server that opens it now refuses to if what its device has was lost.
            self.marks.note(&self.path);
            self.marks.set(&uuid, file.as_ref()).map_err(ServerError::Marked)?;
        }
        // A slow server gets time to answer before another one is started. Checked before each attempt: a
        // server that becomes ready meanwhile is tried again.
        let mut is_served = if self.is_fixed {
            self.search.find_patiently().is_some_and(|report| !self.is_elsewhere(&report))
        } else {
            self.search.find_exactly_patiently().map_err(ServerError::Search)?.is_some()
        };
        loop {
            let is_late = since.elapsed() >= insist;
            // Before the next one is started.
            if is_late
                && self.owns
                && !self.runs()
                && let Some(failure) = &self.failure
            {
                return Err(ServerError::Start(failure.clone()));
            }
            let failed = match self.connect(&Supply::Nothing) {
                Ok(connected) => return Ok(connected),
                Err(error) => error,
            };
            if given_up() {
                return Err(ServerError::GivenUp);
            }
            if (is_late && is_served) || self.is_other {
                return Err(failed);
            }
            let waited = since.elapsed();
            if !self.owns && waited >= wait && (waited >= OPENS || !is_being_opened(&self.path)) {
                self.owns = true;
            }
            if is_late
                && since.elapsed() >= LEFT_ANSWERS
                && !is_served
                && let Some(pid) = self.started.left()
            {
                return Err(ServerError::LeftSilent { pid });
            }
            sleep(POLL);
            is_served = self.find().is_some_and(|report| !self.is_elsewhere(&report));
        }
    }

    /// The drive as its server reports it.
    fn find(&self) -> Option<StatusReport> {
        match self.is_fixed {
            true => self.search.find(),
            false => self.search.find_exactly().ok().flatten(),
        }
    }

    /// Returns whether the server that was started runs. If it has ended and never served the drive, notes
    /// the reason.
    fn runs(&mut self) -> bool {
        let mut started = self.started.server.lock();
        let Some(server) = &mut *started else { return false };
        let Some((how, code)) = server.ended() else { return true };
        if server.child.is_some() && !server.has_served {
            if code == Some(LOST_EXIT_CODE.into()) {
                self.known.note_missing(LOST);
            }
            let reason = self.last_words().unwrap_or_else(|| format!("its server ended ({how})"));
            self.failure = Some(Arc::new(StartError::Ended(reason)));
        }
        false
    }

    /// The last line that the server has written to its log.
    fn last_words(&self) -> Option<String> {
        self.log.as_ref()?.last_line()
    }

    /// Starts a server if the last one has ended. Notes why there is none, if that is known.
    fn start(&mut self) {
        if self.runs() || self.started_at.is_some_and(|at| at.elapsed() < START_AGAIN) {
            return;
        }
        self.started_at = Some(Instant::now());
        if let Err(error) = self.spawn() {
            self.failure = Some(Arc::new(error));
        }
    }

    fn spawn(&mut self) -> Result<(), StartError> {
        let log = Log::append(&place::server_log(&self.folder));
        let (log, file) = log.map_err(StartError::Log)?;
        self.log = Some(log);
        let serve = Serve::new(&self.start.program).drive(&self.path);
        let mut serve =
            serve.nbd(&place::nbd_socket(&self.folder)).args(&self.start.arguments).in_own_group();
        match memory_dir::make(&self.folder) {
            Ok(dir) => serve = dir.into_iter().fold(serve, |serve, dir| serve.env(MEMORY_DIR, dir)),
            Err(error) => tracing::warn!(%error, "no directory in memory for what the server keeps"),
        }
        let mut server = self.started.server.lock();
        let program = || self.start.program.clone();
        let child = serve.spawn(file).map_err(|source| StartError::Spawn { program: program(), source })?;
        let process = Process::of(child.id());
        // Recorded at once: if this process is killed, another one has to stop the server.
        *server = Some(self.started.noted(StartedServer { process, child: Some(child), has_served: false }));
        // The bridge can start it again, but every request waits meanwhile.
        let _ = shortage::set_kill_score(&process.pid.to_string(), shortage::KILLED_LATE);
        tracing::info!(pid = process.pid, "server started");
        Ok(())
    }

    /// The drive that its server must have, once that is known.
    fn wanted(&self) -> Option<Identity> {
        self.known.get().map(|served| served.identity).or(self.expected.clone())
    }

    /// Checks that a server has the expected drive.
    fn check(&self, report: &StatusReport) -> Result<(), DifferentDrive> {
        let Some(wanted) = self.wanted() else { return Ok(()) };
        wanted.check(report)?;
        // Its own openings may have displaced the one that it has not had.
        match report.opening_ids.iter().any(|id| self.parted.contains(id)) {
            true => Err(DifferentDrive::Parted { opening: wanted.opens_count }),
            false => Ok(()),
        }
    }

    /// Notes the newest opening of a copy that went its own way.
    fn note_parted(&mut self, report: &StatusReport) {
        let newest = report.opening_ids.first().filter(|id| !self.parted.contains(id));
        self.parted.extend(newest.cloned());
        let surplus = self.parted.len().saturating_sub(PARTED_MAX);
        self.parted.drain(..surplus);
    }

    /// Returns whether a server has another drive, which it opened earlier by this path: such a server does
    /// not block a server of the right drive.
    fn is_elsewhere(&self, report: &StatusReport) -> bool {
        self.wanted().is_some_and(|wanted| wanted.is_elsewhere(report, &self.path))
    }

    /// Notes which file a server has that this bridge has started, and that serves something else.
    fn note_wrong(&mut self, report: &StatusReport) {
        if self.started.pid() == server_pid(report) {
            self.wrong = report.backing.file.clone();
        }
    }

    /// Ends that server once another file is at the path: it may be the drive's own, back again.
    fn end_wrong(&mut self) {
        let is_back = |wrong: &FileId| fs::metadata(&self.path).is_ok_and(|found| file_id(&found) != *wrong);
        if self.wrong.as_ref().is_some_and(is_back) {
            tracing::info!("another file is at the path of the drive now: the server is started again");
            if let Err(why) = self.started.stop(false) {
                tracing::warn!("{why}");
            }
            (self.wrong, self.started_at) = (None, None);
        }
    }

    fn connect_to(&mut self, report: &StatusReport, supply: &Supply) -> Result<Connected, ServerError> {
        let checked = self.check(report);
        self.is_other = checked.is_err();
        // The newest opening that a read-only server reports is not its own.
        if matches!(checked, Err(DifferentDrive::Parted { .. })) && !report.read_only_requested {
            self.note_parted(report);
        }
        checked.inspect_err(|why| {
            self.known.note_missing(format!("{why}: what was acknowledged is not there"));
            self.note_wrong(report);
        })?;
        let (socket, name) = endpoint(report)?;
        let shape = shape(report);
        if let Some(before) = &self.shape {
            if before.size_bytes > shape.size_bytes {
                return Err(ServerError::Smaller);
            }
            if before.read_only != shape.read_only || before.sector_bytes != shape.sector_bytes {
                return Err(ServerError::OtherShape);
            }
        }
        if instance(report).is_none() {
            sleep(OLDER_ENDS);
        }
        let own = self.path.clone();
        [&own, &report.path].into_iter().for_each(|path| self.marks.note(path));
        self.marks.set(&report.uuid, report.backing.file.as_ref()).map_err(ServerError::Marked)?;
        let opening = instance(report).map_or("", String::as_str);
        let returns = self.shape.is_some() || self.expected.is_some();
        let mut attaches = true;
        let plain = Wishes { brings: None, opening, returns, for_kernel: false, uncached: false };
        let mut connect = |wishes: Wishes<'_>| -> Result<UnixStream, NegotiationError> {
            let mut stream = socket_file::connect(&socket, PATIENCE)?;
            stream.set_read_timeout(Some(NEGOTIATION))?;
            stream.set_write_timeout(Some(NEGOTIATION))?;
            let found = negotiate_attachment(&mut stream, &name, wishes).map_err(NegotiationError::of)?;
            attaches &= found.attaches;
            stream.set_read_timeout(None)?;
            stream.set_write_timeout(None)?;
            hold_more(&stream);
            Ok(stream)
        };
        let failed = |source| ServerError::Connect { socket: socket.clone(), source };
        // No request of earlier connections is in flight once this one is there.
        let mut streams = vec![connect(plain).map_err(failed)?];
        let wanted = self.wanted();
        let served = Served {
            instance: instance(report).cloned().unwrap_or_default(),
            path: path_text(&report.path),
            identity: wanted.map_or_else(|| Identity::of(report), |wanted| wanted.followed_by(report)),
            has_lost: report.server.as_ref().is_some_and(|server| server.writes_lost),
            memory_kept: memory_kept(report),
        };
        if !matches!(supply, Supply::Nothing) {
            // The server may be killed right after it has answered the first request.
            self.known.set(served.clone());
        }
        match supply {
            Supply::Nothing => {}
            Supply::Shares(shares) => {
                // The process that listens, unless it does so for the server, as systemd does, or the server
                // is seen under another number from there.
                let listens = sockopt::socket_peercred(&streams[0]).ok();
                let listens = listens.map(|found| found.pid.as_raw_nonzero().get().unsigned_abs());
                let listens = listens.filter(|pid| server_pid(report) == Some(*pid));
                let listens = listens.or_else(|| server_with_open(&self.path));
                // Before it gets them: if this process is killed, another one has to know.
                if let Err(error) = place::note_serving(&self.folder, listens.map(Process::of)) {
                    tracing::warn!(%error, "if this process is killed, its server is asked whether it has the device");
                }
                for share in shares.for_server(listens) {
                    let wishes = Wishes { brings: Some(Brought::Fuse(share)), ..plain };
                    streams.push(connect(wishes).map_err(failed)?);
                }
            }
            Supply::Driver { uncached } => {
                let wishes = Wishes { for_kernel: true, uncached: *uncached, ..plain };
                streams.push(connect(wishes).map_err(failed)?);
            }
            Supply::Queues(device) => {
                let Opened { character, queues, uncached } = device.open().map_err(ServerError::Device)?;
                for (character, queue) in
                    character.iter().flat_map(|it| queues.iter().map(move |queue| (it, queue)))
                {
                    let wishes =
                        Wishes { brings: Some(Brought::Queue(*queue, character)), uncached, ..plain };
                    streams.push(connect(wishes).map_err(failed)?);
                }
            }
        }
        // Checks that the server that answered still has the drive.
        let id = |report: &StatusReport| {
            // One of an older program does not check which drive has the name.
            (server_pid(report), instance(report).cloned(), endpoint(report).ok())
        };
        if self.search.find().as_ref().map(id) != Some(id(report)) {
            return Err(ServerError::Replaced);
        }
        if socket == place::nbd_socket(&self.folder) {
            self.started.adopt(server_pid(report));
            self.owns = true;
        }
        if !attaches {
            tracing::warn!(
                "the server does not know that the drive is attached: it is of an older program, or of another user. \
                 What other clients write may be undone when it is restarted"
            );
        }
        self.known.set(served);
        self.search.follow(report);
        self.shape = Some(shape);
        self.is_fixed = true;
        self.failure = None;
        Ok(Connected { streams })
    }

    /// What a keeper that was killed has left to the server of the drive.
    fn left_shares(&self) -> Result<Vec<Share>, ServerError> {
        let report = self.find().ok_or(ServerError::NotServed)?;
        self.check(&report)?;
        left_shares(&report)
    }
}

impl Server for DriveServer {
    type Error = ServerError;

    fn connect(&mut self, supply: &Supply) -> Result<Connected, ServerError> {
        self.is_other = false;
        let mut not_served = ServerError::NotServed;
        match self.find().filter(|report| report.state != DriveState::Closed) {
            Some(report) if self.is_elsewhere(&report) => {
                let pid = server_pid(&report).unwrap_or_default();
                self.note_wrong(&report);
                not_served = ServerError::ServesAnother { pid };
            }
            Some(report) => return self.connect_to(&report, supply),
            None => {}
        }
        if !self.owns {
            return Err(not_served);
        }
        self.end_wrong();
        self.start();
        // A server that fails does so soon. A slower one may be rolling its log forward.
        let is_new = self.started_at.is_none_or(|at| at.elapsed() < FAILS);
        Err(match &self.failure {
            Some(failure) if is_new => ServerError::NotStarted(failure.clone()),
            _ => ServerError::Starting,
        })
    }
}

/// What keepers that were killed have left to a server.
///
/// # Errors
/// If it does not say so.
pub(crate) fn left_shares(report: &StatusReport) -> Result<Vec<Share>, ServerError> {
    let (socket, name) = endpoint(report)?;
    let opening = instance(report).map_or("", String::as_str);
    let connected = socket_file::connect(&socket, PATIENCE).map_err(NegotiationError::Socket);
    let taken = connected.and_then(|mut stream| {
        stream.set_read_timeout(Some(NEGOTIATION))?;
        stream.set_write_timeout(Some(NEGOTIATION))?;
        take_left(&mut stream, &name, opening).map_err(NegotiationError::of)
    });
    taken.map_err(|source| ServerError::Connect { socket, source })
}

/// Number of connections that carry the requests of a node.
pub(crate) fn connections() -> usize {
    processors::every_second(CONNECTIONS_MAX)
}

/// The server of the drive, for one upstream after the other: a way to make a node may fail, and then the
/// next one is tried.
#[derive(Clone)]
pub(crate) struct SharedServer(pub(crate) Arc<Mutex<DriveServer>>);

impl SharedServer {
    /// What a keeper that was killed has left to the server.
    pub(crate) fn left_shares(&self) -> Result<Vec<Share>, ServerError> {
        self.0.lock().left_shares()
    }
}

impl Server for SharedServer {
    type Error = ServerError;

    fn connect(&mut self, supply: &Supply) -> Result<Connected, ServerError> {
        self.0.lock().connect(supply)
    }
}

/// Process id of the server of a drive.
pub(crate) fn server_pid(report: &StatusReport) -> Option<u32> {
    report.server.as_ref().map(|server| server.pid)
}

/// Size and sectors that the node of a drive shows.
pub(crate) fn shape(report: &StatusReport) -> Shape {
    Shape {
        size_bytes: report.logical_capacity_bytes,
        sector_bytes: report.sector_bytes,
        read_only: report.read_only_requested,
        write_cache: report.write_cache,
    }
}

/// Unix socket and export name of a drive. One without TLS: a certificate proves nothing that the file of the
/// socket does not.
fn endpoint(report: &StatusReport) -> Result<(PathBuf, String), ServerError> {
    let uris = report.server.iter().flat_map(|server| &server.nbd_uris);
    let exports = uris.filter_map(|uri| ExportUri::parse(uri).ok()).filter(|export| !export.has_tls());
    let mut sockets =
        exports.filter_map(|export| Some((export.unix_socket()?.to_path_buf(), export.name().to_string())));
    sockets.next().ok_or(ServerError::NoSocket)
}

/// Enlarges the send buffer. Without root, up to the system's limit.
fn hold_more(stream: &UnixStream) {
    if sockopt::set_socket_send_buffer_size_force(stream, SEND_BUFFER_BYTES).is_err() {
        // A smaller buffer works too.
        let _ = sockopt::set_socket_send_buffer_size(stream, SEND_BUFFER_BYTES);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_server_that_lets_nobody_in_is_named_as_the_reason() {
        let (mut stream, _server) = UnixStream::pair().expect("sockets");
        stream.set_read_timeout(Some(Duration::from_millis(1))).expect("a limit");
        let wishes = Wishes { brings: None, opening: "", returns: false, for_kernel: false, uncached: false };
        let error = negotiate_attachment(&mut stream, "", wishes).expect_err("nobody answers");
        let error = NegotiationError::of(error);
        assert!(error.to_string().contains("still be in flight"), "{error}");
        let other = || io::Error::from(io::ErrorKind::ConnectionReset);
        assert_eq!(NegotiationError::of(other()).to_string(), other().to_string());
    }
}
