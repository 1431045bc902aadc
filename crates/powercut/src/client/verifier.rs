//! Verification of all replies: the oracle, and what excuses errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use sim::oracle::{Oracle, Violation};

use crate::disk::Disk;
use crate::error::Error;

/// Counts of client requests.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientCounts {
    /// Writes, zeroes and TRIMs that were acknowledged.
    pub changes: u64,
    /// Bytes of acknowledged writes.
    pub written_bytes: u64,
    /// Flushes that were acknowledged.
    pub flushes: u64,
    /// Bytes read and compared with the oracle.
    pub verified_bytes: u64,
    /// Requests refused for lack of space.
    pub refusals: u64,
    /// Requests that failed with an excuse.
    pub errors: u64,
    /// Blocks that were rewritten and read back at once.
    pub rewrites: u64,
}

/// Verifier of all clients of a drive: the oracle, the first failure, and the state that excuses errors.
pub struct Verifier {
    /// Informed of each request before it is sent, and of each reply after it was received.
    pub oracle: Mutex<Oracle>,
    /// The disk under the drive.
    pub disk: Arc<Disk>,
    failure: Mutex<Option<Error>>,
    counts: Mutex<ClientCounts>,
    stopped: AtomicBool,
    ending: AtomicBool,
    /// Number of failed syncs when the server was started.
    failed_before: AtomicU64,
}

impl Verifier {
    /// Creates the verifier of an empty drive.
    pub fn new(disk: Arc<Disk>) -> Verifier {
        Verifier {
            oracle: Mutex::new(Oracle::new()),
            disk,
            failure: Mutex::new(None),
            counts: Mutex::new(ClientCounts::default()),
            stopped: AtomicBool::new(false),
            ending: AtomicBool::new(false),
            failed_before: AtomicU64::new(0),
        }
    }

    /// Begins a life: a server is about to be started.
    pub fn begin_life(&self) {
        self.failed_before.store(self.disk.counts().failed_syncs, Ordering::SeqCst);
        self.stopped.store(false, Ordering::SeqCst);
        self.ending.store(false, Ordering::SeqCst);
    }

    /// Records that the power is cut, or that the server was asked to stop. From here to the next life
    /// requests may fail, however late replies are processed.
    pub fn begin_end(&self) {
        self.ending.store(true, Ordering::SeqCst);
    }

    /// Makes clients send no more requests.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    /// Returns whether clients should send no more requests.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// Returns whether a correct server may return an error now.
    pub fn is_excused(&self) -> bool {
        self.ending.load(Ordering::SeqCst) || !self.disk.is_powered() || self.has_failed_sync()
    }

    /// Returns whether a sync failed in this life of the server.
    pub fn has_failed_sync(&self) -> bool {
        self.disk.counts().failed_syncs > self.failed_before.load(Ordering::SeqCst)
    }

    /// Records a failure and stops. The first one counts.
    pub fn fail(&self, why: Error) {
        self.failure.lock().get_or_insert(why);
        self.stop();
    }

    /// Records a violation, if there is one.
    pub fn record(&self, result: Result<(), Violation>) {
        if let Err(violation) = result {
            self.fail(violation.into());
        }
    }

    /// Returns whether there was a failure.
    pub fn has_failed(&self) -> bool {
        self.failure.lock().is_some()
    }

    /// Takes the first failure.
    pub fn take_failure(&self) -> Option<Error> {
        self.failure.lock().take()
    }

    /// Counts so far.
    pub fn counts(&self) -> ClientCounts {
        *self.counts.lock()
    }

    pub(super) fn count(&self, count: impl FnOnce(&mut ClientCounts)) {
        count(&mut self.counts.lock());
    }
}
