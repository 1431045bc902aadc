//! A backing in memory that misbehaves on purpose, from a seed.
//!
//! # The storage fault model
//!
//! What follows is everything a drive must live with, and nothing else: what is not listed here is what
//! Pumice assumes of its media. [`Faults`] holds the switch and the probability of each fault.
//!
//! 1. **Order.** Operations in flight complete in random order. A read that races a write to the same pages
//!    sees any mixture of their 512-byte sectors.
//! 2. **Power cut** ([`SimMedia::power_cut`]), at any moment. A write that had completed before a sync *was
//!    issued* that has since completed is there. Every other write, completed or in flight, is there wholly,
//!    not at all, or torn: any subset of its 512-byte sectors. A sector is never half old and half new.
//! 3. **Kill** ([`SimMedia::kill`]), at any moment. The process dies and the machine does not: completed
//!    writes stay readable but are as little durable as before, and those in flight happen or do not.
//! 4. **Discard.** A discarded page reads as before or as zeros, page by page. Until the next sync even that
//!    may change with a power cut.
//! 5. **Read error.** A read fails with EIO; either only this once, or for this page until it is rewritten.
//! 6. **Write error.** A write fails with EIO and leaves any subset of its sectors behind.
//! 7. **Failed sync.** What the unsynced writes became is as random as after a power cut, reads may show either
//!    the lost data or what is really there, and *the next sync succeeds* ("fsyncgate").
//! 8. **Full backing.** A write to a page that holds nothing fails with ENOSPC and changes nothing.
//! 9. **Bit rot** in what was durable: a flipped bit, a zeroed or a garbage sector.
//! 10. **Lost and misdirected writes.** A write reported durable turns out to hold what was there before it;
//!     its data may lie at another page-aligned place, over what was there.
//!
//! Faults 9 and 10 spare what nothing vouches for: the newest writes, after which no other write that could tell was issued
//! and made durable. A log whose last entry vanishes without a trace cannot be told from one that ends
//! earlier, by any drive; the model does not ask for it. The rule is [`VOUCH_SYNCS`]. Nor can what was written twice, to be
//! safe, be missed if both writes are lost and what was there before is whole: of such places fault 10 strikes one, once
//! ([`Faults::misdirect_once_below_bytes`]).

mod damage;
mod rng;
mod state;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;

pub use rng::SimRng;
use state::{Answer, InFlight, Request, State, Unsynced};

use crate::{IoBuf, Media, PAGE_BYTES};

/// What tears: the unit that a power cut leaves old or new, in bytes.
pub const TEAR_BYTES: usize = 512;

/// How many more syncs must complete after the one that made a write durable, and a write issued after those be
/// made durable itself, before faults 9 and 10 may hit the first. Not zero, because what a pack says is durable
/// was true when it was sealed, which may be a little before it is written.
pub const VOUCH_SYNCS: u64 = 2;

/// The faults that are on. Probabilities are in parts per million; the default has none.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Fault 5, once: a read.
    pub read_error_ppm: u32,
    /// Fault 5, sticky: a read.
    pub sticky_read_error_ppm: u32,
    /// Fault 6: a write.
    pub write_error_ppm: u32,
    /// Fault 7: a sync.
    pub sync_error_ppm: u32,
    /// Fault 8: pages the backing can hold; `None`: all of them.
    pub full_pages: Option<u64>,
    /// Fault 9: at any completed operation, somewhere.
    pub rot_ppm: u32,
    /// Fault 10: at any completed operation, some earlier write.
    pub misdirect_ppm: u32,
    /// Fault 10 strikes writes that begin below this byte only once in a backing's life.
    pub misdirect_once_below_bytes: u64,
    /// Discards are refused as unsupported.
    pub no_discard: bool,
}

/// What happened on a backing so far.
#[derive(Clone, Debug, Default)]
pub struct MediaCounts {
    /// Completed reads, failed ones too.
    pub reads: u64,
    /// Completed writes, failed ones too.
    pub writes: u64,
    /// Completed syncs, failed ones too.
    pub syncs: u64,
    /// Completed discards.
    pub discards: u64,
    /// Writes torn by power cuts, failed syncs and failed writes.
    pub torn_writes: u64,
    /// Writes lost by power cuts and failed syncs.
    pub lost_writes: u64,
    /// Writes issued to where another or a discard was in flight: which of them will be there is left to chance.
    pub overlapping_writes: u64,
    /// Faults 5 that struck.
    pub read_errors: u64,
    /// Faults 6 that struck.
    pub write_errors: u64,
    /// Faults 7 that struck.
    pub sync_errors: u64,
    /// Faults 8 that struck.
    pub full_errors: u64,
    /// Faults 9 that struck.
    pub rotten_sectors: u64,
    /// Faults 10 that struck.
    pub misdirected_writes: u64,
}

/// The simulator's backing. The header of its source file is the storage fault model.
pub struct SimMedia {
    size_bytes: u64,
    state: Mutex<State>,
}

impl SimMedia {
    /// An empty backing of `size_bytes`, a multiple of [`PAGE_BYTES`].
    pub fn new(size_bytes: u64, mut rng: SimRng, faults: Faults) -> SimMedia {
        let sync_lag = [0, 32, 60, 60][rng.index(4)];
        SimMedia { size_bytes, state: Mutex::new(State { rng, faults, sync_lag, ..State::default() }) }
    }

    /// Writes that begin before this byte are of a kind that tells nothing of those before them (see [`VOUCH_SYNCS`]).
    pub fn vouching_from(self, byte: u64) -> SimMedia {
        self.state.lock().vouching_from = byte;
        self
    }

    /// Operations in flight.
    pub fn in_flight(&self) -> usize {
        self.state.lock().in_flight.len()
    }

    /// Writes and discards that a power cut now could undo.
    pub fn at_risk(&self) -> usize {
        let state = self.state.lock();
        let in_flight = state.in_flight.iter().filter(|op| matches!(op.request, Request::Write { .. }));
        state.unsynced.len() + in_flight.count()
    }

    /// Whether a power cut now could undo a write or discard that begins before `offset`.
    pub fn is_at_risk_before(&self, offset: u64) -> bool {
        let state = self.state.lock();
        let in_flight =
            |op: &InFlight| matches!(op.request, Request::Write { offset: at, .. } if at < offset);
        let begins =
            |op: &Unsynced| op.pages.first().is_some_and(|page| page.0 * (PAGE_BYTES as u64) < offset);
        state.in_flight.iter().any(in_flight) || state.unsynced.iter().any(begins)
    }

    /// Syncs in flight.
    pub fn syncs_in_flight(&self) -> usize {
        let state = self.state.lock();
        (0..state.in_flight.len()).filter(|&at| state.is_sync(at)).count()
    }

    /// Completes one of the operations in flight, picked at random; false if there is none. Some backings take
    /// their time to sync: then nothing happens this time.
    pub fn step(&self) -> bool {
        let waker = {
            let mut state = self.state.lock();
            if state.in_flight.is_empty() {
                return false;
            }
            let count = state.in_flight.len();
            let pick = state.rng.index(count);
            if state.is_sync(pick) {
                let (lag, alone) = (state.sync_lag, (0..count).all(|other| state.is_sync(other)));
                if state.rng.chance(lag, 64) || (lag > 32 && !alone) {
                    return true;
                }
            }
            let InFlight { id, request, waker, abandoned } = state.in_flight.swap_remove(pick);
            let answer = state.perform(request);
            if !abandoned {
                state.answers.insert(id, answer);
            }
            state.strike();
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Changes the faults that are on.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// What happened so far, on the backings this one was reborn from too.
    pub fn counts(&self) -> MediaCounts {
        self.state.lock().counts.clone()
    }

    /// How many failed writes and syncs the user of this life has been told of: after the first, it must not
    /// acknowledge anything as durable any more.
    pub fn failures_told(&self) -> u64 {
        self.state.lock().failures_told
    }

    /// How many writes and syncs have failed in this life, whether or not its user has heard of it yet.
    pub fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// Fault 2: the backing as it comes back after the power was cut now. This one is void from here on.
    pub fn power_cut(&self) -> SimMedia {
        let mut state = std::mem::take(&mut *self.state.lock());
        state.settle_unsynced();
        while !state.in_flight.is_empty() {
            let count = state.in_flight.len();
            let pick = state.rng.index(count);
            let op = state.in_flight.swap_remove(pick);
            let fate = state.draw_fate();
            state.perform_in_part(op.request, fate);
            state.settle_unsynced();
        }
        state.live = state.durable.iter().map(|(&at, durable)| (at, durable.page.clone())).collect();
        self.reborn(state)
    }

    /// Fault 3: the backing as the next process finds it when this one dies now. This one is void from here on.
    pub fn kill(&self) -> SimMedia {
        let mut state = std::mem::take(&mut *self.state.lock());
        while let Some(op) = state.in_flight.pop() {
            let fate = state.draw_fate();
            state.perform_in_part(op.request, fate);
        }
        self.reborn(state)
    }

    fn reborn(&self, mut state: State) -> SimMedia {
        state.answers.clear();
        (state.failures, state.failures_told) = (0, 0);
        SimMedia { size_bytes: self.size_bytes, state: Mutex::new(state) }
    }

    async fn run(&self, offset: u64, len: u64, request: Request) -> Answer {
        let page = PAGE_BYTES as u64;
        let fits = offset.checked_add(len).is_some_and(|end| end <= self.size_bytes);
        if !fits || !offset.is_multiple_of(page) || !len.is_multiple_of(page) {
            let why = format!("{len} bytes at {offset} of {}: beyond the end or misaligned", self.size_bytes);
            let buf = if let Request::Read { buf, .. } = request { Some(buf) } else { None };
            return Answer { buf, ..Answer::new(Err(io::Error::new(ErrorKind::InvalidInput, why))) };
        }
        let id = self.state.lock().submit(request);
        Ticket { media: self, id }.await
    }
}

impl Media for SimMedia {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    async fn read(&self, offset: u64, buf: IoBuf) -> (IoBuf, io::Result<()>) {
        let len = buf.len() as u64;
        let answer = self.run(offset, len, Request::Read { offset, buf }).await;
        (answer.buf.unwrap_or_else(|| IoBuf::zeroed(0)), answer.result)
    }

    async fn write(&self, offset: u64, buf: Arc<IoBuf>) -> io::Result<()> {
        let len = buf.len() as u64;
        self.run(offset, len, Request::Write { offset, buf, issued_at: 0 }).await.result
    }

    async fn sync(&self) -> io::Result<()> {
        self.run(0, 0, Request::Sync { covers: 0 }).await.result
    }

    async fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.run(offset, len, Request::Discard { offset, len }).await.result
    }
}

/// Waits for the answer to an operation. Dropped, it leaves the operation to complete on its own.
struct Ticket<'a> {
    media: &'a SimMedia,
    id: u64,
}

impl Future for Ticket<'_> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.media.state.lock();
        if let Some(answer) = state.answers.remove(&self.id) {
            state.failures_told += u64::from(answer.is_hard_failure);
            return Poll::Ready(answer);
        }
        if let Some(op) = state.in_flight.iter_mut().find(|op| op.id == self.id) {
            op.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        let mut state = self.media.state.lock();
        state.answers.remove(&self.id);
        if let Some(op) = state.in_flight.iter_mut().find(|op| op.id == self.id) {
            op.abandoned = true;
        }
    }
}
