//! The backing as the drive has it: the simulated one, and two things more.
//!
//! **Full also where it holds something.** A file system that copies on write, or a thin volume with snapshots, needs room for
//! what is written over, too: any write may be refused with ENOSPC, and a part of it, from its beginning, may be there all the same.
//!
//! **A discard over a write** that is in flight leaves to chance whether what was written is there. It is a mistake, as two writes
//! to one place are.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::{IoBuf, Media, PAGE_BYTES, SimMedia, SimRng};
use parking_lot::Mutex;

/// ENOSPC.
const NO_ROOM: i32 = 28;
/// Writes refused in a row, at most: two to this power.
const REFUSALS_BITS: u64 = 6;

/// How often that happens, and what happened.
#[derive(Default)]
pub struct Overwrites {
    state: Mutex<State>,
    refused: AtomicU64,
    discards_over_writes: AtomicU64,
}

#[derive(Default)]
struct State {
    rng: SimRng,
    /// Of a million writes, so many find that the backing has become full.
    ppm: u32,
    /// Writes that are refused from now on.
    refusing: u64,
    in_flight: Vec<(u64, Range<u64>)>,
    next: u64,
}

impl Overwrites {
    /// Writes may be refused once [`Overwrites::set_ppm`] says so.
    pub fn new(rng: SimRng) -> Overwrites {
        Overwrites { state: Mutex::new(State { rng, ..State::default() }), ..Overwrites::default() }
    }

    /// The same on a copy of the backing, of its own from here on.
    pub fn branch(&self) -> Overwrites {
        let (rng, ppm, refusing) = {
            let mut state = self.state.lock();
            (state.rng.fork(), state.ppm, state.refusing)
        };
        let state = State { rng, ppm, refusing, ..State::default() };
        Overwrites {
            state: Mutex::new(state),
            refused: AtomicU64::new(self.refused()),
            discards_over_writes: AtomicU64::new(0),
        }
    }

    /// From now on so many of a million writes find the backing full, and some after them. None: there is room again.
    pub fn set_ppm(&self, ppm: u32) {
        let mut state = self.state.lock();
        state.ppm = ppm;
        if ppm == 0 {
            state.refusing = 0;
        }
    }

    /// Writes refused so far.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Discards of places to which a write was in flight.
    pub fn discards_over_writes(&self) -> u64 {
        self.discards_over_writes.load(Ordering::Relaxed)
    }

    /// The process is no more.
    pub fn forget(&self) {
        self.state.lock().in_flight.clear();
    }

    fn begin_write(&self, place: Range<u64>) -> InFlight<'_> {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        state.in_flight.push((number, place));
        InFlight { all: self, number }
    }

    /// Whether a write of so many pages is refused, and how many of them arrive all the same.
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

    fn note_discard(&self, place: &Range<u64>) {
        let state = self.state.lock();
        if state.in_flight.iter().any(|(_, other)| other.start < place.end && place.start < other.end) {
            self.discards_over_writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A write that somebody waits for.
struct InFlight<'a> {
    all: &'a Overwrites,
    number: u64,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.all.state.lock().in_flight.retain(|(number, _)| *number != self.number);
    }
}

/// See the module's header.
pub struct Backing {
    media: Arc<SimMedia>,
    overwrites: Arc<Overwrites>,
}

impl Backing {
    /// The backing of one life.
    pub fn new(media: Arc<SimMedia>, overwrites: Arc<Overwrites>) -> Backing {
        Backing { media, overwrites }
    }
}

impl Media for Backing {
    fn size_bytes(&self) -> u64 {
        self.media.size_bytes()
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        self.media.read(offset, buf).await
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
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

    async fn sync(&self) -> io::Result<()> {
        self.media.sync().await
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.overwrites.note_discard(&(offset..offset + len));
        self.media.discard(offset, len).await
    }

    fn may_show_unsynced(&self) -> bool {
        self.media.may_show_unsynced()
    }
}
