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
//! Faults 9 and 10 spare what nothing vouches for: the newest writes, after which no other write was issued
//! and made durable. A log whose last entry vanishes without a trace cannot be told from one that ends
//! earlier, by any drive; the model does not ask for it. The rule is [`VOUCH_SYNCS`].

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::{IoBuf, Media, PAGE_BYTES};

/// What tears: the unit that a power cut leaves old or new, in bytes.
pub const TEAR_BYTES: usize = 512;

/// How many more syncs must complete after the one that made a write durable, and a write issued after those be
/// made durable itself, before faults 9 and 10 may hit the first. Not zero, because what a pack says is durable
/// was true when it was sealed, which may be a little before it is written.
pub const VOUCH_SYNCS: u64 = 2;

/// Durable writes remembered with what they replaced, for fault 10.
const PAST_WRITES_MAX: usize = 48;

/// A seeded random number generator (splitmix64, Steele et al. 2014): the same numbers for ever, whatever
/// becomes of any dependency, so that an old seed still replays.
#[derive(Clone, Debug, Default)]
pub struct SimRng(u64);

impl SimRng {
    /// A generator for this seed.
    pub fn new(seed: u64) -> SimRng {
        let mut rng = SimRng(seed ^ 0x6a09_e667_f3bc_c908);
        rng.next_u64();
        rng
    }

    /// Any number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound` (0 if that is 0).
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// An index into a sequence of `len` things.
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// True with a probability of `parts` in `of`.
    pub fn chance(&mut self, parts: u64, of: u64) -> bool {
        self.below(of) < parts
    }

    /// A number below `1 << bits`, small ones as likely as large ones.
    pub fn skewed(&mut self, bits: u64) -> u64 {
        let bits = self.below(bits + 1);
        self.below(1 << bits)
    }

    /// True with a probability of `ppm` in a million.
    pub fn ppm(&mut self, ppm: u32) -> bool {
        ppm != 0 && self.chance(u64::from(ppm), 1_000_000)
    }

    /// A generator of its own, for a part of the simulation whose draws shall not disturb the others'.
    pub fn fork(&mut self) -> SimRng {
        SimRng::new(self.next_u64())
    }
}

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

type Page = Arc<[u8; PAGE_BYTES]>;
/// Content of one page; `None` reads as zeros.
type Content = Option<Page>;

/// A page of the durable image, and the number of the sync that made it so.
struct Durable {
    page: Page,
    synced_at: u64,
}

/// A completed write or discard that no completed sync covers yet.
struct Unsynced {
    pages: Vec<(u64, Content)>,
    completed_at: u64,
    issued_at: u64,
}

/// A durable write: what it wrote, and what was there before.
struct Past {
    pages: Vec<(u64, Page, Content)>,
}

enum Request {
    Read { offset: u64, buf: IoBuf },
    Write { offset: u64, buf: Arc<IoBuf>, issued_at: u64 },
    Sync { covers: u64 },
    Discard { offset: u64, len: u64 },
}

struct InFlight {
    id: u64,
    request: Request,
    waker: Option<Waker>,
    abandoned: bool,
}

struct Answer {
    buf: Option<IoBuf>,
    result: io::Result<()>,
    is_hard_failure: bool,
}

impl Answer {
    fn new(result: io::Result<()>) -> Answer {
        Answer { buf: None, result, is_hard_failure: false }
    }

    /// Of something that changes the backing: a failure leaves it in doubt.
    fn of_change(result: io::Result<()>) -> Answer {
        let is_hard_failure = result.is_err();
        Answer { is_hard_failure, ..Answer::new(result) }
    }
}

/// What becomes of a write that nothing made durable.
#[derive(Clone, Copy)]
enum Fate {
    Whole,
    Lost,
    /// Each sector is new with a probability of so many in 8.
    Torn(u64),
}

#[derive(Default)]
struct State {
    rng: SimRng,
    faults: Faults,
    counts: MediaCounts,
    live: BTreeMap<u64, Page>,
    durable: BTreeMap<u64, Durable>,
    unsynced: Vec<Unsynced>,
    past: VecDeque<Past>,
    sticky: BTreeSet<u64>,
    in_flight: Vec<InFlight>,
    answers: BTreeMap<u64, Answer>,
    next_id: u64,
    /// Completed writes and discards.
    completed: u64,
    /// Completed syncs.
    syncs: u64,
    /// Of 16 times that a sync is picked to complete, how often it takes longer still.
    sync_lag: u64,
    /// The largest `syncs` at which a write was issued that is durable by now.
    vouched: u64,
    /// Failed writes and syncs that this life's user has been told of.
    failures_told: u64,
}

/// The simulator's backing. The header of its source file is the storage fault model.
pub struct SimMedia {
    size_bytes: u64,
    state: Mutex<State>,
}

impl SimMedia {
    /// An empty backing of `size_bytes`, a multiple of [`PAGE_BYTES`].
    pub fn new(size_bytes: u64, mut rng: SimRng, faults: Faults) -> SimMedia {
        let sync_lag = [0, 8, 15][rng.index(3)];
        SimMedia { size_bytes, state: Mutex::new(State { rng, faults, sync_lag, ..State::default() }) }
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

    /// Syncs in flight.
    pub fn syncs_in_flight(&self) -> usize {
        let state = self.state.lock();
        state.in_flight.iter().filter(|op| matches!(op.request, Request::Sync { .. })).count()
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
            let lag = state.sync_lag;
            if matches!(state.in_flight[pick].request, Request::Sync { .. }) && state.rng.chance(lag, 16) {
                return true;
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
        state.failures_told = 0;
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

impl State {
    fn submit(&mut self, mut request: Request) -> u64 {
        match &mut request {
            Request::Write { issued_at, .. } => *issued_at = self.syncs,
            Request::Sync { covers } => *covers = self.completed,
            Request::Read { .. } | Request::Discard { .. } => {}
        }
        self.next_id += 1;
        self.in_flight.push(InFlight { id: self.next_id, request, waker: None, abandoned: false });
        self.next_id
    }

    fn perform(&mut self, request: Request) -> Answer {
        match request {
            Request::Read { offset, mut buf } => {
                let result = self.read(offset, &mut buf);
                Answer { buf: Some(buf), ..Answer::new(result) }
            }
            Request::Write { offset, buf, issued_at } => {
                Answer::of_change(self.write(offset, &buf, issued_at))
            }
            Request::Sync { covers } => Answer::of_change(self.sync(covers)),
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
                return Err(io::Error::from_raw_os_error(28));
            }
        }
        if self.rng.ppm(self.faults.write_error_ppm) {
            self.counts.write_errors += 1;
            self.apply(pages, issued_at, Fate::Torn(4));
            return Err(io::Error::from_raw_os_error(5));
        }
        for (at, _) in &pages {
            self.sticky.remove(at);
        }
        self.apply(pages, issued_at, Fate::Whole);
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
            for (at, content) in write.pages {
                let old = match content.clone() {
                    Some(page) => self.durable.insert(at, Durable { page, synced_at: self.syncs }),
                    None => self.durable.remove(&at),
                };
                past.extend(content.map(|page| (at, page, old.map(|durable| durable.page))));
            }
            if !past.is_empty() {
                self.vouched = self.vouched.max(write.issued_at);
                self.past.push_back(Past { pages: past });
            }
        }
        let excess = self.past.len().saturating_sub(PAST_WRITES_MAX);
        self.past.drain(..excess);
        Ok(())
    }

    /// Fault 7. What reads show of the lost data stays or goes, page by page.
    fn fail_sync(&mut self) {
        let touched: BTreeSet<u64> =
            self.unsynced.iter().flat_map(|u| u.pages.iter().map(|&(at, _)| at)).collect();
        self.settle_unsynced();
        for at in touched {
            if self.rng.chance(1, 2) {
                match self.durable.get(&at) {
                    Some(durable) => self.live.insert(at, durable.page.clone()),
                    None => self.live.remove(&at),
                };
            }
        }
    }

    /// Makes `pages` what reads see, wholly or in part, and remembers to make them durable.
    fn apply(&mut self, pages: Vec<(u64, Content)>, issued_at: u64, fate: Fate) {
        let mut applied = Vec::with_capacity(pages.len());
        for (at, content) in pages {
            let content = self.blend(self.live.get(&at).cloned(), content, fate);
            match content.clone() {
                Some(page) => self.live.insert(at, page),
                None => self.live.remove(&at),
            };
            applied.push((at, content));
        }
        self.completed += 1;
        self.unsynced.push(Unsynced { pages: applied, completed_at: self.completed, issued_at });
    }

    /// Ends an operation that was in flight when the process died. A sync may as well never have been issued.
    fn perform_in_part(&mut self, request: Request, fate: Fate) {
        match request {
            Request::Write { offset, buf, issued_at } => {
                if !matches!(fate, Fate::Lost) {
                    self.apply(pages_of(offset, &buf), issued_at, fate);
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

    /// Decides for each write that no sync covers what becomes of it, in the order they completed.
    fn settle_unsynced(&mut self) {
        // A cut that keeps everything and one that loses everything are as likely as one that picks.
        let mood = self.rng.below(4);
        for write in std::mem::take(&mut self.unsynced) {
            let fate = match mood {
                0 => Fate::Whole,
                1 => Fate::Lost,
                _ => self.draw_fate(),
            };
            match fate {
                Fate::Whole => {}
                Fate::Lost => self.counts.lost_writes += 1,
                Fate::Torn(_) => self.counts.torn_writes += 1,
            }
            for (at, content) in write.pages {
                let old = self.durable.get(&at).map(|durable| durable.page.clone());
                match self.blend(old, content, fate) {
                    // Durable without a sync: it counts as made so by the next one.
                    Some(page) => self.durable.insert(at, Durable { page, synced_at: self.syncs + 1 }),
                    None => self.durable.remove(&at),
                };
            }
        }
    }

    fn draw_fate(&mut self) -> Fate {
        match self.rng.below(6) {
            0 | 1 => Fate::Whole,
            2 | 3 => Fate::Lost,
            4 => Fate::Torn(1 + self.rng.below(7)),
            _ => Fate::Torn(7),
        }
    }

    /// What a page holds after a write over `old` that met this fate. Holes come and go by whole pages.
    fn blend(&mut self, old: Content, new: Content, fate: Fate) -> Content {
        let weight = match fate {
            Fate::Whole => return new,
            Fate::Lost => return old,
            Fate::Torn(weight) => weight,
        };
        let Some(new) = new else {
            return if self.rng.chance(weight, 8) { None } else { old };
        };
        let mut page = old.map_or([0; PAGE_BYTES], |page| *page);
        for (mine, theirs) in page.chunks_exact_mut(TEAR_BYTES).zip(new.chunks_exact(TEAR_BYTES)) {
            if self.rng.chance(weight, 8) {
                mine.copy_from_slice(theirs);
            }
        }
        Some(Arc::new(page))
    }

    /// Faults 9 and 10, if their time has come.
    fn strike(&mut self) {
        if self.rng.ppm(self.faults.rot_ppm) {
            self.rot();
        }
        if self.rng.ppm(self.faults.misdirect_ppm) {
            self.misdirect();
        }
    }

    /// Whether faults 9 and 10 may change this page: it is durable, unchanged since, and vouched for.
    fn is_fair_game(&self, at: u64) -> bool {
        match (self.live.get(&at), self.durable.get(&at)) {
            (None, None) => true,
            (Some(live), Some(durable)) => {
                Arc::ptr_eq(live, &durable.page) && durable.synced_at + VOUCH_SYNCS <= self.vouched
            }
            _ => false,
        }
    }

    fn rot(&mut self) {
        let Some((&last, _)) = self.durable.last_key_value() else { return };
        for _ in 0..8 {
            let from = self.rng.below(last + 1);
            let Some((&at, durable)) = self.durable.range(from..).next() else { return };
            let mut page = *durable.page;
            if !self.is_fair_game(at) {
                continue;
            }
            let sector = self.rng.index(PAGE_BYTES / TEAR_BYTES) * TEAR_BYTES;
            match self.rng.below(3) {
                0 => page[self.rng.index(PAGE_BYTES)] ^= 1 << self.rng.below(8),
                1 => page[sector..sector + TEAR_BYTES].fill(0),
                _ => page[sector..sector + TEAR_BYTES].fill_with(|| self.rng.next_u64() as u8),
            }
            self.replace(at, Some(Arc::new(page)));
            self.counts.rotten_sectors += 1;
            return;
        }
    }

    fn misdirect(&mut self) {
        let count = self.past.len();
        let Some(write) = self.past.get(self.rng.index(count)) else { return };
        let still_there = |(at, page, _): &(u64, Page, Content)| {
            self.live.get(at).is_some_and(|live| Arc::ptr_eq(live, page)) && self.is_fair_game(*at)
        };
        if !write.pages.iter().all(still_there) {
            return;
        }
        let pages = write.pages.clone();
        let first = pages[0].0;
        let target = self.durable.last_key_value().map_or(0, |(&last, _)| self.rng.below(last + 1));
        for (at, _, old) in &pages {
            self.replace(*at, old.clone());
        }
        let fair = pages.iter().all(|(at, _, _)| self.is_fair_game(target + at - first));
        if self.rng.chance(1, 2) && fair {
            for (at, page, _) in &pages {
                self.replace(target + at - first, Some(page.clone()));
            }
        }
        self.counts.misdirected_writes += 1;
    }

    /// Changes a page behind everyone's back. It stays fair game.
    fn replace(&mut self, at: u64, content: Content) {
        match content {
            Some(page) => {
                self.live.insert(at, page.clone());
                self.durable.insert(at, Durable { page, synced_at: 0 });
            }
            None => {
                self.live.remove(&at);
                self.durable.remove(&at);
            }
        }
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
