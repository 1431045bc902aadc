//! Load on a block device: clients that go on, with the same open file, whatever happens to the server.
//!
//! The oracle watches them as those of an NBD server. It knows nothing of servers that are killed: a request
//! takes longer then. A change that has no answer when a server is killed may be made twice, and is in flight
//! all the time for the oracle.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use media::SimRng;
use rustix::io::Errno;
use sim::content::{self, SECTOR_BYTES};
use sim::oracle::Kind;

use super::device::{Buffer, Device, judge};
use super::load::{Plan, Style};
use super::rewriter::Rewriter;
use super::verifier::Verifier;
use crate::error::{Error, Result};

/// Most requests in flight.
const CLIENTS_MAX: u64 = 8;
/// Most requests in a life: the oracle remembers all of them.
const OPERATIONS_MAX: u64 = 6000;
/// Largest range of zeroes, in bytes.
const ZERO_BYTES_MAX: u64 = 8 << 20;
/// Longest time between two requests of a client.
const PAUSE_US_MAX: u64 = 8000;
/// Writes that find out whether a drive is full, at most.
const PROBES_MAX: u32 = 8;
/// Time without an answer after which the device counts as hung.
const PATIENCE: Duration = Duration::from_secs(120);

/// Running clients of a device.
pub struct DeviceLoad {
    threads: Vec<JoinHandle<()>>,
    progress: Arc<AtomicU64>,
}

impl DeviceLoad {
    /// Opens the device and starts the clients.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn start(
        node: &Path,
        plan: Plan,
        config: &Arc<sim::Config>,
        verifier: &Arc<Verifier>,
        rewriters: &[Arc<Rewriter>],
        rng: &mut SimRng,
    ) -> io::Result<DeviceLoad> {
        let device = Arc::new(Device::open(node)?);
        let progress = Arc::new(AtomicU64::new(0));
        let mut threads = Vec::new();
        let clients = (plan.connections * plan.depth as u64).min(CLIENTS_MAX);
        for _ in 0..clients {
            let mut client = Client {
                device: device.clone(),
                style: plan.style,
                config: config.clone(),
                verifier: verifier.clone(),
                rng: rng.fork(),
                buffer: Buffer::new(),
                progress: progress.clone(),
            };
            threads.push(thread::spawn(move || client.run(OPERATIONS_MAX / clients)));
        }
        for rewriter in rewriters {
            let (rewriter, device, verifier) = (rewriter.clone(), device.clone(), verifier.clone());
            let (mut rng, progress) = (rng.fork(), progress.clone());
            threads.push(thread::spawn(move || rewriter.run(&device, &verifier, &mut rng, &progress)));
        }
        Ok(DeviceLoad { threads, progress })
    }

    /// Number of requests that were answered so far.
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Returns whether all clients have ended: the device fails.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().all(JoinHandle::is_finished)
    }

    /// Waits until all clients have ended, after they were told to, or the device fails.
    ///
    /// # Errors
    /// If the device does not answer.
    pub fn finish(&mut self) -> Result<()> {
        let since = Instant::now();
        while !self.has_ended() {
            if since.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(Error::server(format!("did not answer on the device for {seconds} seconds")));
            }
            thread::sleep(Duration::from_millis(1));
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed the reason. At most, the oracle misses its answers.
            let _ = thread.join();
        }
        Ok(())
    }
}

struct Client {
    device: Arc<Device>,
    style: Style,
    config: Arc<sim::Config>,
    verifier: Arc<Verifier>,
    rng: SimRng,
    buffer: Buffer,
    progress: Arc<AtomicU64>,
}

impl Client {
    fn run(&mut self, operations: u64) {
        for _ in 0..operations {
            if self.verifier.is_stopped() || !self.request() {
                break;
            }
            self.progress.fetch_add(1, Ordering::Relaxed);
            if self.rng.chance(1, 2) {
                thread::sleep(Duration::from_micros(self.rng.below(PAUSE_US_MAX)));
            }
        }
    }

    /// Makes one request. Returns false if the device fails.
    fn request(&mut self) -> bool {
        let (durable, flush) = match self.style {
            Style::Mixed => (2, 10),
            Style::Syncing => (8, 24),
            Style::Careless => (0, 1),
        };
        let is_durable = self.rng.chance(durable, 16);
        match self.rng.below(100 + flush) {
            0..66 => self.write(is_durable),
            66..82 => self.read(),
            82..91 => self.zero(true),
            91..100 => self.zero(false),
            _ => self.flush(),
        }
    }

    fn write(&mut self, is_durable: bool) -> bool {
        let (first, count) = self.config.draw_range(&mut self.rng);
        let filler = self.config.draw_filler(&mut self.rng);
        let number = self.verifier.oracle.lock().begin_write(Kind::Write, first, count, filler);
        let data = self.buffer.bytes(count as usize * SECTOR_BYTES);
        content::fill(data, first, number, filler);
        let result = self.device.write(first * SECTOR_BYTES as u64, data, is_durable);
        self.changed(Kind::Write, number, count, is_durable, result)
    }

    fn zero(&mut self, gives_space: bool) -> bool {
        let (first, mut count) = self.config.draw_range(&mut self.rng);
        let sector = u64::from(self.config.sector_bytes) / SECTOR_BYTES as u64;
        if self.rng.chance(1, 4) {
            let most = (self.config.logical_bytes / SECTOR_BYTES as u64 - first) / sector;
            count = (1 + self.rng.below((ZERO_BYTES_MAX / SECTOR_BYTES as u64 / sector).min(most))) * sector;
            count = count.min(most * sector);
        }
        let filler = sim::content::Filler::Zero;
        let number = self.verifier.oracle.lock().begin_write(Kind::Zeroes, first, count, filler);
        let (offset, length) = (first * SECTOR_BYTES as u64, count * SECTOR_BYTES as u64);
        let result = self.device.zero(offset, length, gives_space);
        self.changed(Kind::Zeroes, number, count, false, result)
    }

    /// Records how a change has ended.
    fn changed(
        &mut self,
        kind: Kind,
        number: u32,
        count: u64,
        is_durable: bool,
        result: io::Result<()>,
    ) -> bool {
        let verifier = self.verifier.clone();
        match result {
            Ok(()) => {
                verifier.oracle.lock().acknowledge(number, is_durable || !self.config.write_cache);
                let bytes = if kind == Kind::Write { count * SECTOR_BYTES as u64 } else { 0 };
                verifier.count(|counts| {
                    counts.changes += 1;
                    counts.written_bytes += bytes;
                });
                true
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::NOSPC) => {
                self.refused(number);
                true
            }
            // The loop driver makes EIO of it.
            Err(error)
                if kind == Kind::Zeroes
                    && Errno::from_io_error(&error) == Some(Errno::IO)
                    && self.is_full() =>
            {
                self.refused(number);
                true
            }
            Err(error) => {
                verifier.oracle.lock().fail(number);
                judge(&verifier, &format!("{kind:?} #{number}"), &error);
                false
            }
        }
    }

    /// Records that a change was refused for lack of space. A server that was killed may have made it, before
    /// the next one had no room for it.
    fn refused(&self, number: u32) {
        let mut oracle = self.verifier.oracle.lock();
        oracle.fail(number);
        oracle.settle(number);
        self.verifier.count(|counts| counts.refusals += 1);
    }

    /// Returns whether a write was refused for lack of space, before or now.
    fn is_full(&mut self) -> bool {
        for _ in 0..PROBES_MAX {
            if self.verifier.counts().refusals > 0 || !self.write(false) {
                break;
            }
        }
        self.verifier.counts().refusals > 0
    }

    fn read(&mut self) -> bool {
        let (first, count) = self.config.draw_range(&mut self.rng);
        let data = self.buffer.bytes(count as usize * SECTOR_BYTES);
        let reading = self.verifier.oracle.lock().begin_read(first, count);
        match self.device.read(first * SECTOR_BYTES as u64, data) {
            Ok(()) => {
                self.verifier.record(self.verifier.oracle.lock().end_read(&reading, data));
                self.verifier.count(|counts| counts.verified_bytes += count * SECTOR_BYTES as u64);
                true
            }
            Err(error) => {
                judge(&self.verifier, &format!("a read of {count} sectors"), &error);
                false
            }
        }
    }

    fn flush(&mut self) -> bool {
        let began = self.verifier.oracle.lock().begin_flush();
        match self.device.flush() {
            Ok(()) => {
                self.verifier.oracle.lock().end_flush(began);
                self.verifier.count(|counts| counts.flushes += 1);
                self.verifier.disk.flush_was_answered();
                true
            }
            Err(error) => {
                judge(&self.verifier, "a flush", &error);
                false
            }
        }
    }
}
