//! A backing in memory that injects faults, determined by a seed.
//!
//! # The storage fault model
//!
//! This list contains all faults that a drive must handle. Pumice assumes that its media have no other
//! faults. [`Faults`] holds the switch and the probability of each fault.
//!
//! 1. **Order.** Operations in flight complete in any order and after any time ([`SimOrder`],
//!    [`SimMedia::hold`], [`SimMedia::hang`]). A read that races a write to the same pages returns any
//!    mixture of their 512-byte sectors.
//! 2. **Power cut** ([`SimMedia::power_cut`]), at any moment. A write is durable if it completed before a
//!    sync *was issued* and that sync has completed. Every other write, completed or in flight, is present as
//!    a whole, not at all, or torn: any subset of its 512-byte sectors. A sector is never half old and half
//!    new.
//! 3. **Kill** ([`SimMedia::kill`]), at any moment. The process dies and the machine does not. Completed
//!    writes stay readable, but are no more durable than before. Those in flight happen or do not.
//! 4. **Discard.** A discarded page reads as before or as zeros, page by page. Until the next sync even that
//!    may change with a power cut.
//! 5. **Read error.** A read fails with EIO: either only once, or for this page until it is rewritten.
//! 6. **Write error.** A write fails with EIO and leaves any subset of its sectors behind.
//! 7. **Failed sync.** The unsynced writes become as random as after a power cut, and *the next sync
//!    succeeds* ("fsyncgate"). On a backing of the kind [`SimGhosts::Hidden`] reads return the actual
//!    content. On one of the kind [`SimGhosts::Shown`] reads still return what was lost, in this process and
//!    all later ones, page by page until the page is written again or the power is cut. Some of these pages
//!    may drop out of the cache at once, and others at any time. The cache may be the page cache, or lie
//!    below a backing that takes direct I/O (a loop device, a host of virtual machines, a disk), so a drive
//!    must not care.
//! 8. **Full backing.** A write to a page that holds nothing fails with ENOSPC and changes nothing. The
//!    condition is temporary or permanent.
//! 9. **Bit rot** in durable data: a flipped bit, a zeroed or a garbage sector. If the backing can tell what
//!    is data ([`SimMedia::with_data_classifier`]), occurrences that changed nothing else, or flipped a bit
//!    that costs no more than that, are counted apart.
//! 10. **Lost and misdirected writes.** A write reported durable turns out to hold the previous content. Its
//!     data may be at another page-aligned place, over the content of that place.
//! 11. **Bad pages.** A page accepts no more writes: every write that touches it fails with EIO, in this
//!     process and all later ones, and leaves any subset of its other sectors behind. The content of the page
//!     stays readable.
//! 12. **Lost range.** Everything durable in a range as long as a segment turns into zeros or garbage, or is
//!     unreadable until it is written again.
//! 13. **Lost page** that whoever tests a drive chooses ([`SimMedia::lose_page`],
//!     [`SimMedia::replace_page`]): it holds something else, or is unreadable until it is written or
//!     discarded. It counts as no other fault, so it excuses nothing by itself.
//!
//! A power cut tears writes into sectors of 512 bytes, or into whole pages on some backings
//! ([`SimMedia::tearing`]).
//!
//! Faults 9, 10 and 12 spare the newest writes, as long as no later write that could reveal their loss was
//! issued and made durable. No drive can distinguish a log whose last entry vanishes without a trace from one
//! that ends earlier, so the model does not require it. The rule is [`VOUCH_SYNCS`]. A drive also cannot
//! detect that both copies of something written twice are lost if one of them is replaced by an intact older
//! version. In such places fault 10 therefore strikes only once ([`Faults::misdirect_once_below_bytes`]).

mod branch;
mod damage;
mod fate;
mod faults;
mod ghosts;
mod held;
mod lost;
mod order;
mod rng;
mod state;

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use parking_lot::Mutex;

pub use faults::{Faults, MediaCounts, SimGhosts};
pub use held::SimRead;
pub use order::SimOrder;
pub use rng::SimRng;
use state::{Answer, InFlight, Request, State, Unsynced};
pub use state::{IsData, LogNumbers, ReadLogNumbers};

use crate::{IoBuf, Media, PAGE_BYTES};

/// Smallest unit, in bytes, that is entirely old or entirely new after a power cut.
pub const TEAR_BYTES: usize = 512;

/// Conditions on a write before faults 9, 10 and 12 may strike it: so many more syncs must complete after the
/// one that made the write durable, and then a write that is issued after those (other than the same bytes
/// again) must be made durable. The number is not zero, because the durable number in a pack was current when
/// the pack was sealed, which may be some time before it is written. If the backing can read the numbers of a
/// log ([`SimMedia::reading_log_numbers`]), an entry also requires a durable write that calls it durable.
pub const VOUCH_SYNCS: u64 = 2;

/// The simulator's backing. The storage fault model is at the top of its source file.
pub struct SimMedia {
    size_bytes: u64,
    state: Mutex<State>,
}

impl SimMedia {
    /// Creates an empty backing of `size_bytes`, a multiple of [`PAGE_BYTES`].
    pub fn new(size_bytes: u64, mut rng: SimRng, faults: Faults) -> SimMedia {
        let sync_lag = [0, 32, 60, 60][rng.index(4)];
        SimMedia { size_bytes, state: Mutex::new(State { rng, faults, sync_lag, ..State::default() }) }
    }

    /// Sets the byte below which writes vouch for nothing before them (see [`VOUCH_SYNCS`]).
    pub fn vouching_from(self, byte: u64) -> SimMedia {
        self.state.lock().vouching_from = byte;
        self
    }

    /// Sets a function that reads, from written data, which entry of a log a page belongs to and which
    /// entries the log calls durable (see [`VOUCH_SYNCS`]). With it, a sealed entry may wait to be written
    /// for any time.
    pub fn reading_log_numbers(self, read: ReadLogNumbers) -> SimMedia {
        self.state.lock().read_log_numbers = Some(read);
        self
    }

    /// Sets a function that tells what users store from what the drive needs itself (see fault 9).
    pub fn with_data_classifier(self, is_data: IsData) -> SimMedia {
        self.state.lock().is_data = Some(is_data);
        self
    }

    /// Sets the kind of the backing (see fault 7).
    pub fn with_ghosts(self, ghosts: SimGhosts) -> SimMedia {
        self.state.lock().shows = ghosts;
        self
    }

    /// Sets the unit in bytes that a power cut leaves old or new: a multiple of [`TEAR_BYTES`] that divides a
    /// page.
    pub fn tearing(self, bytes: usize) -> SimMedia {
        self.state.lock().tear_bytes = bytes;
        self
    }

    /// Fault 11: the page that holds this byte accepts no writes from now on.
    pub fn make_bad(&self, byte: u64) {
        self.state.lock().bad.insert(byte / PAGE_BYTES as u64);
    }

    /// The page that holds this byte accepts no writes from now on. Its content has another copy, so these
    /// failures are not counted as failures that a drive may show.
    pub fn make_copy_bad(&self, byte: u64) {
        self.state.lock().bad_copy = Some(byte / PAGE_BYTES as u64);
    }

    /// Makes exactly the pages that hold these bytes unreadable from now on. They accept writes.
    pub fn hide(&self, bytes: &[u64]) {
        self.state.lock().hidden = bytes.iter().map(|byte| byte / PAGE_BYTES as u64).collect();
    }

    /// Number of pages that accept no writes.
    pub fn bad_pages(&self) -> usize {
        self.state.lock().bad.len()
    }

    /// Number of pages that cannot be read, however often that is tried.
    pub fn unreadable_pages(&self) -> usize {
        self.state.lock().sticky.len()
    }

    /// Number of pages whose reads return data that a failed sync has lost.
    pub fn ghost_pages(&self) -> usize {
        self.state.lock().ghosts.len()
    }

    /// Number of operations in flight that may complete.
    pub fn in_flight(&self) -> usize {
        let state = self.state.lock();
        if state.hangs { 0 } else { state.in_flight.len() - state.held.len() }
    }

    /// Number of completed writes and discards, and of writes in flight, that a power cut now could undo.
    pub fn at_risk(&self) -> usize {
        let state = self.state.lock();
        let in_flight = state.in_flight.iter().filter(|op| matches!(op.request, Request::Write { .. }));
        state.unsynced.len() + in_flight.count()
    }

    /// Returns whether a power cut now could undo a write or discard that begins before `offset`.
    pub fn is_at_risk_before(&self, offset: u64) -> bool {
        let state = self.state.lock();
        let in_flight =
            |op: &InFlight| matches!(op.request, Request::Write { offset: at, .. } if at < offset);
        let begins =
            |op: &Unsynced| op.pages.first().is_some_and(|page| page.0 * (PAGE_BYTES as u64) < offset);
        state.in_flight.iter().any(in_flight) || state.unsynced.iter().any(begins)
    }

    /// Number of syncs in flight.
    pub fn syncs_in_flight(&self) -> usize {
        let state = self.state.lock();
        (0..state.in_flight.len()).filter(|&at| state.is_sync(at)).count()
    }

    /// Completes one of the operations in flight that are not held. Returns false if there is none. On some
    /// backings syncs are slow: nothing may happen in a step.
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
            state.fade();
            waker
        };
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Replaces the faults in effect.
    pub fn set_faults(&self, faults: Faults) {
        self.state.lock().faults = faults;
    }

    /// Counts of events so far, including those of the backings from which this one was reborn.
    pub fn counts(&self) -> MediaCounts {
        self.state.lock().counts.clone()
    }

    /// Number of failed syncs that were reported to the user in this life. After the first, the user must not
    /// acknowledge anything as durable any more.
    pub fn failed_syncs_reported(&self) -> u64 {
        self.state.lock().failed_syncs_reported
    }

    /// Number of writes and syncs that have failed in this life, whether or not the failures were already
    /// reported to the user.
    pub fn failures(&self) -> u64 {
        self.state.lock().failures
    }

    /// Fault 2: returns the backing as it is after a power cut now. `self` is unusable from then on.
    pub fn power_cut(&self) -> SimMedia {
        let mut state = std::mem::take(&mut *self.state.lock());
        state.decide_unsynced();
        while !state.in_flight.is_empty() {
            let count = state.in_flight.len();
            let pick = state.rng.index(count);
            let op = state.in_flight.swap_remove(pick);
            let fate = state.draw_fate();
            state.perform_in_part(op.request, fate);
            state.decide_unsynced();
        }
        state.ghosts.clear();
        state.live = state.durable.iter().map(|(&at, durable)| (at, durable.page.clone())).collect();
        self.reborn(state)
    }

    /// Fault 3: returns the backing as the next process finds it if this one dies now. `self` is unusable
    /// from then on.
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
        state.hangs = false;
        (state.failures, state.failed_syncs_reported) = (0, 0);
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

/// Future of the result of an operation. If it is dropped, the operation still completes.
struct Ticket<'a> {
    media: &'a SimMedia,
    id: u64,
}

impl Future for Ticket<'_> {
    type Output = Answer;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Answer> {
        let mut state = self.media.state.lock();
        if let Some(answer) = state.answers.remove(&self.id) {
            state.failed_syncs_reported += u64::from(answer.is_failed_sync);
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
