//! Counting requests.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::device::DeviceError;

/// Requests of a served drive since it was opened, and whether new ones are taken.
#[derive(Debug, Default)]
pub struct Requests {
    closing: AtomicBool,
    in_flight: AtomicU64,
    /// Reads begun.
    pub reads: AtomicU64,
    /// Writes begun.
    pub writes: AtomicU64,
    /// Flushes begun.
    pub flushes: AtomicU64,
    /// Trims and write-zeroes begun.
    pub trims: AtomicU64,
    /// Questions about what ranges hold.
    pub extents: AtomicU64,
    /// Requests that ended in an error.
    pub errors: AtomicU64,
}

/// One request in flight.
pub(crate) struct InFlight<'a>(&'a Requests);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::SeqCst);
    }
}

impl InFlight<'_> {
    /// Counts the request's end.
    pub(crate) fn end<T>(self, result: Result<T, drive::Error>) -> Result<T, DeviceError> {
        result.map_err(|error| {
            self.0.errors.fetch_add(1, Ordering::Relaxed);
            error.into()
        })
    }
}

impl Requests {
    /// Counts a request in, unless the drive is closing.
    pub(crate) fn begin(&self, kind: &AtomicU64) -> Result<InFlight<'_>, DeviceError> {
        // In this order, so that whoever closes either sees the request or the request sees the closing.
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        let request = InFlight(self);
        if self.closing.load(Ordering::SeqCst) {
            return Err(DeviceError::Shutdown);
        }
        kind.fetch_add(1, Ordering::Relaxed);
        Ok(request)
    }

    /// Requests begun and not ended.
    pub fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::SeqCst)
    }

    /// Refuses new requests from now on.
    pub(crate) fn refuse(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }
}

impl From<drive::Error> for DeviceError {
    fn from(error: drive::Error) -> DeviceError {
        match error {
            drive::Error::Invalid(what) => DeviceError::Invalid(what),
            drive::Error::NoSpace => DeviceError::NoSpace,
            drive::Error::ReadOnly(why) => DeviceError::ReadOnly(why),
            drive::Error::Io(what) => DeviceError::Io(what),
            drive::Error::Corrupt(what) => DeviceError::Io(format!("corrupt: {what}")),
        }
    }
}
