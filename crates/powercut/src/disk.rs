//! The backing: a disk in memory that forgets, from a seed.
//!
//! # The fault model
//!
//! What the simulator's media do ([`media::SimMedia`]), as far as a real process can meet it:
//!
//! 1. **Order.** Requests take a random time. Writes in flight complete in any order.
//! 2. **Power cut.** A write that had completed before a sync *arrived* that has since completed is there. Each other one,
//!    completed or in flight, is there wholly, not at all, or torn: some of its 512-byte sectors (or, at some cuts, of its
//!    4096-byte pages) are new, the rest old. At some cuts all are kept, at some all are lost, at some the oldest.
//! 3. **Discard.** A discarded page reads as zeros, and after a cut as before or as zeros.
//! 4. **Failed sync** ([`Disk::fail_sync`]). It answers EIO; what it covered is kept, lost or torn as at a power cut; the
//!    next sync succeeds. Reads of the disk show what is really there, or ([`Stale::Shown`]) what was written. Caches above
//!    the disk show what was written.
//!
//! A disk without power fails every request, or lets them wait until [`Disk::release`].

mod damage;
mod image;
mod trigger;

use std::time::{Duration, Instant};

use media::SimRng;
use parking_lot::{Condvar, Mutex, MutexGuard};

pub use image::{Image, PAGE_BYTES, SECTOR_BYTES};
pub use trigger::{Trigger, When};

use image::{Change, Page};
use trigger::Event;

/// The disk fails the request: there is no power, or a sync was told to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// What reads show of writes that a failed sync lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stale {
    /// The truth: what is on the medium.
    Hidden,
    /// What was written, until the power is cut.
    Shown,
}

/// How long requests take at the most, in microseconds. Zero: no time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pace {
    /// A write or discard.
    pub write_us_max: u64,
    /// A sync.
    pub sync_us_max: u64,
}

/// What happened on a disk so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskCounts {
    /// Completed writes.
    pub writes: u64,
    /// Their bytes.
    pub written_bytes: u64,
    /// Completed syncs, failed ones too.
    pub syncs: u64,
    /// Completed discards.
    pub discards: u64,
    /// Times the power was cut.
    pub cuts: u64,
    /// Syncs that failed on demand.
    pub failed_syncs: u64,
    /// Writes that were not synced at a cut or at a failed sync, and were kept.
    pub kept_writes: u64,
    /// The same, lost.
    pub lost_writes: u64,
    /// The same, torn.
    pub torn_writes: u64,
}

/// What the trigger does when it fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Cuts the power.
    Cut,
    /// Wakes who waits in [`Disk::wait`], and nothing more.
    Ring,
}

struct State {
    rng: SimRng,
    /// What reads show.
    live: Image,
    /// What a cut leaves, but for the journal.
    durable: Image,
    /// Completed changes that no completed sync covers, in the order they completed, with their numbers.
    journal: Vec<(u64, Change)>,
    /// Changes that were received and are not completed.
    in_flight: Vec<(u64, Change)>,
    /// Number of the next change.
    next: u64,
    powered: bool,
    /// Requests without power wait instead of failing.
    silent: bool,
    /// Syncs until one fails.
    failing_sync: Option<u64>,
    stale: Stale,
    lies: bool,
    trigger: Option<(Trigger, Action)>,
    rung: bool,
    counts: DiskCounts,
    /// What the last cut left.
    at_cut: Option<Image>,
}

/// A disk. The header of its source file is the fault model.
pub struct Disk {
    size_bytes: u64,
    pace: Pace,
    state: Mutex<State>,
    changed: Condvar,
}

impl Disk {
    /// A disk of zeros, of whole pages, with power.
    pub fn new(size_bytes: u64, pace: Pace, stale: Stale, rng: SimRng) -> Disk {
        let pages = (size_bytes / PAGE_BYTES as u64) as usize;
        let state = State {
            rng,
            live: Image::empty(pages),
            durable: Image::empty(pages),
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

    /// From here on syncs succeed and keep nothing: what a broken promise looks like, for tests of those who should notice.
    pub fn lie(&self) {
        self.state.lock().lies = true;
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// What happened so far.
    pub fn counts(&self) -> DiskCounts {
        self.state.lock().counts
    }

    /// Whether there is power.
    pub fn is_powered(&self) -> bool {
        self.state.lock().powered
    }

    /// Reads whole pages.
    ///
    /// # Errors
    /// Without power.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, Failed> {
        let state = self.state.lock();
        let state = self.with_power(state)?;
        Ok(state.live.read(offset, len))
    }

    /// Writes whole pages.
    ///
    /// # Errors
    /// Without power.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<(), Failed> {
        let first = offset / PAGE_BYTES as u64;
        let pages = (first..).zip(data.chunks_exact(PAGE_BYTES)).map(|(at, page)| (at, Some(Page::of(page))));
        self.change(Change { pages: pages.collect(), is_discard: false })
    }

    /// Makes whole pages zeros.
    ///
    /// # Errors
    /// Without power.
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
        self.tell(&mut state, Event::Arrived);
        let mut state = self.pause(state, self.pace.write_us_max)?;
        if let Some(at) = state.in_flight.iter().position(|(other, _)| *other == number) {
            let (_, change) = state.in_flight.swap_remove(at);
            state.counts.writes += u64::from(!change.is_discard);
            state.counts.discards += u64::from(change.is_discard);
            if !change.is_discard {
                state.counts.written_bytes += (change.pages.len() * PAGE_BYTES) as u64;
            }
            state.live.apply(&change);
            // By when it completed, not by when it came.
            let number = state.next;
            state.next += 1;
            state.journal.push((number, change));
        }
        if is_slot {
            self.tell(&mut state, Event::SlotWritten);
        }
        Ok(())
    }

    /// Makes everything durable that had completed before this call.
    ///
    /// # Errors
    /// Without power, or on demand.
    pub fn sync(&self) -> Result<(), Failed> {
        let mut state = self.with_power(self.state.lock())?;
        let covered = state.next;
        self.tell(&mut state, Event::Arrived);
        let mut state = self.pause(state, self.pace.sync_us_max)?;
        self.tell(&mut state, Event::SyncEnds);
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

    /// The answer to a sync that succeeded has gone out.
    pub fn sync_was_answered(&self) {
        let mut state = self.state.lock();
        self.tell(&mut state, Event::SyncAnswered);
    }

    /// A client has been told that its flush is done.
    pub fn flush_was_answered(&self) {
        let mut state = self.state.lock();
        self.tell(&mut state, Event::FlushAnswered);
    }

    /// Sets what to wait for and what to do then; replaces what was set before.
    pub fn arm(&self, trigger: Trigger, action: Action) {
        let mut state = self.state.lock();
        state.rung = false;
        state.trigger = Some((trigger, action));
    }

    /// Forgets the trigger.
    pub fn disarm(&self) {
        self.state.lock().trigger = None;
    }

    /// Waits until the trigger has fired or a sync has failed, or for so long; answers whether any did.
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

    /// The sync after so many more fails.
    pub fn fail_sync(&self, after: u64) {
        let mut state = self.state.lock();
        state.rung = false;
        state.failing_sync = Some(after);
    }

    /// No sync fails any more.
    pub fn heal(&self) {
        self.state.lock().failing_sync = None;
    }

    /// From the next cut on, requests wait for [`Disk::release`] instead of failing at once; or not.
    pub fn set_silent(&self, silent: bool) {
        self.state.lock().silent = silent;
    }

    /// Cuts the power, unless that is done.
    pub fn cut(&self) {
        let mut state = self.state.lock();
        self.cut_power(&mut state);
    }

    /// Requests that wait without power fail.
    pub fn release(&self) {
        self.state.lock().silent = false;
        self.changed.notify_all();
    }

    /// Power again, over what the cut left.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        state.powered = true;
        state.trigger = None;
        state.failing_sync = None;
        state.rung = false;
    }

    /// What reads show, and what the last cut left.
    pub fn images(&self) -> (Image, Option<Image>) {
        let state = self.state.lock();
        (state.live.clone(), state.at_cut.clone())
    }

    fn cut_power(&self, state: &mut State) {
        if state.powered {
            state.powered = false;
            state.trigger = None;
            state.failing_sync = None;
            state.counts.cuts += 1;
            state.settle_everything();
            state.at_cut = Some(state.live.clone());
        }
        self.changed.notify_all();
    }

    fn tell(&self, state: &mut State, event: Event) {
        let Some((trigger, action)) = &mut state.trigger else { return };
        if trigger.hears(event) {
            let action = *action;
            state.trigger = None;
            state.rung = true;
            if action == Action::Cut {
                self.cut_power(state);
            }
            self.changed.notify_all();
        }
    }

    fn with_power<'a>(&self, mut state: MutexGuard<'a, State>) -> Result<MutexGuard<'a, State>, Failed> {
        if state.powered {
            return Ok(state);
        }
        while state.silent && !state.powered {
            self.changed.wait(&mut state);
        }
        Err(Failed)
    }

    /// Lets some time pass, without the lock. Fails if the power went meanwhile.
    fn pause<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        us_max: u64,
    ) -> Result<MutexGuard<'a, State>, Failed> {
        let us = if us_max == 0 || state.rng.chance(1, 3) { 0 } else { state.rng.below(us_max) };
        let lives = state.counts.cuts;
        if us > 0 {
            drop(state);
            std::thread::sleep(Duration::from_micros(us));
            state = self.state.lock();
        }
        // Power that came back is another life's.
        if state.counts.cuts != lives { Err(Failed) } else { self.with_power(state) }
    }
}
