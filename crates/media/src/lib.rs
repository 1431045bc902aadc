//! The backing of a drive, which stores its bytes.
//!
//! The engine uses a [`Media`]: reads, writes, a durability barrier and discard, all in whole 4 KiB pages. It
//! is implemented by a file or block device ([`FileMedia`]), memory ([`MemoryMedia`]) and the simulator's
//! fault-injecting backing. `docs/design/durability.md` states what a drive may assume of its media.

mod any;
mod arena;
mod buffer;
mod file;
mod lease;
mod memory;
mod pool;
mod range;
mod simulated;
mod slab;
mod sync;
mod units;

pub use any::AnyMedia;
pub use arena::{Arena, ArenaShape, ArenaWatcher};
pub use buffer::IoBuf;
pub use file::{Allocation, Direct, FileMedia, MediaError, SizeLimit, UringGuard, UringReactor};
pub use lease::{Changing, Lease, LeaseClock, LeaseLost};
pub use memory::MemoryMedia;
pub use simulated::{
    Faults, IsData, LogNumbers, MediaCounts, ReadLogNumbers, SimGhosts, SimMedia, SimOrder, SimRead, SimRng,
    TEAR_BYTES, VOUCH_SYNCS,
};
pub use slab::{Slab, SlabBlock};
pub use units::exact_size;

use std::future::Future;
use std::io;
use std::sync::Arc;

/// Unit of transfer and alignment of every [`Media`] operation, in bytes.
pub const PAGE_BYTES: usize = 4096;

/// A backing: a linear array of 4 KiB pages.
///
/// Offsets and lengths are in bytes and multiples of [`PAGE_BYTES`]. An operation beyond
/// [`Media::size_bytes`] fails with `InvalidInput`. Operations in flight may complete, and reach the medium,
/// in any order. Futures may be dropped before they finish: the operation still completes or fails as a
/// whole, and its buffer stays alive until then.
pub trait Media: Send + Sync + 'static {
    /// Size of the backing in bytes, a multiple of [`PAGE_BYTES`].
    fn size_bytes(&self) -> u64;

    /// Reads `buf.len()` bytes at `offset`. The buffer is returned whether or not the read succeeded.
    fn read(&self, offset: u64, buf: IoBuf) -> impl Future<Output = (IoBuf, io::Result<()>)> + Send;

    /// Writes all of `buf` at `offset`. Durable only after a later [`Media::sync`].
    fn write(&self, offset: u64, buf: Arc<IoBuf>) -> impl Future<Output = io::Result<()>> + Send;

    /// Makes every write that completed before this call durable (fdatasync and the device's cache flush).
    fn sync(&self) -> impl Future<Output = io::Result<()>> + Send;

    /// Discards the range: punches a hole or sends a discard to the device. The content of the range is
    /// undefined afterwards. A backing that cannot discard returns `Unsupported`.
    fn discard(&self, offset: u64, len: u64) -> impl Future<Output = io::Result<()>> + Send;

    /// Reads what others have written to the backing, through another path or on another machine: past the
    /// caches of this one. Otherwise the same as [`Media::read`].
    fn read_shared(&self, offset: u64, buf: IoBuf) -> impl Future<Output = (IoBuf, io::Result<()>)> + Send {
        self.read(offset, buf)
    }

    /// Writes what others are to see soon ([`Media::read_shared`]). It needs no [`Lease`], and is durable
    /// only after a later [`Media::sync`].
    fn write_shared(&self, offset: u64, buf: Arc<IoBuf>) -> impl Future<Output = io::Result<()>> + Send {
        self.write(offset, buf)
    }

    /// Writes if the lease holds when the write begins, and fails otherwise. Durable only after a later
    /// [`Media::sync`].
    fn write_while(
        &self,
        lease: &Arc<Lease>,
        offset: u64,
        buf: Arc<IoBuf>,
    ) -> impl Future<Output = io::Result<()>> + Send {
        async move {
            match lease.holds() {
                true => self.write(offset, buf).await,
                false => Err(io::Error::other(LEASE_ENDED)),
            }
        }
    }
}

/// Error of a write that its lease did not allow.
pub(crate) const LEASE_ENDED: &str = "the right to write to the backing ended";
