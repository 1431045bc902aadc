//! The relay with a server that forgets what was not flushed, and is killed.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use attach::relay::{Connected, Relay, RelayState, Server, Settings};
use attach::{Done, Operation, Outcome};
use nbd::client::Agreed;
use nbd::delivery::{COOKIE_BIT, FuseDevice};
use nbd::protocol as wire;
use nbd::reply::{Changed, Closing, Delivered};
use nbd::request::{REQUEST_HEADER_BYTES, RequestHeader};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

const SIZE: usize = 64 << 10;
const BLOCK: usize = 512;
const LIMIT: Duration = Duration::from_secs(30);

/// A drive that acknowledges writes before they are durable.
struct Fake {
    durable: Mutex<Vec<u8>>,
    cached: Mutex<Vec<u8>>,
    connections: Mutex<Vec<(UnixStream, Option<JoinHandle<()>>)>>,
    is_down: AtomicBool,
    /// How often it has forgotten what was not flushed.
    kills: AtomicUsize,
    /// Commands without a reply that it got, with their cookies.
    told: Mutex<Vec<(u16, u64)>>,
    /// Answers every request with "shutting down".
    is_closing: AtomicBool,
    /// Answers nothing.
    is_mute: AtomicBool,
    /// Connections that were open when the next ones were made.
    left_open: AtomicUsize,
    flushes: AtomicUsize,
    /// Requests until connections break, although the server lives.
    breaks_after: AtomicUsize,
    /// What of each block that was not flushed a killed server has kept all the same: none, or every other
    /// one.
    keeps_some: AtomicBool,
    /// Delivers what it reads, where that is asked for.
    delivers: AtomicBool,
    /// Does not tell what it has delivered.
    is_late: AtomicBool,
    /// If writes are not answered yet: their connections and replies.
    held: Mutex<Option<Vec<Held>>>,
    /// Cookies and data of what it has delivered.
    delivered: Mutex<Vec<(u64, Vec<u8>)>>,
    /// Called with what is written, before it is.
    watch: Mutex<Option<Watch>>,
}

/// A connection, and a reply that is to be sent over it.
type Held = (UnixStream, Vec<u8>);
type Watch = Box<dyn Fn(usize, &[u8]) + Send>;

impl Fake {
    fn new() -> Arc<Fake> {
        Arc::new(Fake {
            durable: Mutex::new(vec![0; SIZE]),
            cached: Mutex::new(vec![0; SIZE]),
            connections: Mutex::default(),
            is_down: AtomicBool::new(false),
            kills: AtomicUsize::new(0),
            told: Mutex::default(),
            is_closing: AtomicBool::new(false),
            is_mute: AtomicBool::new(false),
            left_open: AtomicUsize::new(0),
            flushes: AtomicUsize::new(0),
            breaks_after: AtomicUsize::new(usize::MAX),
            keeps_some: AtomicBool::new(false),
            delivers: AtomicBool::new(false),
            is_late: AtomicBool::new(false),
            held: Mutex::default(),
            delivered: Mutex::default(),
            watch: Mutex::default(),
        })
    }

    fn connected(self: &Arc<Self>) -> Connected {
        // Not while the last server is being killed.
        let mut connections = self.connections.lock().expect("sound");
        let is_open = |stream: &UnixStream| {
            let mut poll = [PollFd::new(stream, PollFlags::RDHUP)];
            rustix::event::poll(&mut poll, Some(&Timespec::default())).expect("polled") == 0
        };
        let open = connections.iter().filter(|(stream, _)| is_open(stream)).count();
        self.left_open.fetch_add(open, Ordering::Relaxed);
        // As a server does: what came over closed connections has ended before there are others.
        for (stream, thread) in connections.iter_mut() {
            if !is_open(stream)
                && let Some(thread) = thread.take()
            {
                thread.join().expect("no panic");
            }
        }
        let streams = (0..2).map(|_| {
            let (ours, theirs) = UnixStream::pair().expect("a pair");
            let (fake, stream) = (self.clone(), ours.try_clone().expect("a clone"));
            let thread = std::thread::spawn(move || fake.serve(stream));
            connections.push((ours, Some(thread)));
            theirs
        });
        let streams = streams.collect();
        let agreed = Agreed { delivers: self.delivers.load(Ordering::Relaxed), attaches: true };
        Connected { streams, agreed, opening: Some(self.kills.load(Ordering::Relaxed).to_string()) }
    }

    fn serve(&self, mut stream: UnixStream) {
        // Ends with an error when the connection does.
        while self.serve_one(&mut stream).is_ok() {}
        let _ = stream.shutdown(Shutdown::Both);
    }

    fn serve_one(&self, stream: &mut UnixStream) -> std::io::Result<()> {
        let mut header = [0; REQUEST_HEADER_BYTES];
        stream.read_exact(&mut header)?;
        let request = RequestHeader::decode(&header).expect("a request");
        let mut data = vec![0; request.payload_bytes() as usize];
        stream.read_exact(&mut data)?;
        // Once, and then no more.
        let one_less = |left: usize| Some(if left == usize::MAX { left } else { left.wrapping_sub(1) });
        if self.breaks_after.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less) == Ok(0) {
            return Err(std::io::ErrorKind::ConnectionReset.into());
        }
        let range = request.offset as usize..request.offset as usize + request.length as usize;
        if matches!(request.command, wire::CMD_READY | wire::CMD_HEARD) {
            self.told.lock().expect("sound").push((request.command, request.cookie));
            return Ok(());
        }
        let mut answer = Vec::new();
        let mut error = 0_u32;
        if self.is_closing.load(Ordering::Relaxed) {
            error = 108;
        } else {
            let mut cached = self.cached.lock().expect("sound");
            if let (wire::CMD_WRITE, Some(watch)) = (request.command, &*self.watch.lock().expect("sound")) {
                watch(range.start, &data);
            }
            match request.command {
                wire::CMD_READ => answer = cached[range].to_vec(),
                wire::CMD_WRITE => cached[range.clone()].copy_from_slice(&data),
                wire::CMD_TRIM | wire::CMD_WRITE_ZEROES => cached[range.clone()].fill(0),
                wire::CMD_FLUSH => {
                    self.flushes.fetch_add(1, Ordering::Relaxed);
                    self.durable.lock().expect("sound").copy_from_slice(&cached);
                }
                _ => return Err(std::io::ErrorKind::ConnectionAborted.into()),
            }
            if request.flags & wire::CMD_FLAG_FUA != 0 && request.command == wire::CMD_WRITE {
                let at = request.offset as usize;
                self.durable.lock().expect("sound")[at..at + data.len()].copy_from_slice(&data);
            }
        }
        if self.is_mute.load(Ordering::Relaxed) {
            return Ok(());
        }
        if request.flags & wire::CMD_FLAG_DELIVER != 0 && error == 0 {
            self.delivered.lock().expect("sound").push((request.cookie, answer));
            let notice = Delivered { cookie: request.cookie }.encode();
            return if self.is_late.load(Ordering::Relaxed) { Ok(()) } else { stream.write_all(&notice) };
        }
        let mut reply = wire::SIMPLE_REPLY_MAGIC.to_be_bytes().to_vec();
        reply.extend(error.to_be_bytes());
        reply.extend(request.cookie.to_be_bytes());
        reply.extend(answer);
        if let (wire::CMD_WRITE, Some(held)) = (request.command, &mut *self.held.lock().expect("sound")) {
            held.push((stream.try_clone()?, reply));
            return Ok(());
        }
        stream.write_all(&reply)
    }

    /// Lets no new connection in.
    fn down(&self) {
        self.is_down.store(true, Ordering::Relaxed);
    }

    /// Sends a notice over a connection.
    fn notify(&self, notice: &[u8]) {
        let connections = self.connections.lock().expect("sound");
        let (stream, _) = connections.last().expect("connected");
        (&*stream).write_all(notice).expect("sent");
    }

    /// Changes durable data, as for another client.
    fn set(&self, at: usize, data: &[u8]) {
        for bytes in [&self.cached, &self.durable] {
            bytes.lock().expect("sound")[at..at + data.len()].copy_from_slice(data);
        }
    }

    /// Ends all connections.
    fn hang_up(&self) {
        for (stream, _) in self.connections.lock().expect("sound").iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Ends all connections, and forgets what was not flushed.
    fn kill(&self) {
        let mut connections = self.connections.lock().expect("sound");
        for (stream, _) in connections.iter() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in connections.drain(..).filter_map(|(_, thread)| thread) {
            thread.join().expect("no panic");
        }
        let mut durable = self.durable.lock().expect("sound");
        let mut cached = self.cached.lock().expect("sound");
        if self.keeps_some.load(Ordering::Relaxed) {
            // What was written and not flushed may be on the medium, in any mixture.
            for (at, block) in durable.chunks_mut(BLOCK).enumerate().filter(|(at, _)| at % 2 == 0) {
                block.copy_from_slice(&cached[at * BLOCK..(at + 1) * BLOCK]);
            }
        }
        cached.copy_from_slice(&durable);
        self.kills.fetch_add(1, Ordering::Relaxed);
    }
}

struct Finder(Arc<Fake>);

impl Server for Finder {
    type Error = io::Error;

    fn connect(&mut self, _device: Option<&FuseDevice>) -> io::Result<Connected> {
        match self.0.is_down.load(Ordering::Relaxed) {
            true => Err(io::Error::other("nobody serves it")),
            false => Ok(self.0.connected()),
        }
    }
}

fn relay(fake: &Arc<Fake>, journal_bytes_max: usize, patience: Duration) -> Relay {
    let settings = Settings { journal_bytes_max, patience };
    Relay::start(fake.connected(), Finder(fake.clone()), settings).expect("threads")
}

fn submit(relay: &Relay, operation: Operation) -> mpsc::Receiver<Outcome> {
    let (done, outcome) = awaited();
    relay.submit(operation, done);
    outcome
}

fn submit_read_of(relay: &Relay, unique: u64) -> mpsc::Receiver<Outcome> {
    let (done, outcome) = awaited();
    relay.submit_read_of(unique, 0, 512, done);
    outcome
}

fn awaited() -> (Done, mpsc::Receiver<Outcome>) {
    let (sender, outcome) = mpsc::channel();
    (Box::new(move |result| _ = sender.send(result)), outcome)
}

fn write(offset: u64, data: Vec<u8>) -> Operation {
    Operation::Write { offset, data, fua: false }
}

fn read(relay: &Relay, offset: u64, length: u32) -> Vec<u8> {
    relay.call(Operation::Read { offset, length }, LIMIT).expect("data")
}

/// Waits until so many writes are not answered.
fn wait_for_held(fake: &Fake, count: usize) {
    let since = Instant::now();
    while fake.held.lock().expect("sound").as_ref().map_or(0, Vec::len) < count {
        assert!(since.elapsed() < LIMIT, "{count} writes did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn random(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    }
}

#[test]
fn what_was_acknowledged_survives_kills() {
    let fake = Fake::new();
    let relay = relay(&fake, 16 << 10, LIMIT);
    let mut expected = vec![0_u8; SIZE];
    let mut random = random(1);
    for round in 0..60 {
        // Overlapping changes, many in flight, some of them while there is no server, one by one and
        // together.
        let (mut waiting, mut together) = (Vec::new(), Vec::new());
        for step in 0..40 {
            let (offset, length) = (random(SIZE as u64 - 4096), 1 + random(4096));
            let range = offset as usize..(offset + length) as usize;
            let byte = (round * 40 + step) as u8 | 1;
            let operation = match random(8) {
                0 => {
                    expected[range].fill(0);
                    Operation::Trim { offset, length: length as u32, fua: false }
                }
                1 => {
                    expected[range].fill(0);
                    Operation::WriteZeroes { offset, length: length as u32, no_hole: true, fua: false }
                }
                2 => Operation::Flush,
                kind => {
                    expected[range].fill(byte);
                    Operation::Write { offset, data: vec![byte; length as usize], fua: kind == 3 }
                }
            };
            let (done, outcome) = awaited();
            together.push((operation, done));
            waiting.push(outcome);
            if random(3) == 0 {
                relay.submit_all(std::mem::take(&mut together));
            }
            if random(20) == 0 {
                fake.kill();
            }
        }
        relay.submit_all(together);
        for outcome in waiting {
            assert_eq!(outcome.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
        }
        assert!(read(&relay, 0, SIZE as u32) == expected, "round {round}");
        fake.kill();
        assert!(read(&relay, 0, SIZE as u32) == expected, "after a kill in round {round}");
    }
    relay.call(Operation::Flush, LIMIT).expect("flushed");
    assert_eq!(relay.journal_bytes(), 0);
    assert!(*fake.durable.lock().expect("sound") == expected);
}

/// The server holds it for lack of space, and a TRIM may make some.
#[test]
fn a_write_that_was_in_flight_holds_up_only_what_overlaps_it() {
    let fake = Fake::new();
    let relay = relay(&fake, 16 << 10, LIMIT);
    *fake.held.lock().expect("sound") = Some(Vec::new());
    let written = submit(&relay, write(0, vec![1; 512]));
    wait_for_held(&fake, 1);
    fake.kill();
    wait_for_held(&fake, 2);
    let trim = |offset| Operation::Trim { offset, length: 512, fua: false };
    let overlapping = submit(&relay, trim(0));
    assert_eq!(relay.call(trim(4096), LIMIT), Ok(Vec::new()));
    assert_eq!(read(&relay, 8192, 512), [0; 512]);
    assert!(written.try_recv().is_err() && overlapping.try_recv().is_err());
    let (mut stream, reply) =
        fake.held.lock().expect("sound").take().and_then(|mut held| held.pop()).expect("held");
    stream.write_all(&reply).expect("sent");
    for outcome in [written, overlapping] {
        assert_eq!(outcome.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
    }
    assert_eq!(read(&relay, 0, 512), [0; 512]);
}

/// Blocks hold the number of the write. A server that is killed keeps some of what was not flushed;
/// connections break while it lives; the way back is interrupted, by both.
#[test]
fn no_block_becomes_what_it_was() {
    type Versions = Arc<Mutex<Vec<u32>>>;
    let versions = || Versions::new(Mutex::new(vec![0; SIZE / BLOCK]));
    // Of each block: the last one acknowledged, and the last one acknowledged as durable.
    let (acknowledged, durable) = (versions(), versions());
    let version = |block: &[u8]| u32::from_le_bytes(block[..4].try_into().expect("four bytes"));
    let fake = Fake::new();
    let (floor, is_taken_back) = (acknowledged.clone(), Arc::new(AtomicBool::new(false)));
    let seen = is_taken_back.clone();
    *fake.watch.lock().expect("sound") = Some(Box::new(move |at, data| {
        let floor = floor.lock().expect("sound");
        let mut blocks = data.chunks(BLOCK).zip(&floor[at / BLOCK..]);
        if blocks.any(|(block, floor)| version(block) < *floor) {
            seen.store(true, Ordering::Relaxed);
        }
    }));
    let relay = relay(&fake, 16 << 10, LIMIT);
    let mut random = random(7);
    let mut interrupted = Vec::new();
    for round in 1..=500_u32 {
        fake.keeps_some.store(random(2) == 0, Ordering::Relaxed);
        if random(4) == 0 {
            fake.breaks_after.store(random(12) as usize, Ordering::Relaxed);
        }
        let outcome = if random(8) == 0 {
            let covered = acknowledged.lock().expect("sound").clone();
            let durable = durable.clone();
            let (done, outcome) = awaited();
            let done: Done = Box::new(move |result| {
                if result.is_ok() {
                    durable.lock().expect("sound").copy_from_slice(&covered);
                }
                done(result);
            });
            relay.submit_all(vec![(Operation::Flush, done)]);
            outcome
        } else {
            let (first, count) = (random(8) as usize, 1 + random(6) as usize);
            let block = [round.to_le_bytes().as_slice(), &[0; BLOCK - 4]].concat();
            let fua = random(3) == 0;
            let write = Operation::Write { offset: (first * BLOCK) as u64, data: block.repeat(count), fua };
            let (acknowledged, durable) = (acknowledged.clone(), durable.clone());
            let (done, outcome) = awaited();
            let done: Done = Box::new(move |result| {
                if result.is_ok() {
                    acknowledged.lock().expect("sound")[first..first + count].fill(round);
                    if fua {
                        durable.lock().expect("sound")[first..first + count].fill(round);
                    }
                }
                done(result);
            });
            relay.submit_all(vec![(write, done)]);
            outcome
        };
        match random(6) {
            0 => {
                fake.kill();
                interrupted.push(outcome);
            }
            // It may be interrupted by the next kill, or by a broken connection.
            1 => interrupted.push(outcome),
            _ => {
                assert_eq!(outcome.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
            }
        }
        // As if power failed here.
        let promised = durable.lock().expect("sound").clone();
        let there = fake.durable.lock().expect("sound").clone();
        for (at, block) in there.chunks(BLOCK).enumerate() {
            assert!(
                version(block) >= promised[at],
                "round {round}, block {at}: {} < {}",
                version(block),
                promised[at]
            );
        }
        assert!(!is_taken_back.load(Ordering::Relaxed), "round {round}: an older version was written");
    }
    for outcome in interrupted {
        assert_eq!(outcome.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
    }
    relay.call(Operation::Flush, LIMIT).expect("flushed");
    let there = fake.durable.lock().expect("sound").clone();
    let last: Vec<u32> = there.chunks(BLOCK).map(version).collect();
    assert_eq!(last, *acknowledged.lock().expect("sound"));
}

#[test]
fn the_journal_has_a_limit_and_flushes_by_itself() {
    const MAX: usize = 8 << 10;
    let fake = Fake::new();
    let relay = relay(&fake, MAX, LIMIT);
    let waiting: Vec<_> =
        (0..200).map(|at| submit(&relay, write(at % 16 * 4096, vec![at as u8; 512]))).collect();
    for outcome in waiting {
        assert_eq!(outcome.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
        // One request may go beyond it.
        assert!(relay.journal_bytes() <= MAX + 1024, "{}", relay.journal_bytes());
    }
    assert!(fake.flushes.load(Ordering::Relaxed) > 0);
}

/// Waits until something holds.
fn eventually(what: &str, holds: impl Fn() -> bool) {
    let since = Instant::now();
    while !holds() {
        assert!(since.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn what_is_idle_is_flushed() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, LIMIT);
    for byte in 1..3 {
        relay.call(write(0, vec![byte; 512]), LIMIT).expect("written");
        eventually("flushed by itself", || relay.journal_bytes() == 0);
        assert_eq!(fake.durable.lock().expect("sound")[0], byte);
    }
    assert_eq!(fake.flushes.load(Ordering::Relaxed), 2, "once for each");
}

#[test]
fn a_server_that_is_about_to_close_is_flushed_and_left() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, LIMIT);
    relay.call(write(0, vec![1; 512]), LIMIT).expect("written");
    fake.down();
    fake.notify(&Closing.encode());
    eventually("left", || matches!(relay.state(), RelayState::Waiting { .. }));
    assert_eq!((relay.journal_bytes(), fake.durable.lock().expect("sound")[0]), (0, 1));
    // Another client writes there, and the next server has that.
    fake.set(0, &[2; 512]);
    fake.is_down.store(false, Ordering::Relaxed);
    assert_eq!(read(&relay, 0, 512), vec![2; 512]);
}

#[test]
fn nothing_is_made_again_over_the_change_of_another_client() {
    for is_in_flight in [false, true] {
        let fake = Fake::new();
        let relay = relay(&fake, 1 << 20, LIMIT);
        eventually("ready", || fake.told.lock().expect("sound").contains(&(wire::CMD_READY, 0)));
        relay.call(write(512, vec![1; 512]), LIMIT).expect("written");
        let waiting = is_in_flight.then(|| {
            *fake.held.lock().expect("sound") = Some(Vec::new());
            let waiting = submit(&relay, write(0, vec![1; 512]));
            eventually("made", || fake.cached.lock().expect("sound")[0] == 1);
            waiting
        });
        if !is_in_flight {
            relay.call(write(0, vec![1; 512]), LIMIT).expect("written");
        }
        // By a request with FUA, which is acknowledged once the bridge has heard of it.
        fake.set(0, &[2; 512]);
        fake.notify(&Changed { number: 7, offset: 100, length: 200 }.encode());
        eventually("heard", || fake.told.lock().expect("sound").contains(&(wire::CMD_HEARD, 7)));
        for (mut stream, reply) in fake.held.lock().expect("sound").take().into_iter().flatten() {
            stream.write_all(&reply).expect("sent");
        }
        if let Some(waiting) = waiting {
            assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
        }
        fake.kill();
        assert_eq!(read(&relay, 0, 1024), [vec![2; 512], vec![1; 512]].concat(), "in flight: {is_in_flight}");
    }
}

#[test]
fn a_server_that_lives_on_is_flushed_and_nothing_is_made_again() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, LIMIT);
    relay.call(write(0, vec![1; 512]), LIMIT).expect("written");
    fake.is_down.store(true, Ordering::Relaxed);
    fake.hang_up();
    eventually("lost", || matches!(relay.state(), RelayState::Waiting { .. }));
    fake.set(0, &[2; 512]);
    fake.is_down.store(false, Ordering::Relaxed);
    assert_eq!(read(&relay, 0, 512), vec![2; 512]);
    assert_eq!(relay.journal_bytes(), 0);
}

#[test]
fn a_way_back_that_was_interrupted_is_begun_anew_with_the_same_server() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, LIMIT);
    relay.call(write(0, vec![1; 512]), LIMIT).expect("written");
    // The next server loses its connections when it is asked for the change, and lives on.
    fake.breaks_after.store(1, Ordering::Relaxed);
    fake.kill();
    assert_eq!(read(&relay, 0, 512), vec![1; 512]);
}

#[test]
fn without_a_server_requests_wait_and_then_fail() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, Duration::from_secs(2));
    relay.call(write(0, vec![7; 512]), LIMIT).expect("written");
    fake.is_down.store(true, Ordering::Relaxed);
    fake.kill();
    let waiting = submit(&relay, Operation::Read { offset: 0, length: 512 });
    assert!(waiting.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
    assert!(matches!(relay.state(), RelayState::Waiting { .. }));
    fake.is_down.store(false, Ordering::Relaxed);
    assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Ok(vec![7; 512]));
    assert_eq!(relay.state(), RelayState::Connected);
    fake.is_down.store(true, Ordering::Relaxed);
    fake.kill();
    let waiting = submit(&relay, Operation::Flush);
    assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Err(Errno::IO));
    assert_eq!(relay.state(), RelayState::Failed("nobody serves it".to_string()));
    assert_eq!(relay.call(Operation::Flush, LIMIT), Err(Errno::IO));
}

#[test]
fn what_was_delivered_is_answered() {
    let fake = Fake::new();
    fake.delivers.store(true, Ordering::Relaxed);
    let relay = relay(&fake, 1 << 20, LIMIT);
    relay.call(write(0, vec![7; 512]), LIMIT).expect("written");
    let waiting: Vec<_> = (1..100).map(|number| submit_read_of(&relay, 2 * number)).collect();
    for waiting in waiting {
        assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()), "no data");
    }
    let mut delivered = fake.delivered.lock().expect("sound").clone();
    delivered.sort_unstable();
    let expected: Vec<_> = (1..100).map(|number| (COOKIE_BIT | (2 * number), vec![7; 512])).collect();
    assert!(delivered == expected);
    // Other reads are answered here.
    assert_eq!(read(&relay, 0, 512), vec![7; 512]);
}

#[test]
fn a_notice_that_is_lost_with_the_server_leaves_nothing_unanswered() {
    let fake = Fake::new();
    fake.delivers.store(true, Ordering::Relaxed);
    fake.is_late.store(true, Ordering::Relaxed);
    let relay = relay(&fake, 1 << 20, LIMIT);
    relay.call(write(0, vec![7; 512]), LIMIT).expect("written");
    let waiting = submit_read_of(&relay, 2);
    // Nor does it hold changes of the same range.
    relay.call(write(0, vec![8; 512]), LIMIT).expect("written");
    relay.call(Operation::Flush, LIMIT).expect("flushed");
    assert_eq!(waiting.try_recv(), Err(mpsc::TryRecvError::Empty));
    for delivers in [true, false] {
        fake.delivers.store(delivers, Ordering::Relaxed);
        fake.kill();
        // Behind the read that is asked again.
        assert_eq!(read(&relay, 0, 512), vec![8; 512]);
    }
    // The last server does not deliver. The kernel refuses what is answered already.
    assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Ok(vec![8; 512]));
    let count = fake.delivered.lock().expect("sound").len();
    assert_eq!(count, 2, "by the first server, and by the second");
}

#[test]
fn a_server_that_closes_is_not_seen() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, LIMIT);
    relay.call(write(0, vec![1; 512]), LIMIT).expect("written");
    fake.is_closing.store(true, Ordering::Relaxed);
    let waiting = submit(&relay, write(100, vec![2; 512]));
    let since = Instant::now();
    while relay.state() == RelayState::Connected {
        assert!(since.elapsed() < LIMIT, "it sees that the server closes");
        std::thread::sleep(Duration::from_millis(1));
    }
    // It tries again, and closes each connection before it makes another one: the server waits for what came
    // over closed ones.
    let connections = || fake.connections.lock().expect("sound").len();
    while connections() < 8 {
        assert!(since.elapsed() < LIMIT, "it tries again");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fake.left_open.load(Ordering::Relaxed), 0);
    fake.kill();
    fake.is_closing.store(false, Ordering::Relaxed);
    assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Ok(Vec::new()));
    assert_eq!(read(&relay, 0, 612), [vec![1; 100], vec![2; 512]].concat());
}

#[test]
fn a_server_that_hangs_can_be_given_up() {
    for kill in [false, true] {
        let fake = Fake::new();
        let relay = relay(&fake, 1 << 20, LIMIT);
        relay.call(write(0, vec![1; 512]), LIMIT).expect("written");
        fake.is_mute.store(true, Ordering::Relaxed);
        if kill {
            // The next one takes the changes that are made again, and answers nothing.
            fake.kill();
        }
        let waiting = submit(&relay, write(512, vec![2; 512]));
        assert!(waiting.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
        relay.give_up("its server was given up");
        assert_eq!(waiting.recv_timeout(LIMIT).expect("an answer"), Err(Errno::IO));
        relay.close();
        assert_eq!(relay.state(), RelayState::Failed("detached".to_string()));
    }
}

#[test]
fn the_end_is_final() {
    let fake = Fake::new();
    let relay = relay(&fake, 1 << 20, Duration::ZERO);
    fake.is_down.store(true, Ordering::Relaxed);
    fake.kill();
    relay.close();
    relay.give_up("too late");
    assert_eq!(relay.state(), RelayState::Failed("detached".to_string()));
}
