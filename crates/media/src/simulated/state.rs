//! Content of a simulated backing, and the effect of operations on it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::sync::Arc;
use std::task::Waker;

use super::fate::Fate;
use super::{Faults, MediaCounts, SimGhosts, SimOrder, SimRng, TEAR_BYTES};
use crate::{IoBuf, PAGE_BYTES};

/// Number of durable writes remembered with the content they replaced, for fault 10.
const PAST_WRITES_MAX: usize = 48;
/// Pages of space added to a full backing at a time.
const ROOM_MADE_PAGES: u64 = 256;

pub(super) type Page = Arc<[u8; PAGE_BYTES]>;
/// Content of one page; `None` reads as zeros.
pub(super) type Content = Option<Page>;

/// A page of the durable image, and the number of the sync that made it so.
#[derive(Clone)]
pub(super) struct Durable {
    pub(super) page: Page,
    pub(super) synced_at: u64,
    /// Number of the log entry that the page belongs to.
    pub(super) number: Option<u64>,
}

/// A completed write or discard that no completed sync covers yet.
#[derive(Clone)]
pub(super) struct Unsynced {
    pub(super) pages: Vec<(u64, Content)>,
    pub(super) completed_at: u64,
    pub(super) issued_at: u64,
    pub(super) log_numbers: LogNumbers,
}

/// A durable write: its content, and the content it replaced.
#[derive(Clone)]
pub(super) struct Past {
    pub(super) pages: Vec<(u64, Page, Content)>,
}

pub(super) enum Request {
    Read { offset: u64, buf: IoBuf },
    Write { offset: u64, buf: Arc<IoBuf>, issued_at: u64 },
    Sync { covers: u64 },
    Discard { offset: u64, len: u64 },
}

pub(super) struct InFlight {
    pub(super) id: u64,
    pub(super) request: Request,
    pub(super) waker: Option<Waker>,
    pub(super) abandoned: bool,
    /// For [`SimOrder::Priority`](super::SimOrder).
    pub(super) priority: u64,
}

pub(super) struct Answer {
    pub(super) buf: Option<IoBuf>,
    pub(super) result: io::Result<()>,
    pub(super) is_failed_sync: bool,
}

impl Answer {
    pub(super) fn new(result: io::Result<()>) -> Answer {
        Answer { buf: None, result, is_failed_sync: false }
    }
}

/// Numbers of a log found in a write to it; see
/// [`SimMedia::reading_log_numbers`](super::SimMedia::reading_log_numbers).
#[derive(Clone, Debug, Default)]
pub struct LogNumbers {
    /// For each page, the number of the entry that it belongs to.
    pub numbers: Vec<Option<u64>>,
    /// The write calls all entries up to this number durable.
    pub durable: u64,
}

/// Reads the log numbers in the pages of a write.
pub type ReadLogNumbers = fn(&[&[u8]]) -> LogNumbers;

/// Returns whether damage to a range of bytes of a page costs nothing but data of users, by the content of
/// the backing: that of any page, the number of this page, the range in it, and whether one bit of it flips.
pub type IsData = fn(&dyn Fn(u64) -> Option<Arc<[u8; PAGE_BYTES]>>, u64, Range<usize>, bool) -> bool;

impl LogNumbers {
    pub(super) fn number_of(&self, page: usize) -> Option<u64> {
        self.numbers.get(page).copied().flatten()
    }
}

#[derive(Default)]
pub(super) struct State {
    pub(super) rng: SimRng,
    pub(super) faults: Faults,
    pub(super) counts: MediaCounts,
    pub(super) live: BTreeMap<u64, Page>,
    pub(super) durable: BTreeMap<u64, Durable>,
    pub(super) unsynced: Vec<Unsynced>,
    pub(super) past: VecDeque<Past>,
    pub(super) sticky: BTreeSet<u64>,
    pub(super) hidden: BTreeSet<u64>,
    /// Pages of fault 13 that cannot be read.
    pub(super) lost: BTreeSet<u64>,
    pub(super) in_flight: Vec<InFlight>,
    pub(super) answers: BTreeMap<u64, Answer>,
    pub(super) next_id: u64,
    /// Number of completed writes and discards.
    pub(super) completed: u64,
    /// Number of completed syncs.
    pub(super) syncs: u64,
    /// Probability, in 64ths, that a sync that is picked to complete is delayed instead. Over 32, a sync also
    /// waits for all other operations.
    pub(super) sync_lag: u64,
    /// Largest `syncs` at the issue of a write that is durable by now and may vouch for earlier ones.
    pub(super) vouched: u64,
    /// True if fault 10 has struck in the area where it may strike only once.
    pub(super) misdirected_below: bool,
    /// Function that reads the numbers of a log in writes.
    pub(super) read_log_numbers: Option<ReadLogNumbers>,
    /// Function that tells what is data of users.
    pub(super) is_data: Option<IsData>,
    /// Largest number that a durable write calls durable.
    pub(super) called_durable: u64,
    /// Writes that begin before this byte vouch for nothing.
    pub(super) vouching_from: u64,
    /// Number of failed writes and syncs in this life.
    pub(super) failures: u64,
    /// Number of failed syncs that were reported to the user in this life.
    pub(super) failed_syncs_reported: u64,
    pub(super) shows: SimGhosts,
    /// Unit in bytes that a power cut leaves old or new; [`TEAR_BYTES`] if 0.
    pub(super) tear_bytes: usize,
    /// Pages whose reads return something other than the durable content, which no sync will change.
    pub(super) ghosts: BTreeSet<u64>,
    /// Pages that accept no writes.
    pub(super) bad: BTreeSet<u64>,
    /// A page that accepts no writes and whose content has another copy. It excuses no failure of a drive.
    pub(super) bad_copy: Option<u64>,
    /// Order in which operations complete.
    pub(super) order: SimOrder,
    /// Operations in flight that do not complete until they are released.
    pub(super) held: BTreeSet<u64>,
    /// No operation completes.
    pub(super) hangs: bool,
    /// Number of completed writes to each watched page.
    pub(super) watched: BTreeMap<u64, u64>,
}

impl State {
    pub(super) fn submit(&mut self, mut request: Request) -> u64 {
        match &mut request {
            Request::Write { offset, buf, issued_at } => {
                *issued_at = self.syncs;
                let (start, end) = (*offset, *offset + buf.len() as u64);
                let meets = |op: &InFlight| match &op.request {
                    Request::Write { offset, buf, .. } => *offset < end && start < *offset + buf.len() as u64,
                    Request::Discard { offset, len } => *offset < end && start < *offset + *len,
                    Request::Read { .. } | Request::Sync { .. } => false,
                };
                self.counts.overlapping_writes += u64::from(self.in_flight.iter().any(meets));
            }
            Request::Sync { covers } => *covers = self.completed,
            Request::Read { .. } | Request::Discard { .. } => {}
        }
        self.next_id += 1;
        let priority = self.rng.below(1 << 16);
        self.in_flight.push(InFlight { id: self.next_id, request, waker: None, abandoned: false, priority });
        self.next_id
    }

    /// Returns whether the operation in flight at this index is a sync.
    pub(super) fn is_sync(&self, at: usize) -> bool {
        matches!(self.in_flight[at].request, Request::Sync { .. })
    }

    pub(super) fn perform(&mut self, request: Request) -> Answer {
        match request {
            Request::Read { offset, mut buf } => {
                let result = self.read(offset, &mut buf);
                Answer { buf: Some(buf), ..Answer::new(result) }
            }
            Request::Write { offset, buf, issued_at } => Answer::new(self.write(offset, &buf, issued_at)),
            Request::Sync { covers } => {
                let result = self.sync(covers);
                Answer { is_failed_sync: result.is_err(), ..Answer::new(result) }
            }
            Request::Discard { offset, len } => Answer::new(self.discard(offset, len)),
        }
    }

    fn read(&mut self, offset: u64, buf: &mut IoBuf) -> io::Result<()> {
        self.counts.reads += 1;
        let first = offset / PAGE_BYTES as u64;
        let count = (buf.len() / PAGE_BYTES) as u64;
        if self.rng.ppm(self.faults.sticky_read_error_ppm) {
            self.sticky.insert(first + self.rng.below(count));
        }
        if self.sticky.range(first..first + count).next().is_some()
            || self.hidden.range(first..first + count).next().is_some()
            || self.rng.ppm(self.faults.read_error_ppm)
        {
            self.counts.read_errors += 1;
            return Err(io::Error::from_raw_os_error(5));
        }
        if self.lost.range(first..first + count).next().is_some() {
            self.counts.lost_reads += 1;
            return Err(io::Error::from_raw_os_error(5));
        }
        for (at, out) in (first..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            match self.live.get(&at) {
                Some(page) => out.copy_from_slice(&page[..]),
                None => out.fill(0),
            }
        }
        // For each sector of a write that races this read, the old or the new content is returned.
        for op in &self.in_flight {
            if let Request::Write { offset: theirs, buf: new, .. } = &op.request {
                let from = offset.max(*theirs);
                let to = (offset + buf.len() as u64).min(theirs + new.len() as u64);
                for at in (from..to).step_by(TEAR_BYTES) {
                    if self.rng.chance(1, 2) {
                        let source = (at - theirs) as usize;
                        let target = (at - offset) as usize;
                        buf[target..target + TEAR_BYTES].copy_from_slice(&new[source..source + TEAR_BYTES]);
                    }
                }
            }
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, buf: &IoBuf, issued_at: u64) -> io::Result<()> {
        self.counts.writes += 1;
        let pages = pages_of(offset, buf);
        if let Some(full) = self.faults.full_pages {
            let holes = pages.iter().filter(|(at, _)| !self.live.contains_key(at)).count() as u64;
            if holes > 0 && self.live.len() as u64 + holes > full {
                self.counts.full_errors += 1;
                self.failures += 1;
                if self.rng.ppm(self.faults.room_made_ppm) {
                    self.counts.rooms_made += 1;
                    self.faults.full_pages = Some(full + ROOM_MADE_PAGES);
                }
                return Err(io::Error::from_raw_os_error(28));
            }
        }
        if pages.iter().any(|(at, _)| self.bad_copy == Some(*at)) {
            self.counts.bad_copy_errors += 1;
            // Either the rest of the write takes effect, or nothing.
            if self.rng.chance(1, 2) {
                self.apply_write(pages, issued_at, Fate::Whole);
            }
            return Err(io::Error::from_raw_os_error(5));
        }
        self.go_bad(&pages);
        let is_bad = pages.iter().any(|(at, _)| self.bad.contains(at));
        if is_bad || self.rng.ppm(self.faults.write_error_ppm) {
            match is_bad {
                true => self.counts.bad_page_errors += 1,
                false => self.counts.write_errors += 1,
            }
            self.failures += 1;
            let weight = self.rng.below(9);
            self.apply_write(pages, issued_at, Fate::Torn(weight));
            return Err(io::Error::from_raw_os_error(5));
        }
        for (at, _) in &pages {
            self.sticky.remove(at);
        }
        self.apply_write(pages, issued_at, Fate::Whole);
        Ok(())
    }

    fn discard(&mut self, offset: u64, len: u64) -> io::Result<()> {
        if self.faults.no_discard {
            return Err(io::Error::from(ErrorKind::Unsupported));
        }
        self.counts.discards += 1;
        self.find_again(offset, len);
        let pages = self.discarded(offset, len);
        self.apply(pages, self.syncs, Fate::Whole);
        Ok(())
    }

    fn sync(&mut self, covers: u64) -> io::Result<()> {
        self.counts.syncs += 1;
        if self.rng.ppm(self.faults.sync_error_ppm) {
            self.counts.sync_errors += 1;
            self.failures += 1;
            self.fail_sync();
            return Err(io::Error::from_raw_os_error(5));
        }
        self.syncs += 1;
        let (done, rest) =
            std::mem::take(&mut self.unsynced).into_iter().partition(|u| u.completed_at <= covers);
        self.unsynced = rest;
        let done: Vec<Unsynced> = done;
        for write in done {
            let mut past = Vec::new();
            self.called_durable = self.called_durable.max(write.log_numbers.durable);
            for (n, (at, content)) in write.pages.into_iter().enumerate() {
                let number = write.log_numbers.number_of(n);
                let old = match content.clone() {
                    Some(page) => self.durable.insert(at, Durable { page, synced_at: self.syncs, number }),
                    None => self.durable.remove(&at),
                };
                past.extend(content.map(|page| (at, page, old.map(|durable| durable.page))));
            }
            if !past.is_empty() {
                // Writing the same bytes again does not vouch for anything newer.
                let is_new = past.iter().any(|(_, page, old)| old.as_ref().is_none_or(|old| **old != **page));
                if is_new && past[0].0 * PAGE_BYTES as u64 >= self.vouching_from {
                    self.vouched = self.vouched.max(write.issued_at);
                }
                self.past.push_back(Past { pages: past });
            }
        }
        let excess = self.past.len().saturating_sub(PAST_WRITES_MAX);
        self.past.drain(..excess);
        Ok(())
    }

    /// Like [`State::apply`], but skips pages that accept no writes.
    fn apply_write(&mut self, mut pages: Vec<(u64, Content)>, issued_at: u64, fate: Fate) {
        pages.retain(|(at, _)| !self.bad.contains(at) && self.bad_copy != Some(*at));
        self.apply(pages, issued_at, fate);
    }

    /// Makes `pages` visible to reads, as a whole or in part, and records them to become durable at a sync.
    fn apply(&mut self, pages: Vec<(u64, Content)>, issued_at: u64, fate: Fate) {
        let log_numbers = match (self.read_log_numbers, fate) {
            (Some(read), Fate::Whole) => {
                let pages = pages.iter().map(|(_, page)| page.as_ref().map_or(&[][..], |page| &page[..]));
                read(&pages.collect::<Vec<_>>())
            }
            _ => LogNumbers::default(),
        };
        let mut applied = Vec::with_capacity(pages.len());
        for (at, content) in pages {
            if let Some(count) = self.watched.get_mut(&at) {
                *count += 1;
            }
            let content = self.blend(self.live.get(&at).cloned(), content, fate);
            self.ghosts.remove(&at);
            self.lost.remove(&at);
            match content.clone() {
                Some(page) => self.live.insert(at, page),
                None => self.live.remove(&at),
            };
            applied.push((at, content));
        }
        self.completed += 1;
        self.unsynced.push(Unsynced { pages: applied, completed_at: self.completed, issued_at, log_numbers });
    }

    /// Ends an operation that was in flight when the process died. A sync has no effect then.
    pub(super) fn perform_in_part(&mut self, request: Request, fate: Fate) {
        match request {
            Request::Write { offset, buf, issued_at } => {
                if !matches!(fate, Fate::Lost) {
                    self.apply_write(pages_of(offset, &buf), issued_at, fate);
                }
            }
            Request::Discard { offset, len } if !self.faults.no_discard => {
                let pages = self.discarded(offset, len);
                self.apply(pages, self.syncs, Fate::Whole);
            }
            Request::Discard { .. } | Request::Sync { .. } | Request::Read { .. } => {}
        }
    }

    /// Pages of the range that a discard turns into holes, chosen at random.
    fn discarded(&mut self, offset: u64, len: u64) -> Vec<(u64, Content)> {
        let first = offset / PAGE_BYTES as u64;
        let held = self.live.range(first..first + len / PAGE_BYTES as u64);
        let rng = &mut self.rng;
        held.filter(|_| rng.chance(3, 4)).map(|(&at, _)| (at, None)).collect()
    }
}

fn pages_of(offset: u64, buf: &IoBuf) -> Vec<(u64, Content)> {
    let numbers = offset / PAGE_BYTES as u64..;
    let copy = |chunk: &[u8]| {
        let mut page = [0; PAGE_BYTES];
        page.copy_from_slice(chunk);
        Some(Arc::new(page))
    };
    numbers.zip(buf.chunks_exact(PAGE_BYTES).map(copy)).collect()
}
