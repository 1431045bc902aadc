//! The line between the keeper of a node and the server that takes the node's requests from the kernel
//! itself.
//!
//! ```text
//! node (FUSE, nbd, ublk) <------------ requests, answers ------------> server
//!   keeper: line -- a connection for flushes, and those of its supply: their ends tell
//! ```
//!
//! No request passes here. When a connection ends, the line closes all of them, and connects to the drive's
//! next server, which gets the same [supply](Supply) and what has no answer. The kernel holds its requests
//! meanwhile. The server has all that was acknowledged, whatever happened to the last one: see
//! `docs/design/memory.md`.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nbd::front_end::GOODBYE;
use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::flush::flush_within;
use crate::upstream::{Connected, NotConnected, Server, Supply, Upstream, UpstreamState, spawn};

/// Time for a server to see the end of connections.
const LEAVES: Duration = Duration::from_secs(2);
/// Time after which a connection is one that lasts.
const LASTS: Duration = Duration::from_secs(1);
/// Connections in a row that do not last before that is shown. A server may be killed several times.
const ENDED_MAX: u32 = 3;
/// Shown of a server with which none does.
const ENDS_AT_ONCE: &str = "its server ends each connection at once: its log says why";
/// Interval between attempts to find a server.
const POLL: Duration = Duration::from_millis(100);
/// Interval at which the kernel is given the connections again.
const AGAIN: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// The kernel's side of a node.
pub(crate) trait Driver: Send + Sync {
    /// The last connections have ended.
    fn lost(&self) {}

    /// There is no server. Called again and again.
    fn wait(&self) {}

    /// Takes connections to the server, those behind the first. Returns whether it is to be given them again
    /// after a while.
    fn take(&self, _streams: &[UnixStream]) -> bool {
        false
    }

    /// Makes the requests fail that have no answer, and those to come.
    fn abort(&self);
}

impl<F: Fn() + Send + Sync> Driver for F {
    fn abort(&self) {
        self();
    }
}

/// See the [module](self).
pub(crate) struct Line {
    core: Arc<LineCore>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct LineCore {
    patience: Duration,
    state: Mutex<LineState>,
    /// Notified when the phase changes.
    changed: Condvar,
    driver: OnceLock<Box<dyn Driver>>,
    /// Held by a flush.
    flushing: Mutex<()>,
}

struct LineState {
    phase: Phase,
    streams: Arc<[UnixStream]>,
    /// What servers get. Kept as long as the node is there: one with shares ends with the last descriptor.
    /// `None` if there is no node.
    supply: Option<Arc<Supply>>,
    /// Connections in a row that have not lasted.
    ended_at_once: u32,
    /// Connections of a node that is gone.
    leaving: Vec<UnixStream>,
}

enum Phase {
    Connected {
        at: Instant,
        /// Start of the wait before.
        waited_since: Option<Instant>,
    },
    Waiting {
        since: Instant,
        reason: Option<String>,
    },
    Failed(String),
    Ended,
}

impl Line {
    /// Starts with the connections of a server, which has no supply yet. `server` finds it again later;
    /// requests are held for up to `patience` meanwhile.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub(crate) fn start(
        connected: Connected,
        mut server: impl Server,
        patience: Duration,
    ) -> io::Result<Line> {
        let state = LineState {
            phase: Phase::Connected { at: Instant::now(), waited_since: None },
            streams: connected.streams.into(),
            supply: None,
            ended_at_once: 0,
            leaving: Vec::new(),
        };
        let core = Arc::new(LineCore {
            patience,
            state: Mutex::new(state),
            changed: Condvar::new(),
            driver: OnceLock::new(),
            flushing: Mutex::new(()),
        });
        let kept = core.clone();
        let thread = spawn("line", move || kept.keep(&mut server))?;
        Ok(Line { core, thread: Mutex::new(Some(thread)) })
    }

    /// Hands the supply of the node over to the server, and to those that follow. Reconnects for that.
    ///
    /// # Errors
    /// If there is no server within `patience`.
    pub(crate) fn bring(
        &self,
        supply: Supply,
        driver: Box<dyn Driver>,
        patience: Duration,
    ) -> Result<(), NotConnected> {
        // There is only one node.
        let _ = self.core.driver.set(driver);
        let until = Instant::now() + patience;
        let mut state = self.core.state.lock();
        state.supply = Some(Arc::new(supply));
        self.core.lose(&mut state, "the node is there");
        loop {
            match state.phase.shown() {
                UpstreamState::Connected => return Ok(()),
                UpstreamState::Failed(reason) => return Err(NotConnected(Some(reason))),
                UpstreamState::Waiting { reason, .. } => {
                    if self.core.changed.wait_until(&mut state, until).timed_out() {
                        return Err(NotConnected(reason));
                    }
                }
            }
        }
    }

    /// The node is about to go: the ends of its connections mean nothing any more. One stays, for a flush.
    pub(crate) fn release(&self) {
        let mut state = self.core.state.lock();
        state.part();
        let is_of_driver = matches!(state.supply.take().as_deref(), Some(Supply::Driver { .. }));
        let mut streams = state.streams.iter().filter_map(|stream| stream.try_clone().ok());
        let control: Vec<UnixStream> = streams.by_ref().take(1).collect();
        let others: Vec<UnixStream> = streams.collect();
        // The kernel's driver ends its connection itself.
        if !is_of_driver {
            others.iter().for_each(say_goodbye);
            state.leaving.extend(others);
        }
        state.streams = control.into();
    }

    /// Leaves the node to the server as it is, as if this process was killed.
    pub(crate) fn abandon(&self) {
        let mut state = self.core.state.lock();
        let is_of_driver = matches!(state.supply.take().as_deref(), Some(Supply::Driver { .. }));
        state.phase = Phase::Ended;
        // The kernel's driver goes on with its own.
        if !is_of_driver {
            shut(&state.streams);
        }
        state.streams = Arc::new([]);
        self.core.changed.notify_all();
    }
}

impl Upstream for Line {
    fn state(&self) -> UpstreamState {
        self.core.state.lock().phase.shown()
    }

    fn flush(&self, patience: Duration) -> Result<(), Errno> {
        let until = Instant::now() + patience;
        let Some(_flushing) = self.core.flushing.try_lock_until(until) else { return Err(Errno::TIMEDOUT) };
        let control = {
            let mut state = self.core.state.lock();
            while matches!(state.phase, Phase::Waiting { .. }) {
                if self.core.changed.wait_until(&mut state, until).timed_out() {
                    return Err(Errno::TIMEDOUT);
                }
            }
            let first = state.streams.first().filter(|_| matches!(state.phase, Phase::Connected { .. }));
            let Some(Ok(first)) = first.map(UnixStream::try_clone) else { return Err(Errno::IO) };
            first
        };
        let left = until.saturating_duration_since(Instant::now());
        flush_within(control, left)
    }

    fn give_up(&self, reason: &str) {
        self.core.fail(Phase::Failed(reason.to_string()));
    }

    fn close(&self) {
        self.core.leave();
        self.core.fail(Phase::Ended);
        if let Some(thread) = self.thread.lock().take() {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.close();
    }
}

impl LineCore {
    /// Waits until the server has seen the end of the connections: the drive is not attached any more then.
    fn leave(&self) {
        let leaving: Vec<UnixStream> = {
            let mut state = self.state.lock();
            // Nobody connects anew.
            state.phase = Phase::Ended;
            self.changed.notify_all();
            state.part();
            let left = std::mem::take(&mut state.leaving);
            left.into_iter()
                .chain(state.streams.iter().filter_map(|stream| stream.try_clone().ok()))
                .collect()
        };
        leaving.iter().for_each(say_goodbye);
        let until = Instant::now() + LEAVES;
        for mut stream in leaving {
            let left = until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
            // One that cannot wait is not waited for.
            if stream.set_read_timeout(Some(left)).is_ok() {
                let _ = io::copy(&mut stream, &mut io::sink());
            }
        }
    }

    /// Runs until the line ends: waits for the end of the connections, and makes new ones.
    fn keep(&self, server: &mut impl Server) {
        // The driver has connections that have ended.
        let mut is_lost = false;
        loop {
            let watched = {
                let mut state = self.state.lock();
                loop {
                    match state.phase {
                        Phase::Connected { .. } => {
                            break Some((state.streams.clone(), state.supply.is_some()));
                        }
                        Phase::Waiting { .. } => break None,
                        Phase::Failed(_) => self.changed.wait(&mut state),
                        Phase::Ended => return,
                    }
                }
            };
            match watched {
                Some((streams, has_node)) => {
                    is_lost = has_node;
                    self.watch(&streams, has_node);
                }
                None => {
                    if let Some(driver) = self.driver_of_node() {
                        if std::mem::take(&mut is_lost) {
                            driver.lost();
                        }
                        driver.wait();
                    }
                    self.connect(server);
                }
            }
        }
    }

    /// Gives the connections to the kernel, and waits until one of them has ended, or they are to be given
    /// again.
    fn watch(&self, streams: &Arc<[UnixStream]>, has_node: bool) {
        let mut ends: Vec<PollFd<'_>> =
            streams.iter().map(|stream| PollFd::new(stream, PollFlags::RDHUP)).collect();
        let driver = self.driver.get().filter(|_| has_node);
        let takes_again = driver.is_some_and(|driver| driver.take(streams.get(1..).unwrap_or_default()));
        // Whatever it reports, the state is looked at.
        if poll(&mut ends, takes_again.then_some(&AGAIN)).is_err_and(|error| error != Errno::INTR) {
            std::thread::sleep(POLL);
        }
        let has_ended = |at: usize| !ends[at].revents().is_empty();
        let mut state = self.state.lock();
        // A connection that is not watched any more may have ended.
        if Arc::ptr_eq(&state.streams, streams) && (0..ends.len()).any(has_ended) {
            self.lose(&mut state, "the server is gone");
        }
    }

    /// `None` if there is no node.
    fn driver_of_node(&self) -> Option<&dyn Driver> {
        let has_node = self.state.lock().supply.is_some();
        self.driver.get().filter(|_| has_node).map(AsRef::as_ref)
    }

    /// Closes the connections: all requests wait for new ones. A server that is still there goes on with what
    /// it has of the node, until the next connections bring it again.
    fn lose(&self, state: &mut LineState, why: &str) {
        shut(&state.streams);
        if let Phase::Connected { at, waited_since } = state.phase {
            tracing::info!("{why}: connecting anew");
            // A server that ends each connection at once is none.
            let is_none = at.elapsed() < LASTS;
            // What passed while it was there was no wait.
            let waited_before = waited_since.filter(|_| is_none).map(|since| since + at.elapsed());
            let since = waited_before.unwrap_or_else(Instant::now);
            state.ended_at_once = if is_none && waited_since.is_some() { state.ended_at_once + 1 } else { 0 };
            let reason = (state.ended_at_once >= ENDED_MAX).then(|| ENDS_AT_ONCE.to_string());
            state.phase = Phase::Waiting { since, reason };
            self.changed.notify_all();
        }
    }

    fn connect(&self, server: &mut impl Server) {
        let (supply, since, last) = {
            let state = self.state.lock();
            let Phase::Waiting { since, reason } = &state.phase else { return };
            (state.supply.clone(), *since, reason.clone())
        };
        if last.as_deref() == Some(ENDS_AT_ONCE) {
            self.wait(since, ENDS_AT_ONCE.to_string());
            if !matches!(self.state.lock().phase, Phase::Waiting { .. }) {
                return;
            }
        }
        match server.connect(supply.as_deref().unwrap_or(&Supply::Nothing)) {
            Ok(connected) => self.install(connected, supply.as_ref()),
            Err(error) => self.wait(since, error.to_string()),
        }
    }

    fn install(&self, connected: Connected, supply: Option<&Arc<Supply>>) {
        let mut state = self.state.lock();
        state.streams = connected.streams.into();
        let is_wanted = matches!(state.phase, Phase::Waiting { .. })
            && state.supply.as_ref().map(Arc::as_ptr) == supply.map(Arc::as_ptr);
        match (&state.phase, is_wanted) {
            (Phase::Waiting { since, .. }, true) => {
                tracing::info!(seconds = since.elapsed().as_secs_f64(), "connected to the server");
                state.phase = Phase::Connected { at: Instant::now(), waited_since: Some(*since) };
            }
            // Given up, or with another supply by now.
            _ => self.lose(&mut state, "the server"),
        }
        self.changed.notify_all();
    }

    /// Waits until the next attempt, or gives up.
    fn wait(&self, since: Instant, why: String) {
        if since.elapsed() >= self.patience {
            tracing::error!(%why, "requests were held until the time limit: all fail from now on");
            return self.fail(Phase::Failed(why));
        }
        let mut state = self.state.lock();
        if let Phase::Waiting { reason, .. } = &mut state.phase {
            if reason.as_ref() != Some(&why) {
                tracing::warn!(%why, "requests are held");
            }
            *reason = Some(why);
            self.changed.notify_all();
            self.changed.wait_for(&mut state, POLL);
        }
    }

    fn fail(&self, phase: Phase) {
        let mut state = self.state.lock();
        // The end is final.
        if !matches!(state.phase, Phase::Ended) {
            state.phase = phase;
        }
        state.part();
        shut(&state.streams);
        let has_node = state.supply.is_some();
        self.changed.notify_all();
        drop(state);
        if let Some(driver) = self.driver.get().filter(|_| has_node) {
            driver.abort();
        }
    }
}

impl LineState {
    /// Tells the server that this process leaves, and was not killed: it is to leave the shares, too.
    fn part(&self) {
        if matches!(self.supply.as_deref(), Some(Supply::Shares(_))) {
            for mut stream in self.streams.iter().skip(1) {
                // It is gone if that fails.
                let _ = stream.write_all(&[GOODBYE]);
            }
        }
    }
}

fn shut(streams: &[UnixStream]) {
    for stream in streams {
        let _ = stream.shutdown(std::net::Shutdown::Both);
    }
}

/// Nothing more comes over a connection.
fn say_goodbye(stream: &UnixStream) {
    let _ = stream.shutdown(std::net::Shutdown::Write);
}

impl Phase {
    fn shown(&self) -> UpstreamState {
        match self {
            Phase::Connected { .. } => UpstreamState::Connected,
            Phase::Waiting { since, reason } => {
                UpstreamState::Waiting { since: *since, reason: reason.clone() }
            }
            Phase::Failed(reason) => UpstreamState::Failed(reason.clone()),
            Phase::Ended => UpstreamState::Failed("detached".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Read, Write};
    use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

    use nbd::reply::SimpleReply;
    use nbd::request::{REQUEST_HEADER_BYTES, RequestHeader};

    use super::*;

    /// Longer than anything takes.
    const LIMIT: Duration = Duration::from_secs(60);
    /// Time in which nothing is to happen.
    const A_WHILE: Duration = Duration::from_millis(200);

    #[derive(Debug, PartialEq, Eq)]
    enum Event {
        Lost,
        Taken(usize),
        Aborted,
    }

    struct FakeDriver {
        events: Sender<Event>,
        takes_again: bool,
    }

    impl FakeDriver {
        fn tell(&self, event: Event) {
            // The test may be over.
            let _ = self.events.send(event);
        }
    }

    impl Driver for FakeDriver {
        fn lost(&self) {
            self.tell(Event::Lost);
        }

        fn take(&self, streams: &[UnixStream]) -> bool {
            self.tell(Event::Taken(streams.len()));
            self.takes_again
        }

        fn abort(&self) {
            self.tell(Event::Aborted);
        }
    }

    /// A server that is there whenever a test wants it.
    struct FakeServer {
        servers: Arc<Mutex<usize>>,
        /// Ends of the connections, and whether they are for a driver that sends no flushes.
        ends: Sender<(Vec<UnixStream>, bool)>,
    }

    impl Server for FakeServer {
        type Error = io::Error;

        fn connect(&mut self, supply: &Supply) -> io::Result<Connected> {
            let mut servers = self.servers.lock();
            *servers = servers.checked_sub(1).ok_or(io::ErrorKind::ConnectionRefused)?;
            let count = if matches!(supply, Supply::Driver { .. }) { 2 } else { 1 };
            let (ours, theirs) =
                (0..count).map(|_| UnixStream::pair()).collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
            let _ = self.ends.send((theirs, matches!(supply, Supply::Driver { uncached: true })));
            Ok(Connected { streams: ours })
        }
    }

    struct Fixture {
        line: Line,
        servers: Arc<Mutex<usize>>,
        ends: Receiver<(Vec<UnixStream>, bool)>,
        events: Receiver<Event>,
    }

    impl Fixture {
        /// With a node, and a first server that has its supply.
        fn new(patience: Duration, takes_again: bool) -> (Fixture, Vec<UnixStream>) {
            let servers = Arc::new(Mutex::new(2));
            let (ends, their_ends) = channel();
            let mut server = FakeServer { servers: servers.clone(), ends };
            let connected = server.connect(&Supply::Nothing).expect("connected");
            let line = Line::start(connected, server, patience).expect("started");
            let (events, seen) = channel();
            let driver = Box::new(FakeDriver { events, takes_again });
            line.bring(Supply::Driver { uncached: true }, driver, LIMIT).expect("brought");
            let fixture = Fixture { line, servers, ends: their_ends, events: seen };
            let (_, is_for_driver) = fixture.ends.recv_timeout(LIMIT).expect("the first connections");
            assert!(!is_for_driver);
            let ends = fixture.next_server();
            assert_eq!(fixture.event(), Event::Taken(1));
            (fixture, ends)
        }

        fn next_server(&self) -> Vec<UnixStream> {
            let (ends, is_for_driver) = self.ends.recv_timeout(LIMIT).expect("connections");
            assert!(is_for_driver);
            ends
        }

        fn event(&self) -> Event {
            self.events.recv_timeout(LIMIT).expect("an event")
        }
    }

    #[test]
    fn a_driver_gets_a_connection_to_each_server() {
        let (fixture, mut ends) = Fixture::new(LIMIT, false);
        for ended in [0, 1] {
            *fixture.servers.lock() = 1;
            ends.remove(ended);
            assert_eq!([fixture.event(), fixture.event()], [Event::Lost, Event::Taken(1)]);
            let mut rest = ends.pop().expect("the other connection");
            assert_eq!(rest.read(&mut [0]).expect("the end"), 0, "it is closed with the first");
            ends = fixture.next_server();
        }
        assert_eq!(fixture.line.state(), UpstreamState::Connected);
        let mut first = ends.swap_remove(0);
        let server = std::thread::spawn(move || {
            let mut header = [0; REQUEST_HEADER_BYTES];
            first.read_exact(&mut header).expect("a request");
            let cookie = RequestHeader::decode(&header).expect("a request").cookie;
            first.write_all(&SimpleReply { error: 0, cookie }.encode()).expect("sent");
            first
        });
        assert_eq!(fixture.line.flush(LIMIT), Ok(()));
        server.join().expect("served");
    }

    #[test]
    fn a_driver_that_may_have_missed_its_connection_gets_it_again() {
        let (fixture, _ends) = Fixture::new(LIMIT, true);
        assert_eq!([fixture.event(), fixture.event()], [Event::Taken(1), Event::Taken(1)]);
        assert_eq!(fixture.line.state(), UpstreamState::Connected);
    }

    #[test]
    fn requests_are_given_up_after_the_time_limit_and_on_request() {
        let (fixture, ends) = Fixture::new(Duration::ZERO, false);
        drop(ends);
        assert_eq!([fixture.event(), fixture.event()], [Event::Lost, Event::Aborted]);
        assert!(matches!(fixture.line.state(), UpstreamState::Failed(_)));
        let (fixture, mut ends) = Fixture::new(LIMIT, false);
        fixture.line.give_up("no reason");
        assert_eq!(fixture.event(), Event::Aborted);
        assert_eq!(fixture.line.state(), UpstreamState::Failed("no reason".to_string()));
        assert_eq!(ends[1].read(&mut [0]).expect("the end"), 0);
    }

    #[test]
    fn a_node_that_is_gone_has_no_driver() {
        let (fixture, ends) = Fixture::new(LIMIT, false);
        fixture.line.release();
        drop(ends);
        drop(fixture.line);
        assert_eq!(fixture.events.recv_timeout(A_WHILE), Err(RecvTimeoutError::Disconnected));
    }
}
