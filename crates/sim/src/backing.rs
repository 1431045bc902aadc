//! The backing as the drive sees it: the simulated one, with one more fault and one more check.
//!
//! **Out of space on overwrites.** A file system that copies on write, or a thin volume with snapshots, needs
//! space for overwrites too. Any write may be refused with ENOSPC, and a part of it, from its beginning, may
//! have been written all the same.
//!
//! **Held space.** It is known which parts of the backing were written and not discarded since: the backing
//! of a thin drive holds them.
//!
//! **A discard over a write** in flight is a mistake, like two writes to one place: it is left to chance
//! whether the written data remains.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::{IoBuf, Lease, Media, PAGE_BYTES, SimMedia, SimRng};
use parking_lot::Mutex;

use crate::Bug;
use crate::machine::Process;

/// ENOSPC.
const NO_ROOM: i32 = 28;
/// Most writes refused in a row: two to this power.
const REFUSALS_BITS: u64 = 6;

/// Parts of the backing that are held or not, in bytes: segments are multiples of it, and begin at such.
pub const PART_BYTES: u64 = 512 << 10;

/// Rate of this fault, and counts.
#[derive(Default)]
pub struct Overwrites {
    state: Mutex<State>,
    refused: AtomicU64,
    discards_over_writes: AtomicU64,
    written_bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    rng: SimRng,
    /// Probability, in parts per million, that a write finds the backing full.
    ppm: u32,
    /// Number of following writes that are refused.
    refusing: u64,
    in_flight: Vec<(u64, Range<u64>)>,
    next: u64,
    /// Parts that were written and not discarded since.
    held: BTreeSet<u64>,
    /// Parts that were written and not discarded durably since.
    written: BTreeSet<u64>,
    /// Parts that were discarded and not written since, nor synced, and the numbers of these discards.
    discarded: BTreeMap<u64, u64>,
}

impl Overwrites {
    /// Creates the state. No write is refused before [`Overwrites::set_ppm`] is called.
    pub fn new(rng: SimRng) -> Overwrites {
        Overwrites { state: Mutex::new(State { rng, ..State::default() }), ..Overwrites::default() }
    }

    /// Returns an independent copy, for a copy of the backing.
    pub fn branch(&self) -> Overwrites {
        let state = {
            let mut state = self.state.lock();
            State {
                rng: state.rng.fork(),
                ppm: state.ppm,
                refusing: state.refusing,
                held: state.held.clone(),
                written: state.written.clone(),
                discarded: state.discarded.clone(),
                ..State::default()
            }
        };
        Overwrites {
            state: Mutex::new(state),
            refused: AtomicU64::new(self.refused()),
            discards_over_writes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
        }
    }

    /// Sets the probability, in parts per million, that a write finds the backing full. Some writes after it
    /// are refused too. 0 means that there is space again.
    pub fn set_ppm(&self, ppm: u32) {
        let mut state = self.state.lock();
        state.ppm = ppm;
        if ppm == 0 {
            state.refusing = 0;
        }
    }

    /// Number of writes refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Bytes of all writes that were begun, in this life and earlier.
    pub fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Number of discards of places to which a write was in flight.
    pub fn discards_over_writes(&self) -> u64 {
        self.discards_over_writes.load(Ordering::Relaxed)
    }

    /// Forgets all writes in flight, because the process has ended. Discards may be undone, as by a power
    /// cut, if no sync followed.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.in_flight.clear();
        state.discarded.clear();
        state.held = state.written.clone();
    }

    /// Number of parts of the backing that are held.
    pub fn held_parts(&self) -> u64 {
        self.state.lock().held.len() as u64
    }

    fn begin_write(&self, place: Range<u64>) -> InFlight<'_> {
        self.written_bytes.fetch_add(place.end - place.start, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        let parts = place.start / PART_BYTES..place.end.div_ceil(PART_BYTES);
        state.held.extend(parts.clone());
        state.discarded.retain(|part, _| !parts.contains(part));
        state.written.extend(parts);
        state.in_flight.push((number, place));
        InFlight { all: self, number }
    }

    /// Returns whether a write of this many pages is refused, and how many of its pages are written all the
    /// same.
    fn refuse(&self, pages: u64) -> Option<u64> {
        let mut state = self.state.lock();
        let State { rng, ppm, refusing, .. } = &mut *state;
        if *refusing == 0 && *ppm > 0 && rng.ppm(*ppm) {
            *refusing = 1 + rng.skewed(REFUSALS_BITS);
        }
        *refusing = refusing.checked_sub(1)?;
        self.refused.fetch_add(1, Ordering::Relaxed);
        Some(if rng.chance(1, 2) { rng.below(pages) } else { 0 })
    }

    fn note_discarded(&self, place: &Range<u64>) {
        let parts = place.start.div_ceil(PART_BYTES)..place.end / PART_BYTES;
        let mut state = self.state.lock();
        state.held.retain(|part| !parts.contains(part));
        state.next += 1;
        let number = state.next;
        state.discarded.extend(parts.map(|part| (part, number)));
    }

    /// Returns what a sync that begins now makes durable.
    fn begin_sync(&self) -> BTreeMap<u64, u64> {
        self.state.lock().discarded.clone()
    }

    fn end_sync(&self, durable: &BTreeMap<u64, u64>) {
        let mut state = self.state.lock();
        for (part, number) in durable {
            if state.discarded.get(part) == Some(number) {
                state.discarded.remove(part);
                state.written.remove(part);
            }
        }
    }

    fn note_discard(&self, place: &Range<u64>) {
        let state = self.state.lock();
        if state.in_flight.iter().any(|(_, other)| other.start < place.end && place.start < other.end) {
            self.discards_over_writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A write whose future exists.
struct InFlight<'a> {
    all: &'a Overwrites,
    number: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.all.state.lock().in_flight.retain(|(number, _)| *number != self.number);
    }
}

/// Backing of a drive; see the module documentation.
pub struct Backing {
    media: Arc<SimMedia>,
    overwrites: Arc<Overwrites>,
    /// The process that has it open, if there are others.
    process: Option<Arc<Process>>,
    lease: Option<Arc<Lease>>,
    /// See [`Bug::LeaseCheckedEarly`].
    checks_early: bool,
}

impl Backing {
    /// Creates the backing of one life.
    pub fn new(media: Arc<SimMedia>, overwrites: Arc<Overwrites>) -> Backing {
        Backing { media, overwrites, process: None, lease: None, checks_early: false }
    }

    /// Creates the backing as one of several processes has it open. What it changes observes the lease.
    pub(crate) fn of_process(
        media: Arc<SimMedia>,
        process: Arc<Process>,
        lease: Option<Arc<Lease>>,
        bug: Option<Bug>,
    ) -> Backing {
        Backing {
            process: Some(process),
            lease,
            checks_early: bug == Some(Bug::LeaseCheckedEarly),
            ..Backing::new(media, Arc::default())
        }
    }

    /// Carries out what changes the backing, as a file does: it is queued, and given to the kernel if the
    /// lease holds by then.
    async fn change<F: Future<Output = io::Result<()>> + Send + 'static>(
        &self,
        process: &Arc<Process>,
        operation: impl Fn() -> F,
    ) -> io::Result<()> {
        let Some(lease) = &self.lease else {
            process.queue().await;
            return process.carry(operation()).await;
        };
        loop {
            let changing = lease.begin()?;
            let held_before = lease.holds();
            process.queue().await;
            let may = if self.checks_early { held_before } else { lease.holds() };
            let result = if may { Some(process.carry(operation()).await) } else { None };
            changing.end();
            match result {
                Some(result) => return result,
                None => lease.confirm().await.map_err(io::Error::other)?,
            }
        }
    }
}

impl Media for Backing {
    fn size_bytes(&self) -> u64 {
        self.media.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        let Some(process) = &self.process else { return self.media.read(offset, buf).await };
        let media = self.media.clone();
        process.carry(async move { media.read(offset, buf).await }).await
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        if let Some(process) = &self.process {
            let write = || {
                let (media, buf) = (self.media.clone(), buf.clone());
                async move { media.write(offset, buf).await }
            };
            return self.change(process, write).await;
        }
        let _in_flight = self.overwrites.begin_write(offset..offset + buf.len() as u64);
        let pages = (buf.len() / PAGE_BYTES) as u64;
        let Some(arriving) = self.overwrites.refuse(pages) else {
            return self.media.write(offset, buf).await;
        };
        if arriving > 0 {
            let len = arriving as usize * PAGE_BYTES;
            let mut part = IoBuf::zeroed(len);
            part.copy_from_slice(&buf[..len]);
            self.media.write(offset, Arc::new(part)).await?;
        }
        Err(io::Error::from_raw_os_error(NO_ROOM))
    }

    async fn write_while(&self, lease: &Arc<Lease>, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        if let Some(process) = &self.process {
            process.queue().await;
        }
        if !lease.holds() {
            return Err(io::Error::other("the lease has ended"));
        }
        let media = self.media.clone();
        let write = async move { media.write(offset, buf).await };
        match &self.process {
            Some(process) => process.carry(write).await,
            None => write.await,
        }
    }

    async fn sync(&self) -> io::Result<()> {
        let Some(process) = &self.process else {
            let discarded = self.overwrites.begin_sync();
            self.media.sync().await?;
            self.overwrites.end_sync(&discarded);
            return Ok(());
        };
        let sync = || {
            let media = self.media.clone();
            async move { media.sync().await }
        };
        self.change(process, sync).await
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        if let Some(process) = &self.process {
            let discard = || {
                let media = self.media.clone();
                async move { media.discard(offset, len).await }
            };
            return self.change(process, discard).await;
        }
        self.overwrites.note_discard(&(offset..offset + len));
        self.media.discard(offset, len).await?;
        self.overwrites.note_discarded(&(offset..offset + len));
        Ok(())
    }
}
