//! The backing: a disk in memory that loses unsynced data, determined by a seed.
//!
//! # The fault model
//!
//! These are the faults of the simulator's media ([`media::SimMedia`]) that a real process can encounter:
//!
//! 1. **Order.** Requests take a random time. Writes in flight complete in any order.
//! 2. **Power cut.** A write is durable if it completed before a sync *arrived* and that sync has completed.
//!    Each other write, completed or in flight, is present as a whole, not at all, or torn: some of its
//!    512-byte sectors (or, at some cuts, of its 4096-byte pages) are new, the rest old. At some cuts all
//!    writes are kept, at some all are lost, at some the oldest.
//! 3. **Discard.** A discarded page reads as zeros. After a cut it reads as before or as zeros.
//! 4. **Failed sync** ([`Disk::fail_sync`]). It returns EIO. The writes it covered are kept, lost or torn as
//!    at a power cut, and the next sync succeeds. Reads of the disk return the actual content, or
//!    ([`Stale::Shown`]) what was written. Caches above the disk return what was written.
//! 5. **Lost pages** ([`Disk::lose_pages`]). A page holds zeros, garbage, what it held before, what is on
//!    another one, one wrong bit, or cannot be read until it is written again.
//!
//! A disk without power fails every request, or makes it wait until [`Disk::release`].

mod damage;
mod fillings;
mod image;
mod loss;
mod trigger;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use media::SimRng;
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use image::{Image, PAGE_BYTES, SECTOR_BYTES};
pub use loss::{Chooser, Extent, Kind, LossCounts};
pub use trigger::{Trigger, When};

use image::{Change, Page};
use trigger::Event;

/// The disk fails the request: it has no power, the sync was made to fail, or a page cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// Content that reads return for writes that a failed sync lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// The actual content of the medium.
    Hidden,
    /// The written data, until the power is cut.
    Shown,
}

/// Longest time of requests, in microseconds. 0 means no delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// A write or discard.
    pub write_us_max: u64,
    /// A sync.
    pub sync_us_max: u64,
}

/// Counts of events on a disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Completed writes.
    pub writes: u64,
    /// Bytes of completed writes.
    pub written_bytes: u64,
    /// Completed syncs, including failed ones.
    pub syncs: u64,
    /// Completed discards.
    pub discards: u64,
    /// Number of power cuts.
    pub cuts: u64,
    /// Syncs that were made to fail.
    pub failed_syncs: u64,
    /// Writes that were not synced at a cut or failed sync, and were kept.
    pub kept_writes: u64,
    /// Writes that were not synced at a cut or failed sync, and were lost.
    pub lost_writes: u64,
    /// Writes that were not synced at a cut or failed sync, and were torn.
    pub torn_writes: u64,
}

/// Action of the trigger when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cuts the power.
    Cut,
    /// Only wakes the thread that waits in [`Disk::wait`].
    Ring,
}

/// Content, power and pending faults of a disk.
struct DiskState {
    rng: SimRng,
    /// Content that reads return.
    live: Image,
    /// Content after a power cut, except for changes in the journal.
    durable: Image,
    /// What each page held before it was last written.
    past: Image,
    /// Pages that cannot be read.
    unreadable: BTreeSet<u64>,
    /// Completed changes that no completed sync covers, in the order of completion, with their numbers.
    journal: Vec<(u64, Change)>,
    /// Changes that were received and have not completed.
    in_flight: Vec<(u64, Change)>,
    /// Number of the next change.
    next: u64,
    powered: bool,
    /// True if requests without power wait instead of failing.
    silent: bool,
    /// Number of syncs before one fails.
    failing_sync: Option<u64>,
    stale: Stale,
    lies: bool,
    trigger: Option<(Trigger, Action)>,
    rung: bool,
    counts: DiskCounts,
    /// Content after the last cut.
    at_cut: Option<Image>,
}

/// A disk. The fault model is at the top of its source file.
pub struct Disk {
    size_bytes: u64,
    pace: Pace,
    state: Mutex<DiskState>,
    changed: Condvar,
}

impl Disk {
    /// Creates a disk of whole pages, all zeros, with power.
    pub fn new(size_bytes: u64, pace: Pace, stale: Stale, rng: SimRng) -> Disk {
        let pages = (size_bytes / PAGE_BYTES as u64) as usize;
        let state = DiskState {
            rng,
            live: Image::empty(pages),
            durable: Image::empty(pages),
            past: Image::empty(pages),
            unreadable: BTreeSet::new(),
            journal: Vec::new(),
            in_flight: Vec::new(),
            next: 0,
            powered: true,
            silent: false,
            failing_sync: None,
            stale,
            lies: false,
            trigger: None,
            rung: false,
            counts: DiskCounts::default(),
            at_cut: None,
        };
        Disk { size_bytes, pace, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// From now on syncs succeed without making anything durable. This violates the guarantees of a disk, for
    /// tests of the code that must detect it.
    pub fn lie(&self) {
        self.state.lock().lies = true;
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Counts so far.
    pub fn counts(&self) -> DiskCounts {
        self.state.lock().counts
    }

    /// Returns whether the disk has power.
    pub fn is_powered(&self) -> bool {
        self.state.lock().powered
    }

    /// Reads whole pages.
    ///
    /// # Errors
    /// If the disk has no power, or one of the pages cannot be read.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Failed> {
        let state = self.state.lock();
        let state = self.with_power(state)?;
        let first = offset / PAGE_BYTES as u64;
        let end = (offset + len as u64).div_ceil(PAGE_BYTES as u64);
        match state.unreadable.range(first..end).next() {
            Some(_) => Err(Failed),
            None => Ok(state.live.read(offset, len)),
        }
    }

    /// Writes whole pages.
    ///
    /// # Errors
    /// If the disk has no power.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failed> {
        let first = offset / PAGE_BYTES as u64;
        let pages = (first..).zip(data.chunks_exact(PAGE_BYTES)).map(|(at, page)| (at, Some(Page::of(page))));
        self.change(Change { pages: pages.collect(), is_discard: false })
    }

    /// Turns whole pages into zeros.
    ///
    /// # Errors
    /// If the disk has no power.
    pub fn discard(&self, offset: u64, len: u64) -> Result<(), Failed> {
        let (first, count) = (offset / PAGE_BYTES as u64, len / PAGE_BYTES as u64);
        self.change(Change { pages: (first..first + count).map(|at| (at, None)).collect(), is_discard: true })
    }

    fn change(&self, change: Change) -> Result<(), Failed> {
        let mut state = self.with_power(self.state.lock())?;
        let number = state.next;
        state.next += 1;
        let is_slot = change.pages.first().is_some_and(|(at, _)| *at < trigger::SLOTS_END_PAGES);
        state.in_flight.push((number, change));
        self.notify(&mut state, Event::Arrived);
        let mut state = self.pause(state, self.pace.write_us_max)?;
        if let Some(at) = state.in_flight.iter().position(|(other, _)| *other == number) {
            let (_, change) = state.in_flight.swap_remove(at);
            state.counts.writes += u64::from(!change.is_discard);
            state.counts.discards += u64::from(change.is_discard);
            if !change.is_discard {
                state.counts.written_bytes += (change.pages.len() * PAGE_BYTES) as u64;
            }
            for (at, _) in &change.pages {
                state.unreadable.remove(at);
                let before = state.live.page(*at).cloned();
                state.past.set(*at, before);
            }
            state.live.apply(&change);
            // Numbered in the order of completion, not of arrival.
            let number = state.next;
            state.next += 1;
            state.journal.push((number, change));
        }
        if is_slot {
            self.notify(&mut state, Event::SlotWritten);
        }
        Ok(())
    }

    /// Makes everything durable that had completed before this call.
    ///
    /// # Errors
    /// If the disk has no power, or the sync was made to fail.
    pub fn sync(&self) -> Result<(), Failed> {
        let mut state = self.with_power(self.state.lock())?;
        let covered = state.next;
        self.notify(&mut state, Event::Arrived);
        let mut state = self.pause(state, self.pace.sync_us_max)?;
        self.notify(&mut state, Event::SyncEnds);
        if !state.powered {
            return self.with_power(state).map(|_| ());
        }
        state.counts.syncs += 1;
        let fails = state.failing_sync == Some(0);
        state.failing_sync = state.failing_sync.and_then(|left| left.checked_sub(1));
        if fails {
            state.lose_what_was_covered(covered);
            state.rung = true;
            self.changed.notify_all();
            return Err(Failed);
        }
        if !state.lies {
            state.make_durable(covered);
        }
        Ok(())
    }

    /// Reports to the trigger that the reply to a successful sync was sent.
    pub fn sync_was_answered(&self) {
        let mut state = self.state.lock();
        self.notify(&mut state, Event::SyncAnswered);
    }

    /// Reports to the trigger that a client has received the reply to its flush.
    pub fn flush_was_answered(&self) {
        let mut state = self.state.lock();
        self.notify(&mut state, Event::FlushAnswered);
    }

    /// Sets the trigger and its action, in place of earlier ones.
    pub fn arm(&self, trigger: Trigger, action: Action) {
        let mut state = self.state.lock();
        state.rung = false;
        state.trigger = Some((trigger, action));
    }

    /// Removes the trigger.
    pub fn disarm(&self) {
        self.state.lock().trigger = None;
    }

    /// Waits until the trigger has fired or a sync has failed, at most for `limit`. Returns whether one of
    /// these happened.
    pub fn wait(&self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        let mut state = self.state.lock();
        while !state.rung && state.powered {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// Makes one sync fail, after `after` more syncs.
    pub fn fail_sync(&self, after: u64) {
        let mut state = self.state.lock();
        state.rung = false;
        state.failing_sync = Some(after);
    }

    /// Cancels the failure of a sync.
    pub fn heal(&self) {
        self.state.lock().failing_sync = None;
    }

    /// Sets whether, from the next cut on, requests wait for [`Disk::release`] instead of failing at once.
    pub fn set_silent(&self, silent: bool) {
        self.state.lock().silent = silent;
    }

    /// Cuts the power, if it is on.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        self.cut_power(&mut state);
    }

    /// Fails the requests that wait without power.
    pub fn release(&self) {
        self.state.lock().silent = false;
        self.changed.notify_all();
    }

    /// Restores the power. The content is what the cut left.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.powered = true;
        state.trigger = None;
        state.failing_sync = None;
        state.rung = false;
    }

    /// Returns the current content, and the content after the last cut.
    pub fn images(&self) -> (Image, Option<Image>) {
        let state = self.state.lock();
        (state.live.clone(), state.at_cut.clone())
    }

    fn cut_power(&self, state: &mut DiskState) {
        if state.powered {
            state.powered = false;
            state.trigger = None;
            state.failing_sync = None;
            state.counts.cuts += 1;
            state.decide_everything();
            state.at_cut = Some(state.live.clone());
        }
        self.changed.notify_all();
    }

    fn notify(&self, state: &mut DiskState, event: Event) {
        let Some((trigger, action)) = &mut state.trigger else { return };
        if trigger.fires_on(event) {
            let action = *action;
            state.trigger = None;
            state.rung = true;
            if action == Action::Cut {
                self.cut_power(state);
            }
            self.changed.notify_all();
        }
    }

    fn with_power<'a>(
        &self,
        mut state: MutexGuard<'a, DiskState>,
    ) -> Result<MutexGuard<'a, DiskState>, Failed> {
        if state.powered {
            return Ok(state);
        }
        while state.silent && !state.powered {
            self.changed.wait(&mut state);
        }
        Err(Failed)
    }

    /// Waits for a random time, without the lock. Fails if the power was cut meanwhile.
    fn pause<'a>(
        &'a self,
        mut state: MutexGuard<'a, DiskState>,
        us_max: u64,
    ) -> Result<MutexGuard<'a, DiskState>, Failed> {
        let us = if us_max == 0 || state.rng.chance(1, 3) { 0 } else { state.rng.below(us_max) };
        let lives = state.counts.cuts;
        if us > 0 {
            drop(state);
            std::thread::sleep(Duration::from_micros(us));
            state = self.state.lock();
        }
        // If the power was restored meanwhile, the request belongs to an earlier life.
        if state.counts.cuts != lives { Err(Failed) } else { self.with_power(state) }
    }
}
