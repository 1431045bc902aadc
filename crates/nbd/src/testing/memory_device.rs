//! A device in memory.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use device::{Device, DeviceError, Extent, ExtentKind, Geometry, ReadOnly, Requester, Zeroes};
use tokio::sync::Notify;

/// Unit of allocation, in bytes.
const CHUNK_BYTES: u64 = 64 << 10;

/// Longest wait of writes for each other.
const MEETING_TIME_MAX: Duration = Duration::from_secs(30);

type Chunk = Option<Box<[u8]>>;

/// Writes that wait for each other, and their threads.
#[derive(Default)]
struct Meeting {
    /// Number of writes of which the first waits for the last.
    size: usize,
    /// Threads of the writes so far, with their lengths in bytes.
    writes: Vec<(usize, ThreadId)>,
}

/// A sparse device in memory that can be made slow or made to fail.
pub struct MemoryDevice {
    chunks: Vec<Mutex<Chunk>>,
    capacity_bytes: AtomicU64,
    sector_bytes: u32,
    max_transfer_bytes: u32,
    read_only: bool,
    failure: Mutex<Option<DeviceError>>,
    /// True if a failure, a delay, a yield or a hold is set.
    slow: AtomicBool,
    yields: AtomicBool,
    delay: Mutex<Duration>,
    delayed: AtomicU64,
    holds: AtomicBool,
    /// Changes wait before they begin.
    waits: AtomicBool,
    begun: Notify,
    released: Notify,
    flushes: AtomicU64,
    durable_writes: AtomicU64,
    meeting: Mutex<Meeting>,
    met: Condvar,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A chunk is valid whatever a panicking test did to it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryDevice {
    /// Creates a device of `capacity_bytes` with sectors of `sector_bytes`, all zeros.
    pub fn new(capacity_bytes: u64, sector_bytes: u32) -> Self {
        Self {
            chunks: (0..capacity_bytes.div_ceil(CHUNK_BYTES)).map(|_| Mutex::new(None)).collect(),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            sector_bytes,
            max_transfer_bytes: 32 << 20,
            read_only: false,
            failure: Mutex::new(None),
            slow: AtomicBool::new(false),
            yields: AtomicBool::new(false),
            delay: Mutex::new(Duration::ZERO),
            delayed: AtomicU64::new(0),
            holds: AtomicBool::new(false),
            waits: AtomicBool::new(false),
            begun: Notify::new(),
            released: Notify::new(),
            flushes: AtomicU64::new(0),
            durable_writes: AtomicU64::new(0),
            meeting: Mutex::default(),
            met: Condvar::new(),
        }
    }

    /// Makes the device read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Sets the largest transfer in bytes.
    #[must_use]
    pub fn max_transfer(mut self, bytes: u32) -> Self {
        self.max_transfer_bytes = bytes;
        self
    }

    /// Makes every request fail with `error`. `None` ends that.
    pub fn fail_with(&self, error: Option<DeviceError>) {
        *lock(&self.failure) = error;
        self.mark_slow();
    }

    /// Delays each request by `delay`. Requests wait independently, so later ones may finish earlier.
    pub fn delay_by(&self, delay: Duration) {
        *lock(&self.delay) = delay;
        self.mark_slow();
    }

    /// Sets whether requests that come from now on wait for [`MemoryDevice::release`].
    pub fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::Relaxed);
        self.mark_slow();
    }

    /// Sets whether changes that come from now on wait for [`MemoryDevice::begin`] before they begin, as
    /// those that are throttled do.
    pub fn wait(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// Lets all changes begin that wait, if their clients are there.
    pub fn begin(&self) {
        self.begun.notify_waiters();
    }

    /// Waits before a change.
    async fn admit(&self, requester: &Requester) -> Result<(), DeviceError> {
        if !self.waits.load(Ordering::Relaxed) {
            return Ok(());
        }
        let begun = self.begun.notified();
        self.delayed.fetch_add(1, Ordering::Relaxed);
        requester.during(begun).await
    }

    /// Releases all held requests.
    pub fn release(&self) {
        self.released.notify_waiters();
    }

    /// Number of requests so far that were delayed or held, or had to wait, or are.
    pub fn delayed(&self) -> u64 {
        self.delayed.load(Ordering::Relaxed)
    }

    /// Makes every request yield once, so that none completes at the first poll.
    pub fn yield_once(&self, yields: bool) {
        self.yields.store(yields, Ordering::Relaxed);
        self.mark_slow();
    }

    /// Makes writes block their threads until `size` of them are there, as compressing would that uses so
    /// many cores. The writes' threads are recorded.
    pub fn meet(&self, size: usize) {
        lock(&self.meeting).size = size;
        self.met.notify_all();
    }

    /// Returns lengths in bytes and threads of the writes since [`MemoryDevice::meet`].
    pub fn writes(&self) -> Vec<(usize, ThreadId)> {
        lock(&self.meeting).writes.clone()
    }

    /// Waits for the other writes of a meeting. Returns false if they did not come.
    fn meets(&self, len: usize) -> bool {
        let mut meeting = lock(&self.meeting);
        if meeting.size == 0 {
            return true;
        }
        meeting.writes.push((len, std::thread::current().id()));
        self.met.notify_all();
        let waited =
            self.met.wait_timeout_while(meeting, MEETING_TIME_MAX, |now| now.writes.len() < now.size);
        waited.is_ok_and(|(_, wait)| !wait.timed_out())
    }

    /// Limits the device to its first `capacity_bytes`, to simulate a device that grows later.
    pub fn set_capacity(&self, capacity_bytes: u64) {
        let allocated = self.chunks.len() as u64 * CHUNK_BYTES;
        self.capacity_bytes.store(capacity_bytes.min(allocated), Ordering::Relaxed);
    }

    /// Number of flushes so far.
    pub fn flushes(&self) -> u64 {
        self.flushes.load(Ordering::Relaxed)
    }

    /// Number of writes, trims and zeroings with `fua` so far.
    pub fn durable_writes(&self) -> u64 {
        self.durable_writes.load(Ordering::Relaxed)
    }

    fn mark_slow(&self) {
        let slow = lock(&self.failure).is_some()
            || !lock(&self.delay).is_zero()
            || self.yields.load(Ordering::Relaxed)
            || self.holds.load(Ordering::Relaxed);
        self.slow.store(slow, Ordering::Relaxed);
    }

    async fn interfere(&self) -> Result<(), DeviceError> {
        if self.slow.load(Ordering::Relaxed) {
            let (delay, failure) = (*lock(&self.delay), lock(&self.failure).clone());
            if self.yields.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            if self.holds.load(Ordering::Relaxed) {
                let released = self.released.notified();
                self.delayed.fetch_add(1, Ordering::Relaxed);
                released.await;
            }
            if !delay.is_zero() {
                self.delayed.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(delay).await;
            }
            return failure.map_or(Ok(()), Err);
        }
        Ok(())
    }

    /// Calls `visit` for each chunk that the range touches, with the part of the range within the chunk and
    /// its position within the whole range.
    fn for_chunks(
        &self,
        offset: u64,
        len: u64,
        mut visit: impl FnMut(&mut Chunk, std::ops::Range<usize>, usize),
    ) -> Result<(), DeviceError> {
        let geometry = self.geometry();
        let end = offset.checked_add(len).filter(|end| *end <= geometry.capacity_bytes);
        let Some(end) = end else {
            return Err(DeviceError::Invalid(format!("{len} bytes at {offset}")));
        };
        let mut at = offset;
        while at < end {
            let until = end.min((at / CHUNK_BYTES + 1) * CHUNK_BYTES);
            let within = (at % CHUNK_BYTES) as usize..((until - 1) % CHUNK_BYTES) as usize + 1;
            visit(&mut lock(&self.chunks[(at / CHUNK_BYTES) as usize]), within, (at - offset) as usize);
            at = until;
        }
        Ok(())
    }

    fn may_write(&self, fua: bool) -> Result<(), DeviceError> {
        if self.read_only {
            return Err(DeviceError::ReadOnly(ReadOnly::Requested));
        }
        self.durable_writes.fetch_add(u64::from(fua), Ordering::Relaxed);
        Ok(())
    }
}

impl Device for MemoryDevice {
    fn geometry(&self) -> Geometry {
        Geometry {
            capacity_bytes: self.capacity_bytes.load(Ordering::Relaxed),
            sector_bytes: self.sector_bytes,
            preferred_bytes: 4096,
            max_transfer_bytes: self.max_transfer_bytes,
            read_only: self.read_only,
        }
    }

    async fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DeviceError> {
        self.interfere().await?;
        self.for_chunks(offset, buf.len() as u64, |chunk, within, at| {
            let buf = &mut buf[at..at + within.len()];
            match chunk {
                Some(bytes) => buf.copy_from_slice(&bytes[within]),
                None => buf.fill(0),
            }
        })
    }

    async fn write(
        &self,
        offset: u64,
        data: &[u8],
        fua: bool,
        requester: &Requester,
    ) -> Result<(), DeviceError> {
        self.admit(requester).await?;
        self.interfere().await?;
        self.may_write(fua)?;
        if !self.meets(data.len()) {
            return Err(DeviceError::Io("the other writes did not come".to_owned()));
        }
        self.for_chunks(offset, data.len() as u64, |chunk, within, at| {
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK_BYTES as usize].into_boxed_slice());
            let data = &data[at..at + within.len()];
            bytes[within].copy_from_slice(data);
        })
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.interfere().await?;
        self.flushes.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    async fn trim(&self, offset: u64, len: u64, fua: bool, requester: &Requester) -> Result<(), DeviceError> {
        self.write_zeroes(offset, len, Zeroes { unmap: true, fua }, requester).await
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        Zeroes { unmap, fua }: Zeroes,
        requester: &Requester,
    ) -> Result<(), DeviceError> {
        self.admit(requester).await?;
        self.interfere().await?;
        self.may_write(fua)?;
        self.for_chunks(offset, len, |chunk, within, _| {
            if unmap && within.len() as u64 == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(bytes) = chunk {
                bytes[within].fill(0);
            } else if !unmap {
                *chunk = Some(vec![0; CHUNK_BYTES as usize].into_boxed_slice());
            }
        })
    }

    async fn extents(&self, offset: u64, len: u64, max: usize) -> Result<Vec<Extent>, DeviceError> {
        self.interfere().await?;
        let mut extents: Vec<Extent> = Vec::new();
        self.for_chunks(offset, len, |chunk, within, _| {
            let kind = match chunk {
                None => ExtentKind::Hole,
                Some(bytes) if bytes[within.clone()].iter().all(|byte| *byte == 0) => ExtentKind::Zero,
                Some(_) => ExtentKind::Data,
            };
            match extents.last_mut() {
                Some(last) if last.kind == kind => last.len += within.len() as u64,
                _ => extents.push(Extent { len: within.len() as u64, kind }),
            }
        })?;
        extents.truncate(max);
        Ok(extents)
    }
}
