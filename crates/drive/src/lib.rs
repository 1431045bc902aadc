//! The engine of a drive.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use media::Media;

/// Runs a future to its end in the background: `tokio::spawn` in a server, the seeded executor in the simulator.
pub type Spawner = Arc<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

/// What a new drive shall be.
#[derive(Clone, Debug)]
pub struct CreateOptions {
    /// Bytes of the backing the drive may use.
    pub physical_size_bytes: u64,
    /// What the host sees.
    pub logical_capacity_bytes: u64,
    /// 512 or 4096.
    pub sector_bytes: u32,
    /// Segment size in bytes, a power of two from 512 KiB; `None`: by physical size.
    pub segment_bytes: Option<u32>,
    /// How new blocks are compressed.
    pub codec: codec::Policy,
    /// The drive's identity.
    pub uuid: [u8; 16],
}

/// How a drive is opened.
#[derive(Clone)]
pub struct OpenOptions {
    /// A number never used before for this drive (random): makes this run's packs distinguishable from all others.
    pub entropy: u64,
    /// Memory for map nodes, in bytes.
    pub map_budget_bytes: u64,
    /// Nothing is written; recovery happens in memory.
    pub read_only: bool,
    /// Acknowledge writes when they are in memory (the default); off: every write is durable before it returns.
    pub write_cache: bool,
    /// Checkpoint after this many bytes of log.
    pub checkpoint_bytes: u64,
    /// Background runner.
    pub spawner: Spawner,
}

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// Out of range or misaligned.
    #[error("invalid request: {0}")]
    Invalid(String),
    /// Physical space cannot hold the write; nothing was changed.
    #[error("no space left on the drive")]
    NoSpace,
    /// Read-only by request, or poisoned (the reason is told).
    #[error("the drive is read-only: {0}")]
    ReadOnly(String),
    /// The medium failed.
    #[error("input/output error: {0}")]
    Io(String),
    /// The medium returned something that is not what was written there.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

/// A drive; clones share it.
pub struct Drive<M> {
    media: Arc<M>,
}

impl<M> Clone for Drive<M> {
    fn clone(&self) -> Self {
        Drive { media: self.media.clone() }
    }
}

#[allow(missing_docs, unused_variables, clippy::todo, clippy::unused_async)]
impl<M: Media> Drive<M> {
    /// Writes an empty drive to `media`.
    pub async fn create(media: &M, options: &CreateOptions) -> Result<(), Error> {
        todo!()
    }
    /// Opens, recovering from a crash where there was one.
    pub async fn open(media: Arc<M>, options: OpenOptions) -> Result<Drive<M>, Error> {
        todo!()
    }
    pub async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), Error> {
        todo!()
    }
    pub async fn write(&self, offset: u64, data: &[u8], fua: bool) -> Result<(), Error> {
        todo!()
    }
    pub async fn flush(&self) -> Result<(), Error> {
        todo!()
    }
    /// Whole blocks read as zeros from then on; durable like a write.
    pub async fn trim(&self, offset: u64, len: u64, fua: bool) -> Result<(), Error> {
        todo!()
    }
    pub async fn write_zeroes(&self, offset: u64, len: u64, no_hole: bool, fua: bool) -> Result<(), Error> {
        todo!()
    }
    /// One unit of background work (cleaning, checkpoint, discard) if any is wanted; false if none was.
    pub async fn maintain(&self) -> Result<bool, Error> {
        todo!()
    }
    /// Cleans the best victim whether or not space is short; false if there is none.
    pub async fn clean(&self) -> Result<bool, Error> {
        todo!()
    }
    /// Writes a checkpoint now.
    pub async fn checkpoint(&self) -> Result<(), Error> {
        todo!()
    }
    /// Called now and then (every few ms): an open pack that got nothing since the last tick is written out.
    pub fn tick(&self) {
        todo!()
    }
    /// Flush, checkpoint, mark clean. The drive refuses everything afterwards.
    pub async fn close(&self) -> Result<(), Error> {
        todo!()
    }
    /// Structural check of everything (usage table = sum of live records, no overlaps, free segments hold nothing
    /// live); `deep` also reads, verifies and decompresses every record. Empty: all is well. Wants a quiet drive.
    pub async fn check(&self, deep: bool) -> Result<Vec<String>, Error> {
        todo!()
    }
}
