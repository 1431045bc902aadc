//! The bridge: a process for one attachment, from the making of its node to its removal.
//!
//! It is started by `attach` ([`crate::client::start`]). Its standard output has one line, the result; its standard input
//! decides: `keep`, or the end of the stream before that. In the latter case, also if `attach` is killed, the bridge takes down
//! everything it has made.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::error::AttachError;
use crate::node::{self, Node, Shape, Way};
use crate::operation::Operation;
use crate::place::{self, Record};
use crate::relay::{Relay, RelayState, Settings};
pub use crate::server::Start;
use crate::server::{DriveServer, Started, find, shape};
use crate::sfx::Published;
use crate::users::openers;

/// Word by which `attach` takes the attachment over.
pub(crate) const KEEP: &str = "keep";
/// Time for a flush when detaching, and if that is forced.
const FLUSH_PATIENCE: Duration = Duration::from_secs(60);
const FORCED_PATIENCE: Duration = Duration::from_secs(5);
/// Interval between attempts to flush.
const FLUSH_POLL: Duration = Duration::from_millis(100);
/// Time for other processes, such as those that examine new devices, to close the node.
const NODE_PATIENCE: Duration = Duration::from_secs(10);
/// Interval of checks for signals and for growth of the drive.
const TICK: Duration = Duration::from_millis(500);
/// Clients of the control socket that wait to be accepted.
const BACKLOG: i32 = 16;
/// Time for a client of the control socket to send its request.
const REQUEST_PATIENCE: Duration = Duration::from_secs(5);
/// Longest request, in bytes.
const REQUEST_BYTES_MAX: u64 = 4096;

/// What to attach, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Backing of the drive, absolute.
    pub path: PathBuf,
    /// Ways to try, in order.
    pub ways: Vec<Way>,
    /// How to start the drive's server.
    pub start: Start,
    /// Time to wait for a server before one is started.
    pub wait: Duration,
    /// Limits of the relay.
    pub settings: Settings,
}

/// Line with the result, for `attach`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Report {
    Ready(Record),
    Failed(String),
}

/// Request at the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Request {
    Status,
    Detach { force: bool },
}

/// Answer at the control socket.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Answer {
    Status(Status),
    /// With what was lost, if something was.
    Detached(Option<String>),
    Refused(String),
}

/// State of an attachment, and why, if it is not the normal one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// The state.
    pub state: State,
    /// Reason for it, if it is not `attached`.
    pub reason: Option<String>,
    /// Size that the node shows, in bytes.
    pub size_bytes: u64,
}

/// State of an attachment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Requests are passed on.
    Attached,
    /// Requests are held until there is a server again.
    Waiting,
    /// Requests fail.
    Failed,
}

enum Event {
    Keep,
    Abandoned,
    Ask(UnixStream, Request),
    /// The drive may have grown to this size.
    Size(u64),
}

/// Runs a bridge until its attachment is removed. `terminate` is set by a signal to end.
pub fn run(options: &Options, terminate: &AtomicBool) -> Result<(), AttachError> {
    prepare();
    let (events, inbox) = channel();
    let abandoned = Arc::new(AtomicBool::new(false));
    listen_to_attach(events.clone(), abandoned.clone());
    let report = |report: &Report| {
        let mut line = serde_json::to_string(report).unwrap_or_default();
        line.push('\n');
        // Nobody reads it if `attach` was killed.
        let _ = io::stdout().write_all(line.as_bytes()).and_then(|()| io::stdout().flush());
    };
    match Attachment::make(options, &abandoned) {
        Ok(mut attachment) => {
            tracing::info!(node = %attachment.node.path().display(), "attached");
            report(&Report::Ready(attachment.record.clone()));
            attachment.serve(&events, &inbox, terminate)
        }
        Err(error) => {
            tracing::error!("{error}");
            report(&Report::Failed(error.to_string()));
            Err(error)
        }
    }
}

/// Makes the process fit to be under a file system.
fn prepare() {
    // Out of reach of the terminal.
    let _ = rustix::process::setsid();
    // Memory that is allocated here must not wait for writes that come through here.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    // A file system above loses its device with this process.
    let _ = std::fs::write("/proc/self/oom_score_adj", "-1000");
}

/// Reads what `attach` decides.
fn listen_to_attach(events: Sender<Event>, abandoned: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(io::stdin()).take(REQUEST_BYTES_MAX).read_line(&mut line);
        let kept = read.is_ok() && line.trim_end() == KEEP;
        abandoned.store(!kept, Ordering::Relaxed);
        // Fails when the bridge has ended.
        let _ = events.send(if kept { Event::Keep } else { Event::Abandoned });
    });
}

/// Parts of an attachment that are made for it.
type Made = (Record, Shape, Box<dyn Node>, Arc<Relay>);

struct Attachment {
    folder: PathBuf,
    record: Record,
    shape: Shape,
    node: Box<dyn Node>,
    relay: Arc<Relay>,
    started: Started,
    /// A size that the node did not take, which was reported.
    refused_size_bytes: Option<u64>,
    /// Values under the names of ScaleFlux.
    published: Option<Published>,
    _lock: place::FolderLock,
}

impl Attachment {
    fn make(options: &Options, abandoned: &AtomicBool) -> Result<Attachment, AttachError> {
        let folder = place::folder(&options.path);
        let at_folder = |source| AttachError::system(folder.display(), source);
        place::make(&folder).map_err(at_folder)?;
        let lock = place::lock(&folder).map_err(at_folder)?;
        let Some(lock) = lock else { return Err(already(&options.path, &folder)) };
        let started = Started::default();
        // What a killed bridge left. If something uses it, all of it stays, with the record: it can be detached later.
        let stale = Record::read(&folder);
        node::clear_stale(stale.as_ref(), &folder)?;
        let serves = |pid: &u32| {
            find(&options.path).and_then(|report| report.server).is_some_and(|server| server.pid == *pid)
        };
        started.adopt(stale.and_then(|stale| stale.server_pid).filter(serves));
        let made = Attachment::make_in(&folder, options, abandoned, &started);
        let (record, shape, node, relay) = made.inspect_err(|_| {
            started.stop(&options.path);
            place::remove(&folder);
        })?;
        let published = Published::start(&record.path, node.path());
        Ok(Attachment {
            folder,
            record,
            shape,
            node,
            relay,
            started,
            refused_size_bytes: None,
            published,
            _lock: lock,
        })
    }

    fn make_in(
        folder: &Path,
        options: &Options,
        abandoned: &AtomicBool,
        started: &Started,
    ) -> Result<Made, AttachError> {
        let at_folder = |source| AttachError::system(folder.display(), source);
        let given_up = || abandoned.load(Ordering::Relaxed);
        let mut record = Record {
            path: options.path.clone(),
            bridge_pid: std::process::id(),
            server_pid: started.pid(),
            node: None,
            way: None,
            shape: None,
            passed_over: Vec::new(),
        };
        record.write(folder).map_err(at_folder)?;
        let mut server = DriveServer::new(&options.path, folder, options.start.clone(), started.clone());
        let of_drive = |reason| AttachError::Refused(format!("{}: {reason}", status::shown(&options.path)));
        let connected = server.first(options.wait, given_up).map_err(of_drive)?;
        record.server_pid = started.pid();
        record.write(folder).map_err(at_folder)?;
        let shape = server.shape().ok_or_else(|| of_drive("its size is unknown".to_string()))?;
        let relay = Relay::start(connected, server, options.settings.clone());
        let relay = Arc::new(relay.map_err(|source| AttachError::system("cannot start threads", source))?);
        for way in &options.ways {
            match node::make(*way, &relay, &shape, folder) {
                Ok(node) => {
                    record.node = Some(node.path().to_path_buf());
                    (record.way, record.shape) = (Some(*way), Some(shape.clone()));
                    record.write(folder).map_err(at_folder)?;
                    return Ok((record, shape, node, relay));
                }
                Err(AttachError::Missing(reason)) => record.passed_over.push((*way, reason)),
                Err(error) => return Err(error),
            }
        }
        let reasons: Vec<String> =
            record.passed_over.iter().map(|(way, reason)| format!("{way}: {reason}")).collect();
        Err(AttachError::Refused(format!("no way to make a block device: {}", reasons.join("; "))))
    }

    fn serve(
        &mut self,
        events: &Sender<Event>,
        inbox: &Receiver<Event>,
        terminate: &AtomicBool,
    ) -> Result<(), AttachError> {
        let control = place::control_socket(&self.folder);
        let (listener, _socket) = socket_file::listen(&control, BACKLOG)
            .map_err(|error| AttachError::Refused(format!("{}: {error}", control.display())))?;
        listener.set_nonblocking(false).map_err(|source| AttachError::system(control.display(), source))?;
        listen_to_clients(listener, events.clone());
        watch_size(self.record.path.clone(), events.clone());
        let (mut kept, mut abandoned) = (false, false);
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(Event::Keep) => kept = true,
                Ok(Event::Abandoned) => {
                    tracing::warn!("attach has ended before it took over: detaching");
                    abandoned = true;
                }
                Ok(Event::Ask(stream, Request::Status)) => answer(&stream, &Answer::Status(self.status())),
                Ok(Event::Ask(stream, Request::Detach { force })) => match self.remove(force) {
                    Ok(lost) => {
                        answer(&stream, &Answer::Detached(lost));
                        return Ok(());
                    }
                    Err(error) => answer(&stream, &Answer::Refused(error.to_string())),
                },
                Ok(Event::Size(size_bytes)) if size_bytes > self.shape.size_bytes => self.grow(size_bytes),
                Ok(Event::Size(_)) => self.note_server(),
                Err(RecvTimeoutError::Timeout) => self.note_server(),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if abandoned && !kept {
                match self.remove(true) {
                    Ok(_) => return Ok(()),
                    // A program that `attach` has started, such as mkfs, may have it open still.
                    Err(error) => tracing::warn!("cannot detach yet: {error}"),
                }
            }
            if terminate.swap(false, Ordering::Relaxed) {
                match self.remove(false) {
                    Ok(_) => return Ok(()),
                    // A file system would lose its device.
                    Err(error) => tracing::warn!("a signal to end is ignored: {error}"),
                }
            }
        }
    }

    /// Records which server this bridge has started.
    fn note_server(&mut self) {
        let pid = self.started.pid();
        if pid != self.record.server_pid {
            self.record.server_pid = pid;
            // It is for a bridge that follows after a kill of this one.
            let _ = self.record.write(&self.folder);
        }
    }

    fn status(&self) -> Status {
        let (state, reason) = match self.relay.state() {
            RelayState::Connected => (State::Attached, None),
            RelayState::Waiting { since, reason } => {
                let seconds = since.elapsed().as_secs();
                let reason = reason.unwrap_or_else(|| "its server is gone".to_string());
                (State::Waiting, Some(format!("{reason}; for {seconds} seconds")))
            }
            RelayState::Failed(reason) => (State::Failed, Some(reason)),
        };
        Status { state, reason, size_bytes: self.shape.size_bytes }
    }

    fn grow(&mut self, size_bytes: u64) {
        match self.node.resize(size_bytes) {
            Ok(()) => {
                tracing::info!(size_bytes, "the drive has grown");
                self.shape.size_bytes = size_bytes;
                self.record.shape = Some(self.shape.clone());
                let _ = self.record.write(&self.folder);
            }
            // It is tried again.
            Err(error) => {
                if self.refused_size_bytes.replace(size_bytes) != Some(size_bytes) {
                    tracing::error!("the node does not grow: {error}");
                }
            }
        }
    }

    /// Flushes, and removes the node and everything else. With `force`, also if the drive cannot be flushed. Returns what was
    /// lost, if something was.
    fn remove(&mut self, force: bool) -> Result<Option<String>, AttachError> {
        let node = self.node.path().to_path_buf();
        let refused = |why: String| AttachError::Refused(format!("{}: {why}", node.display()));
        let own = format!("{} ", std::process::id());
        // Whoever waits for a server that hangs ends when the request has failed.
        if !force
            && let Some(user) =
                openers(&node).into_iter().find(|user| !user.starts_with(&own) && !is_transient(user))
        {
            return Err(refused(format!("in use by process {user}")));
        }
        if !force && matches!(self.relay.state(), RelayState::Waiting { .. }) {
            return Err(refused(
                "its server is gone, and what is not flushed would be lost; start the server, or use --force"
                    .into(),
            ));
        }
        let flushed = self.flush(if force { FORCED_PATIENCE } else { FLUSH_PATIENCE });
        if let Err(why) = flushed {
            if !force {
                return Err(refused(format!("{why}; start the server, or use --force")));
            }
            // Requests that are held would keep the node.
            self.relay.give_up("its server was given up");
        }
        self.node.remove(NODE_PATIENCE)?;
        // The kernel writes what it has in its page cache when the node goes.
        let lost = self.flush(if force { FORCED_PATIENCE } else { FLUSH_PATIENCE }).err();
        if let Some(why) = &lost {
            tracing::error!("not everything was flushed: {why}");
        }
        // Otherwise it would start the server again.
        self.relay.close();
        self.started.stop(&self.record.path);
        self.published = None;
        place::remove(&self.folder);
        tracing::info!("detached");
        Ok(lost)
    }

    /// Makes all that was acknowledged durable, waiting for the server if it is gone.
    fn flush(&self, patience: Duration) -> Result<(), String> {
        let since = Instant::now();
        loop {
            let bytes = self.relay.journal_bytes();
            let why = match self.relay.state() {
                RelayState::Connected => {
                    let left = patience.saturating_sub(since.elapsed());
                    match self.relay.call(Operation::Flush, left) {
                        Ok(_) => return Ok(()),
                        Err(errno) => format!("cannot flush: {errno}"),
                    }
                }
                // Whoever wrote anything else knows that it failed.
                RelayState::Failed(_) if bytes == 0 => return Ok(()),
                RelayState::Failed(reason) => {
                    return Err(format!("{reason}; {bytes} bytes of acknowledged writes are lost"));
                }
                RelayState::Waiting { reason, .. } => {
                    let reason = reason.unwrap_or_else(|| "its server is gone".to_string());
                    format!("{reason}, and {bytes} bytes of acknowledged writes are not flushed")
                }
            };
            if since.elapsed() >= patience {
                return Err(why);
            }
            std::thread::sleep(FLUSH_POLL);
        }
    }
}

/// Returns whether a process opens each new device for a moment.
fn is_transient(user: &str) -> bool {
    user.contains("(udev") || user.contains("(systemd-udev")
}

fn already(path: &Path, folder: &Path) -> AttachError {
    let path = status::shown(path);
    AttachError::Refused(match Record::read(folder).and_then(|record| record.node) {
        Some(node) => format!("{path}: already attached as {}", node.display()),
        None => format!("{path}: is being attached or detached by another process"),
    })
}

fn listen_to_clients(listener: std::os::unix::net::UnixListener, events: Sender<Event>) {
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let Ok(request) = read_request(&stream) else { continue };
            if events.send(Event::Ask(stream, request)).is_err() {
                return;
            }
        }
    });
}

fn read_request(stream: &UnixStream) -> io::Result<Request> {
    stream.set_read_timeout(Some(REQUEST_PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream).take(REQUEST_BYTES_MAX).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

fn answer(mut stream: &UnixStream, answer: &Answer) {
    let mut line = serde_json::to_string(answer).unwrap_or_default();
    line.push('\n');
    // A client that is gone needs no answer.
    let _ = stream.write_all(line.as_bytes());
}

/// Reports the size of the drive again and again. Its server tells clients only when they connect. Another drive that is served
/// from this path later is not looked at.
fn watch_size(path: PathBuf, events: Sender<Event>) {
    std::thread::spawn(move || {
        let mut uuid = None;
        loop {
            std::thread::sleep(TICK);
            let Some(report) = find(&path) else { continue };
            if *uuid.get_or_insert_with(|| report.uuid.clone()) == report.uuid
                && events.send(Event::Size(shape(&report).size_bytes)).is_err()
            {
                return;
            }
        }
    });
}
