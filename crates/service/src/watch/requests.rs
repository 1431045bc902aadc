//! Counting and timing requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use device::DeviceError;
use status::RequestReport;

use crate::watch::latency::{Kind, Latencies};

/// Requests of a served drive since it was opened, and whether new ones are accepted.
#[derive(Default)]
pub struct Requests {
    closing: AtomicBool,
    in_flight: AtomicU64,
    /// Reads started.
    pub reads: AtomicU64,
    /// Writes started.
    pub writes: AtomicU64,
    /// Flushes started.
    pub flushes: AtomicU64,
    /// Trims and write-zeroes started.
    pub trims: AtomicU64,
    /// Requests for the allocation of ranges.
    pub extents: AtomicU64,
    /// Requests that failed.
    pub errors: AtomicU64,
    /// Requests refused for lack of physical space.
    pub no_space: AtomicU64,
    /// Latencies of successful requests.
    pub latencies: Latencies,
}

/// One request in flight.
pub(crate) struct InFlight<'a> {
    requests: &'a Requests,
    kind: Option<Kind>,
    since: Instant,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let before = self.requests.in_flight.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "a request that began ends once");
    }
}

impl InFlight<'_> {
    /// Counts the end of the request.
    pub(crate) fn end<T>(self, result: Result<T, drive::Error>) -> Result<T, DeviceError> {
        match result {
            Ok(answer) => {
                if let Some(kind) = self.kind {
                    self.requests.latencies.record(kind, self.since.elapsed());
                }
                Ok(answer)
            }
            Err(error) => {
                self.requests.errors.fetch_add(1, Ordering::Relaxed);
                if matches!(error, drive::Error::NoSpace | drive::Error::BackingFull) {
                    self.requests.no_space.fetch_add(1, Ordering::Relaxed);
                }
                Err(device_error(error))
            }
        }
    }
}

impl Requests {
    /// Creates counters for requests from this number of threads.
    pub fn new(threads: usize) -> Requests {
        Requests { latencies: Latencies::new(threads), ..Requests::default() }
    }

    /// Counts the start of a request, unless the drive is closing.
    pub(crate) fn begin(&self, kind: Kind) -> Result<InFlight<'_>, DeviceError> {
        let count = match kind {
            Kind::Read => &self.reads,
            Kind::Write => &self.writes,
            Kind::Flush => &self.flushes,
            Kind::Trim => &self.trims,
        };
        self.begin_counted(count, Some(kind))
    }

    /// Counts the start of a request for the allocation of ranges, unless the drive is closing. It is not
    /// timed.
    pub(crate) fn begin_extents(&self) -> Result<InFlight<'_>, DeviceError> {
        self.begin_counted(&self.extents, None)
    }

    fn begin_counted(&self, count: &AtomicU64, kind: Option<Kind>) -> Result<InFlight<'_>, DeviceError> {
        // In this order, so that either the closing drive sees the request, or the request sees that the
        // drive is closing.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let request = InFlight { requests: self, kind, since: Instant::now() };
        if self.closing.load(Ordering::SeqCst) {
            return Err(DeviceError::Shutdown);
        }
        count.fetch_add(1, Ordering::Relaxed);
        Ok(request)
    }

    /// Requests begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Reports the counts.
    pub(crate) fn report(&self) -> RequestReport {
        RequestReport {
            in_flight_count: self.in_flight(),
            reads_count: self.reads.load(Ordering::Relaxed),
            writes_count: self.writes.load(Ordering::Relaxed),
            flushes_count: self.flushes.load(Ordering::Relaxed),
            trims_count: self.trims.load(Ordering::Relaxed),
            extents_count: self.extents.load(Ordering::Relaxed),
            errors_count: self.errors.load(Ordering::Relaxed),
            no_space_count: self.no_space.load(Ordering::Relaxed),
            ..RequestReport::default()
        }
    }

    /// Refuses new requests from now on.
    pub(crate) fn refuse(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }

    /// Times a request that does nothing, for `cargo bench -p service`.
    #[doc(hidden)]
    pub fn bench_one(&self, kind: Kind) -> Result<(), DeviceError> {
        self.begin(kind)?.end(Ok(()))
    }
}

/// Error that a front end gets for an error of the engine.
fn device_error(error: drive::Error) -> DeviceError {
    match error {
        drive::Error::Invalid(what) => DeviceError::Invalid(what),
        drive::Error::NoSpace | drive::Error::BackingFull => DeviceError::NoSpace,
        drive::Error::ReadOnly(why) => DeviceError::ReadOnly(why),
        drive::Error::Io(what) => DeviceError::Io(what),
        error => DeviceError::Io(error.to_string()),
    }
}
