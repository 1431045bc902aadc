//! The bridge: one process per attachment. It lives from the creation of the node to its removal.
//!
//! `attach` starts it ([`crate::client::start`]). It writes one line to standard output, the result. Then it
//! reads standard input: either `keep`, or the end of the stream. At the end of the stream, also because
//! `attach` was killed, the bridge removes everything that it created. It never removes a node that it took
//! over from a killed bridge, or a node that was kept: the process ends, and the node waits for another
//! bridge.

mod control;
mod make;
mod remove;

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use ask::DriveSearch;
use host::shortage;
use parking_lot::Mutex;
use rustix::process::DumpableBehavior;
use serde::{Deserialize, Serialize};
use status::{DriveState, StatusReport};

use crate::error::AttachError;
use crate::ledger::Ledger;
use crate::node::{self, Node};
use crate::node_kind::NodeKind;
use crate::place::{self, Record};
use crate::protocol::Answer;
pub use crate::protocol::{AttachmentState, Status};
use crate::served::Known;
pub use crate::server::Start;
use crate::server::{Started, shape};
use crate::sfx::Published;
use crate::shape::Shape;
use crate::upstream::{Upstream, UpstreamState};

/// Word by which `attach` keeps the attachment.
pub(crate) const KEEP: &str = "keep";
/// Interval of checks for signals and for growth of the drive.
const TICK: Duration = Duration::from_millis(500);
/// Longest line of `attach`, in bytes.
const LINE_BYTES_MAX: u64 = 4096;

/// Shown of a device that does not survive a kill of its server.
const UNPROTECTED: &str = "nothing outlives its server (its log says why): if it is killed, writes that are not \
                           flushed are lost, and the device stops";

/// Shown of a device whose drive has lost writes below it.
const LOST: &str = "its server was started without what the last one had acknowledged: writes that were not flushed \
                    are lost; check what is on the device";

/// What to attach, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Backing of the drive, absolute.
    pub path: PathBuf,
    /// Ways to try, in order.
    pub ways: Vec<NodeKind>,
    /// How to start the drive's server.
    pub start: Start,
    /// Time to wait for a server before one is started.
    pub wait: Duration,
    /// Longest time to hold requests while there is no server. Afterwards all fail.
    pub patience: Duration,
}

/// Line with the result, for `attach`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Report {
    Ready(Box<Record>),
    Failed(String),
}

enum Event {
    Keep,
    Abandoned,
    /// A client wants it detached; true: by force.
    Detach(UnixStream, bool),
    /// A client waits for the end of a detach that another one wants.
    AwaitDetach(UnixStream),
    /// The drive as a server reports it.
    Drive(Box<StatusReport>),
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
    let made = Attachment::make(options, &abandoned).and_then(|mut attachment| {
        match control::listen(&attachment.folder) {
            Ok(control) => Ok((attachment, control)),
            Err(error) => {
                if attachment.record.taken_over.is_none() {
                    // What stays is removed by the next attempt.
                    let _ = attachment.remove(true);
                }
                Err(error)
            }
        }
    });
    match made {
        Ok((mut attachment, (listener, _control))) => {
            tracing::info!(node = %attachment.node.path().display(), "attached");
            report(&Report::Ready(Box::new(attachment.record.clone())));
            attachment.serve(listener, &events, &inbox, terminate)
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
    // A session of its own: signals of the terminal do not reach it.
    let _ = rustix::process::setsid();
    // Its server inherits that, too.
    shortage::become_io_flusher();
    shortage::lift_lock_limit();
    let _ = shortage::lock_memory();
    // A file system above may lose its device with this process.
    let _ = shortage::set_kill_score("self", shortage::NEVER_KILLED);
    // A core dump takes time, and no other bridge can take over meanwhile.
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
}

/// Reads what `attach` decides.
fn listen_to_attach(events: Sender<Event>, abandoned: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(io::stdin()).take(LINE_BYTES_MAX).read_line(&mut line);
        let kept = read.is_ok() && line.trim_end() == KEEP;
        abandoned.store(!kept, Ordering::Relaxed);
        // Fails when the bridge has ended.
        let _ = events.send(if kept { Event::Keep } else { Event::Abandoned });
    });
}

/// Status of a node that the bridge reports at any time.
#[derive(Clone, Debug)]
struct Shown {
    size_bytes: u64,
    /// A size that the node did not take, and why.
    refused_size: Option<(u64, String)>,
    /// Its server keeps nothing that outlives a kill.
    is_unprotected: bool,
    /// A server was started without what the last one had acknowledged.
    has_lost: bool,
    /// What it acknowledged reaches the drive without it, too: the next server has it, or it is durable.
    /// Known of a server that takes writes: one that takes none any more tells nothing of earlier ones.
    outlives_server: bool,
    /// It is being removed.
    is_detaching: bool,
}

struct Attachment {
    folder: PathBuf,
    record: Record,
    ledger: Arc<Ledger>,
    shape: Shape,
    node: Box<dyn Node>,
    upstream: Arc<dyn Upstream>,
    shown: Arc<Mutex<Shown>>,
    started: Started,
    known: Known,
    search: DriveSearch,
    /// Values published under ScaleFlux's names.
    published: Option<Published>,
    _lock: place::FolderLock,
}

impl Attachment {
    fn serve(
        &mut self,
        control: UnixListener,
        events: &Sender<Event>,
        inbox: &Receiver<Event>,
        terminate: &AtomicBool,
    ) -> Result<(), AttachError> {
        let (upstream, shown) = (self.upstream.clone(), self.shown.clone());
        control::receive(control, events.clone(), move || status(&*upstream, &shown.lock()));
        watch_drive(self.search.clone(), events.clone());
        // A failed attempt leaves another bridge's attachment in place.
        let (mut kept, mut abandoned) = (self.record.taken_over.is_some(), false);
        loop {
            match inbox.recv_timeout(TICK) {
                Ok(Event::Keep) => {
                    kept = true;
                    self.node.keep();
                    // `attach` has reported it.
                    let record = Record { loss_to_report: false, ..self.record.clone() };
                    self.note(record);
                }
                Ok(Event::Abandoned) => {
                    tracing::warn!("attach has ended before it took over: detaching");
                    abandoned = true;
                }
                Ok(Event::Detach(stream, force)) => match self.remove(force) {
                    Ok(lost) => {
                        let answer = Answer::Detached(lost);
                        control::answer(&stream, &answer);
                        answer_waiting(inbox, &answer);
                        return Ok(());
                    }
                    Err(error) => control::answer(&stream, &Answer::Refused(error.to_string())),
                },
                // The process stays.
                Ok(Event::AwaitDetach(stream)) => {
                    let status = status(&*self.upstream, &self.shown.lock());
                    control::answer(&stream, &Answer::Status(status));
                }
                Ok(Event::Drive(report)) => self.see(&report),
                Err(RecvTimeoutError::Timeout) => {
                    let record = Record { server_pid: self.started.pid(), ..self.record.clone() };
                    self.note(record);
                    self.look_at_node();
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            if abandoned && !kept {
                match self.remove(true) {
                    Ok(lost) => {
                        answer_waiting(inbox, &Answer::Detached(lost));
                        return Ok(());
                    }
                    // A program that `attach` has started, such as mkfs, may have it open still.
                    Err(error) => tracing::warn!("cannot detach yet: {error}"),
                }
            }
            if terminate.swap(false, Ordering::Relaxed) {
                match self.remove(false) {
                    Ok(lost) => {
                        answer_waiting(inbox, &Answer::Detached(lost));
                        return Ok(());
                    }
                    // A file system would lose its device.
                    Err(error) => tracing::warn!("a signal to end is ignored: {error}"),
                }
            }
        }
    }

    /// Takes a report of the drive. Ignores a report of another drive served from this path, and of a server
    /// other than the one of the connections.
    fn see(&mut self, report: &StatusReport) {
        self.look_at_node();
        let mut record = Record { server_pid: self.started.pid(), ..self.record.clone() };
        let seen = self.known.note(report);
        let is_its = seen.is_some();
        if let Some(published) = self.published.as_mut().filter(|_| is_its) {
            published.write(report);
        }
        if is_its && let Some(server) = &report.server {
            // Without a write cache nothing is acknowledged that a kill could take.
            let may_lose =
                report.write_cache && report.state == DriveState::Online && !self.record.is_durable();
            let mut shown = self.shown.lock();
            shown.is_unprotected = may_lose && !server.memory_kept;
            if report.state == DriveState::Online {
                shown.outlives_server = !shown.is_unprotected;
            } else if server.disowned {
                // Another owner had it from the backing alone.
                shown.outlives_server = !report.write_cache;
            }
        }
        if let (Some(served), UpstreamState::Connected) = (seen, self.upstream.state()) {
            let is_new = record.connected.as_ref() != Some(&served.instance);
            if is_new && served.has_lost {
                tracing::error!("{LOST}");
                self.shown.lock().has_lost = true;
            }
            record.connected = Some(served.instance);
            record.memory_kept = served.memory_kept;
            record.served = Some(served.path);
            record.identity = Some(served.identity);
        }
        self.note(record);
        let size_bytes = shape(report).size_bytes;
        if is_its && size_bytes > self.shape.size_bytes {
            self.grow(size_bytes);
        }
    }

    /// Withdraws links to the node once it belongs to another device. Clients detect that themselves. Gives
    /// up one that has ended.
    fn look_at_node(&mut self) {
        let has_failed = matches!(self.upstream.state(), UpstreamState::Failed(_));
        if let Some(why) = self.node.ended().filter(|_| !has_failed) {
            tracing::error!("{why}: all requests fail from now on");
            self.upstream.give_up(why);
        }
        let Some(published) = &self.published else { return };
        match node::lost(&self.record, &self.folder) {
            None => published.link_partitions(),
            Some(lost) => {
                let why = lost.why(self.node.path(), true);
                tracing::error!("{why}; detach the drive and attach it again");
                self.published = None;
            }
        }
    }

    /// Records what the next bridge needs if this one is killed.
    fn note(&mut self, record: Record) {
        self.record = record;
        // Until it is written, an outdated record is harmless: it names a server that is gone, and an older
        // state of the drive. The next tick tries again.
        let _ = self.ledger.write(&self.record);
    }

    fn grow(&mut self, size_bytes: u64) {
        match self.node.resize(size_bytes) {
            Ok(()) => {
                tracing::info!(size_bytes, "the drive has grown");
                self.shape.size_bytes = size_bytes;
                self.record.shape = Some(self.shape.clone());
                let mut shown = self.shown.lock();
                (shown.size_bytes, shown.refused_size) = (size_bytes, None);
                drop(shown);
                let _ = self.ledger.write(&self.record);
            }
            // It is tried again.
            Err(error) => {
                let refused = Some((size_bytes, error.to_string()));
                let mut shown = self.shown.lock();
                if shown.refused_size != refused {
                    tracing::error!("the node does not grow: {error}");
                    shown.refused_size = refused;
                }
            }
        }
    }
}

/// Answers all clients that asked for the same.
fn answer_waiting(inbox: &Receiver<Event>, answer: &Answer) {
    for event in inbox.try_iter() {
        if let Event::Detach(stream, _) | Event::AwaitDetach(stream) = event {
            control::answer(&stream, answer);
        }
    }
}

fn status(upstream: &dyn Upstream, shown: &Shown) -> Status {
    if shown.is_detaching {
        let reason = Some("it is being detached".to_string());
        return Status { state: AttachmentState::Changing, reason, ..Status::of_size(shown.size_bytes) };
    }
    let (state, reason) = match upstream.state() {
        UpstreamState::Connected => {
            let loss = shown.has_lost.then(|| LOST.to_string());
            let growth =
                || shown.refused_size.as_ref().map(|(_, why)| format!("its device does not grow: {why}"));
            let kill = || shown.is_unprotected.then(|| UNPROTECTED.to_string());
            (AttachmentState::Attached, loss.or_else(growth).or_else(kill))
        }
        UpstreamState::Waiting { since, reason } => {
            let seconds = since.elapsed().as_secs();
            let reason = reason.unwrap_or_else(|| "its server is gone".to_string());
            (AttachmentState::Waiting, Some(format!("{reason}; for {seconds} seconds")))
        }
        UpstreamState::Failed(reason) => (AttachmentState::Failed, Some(reason)),
    };
    Status { state, reason, is_unprotected: shown.is_unprotected, ..Status::of_size(shown.size_bytes) }
}

/// Polls the status of the drive. Its server sends it to clients only when they connect.
fn watch_drive(search: DriveSearch, events: Sender<Event>) {
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(TICK);
            let Some(report) = search.find() else { continue };
            if events.send(Event::Drive(Box::new(report))).is_err() {
                return;
            }
        }
    });
}
