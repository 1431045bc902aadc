//! State that the clients of one life of a drive share.

use std::collections::{BTreeSet, VecDeque};
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Poll, Waker};

use drive::ReadOnly;
use media::{MediaCounts, SimMedia, SimRng};
use parking_lot::Mutex;

use crate::backing::Overwrites;
use crate::content::SECTOR_BYTES;
use crate::doing::Doing;
use crate::excuses::Struck;
use crate::executor::Pulse;
use crate::ledger::BLOCK_BYTES;
use crate::oracle::{Oracle, Violation};
use crate::strikes::{Lost, Strikes};
use crate::{Config, Counts, Error, Subject, panics};

/// Number of beats after which a drive must have reacted to a failed sync.
const POISON_BEATS: u64 = 10;

/// Number of writes that count as the newest.
const NEWEST: usize = 4;

/// A drive that is open, and everything that observes it.
pub struct World<S> {
    /// The drive.
    pub subject: S,
    /// Its backing.
    pub media: Arc<SimMedia>,
    /// Configuration of the seed.
    pub config: Arc<Config>,
    /// Shared by all lives of the drive.
    pub oracle: Arc<Mutex<Oracle>>,
    /// Shared by all lives of the drive.
    pub counts: Arc<Mutex<Counts>>,
    /// Bytes on the drive that the oracle does not know of.
    pub annex_bytes: u64,
    /// Counts of the backing at the beginning of this life.
    pub before: MediaCounts,
    /// Range that hosts may use at least, in bytes. Shared by all lives of the drive.
    pub capacity: Arc<AtomicU64>,
    /// Refuses writes to the backing for lack of space.
    pub overwrites: Arc<Overwrites>,
    /// Blocks whose records were lost beyond the cover of parity. Shared by all lives of the drive.
    pub(crate) lost_blocks: Arc<Mutex<BTreeSet<u64>>>,
    /// Loses pages between steps.
    pub(crate) strikes: Mutex<Strikes>,
    verbose: bool,
    failure: Mutex<Option<String>>,
    progress: AtomicU64,
    beats: AtomicU64,
    /// Number of failed syncs during the opening, which compensated for them by writing doubtful data again.
    made_good: u64,
    poisoned_since: AtomicU64,
    clients: AtomicU64,
    stopped: AtomicBool,
    maintaining: AtomicU64,
    closing: AtomicBool,
    full: AtomicBool,
    /// The newest writes that were acknowledged: first sector and number of sectors.
    newest: Mutex<VecDeque<(u64, u64)>>,
    /// Writes whose connections were lost, with the numbers of connections begun until then.
    lost: Mutex<Vec<(u32, u64)>>,
    bell: Mutex<Vec<Waker>>,
}

impl<S: Subject> World<S> {
    /// Creates the world of a drive that was just opened.
    pub fn new(
        subject: S,
        media: Arc<SimMedia>,
        config: Arc<Config>,
        oracle: Arc<Mutex<Oracle>>,
        counts: Arc<Mutex<Counts>>,
        verbose: bool,
    ) -> World<S> {
        let capacity = Arc::new(AtomicU64::new(config.capacity_bytes()));
        World {
            subject,
            made_good: media.failed_syncs_reported(),
            media,
            config,
            oracle,
            counts,
            capacity,
            overwrites: Arc::default(),
            annex_bytes: 0,
            before: MediaCounts::default(),
            lost_blocks: Arc::default(),
            strikes: Mutex::new(Strikes::none()),
            verbose,
            failure: Mutex::new(None),
            progress: AtomicU64::new(0),
            beats: AtomicU64::new(1),
            poisoned_since: AtomicU64::new(0),
            clients: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            maintaining: AtomicU64::new(0),
            closing: AtomicBool::new(false),
            full: AtomicBool::new(false),
            newest: Mutex::default(),
            lost: Mutex::default(),
            bell: Mutex::new(Vec::new()),
        }
    }

    /// Increments a counter.
    pub fn count(&self, name: &'static str) {
        self.counts.lock().add(name, 1);
    }

    /// Value of a counter so far, over all lives.
    pub fn count_of(&self, name: &str) -> u64 {
        self.counts.lock().get(name)
    }

    /// Prints what is happening, in verbose mode.
    pub fn trace<D: Display>(&self, what: impl FnOnce() -> D) {
        if self.verbose {
            eprintln!("  {}", what());
        }
    }

    /// Records a failure and stops. The first failure ends the seed.
    pub fn fail(&self, why: String) {
        self.trace(|| format!("FAILED: {why}"));
        self.failure.lock().get_or_insert(why);
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// Fails if a guarantee was violated.
    pub fn hold(&self, result: Result<(), Violation>) {
        if let Err(Violation(why)) = result {
            self.fail(why);
        }
    }

    /// Returns the failure, if any.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Records progress.
    pub fn made_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a client.
    pub fn enter(&self) {
        self.clients.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a client. After the last one, maintenance stops too.
    pub fn leave(&self) {
        if self.clients.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.stopped.store(true, Ordering::Relaxed);
            self.ring();
        }
    }

    /// Returns whether tasks should stop.
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Range that hosts may use at least, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Records that the drive has grown. (Existing connections of a server do not see the growth.)
    pub fn grown_to(&self, logical_bytes: u64) {
        if S::HAS_SPACE && !self.config.is_served() {
            self.capacity.fetch_max(logical_bytes, Ordering::Relaxed);
        }
    }

    /// Records that background work begins or ends.
    pub fn set_maintaining(&self, maintaining: bool) {
        match maintaining {
            true => self.maintaining.fetch_add(1, Ordering::Relaxed),
            false => self.maintaining.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Allows the drive to be closed from now on.
    pub fn set_closing(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    /// Records that a write was refused for lack of space, or that space was freed.
    pub fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    /// Returns whether a write was refused for lack of space, and none was freed since.
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::Relaxed)
    }

    /// Records an acknowledged write: first sector and number of sectors.
    pub fn note_written(&self, first: u64, count: u64) {
        let mut newest = self.newest.lock();
        newest.truncate(NEWEST - 1);
        newest.push_front((first, count));
    }

    /// Draws one of the newest writes, mostly the last.
    pub fn draw_newest(&self, rng: &mut SimRng) -> Option<(u64, u64)> {
        let newest = self.newest.lock();
        newest.get(rng.skewed(2) as usize % newest.len().max(1)).copied()
    }

    /// Returns whether a failed sync was reported to the drive long enough ago. (After a failed write the
    /// drive may continue elsewhere.)
    pub fn is_poisoned(&self) -> bool {
        let since = self.poisoned_since.load(Ordering::Relaxed);
        since != 0 && self.beats.load(Ordering::Relaxed) >= since + POISON_BEATS
    }

    /// Returns whether a correct drive may return this error, given the faults of its backing. NoSpace is not
    /// judged here.
    pub fn excuses(&self, doing: Doing, error: &Error) -> bool {
        self.excuses_of(Struck::of(&self.media, &self.overwrites, &self.before), doing, error)
    }

    fn excuses_of(&self, struck: Struck, doing: Doing, error: &Error) -> bool {
        let closed = *error == Error::ReadOnly(ReadOnly::Closed) && self.closing.load(Ordering::Relaxed);
        let poisoned = panics::has_struck() && matches!(error, Error::ReadOnly(ReadOnly::Poisoned(_)));
        closed || poisoned || struck.excuses(doing, error)
    }

    /// Returns whether segments may have been set aside, or cannot be cleaned because they are unreadable. A
    /// full drive may lack space because of them.
    pub fn lacks_segments(&self) -> bool {
        let media = &self.media;
        media.counts().damage() > 0 || media.bad_pages() > 0 || media.unreadable_pages() > 0
    }

    /// Returns whether the backing was ever full.
    pub fn was_backing_full(&self) -> bool {
        Struck::counts(&self.media, &self.overwrites).full_errors > 0
    }

    /// The same for a request that needs these sectors and nothing else.
    fn excuses_at(&self, doing: Doing, (first, count): (u64, u64), error: &Error) -> bool {
        let struck = Struck::of(&self.media, &self.overwrites, &self.before);
        let is_lost = self.lost_blocks.lock().range(blocks_of(first, count)).next().is_some();
        let struck = if is_lost { struck } else { struck.sparing(&self.media.counts()) };
        self.excuses_of(struck, doing, error)
    }

    /// Counts an error of a request for some sectors, and fails if nothing excuses it.
    pub fn judge_at(&self, doing: Doing, sectors: (u64, u64), error: &Error) {
        self.count_error(error);
        if !self.excuses_at(doing, sectors, error) {
            self.fail(format!("{doing} of {sectors:?} failed, and nothing excuses it: {error}"));
        }
    }

    /// Counts an error, and fails if nothing excuses it.
    pub fn judge(&self, doing: Doing, error: &Error) {
        self.count_error(error);
        if !self.excuses(doing, error) {
            self.fail(format!("{doing} failed, and nothing excuses it: {error}"));
        }
    }

    fn count_error(&self, error: &Error) {
        self.count(match error {
            Error::Invalid(_) => "error: invalid",
            Error::NoSpace => "error: no space",
            Error::BackingFull => "error: backing full",
            Error::ReadOnly(ReadOnly::Closed) => "error: closed",
            Error::ReadOnly(_) | Error::NotPermitted => "error: read-only",
            Error::Io(_) => "error: i/o",
            Error::Damaged(_) => "error: corrupt",
            Error::FailedOrDamaged(_) => "error: i/o or corrupt",
            Error::ConnectionLost => "error: connection lost",
            _ => "error: another",
        });
    }

    /// Records that the connection of a write was lost.
    pub fn lose(&self, write: u32) {
        self.lost.lock().push((write, self.subject.connections_begun()));
    }

    /// Tells the oracle which writes whose connections were lost take effect no more. Call it before each
    /// write, so that they do not overwrite it.
    pub fn settle_lost(&self) {
        let fenced = self.subject.connection_fenced();
        let mut oracle = self.oracle.lock();
        self.lost.lock().retain(|(write, begun)| {
            let is_settled = *begun < fenced;
            if is_settled {
                oracle.settle(*write);
            }
            !is_settled
        });
    }

    /// Waits for the next beat.
    pub async fn next_beat(&self) {
        let beat = self.beats.load(Ordering::Relaxed);
        std::future::poll_fn(|context| {
            if self.beats.load(Ordering::Relaxed) > beat || self.is_stopped() {
                return Poll::Ready(());
            }
            self.bell.lock().push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Loses pages, in some cases.
    fn perhaps_strike(&self) {
        let mut strikes = self.strikes.lock();
        if !strikes.is_due() {
            return;
        }
        // The planned panic is for what the drive does.
        let armed = panics::arm(None);
        let covered = self.subject.covered();
        panics::arm(armed);
        if let Some(why) = strikes.verify(&self.media, &covered) {
            self.fail(why);
        }
        for struck in strikes.strike(&self.media, &covered) {
            let Lost { segment, pages, blocks } = struck;
            self.trace(|| format!("pages of segment {segment} are lost: {pages:?}, and blocks {blocks:?}"));
            if blocks.is_empty() {
                self.count("life: pages within the cover of parity are lost");
                continue;
            }
            self.count("life: pages beyond the cover of parity are lost");
            self.media.note_lost_data();
            self.lost_blocks.lock().extend(blocks);
        }
    }

    fn ring(&self) {
        std::mem::take(&mut *self.bell.lock()).into_iter().for_each(Waker::wake);
    }
}

/// Blocks of some sectors.
pub(crate) fn blocks_of(first: u64, count: u64) -> RangeInclusive<u64> {
    let sectors = BLOCK_BYTES / SECTOR_BYTES as u64;
    first / sectors..=(first + count.max(1) - 1) / sectors
}

impl<S: Subject> Pulse for World<S> {
    fn beat(&self, idle: bool) {
        let now = self.beats.fetch_add(1, Ordering::Relaxed);
        if self.poisoned_since.load(Ordering::Relaxed) == 0
            && self.media.failed_syncs_reported() > self.made_good
        {
            self.poisoned_since.store(now, Ordering::Relaxed);
        }
        if idle || now.is_multiple_of(self.config.beats_per_tick) {
            self.subject.tick();
        }
        self.perhaps_strike();
        self.ring();
    }

    fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    fn in_maintenance(&self) -> bool {
        self.maintaining.load(Ordering::Relaxed) > 0
    }
}
