//! The relay between the kernel and the drive's server. The kernel does not see that a server is killed,
//! restarted or upgraded.
//!
//! ```text
//! node (FUSE, nbd, ublk) -- submit --> relay -- NBD, some connections --> server
//!                           <- done --   |
//!                                        journal: acknowledged, not flushed
//! ```
//!
//! When a connection ends, the relay closes all of them and holds requests. The server accepts a new
//! connection only when no request of a closed one is in flight. Once a server answers again, the relay
//!
//! 1. replays the journal: the valid parts of the changes that may not be durable;
//! 2. flushes it;
//! 3. resends everything that was in flight, together: a write that the server holds for lack of space delays
//!    nothing else;
//! 4. passes on all other requests, as always: none that overlaps a change in flight.
//!
//! So the node shows no error and loses no acknowledged write. The recovery may be interrupted at any point
//! and restarted, whatever the server kept of the unflushed changes: no byte returns to its value before its
//! last acknowledged change. Changes of overlapping ranges are never in flight together: the server could
//! apply them in one order and acknowledge them in the other.

mod error;
mod journal;
mod recovery;
mod tracker;

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nbd::client::Agreed;
use nbd::delivery::{self, FuseDevice};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::link::{Link, Message, Replies, Reply};
use crate::operation::{Done, Operation, Outcome};
pub(crate) use error::BoxedError;
pub use error::NotConnected;
use tracker::{Phase, RequestTracker, Send};

/// Time without a change after which the journal is flushed. An idle file system leaves nothing to replay.
const IDLE: Duration = Duration::from_secs(1);
/// Interval between own flushes that fail.
const FLUSH_AGAIN: Duration = Duration::from_secs(1);

/// Limits of a relay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Memory for acknowledged changes that are not flushed, in bytes.
    pub journal_bytes_max: usize,
    /// Longest time to hold requests while there is no server. Afterwards all fail.
    pub patience: Duration,
}

/// Connections to a server.
pub struct Connected {
    /// Streams after the negotiation, with simple replies.
    pub streams: Vec<UnixStream>,
    /// What the server has agreed to over all of them.
    pub agreed: Agreed,
    /// Unique id of this opening of the drive by the server: as long as it lasts, all acknowledged changes
    /// are there. `None` if it is unknown.
    pub opening: Option<String>,
}

/// Finds the server of a drive.
pub trait Server: std::marker::Send + 'static {
    /// Reason why there is no connection, in one line.
    type Error: std::error::Error + std::marker::Send + Sync + 'static;

    /// Connects to the server, starting it if that is the relay's task. All earlier connections are closed by
    /// then. Their requests must have ended when this returns: they could otherwise overwrite requests of the
    /// new ones. Asks the server to deliver the data of reads to `device`, if there is one.
    ///
    /// # Errors
    /// If there is no connection. The relay tries again.
    fn connect(&mut self, device: Option<&FuseDevice>) -> Result<Connected, Self::Error>;
}

/// What a relay is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelayState {
    /// Requests are passed on.
    Connected,
    /// Requests are held until there is a server again.
    Waiting {
        /// Start of the wait.
        since: Instant,
        /// Reason of the last failure, if known.
        reason: Option<String>,
    },
    /// All requests fail; with the reason.
    Failed(String),
}

/// See the [module](self).
pub struct Relay {
    core: Arc<RelayCore>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// What the handle and the threads of a relay share.
struct RelayCore {
    settings: Settings,
    tracker: Mutex<RequestTracker>,
    /// Notified when the relay's own threads have something to do, and when the phase changes.
    changed: Condvar,
    /// Device to which servers deliver the data of reads.
    device: OnceLock<FuseDevice>,
}

impl Relay {
    /// Starts a relay on the connections of a server. `server` finds it again later.
    ///
    /// # Errors
    /// If threads cannot be started.
    pub fn start(connected: Connected, server: impl Server, settings: Settings) -> io::Result<Relay> {
        let tracker = Mutex::new(RequestTracker::new(settings.journal_bytes_max));
        let core =
            Arc::new(RelayCore { settings, tracker, changed: Condvar::new(), device: OnceLock::new() });
        let links = recovery::links(&connected)?;
        core.install(links, connected.opening)?;
        let (pump, keeper) = (core.clone(), core.clone());
        let spawn = |name: &str, run: Box<dyn FnOnce() + std::marker::Send>| {
            std::thread::Builder::new().name(name.into()).spawn(run)
        };
        let mut server = server;
        let threads = vec![
            spawn("relay-pump", Box::new(move || pump.pump()))?,
            spawn("relay-keeper", Box::new(move || recovery::keep(&keeper, &mut server)))?,
        ];
        Ok(Relay { core, threads: Mutex::new(threads) })
    }

    /// Passes a request on. `done` is called once, possibly before this returns.
    pub fn submit(&self, operation: Operation, done: Done) {
        self.submit_all(vec![(operation, done)]);
    }

    /// Passes requests on, which takes fewer system calls than one by one.
    pub fn submit_all(&self, requests: Vec<(Operation, Done)>) {
        self.core.submit(requests.into_iter().map(|(operation, done)| (None, operation, done)));
    }

    /// Makes servers deliver the data of reads to `device`. Reconnects for that.
    ///
    /// # Errors
    /// If there is no server within `patience`.
    pub fn deliver_to(&self, device: FuseDevice, patience: Duration) -> Result<(), NotConnected> {
        // There is only one.
        let _ = self.core.device.set(device);
        self.core.reconnect(patience)
    }

    /// Passes on a read of at least one byte whose data answers the FUSE request `unique`. If the server
    /// delivers the data, `done` is called without it.
    pub fn submit_read_of(&self, unique: u64, offset: u64, length: u32, done: Done) {
        let operation = Operation::Read { offset, length };
        self.core.submit([(Some(unique | delivery::COOKIE_BIT), operation, done)]);
    }

    /// Passes a request on and waits for its result.
    ///
    /// # Errors
    /// That of the server; `TIMEDOUT` if there is none in time.
    pub fn call(&self, operation: Operation, patience: Duration) -> Outcome {
        let (sender, result) = std::sync::mpsc::sync_channel(1);
        // Fails if nobody waits any more.
        self.submit(operation, Box::new(move |outcome| _ = sender.send(outcome)));
        result.recv_timeout(patience).unwrap_or(Err(Errno::TIMEDOUT))
    }

    /// Fails all requests from now on: the relay stops waiting for the server.
    pub fn give_up(&self, reason: &str) {
        for link in self.core.fail(Phase::Failed(reason.to_string())).iter() {
            link.shut();
        }
    }

    /// Disconnects. Unanswered requests and later ones fail. Stops looking for the server.
    pub fn close(&self) {
        let links = self.core.fail(Phase::Ended);
        for link in links.iter() {
            link.disconnect();
            link.shut();
        }
        for thread in self.threads.lock().drain(..) {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }

    /// What the relay is doing now.
    pub fn state(&self) -> RelayState {
        self.core.tracker.lock().phase.shown()
    }

    /// Memory of acknowledged changes that are not flushed, in bytes.
    pub fn journal_bytes(&self) -> usize {
        self.core.tracker.lock().journal.bytes()
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.close();
    }
}

impl RelayCore {
    /// Takes requests, each with its cookie unless any will do.
    fn submit(&self, requests: impl IntoIterator<Item = (Option<u64>, Operation, Done)>) {
        let requests = requests.into_iter();
        let mut tracker = self.tracker.lock();
        if matches!(tracker.phase, Phase::Failed(_) | Phase::Ended) {
            drop(tracker);
            requests.for_each(|(_, _, done)| done(Err(Errno::IO)));
            return;
        }
        let admitted =
            requests.filter_map(|(cookie, operation, done)| tracker.admit(cookie, operation, Some(done)));
        let sends: Vec<Send> = admitted.collect();
        drop(tracker);
        self.send(sends);
    }

    fn send(&self, mut sends: Vec<Send>) {
        sends.sort_by_key(|send| send.link_index);
        for sends in sends.chunk_by(|one, next| one.link_index == next.link_index) {
            let requests: Vec<_> = sends.iter().map(|send| (send.cookie, &*send.operation)).collect();
            // If that fails, its reader sees the end of the connection, and the requests are sent again over
            // the next one.
            let _ = sends[0].link().send(&requests);
        }
    }

    /// Uses connections from now on, and resends the requests in flight over them. The server has all
    /// acknowledged changes.
    fn install(self: &Arc<Self>, links: Arc<[Link]>, opening: Option<String>) -> io::Result<()> {
        let replies: Vec<Replies> = links.iter().map(Link::replies).collect::<io::Result<_>>()?;
        let ready = (!links.is_empty()).then(|| links.clone());
        let (epoch, again) = {
            let mut tracker = self.tracker.lock();
            if matches!(tracker.phase, Phase::Ended | Phase::Failed(_)) {
                return Ok(());
            }
            tracker.opening = opening;
            tracker.connect(links)
        };
        for replies in replies {
            let core = self.clone();
            let read = move || core.read(epoch, replies);
            let spawned = std::thread::Builder::new().name("relay-reader".into()).spawn(read);
            // Nobody would read the replies. The caller tries again.
            spawned.inspect_err(|_| self.lose(epoch))?;
        }
        if let Some(first) = ready {
            // If that fails, its reader sees the end of the connection.
            let _ = first[0].ready();
        }
        self.send(again);
        self.changed.notify_all();
        Ok(())
    }

    /// Reads the replies of a connection until it ends.
    fn read(&self, epoch: u64, mut replies: Replies) {
        loop {
            let length = |cookie| self.tracker.lock().length(cookie);
            let (cookie, reply) = match replies.next(length) {
                Ok(Message::Reply(cookie, reply)) => (cookie, reply),
                Ok(notice) => match self.take_notice(epoch, &notice) {
                    true => continue,
                    false => return,
                },
                Err(_) => break,
            };
            // The server is closing. The request is sent again to the next one.
            if reply == Reply::Outcome(Err(Errno::SHUTDOWN)) {
                break;
            }
            let mut tracker = self.tracker.lock();
            if tracker.epoch != epoch || !matches!(tracker.phase, Phase::Connected) {
                return;
            }
            let outcome = match reply {
                Reply::Outcome(outcome) => outcome,
                Reply::Delivered => Ok(Vec::new()),
            };
            let finished = tracker.finish(cookie, outcome);
            if tracker.has_work() {
                self.changed.notify_all();
            }
            drop(tracker);
            for (done, outcome) in finished {
                done(outcome);
            }
        }
        self.lose(epoch);
    }

    /// Takes a message that is not a reply. Returns false if it came over connections that are no longer
    /// used.
    fn take_notice(&self, epoch: u64, notice: &Message) -> bool {
        let mut tracker = self.tracker.lock();
        if tracker.epoch != epoch || !matches!(tracker.phase, Phase::Connected) {
            return false;
        }
        match *notice {
            Message::Closing => {
                if !tracker.is_leaving {
                    tracing::info!("the server is closing the drive");
                }
                tracker.is_leaving = true;
                self.changed.notify_all();
            }
            Message::Changed(notice) => {
                tracker.take_notice(notice);
                self.changed.notify_all();
            }
            Message::Reply(..) => {}
        }
        true
    }

    /// Ends all connections because one of them has ended.
    fn lose(&self, epoch: u64) {
        let mut tracker = self.tracker.lock();
        if tracker.epoch != epoch || !matches!(tracker.phase, Phase::Connected) {
            return;
        }
        tracing::warn!(
            in_flight = tracker.in_flight(),
            journal_bytes = tracker.journal.bytes(),
            "the server is gone"
        );
        self.wait_for_server(&mut tracker);
    }

    /// Makes new connections to the server, and waits for them.
    fn reconnect(&self, patience: Duration) -> Result<(), NotConnected> {
        let until = Instant::now() + patience;
        let mut tracker = self.tracker.lock();
        if matches!(tracker.phase, Phase::Connected) {
            self.wait_for_server(&mut tracker);
        }
        loop {
            match tracker.phase.shown() {
                RelayState::Connected => return Ok(()),
                RelayState::Failed(reason) => return Err(NotConnected(Some(reason))),
                RelayState::Waiting { reason, .. } => {
                    if self.changed.wait_until(&mut tracker, until).timed_out() {
                        return Err(NotConnected(reason));
                    }
                }
            }
        }
    }

    fn wait_for_server(&self, tracker: &mut RequestTracker) {
        tracker.phase = Phase::Waiting { since: Instant::now(), reason: None };
        tracker.forget_connections();
        for link in tracker.links.iter() {
            link.shut();
        }
        self.changed.notify_all();
    }

    /// Sends requests that were held, and flushes for the journal's sake.
    fn pump(&self) {
        let mut tracker = self.tracker.lock();
        loop {
            if matches!(tracker.phase, Phase::Ended) {
                return;
            }
            if tracker.has_left() {
                tracing::info!(
                    flushed = tracker.journal.is_empty(),
                    "left the server, which closes the drive"
                );
                tracker.links.iter().for_each(Link::disconnect);
                self.wait_for_server(&mut tracker);
            } else if let Some((links, number)) = tracker.next_acknowledgement() {
                // Not on the reading thread: the server may receive nothing before its replies are read. If
                // this fails, the reader sees the end of the connection.
                parking_lot::MutexGuard::unlocked(&mut tracker, || _ = links[0].acknowledge(number));
            } else if let Some(send) = tracker.release() {
                parking_lot::MutexGuard::unlocked(&mut tracker, || self.send(vec![send]));
            } else if tracker.flush_failed {
                self.changed.wait_for(&mut tracker, FLUSH_AGAIN);
            } else if let Some(left) = tracker.idle_in() {
                self.changed.wait_for(&mut tracker, left);
            } else {
                tracker.is_resting = true;
                self.changed.wait(&mut tracker);
                tracker.is_resting = false;
            }
        }
    }

    /// Fails all requests, and those to come. Returns the connections.
    fn fail(&self, phase: Phase) -> Arc<[Link]> {
        let mut tracker = self.tracker.lock();
        // The end is final.
        if !matches!(tracker.phase, Phase::Ended) {
            tracker.phase = phase;
        }
        // The thread that replays changes waits for a server that may never answer.
        for link in tracker.recovering.iter().flat_map(|links| links.iter()) {
            link.shut();
        }
        let (links, failed) = (tracker.links.clone(), tracker.take_all());
        self.changed.notify_all();
        drop(tracker);
        for done in failed {
            done(Err(Errno::IO));
        }
        links
    }
}
