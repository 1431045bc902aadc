//! Load: connections that each keep some requests in flight.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

use media::SimRng;
use nbd::protocol as wire;
use nbd::request::RequestHeader;
use sim::content::{self, Filler, SECTOR_BYTES};
use sim::oracle::Kind;

use super::connection::Connection;
use super::receiver::{self, InFlight, Pending};
use super::verifier::Verifier;

/// Largest TRIM or zeroing, in bytes.
const ZERO_BYTES_MAX: u64 = 8 << 20;
/// Largest TRIM or zeroing on sparse drives, in bytes.
const SPARSE_ZERO_BYTES_MAX: u64 = 1 << 30;
const BLOCK_BYTES: u64 = 4096;

/// Frequency at which clients make data durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// FUA and flushes among plain writes.
    Mixed,
    /// Like a database: every other request makes data durable.
    Syncing,
    /// Almost never: much data is at risk.
    Careless,
}

/// Workload of the clients of one life.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of connections.
    pub connections: u64,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// Number of requests on each connection.
    pub operations: u64,
    /// Frequency at which they make data durable.
    pub style: Style,
}

impl Plan {
    /// Draws a plan.
    pub fn draw(rng: &mut SimRng) -> Plan {
        let connections = 1 + rng.below(3);
        Plan {
            connections,
            depth: 1 + rng.skewed(4) as usize,
            operations: (200 + rng.below(800)) / connections,
            style: [Style::Mixed, Style::Mixed, Style::Syncing, Style::Careless][rng.index(4)],
        }
    }
}

/// Running clients.
pub struct Load {
    threads: Vec<JoinHandle<()>>,
    connections: Vec<Connection>,
}

impl Load {
    /// Connects the clients and starts them.
    ///
    /// # Errors
    /// If the server does not accept the connections.
    pub fn start(
        socket: &Path,
        plan: Plan,
        config: &Arc<sim::Config>,
        verifier: &Arc<Verifier>,
        rng: &mut SimRng,
    ) -> io::Result<Load> {
        let mut load = Load { threads: Vec::new(), connections: Vec::new() };
        for _ in 0..plan.connections {
            let connection = Connection::open(socket)?;
            load.connections.push(connection.share()?);
            let in_flight = Arc::new(InFlight::default());
            let receiver = (connection.share()?, in_flight.clone(), verifier.clone());
            load.threads
                .push(std::thread::spawn(move || receiver::run(receiver.0, &receiver.1, &receiver.2)));
            let mut client = Client {
                connection,
                in_flight,
                plan,
                config: config.clone(),
                verifier: verifier.clone(),
                rng: rng.fork(),
                cookie: 0,
            };
            load.threads.push(std::thread::spawn(move || client.run()));
        }
        Ok(load)
    }

    /// Waits until all clients have sent their requests and received the replies, or their connections have
    /// ended.
    pub fn finish(mut self) {
        self.join();
    }

    /// Disconnects the clients.
    pub fn abandon(self) {
        drop(self);
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the reason. At most, the oracle misses its replies.
            let _ = thread.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.connections.iter().for_each(Connection::hang_up);
        self.join();
    }
}

struct Client {
    connection: Connection,
    in_flight: Arc<InFlight>,
    plan: Plan,
    config: Arc<sim::Config>,
    verifier: Arc<Verifier>,
    rng: SimRng,
    cookie: u64,
}

impl Client {
    fn run(&mut self) {
        for _ in 0..self.plan.operations {
            if self.verifier.is_stopped() || !self.request() {
                break;
            }
        }
        // The receiver waits for all outstanding replies.
        self.in_flight.drain();
        self.connection.hang_up();
    }

    /// Sends one request. Returns false if the connection has ended.
    fn request(&mut self) -> bool {
        let (fua, flush) = match self.plan.style {
            Style::Mixed => (2, 10),
            Style::Syncing => (8, 24),
            Style::Careless => (0, 1),
        };
        let fua = self.rng.chance(fua, 16);
        match self.rng.below(100 + flush) {
            0..66 => self.write(fua),
            66..82 => self.read(),
            82..91 => self.zero(Kind::Trim, fua),
            91..100 => self.zero(Kind::Zeroes, fua),
            _ => self.flush(),
        }
    }

    fn write(&mut self, fua: bool) -> bool {
        let (first, count) = self.config.draw_range(&mut self.rng);
        let filler = self.config.draw_filler(&mut self.rng);
        let mut data = vec![0; count as usize * SECTOR_BYTES];
        let flags = if fua { wire::CMD_FLAG_FUA } else { 0 };
        self.change(Kind::Write, (first, count), filler, (wire::CMD_WRITE, flags), &mut data)
    }

    fn zero(&mut self, kind: Kind, fua: bool) -> bool {
        let (first, mut count) = self.config.draw_range(&mut self.rng);
        let sector = u64::from(self.config.sector_bytes) / SECTOR_BYTES as u64;
        if self.rng.chance(1, 4) {
            let most = (self.config.logical_bytes / SECTOR_BYTES as u64 - first) / sector;
            let is_sparse = self.config.style == sim::Style::Sparse;
            let wish = if is_sparse { SPARSE_ZERO_BYTES_MAX } else { ZERO_BYTES_MAX };
            let wish = wish / SECTOR_BYTES as u64 / sector;
            count = (1 + self.rng.below(wish).min(most - 1)) * sector;
        }
        let mut flags = if fua { wire::CMD_FLAG_FUA } else { 0 };
        let command = match kind {
            Kind::Trim => wire::CMD_TRIM,
            _ => {
                flags |= if self.rng.chance(1, 2) { wire::CMD_FLAG_NO_HOLE } else { 0 };
                wire::CMD_WRITE_ZEROES
            }
        };
        self.change(kind, (first, count), Filler::Zero, (command, flags), &mut [])
    }

    /// Sends a request that changes the drive, and fills in its data.
    fn change(
        &mut self,
        kind: Kind,
        (first, count): (u64, u64),
        filler: Filler,
        (command, flags): (u16, u16),
        data: &mut [u8],
    ) -> bool {
        let (offset, length) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
        let durable = flags & wire::CMD_FLAG_FUA != 0 || !self.config.write_cache;
        let whole_blocks = offset.is_multiple_of(BLOCK_BYTES) && length.is_multiple_of(BLOCK_BYTES);
        let verifier = self.verifier.clone();
        let mut number = 0;
        let begin = || {
            number = verifier.oracle.lock().begin_write(kind, first, count, filler);
            Pending::Change { kind, number, bytes: length, durable, whole_blocks }
        };
        self.cookie += 1;
        if !self.in_flight.enter(self.plan.depth, self.cookie, begin) {
            return false;
        }
        content::fill(data, first, number, filler);
        self.send(command, flags, offset, length, data)
    }

    fn read(&mut self) -> bool {
        let (first, count) = self.config.draw_range(&mut self.rng);
        let bytes = count as usize * SECTOR_BYTES;
        let verifier = self.verifier.clone();
        let begin = || Pending::Read { reading: verifier.oracle.lock().begin_read(first, count), bytes };
        self.cookie += 1;
        self.in_flight.enter(self.plan.depth, self.cookie, begin)
            && self.send(wire::CMD_READ, 0, first * SECTOR_BYTES as u64, bytes as u64, &[])
    }

    fn flush(&mut self) -> bool {
        let verifier = self.verifier.clone();
        let begin = || Pending::Flush { began: verifier.oracle.lock().begin_flush() };
        self.cookie += 1;
        self.in_flight.enter(self.plan.depth, self.cookie, begin) && self.send(wire::CMD_FLUSH, 0, 0, 0, &[])
    }

    fn send(&mut self, command: u16, flags: u16, offset: u64, length: u64, data: &[u8]) -> bool {
        let header = RequestHeader { flags, command, cookie: self.cookie, offset, length: length as u32 };
        self.connection.send(&header, data).is_ok()
    }
}
