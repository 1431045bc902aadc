//! A backing in memory that misbehaves on purpose, from a seed.
//!
//! # The storage fault model
//!
//! What follows is everything a drive must live with, and nothing else: what is not listed here is what
//! Pumice assumes of its media. [`Faults`] holds the switch and the probability of each fault.
//!
//! 1. **Order.** Operations in flight complete in any order, and take as long as they like ([`SimOrder`], [`SimMedia::hold`]). A read that races a write to the same pages
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
//! 7. **Failed sync.** What the unsynced writes became is as random as after a power cut, and *the next sync succeeds*
//!    ("fsyncgate"). On a backing of the kind [`SimCache::Direct`] reads show what is there. On one of the kind
//!    [`SimCache::Cached`] they go on showing what was lost, in this process and all later ones, page by page until the page is
//!    written again or the power is cut; a few of these pages may drop out of the cache at once.
//! 8. **Full backing.** A write to a page that holds nothing fails with ENOSPC and changes nothing. That may pass or stay.
//! 9. **Bit rot** in what was durable: a flipped bit, a zeroed or a garbage sector.
//! 10. **Lost and misdirected writes.** A write reported durable turns out to hold what was there before it;
//!     its data may lie at another page-aligned place, over what was there.
//! 11. **Bad pages.** A page takes no write any more: every write that touches it fails with EIO, whoever has the backing open,
//!     and leaves any subset of its other sectors behind. What the page held stays readable.
//! 12. **Lost range.** Everything durable in a range as long as a segment turns into zeros, or into garbage, or cannot be read
//!     any more until it is written again.
//!
//! What a power cut tears into is sectors of 512 bytes, or whole pages on some backings ([`SimMedia::tearing`]).
//!
//! Faults 9, 10 and 12 spare what nothing vouches for: the newest writes, after which no other write that could tell was issued
//! and made durable. A log whose last entry vanishes without a trace cannot be told from one that ends
//! earlier, by any drive; the model does not ask for it. The rule is [`VOUCH_SYNCS`]. Nor can what was written twice, to be
//! safe, be missed if both are gone and what one of them replaced is whole: of such places fault 10 strikes one, once
//! ([`Faults::misdirect_once_below_bytes`]).

mod branch;
mod cache;
mod damage;
mod faults;
mod held;
mod rng;
mod state;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;

pub use faults::{Faults, MediaCounts, SimCache};
pub use held::{SimOrder, SimRead};
pub use rng::SimRng;
use state::{Answer, InFlight, Request, State, Unsynced};
pub use state::{LogNumbers, ReadLogNumbers};

use crate::{IoBuf, Media, PAGE_BYTES};

/// The smallest unit that a power cut leaves old or new, in bytes.
pub const TEAR_BYTES: usize = 512;

/// How many more syncs must complete after the one that made a write durable, and a write issued after those be
/// made durable itself (other than the same bytes again), before faults 9, 10 and 12 may hit the first. Not zero, because what a pack says is durable
/// was true when it was sealed, which may be a little before it is written. Where the backing can read a log's numbers
/// ([`SimMedia::reading_log_numbers`]), what an entry needs besides is a durable write that calls it durable.
pub const VOUCH_SYNCS: u64 = 2;

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

    /// Reads what is written to know which entry of a log a page belongs to, and which entries the log calls durable (see
    /// [`VOUCH_SYNCS`]): how long what was sealed waits to be written has no limit.
    pub fn reading_log_numbers(self, read: ReadLogNumbers) -> SimMedia {
        self.state.lock().read_log_numbers = Some(read);
        self
    }

    /// Makes this a backing of that kind (see fault 7).
    pub fn cached(self, cache: SimCache) -> SimMedia {
        self.state.lock().cache = cache;
        self
    }

    /// A power cut leaves units of so many bytes old or new: a multiple of [`TEAR_BYTES`] that divides a page.
    pub fn tearing(self, bytes: usize) -> SimMedia {
        self.state.lock().tear_bytes = bytes;
        self
    }

    /// Fault 11: the page that holds this byte takes no write from now on.
    pub fn make_bad(&self, byte: u64) {
        self.state.lock().bad.insert(byte / PAGE_BYTES as u64);
    }

    /// The page that holds this byte takes no write from now on. There is another copy of what it holds, so that no failure of a
    /// drive is counted as one of this.
    pub fn make_copy_bad(&self, byte: u64) {
        self.state.lock().bad_copy = Some(byte / PAGE_BYTES as u64);
    }

    /// The pages that hold these bytes, and no others, cannot be read from now on. They take writes.
    pub fn hide(&self, bytes: &[u64]) {
        self.state.lock().hidden = bytes.iter().map(|byte| byte / PAGE_BYTES as u64).collect();
    }

    /// Pages that take no write.
    pub fn bad_pages(&self) -> usize {
        self.state.lock().bad.len()
    }

    /// Pages that cannot be read, however often that is tried.
    pub fn unreadable_pages(&self) -> usize {
        self.state.lock().sticky.len()
    }

    /// Pages of which reads show what a failed sync has lost.
    pub fn ghost_pages(&self) -> usize {
        self.state.lock().ghosts.len()
    }

    /// Operations in flight that are not held.
    pub fn in_flight(&self) -> usize {
        let state = self.state.lock();
        state.in_flight.len() - state.held.len()
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

    /// Completes one of the operations in flight that are not held; false if there is none. Some backings take
    /// their time to sync: then nothing happens this time.
    pub fn step(&self) -> bool {
        let waker = {
            let mut state = self.state.lock();
            let Some(pick) = state.next_operation() else { return false };
            if state.is_sync(pick) {
                let lag = state.sync_lag;
                let alone =
                    (0..state.in_flight.len()).all(|other| state.is_sync(other) || state.is_held(other));
                if state.rng.chance(lag, 64) || (lag > 32 && !alone) {
                    return true;
                }
            }
            let InFlight { id, request, waker, abandoned, .. } = state.in_flight.swap_remove(pick);
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

    /// How many failed syncs the user of this life has been told of: after the first, it must not acknowledge anything as
    /// durable any more.
    pub fn failed_syncs_told(&self) -> u64 {
        self.state.lock().failed_syncs_told
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
        state.ghosts.clear();
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
        state.held.clear();
        (state.failures, state.failed_syncs_told) = (0, 0);
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

    fn may_show_unsynced(&self) -> bool {
        self.state.lock().cache == SimCache::Cached
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
            state.failed_syncs_told += u64::from(answer.is_failed_sync);
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
