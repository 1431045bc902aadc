//! What a simulated backing holds, and what becomes of an operation.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::task::Waker;

use super::damage::Fate;
use super::{Faults, MediaCounts, SimCache, SimOrder, SimRng, TEAR_BYTES};
use crate::{IoBuf, PAGE_BYTES};

/// Durable writes remembered with what they replaced, for fault 10.
const PAST_WRITES_MAX: usize = 48;
/// Pages that a full backing has room for when somebody made some.
const ROOM_MADE_PAGES: u64 = 256;

pub(super) type Page = Arc<[u8; PAGE_BYTES]>;
/// Content of one page; `None` reads as zeros.
pub(super) type Content = Option<Page>;

/// A page of the durable image, and the number of the sync that made it so.
#[derive(Clone)]
pub(super) struct Durable {
    pub(super) page: Page,
    pub(super) synced_at: u64,
    /// Of the entry of a log that it belongs to.
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

/// A durable write: what it wrote, and what was there before.
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

/// The numbers in a write of the log that it is a part of: see [`SimMedia::reading_log_numbers`](super::SimMedia::reading_log_numbers).
#[derive(Clone, Debug, Default)]
pub struct LogNumbers {
    /// By page: the number of the entry that it belongs to.
    pub numbers: Vec<Option<u64>>,
    /// The write calls all entries up to this one durable.
    pub durable: u64,
}

/// Reads the pages of a write.
pub type ReadLogNumbers = fn(&[&[u8]]) -> LogNumbers;

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
    pub(super) in_flight: Vec<InFlight>,
    pub(super) answers: BTreeMap<u64, Answer>,
    pub(super) next_id: u64,
    /// Completed writes and discards.
    pub(super) completed: u64,
    /// Completed syncs.
    pub(super) syncs: u64,
    /// Of 64 times that a sync is picked to complete, how often it takes longer still. Over 32: it also waits for
    /// everything else.
    pub(super) sync_lag: u64,
    /// The largest `syncs` at which a write was issued that is durable by now and may tell of those before.
    pub(super) vouched: u64,
    /// Fault 10 has struck where it may only once.
    pub(super) misdirected_below: bool,
    /// Reads the numbers of a log in writes.
    pub(super) read_log_numbers: Option<ReadLogNumbers>,
    /// Most that a durable write calls durable.
    pub(super) called_durable: u64,
    /// Writes that begin before this byte say nothing of others.
    pub(super) vouching_from: u64,
    /// Failed writes and syncs of this life.
    pub(super) failures: u64,
    /// Failed syncs that this life's user has been told of.
    pub(super) failed_syncs_told: u64,
    pub(super) cache: SimCache,
    /// Bytes that a power cut leaves old or new as a whole; [`TEAR_BYTES`] if 0.
    pub(super) tear_bytes: usize,
    /// Pages of which reads show something else than what is durable, and no sync will make it so.
    pub(super) ghosts: BTreeSet<u64>,
    /// Pages that take no write.
    pub(super) bad: BTreeSet<u64>,
    /// A page that takes no write either, of which there is another copy: no excuse for anything.
    pub(super) bad_copy: Option<u64>,
    /// Which operation completes next.
    pub(super) order: SimOrder,
    /// Operations in flight that wait until they are released.
    pub(super) held: BTreeSet<u64>,
    /// Completed writes to pages that somebody has asked about.
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

    /// Whether that operation in flight is a sync.
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
        for (at, out) in (first..).zip(buf.chunks_exact_mut(PAGE_BYTES)) {
            match self.live.get(&at) {
                Some(page) => out.copy_from_slice(&page[..]),
                None => out.fill(0),
            }
        }
        // Writes that race this read may show any of their sectors.
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
            // The rest of it, or nothing.
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
                // What is written again as it was says nothing of anything newer.
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

    /// [`State::apply`], but for pages that take no write.
    fn apply_write(&mut self, mut pages: Vec<(u64, Content)>, issued_at: u64, fate: Fate) {
        pages.retain(|(at, _)| !self.bad.contains(at) && self.bad_copy != Some(*at));
        self.apply(pages, issued_at, fate);
    }

    /// Makes `pages` what reads see, wholly or in part, and remembers to make them durable.
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
            match content.clone() {
                Some(page) => self.live.insert(at, page),
                None => self.live.remove(&at),
            };
            applied.push((at, content));
        }
        self.completed += 1;
        self.unsynced.push(Unsynced { pages: applied, completed_at: self.completed, issued_at, log_numbers });
    }

    /// Ends an operation that was in flight when the process died. A sync may as well never have been issued.
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

    /// The pages of the range that a discard turns into holes: any of them.
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
