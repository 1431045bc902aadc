//! What front-ends (NBD and others to come) and drives agree on: a block device with asynchronous operations.

use std::future::Future;

/// The shape of a block device as a host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Size in bytes, a multiple of `sector_bytes`.
    pub capacity_bytes: u64,
    /// Smallest addressable unit: 512 or 4096 bytes.
    pub sector_bytes: u32,
    /// Best alignment and size for requests, in bytes.
    pub preferred_bytes: u32,
    /// Largest single read or write, in bytes.
    pub max_transfer_bytes: u32,
    /// Refuses everything that changes data.
    pub read_only: bool,
}

/// What a range of the device holds, as `base:allocation` tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentKind {
    /// Holds data.
    Data,
    /// Allocated, reads as zeros.
    Zero,
    /// Not allocated, reads as zeros.
    Hole,
}

/// A run of bytes of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Length in bytes, a multiple of the sector size.
    pub len: u64,
    /// What the run holds.
    pub kind: ExtentKind,
}

/// Why a request failed. Nothing was changed by a request that failed before reaching the medium.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum DeviceError {
    /// Offset or length beyond the capacity, or not a multiple of the sector size.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// Physical space cannot hold the write; nothing was changed.
    #[error("no space left on the drive")]
    NoSpace,
    /// The drive is read-only, by request or because it is poisoned by a failed write or flush.
    #[error("the drive is read-only: {0}")]
    ReadOnly(String),
    /// The medium failed, or what it returned is not what was written.
    #[error("input/output error: {0}")]
    Io(String),
    /// The drive is shutting down.
    #[error("the drive is shutting down")]
    Shutdown,
}

/// A block device. All offsets and lengths are in bytes and multiples of the sector size.
///
/// Requests may run concurrently and finish in any order. A future, once polled, should be driven to its end;
/// one dropped early leaves its range as if the request were still in flight: old, new or (over 256 KiB) a
/// mixture of 256 KiB units of both.
pub trait Device: Send + Sync + 'static {
    /// The shape of the device now (capacity can grow while it is served).
    fn geometry(&self) -> Geometry;

    /// Fills `buf` from `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Writes `data` at `offset`; with `fua` it is durable before this returns.
    fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Makes every write that returned before this call durable.
    fn flush(&self) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Gives the range up: whole 4 KiB blocks in it read as zeros from now on; sectors of blocks only partly
    /// covered are zeroed too.
    fn trim(&self, offset: u64, len: u64, fua: bool) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// Makes the range read as zeros; with `no_hole` it stays allocated. Always fast (no payload is written).
    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        no_hole: bool,
        fua: bool,
    ) -> impl Future<Output = Result<(), DeviceError>> + Send;

    /// What the range holds, as runs from `offset` on: at least one, at most `max`, together no longer than
    /// `len` (shorter when `max` ends it).
    fn extents(
        &self,
        offset: u64,
        len: u64,
        max: usize,
    ) -> impl Future<Output = Result<Vec<Extent>, DeviceError>> + Send;
}
