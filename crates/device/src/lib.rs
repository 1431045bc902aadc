//! The interface between front-ends (NBD, others later) and drives: a block device with asynchronous
//! operations.

#![forbid(unsafe_code)]

mod requester;

use std::future::Future;

pub use requester::{Connection, Requester, Stay};

/// Properties of a block device as a host sees them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `sector_bytes`.
    pub capacity_bytes: u64,
    /// Smallest unit that hosts should address: 512 or 4096 bytes. Requests of other ranges are possible, and
    /// slower.
    pub sector_bytes: u32,
    /// Preferred alignment and size of requests, in bytes.
    pub preferred_bytes: u32,
    /// Largest single read or write, in bytes.
    pub max_transfer_bytes: u32,
    /// True if everything that changes data is refused.
    pub read_only: bool,
}

/// Content of a range of the device, as in `base:allocation`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Holds data.
    Data,
    /// Allocated, reads as zeros.
    Zero,
    /// Not allocated, reads as zeros.
    Hole,
}

/// A run of bytes of the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes.
    pub len: u64,
    /// Content of the run.
    pub kind: ExtentKind,
}

/// Reason why a request failed. A request that failed before it reached the medium has changed nothing.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum DeviceError {
    /// Offset or length beyond the capacity.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// Not enough physical space for the write; nothing was changed.
    #[error("no space left on the drive")]
    NoSpace,
    /// The device accepts no changes.
    #[error("the drive is read-only: {0}")]
    ReadOnly(ReadOnly),
    /// The medium failed, or returned data that differs from what was written.
    #[error("input/output error: {0}")]
    Io(String),
    /// The drive is shutting down.
    #[error("the drive is shutting down")]
    Shutdown,
}

/// Reason why a device accepts no changes.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadOnly {
    /// It was opened read-only.
    #[error("opened read-only")]
    Requested,
    /// Its stored data is damaged, and it was opened nevertheless. The text describes the damage.
    #[error("{0}")]
    Damaged(String),
    /// A write or sync of the medium failed, or the engine panicked: no change is accepted until it is opened
    /// again. The text describes the failure.
    #[error("{0}")]
    Poisoned(String),
    /// It was closed.
    #[error("the drive is closed")]
    Closed,
}

/// How a range is zeroed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zeroes {
    /// The range becomes a hole, as by TRIM. Otherwise it stays allocated.
    pub unmap: bool,
    /// The zeros are durable before the request returns.
    pub fua: bool,
}

/// A block device. All offsets and lengths are in bytes. Any range within the capacity is possible: a request
/// that covers a sector or block in part keeps the rest of it, whatever other requests write there at the
/// time.
///
/// Requests may run concurrently and finish in any order. A change may wait before it begins. It ends with
/// [`DeviceError::Shutdown`], and has changed nothing, if its [requester](Requester) leaves meanwhile. A
/// future, once polled, should be driven to its end. One that is dropped early leaves its range as if the
/// request were still in flight: old, new or (over 256 KiB) a mixture of old and new units of 256 KiB.
pub trait Device: Send + Sync + 'static {
    /// Current properties of the device (the capacity can grow while it is served).
    fn geometry(&self) -> Geometry;

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Writes `data` at `offset`. With `fua`, the data is durable before this returns.
    fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
        requester: &Requester,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Makes every write that returned before this call durable.
    fn flush(&self) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Discards the range. It reads as zeros from now on: whole 4 KiB blocks, and the bytes of blocks that
    /// are only partly covered.
    fn trim(
        &self,
        offset: u64,
        len: u64,
        fua: bool,
        requester: &Requester,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Makes the range read as zeros. Always fast, because no payload is written.
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroes: Zeroes,
        requester: &Requester,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Returns the content of the range as runs from `offset` on: at least one, at most `max`, together at
    /// most `len` bytes (fewer if `max` runs do not reach the end).
    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Extent>, DeviceError>> + Send;
}
